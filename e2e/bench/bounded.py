"""Trainings that are built to be bound by one thing each (bounds.py), as their author would say who knows nothing of the probe."""
import os
import time

import torch
from torch import nn

from training import Training

LOADING_S = 0.014  # that a batch takes to be made
HOST_S = 0.028  # that the host works by itself in each step: nearly as long as the GPU


def _squares(output, _):
    return output.float().square().mean()


def _of(model, shape, dtype=torch.float32):
    model = model.to("cuda", dtype)
    return Training(model, torch.optim.SGD(model.parameters(), lr=1e-4), _squares,
                    [((torch.randn(shape, device="cuda", dtype=dtype),), None)])


def _products(count, width):
    return [nn.Linear(width, width, bias=False) for _ in range(count)]


def _tensor():
    """Products of large matrices in bfloat16."""
    return _of(nn.Sequential(*_products(4, 8192)), (8192, 8192), torch.bfloat16)


def _fp32():
    """The same in float32, without tensor cores."""
    torch.backends.cuda.matmul.allow_tf32 = False
    return _of(nn.Sequential(*_products(4, 4096)), (4096, 4096))


def _memory():
    """Each element is read, changed a little and written."""
    return _of(nn.Sequential(nn.LayerNorm(4096), *(layer for _ in range(6) for layer in (nn.GELU(), nn.Hardtanh()))), (32768, 4096))


class Running(nn.Module):
    """Sums of a few long rows: hardly any threads, each of which waits for what came before."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return torch.cumsum(x * self.scale, 1)


def _latency():
    return _of(nn.Sequential(*(Running() for _ in range(4))), (4, 1 << 20))


def _launch():
    """Many layers, each of which is over long before the host has come to the next."""
    return _of(nn.Sequential(*_products(200, 64)), (16, 64))


def _mixed(rows=32768):
    """Kernels of both kinds, tensor cores' and the memory's: some 8 ms, or more of more rows, whose launches take no longer."""
    layers = (layer for product in _products(14, 1024) for layer in (product, nn.GELU(), nn.GELU()))
    return _of(nn.Sequential(*layers), (rows, 1024), torch.bfloat16)


class Samples(torch.utils.data.IterableDataset):
    def __init__(self, sample, seconds):
        super().__init__()
        self.sample, self.seconds = sample, seconds

    def __iter__(self):
        while True:
            time.sleep(self.seconds)
            yield self.sample


class Loaded:
    """Batches of a loader, in the place of a training's own."""

    def __init__(self, sample, seconds):
        self.batches = iter(torch.utils.data.DataLoader(Samples(sample, seconds), batch_size=None))

    def __len__(self):
        return 1

    def __getitem__(self, _):
        return next(self.batches)


def _data(removed):
    """A loader that takes longer than the rest of the step, and no worker ahead of it."""
    training = _mixed()
    training.batches = Loaded(training.batches[0], 0 if removed else LOADING_S)
    return training


class Waiting(Training):
    """A host that has work of its own, which would take place while the GPU computes, if it did not wait for the loss first."""

    def __init__(self, removed):
        of = _mixed(4 * 32768)
        super().__init__(of.model, of.optimizer, of.loss, of.batches)
        self.removed = removed

    def step(self):
        loss = super().step()
        if not self.removed:
            loss.item()
        until = time.monotonic() + HOST_S
        while time.monotonic() < until:
            pass
        return loss


def _communication(removed):
    """Gradients of many weights, of each of which a small batch makes little, over a slow link."""
    os.environ["NCCL_P2P_DISABLE"] = "1"
    training = _of(nn.Sequential(*_products(4, 4096)), (64, 4096))
    if not removed:
        torch.distributed.init_process_group("nccl" if torch.cuda.device_count() > 1 else "gloo")
        training.model = nn.parallel.DistributedDataParallel(training.model)
    return training


ALONE = {"Tensor": _tensor, "FP32": _fp32, "Memory": _memory, "Latency": _latency, "Launch": _launch}
REMOVABLE = {"Data": _data, "Synchronization": Waiting, "Communication": _communication}


def make(kind, removed):
    """The training; `removed`: without what holds it up, where that can be taken away."""
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    return ALONE[kind]() if kind in ALONE else REMOVABLE[kind](removed)


def all_say(over):
    """Whether all ranks' time is over; where there is but one, whether its own is."""
    if not torch.distributed.is_initialized():
        return over
    said = torch.tensor(float(over), device="cuda")
    torch.distributed.all_reduce(said)
    return said.item() > 0


def train(kind, removed, seconds):
    """Trains so long; ms of a step in the second half."""
    training, begun, marks = make(kind, removed), time.monotonic(), []
    while len(marks) % 40 or not all_say(time.monotonic() > begun + seconds):
        training.step()
        marks.append(time.monotonic())
    torch.cuda.synchronize()
    half = len(marks) // 2
    return (marks[-1] - marks[half]) / (len(marks) - 1 - half) * 1e3
