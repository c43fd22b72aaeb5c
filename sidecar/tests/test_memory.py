"""What layers allocate on the GPU, by the history of torch's allocator (memory.py)."""
import importlib.util
import pathlib
import random

import pytest
from allocator import Allocator
from conftest import HERE, layers_of, needed, plain, sampled, told, torch_of

PROGRAM = str(HERE / "memory.py")
COUNT = 400
NUMBERS = {"forward": 0, "backward": 1}
DOUBLES = pathlib.Path(needed("PP_HOOK")).parent / "tests"
CUDA, CUPTI = str(DOUBLES / "cuda" / "libcuda.so.1"), str(DOUBLES / "cupti" / "libcupti.so.13")
UNKNOWN = "what layers allocate is not known: "


def rows(batches):
    """(name, phase) -> (most bytes, bytes left by a step), and of how many steps."""
    found, steps = {}, 0
    names = {0: "", **{number: layer["name"] for number, layer in layers_of(batches).items()}}
    for memory in [batch["memory"] for batch in batches if "memory" in batch]:
        steps += memory["steps"]
        for layer, phase, peak, left in zip(*(memory[column] for column in ("layer", "phase", "peak", "left"))):
            most, sum_ = found.get((names[layer], phase), (0, 0))
            found[names[layer], phase] = max(most, peak), sum_ + left
    return {key: (peak, left / steps) for key, (peak, left) in found.items()}, steps


def levels_of(allocator, marks):
    """What the hook makes of an allocator's history."""
    spec = importlib.util.spec_from_file_location("hook_memory", pathlib.Path(needed("PP_HOOK")) / "precisionprobe_hook" / "memory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.levels([(entry["action"] == "alloc", entry["addr"], entry["size"]) for entry in allocator.history
                          if entry["action"] in ("alloc", "free_requested")], marks)


@pytest.mark.parametrize("apart,mean", ((1, 0), (2, 10000), (7, 150000)))
def test_blocks_larger_than_asked_for_are_known_where_they_are_alone(apart, mean):
    """Between two marks: then all that follows is right, to the byte; else mostly, to some MiB."""
    draw, allocator, live, marks, peaks = random.Random(7), Allocator(), [], [], []
    allocator.record("all", None, "python", 1 << 20)
    for number in range(3000):
        if number % apart == 0:
            marks.append((allocator.bytes, allocator.allocated, allocator.freed, 0))
            peaks.append(allocator.peak)
            allocator.peak = allocator.bytes
        if live and draw.random() < 0.48:
            allocator.free(live.pop(draw.randrange(len(live))))
        else:
            live.append(allocator.malloc(draw.choice((300, 70000, 3 << 20, 20 << 20)) + draw.randrange(9999)))
    found = [peak for _, _, peak in levels_of(allocator, marks)][:-1]
    off = [abs(ours - peak) for ours, peak in zip(found, peaks[1:])]
    assert sum(off) / len(off) <= mean and max(off) <= 2 << 20


def needs_history(python):
    if torch_of(python) < (2, 1):
        pytest.skip("torch keeps no history")


@pytest.mark.parametrize("kind", ("tight", "loose"))
def test_each_layer_and_phase_has_its_peak_and_what_it_left(probe, python, kind):
    """Of blocks that are larger than what was asked for no more is known than their sum between two marks."""
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, kind, str(COUNT))
    found, steps = rows(batches)
    assert 1 <= steps <= 3
    for name, (peak, left) in told(result, "found").items():
        if name == "other":
            continue
        layer, phase = name.split()
        got = found[layer, NUMBERS[phase]]
        assert got[1] == left, name
        assert got[0] == peak if kind == "tight" else got[0] == pytest.approx(peak, abs=3 << 20), name  # three large blocks
    assert sum(left for _, left in found.values()) == 0
    before, after = told(result, "references")
    assert before and (after == before if kind == "tight" else min(after) >= min(before))  # an older torch takes none away


@pytest.mark.parametrize("clock,libraries", (("cuda", [CUDA]), ("kernels", [CUDA, CUPTI])))
def test_the_times_of_the_capture_are_told_as_ever(probe, python, clock, libraries):
    """By each clock: the step that is looked at is in front of them."""
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, "tight", str(4 * COUNT), *libraries)
    found, steps = rows(batches)
    assert steps >= 1 and {batch["process"]["clock"] for batch in batches if batch["steps"]["number"]} == {clock}
    for name, (peak, left) in told(result, "found").items():
        if name != "other":
            layer, phase = name.split()
            assert found[layer, NUMBERS[phase]] == (peak, left), name
    assert "0 captures were broken" in probe.log.read_text()
    assert sum(len(batch["steps"]["number"]) for batch in batches) > COUNT


def test_nothing_changes_for_the_program(probe, python):
    """Its own peak, its losses; no history is left, nor a function of ours."""
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, "peak", str(COUNT))
    assert rows(batches)[1] >= 1
    alone = plain(python, PROGRAM, "peak", str(COUNT))
    for word in ("found", "loss"):
        assert told(result, word) == told(alone, word)
    history = told(result, "history")
    assert not history["kept"] and history["watched"] == told(alone, "history")["watched"]
    assert {context for _, context in history["calls"]} == {None} and len(history["calls"]) >= 2


def test_a_history_of_the_programs_own_is_left_alone(probe, python):
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, "own", str(COUNT))
    history = told(result, "history")
    assert rows(batches)[1] == 0 and history["kept"] and len(history["calls"]) == 1
    assert UNKNOWN + "the program keeps the allocator's history itself" in probe.log.read_text()


@pytest.mark.parametrize("kind", ("begins", "bound", "direct", "legacy", "asks"))
def test_a_history_that_the_program_begins_is_its_own_from_there_on(probe, python, kind):
    """By torch's function, one that it bound before the hook did anything, that of C, or where it asks for none first."""
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, kind, str(COUNT))
    history = told(result, "history")
    assert rows(batches)[1] == 0 and history["kept"]
    assert [enabled for enabled, _ in history["calls"]] == ["all", None, "all"]
    assert history["calls"][2][1] == ("legacy" if kind == "legacy" else "all")
    assert UNKNOWN + "the program began to keep the allocator's history" in probe.log.read_text()


def test_an_allocator_that_keeps_no_history_is_told(probe, python):
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, "refuses", str(COUNT))
    assert rows(batches)[1] == 0 and told(result, "loss") == told(plain(python, PROGRAM, "refuses", str(COUNT)), "loss")
    log = probe.log.read_text()
    assert UNKNOWN + "this allocator keeps no history" in log and "an error of its own" not in log


@pytest.mark.parametrize("version,leaves", (
    ("2.4.1", False), ("2.5.0+cu124", True), ("2.7.1", True), ("2.8.0a0+5228986c39.nv25.06", True), ("2.8.0+cu128", False),
    ("2.10.0", False)))
def test_no_history_begins_where_torch_would_leave_a_callback_behind(probe, python, version, leaves):
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, "leaves", str(COUNT), version)
    assert bool(told(result, "history")["calls"]) != leaves and (rows(batches)[1] == 0) == leaves
    assert (UNKNOWN + "torch %s leaves a callback behind" % version in probe.log.read_text()) == leaves


def test_an_allocator_that_says_nothing_costs_nothing_else(probe, python):
    needs_history(python)
    result, batches = sampled(probe, python, PROGRAM, "raises", str(COUNT))
    assert rows(batches)[1] == 0 and sum(len(batch["steps"]["number"]) for batch in batches) > 0
    assert told(result, "loss") == told(plain(python, PROGRAM, "raises", str(COUNT)), "loss")
