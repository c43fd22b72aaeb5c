"""What people do in a training besides training goes on under the hook as without it (habits.py)."""
import json
import re
import subprocess

import pytest
from conftest import HERE, layers_of, pieces, plain, run, sampled, torch_of, undelta

HABITS = str(HERE / "habits.py")
NO_KERNELS = 3  # why layers in one are not told: pp_whole_reason
OUTSIDE = {("loss", "(outside of modules)"): {0, 1}, ("gradients", "(outside of modules)"): {1}}  # their phases


def told(result):
    return json.loads(result.stdout.splitlines()[-1])


def said(result):
    """On stderr, without numbers (torch's own), and without the end of a spawned worker, which Python's resource tracker
    may find too early, by itself too."""
    text = re.sub(r".*resource_tracker\.py.*\n( .*\n)?", "", result.stderr)
    return re.sub(r"\d", "", text)


def both(probe, python, habit):
    """What the habit tells without the hook and with it, within a capture; and the batches."""
    alone = plain(python, HABITS, habit)
    result, batches = sampled(probe, python, HABITS, habit)
    assert said(result) == said(alone)
    return told(alone), told(result), batches


@pytest.mark.parametrize("habit", ["find_spec", "patched_threads", "rebuild", "fast_path", "oom", "cleared", "several", "kept",
                                   "signatures", "own_locals", "made_functions", "kept_closures"])
def test_goes_on(probe, python, habit):
    alone, hooked, batches = both(probe, python, habit)
    assert hooked == alone and hooked["losses"]
    assert sum(len(b["steps"]["number"]) for b in batches) > 0, probe.log.read_text()


def test_a_session_may_end_while_torch_walks_its_hooks(probe, python):
    """A program's own hook of optimizers calls a module, where nothing of theirs may be taken out."""
    alone = plain(python, HABITS, "own_optimizer_hooks")
    result, batches = sampled(probe, python, HABITS, "own_optimizer_hooks", durationSeconds=1)
    assert said(result) == said(alone) and told(result) == told(alone)
    assert sum(len(b["steps"]["number"]) for b in batches) > 0, probe.log.read_text()


def test_a_step_that_calls_the_one_above_it_is_one(probe, python):
    alone, hooked, batches = both(probe, python, "derived")
    assert hooked == alone
    numbers = [n for b in batches for n in undelta(b["steps"]["number"])]
    assert numbers and max(numbers) <= len(hooked["losses"])


def test_scripted_and_saved_models_carry_nothing(probe, python):
    alone, hooked, batches = both(probe, python, "script")
    assert hooked == alone and hooked["same"] and hooked["own"] == 0
    assert sum(len(b["steps"]["number"]) for b in batches) > 0, probe.log.read_text()


def compiled(probe, python, habit):
    """What is captured, how often, and every loss are as without the hook; {layer name: its type and phases}."""
    if torch_of(python) < (2, 4):
        pytest.skip("a torch without this compiler")
    alone, hooked, batches = both(probe, python, habit)
    assert hooked == alone and hooked["losses"]
    found = {}
    for layer, phase, _, _ in pieces(batches):
        if layer:
            found.setdefault((layer["name"], layer["type"]), set()).add(phase)
    return found


def test_a_compiled_model_is_one_layer(probe, python):
    """And says why: on a CPU there are no kernels."""
    assert compiled(probe, python, "compile") == {("Sequential", "Sequential"): {0, 1}, **OUTSIDE}
    layers = layers_of(probe.batches()).values()
    assert {layer["name"]: layer["whole"] for layer in layers if "whole" in layer} == {"Sequential": NO_KERNELS}


def test_compiled_code_with_a_users_hook_is_not_compiled_anew(probe, python):
    assert compiled(probe, python, "compile_hooked")


def test_a_traced_model_keeps_its_symbols(probe, python):
    if torch_of(python) < (2, 4):
        pytest.skip("a torch without this tracer")
    alone, hooked, _ = both(probe, python, "symbolic")
    assert hooked == alone


