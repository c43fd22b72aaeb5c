"""A training in which what the hook needs fails; prints what a test compares, as JSON.

usage: faults.py CASE [LIBRARY]

It trains for as long as it must: until the ring tells of the fault, and until the session is over. So that its losses
can be compared however long that takes, it begins anew every PERIOD steps.
"""
import ctypes
import glob
import json
import os
import signal
import sys
import time

import torch
from torch import nn

PERIOD = 200
LIMIT = 500  # seconds that anything is waited for: only a hang takes so long
RING = os.environ.get("PRECISIONPROBE_RING")
AGENT = int(os.environ.get("AGENT", "0"))
own = ctypes.PyDLL(None)  # where faults.so was loaded by LD_PRELOAD


class Training:
    def __init__(self):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        self.model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.begin = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.losses = []  # of the first period
        self.steps = self.others = 0  # all, and those with another loss than in the first period

    def step(self):
        at = self.steps % PERIOD
        if at == 0:
            with torch.no_grad():
                for parameter, begin in zip(self.model.parameters(), self.begin):
                    parameter.copy_(begin)
        loss = self.model(torch.ones(4, 8)).square().sum()
        loss.backward()
        self.optimizer.step()
        for parameter in self.model.parameters():
            parameter.grad = None  # zero_grad is called by the hook: what fails there would not be the hook's
        self.steps += 1
        if self.steps <= PERIOD:
            self.losses.append(float(loss.detach()).hex())
        elif float(loss.detach()).hex() != self.losses[at]:
            self.others += 1

    def until(self, condition):
        """Trains until then; whether it came."""
        end = time.monotonic() + LIMIT
        while not condition() and time.monotonic() < end:
            for _ in range(5):
                self.step()
        return condition()

    def end(self, **more):
        """The session is over; the training goes on until the hook is out."""
        if AGENT:
            os.kill(AGENT, signal.SIGTERM)
        self.until(lambda: self.steps >= PERIOD and not self.left())
        print(json.dumps({"losses": self.losses, "others": self.others, "hooks": self.left(), **more}))

    def left(self):
        """What of the hook is in place now."""
        return hooks()


def hooks():
    """Names of the hooks in place now, of forwards and of optimizers."""
    import torch.nn.modules.module as module
    optimizer = sys.modules["torch.optim.optimizer"]
    found = [name for owner, ends in ((module, "_hooks"), (optimizer, "_hooks")) for name in dir(owner)
             if name.startswith("_global_") and name.endswith(ends) and getattr(owner, name)]
    recorded = torch.autograd.profiler.record_function
    return found + ([recorded.__qualname__] if recorded.__qualname__ != "record_function" else [])


def ring():
    """What the ring's header counts, or None where there is no ring."""
    text = ctypes.create_string_buffer(1024)
    for path in glob.glob(os.path.join(RING, "*.ring")):
        if own.pp_fault_ring(path.encode(), text, len(text)) == 0:
            return json.loads(text.value)
    return None


def pretend_cuda(library):
    """Has the hook take this training's clock from a double of libcuda."""
    double = ctypes.CDLL(library, ctypes.RTLD_GLOBAL) if library else None
    torch.cuda.is_initialized = lambda: True
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    return double


def plain():
    Training().end()


def session(library=None):
    """A session with what the environment says failing from the beginning."""
    training = Training()
    if library is not None:
        pretend_cuda(library)
    training.until(lambda: training.steps >= 3 * PERIOD)
    training.end(ring=ring())


def cuda(library):
    """One fault after another in a running session; each goes away again."""
    training = Training()
    double = pretend_cuda(library)
    told = {}
    training.until(lambda: ring()["head"] > 200)
    for fault in ("create", "record", "query", "elapsed", "garbage", "context", "capturing", "busy", "never"):
        before = ring()
        double.pp_cuda_fault(fault.encode())
        counted = training.until(lambda: ring()["lost"] > before["lost"])
        double.pp_cuda_fault(b"")
        between = ring()
        again = training.until(lambda: ring()["head"] > between["head"] + 200)
        told[fault] = {"counted": counted, "again": again, "steps": training.steps}
    training.end(told=told, ring=ring())


class Interrupted(nn.Sequential):
    """What comes between its layers is told before each."""
    before = staticmethod(lambda layer: None)

    def forward(self, x):
        for at, layer in enumerate(self):
            self.before(at)
            x = layer(x)
        return x


def behind(library):
    """The GPU is some steps behind the host as one loses the marks of a layer's forward."""
    training = Training()
    training.model.__class__ = Interrupted
    double = pretend_cuda(library)
    damaged = []
    training.until(lambda: ring()["head"] > 200)
    for _ in range(3):
        training.until(lambda: ring()["state"] == 2)
        double.pp_cuda_fault(b"never")
        for step in range(9):
            if step == 4:
                damaged.append(ring()["steps"])
                training.model.before = lambda at: double.pp_cuda_fault(b"never record" if at == 5 else b"never")
            training.step()
            training.model.before = Interrupted.before
        double.pp_cuda_fault(b"")
        before = ring()["head"]
        training.until(lambda: ring()["head"] > before + 200)
    training.end(damaged=damaged, ring=ring())


def epochs(library):
    """A DataLoader that ends again and again, while marks are events."""
    training = Training()
    pretend_cuda(library)
    loader = torch.utils.data.DataLoader(torch.ones(6, 8), batch_size=2)
    batches = []
    training.until(lambda: ring()["head"] > 200)
    while training.steps < 3 * PERIOD:
        batches.append(0)
        for _ in loader:
            batches[-1] += 1
            training.step()
    training.end(batches=sorted(set(batches)), ring=ring())


def later(library):
    """CUDA is initialized between the first forward that the hook looks at and the end of its step."""
    training = Training()
    pretend_cuda(library)
    asked = []
    torch.cuda.is_initialized = lambda: bool(asked) or asked.append(True) or False
    training.until(lambda: ring()["head"] > 200)
    training.end(asked=len(asked), ring=ring())


def full():
    """The agent reads nothing any more, but its word stands; then it reads again."""
    training = Training()
    training.until(lambda: ring()["head"] > 200)
    os.kill(AGENT, signal.SIGSTOP)
    filled = training.until(lambda: ring()["lost"] > 1000)
    stuck = ring()
    os.kill(AGENT, signal.SIGCONT)
    again = training.until(lambda: ring()["head"] > stuck["head"] + 200)
    training.end(filled=filled, stuck=stuck, again=again)


def memory():
    """Some of the hook's allocations fail; in its Python too, where the interpreter survives that (3.13 does not)."""
    training = Training()
    sys.modules["precisionprobe_hook.probe"]._FAILURES = 1 << 30  # so that it tries again and again
    own.pp_fault_memory(40, sys.version_info < (3, 12))
    counted = training.until(lambda: ring()["failures"] >= 60)
    own.pp_fault_memory(0, False)
    training.end(counted=counted, failed=own.pp_fault_count())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
