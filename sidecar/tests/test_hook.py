"""The hook inside real trainings: changes no result, costs nothing when idle, names and times layers."""
import bisect
import os
import re
import resource
import runpy
import shutil
import socket
import statistics
import subprocess
from collections import Counter
from types import SimpleNamespace

import pytest
from conftest import TRAIN, layers_of, losses, needed, pieces, plain, run, sampled, told, torch_of, undelta, until

KINDS = ["mixed", "ddp", "two", "checkpoint", "amp", "accumulate", "flaky", "copies", "workers"]
CLEAN = {"modules": 0, "fast": True, "global": 0, "optimizer": 0, "record_function": "record_function",
         "iterator": "_BaseDataLoaderIter.__next__", "wrapped": []}


def phases_of(batches):
    """{layer name: set of phases} of intervals and grids."""
    found = {}
    for layer, phase, _, _ in pieces(batches):
        found.setdefault(layer["name"] if layer else "step", set()).add(phase)
    return found


# Many short captures, so that arming and disarming happen all the time.
SHORT = {"overheadBudgetPercent": 60, "stretch": {"seconds": 0.02}}


def steps_of(kind):
    return "80" if kind == "workers" else "240"  # its epochs of 8 steps begin with two new processes each


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_bit_identical(once, python, kind):
    alone = run(python, TRAIN, kind, steps_of(kind))
    result, batches = once(python, TRAIN, kind, steps_of(kind), **SHORT)
    assert losses(result) == losses(alone)
    # torch's own warnings carry times and thread numbers
    assert re.sub(r"[\d:.]+ *", "", result.stderr) == re.sub(r"[\d:.]+ *", "", alone.stderr)
    assert sum(len(b["steps"]["number"]) for b in batches) > 0
    assert all(b["dropped"] == 0 for b in batches)


WATCH = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from precisionprobe_hook import profilers
told, recording = [], [True]
def give_way():
    told.append(1)
    recording[0] = False
module = sys.modules["torch.autograd.profiler"]
plain = module._prepare_profiler
watch = profilers.Watch(give_way, lambda: recording[0])
watch.install()
watch.remove()  # the capture has ended, its recording has not
with torch.profiler.profile():
    pass
assert len(told) == 1 and module._prepare_profiler is plain and not watch.replaced, told
watch.install()
watch.remove()
assert module._prepare_profiler is plain
"""


SPANS = """
import inspect, sys, torch
sys.path.insert(0, sys.argv[1])
from precisionprobe_hook import spans
method = torch.optim.Optimizer.zero_grad
wrapping = spans.Spans()
wrapping.install()
wrapped = torch.optim.Optimizer.zero_grad
assert wrapped is not method and inspect.signature(wrapped) == inspect.signature(method)
wrapped.mine = 1
assert method.mine == wrapped.mine == 1
del wrapped.mine
assert not hasattr(method, "mine")
wrapping.remove()
assert torch.optim.Optimizer.zero_grad is method
"""


def test_a_wrapped_method_is_as_the_original(python):
    run(python, "-c", SPANS, needed("PP_HOOK"))


def test_a_profiler_that_begins_after_a_capture_is_given_way(python):
    run(python, "-c", WATCH, needed("PP_HOOK"))


def runs_offset(batches):
    """From the training's own clock to that of batches."""
    return statistics.median(b["stretch"]["start"] - b["stretch"]["monotonic"] for b in batches if "monotonic" in b["stretch"])


def runs_of(batches):
    """(start, end, steps) of counted steps' runs, by the training's own clock, in the order in which they were told."""
    offset = runs_offset(batches)
    return [(start - offset, start - offset + duration, steps) for b in batches if "counted" in b
            for start, duration, steps in zip(undelta(b["counted"]["start"]), b["counted"]["duration"], b["counted"]["steps"])]


def test_steps_between_captures_are_counted(once, python):
    """By the script's own stamps, each just behind an optimizer's step: as many steps lie in each run as it says, all but a
    few of the others are marked, and none is both."""
    result, batches = once(python, TRAIN, "mixed", "1200", "8", overheadBudgetPercent=2, stretch={"seconds": 0.2})
    ends = told(result, "steps")
    runs = runs_of(batches)
    assert len(runs) >= 2
    inside = [bisect.bisect_left(ends, end) - bisect.bisect_left(ends, start) for start, end, _ in runs]
    assert inside == [steps for *_, steps in runs]
    assert all(before[1] <= after[0] + 1e6 for before, after in zip(runs, runs[1:]))
    offset = runs_offset(batches)
    marked = [start - offset for b in batches for start in undelta(b["steps"]["start"])]
    assert not [m for m in marked for start, end, _ in runs if start < m < end]
    assert marked and sum(inside) + len(marked) > 0.5 * len(ends)


