"""Trainings of real libraries from the package registry: told right, and not changed (docs/frameworks.md, Libraries).

PP_LIBRARY_TRAININGS  those of library_train.py to run, separated by spaces (e2e/harness/libraries.py); without it nothing here runs
PP_LIBRARIES          a folder with the libraries, where the Python that trains has none of its own
"""
import os
import statistics
from collections import Counter, defaultdict

import pytest
from conftest import HERE, layers_of, plain, run, told, torch_of, undelta, until

if not os.environ.get("PP_LIBRARY_TRAININGS"):
    pytest.skip("PP_LIBRARY_TRAININGS is not set", allow_module_level=True)

SCRIPT = str(HERE / "library_train.py")
STEPS = 20
TRAININGS = os.environ["PP_LIBRARY_TRAININGS"].split()
FORWARD, BACKWARD, RECOMPUTE, INFERENCE = 0, 1, 3, 8
LONG_MS = 2  # of a call, from which on a layer's time is held against that by hand: the hooks of both take some 0.03 ms
NO_MODULES = {"checkpoint", "loss", "gradients", "CrossEntropyLoss"}  # names of what is told, but is none of the model's modules


def by_step(batches):
    """Of the first rank {step: {"calls": {layer: n}, "forward": {layer: ns}, "backward": {layer: ns}}}, {step: ns}, {step: end}."""
    found, durations, ends = defaultdict(lambda: defaultdict(Counter)), {}, {}
    for batch in batches:
        if batch["process"]["rank"] > 0:
            continue
        layers, part = layers_of([batch]), batch["intervals"]
        for step, start, ns in zip(undelta(batch["steps"]["number"]), undelta(batch["steps"]["start"]), batch["steps"]["duration"]):
            durations[step], ends[step] = ns, start + ns
        goes_on = part.get("goesOn") or [0] * len(part["layer"])
        for layer, phase, step, ns, later in zip(part["layer"], part["phase"], undelta(part["step"]), part["duration"], goes_on):
            if not layer:
                continue
            name = layers[layer]["name"]
            found[step]["backward" if phase == BACKWARD else "forward"][name] += ns
            if phase != BACKWARD:
                found[step]["calls"][name] += 1 - later
    return found, durations, ends


def calls_over(steps, of):
    return sum((Counter(of[step]["calls"]) for step in steps), Counter())


def check_calls(steps, found, own):
    """In each step that was sampled every module was called as often as the hooks by hand say, under its name in the model."""
    told_calls, own_calls = calls_over(steps, found), calls_over(steps, own)
    assert {name for name in told_calls if name not in own_calls} <= NO_MODULES, "names of named_modules()"
    wrong = {name: (count, own_calls[name]) for name, count in told_calls.items() if own_calls.get(name, count) != count}
    assert not wrong, (len(steps), wrong)
    parents = {name.rpartition(".")[0] for name in own_calls} | {own_root(own_calls)}
    assert {name for name in own_calls if name not in told_calls and name not in parents} == set(), "each leaf that was called"


def own_root(calls):
    """The name of the model itself: its class, which no module's name begins with."""
    return next((name for name in calls if name[:1].isupper()), "")


def difference(mine, own):
    """What the middle one of some times by hand is, and by how much those told of the same are off, in the middle; ms.

    Step by step, since times may have two modes: a pause of the process between the two clocks' reads spoils one step.
    """
    return statistics.median(own) / 1e6, statistics.median(a - b for a, b in zip(mine, own)) / 1e6


def long_layers(steps, found, own, what):
    """[(name, ms by hand, ms off)] of layers whose calls take long."""
    rows = []
    for name in set().union(*(found[step]["calls"] for step in steps)):
        took, off = difference(*([of[step][what].get(name, 0) for step in steps] for of in (found, own)))
        if took >= LONG_MS * statistics.median(own[step]["calls"][name] for step in steps) > 0:
            rows.append((name, round(took, 3), round(off, 3)))
    return sorted(rows, key=lambda row: row[2])


def check_times(steps, found, own, what):
    rows = long_layers(steps, found, own, what)
    assert rows, f"no layer's {what} takes {LONG_MS} ms"
    whole, off = sum(took for _, took, _ in rows), sum(abs(off) for *_, off in rows)
    print(f"{what}: {len(rows)} layers of {whole:.1f} ms, {100 * off / whole:.2f} % off")
    assert off <= 0.03 * whole, rows


def check_steps(durations, ended, mine):
    """As many as the script's, as long as its own timer says; where what steps is long, each ends within."""
    steps, ends, begins = sorted(durations), mine["ends"], mine["begins"]
    assert abs(steps[-1] - (STEPS - 1)) <= 1 and len(steps) > 0.8 * STEPS, steps
    times = [(durations[step], ends[step] - ends[step - 1]) for step in steps if 0 < step < len(ends)]
    took, off = difference(*zip(*times))
    whole = [sum(column) for column in zip(*times)]
    print(f"{len(times)} steps of {took:.2f} ms, {100 * off / took:.2f} % off; their sum {100 * (whole[0] / whole[1] - 1):.2f} %")
    if begins:
        within = [begins[step] - 1e6 < ended[step] < ends[step] + 1e6 for step in steps if step < len(ends)]
        assert all(within), [(ended[step] - begins[step], ends[step] - begins[step]) for step in steps if step < len(ends)]
    else:
        assert abs(off) <= 0.01 * took and abs(whole[0] / whole[1] - 1) <= 0.05


def probed(probe, *command):
    """As sampled(), each step told in full; the agent stays until all of the training's processes are gone: Ray's end last."""
    probe.configure(timeline={"steps": 1000})
    probe.start("--dump")
    result = run(*command, environment=probe.environment())
    until(lambda: not list(probe.ring.glob("*.ring")), "rings of processes that are gone", 60)
    probe.finish()
    assert {path.name for path in probe.ring.iterdir()} <= {"control.json", "loaded"}, "something is left behind"
    return told(result, "loop"), probe.batches()


@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_of_a_library(probe, python, training):
    alone = told(plain(python, SCRIPT, training, str(STEPS)), "loop")
    mine, batches = probed(probe, python, SCRIPT, training, str(STEPS), "by-hand")
    assert (mine["losses"], mine["parameters"]) == (alone["losses"], alone["parameters"]), "the training is changed"
    assert mine["iterations"] == alone["iterations"] == STEPS

    found, durations, ended = by_step(batches)
    own = [{what: Counter(of) for what, of in step.items()} for step in mine["by_hand"]]
    check_steps(durations, ended, mine)
    steps = [step for step in sorted(durations) if step < len(own)]
    check_calls(steps, found, own)
    check_times(steps, found, own, "forward")
    if torch_of(python) >= (2, 0):
        check_times(steps, found, own, "backward")
