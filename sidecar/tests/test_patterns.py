"""Steps are the training's, however its loop makes them (patterns.py)."""
from collections import Counter

import pytest
from conftest import HERE, pieces, sampled, told, torch_of, undelta

PATTERNS = str(HERE / "patterns.py")
COUNT = 200
PHASES = ("forward", "backward", "optimizer", "recompute", "zero_grad", "data", "communication", "other", "inference")
# How many of the iterations may be missed, or taken for two, while the hook learns which optimizer ends a step.
LEARNING = {"trials": 1}


def numbers(batches):
    return [number for batch in batches for number in undelta(batch["steps"]["number"])]


@pytest.mark.parametrize("pattern", ["plain", "accumulation", "closure", "named_closure", "lbfgs", "two", "by_groups", "in_backward",
                                     "gan", "trials"])
def test_steps_are_the_loops(once, python, pattern):
    if torch_of(python) < (2, 1) and pattern in ("by_groups", "in_backward", "trials", "two", "gan"):
        pytest.skip("a torch that does not number nodes, and takes optimizers of a class for one")
    result, batches = once(python, PATTERNS, pattern, str(COUNT))
    found = numbers(batches)
    assert told(result, "loop")["iterations"] == COUNT and len(found) == len(set(found))
    within = torch_of(python) < (2, 0) and pattern in ("closure", "named_closure", "lbfgs")  # the first begins before any forward
    assert abs(max(found) - (COUNT - 1)) <= LEARNING.get(pattern, within), found[-5:]
    assert len(found) > 0.8 * COUNT


@pytest.mark.parametrize("pattern", ["closure", "named_closure"])
def test_a_closure_is_no_work_of_the_optimizers(once, python, pattern):
    if torch_of(python) < (2, 0):
        pytest.skip("a torch that does not tell arguments")
    _, batches = once(python, PATTERNS, pattern, str(COUNT))
    ns = Counter()
    whole = sum(sum(batch["steps"]["duration"]) for batch in batches)
    for _, phase, duration, _ in pieces(batches):
        ns[phase] += duration
    assert 0 < ns[2] < 0.1 * whole, (ns, whole)
    assert ns[0] > 0 and ns[1] > 0


def calls_of(batches):
    """{(layer name, phase): calls in a step} of what was sampled."""
    calls = Counter()
    for layer, phase, _, count in pieces(batches):
        if layer:
            calls[layer["name"], PHASES[phase]] += count
    return {key: count / len(numbers(batches)) for key, count in calls.items()}


def test_forwards_that_record_nothing_are_inference(probe, python):
    """In each step a teacher's and a rollout's; each ten steps three of evaluation. The timeline has each call."""
    _, batches = sampled(probe, python, PATTERNS, "evaluation", str(COUNT))
    calls = calls_of(batches)
    if torch_of(python) < (2, 0):
        assert calls["0", "forward"] == pytest.approx(2, abs=0.1) and calls["0", "inference"] == pytest.approx(0.3, abs=0.15)
    else:
        assert calls["0", "forward"] == pytest.approx(1, abs=0.1) and calls["0", "inference"] == pytest.approx(1.3, abs=0.15)
    assert calls["Sequential.0", "inference"] == pytest.approx(1, abs=0.1) and ("Sequential.0", "forward") not in calls


@pytest.mark.parametrize("pattern", ["reentrant_checkpoint", "other_checkpoint"])
def test_a_checkpoint_trains(probe, python, pattern):
    _, batches = sampled(probe, python, PATTERNS, pattern, str(COUNT))
    calls = calls_of(batches)
    assert not any(phase == "inference" for _, phase in calls) and calls["Linear", "forward"] == pytest.approx(1, abs=0.1)
    again = 2 if torch_of(python) < (2, 0) else 1
    assert calls["0", "forward"] == pytest.approx(again, abs=0.1) and ("0", "recompute") in calls or again == 2
