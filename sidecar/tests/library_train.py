"""A training of a real library (e2e/bench/libraries.py), small, on the CPU.

usage: library_train.py TRAINING STEPS [count]

Prints each step's loss and, where `count` is asked for, how often each module of the model was called by hooks of its own.
"""
import collections
import json
import os
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "e2e/bench"), os.environ["PP_LIBRARIES"]]
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402

import libraries  # noqa: E402


def counted(model):
    calls = collections.Counter()
    for name, module in model.named_modules():
        key = name or type(module).__name__
        module.register_forward_pre_hook(lambda *_, key=key: calls.update([key]) if torch.is_grad_enabled() else None)
    return calls


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    training, steps = libraries.TRAININGS[sys.argv[1]]("cpu", True, None), int(sys.argv[2])
    calls = counted(training.model) if "count" in sys.argv else {}
    losses = []
    for _ in range(steps):
        loss = training.step()
        losses.append(None if loss is None else float(loss).hex())
    parameters = sum(float(p.detach().double().sum()) for p in training.model.parameters())
    print("loop " + json.dumps({"iterations": steps, "losses": losses, "parameters": parameters.hex(), "calls": calls}))


if __name__ == "__main__":
    main()
