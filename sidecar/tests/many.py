"""Trainings of many layers: prints its losses. usage: many.py wide|nested FILE (it trains until FILE is there)."""
import os
import sys

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Nested(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.own = nn.Linear(8, 8)
        self.within = Nested(depth - 1) if depth > 1 else nn.Linear(8, 8)

    def forward(self, x):
        return x + self.within(torch.tanh(self.own(x)))


def wide():
    """4,000 leaves in 40 blocks."""
    return nn.Sequential(*(Residual(layer for _ in range(50) for layer in (nn.LayerNorm(8), nn.Linear(8, 8)))
                           for _ in range(40)))


def nested():
    """200 blocks, each in the one before."""
    return Nested(200)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = globals()[sys.argv[1]]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    while not os.path.exists(sys.argv[2]):
        loss = model(torch.ones(2, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", float(loss.detach()).hex(), flush=True)


if __name__ == "__main__":
    main()
