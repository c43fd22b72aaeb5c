"""A small real training that knows no profiler; prints its losses with all their digits.

usage: train.py STEPS [EXIT_STATUS]
"""
import sys

import torch
from torch import nn

torch.manual_seed(5)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(32, 128), torch.randn(32, 1)
for _ in range(int(sys.argv[1])):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(float(loss.detach()).hex())
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
