"""A training on the CPU whose layers launch kernels on the virtual GPU's driver (e2e/gpu/driver); prints the truth.

usage: kernels.py DRIVER TIMELINE MODEL SEED SECONDS [UNTIL]

DRIVER: the folder of libcuda.so.1 and libcupti.so.13. TIMELINE: the file in which what runs is shared with what samples
the GPU, whose UUID is the first in NVIDIA_VISIBLE_DEVICES. MODEL: "long" (kernels of one to four ms), "short" (0.2 to
0.9), or "random", drawn from SEED, as every model's levels are. It trains for SECONDS, and on until the GPU's monitors
were sampled UNTIL times, since who samples chooses when, or, where UNTIL is a path, until somebody makes that file; four
minutes at most. The last line of the output is JSON: for each layer and phase the mean of what its kernels took of the
GPU, by their lengths, over the whole training.

It belongs to no profiler. A training on a GPU has CUDA, which torch tells of; this one says that it has.
"""
import ctypes
import json
import os
import random
import sys
import time

import torch
from torch import nn

LEVELS = ["SMActive", "SMOccupancy", "DRAMActive", "FP32Active"]  # as timeline.h has them
VARIATION = 0.05  # of a kernel's levels from step to step
MODELS = {"long": (4, (1, 2), (1.0, 4.0)), "short": (9, (1, 4), (0.2, 0.9))}  # layers; kernels of a phase; ms of each
# ns of a step's kernels at least: clocks are found to be apart by what goes together within 12 ms either way, and
# where steps are shorter than that two that are a step further apart go together nearly as well.
STEP = 25e6
LONGEST = 600  # s of a training that waits: on a busy machine captures are far apart


class Kernel:
    """One kernel of a layer in a phase, again in each step."""

    def __init__(self, draw, length):
        self.ns = int(draw.uniform(*length) * 1e6)
        sm = draw.uniform(60, 98)
        self.levels = [sm, sm * draw.uniform(0.05, 0.9), draw.uniform(2, 85), sm * draw.uniform(0.02, 0.9)]
        self.tail = draw.choice([0, 20e3, 50e3]) / self.ns  # of its length: there its levels run out


class Gpu:
    """The driver, and what ran."""

    def __init__(self, driver, timeline, seed):
        self.cuda = ctypes.CDLL(os.path.join(driver, "libcuda.so.1"), ctypes.RTLD_GLOBAL)
        self.cupti = ctypes.CDLL(os.path.join(driver, "libcupti.so.13"))
        uuid = os.environ["NVIDIA_VISIBLE_DEVICES"].split(",")[0]
        if self.cupti.vgpu_begin(timeline.encode(), uuid.encode()) != 0:
            sys.exit("the timeline %s cannot be made" % timeline)
        torch.cuda.is_initialized = lambda: True
        torch._C._cuda_getCurrentRawStream = lambda device: 0
        self.draw = random.Random(seed)
        self.sums = {}  # (layer, phase): ns, then ns times each level

    def launch(self, layer, phase, kernels):
        for kernel in kernels:
            levels = [min(100, max(0, level * (1 + VARIATION * self.draw.gauss(0, 1)))) for level in kernel.levels]
            self.cupti.vgpu_levels((ctypes.c_float * len(levels))(*levels), ctypes.c_float(kernel.tail))
            self.cupti.pp_cupti_launch(b"gemm", ctypes.c_int64(kernel.ns), 0)
            sums = self.sums.setdefault((layer, phase), [0] * (1 + len(LEVELS)))
            sums[0] += kernel.ns
            for i, level in enumerate(levels):
                sums[1 + i] += level * (1 - kernel.tail / 2) * kernel.ns

    def wait(self):
        self.cupti.pp_cupti_wait(0)

    def sampled(self):
        return self.cupti.vgpu_sampled()

    def truth(self):
        return [{"layer": layer, "phase": phase, "ns": sums[0],
                 **{name: total / sums[0] / 100 for name, total in zip(LEVELS, sums[1:])}}
                for (layer, phase), sums in sorted(self.sums.items())]


class Launch(torch.autograd.Function):
    """The identity, with a layer's kernels."""

    @staticmethod
    def forward(context, x, layer):
        context.layer = layer
        layer.gpu.launch(layer.name, "forward", layer.kernels["forward"])
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        layer = context.layer
        layer.gpu.launch(layer.name, "backward", layer.kernels["backward"])
        return gradient, None


class Layer(nn.Linear):
    def __init__(self, gpu, name, kernels):
        super().__init__(8, 8)
        self.gpu, self.name, self.kernels = gpu, name, kernels

    def forward(self, x):
        return Launch.apply(super().forward(x), self)


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        self.gpu.launch("", "optimizer", self.kernels)
        return super().step(closure)


def draw_kernels(name, draw):
    """Of each layer those of forward and backward, and of the optimizer."""
    layers, count, length = MODELS.get(name) or (draw.randint(3, 8), (1, 3), sorted(draw.uniform(0.3, 3) for _ in "ab"))

    def some():
        return [Kernel(draw, length) for _ in range(draw.randint(*count))]

    return [{"forward": some(), "backward": some()} for _ in range(layers)], some()


def build(gpu, name, draw):
    total = 0
    while total < STEP:
        layers, last = draw_kernels(name, draw)
        total = sum(kernel.ns for phases in layers for kernels in phases.values() for kernel in kernels)
    model = nn.Sequential(*[Layer(gpu, str(i), kernels) for i, kernels in enumerate(layers)])
    optimizer = Optimizer(model.parameters(), lr=0.001)
    optimizer.gpu, optimizer.kernels = gpu, last
    return model, optimizer


def is_enough(gpu, until):
    return gpu.sampled() >= int(until) if until.isdecimal() else os.path.exists(until)


def main(driver, timeline, name, seed, seconds, until="0"):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    draw = random.Random(int(seed))
    gpu = Gpu(driver, timeline, draw.random())
    model, optimizer = build(gpu, name, draw)
    x, begun, steps = torch.ones(4, 8), time.monotonic(), 0
    while True:
        passed = time.monotonic() - begun
        if passed >= float(seconds) and (is_enough(gpu, until) or passed >= LONGEST):
            break
        optimizer.zero_grad()
        loss = model(x).square().mean()
        gpu.wait()
        loss.backward()
        optimizer.step()
        gpu.wait()
        steps += 1
    print(json.dumps({"model": name, "seed": int(seed), "steps": steps, "loss": float(loss.detach()),
                      "seconds": time.monotonic() - begun, "truth": gpu.truth()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
