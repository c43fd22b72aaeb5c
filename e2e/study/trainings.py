"""The paper's trainings, by what it says of them: python3 trainings.py NAME --batch N [--seconds S | --fit GIB].

DLRM: bottom MLP 512-512-64, top MLP 1024-1024-1024-1, eight tables of 1M vectors of 64, 512 continuous features, 2048K samples in
batches of 1K, a sigmoid and MSELoss. Of ResNeXt and GPT-2 it tells the parameters alone, 460 and 461 million: ResNeXt-101 32x32d
(468.5 million) and 20 blocks of width 1280 (459.2 million) are the nearest of the usual shapes. Adam for the three, in FP32 as
PyTorch has it by default; data are drawn at random and stay on the GPU.
"""
import argparse
import time

import torch
from torch import nn

SAMPLES = 2048 * 1024
GIB = 1 << 30


class DLRM(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.bot = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64), nn.ReLU())
        self.emb = nn.ModuleList(nn.EmbeddingBag(rows, 64, mode="sum") for _ in range(8))
        self.top = nn.Sequential(nn.Linear(576, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                                 nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1), nn.Sigmoid())

    def forward(self, dense, categories):
        bags = [table(categories[:, i:i + 1]) for i, table in enumerate(self.emb)]
        return self.top(torch.cat([self.bot(dense), *bags], 1))


def dlrm(device, small):
    rows, samples = (1000, 4096) if small else (1_000_000, SAMPLES)
    dense = torch.randn(samples, 512, device=device)
    categories = torch.randint(rows, (samples, 8), device=device)
    wanted = torch.randint(2, (samples, 1), device=device).float()
    model, loss = DLRM(rows).to(device), nn.MSELoss()

    def batches(size):
        at = 0
        while True:
            part = slice(at, at + size)
            yield (dense[part], categories[part]), wanted[part]
            at = at + size if at + 2 * size <= samples else 0
    return model, loss, batches


def resnext(device, small):
    from torchvision.models.resnet import Bottleneck, ResNet
    depths, width = ([1, 1, 1, 1], 4) if small else ([3, 4, 23, 3], 32)
    model = ResNet(Bottleneck, depths, groups=32, width_per_group=width).to(device)

    def batches(size):
        images = torch.randn(size, 3, 224, 224, device=device)
        classes = torch.randint(1000, (size,), device=device)
        while True:
            yield (images,), classes
    return model, nn.CrossEntropyLoss(), batches


def gpt2(device, small):
    from transformers import GPT2Config, GPT2LMHeadModel
    shape = {"n_layer": 2, "n_embd": 64, "n_head": 2} if small else {"n_layer": 20, "n_embd": 1280, "n_head": 20}
    network = GPT2LMHeadModel(GPT2Config(**shape, use_cache=False)).to(device)
    length = 64 if small else 1024
    loss = nn.CrossEntropyLoss()

    def batches(size):
        tokens = torch.randint(50257, (size, length), device=device)
        while True:
            yield (tokens[:, :-1],), tokens[:, 1:].reshape(-1)
    return network, lambda out, wanted: loss(out.logits.flatten(0, 1), wanted), batches


TRAININGS = {"dlrm": dlrm, "resnext": resnext, "gpt2": gpt2}


def step(model, loss, optimizer, batch):
    inputs, wanted = batch
    optimizer.zero_grad()
    found = loss(model(*inputs), wanted)
    found.backward()
    optimizer.step()
    return found


def fit(name, gib):
    """The largest batch size, of powers of two, whose step takes at most so much of the GPU."""
    model, loss, batches = TRAININGS[name]("cuda", False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    size = 1
    while True:
        torch.cuda.reset_peak_memory_stats()
        try:
            for _, batch in zip(range(2), batches(2 * size)):
                step(model, loss, optimizer, batch)
        except torch.cuda.OutOfMemoryError:
            return size
        if torch.cuda.max_memory_allocated() > gib * GIB:
            return size
        size *= 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(TRAININGS))
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fit", type=float, help="print a batch size for so many GiB, and end")
    parser.add_argument("--small", action="store_true", help="small models on the CPU, to try it")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.fit:
        print(fit(args.name, args.fit))
        return
    model, loss, batches = TRAININGS[args.name]("cpu" if args.small else "cuda", args.small)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    began = time.monotonic()
    steps = 0
    for batch in batches(args.batch):
        found = step(model, loss, optimizer, batch)
        steps += 1
        if steps % 20 == 0 and time.monotonic() - began > args.seconds:
            break
    print(f"{steps} steps, loss {found.item():.4f}")


if __name__ == "__main__":
    main()
