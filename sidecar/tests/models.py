"""Trainings that differ in what is told of their model and its batches.

usage: models.py KIND STEPS
       models.py steered SIZE ENOUGH   (batches of as many rows as the file SIZE says, until the file ENOUGH is there)
"""
import contextlib
import itertools
import pathlib
import sys

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)


def net(width=32, layers=1):
    middle = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(16, width), *middle, nn.Linear(width, 1))


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, ids, mask=None, more=None):
        return self.out(self.embedding(ids) * mask.unsqueeze(-1)).mean(1)


class Wrapper(nn.Module):
    """Not called itself, as Lightning's modules are not."""

    def __init__(self):
        super().__init__()
        self.first = net()
        self.second = nn.Linear(1, 1)

    def step(self, x):
        return self.second(self.first(x))


class Distributed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


Distributed.__name__ = "DistributedDataParallel"


class Odd(nn.Module):
    """What should be its parameter is none."""

    def __init__(self):
        super().__init__()
        self.inner = net()
        self._parameters["odd"] = "odd"

    def forward(self, x):
        return self.inner(x)


class Shapeless(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "__get__" and function.__self__ is torch.Tensor.shape:
            raise RuntimeError("it has no shape")
        return super().__torch_function__(function, types, args, kwargs or {})


def batches(size=8):
    while True:
        yield (torch.randn(size, 16),), {}


def lengths():
    """The first dimension varies, but more than half are alike; the second one varies throughout."""
    for number in itertools.count():
        ids = torch.randint(0, 100, (4 if number % 4 else 3, 5 + number % 7))
        yield (), {"ids": ids, "mask": torch.ones(ids.shape)}


def nested(count):
    for _ in itertools.count():
        more = {"table": [torch.zeros(2, dtype=torch.int32)] * count, "text": "none"}
        yield (torch.zeros(4, 6, dtype=torch.long),), {"mask": torch.ones(4, 6), "more": more}


def shapeless():
    while True:
        yield (torch.randn(8, 16).as_subclass(Shapeless),), {}


def steered(file):
    while True:
        yield (torch.randn(int(file.read_text() or 8), 16),), {}


KINDS = {
    "steered": lambda: (net(), steered(pathlib.Path(sys.argv[2]))),
    "plain": lambda: (net(), batches()),
    "wide": lambda: (net(64), batches()),
    "deep": lambda: (net(layers=2), batches()),
    "half": lambda: (net().double(), ((tuple(x.double() for x in args), {}) for args, _ in batches())),
    "larger": lambda: (net(), batches(24)),
    "wrapped": lambda: (Distributed(net()), batches()),
    "owned": lambda: (Wrapper(), batches()),
    "odd": lambda: (Odd(), batches()),
    "shapeless": lambda: (net(), shapeless()),
    "lengths": lambda: (Keywords(), lengths()),
    "nested": lambda: (Keywords(), nested(1)),
    "many": lambda: (Keywords(), nested(7)),
    "last": lambda: (net(), itertools.cycle([*itertools.islice(batches(), 4), next(batches(3))])),
    "evaluated": lambda: (net(), batches()),
    "accumulated": lambda: (net(), batches()),
    "optimized": lambda: (torch.compile(net(), backend="eager"), batches()),
}


def forwards(kind, model, given):
    """Of a step: how many, and what is not the training's."""
    if kind == "evaluated":
        for _ in range(3):
            with torch.no_grad():
                model(torch.randn(50, 16))
    for _ in range(4 if kind == "accumulated" else 1):
        args, kwargs = next(given)
        call = model.step if kind == "owned" else model
        yield call(*args, **kwargs)


def main(kind, steps, goes_on=lambda: False):
    model, given = KINDS[kind]()
    optimizer = torch.optim.SGD([each for each in model.parameters() if isinstance(each, nn.Parameter)], lr=0.001)
    while goes_on() or steps > 0:
        steps -= 1
        optimizer.zero_grad()
        for out in forwards(kind, model, given):
            loss = out.square().mean()
            loss.backward()
        optimizer.step()
        print("loss %.9f" % float(loss.detach().as_subclass(torch.Tensor)))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        if sys.argv[1] == "steered":
            main("steered", 0, lambda: not pathlib.Path(sys.argv[3]).exists())
        else:
            main(sys.argv[1], int(sys.argv[2]))