SLOW_SUMS = """
import time, torch
from torch import nn
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(lambda _: time.sleep(0.02))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


def test_what_is_added_into_parameters_is_no_layers(probe, python):
    """Each of six parameters takes 20 ms to be added into, as the engine's sums of gradients may: behind a layer's nodes. It is
    in the row of gradients."""
    if run(python, "-c", "import torch; print(hasattr(torch.Tensor, 'register_post_accumulate_grad_hook'))").stdout != "True\n":
        pytest.skip("this torch has no such hook")
    _, batches = sampled(probe, python, "-c", SLOW_SUMS)
    names = {layer["id"]: layer["name"] for layer in layers_of(batches).values()}
    backward = {}
    for batch in batches:
        part = batch["intervals"]
        for layer, phase, duration in zip(part["layer"], part["phase"], part["duration"]):
            if phase == 1:
                backward.setdefault(names[layer], []).append(duration)
    gradients = sum(backward.pop("gradients"))
    assert sorted(backward) == ["0", "1", "2", "loss"] and max(map(min, backward.values())) < 15e6
    steps = [duration for batch in batches for duration in batch["steps"]["duration"]]
    assert gradients > 120e6 * len(steps) and min(steps) > 120e6


def test_counted_steps_are_told_before_the_session_ends(once, python):
    """An operator that has solved a session takes nothing more: what was counted behind the last capture comes in time."""
    # So small a budget that no second capture is paid for: it would take them along.
    result, batches = once(python, TRAIN, "mixed", "500", "9", overheadBudgetPercent=0.1, stretch={"seconds": 0.2}, durationSeconds=6)
    first = batches[0]["stretch"]["start"]
    alone = [b for b in batches if b["steps"]["number"] == [] and "counted" in b]
    assert alone and any(3e9 <= b["stretch"]["end"] - first <= 6.5e9 for b in alone)
    assert all(b["stretch"]["start"] == b["stretch"]["end"] and b["stretch"]["last"] for b in alone)
    runs = runs_of(batches)
    assert max(end for _, end, _ in runs) - min(start for start, *_ in runs) > 2e9


def test_layers_are_named_and_timed_in_every_phase(once, python):
    _, batches = once(python, TRAIN, "mixed", "64")
    found = phases_of(batches)
    both = {"bot.0", "bot.1", "emb", "twice", "attention", "memory", "drop", "out", "MSELoss"}
    more = {"Mixed": {0, 1}, "loss": {0, 1}, "gradients": {1}} if torch_of(python) >= (2, 1) else {"Mixed": {0}}
    assert {name: phases for name, phases in found.items() if name != "step"} == {**{name: {0, 1} for name in both}, **more}
    assert found["step"] == {2, 4, 5}
    layers = {layer["name"]: layer for layer in layers_of(batches).values()}
    assert layers["bot.0"]["type"] == "Linear" and layers["bot.0"]["parameters"] == 64 * 64 + 64
    assert batches[0]["process"]["model"] == "Mixed"
    assert batches[0]["process"]["torch"] and batches[0]["process"]["clock"] == "host"


@pytest.mark.parametrize("name, gpu", [("NVIDIA H200", "GPU-84412445-5790"),
                                       ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-84412445-5790")])
def test_gpus_are_named_with_their_kind(name, gpu):
    """torch tells a UUID without it; a MIG instance's must not look like a whole GPU's."""
    settings = runpy.run_path(os.path.join(needed("PP_HOOK"), "precisionprobe_hook", "settings.py"))
    cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 0, get_device_properties=lambda index:
                           SimpleNamespace(name=name, uuid="84412445-5790"))
    assert settings["gpus"](SimpleNamespace(cuda=cuda)) == [gpu]


def test_the_gpu_of_the_modules_is_named():
    """Without their number, the current one."""
    settings = runpy.run_path(os.path.join(needed("PP_HOOK"), "precisionprobe_hook", "settings.py"))
    cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 0, get_device_properties=lambda index:
                           SimpleNamespace(name="NVIDIA H200", uuid=f"84412445-579{index}"))
    assert [settings["gpus"](SimpleNamespace(cuda=cuda), number) for number in (None, 0, 1)] == [
        ["GPU-84412445-5790"], ["GPU-84412445-5790"], ["GPU-84412445-5791"]]


def test_ddp_prefix_is_stripped(once, python):
    _, batches = once(python, TRAIN, "ddp", steps_of("ddp"), **SHORT)
    assert "bot.0" in phases_of(batches)
    assert batches[0]["process"]["model"] == "Mixed"


def test_a_rank_waits_for_the_other_in_communication(probe, python):
    """Two ranks with DistributedDataParallel; backward of the second is late."""
    def ranks(environment):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        processes = [subprocess.Popen([python, TRAIN, "ddp", "40"], stdout=subprocess.PIPE, text=True,
                                      env={**environment, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": port})
                     for rank in (0, 1)]
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        return [[line for line in output.splitlines() if line.startswith("loss ")] for output in outputs]

    plain = ranks({**probe.environment(), "PRECISIONPROBE_RING": ""})
    probe.configure()
    probe.start("--dump")
    assert ranks(probe.environment()) == plain
    probe.finish()
    waits = {0: [], 1: []}
    for batch in probe.batches():
        part = batch["intervals"]
        waits[batch["process"]["rank"]] += [d for phase, d in zip(part["phase"], part["duration"]) if phase == 6]
    assert len(waits[0]) == len(waits[1]) == 39
    assert statistics.median(waits[0]) > 3 * statistics.median(waits[1]), waits


def test_every_step_is_counted_with_its_epoch_and_batch(once, python):
    result, batches = once(python, TRAIN, "mixed", "64")
    steps = [step for b in batches for step in zip(*(undelta(b["steps"][key]) for key in
                                                     ("number", "epoch", "batch")))]
    assert steps == [(n, n // 8, n % 8) for n in range(1, 64)]  # the first finds the layers
    ends = [s + d for b in batches for s, d in zip(undelta(b["steps"]["start"]), b["steps"]["duration"])]
    told_ends = told(result, "steps")[1:]
    gaps = [(a - b) - (c - d) for a, b, c, d in zip(ends[1:], ends, told_ends[1:], told_ends)]
    steps_ns = statistics.median(b - a for a, b in zip(told_ends, told_ends[1:]))
    assert statistics.median(abs(gap) for gap in gaps) < steps_ns / 10


def test_intervals_agree_with_an_independent_clock(once, python):
    """The training's own record, by replaced forwards and tensor hooks, of layers of some ms."""
    result, batches = once(python, TRAIN, "big", "40")
    watch = told(result, "watch")
    names = {i: layer["name"] for i, layer in layers_of(batches).items()}
    ours = {}
    for b in batches:
        part = b["intervals"]
        for layer, phase, duration in zip(part["layer"], part["phase"], part["duration"]):
            ours.setdefault((names.get(layer), phase), []).append(duration)
    for phase, key in ((0, "forward"), (1, "backward")):
        for name in ("first", "second"):
            theirs = [end - begin for begin, end in watch[key][name]][1:]
            mine = ours[name, phase]
            assert len(mine) == len(theirs)
            errors = [abs(a - b) / b for a, b in zip(mine, theirs)]
            # In backward theirs holds tanh's backward too, and begins a little earlier.
            assert statistics.median(errors) < (0.05 if phase == 0 else 0.12), (name, key, mine, theirs)
    # The first step finds the layers; what comes after the last one is in no step.
    for phase, key, part in ((5, "data", slice(1, None)), (4, "zero_grad", slice(0, -1))):
        theirs = [end - begin for begin, end in watch[key]][part]
        mine = ours[None, phase]
        theirs = theirs[:len(mine)]
        assert len(mine) >= 23 and all(a <= b for a, b in zip(mine, theirs)), (key, mine, theirs)
        assert phase == 4 or statistics.median(b / a for a, b in zip(mine, theirs)) < 1.05, (mine, theirs)


