"""A training on the CPU of torch's own layers, whose functions run kernels on the virtual GPU; prints its losses.

usage: replays.py DRIVER TIMELINE SEED SECONDS

DRIVER and TIMELINE: as of kernels.py, from whose driver the kernels' records come. What runs is told to the virtual
GPU (vgpu_client) kernel by kernel, where torch's function is called, whoever calls it: as a real GPU sees all that runs
on it. So a layer that somebody runs by itself, without its module's hooks, is seen as in a step. Kernels run alone and
the training waits for each; between them the GPU is idle. Their lengths are drawn from SEED, what they take of the GPU
is the virtual GPU's to know.

It belongs to no profiler. Every tenth step prints a line as dlrm.py's do.
"""
import ctypes
import random
import sys
import time

import torch
from torch import nn
from torch.nn import functional

import kernels
import vgpu_client

LAYERS = 3
LENGTH = (1e6, 4e6)  # ns of a kernel
PHASES = ("forward", "backward")
SHOWN = 10  # steps


class Gpu(kernels.Gpu):
    def __init__(self, driver, timeline, seed, client):
        super().__init__(driver, timeline, seed)
        self.client, self.layers = client, {}

    def know(self, model):
        """Layers go by their weights' storage, which whoever runs them has to use."""
        names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        for index, name in enumerate(names):
            lengths = {phase: int(self.draw.uniform(*LENGTH)) for phase in PHASES}
            self.layers[model.get_submodule(name).weight.data_ptr()] = index, lengths
        self.client.tell_kernels(names)

    def launch(self, weight, phase):
        index, lengths = self.layers[weight.data_ptr()]
        begun = time.time_ns()
        self.cupti.pp_cupti_launch(b"gemm", ctypes.c_int64(lengths[phase]), 0)
        self.client.kernel(phase[0], index, begun, lengths[phase])
        self.wait()


class Launch(torch.autograd.Function):
    """The identity, with a layer's kernels."""

    @staticmethod
    def forward(context, x, weight, gpu):
        context.weight, context.gpu = weight, gpu
        gpu.launch(weight, "forward")
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        context.gpu.launch(context.weight, "backward")
        return gradient, None, None


def run_on(gpu):
    """torch's linear() runs the kernels of the layer whose weight it is given."""
    plain = functional.linear

    def linear(x, weight, *bias):
        return Launch.apply(plain(x, weight, *bias), weight.detach(), gpu)

    functional.linear = linear


def main(driver, timeline, seed, seconds):
    torch.manual_seed(int(seed))
    torch.set_num_threads(1)
    client = vgpu_client.connect(0)
    gpu = Gpu(driver, timeline, int(seed), client)
    model = nn.Sequential(*[part for _ in range(LAYERS) for part in (nn.Linear(8, 8), nn.Tanh())])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gpu.know(model)
    run_on(gpu)
    begun, step = time.monotonic(), 0
    while time.monotonic() < begun + float(seconds):
        x, y = torch.randn(4, 8), torch.randn(4, 8)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        if step % SHOWN == 0:
            value = loss.item()
            print(f"step={step} loss={value:.17g} hex={value.hex()}", flush=True)
        step += 1
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
