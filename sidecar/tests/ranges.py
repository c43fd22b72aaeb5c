"""Trainings that mark ranges, as patterns.py has those of other kinds.

usage: ranges.py PATTERN ITERATIONS
"""
import ctypes
import itertools
import pickle
import sys
import threading
import time
import types

import torch
from patterns import FORWARD_S, SEEN, SLOW, Slow, loss_of, main, net, sgd, work
from torch import nn


def record(name):
    return torch.profiler.record_function(name)


def loop_of(model, loss):
    """As training(), with a range behind its backward."""
    optimizer = sgd(model.parameters())

    def iteration():
        loss().backward()
        with record("later"), torch.no_grad():
            work("later", FORWARD_S)
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def ranges():
    """A range before the model, one of its loss, and one behind backward that records nothing; what is around is as long."""
    model = net()

    def loss():
        with record("augment"):
            x = torch.randn(16, 64)
            work("forward", FORWARD_S)
        out = model(x)
        time.sleep(FORWARD_S)
        with record("my loss"):
            value = Slow.apply(out).square().mean()
        return Slow.apply(value) * 2
    return loop_of(model, loss)


@torch.profiler.record_function("decorated")
def decorated(x):
    work("forward", FORWARD_S)
    return x


def nested_ranges():
    """Each name has what is in no other; a range that comes in itself is one call, and one in a module is the module's."""
    class Marked(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(64, 1)

        def forward(self, x):
            with record("in a module"):
                work("later", FORWARD_S)
            return self.last(x)
    model = Marked()
    optimizer = sgd(model.parameters())

    def iteration():
        with record("step"):
            x = decorated(torch.randn(16, 64))
            work("forward", FORWARD_S)
            with record("outer"):
                work("forward", FORWARD_S)
                with record("inner"):
                    work("forward", FORWARD_S)
                    with record("outer"), record("inner"):
                        pass
            out = model(x)
            with record("loss of mine"):
                value = Slow.apply(out).mean()
                with record("regularizer"):
                    value = value + Slow.apply(sum(p.square().sum() for p in model.parameters()))
                value = value * 2
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
        SEEN.update(loss=value.item().hex())
    return iteration


def odd_ranges():
    """Ranges that overlap, that nobody leaves, left twice or by an exception, and in other threads."""
    model, numbers = net(), itertools.count()
    optimizer = sgd(model.parameters())

    def elsewhere():
        while True:
            with record("elsewhere"):
                time.sleep(0.001)
    threading.Thread(target=elsewhere, daemon=True).start()

    def fail():
        with record("fails"):
            work("forward", FORWARD_S)
            raise KeyError

    def iteration():
        first, second = record("first"), record("second")
        first.__enter__()
        work("forward", FORWARD_S)
        second.__enter__()
        work("forward", FORWARD_S)
        first.__exit__(None, None, None)
        work("forward", FORWARD_S)
        second.__exit__(None, None, None)
        try:
            fail()
        except KeyError:
            pass
        with torch.no_grad(), record("quiet"):
            work("forward", FORWARD_S)
        left = record("left open")
        left.__enter__()
        within = record("within")
        within.__enter__()
        handle = model[0].register_forward_hook(lambda *_: within.__exit__(None, None, None))
        loss_of(model).backward()
        handle.remove()
        if next(numbers) % 2:
            del left
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def accumulated_ranges():
    """Several backwards in a step, and a closure that they are in; a range around all of it, which backward is no part of."""
    model = net()
    optimizer = sgd(model.parameters())

    def compute():
        with record("around"):
            optimizer.zero_grad()
            for _ in range(4):
                out = model(torch.randn(16, 64))
                with record("my loss"):
                    loss = Slow.apply(out).mean()
                loss.backward()
        return loss
    return lambda: optimizer.step(compute)


def hostile_names():
    """Names that are new at each step, long ones, and such as no terminal should see."""
    model, numbers = net(), itertools.count()
    optimizer = sgd(model.parameters())
    fixed = ["x" * 10000, "bell \a\x1b[31m red \n", "zero \0 zero", "", "loss", "0"]

    def iteration():
        for name in [*fixed, "step %d" % next(numbers)]:
            with record(name):
                time.sleep(0.0005)
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def many_ranges():
    """Of more names than there are rows."""
    model, names = net(), ["range %d" % i for i in range(400)]
    optimizer = sgd(model.parameters())

    def iteration():
        for name in names:
            with record(name):
                pass
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


class Def(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class Function(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("definition", ctypes.POINTER(Def))]


def install_nvtx():
    """What torch has of NVTX in builds for CUDA: functions of C's; ranges in ranges are counted."""
    open_ranges, kept = [], []

    def push(_, args):
        open_ranges.append(args[0])
        return len(open_ranges) - 1

    def pop(_, args):
        return len(open_ranges) - 1 if not open_ranges else open_ranges.pop() and len(open_ranges)
    function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object)
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype, create.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    double = types.ModuleType("_nvtx")
    for name, call in (("rangePushA", push), ("rangePop", pop)):
        call = function(call)
        definition = Def(name.encode(), ctypes.cast(call, ctypes.c_void_p), 1, None)
        kept.append((call, definition))
        setattr(double, name, create(ctypes.addressof(definition), None, None))
    double.kept = kept
    import torch.cuda.nvtx
    torch._C._nvtx = torch.cuda.nvtx._nvtx = double


def nvtx_ranges():
    """Pushed and popped, as a context, popped too often, and left open at the end of a step."""
    install_nvtx()
    nvtx = torch.cuda.nvtx
    model = net()
    optimizer = sgd(model.parameters())
    inside = model[0].register_forward_pre_hook(lambda *_: nvtx.range_push("in a module") and None)
    after = model[0].register_forward_hook(lambda *_: nvtx.range_pop() and None)

    def iteration():
        for _ in range(3):
            nvtx.range_pop()
        assert nvtx.range_push("load") == 0
        work("forward", FORWARD_S)
        x = torch.randn(16, 64)
        with nvtx.range("model"):
            out = model(x)
        work("forward", FORWARD_S)
        nvtx.range_pop()
        with nvtx.range("compute loss"), record("in it"):
            value = Slow.apply(out).square().mean()
        value.backward()
        nvtx.range_push("rest")
        work("later", FORWARD_S)
        optimizer.step()
        optimizer.zero_grad()
        SLOW.setdefault("load", []).append(sum(SLOW["forward"][-3:-1]))
        SLOW.setdefault("in it", []).append(SLOW["forward"][-1])
        SEEN.update(loss=value.item().hex())
    return iteration


def exchanged():
    """What torch calls for a range is another's while a capture runs, and nothing that Python sees is."""
    install_nvtx()
    operators, nvtx = torch.ops.profiler, torch._C._nvtx
    new = sys.version_info >= (3, 12)  # the torch beside it
    enter = operators._record_function_enter_new if new else operators._record_function_enter
    leave = operators._record_function_exit._RecordFunction if new else operators._record_function_exit
    functions = {"enter": enter._op, "leave": leave._op, "push": nvtx.rangePushA, "pop": nvtx.rangePop}

    def pointers():
        return {name: Function.from_address(id(each)).definition.contents.call for name, each in functions.items()}

    def attributes():
        return [(name, id(value)) for each in (torch.profiler.record_function, torch.cuda.nvtx, nvtx)
                for name, value in sorted(vars(each).items())]

    def is_pickled():
        return pickle.loads(pickle.dumps(record("kept"))).name == "kept"
    assert is_pickled()  # which leaves something in the class
    before, seen, classes = pointers(), set(), attributes()
    step = ranges()

    def iteration():
        step()
        seen.update(name for name, at in pointers().items() if at != before[name])
        assert attributes() == classes and (not new or is_pickled())  # torch < 2.0's class is another meanwhile
        SEEN.update(exchanged=sorted(seen), left=[name for name, at in pointers().items() if at != before[name]])
    return iteration


def compiled_ranges():
    """Within what is compiled, by which nothing may change, and around it."""
    import torch._dynamo
    model = net()

    def function(x):
        with record("compiled"):
            return torch.tanh(x) * 2
    compiled = [torch.compile(each, backend="eager") for each in (model, function)]
    optimizer = sgd(model.parameters())

    def iteration():
        with record("around"):
            work("forward", FORWARD_S)
            out = compiled[0](torch.randn(16, 64))
        with record("loss"):
            value = compiled[1](out).square().mean()
        value.backward()
        with record("later"):
            work("later", FORWARD_S)
        optimizer.step()
        optimizer.zero_grad()
        SEEN.update(loss=value.item().hex(), graphs=torch._dynamo.utils.counters["stats"]["unique_graphs"],
                    breaks=sum(torch._dynamo.utils.counters["graph_break"].values()))
    return iteration


if __name__ == "__main__":
    main(globals())