def test_steps_hold_their_intervals_without_overlap(once, python):
    _, batches = once(python, TRAIN, "big", "40")
    looked_at = 0
    for b in batches:
        part = b.get("intervals", {"start": [], "duration": []})
        spans = sorted(zip(undelta(part["start"]), part["duration"]))
        looked_at += len(spans)
        for (start, duration), (after, _) in zip(spans, spans[1:]):
            assert start + duration <= after
    assert looked_at > 100


def test_hook_tables_are_empty_after_the_session(probe, python):
    alone = told(plain(python, TRAIN, "mixed", "40"), "tables")
    result, _ = sampled(probe, python, TRAIN, "mixed", "300", "4", durationSeconds=0.5)
    assert alone == CLEAN and told(result, "tables") == CLEAN
    assert losses(result)


def test_steps_skip_and_max(probe, python):
    _, batches = sampled(probe, python, TRAIN, "mixed", "300", "2", steps={"skip": 40, "max": 25})
    numbers = [n for b in batches for n in undelta(b["steps"]["number"])]
    assert len(numbers) == 25 and min(numbers) >= 40
    # The search for layers begins within a step, and finds the whole model all the same.
    assert {"bot.0", "bot.1", "emb", "twice", "out"} < set(phases_of(batches))
    assert numbers == list(range(numbers[0], numbers[0] + 25))


