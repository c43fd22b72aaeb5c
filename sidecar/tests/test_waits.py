"""Calls in which the host waits are named: by layer, phase and line, how often and how long (waits.py)."""
from collections import Counter

import pytest
from conftest import HERE, layers_of, losses, plain, run as program, sampled, told

PROGRAM = str(HERE / "waits.py")
COUNT = 150
PHASES = ("forward", "backward", "optimizer", "recompute", "zero_grad", "data", "communication", "other", "inference")


def waits_of(batches):
    """Steps that they are of, and {(layer name, phase, call, file, line): [count, in steps, ns]}."""
    layers, rows, steps = layers_of(batches), {}, 0
    for waits in [batch["waits"] for batch in batches if "waits" in batch]:
        steps += waits["steps"]
        for i, layer in enumerate(waits["layer"]):
            key = (layers[layer]["name"] if layer else "", PHASES[waits["phase"][i]], waits["calls"][waits["call"][i]],
                   waits["files"][waits["file"][i]], waits["line"][i])
            row = rows.setdefault(key, [0, 0, 0])
            for at, column in enumerate(("count", "inSteps", "duration")):
                row[at] += waits[column][i]
    return steps, rows


def run(probe, python, kind, count=COUNT, **settings):
    """The training's own words, its marked steps, and waits without those of the line that prints losses."""
    result, batches = sampled(probe, python, PROGRAM, kind, str(count), **settings)
    assert losses(result) == losses(plain(python, PROGRAM, kind, str(count)))
    methods = told(result, "methods")
    assert set(methods["exchanged"]) >= {"item", "tolist", "__bool__", "nonzero", "torch.nonzero"}
    assert methods["forks"] == (kind == "forked")
    steps, rows = waits_of(batches)
    assert steps == sum(len(batch["steps"]["number"]) for batch in batches) > count / 2
    return methods["lines"], steps, rows, batches


def test_an_item_in_a_layer_is_named(probe, python):
    lines, steps, rows, _ = run(probe, python, "in_layers")
    count, in_steps, ns = rows["2", "forward", "item", PROGRAM, lines["the layer's line"]]
    assert count == in_steps == steps and 0 < ns < 1e9
    assert not [key for key in rows if key[0] and key[0] != "2"]


def test_an_item_in_the_loop_is_named(probe, python):
    lines, steps, rows, _ = run(probe, python, "in_loop")
    count, in_steps, ns = rows["", "other", "item", PROGRAM, lines["the loop's line"]]
    assert count == in_steps == steps and ns > 0
    count, in_steps, _ = rows["", "other", "bool", PROGRAM, lines["now and then"]]
    assert count == in_steps == pytest.approx(steps / 4, abs=2)


def test_steps_without_a_wait_count(probe, python):
    _, steps, rows, _ = run(probe, python, "seldom")
    ((count, in_steps, _),) = [row for key, row in rows.items() if key[2] == "bool"]
    assert count == in_steps == pytest.approx(steps / 4, abs=2)


def test_an_item_in_backward_is_its_layers(probe, python):
    lines, steps, rows, _ = run(probe, python, "in_backward")
    count, in_steps, _ = rows["1", "backward", "item", PROGRAM, lines["backward's line"]]
    assert count == in_steps == steps


def test_a_loop_that_floods_is_one_mark(probe, python):
    lines, steps, rows, batches = run(probe, python, "many", 40)
    count, in_steps, _ = rows["", "other", "item", PROGRAM, lines["the flood's line"]]
    assert in_steps == steps and count == 10000 * steps
    marks = sum(batch["cost"]["marks"] for batch in batches)
    assert marks < 100 * steps and sum(batch["dropped"] for batch in batches) == 0
    assert sum(batch["cost"]["nanoseconds"] for batch in batches) > 100 * count  # each is counted as cost


def test_each_kind_has_its_name(probe, python):
    lines, steps, rows, _ = run(probe, python, "kinds", 60)
    assert rows["", "other", "complex", PROGRAM, lines["a call within a call"]][0] == steps
    assert rows["", "other", "tolist", PROGRAM, lines["torch's own code calls"]][0] >= 0.9 * steps
    calls = Counter()
    for (_, _, call, file, _), (count, _, _) in rows.items():
        assert file in (PROGRAM, ""), rows
        calls[call] += count
    assert calls["complex"] == steps
    assert rows["", "other", "to", PROGRAM, lines["to the CPU"]][0] == calls["to"] == 3 * steps
    assert calls["float"] == calls["int"] == calls["index"] == calls["cpu"] == calls["equal"] == steps
    assert calls["nonzero"] >= 2 * steps
    ns = sum(row[2] for key, row in rows.items() if key[2] == "nonzero" and key[3])
    assert ns > 1e5 * steps  # of a million elements
    assert rows["", "other", "item", "", 0][0] >= steps  # those that raised
    assert max(count for key, (count, _, _) in rows.items() if key[3]) >= steps


def test_a_thread_that_only_waits(probe, python):
    lines, steps, rows, _ = run(probe, python, "threads", 400)
    count, in_steps, _ = rows["", "other", "item", PROGRAM, lines["the thread's line"]]
    assert count > 10 and in_steps <= steps


def test_a_fork_puts_the_methods_back(probe, python):
    run(probe, python, "forked")


def test_nothing_is_left(probe, python):
    """As a capture ends, and in a program that trains on without one."""
    probe.configure(steps={"skip": 0, "max": 20})
    probe.start("--dump")
    result = program(python, PROGRAM, "in_loop", "400", environment=probe.environment({"WAITS_IDLE": "60"}))
    probe.finish()
    assert losses(result) == losses(plain(python, PROGRAM, "in_loop", "400"))
    methods = told(result, "methods")
    assert methods["exchanged"] and methods["left"] == []
    assert waits_of(probe.batches())[0] == 20


def test_what_does_not_look_as_expected_is_left_alone(probe, python):
    """A class whose methods are Python's, and one more than there are."""
    code = ("import sys; sys.argv = ['x', 'in_loop', '1']; from precisionprobe_hook import _marks; import torch\n"
            "base = getattr(torch._C, 'TensorBase', None) or torch._C._TensorBase\n"
            "import waits; before = waits.pointers(); item = vars(base)['item']\n"
            "_marks.waits([('item', item, torch.Tensor, 'item'), ('item', item, base, 'tolist'), ('item', len, base, 'len'),\n"
            "              ('item', None, None, 'x'), ('unknown', vars(base)['cpu'], base, 'cpu'), ('item', 7, int, 'item'),\n"
            "              ('cuda.synchronize', print, None, 'print')], '/', torch.device)\n"
            "assert waits.pointers() == before; print('fine')")
    environment = probe.environment({"PYTHONPATH": str(HERE)})
    environment.pop("PRECISIONPROBE_RING")
    assert program(python, "-c", code, environment=environment).stdout.strip() == "fine"
