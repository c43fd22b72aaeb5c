"""What people do in a training besides training goes on under the hook as without it (habits.py)."""
import functools
import json
import re
import subprocess

import pytest
from conftest import HERE, layers_of, plain, run, sampled

HABITS = str(HERE / "habits.py")


def told(result):
    return json.loads(result.stdout.splitlines()[-1])


@functools.lru_cache(maxsize=None)
def torch_of(python):
    version = run(python, "-c", "import torch; print(torch.__version__)").stdout
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def both(probe, python, habit):
    """What the habit tells without the hook and with it, within a stretch; and the batches."""
    alone = plain(python, HABITS, habit)
    result, batches = sampled(probe, python, HABITS, habit)
    assert re.sub(r"\d", "", result.stderr) == re.sub(r"\d", "", alone.stderr)  # torch's own have numbers
    return told(alone), told(result), batches


@pytest.mark.parametrize("habit", ["find_spec", "patched_threads", "rebuild", "fast_path", "oom"])
def test_goes_on(probe, python, habit):
    alone, hooked, batches = both(probe, python, habit)
    assert hooked == alone and hooked["losses"]
    assert sum(len(b["steps"]["number"]) for b in batches) > 0, probe.log.read_text()


def test_scripted_and_saved_models_carry_nothing(probe, python):
    alone, hooked, batches = both(probe, python, "script")
    assert hooked == alone and hooked["same"] and hooked["own"] == 0
    assert sum(len(b["steps"]["number"]) for b in batches) > 0, probe.log.read_text()


@pytest.mark.parametrize("habit", ["compile", "compile_late", "export"])
def test_stands_aside_from_the_compiler(probe, python, habit):
    """Nothing is captured, refused, warned of or compiled anew because of the hook; and the agent says why."""
    if torch_of(python) < (2, 4):
        pytest.skip("a torch without this compiler")
    alone, hooked, batches = both(probe, python, habit)
    assert hooked == alone
    assert "torch.compile or torch.export is in use" in probe.log.read_text()
    steps = sum(len(b["steps"]["number"]) for b in batches)
    assert steps == 0 if habit == "compile" else steps > 0


def test_keeps_no_model_alive(probe, python):
    alone, hooked, _ = both(probe, python, "teacher")
    assert alone == hooked == {"early": True, "late": True}


def test_layers_of_a_model_made_again_keep_their_ids(probe, python):
    _, _, batches = both(probe, python, "rebuild")
    names = [layer["name"] for layer in layers_of(batches).values()]
    assert sorted(names) == ["0", "1", "2"]


def test_forked_child_ends_as_ever(probe, python):
    alone, hooked, _ = both(probe, python, "fork")
    assert alone["status"] == hooked["status"] == 0


def test_spawned_workers_are_no_trainers(probe, python):
    _, hooked, _ = both(probe, python, "spawned")
    assert hooked["rings"] == 1


def test_ends_by_itself_what_nobody_ends(probe, python, tmp_path):
    """Without an agent that lives, and without a step at whose end it could stop: out after 30 s, and not before."""
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "control.json").write_text(json.dumps({"mode": "sample"}))
    environment = {**probe.environment(), "PRECISIONPROBE_RING": str(alone)}
    long = subprocess.Popen([python, HABITS, "long"], env=environment, stdout=subprocess.PIPE, text=True)
    result, batches = sampled(probe, python, HABITS, "serve", durationSeconds=2)
    output, _ = long.communicate(timeout=90)
    for hooked in (told(result), json.loads(output)):
        assert hooked["first"] > 0 and hooked["last"] == 0, hooked
    assert batches


def test_no_layers_are_chosen_by_another_sessions_filters(probe, python):
    """The ring asks for a session before its control file is there: the stretch waits for the file."""
    (probe.ring / "control.json").write_text(json.dumps({"mode": "sample", "session": 2000000010}))
    result = told(run(python, HABITS, "sessions", environment=probe.environment()))
    assert result == {"early": [False], "marking": True}