def test_layer_filters_and_depth(probe, python):
    _, batches = sampled(probe, python, TRAIN, "mixed", "40", layers={"include": ["bot*", "emb", "twice"],
                                                               "exclude": ["twice"], "types": [], "depth": 1})
    assert set(phases_of(batches)) - {"step"} == {"bot", "emb"}


def test_phases_can_be_left_out(probe, python):
    _, batches = sampled(probe, python, TRAIN, "mixed", "40", phases=["Backward"])
    assert phases_of(batches).pop("step") == {4, 5}
    assert set().union(*phases_of(batches).values()) == {1, 4, 5}


def test_two_optimizers_make_one_step(probe, python):
    result, batches = sampled(probe, python, TRAIN, "two", "40")
    numbers = [n for b in batches for n in undelta(b["steps"]["number"])]
    assert len(numbers) == len(losses(result)) - 1


def test_recomputed_forward_is_not_lost(probe, python):
    _, batches = sampled(probe, python, TRAIN, "checkpoint", "30")
    # What runs again within backward is phase 3; torch 1.13 cannot tell it from a forward.
    again = 0 if batches[0]["process"]["torch"].startswith("1.") else 3
    assert all(phases_of(batches)[name] == {0, 1, again} for name in ("a", "b"))
    calls = Counter()
    for layer, phase, _, count in pieces(batches):
        if layer and layer["name"] == "a":
            calls[phase] += count
    steps = sum(len(b["steps"]["number"]) for b in batches)
    assert calls[0] + calls[3] == 2 * steps and calls[again] >= steps


def test_forked_child_is_left_alone(probe, python):
    result, batches = sampled(probe, python, TRAIN, "fork")
    assert result.stdout.strip() == "child 0", result.stdout + result.stderr
    assert {b["process"]["id"] for b in batches} == {0}


def test_gpus_come_from_the_device_plugin(probe, python):
    probe.configure()
    probe.start("--dump")
    run(python, TRAIN, "mixed", "20", environment=probe.environment(
        {"NVIDIA_VISIBLE_DEVICES": "GPU-aa,GPU-bb", "RANK": "1", "WORLD_SIZE": "2"}))
    probe.finish()
    process = probe.batches()[0]["process"]
    assert (process["gpus"], process["rank"], process["worldSize"]) == (["GPU-aa", "GPU-bb"], 1, 2)


# ---- what is broken leaves the training alone, and says nothing ----


def test_without_the_agent_nothing_happens(probe, python):
    alone = plain(python, TRAIN, "mixed", "40")
    for ring in ("", str(probe.folder / "missing")):
        environment = {**probe.environment(), "PRECISIONPROBE_RING": ring}
        result = run(python, TRAIN, "mixed", "40", environment=environment)
        assert (losses(result), result.stderr) == (losses(alone), alone.stderr)


def test_idle_hook_installs_nothing(probe, python):
    """A ring directory, but no agent that asks for anything."""
    result = run(python, TRAIN, "mixed", "40", environment=probe.environment())
    assert told(result, "tables") == CLEAN
    assert len(list(probe.ring.glob("*.ring"))) == 1


def test_ring_directory_that_is_a_file_or_full(probe, python):
    alone = plain(python, TRAIN, "mixed", "40")
    file = probe.folder / "file"
    file.write_text("")
    small = probe.folder / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]).returncode == 0
    try:
        for ring in (file, small) if mounted else (file,):
            environment = {**probe.environment(), "PRECISIONPROBE_RING": str(ring)}
            result = run(python, TRAIN, "mixed", "40", environment=environment)
            assert (losses(result), result.stderr) == (losses(alone), alone.stderr)
        if mounted:
            held = {path.suffix: 512 * path.stat().st_blocks for path in small.iterdir()}
            assert held == {"": 0, ".ring": resource.getpagesize()}, "no step was told: the header alone has memory"
    finally:
        if mounted:
            subprocess.run(["umount", str(small)], check=True)
    assert mounted or os.geteuid() != 0, "root could not mount a tmpfs: the full volume is not tested"


