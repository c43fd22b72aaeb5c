"""Trainings whose host waits, one kind a function; prints their losses, and what torch's methods call before and after.

usage: waits.py KIND STEPS
"""
import copy
import ctypes
import json
import os
import sys
import threading
import time

import torch
from torch import nn

KIND, COUNT = sys.argv[1], int(sys.argv[2])
FLOOD = 10000
FORKS = []
torch.manual_seed(3)
torch.set_num_threads(1)


class Def(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_void_p)]


class Descriptor(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("owner", ctypes.c_void_p), ("name", ctypes.c_void_p),
                ("qualname", ctypes.c_void_p), ("definition", ctypes.POINTER(Def)), ("vectorcall", ctypes.c_void_p)]


class Function(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("definition", ctypes.POINTER(Def))]


BASE = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
METHODS = {name: vars(BASE)[name] for name in ("item", "tolist", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero", "equal")}


def pointers():
    """What each calls, by its address."""
    found = {name: Descriptor.from_address(id(method)).definition.contents.call for name, method in METHODS.items()}
    found["torch.nonzero"] = Function.from_address(id(torch.nonzero)).definition.contents.call
    return found


def attributes():
    """Everything of the classes that Python sees."""
    return {(cls.__name__, name): id(value) for cls in (BASE, torch.Tensor) for name, value in vars(cls).items()}


class Waiting(nn.Module):
    def __init__(self, wait):
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.wait = wait

    def forward(self, x):
        return self.wait(self.inner(x))


def item_in_a_layer(x):
    return x * (1 + 0 * x.sum().item())  # the layer's line


def in_layers():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), Waiting(item_in_a_layer), nn.Linear(64, 1))
    return model, lambda loss, step: None


def plain_model():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def in_loop():
    def wait(loss, step):
        loss.item()  # the loop's line
        if step % 4 == 0:
            bool(loss > 0)  # now and then
    return plain_model(), wait


def seldom():
    return plain_model(), lambda loss, step: step % 4 == 0 and bool(loss > 0)


def many():
    def wait(loss, step):
        value = loss.detach()
        for _ in range(FLOOD):
            value.item()  # the flood's line
    return plain_model(), wait


class Sub(torch.Tensor):
    """Its methods come by way of Python."""


def kinds():
    big = torch.ones(1 << 20)

    def wait(loss, step):
        value = loss.detach()
        float(value), int(value), [1, 2][torch.tensor(1)], value.cpu(), value.tolist(), torch.equal(value, value)
        big.nonzero()
        torch.nonzero(big)
        value.to("cpu"), value.to(device="cpu"), value.to(torch.device("cpu"))  # to the CPU
        value.to(torch.float64), value.to(value), value.to("cpu:0"), value.to(dtype=torch.float64)  # not named so
        str(big[:900])  # torch's own code calls
        complex(value.as_subclass(Sub))  # a call within a call
        try:
            big.item()
        except (RuntimeError, ValueError) as error:
            assert "scalar" in str(error).lower(), error
    return plain_model(), wait


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        gradient.sum().item()  # backward's line
        return gradient


class Back(nn.Module):
    def forward(self, x):
        return InBackward.apply(x)


def in_backward():
    return nn.Sequential(nn.Linear(64, 64), Back(), nn.Linear(64, 1)), lambda loss, step: None


def threads():
    """One that only waits, as a logger does."""
    value, more = torch.tensor(1.0), threading.Event()

    def log():
        while not more.is_set():
            value.item()  # the thread's line
            time.sleep(0.0005)
    threading.Thread(target=log, daemon=True).start()
    return plain_model(), lambda loss, step: more.set() if step == COUNT - 1 else None


def forked():
    """A child that is made while the methods are exchanged has them as they were."""
    before = pointers()

    def wait(loss, step):
        loss.item()
        if pointers() != before and not FORKS:
            FORKS.append(step)
            child = os.fork()
            if child == 0:
                loss.item()
                os._exit(0 if pointers() == before else 1)
            assert os.waitpid(child, 0)[1] == 0
    return plain_model(), wait


def lines():
    """Of this file, by what is written behind them."""
    with open(__file__) as file:
        return {text.partition("  # ")[2].strip(): number for number, text in enumerate(file, 1) if "  # " in text}


def main():
    model, wait = globals()[KIND]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before, seen, classes = pointers(), set(), attributes()
    for step in range(COUNT):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        wait(loss, step)
        now = pointers()
        seen |= {name for name in now if now[name] != before[name]}
        assert attributes() == classes
        if step % 10 == 0:
            print("loss %s" % loss.item().hex())
    end = time.monotonic() + float(os.environ.get("WAITS_IDLE", "0"))
    while time.monotonic() < end and pointers() != before:
        model(torch.randn(16, 64))  # as the capture has ended a forward puts all back
        time.sleep(0.01)
    print("methods " + json.dumps({"exchanged": sorted(seen), "left": [n for n, p in pointers().items() if p != before[n]],
                                   "lines": lines(), "forks": len(FORKS)}))


if __name__ == "__main__":
    main()
