"""Two ranks over gloo, of which rank 1 is late by 8 ms in each step, in the way that is asked for.

usage: ranks.py layer|loader|code|nothing STEPS
"""
import os
import subprocess
import sys
import time

LATE = 0.008


def wait(seconds):
    """A thread that sleeps may be waked late by far more than this."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def train(how, steps):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, late):
            super().__init__()
            self.linear = nn.Linear(64, 64)
            self.late = late

        def forward(self, x):
            wait(self.late)
            return self.linear(x).relu()

    class Data(torch.utils.data.IterableDataset):
        def __iter__(self):
            for _ in range(steps):
                wait(late if how == "loader" else 0)
                yield torch.randn(32, 64)

    torch.manual_seed(3)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    late = LATE if torch.distributed.get_rank() == 1 and how != "nothing" else 0
    model = nn.Sequential(Block(0), Block(late if how == "layer" else 0), nn.Linear(64, 1))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in torch.utils.data.DataLoader(Data(), batch_size=None):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wait(late if how == "code" else 0)
    torch.distributed.destroy_process_group()


def main():
    how, steps = sys.argv[1], int(sys.argv[2])
    if "RANK" in os.environ:
        train(how, steps)
        return 0
    # Not every torch is built with libuv.
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
             "USE_LIBUV": "0"}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **place, "RANK": str(rank)})
             for rank in range(2)]
    return max(abs(rank.wait()) for rank in ranks)


sys.exit(main())