@pytest.mark.parametrize("damage", ["no extension", "broken extension", "broken python"])
def test_damaged_hook(probe, python, damage):
    alone = plain(python, TRAIN, "mixed", "40")
    copy = probe.folder / "hook"
    shutil.copytree(needed("PP_HOOK"), copy)
    extension = copy / "precisionprobe_hook" / os.uname().machine / "_marks.abi3.so"
    if damage == "no extension":
        extension.unlink()
    elif damage == "broken extension":
        extension.write_bytes(b"not a library")
    else:
        (copy / "precisionprobe_hook" / "probe.py").write_text("raise RuntimeError('broken')\n")
    probe.configure()
    probe.start("--dump")
    environment = {**probe.environment(), "PYTHONPATH": str(copy)}
    result = run(python, TRAIN, "mixed", "40", environment=environment)
    assert (losses(result), result.stderr) == (losses(alone), alone.stderr)


@pytest.mark.parametrize("call", ["settle", "found", "position"])
def test_errors_of_the_hook_end_the_hook_only(probe, python, call):
    """A call from C into the Python side fails."""
    alone = plain(python, TRAIN, "mixed", "40")
    copy = probe.folder / "hook"
    shutil.copytree(needed("PP_HOOK"), copy)
    source = copy / "precisionprobe_hook" / "probe.py"
    source.write_text(source.read_text() + f"\ndef fail(*_):\n    raise ValueError('ours')\n\n\n_Probe.{call} = fail\n")
    probe.configure()
    probe.start("--dump")
    result = run(python, TRAIN, "mixed", "40", environment={**probe.environment(), "PYTHONPATH": str(copy)})
    probe.finish()
    assert "gave a capture up" in probe.log.read_text()
    assert (losses(result), result.stderr) == (losses(alone), alone.stderr)
    tables = told(result, "tables")
    assert tables["modules"] == 0 and tables["global"] == 0


def test_users_sitecustomize_is_chained(probe, python):
    own = probe.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.user_site = __file__\n")
    result = run(python, "-c", "import sys; print(sys.user_site, sys.modules['sitecustomize'].__file__)",
                 environment=probe.environment({"PYTHONPATH": str(own)}))
    assert result.stdout.split() == [str(own / "sitecustomize.py")] * 2


def test_users_broken_sitecustomize_is_told_as_ever(probe, python):
    own = probe.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    alone = run(python, "-c", "pass", environment={**os.environ, "PYTHONPATH": str(own)}, check=False)
    chained = run(python, "-c", "pass", environment=probe.environment({"PYTHONPATH": str(own)}), check=False)
    assert chained.returncode == alone.returncode and "mine" in alone.stderr
    assert chained.stderr == alone.stderr


def test_a_process_without_torch_pays_nothing(probe, python):
    """No module of the hook but the import watcher, no thread, no ring; an empty file tells that a Python came by."""
    code = ("import sys, threading, os; print(sorted(m for m in sys.modules if 'precisionprobe' in m), "
            "len(os.listdir('/proc/self/task')))")
    result = run(python, "-c", code, environment=probe.environment())
    assert result.stdout.strip() == "['precisionprobe_hook', 'precisionprobe_hook.importing'] 1"
    assert left_in(probe.ring) == {"loaded": 0}


def left_in(folder):
    """{name of a file: its size}."""
    return {file.name: file.stat().st_size for file in folder.iterdir()}


def test_torch_is_imported_as_without_us(probe, python):
    code = ("import torch, sys; print(type(torch.__spec__.loader).__name__, type(torch.__loader__).__name__, "
            "[type(f).__module__ for f in sys.meta_path if 'precisionprobe' in type(f).__module__])")
    alone = run(python, "-c", code)
    hooked = run(python, "-c", code, environment=probe.environment())
    assert hooked.stdout == alone.stdout


def test_a_capture_stops_and_starts_by_the_agent(probe, python):
    """A trainer that lives through two agents, one after another."""
    probe.configure()
    probe.start("--dump")
    enough = probe.folder / "enough"
    trainer = subprocess.Popen([python, TRAIN, "mixed", "100", str(enough)], stdout=subprocess.PIPE, text=True,
                               env=probe.environment())
    until(lambda: probe.batches(), "the first agent's batches")
    probe.agent.kill()
    probe.agent.wait()
    probe.start("--dump")
    until(lambda: probe.batches(), "the second agent's batches")
    enough.touch()
    output, _ = trainer.communicate(timeout=60)
    probe.finish()
    assert trainer.returncode == 0 and "loss 99" in output
    numbers = [n for b in probe.batches() for n in undelta(b["steps"]["number"])]
    assert numbers == sorted(set(numbers)) and numbers