def test_files_under_numbers_that_were_the_hooks_are_left_alone(probe, python):
    alone, hooked, _ = both(probe, python, "closed_descriptors")
    assert hooked == alone and set(hooked["sizes"]) == {0}


def test_a_model_compiled_within_a_capture(probe, python):
    """Its layers are looked for again as it is met."""
    eager = [("0", "Linear"), ("1", "ReLU"), ("2", "Linear")]
    assert compiled(probe, python, "compile_late") == {
        **{name: {0, 1} for name in [("Sequential", "Sequential"), *eager]}, **OUTSIDE}


def test_compiled_parts_are_layers_beside_others(probe, python):
    regions = [("inner.1", "Sequential"), ("inner.2", "Sequential"), ("inner.3", "Sequential"),
               ("compile_parts.<locals>.scaled", "function")]
    others = [("inner.0", "Linear"), ("inner.4", "Linear")]
    assert compiled(probe, python, "compile_parts") == {
        **{name: {0, 1} for name in regions + others}, ("Scaled", "Scaled"): {0}, **OUTSIDE}


def test_compiled_code_that_waits(probe, python):
    assert compiled(probe, python, "compile_waits")


def test_what_is_compiled_may_raise_and_nest(probe, python):
    assert ("Sequential", "Sequential") in compiled(probe, python, "compile_oddly")


def test_what_is_compiled_may_be_dropped(probe, python):
    compiled(probe, python, "compile_and_drop")


def test_compiled_by_inductor(probe, python):
    if run(python, "-c", "import shutil, sys; sys.exit(not shutil.which('g++'))", check=False).returncode:
        pytest.skip("no C++ compiler there")
    assert compiled(probe, python, "compile_inductor") == {("Sequential", "Sequential"): {0, 1}, **OUTSIDE}


@pytest.mark.parametrize("habit, since", [("export", (2, 4)), ("export_draft", (2, 7))])
def test_stands_aside_from_export(probe, python, habit, since):
    """Nothing is captured, refused or warned of because of the hook; and the agent says why."""
    if torch_of(python) < since:
        pytest.skip("a torch without this exporter")
    alone, hooked, batches = both(probe, python, habit)
    assert hooked == alone
    assert "torch.export is in use" in probe.log.read_text()
    assert sum(len(b["steps"]["number"]) for b in batches) > 0


def test_keeps_no_model_alive(probe, python):
    alone, hooked, _ = both(probe, python, "teacher")
    assert alone == hooked == {"early": True, "late": True}


def test_layers_of_a_model_made_again_keep_their_ids(probe, python):
    _, _, batches = both(probe, python, "rebuild")
    names = [layer["name"] for layer in layers_of(batches).values()]
    assert sorted(names) == ["0", "1", "2"] + ["gradients", "loss"] * (torch_of(python) >= (2, 1))


def test_forked_child_ends_as_ever(probe, python):
    alone, hooked, _ = both(probe, python, "fork")
    assert alone["status"] == hooked["status"] == 0


WORD = "this process is not profiled: forked from a process that had imported torch"


@pytest.mark.parametrize("habit, words", [("forked_rank", 1), ("forked_trainer", 1), ("forked_helpers", 0)])
def test_a_forked_child_that_trained_says_that_it_is_not_profiled(probe, python, habit, words):
    if torch_of(python) < (2, 1):
        words = 0  # it does not tell whether a thread has made a graph
    alone = plain(python, HABITS, habit)
    result, batches = sampled(probe, python, HABITS, habit)
    assert result.stdout == alone.stdout and told(result)["status"] == 0
    assert probe.log.read_text().count(WORD) == words and not batches
    assert not list(probe.ring.glob("*.ring"))


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
    """The ring asks for a session before its control file is there: the capture waits for the file."""
    (probe.ring / "control.json").write_text(json.dumps({"mode": "sample", "session": 2000000010}))
    result = told(run(python, HABITS, "sessions", environment=probe.environment()))
    assert result == {"early": [False], "marking": True}
