"""A training whose layers are replayed; prints what a test compares, as JSON. Knows no profiler.

usage: replay.py CASE [CUDA CUPTI]   (doubles)

It steps as often as its case says, so that runs with and without replays can be compared bit by bit.
"""
import ctypes
import hashlib
import json
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 260
# ns, of each Linear on the doubles
KERNELS = {"forward": [40000, 60000], "backward": [150000], "weight": [70000]}

fired = []  # calls of the user's own hooks
inside = False  # a step of the training's own runs


class Own(nn.Module):
    """May do anything, and does."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x):
        self.calls += 1
        return x * self.scale * (1 + 1e-3 * self.calls)


class Model(nn.Module):
    """Random numbers, running statistics, sparse gradients, an in-place activation, weights that a forward changes."""

    def __init__(self, big):
        super().__init__()
        self.emb = nn.EmbeddingBag(100, 16, sparse=True, mode="sum")
        self.normed = nn.Embedding(100, 16, max_norm=0.5)
        self.lin = nn.Linear(16, 32)
        self.bn = nn.BatchNorm1d(32)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.3)
        self.gate = nn.SiLU()
        self.rnn = nn.LSTM(32, 16)
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1)
        self.own = Own()
        self.wide = nn.Linear(16, 16384 if big else 16)
        self.out = nn.Linear(16, 1)
        self.lin.register_forward_hook(lambda *_: fired.append("forward"))
        self.lin.register_forward_pre_hook(lambda *_: fired.append("before"))
        self.lin.weight.register_hook(lambda grad: fired.append("gradient") or grad * 0.5)

    def forward(self, x, bags):
        h = self.drop(self.act(self.bn(self.lin(x + self.emb(bags) + self.normed(bags[:, 0])))))
        h = self.rnn(self.gate(h).unsqueeze(0))[0]
        h = self.own(self.attention(query=h, key=h, value=h, need_weights=False)[0].squeeze(0))
        with torch.autocast("cpu", torch.bfloat16):
            h = h + self.wide(h)[:, :16].float()
        return self.out(h)


def fail():
    warnings.warn("outside of a step")
    raise RuntimeError("not outside a step")


# What an operation does where it is run outside of the training's own steps. A slow one takes longer than a dwell.
OUTSIDE = {"raising": fail, "slow": lambda: time.sleep(0.05)}


def differ_when_replayed(how):
    plain = F.silu

    def silu(*args, **kwargs):
        if not inside:
            how()
        return plain(*args, **kwargs)

    F.silu = silu


class Launch(torch.autograd.Function):
    @staticmethod
    def forward(context, x, double):
        context.double = double
        for ns in KERNELS["forward"]:
            double.pp_cupti_launch(b"gemm", ctypes.c_int64(ns), 0)
        return x.clone()

    @staticmethod
    def backward(context, grad):
        for ns in KERNELS["backward"]:
            context.double.pp_cupti_launch(b"gemm", ctypes.c_int64(ns), 0)
        wait(context.double)
        return grad, None


class LaunchForWeight(torch.autograd.Function):
    """Only where the weight's gradient is wanted."""

    @staticmethod
    def forward(context, weight, double):
        context.double = double
        return weight.view_as(weight)

    @staticmethod
    def backward(context, grad):
        for ns in KERNELS["weight"]:
            context.double.pp_cupti_launch(b"gemm", ctypes.c_int64(ns), 0)
        return grad, None


launched = []


def wait(double):
    """Every so often, so that the GPU is never far behind."""
    launched.append(1)
    if len(launched) % 8 == 0:
        double.pp_cupti_wait(1)


def launch_kernels(cuda, cupti):
    """torch's own Linear launches kernels on the doubles, and waits for them now and then."""
    import faults
    double = ctypes.CDLL(cupti)
    faults.pretend_cuda(cuda)
    plain = F.linear

    def linear(x, weight, *bias):
        wait(double)
        return Launch.apply(plain(x, LaunchForWeight.apply(weight, double), *bias), double)

    F.linear = linear


def digest(values):
    whole = hashlib.sha256()
    for value in values:
        if torch.is_tensor(value):
            value = value.coalesce().values() if value.is_sparse else value
            whole.update(bytes(value.detach().contiguous().view(-1).view(torch.uint8).numpy()))
        else:
            whole.update(repr(value).encode())
    return whole.hexdigest()


def state(model, optimizer):
    slots = [value for slot in optimizer.state.values() for _, value in sorted(slot.items())]
    return {"parameters": digest(model.parameters()), "buffers": digest(model.buffers()),
            "gradients": digest([p.grad for p in model.parameters()]), "optimizer": digest(slots),
            "random": digest([torch.get_rng_state()]), "training": [m.training for m in model.modules()],
            "fired": {name: fired.count(name) for name in set(fired)}, "own": model.own.calls,
            "hooks": [len(m._forward_hooks) for m in model.modules()]}


def train(case):
    global inside
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = Model(case == "big")
    sparse = [model.emb.weight]
    dense = [p for p in model.parameters() if p is not model.emb.weight]
    optimizer = torch.optim.SGD([{"params": dense, "momentum": 0.9}, {"params": sparse}], lr=0.01)
    losses = []
    for _ in range(STEPS):
        x, bags, y = torch.randn(16, 16), torch.randint(0, 100, (16, 3)), torch.randn(16, 1)
        inside = True
        loss = (model(x, bags) - y).square().mean()
        inside = False
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()).hex())
    print(json.dumps({"losses": losses, **state(model, optimizer)}, sort_keys=True))


if __name__ == "__main__":
    if sys.argv[1] in OUTSIDE:
        differ_when_replayed(OUTSIDE[sys.argv[1]])
    if len(sys.argv) > 2:
        launch_kernels(*sys.argv[2:])
    train(sys.argv[1])
