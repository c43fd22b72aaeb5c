#!/usr/bin/env python3
"""A DLRM (deep learning recommendation model) trained on click data, sized for one CPU core.

The shape is that of the model in the 2024 PrecisionProbe paper: a bottom MLP over the dense features, one multi-hot
embedding bag per categorical feature, an interaction of their outputs, a top MLP, Sigmoid, a loss, SGD. One sample is
the impression of a page with `SLOTS` slots, its label says which of them were clicked; a hidden teacher draws the
labels, so there is something to learn and the loss falls.

Ten leaf layers carry the step (three and three Linear, four EmbeddingBag); ReLU, Sigmoid and the loss are small leaf
modules. Sizes are tuned for Debian's PyTorch with the reference BLAS; README.md has the measured shares.

For a seed the printed losses are the same to the last bit, whatever else the machine does: one thread per process,
deterministic kernels, data from a seeded generator. With --ddp every rank takes its share of each batch.

It knows no profiler. If VGPU_SOCKET is set, vgpu_client tells the virtual GPU what runs, as a real GPU would see it
by itself; that changes no result.
"""
import argparse
import itertools
import os
import sys
import time

import torch
from torch import nn

import vgpu_client

DENSE = 256  # continuous features per sample
DIM = 128  # width of an embedding vector
SLOTS = 160  # labels per sample
TABLES = ((10_000, 330), (8_000, 300), (12_000, 360), (6_000, 320))  # rows, indices per sample
BATCHES_PER_EPOCH = 12


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bot = nn.Sequential(
            nn.Linear(DENSE, 256), nn.ReLU(),
            nn.Linear(256, 256), nn.ReLU(),
            nn.Linear(256, DIM), nn.ReLU())
        self.emb = nn.ModuleList(nn.EmbeddingBag(rows, DIM, mode="sum") for rows, _ in TABLES)
        vectors = 1 + len(TABLES)
        self.top = nn.Sequential(
            nn.Linear(vectors * DIM + vectors * (vectors - 1) // 2, 144), nn.ReLU(),
            nn.Linear(144, 288), nn.ReLU(),
            nn.Linear(288, SLOTS), nn.Sigmoid())
        for layer in (*self.bot, *self.top):
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
        for table, (_, per) in zip(self.emb, TABLES):
            nn.init.normal_(table.weight, std=per ** -0.5)  # so that a bag's sum is of unit size
        pairs = torch.triu_indices(vectors, vectors, offset=1)
        self.register_buffer("pair_row", pairs[0], persistent=False)
        self.register_buffer("pair_col", pairs[1], persistent=False)

    def interact(self, vectors):
        """The vectors themselves and the scaled dot product of every pair."""
        stacked = torch.stack(vectors, dim=1)
        dots = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.pair_row, self.pair_col]
        return torch.cat([stacked.flatten(1), dots * DIM ** -0.5], dim=1)

    def forward(self, dense, bags):
        vectors = [self.bot(dense)]
        vectors += [table(bag) for table, bag in zip(self.emb, bags)]
        return self.top(self.interact(vectors))


class Clicks:
    """`batches` batches of click data, held in memory; each epoch visits them in an order of its own."""

    def __init__(self, batches, batch, seed):
        self.seed = seed
        self.batch = batch
        self.samples = batches * batch
        gen = torch.Generator().manual_seed(seed)
        self.dense = torch.randn(self.samples, DENSE, generator=gen)
        # Popular items come up more often, as clicks do.
        self.bags = [(torch.rand(self.samples, per, generator=gen).square_() * rows).to(torch.int32)
                     for rows, per in TABLES]
        self.labels = self._teach(gen)

    def _teach(self, gen, hidden=8):
        """Draws labels from a hidden model: a low-rank taste of the dense features and of every bag."""
        taste = self.dense @ (torch.randn(DENSE, hidden, generator=gen) / DENSE ** 0.5)
        for (rows, per), bag in zip(TABLES, self.bags):
            items = torch.randn(rows, hidden, generator=gen)
            taste += nn.functional.embedding_bag(bag, items, mode="mean") * per ** 0.5
        slots = torch.randn(hidden, SLOTS, generator=gen)
        chance = torch.sigmoid(taste @ slots - 1.0)
        return torch.bernoulli(chance, generator=gen)

    def epoch(self, number, rank, world):
        """Yields this rank's part of each batch of an epoch."""
        gen = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        order = torch.randperm(self.samples, generator=gen)
        for first in range(0, self.samples, self.batch):
            rows = order[first:first + self.batch][rank::world]
            yield (self.dense.index_select(0, rows), [bag.index_select(0, rows) for bag in self.bags],
                   self.labels.index_select(0, rows))


def arguments():
    parser = argparse.ArgumentParser(description="Train a DLRM on seeded synthetic clicks.")
    parser.add_argument("--steps", type=int, default=0, help="stop after this many steps (0: no limit)")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this much time (0: no limit); steps "
                        "are then not the same from run to run, their losses are")
    parser.add_argument("--epochs", type=int, default=0, help="stop after this many epochs (0: no limit)")
    parser.add_argument("--batch", type=int, default=1408, help="samples per step and rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=4.0, help="learning rate")
    parser.add_argument("--ddp", action="store_true", help="data parallel over gloo; RANK, WORLD_SIZE, MASTER_ADDR "
                        "and MASTER_PORT as torchrun sets them")
    args = parser.parse_args()
    if not (args.steps or args.seconds or args.epochs):
        parser.error("one of --steps, --seconds, --epochs is needed")
    return args


def join_group():
    """Enters the process group; returns rank and world size."""
    os.environ.setdefault("USE_LIBUV", "0")  # Debian's torch is built without libuv
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def stop_now(args, step, began, world):
    """Whether to stop after `step` steps. All ranks must agree, so rank 0's clock decides for all."""
    if args.steps and step >= args.steps:
        return True
    if not args.seconds:
        return False
    over = torch.tensor([float(time.monotonic() - began >= args.seconds)])
    if world > 1:
        torch.distributed.broadcast(over, 0)
    return bool(over.item())


def batches(args, data, rank, world, vgpu):
    """Yields (step, epoch, batch, data) and marks where steps begin, before the batch is fetched."""
    step = 0
    for epoch in itertools.islice(itertools.count(), args.epochs or None):
        samples = data.epoch(epoch, rank, world)
        for batch in range(BATCHES_PER_EPOCH):
            vgpu.step(step, epoch, batch)
            yield step, epoch, batch, next(samples)
            step += 1


def train(args, rank, world, vgpu):
    torch.manual_seed(args.seed)
    model = DLRM()
    loss_fn = nn.BCELoss()
    wrapped = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate)
    data = Clicks(BATCHES_PER_EPOCH, args.batch * world, args.seed)
    vgpu.attach(model, loss_fn, optimizer)
    began = last = time.monotonic()
    for step, epoch, batch, sample in batches(args, data, rank, world, vgpu):
        dense, bags, labels = sample
        optimizer.zero_grad()
        loss = loss_fn(wrapped(dense, bags), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()
        now = time.monotonic()
        print(f"step={step} epoch={epoch} batch={batch} loss={value:.17g} hex={value.hex()} "
              f"seconds={now - last:.6f}", flush=True)
        last = now
        if stop_now(args, step + 1, began, world):
            break
    vgpu.close()


def main():
    args = arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rank, world = join_group() if args.ddp else (0, 1)
    train(args, rank, world, vgpu_client.connect(rank))
    if world > 1:
        torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
