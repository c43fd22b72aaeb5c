"""Trainings of real libraries from the package registry: told right, and not changed.

PP_LIBRARIES  a folder with the libraries (e2e/test --all brings them in); without it nothing here runs
"""
import os
from collections import Counter

import pytest
from conftest import HERE, plain, pieces, sampled, told, undelta

if not os.environ.get("PP_LIBRARIES"):
    pytest.skip("PP_LIBRARIES is not set", allow_module_level=True)

SCRIPT = str(HERE / "library_train.py")
STEPS = 40
# Not on a CPU with Debian's torch: timm and torchvision, whose wheels are for another build of it.
TRAININGS = ["hf-llama", "peft-lora", "pyg-graph", "policy-gradient", "lightning-gan"]
FORWARD, BACKWARD, INFERENCE = 0, 1, 8


def calls_of(batches, phase):
    calls = Counter()
    for layer, at, _, count in pieces(batches):
        if layer and at == phase:
            calls[layer["name"]] += count
    return calls


@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_of_a_library(probe, python, training):
    arguments = (SCRIPT, training, str(STEPS))
    alone = told(plain(python, *arguments), "loop")
    by_hand = told(plain(python, *arguments, "count"), "loop")
    result, batches = sampled(probe, python, *arguments)
    probed = told(result, "loop")
    assert (probed["losses"], probed["parameters"]) == (alone["losses"], alone["parameters"]), "the training is changed"

    steps = [n for batch in batches for n in undelta(batch["steps"]["number"])]
    assert abs(max(steps) - (STEPS - 1)) <= 1 and len(steps) > 0.8 * STEPS

    forward, backward = calls_of(batches, FORWARD), calls_of(batches, BACKWARD)
    own = {name: count / STEPS for name, count in by_hand["calls"].items()}
    assert forward and {name: count / len(steps) for name, count in forward.items() if name in own} == {
        name: pytest.approx(own[name], rel=0.05) for name in forward if name in own}
    strange = [name for name in forward if name not in own]
    assert all("Loss" in name for name in strange), "names are those of named_modules()"
    parents = [name for name in own if any(other.startswith(name + ".") for other in own)]
    missing = [name for name in own if name not in forward and name not in parents]
    assert not missing, "each leaf that was called is there"
    assert len(backward) > 0.5 * len(forward)
