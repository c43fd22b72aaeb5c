"""What is told of the model and of its batches, by which a workload that was changed is told (models.py)."""
import re

import pytest
from conftest import HERE, losses, plain, sampled, torch_of

MODELS = str(HERE / "models.py")
STEPS = "150"


def model_of(run):
    """The latest that was told: class, digest, batch."""
    process = run[1][-1]["process"]
    return process["model"], process.get("modelDigest", ""), process.get("batch", "")


@pytest.fixture
def told(once, python):
    return lambda kind, **settings: model_of(once(python, MODELS, kind, STEPS, **settings))


def test_a_training_has_the_same_each_time(probe, python, told):
    first = told("plain")
    assert re.fullmatch("[0-9a-f]{16}", first[1])
    assert (first[0], first[2]) == ("Sequential", "8x16 float32")
    assert model_of(sampled(probe, python, MODELS, "plain", STEPS)) == first


def test_what_changes_it(told):
    plain_one = told("plain")
    digests = [told(kind)[1] for kind in ("plain", "wide", "deep", "half")]
    assert len(set(digests)) == len(digests) and "" not in digests
    assert told("half")[2] == "8x16 float64"
    assert told("larger") == (*plain_one[:2], "24x16 float32")


def test_what_does_not(told):
    """Neither filters of a session, nor what wraps it."""
    for layers in ({"include": ["0"]}, {"exclude": ["1"]}, {"types": ["ReLU"]}, {"depth": 1}):
        filters = {"include": [], "exclude": [], "types": [], "depth": 0, **layers}
        assert told("plain", layers=filters) == told("plain")
    assert told("plain", phases=["Backward"]) == told("plain")
    assert told("wrapped") == told("plain")


def test_of_a_module_that_is_not_called(told):
    name, digest, batch = told("owned")
    assert name == "Wrapper" and digest and digest != told("plain")[1] and batch == "8x16 float32"


def test_lengths_that_vary(python, told):
    batch = told("lengths")[2]
    assert batch == ("4x* int64, 4x* float32" if torch_of(python) >= (2, 0) else "")


def test_more_tensors(python, told):
    if torch_of(python) < (2, 0):
        pytest.skip("a torch that does not tell keyword arguments")
    assert told("nested")[2] == "4x6 int64, 4x6 float32, 2 int32"
    assert told("many")[2] == "4x6 int64, 4x6 float32, 2 int32, 2 int32, ..."


@pytest.mark.parametrize("kind", ["last", "evaluated", "accumulated"])
def test_steps_of_other_kinds(told, kind):
    """A last, smaller batch, evaluation, and several forwards in a step."""
    assert told(kind) == told("plain")


def test_a_compiled_model(python, told):
    if torch_of(python) < (2, 4):
        pytest.skip("a torch that compiles otherwise")
    assert told("optimized") == told("plain")


@pytest.mark.parametrize("kind", ["odd", "shapeless"])
def test_what_cannot_be_told(once, python, told, kind):
    """Is empty, and the training and its layers are as ever."""
    result, batches = once(python, MODELS, kind, STEPS)
    name, digest, batch = told(kind)
    assert losses(result) == losses(plain(python, MODELS, kind, STEPS))
    assert sum(len(each["steps"]["number"]) for each in batches) > 100
    if kind == "odd":
        assert (name, digest, batch) == ("Odd", "", "8x16 float32")
    else:
        assert digest == told("plain")[1] and batch == ""


