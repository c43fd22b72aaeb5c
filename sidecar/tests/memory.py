"""A training whose layers ask a double of torch.cuda's allocator for memory (allocator.py); prints what each had, by itself.

usage: memory.py KIND STEPS [LIBRARIES, doubles of CUDA's that the process has]
"""
import ctypes
import json
import sys
import weakref

import torch
from torch import nn

from allocator import Allocator, Pieces

KIND, COUNT = sys.argv[1], int(sys.argv[2])
KIB = 1 << 10
torch.manual_seed(3)
torch.set_num_threads(1)
allocator = Allocator(tight=KIND == "tight")
devices = sys.modules.get("precisionprobe_hook.devices")
bound = torch.cuda.memory._record_memory_history
allocator.install(torch, devices)
if KIND == "leaves":
    torch.__version__ = sys.argv.pop(3)
if KIND == "refuses":
    allocator.refuse(torch)
LIBRARIES = [ctypes.CDLL(path, ctypes.RTLD_GLOBAL) for path in sys.argv[3:]]
if LIBRARIES:
    torch.cuda.is_initialized = lambda: True
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    torch.cuda.current_device = lambda: 0
pieces = Pieces(allocator) if KIND != "peak" else None


class Piece:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        if pieces:
            pieces.begin(self.name)

    def __exit__(self, *error):
        if pieces:
            pieces.end()


def let_go(address, name):
    with Piece(name + " backward"):
        allocator.free(address)


class Work(torch.autograd.Function):
    """Keeps an activation of so many bytes for backward, which autograd lets go behind it, and uses as many more meanwhile."""

    @staticmethod
    def forward(ctx, x, weight, name, kept, used):
        ctx.name, ctx.used = name, used
        saved = torch.zeros(1)
        with Piece(name + " forward"):
            temporaries = [allocator.malloc(used // 2) for _ in range(2)]
            weakref.finalize(saved, let_go, allocator.malloc(kept), name)
            for each in temporaries:
                allocator.free(each)
        ctx.save_for_backward(saved)
        return x * weight

    @staticmethod
    def backward(ctx, gradient):
        with Piece(ctx.name + " backward"):
            temporary = allocator.malloc(2 * ctx.used)
            allocator.free(temporary)
        return gradient, gradient.sum(), None, None, None


class Layer(nn.Module):
    def __init__(self, name, kept, used):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.about = name, kept, used

    def forward(self, x):
        return Work.apply(x, self.weight, *self.about)


class Block(nn.Module):
    """Makes a tensor of its own between its two layers, and one that is used after both."""

    def __init__(self, name, kib):
        super().__init__()
        self.name = name
        self.first, self.second = Layer(name + ".first", 3 * kib * KIB + 100, kib * KIB), Layer(name + ".second", 700, kib * KIB // 3)

    def forward(self, x):
        with Piece(self.name + " forward"):
            own = allocator.malloc(5000)
            x = self.first(x)
            between = allocator.malloc(9 << 20)
            allocator.free(between)
            x = self.second(x)
            allocator.free(own)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large = Block("small", 40), Block("large", 5000)

    def forward(self, x):
        return self.large(self.small(x))


BEGINNINGS = {  # of a history of the program's own
    "begins": lambda: torch.cuda.memory._record_memory_history(max_entries=1000),
    "bound": lambda: bound(max_entries=1000),
    "direct": lambda: torch._C._cuda_record_memory_history("all", "all", "all", 1000),
    "legacy": lambda: torch.cuda.memory._record_memory_history(True),
    "asks": lambda: torch._C._cuda_isHistoryEnabled() or torch.cuda.memory._record_memory_history(),  # as cudagraph_trees
}


def watched():
    """The functions by which programs use the history."""
    functions = [torch.cuda.memory._record_memory_history, torch.cuda.memory._snapshot,
                 torch._C._cuda_record_memory_history, torch._C._cuda_record_memory_history_legacy,
                 torch._C._cuda_memorySnapshot, torch._C._cuda_isHistoryEnabled]
    return [function.__qualname__ for function in functions]


def references():
    """Those that the numbers have by which the hook asks for a snapshot."""
    asks = sys.modules.get("precisionprobe_hook.memory")
    return [sys.getrefcount(number) for number in asks._NO_POOL[:2]] if asks else None


def main():
    before = references()
    allocator.malloc(64 << 20)  # parameters
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64)
    if KIND == "own":
        torch.cuda.memory._record_memory_history(max_entries=1000)
    for step in range(COUNT):
        if pieces:
            pieces.restart()
        if KIND in BEGINNINGS and allocator.history is not None and len(allocator.calls) == 1:
            BEGINNINGS[KIND]()  # in a step that the hook looks at
        if KIND == "raises" and step % 3 == 1:
            allocator.stats = None
            torch._C._cuda_memoryStats = lambda device: 1 / 0
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("found", json.dumps(pieces.found if pieces else {"peak": allocator.peak}))
    print("history", json.dumps({"calls": allocator.calls, "kept": allocator.history is not None,
                                 "watched": watched()}))
    print("references", json.dumps([before, references()]))
    print("loss", loss.item())


main()
