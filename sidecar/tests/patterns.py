"""How trainings make their steps, one pattern a function; prints how many iterations its loop had, and what they took.

usage: patterns.py PATTERN ITERATIONS
"""
import itertools
import json
import sys
import time

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)


def net(width=64):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def loss_of(model, width=64):
    return model(torch.randn(16, width)).square().mean()


def sgd(parameters):
    return torch.optim.SGD(list(parameters), lr=0.01)


class Own(torch.optim.SGD):
    """An optimizer class of the user's."""


def plain():
    model = net()
    optimizer = Own(model.parameters(), lr=0.01)

    def iteration():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    return iteration


def accumulation():
    model = net()
    optimizer = sgd(model.parameters())

    def iteration():
        for _ in range(4):
            loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def heavy(model, loud):
    """Forward and backward, most of whose work is no layer's."""
    x = torch.randn(256, 64)
    for _ in range(loud):
        x = torch.tanh(x @ x.t() @ x / 256)
    return model(x).square().mean()


def with_closure(take):
    """`take` has the optimizer step with the closure."""
    model = net()
    optimizer = sgd(model.parameters())

    def compute():
        optimizer.zero_grad()
        loss = heavy(model, 8)
        loss.backward()
        return loss
    return lambda: take(optimizer, compute)


def closure():
    return with_closure(lambda optimizer, compute: optimizer.step(compute))


def named_closure():
    return with_closure(lambda optimizer, compute: optimizer.step(closure=compute))


def lbfgs():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4)

    def compute():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    def iteration():
        optimizer.step(compute)
    return iteration


def two():
    model = net()
    first, second = sgd(model[0].parameters()), sgd(model[2].parameters())

    def iteration():
        loss_of(model).backward()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
    return iteration


def by_groups():
    """As DeepSpeed's ZeRO calls the optimizer that it holds."""
    model = net()
    optimizer = sgd(model.parameters())

    def iteration():
        loss_of(model).backward()
        for _ in range(3):
            optimizer.step()
        optimizer.zero_grad()
    return iteration


def in_backward():
    model = nn.Sequential(*(layer for _ in range(15) for layer in (nn.Linear(32, 32), nn.ReLU())), nn.Linear(32, 1))
    optimizers = {p: sgd([p]) for p in model.parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)

    def iteration():
        loss_of(model, 32).backward()
    return iteration


def gan():
    generator, critic = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64)), net()
    first, second = sgd(generator.parameters()), sgd(critic.parameters())

    def iteration():
        made = generator(torch.randn(16, 8))
        (-critic(made).mean()).backward()
        first.step()
        second.zero_grad()
        (critic(made.detach()).mean() + loss_of(critic)).backward()
        second.step()
        first.zero_grad()
    return iteration


def trials():
    """A new model and a new optimizer after each twenty iterations."""
    numbers = itertools.count()
    made = []  # kept: one that is freed may lend its address to the next

    def iteration():
        if next(numbers) % 20 == 0:
            model = net()
            made.append((model, sgd(model.parameters())))
        model, optimizer = made[-1]
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    return iteration


def evaluation():
    """After each ten iterations the model is evaluated; in each, a teacher says what is right, and a rollout is made while it
    trains."""
    model, teacher = net(), nn.Sequential(nn.Linear(64, 1)).eval()
    optimizer = sgd(model.parameters())
    numbers = itertools.count(1)

    def iteration():
        x = torch.randn(16, 64)
        with torch.no_grad():
            right = teacher(x)
            model(x)
        (model(x) - right).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if next(numbers) % 10 == 0:
            model.eval()
            with torch.inference_mode():
                for _ in range(3):
                    model(x)
            model.train()
    return iteration


def checkpoint(reentrant):
    from torch.utils.checkpoint import checkpoint as again
    model, first = net(), nn.Linear(64, 64)
    optimizer = sgd([*first.parameters(), *model.parameters()])

    def iteration():
        again(model, first(torch.randn(16, 64)), use_reentrant=reentrant).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def reentrant_checkpoint():
    return checkpoint(True)


def other_checkpoint():
    return checkpoint(False)


def main():
    iteration, count = globals()[sys.argv[1]](), int(sys.argv[2])
    begun = time.monotonic()
    for _ in range(count):
        iteration()
    print("loop " + json.dumps({"iterations": count, "seconds": time.monotonic() - begun}))


if __name__ == "__main__":
    main()
