"""How trainings make their steps, one pattern a function; prints how many iterations its loop had, and what they took.

usage: patterns.py PATTERN ITERATIONS
"""
import atexit
import itertools
import json
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

import torch
from torch import nn

COUNT = int(sys.argv[2])
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


FORWARD_S, BACKWARD_S = 0.003, 0.006


SLOW = {"forward": [], "backward": [], "later": []}  # seconds of each call
SEEN = {}  # what else a pattern tells


def add(phase, begun):
    SLOW[phase].append(time.monotonic() - begun)


def work(phase, seconds):
    """Takes so long, or longer on a busy machine: how long is added up."""
    begun = time.monotonic()
    time.sleep(seconds)
    add(phase, begun)


class Slow(torch.autograd.Function):
    """Work of a known length that is no module's."""

    @staticmethod
    def forward(ctx, x):
        work("forward", FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        work("backward", BACKWARD_S)
        return gradient.clone()


class Attention(nn.Module):
    """Works itself between the modules in it, on one branch of two."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        x = self.first(x)
        return x + self.last(Slow.apply(x))


class Blocks(nn.Module):
    """Two blocks, and a head that is called as a function."""

    def __init__(self, width=64):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), Attention(width)) for _ in range(2))
        self.head = nn.Parameter(torch.ones(width, 1))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x @ self.head


class Cast(nn.Module):
    """Its parameters are cast, as autocast does it: their nodes come behind the one that leads to the input."""

    def __init__(self, width=64):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, width) / 16), nn.Parameter(torch.zeros(width))
        self.bias.register_post_accumulate_grad_hook(lambda _: work("later", FORWARD_S))

    def forward(self, x):
        return nn.functional.linear(x, self.weight * 2, self.bias * 2)


class Casts(Cast):
    """The same within a layer, which does it once more."""

    def __init__(self, width=64):
        super().__init__(width)
        self.first, self.layer = nn.Linear(width, width), Cast(width)

    def forward(self, x):
        x = self.layer(self.first(x))
        x.grad_fn.register_hook(lambda *_: work("later", FORWARD_S))
        return super().forward(x)


def casts():
    """Where the engine sums gradients, and adds them into .grad, others have it call something slow."""
    model = Casts()

    def loss():
        out = model(torch.randn(16, 64))
        out.grad_fn.register_hook(lambda *_: work("later", FORWARD_S))
        return out.square().mean()
    return training(model, sgd(model.parameters()), loss)


def training(model, optimizer, loss):
    def iteration():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def parents():
    model = Blocks()
    return training(model, sgd(model.parameters()), lambda: model(torch.randn(16, 64)).square().mean())


class Odd(nn.Module):
    """Called once in a step; ends in an output that nobody uses, calls itself, and returns no plain tensors."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.last = nn.Linear(width, width), Wrapped(width)

    def forward(self, x, depth=1):
        if depth:
            return self(x, depth - 1)
        x = Slow.apply(self.first(x))
        y = self.last(x).value
        return {"loss": y.square().mean(), "unused": (x * 2).norm()}


class Box:
    def __init__(self, value):
        self.value = value


class Wrapped(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return Box(self.inner(x))


def odd():
    model = Odd()
    return training(model, sgd(model.parameters()), lambda: model(torch.randn(16, 64))["loss"])


def checkpointed_parents(reentrant):
    """Blocks that are run again, and backward in another thread than forward, as on a GPU."""
    import threading
    from torch.utils.checkpoint import checkpoint as again
    model, first = Blocks(), nn.Linear(64, 64)
    optimizer = sgd([*first.parameters(), *model.parameters()])

    def iteration():
        x = first(torch.randn(16, 64))
        for block in model.blocks:
            x = again(block, x, use_reentrant=reentrant)
        thread = threading.Thread(target=x.square().mean().backward)
        thread.start()
        thread.join()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def reentrant_parents():
    return checkpointed_parents(True)


def other_parents():
    return checkpointed_parents(False)


class Failing(nn.Module):
    """Fails in each third call, as where memory is out, and is called again."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = self.first(x) * 2
        if self.calls % 3 == 0:
            raise MemoryError
        return self.last(x)


def failing():
    """What a failed forward leaves: how many tensors are alive then, at most, is said at the end."""
    import gc
    import weakref
    model, kept = Failing(), []
    optimizer = sgd(model.parameters())

    def attempt():
        x = torch.randn(16, 64, requires_grad=True) * 1
        kept.append(weakref.ref(x))
        return model(x).square().mean()

    def iteration():
        try:
            loss = attempt()
        except MemoryError:
            loss = None
        if loss is None:
            gc.collect()
            assert not [each for each in kept if each() is not None], "the graph of a forward that failed is alive"
            loss = attempt()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss
        kept.clear()
    return iteration


class ForceField(nn.Module):
    """Its forward runs a backward, which what it returns depends on."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, x):
        energy = self.last(torch.tanh(self.first(x)))
        force, = torch.autograd.grad(energy.sum(), x, create_graph=True)
        work("forward", FORWARD_S)
        return force * 2


def force_field():
    model = ForceField()
    return training(model, sgd(model.parameters()),
                    lambda: model(torch.randn(16, 64, requires_grad=True)).square().mean())


def many_layers():
    """More than 4,096 layers, in 300 blocks of 20."""
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20)))

        def forward(self, x):
            return self.inner(x)
    model = nn.Sequential(*(Block() for _ in range(300)))
    return training(model, sgd(model.parameters()), lambda: model(torch.randn(2, 2)).square().mean())


def flat_layers():
    """More than 4,096 layers, all in one module."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4200)))
    return training(model, sgd(model.parameters()), lambda: model(torch.randn(2, 2)).square().mean())


def skipped_steps():
    """A scaler skips each fourth step of the optimizer, and three in a row once: their gradients are infinite."""
    model, numbers = net(), itertools.count()
    optimizer, scaler = sgd(model.parameters()), torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    def iteration():
        number = next(numbers)
        time.sleep(0.002)
        loss = loss_of(model)
        if number % 4 == 3 or 41 <= number < 43:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return iteration


def skipped_in_turn():
    """A GAN whose critic is skipped now and then, each with an update of its own."""
    generator, critic, numbers = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64)), net(), itertools.count()
    optimizers, scaler = [sgd(each.parameters()) for each in (critic, generator)], torch.amp.GradScaler("cpu", init_scale=4.0)

    def iteration():
        number = next(numbers)
        for optimizer in optimizers:
            loss = critic(generator(torch.randn(16, 8))).square().mean()
            skips = number % 4 == 3 and optimizer is optimizers[0]
            scaler.scale(loss * float("inf") if skips else loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return iteration


def recompiled():
    """Each 20th step has a batch of another size; the compiler takes 180 ms, of backward too where that is traced later: long
    beside what a busy machine adds to steps."""
    import torch._dynamo
    from torch._dynamo.backends.common import aot_autograd
    model, numbers = net(), itertools.count()
    optimizer = sgd(model.parameters())

    def compile_slowly(graph, inputs):
        work("later", 60 * FORWARD_S)
        return graph.forward
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=compile_slowly, bw_compiler=compile_slowly), dynamic=False)

    def iteration():
        x = torch.randn(16 + next(numbers) // 20, 64)
        compiled(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        SEEN.update(graphs=torch._dynamo.utils.counters["stats"]["unique_graphs"], compiled=len(SLOW["later"]))
    return iteration


def by_hand():
    """No optimizer of torch.optim."""
    import precisionprobe
    model = net()

    def iteration():
        loss_of(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
        precisionprobe.step()
    return iteration


def by_hand_with_optimizers():
    """Two steps of optimizers in each of the loop's."""
    import precisionprobe
    model = net()
    optimizer = sgd(model.parameters())

    def iteration():
        for _ in range(2):
            loss_of(model).backward()
            optimizer.step()
            optimizer.zero_grad()
        precisionprobe.step()
    return iteration


def server():
    """Answers, and never trains."""
    import precisionprobe
    model = net().eval()

    def iteration():
        with torch.inference_mode():
            model(torch.randn(16, 64))
        time.sleep(0.002)
        precisionprobe.step()
    return iteration


def late_model():
    """A model, then another, whose first call is no step's first."""
    numbers = itertools.count()
    models = [net(), nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Linear(32, 1))]
    optimizers = [sgd(model.parameters()) for model in models]

    def iteration():
        late = next(numbers) >= COUNT // 2
        time.sleep(0.002)
        loss_of(models[late]).backward()
        optimizers[late].step()
        optimizers[late].zero_grad()
    return iteration


def turns():
    """A model in each step, and another in each tenth beside it."""
    numbers = itertools.count(1)
    models = [net(), nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))]
    optimizer = sgd([p for model in models for p in model.parameters()])

    def iteration():
        loss = loss_of(models[0])
        if next(numbers) % 10 == 0:
            loss = loss + loss_of(models[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def checkpointed_function():
    """Runs work of no module's again, while the last layer's backward waits for it."""
    from torch.utils.checkpoint import checkpoint as again
    model, first = net(), nn.Linear(64, 64)
    optimizer = sgd([*first.parameters(), *model.parameters()])

    def slow(x):
        return model(Slow.apply(x))
    return training(model, optimizer, lambda: again(slow, first(torch.randn(16, 64)), use_reentrant=False).square().mean())


def gradient_penalty():
    """Backward twice in a step, with a pause in between."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def loss():
        x = torch.randn(16, 64, requires_grad=True)
        gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        work("backward", 2 * BACKWARD_S)
        return gradient.square().mean()
    return training(model, sgd(model.parameters()), loss)


class Slower(torch.autograd.Function):
    """The same, four times as long: what is around it matters less."""

    @staticmethod
    def forward(ctx, x):
        work("forward", 4 * FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        work("backward", 4 * BACKWARD_S)
        return gradient.clone()


def slow_loss():
    """The loss takes as long as is known, with what is around it; it is computed before gradients are set to zero, and scaled."""
    model, scale = net(), torch.tensor(2.0)
    optimizer = sgd(model.parameters())

    def iteration():
        predicted = model(torch.randn(16, 64))
        begun = time.monotonic()
        loss = Slower.apply(predicted).square().mean()
        before = time.monotonic() - begun
        optimizer.zero_grad()
        begun = time.monotonic()
        scaled = loss * scale
        SLOW["forward"][-1] = before + time.monotonic() - begun
        scaled.backward()
        work("later", FORWARD_S)
        optimizer.step()
    return iteration


def wide_loss():
    """A cross entropy over many words, as users' own timers and hooks have it."""
    model = nn.Linear(64, 20000)
    begun = [0.0]

    def backward_ended(_):
        add("backward", begun[0])

    def loss():
        logits = model(torch.randn(128, 64))
        logits.register_hook(backward_ended)
        begun[0] = time.monotonic()
        value = nn.functional.cross_entropy(logits, torch.randint(20000, (128,)))
        add("forward", begun[0])
        begun[0] = time.monotonic()
        return value
    return training(model, sgd(model.parameters()), loss)


def losses_of_two():
    """A GAN: each of two backwards has a loss of its own."""
    generator, critic = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64)), net()
    first, second = sgd(generator.parameters()), sgd(critic.parameters())

    def iteration():
        made = generator(torch.randn(16, 8))
        Slow.apply(-critic(made)).mean().backward()
        first.step()
        second.zero_grad()
        Slow.apply(critic(made.detach())).mean().backward()
        second.step()
        first.zero_grad()
    return iteration


def accumulated_losses():
    model = net()
    optimizer = sgd(model.parameters())

    def iteration():
        for _ in range(4):
            Slow.apply(model(torch.randn(16, 64))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def checkpointed_loss():
    from torch.utils.checkpoint import checkpoint as again
    model = net()

    def compute(x):
        return Slow.apply(x).square().mean()
    return training(model, sgd(model.parameters()), lambda: again(compute, model(torch.randn(16, 64)), use_reentrant=False))


def reentrant_loss():
    """What is run again there is run by nobody who tells."""
    from torch.utils.checkpoint import checkpoint as again
    model = net()

    def compute(x):
        return Slow.apply(x).square().mean()
    return training(model, sgd(model.parameters()), lambda: again(compute, model(torch.randn(16, 64)), use_reentrant=True) * 2)


class Criterion(nn.Module):
    def forward(self, x):
        return x.square().mean()


class Named(nn.Module):
    """Has modules named as what is none would be."""

    def __init__(self):
        super().__init__()
        self.loss, self.gradients = nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, x):
        return self.gradients(self.loss(x))


def module_loss():
    """A module, and work that leads to it and from it."""
    model, criterion = Named(), Criterion()
    return training(model, sgd(model.parameters()), lambda: Slow.apply(criterion(Slow.apply(model(torch.randn(16, 64)).view(-1)))))


def between_models():
    """Work that leads from one model to another is no loss, nor are its nodes sums of gradients."""
    first, last = nn.Linear(64, 64), net()
    return training(last, sgd([*first.parameters(), *last.parameters()]),
                    lambda: last(Slow.apply(first(torch.randn(16, 64)))).square().mean())


def before_models():
    first, last = nn.Parameter(torch.ones(64, 64)), net()
    return training(last, sgd([first, *last.parameters()]), lambda: last(Slow.apply(torch.randn(16, 64) @ first)).square().mean())


def slow_gradients():
    """What adds gradients to parameters takes as long as is known, three times."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1, bias=False))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: work("backward", BACKWARD_S))
    step = training(model, sgd(model.parameters()), lambda: loss_of(model))

    def iteration():
        step()
        SLOW["backward"][-3:] = [sum(SLOW["backward"][-3:])]  # of a step: each of the three may be late
    return iteration


def thrown_away():
    """Most backwards raise; what they leave is nobody's."""
    model = net()
    optimizer = sgd(model.parameters())

    def fail(_):
        raise MemoryError

    def iteration():
        out = model(torch.randn(16, 64))
        handle = out.register_hook(fail)
        try:
            Slow.apply(out).mean().backward(retain_graph=True)
        except MemoryError:
            handle.remove()
        work("later", FORWARD_S)
        Slow.apply(model(torch.randn(16, 64))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return iteration


def parameters_only():
    """Gradients by autograd.grad, of a model that is called with parameters of the caller's."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = sgd(model.parameters())
    call = getattr(getattr(torch, "func", None), "functional_call", None)

    def iteration():
        named = dict(model.named_parameters())
        x = torch.randn(16, 64)
        loss = (call(model, named, (x,)) if call else model(x)).square().mean()
        for parameter, gradient in zip(named.values(), torch.autograd.grad(loss, list(named.values()))):
            parameter.grad = gradient
        optimizer.step()
    return iteration


def parametrized():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
                          if hasattr(nn.utils.parametrizations, "weight_norm") else nn.Linear(64, 64),
                          nn.Tanh(), nn.Linear(64, 1))
    return training(model, sgd(model.parameters()), lambda: loss_of(model))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.by


WIDE, LONG = 1024, 2048


class Turning(nn.Module):
    """Turns what comes: its gradient comes turned, and the view before that has to copy it."""

    def __init__(self, parent):
        super().__init__()
        self.last = Scale() if parent else None

    def forward(self, x):
        x = x.view(WIDE, LONG).t()
        return self.last(x) if self.last is not None else 1.0 * x


def turned():
    """A parent that does nothing itself but that, and a layer; the shortest copy is told, as every one takes that long."""
    model = nn.Sequential(Scale(), Turning(True), nn.Flatten(0), Turning(False))
    data, gradient = torch.randn(WIDE * LONG), torch.randn(LONG, WIDE)

    def loss():
        begun = time.monotonic()
        gradient.t().reshape(-1)
        took = time.monotonic() - begun
        SLOW["backward"] = [min([took, *SLOW["backward"]])]
        return model(data).sum()
    return training(model, sgd(model.parameters()), loss)


class Ways(nn.Module):
    """Uses a view twice: once turned, behind work of its own, and once as it is."""

    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Linear(width, width)

    def forward(self, x):
        x = self.first(x).view(32, 32)
        return Slow.apply(x.t()).exp().sin().sum() + (2 * x).sum()


def ways():
    model = Ways()
    return training(model, sgd(model.parameters()), lambda: model(0.01 * torch.randn(16, 64)))


class There(nn.Parameter):
    """One that says that it is elsewhere: no such device is here."""

    where = "cuda:0"
    device = property(lambda self: torch.device(self.where))


def placed(*devices):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in devices])
    for layer, device in zip(model, devices):
        layer.bias = type("There", (There,), {"where": device})(layer.bias.detach())
    return training(model, torch.optim.SGD(model.parameters(), lr=0.01, foreach=False),
                    lambda: model(torch.randn(16, 64)).square().mean())


def one_gpu():
    return placed("cuda:0", "cuda:0")


def several_gpus():
    return placed("cuda:0", "cuda:1")


def other_device():
    return placed("xpu:0", "xpu:0")


def data_parallel():
    class DataParallel(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module, self.device_ids = module, [0, 1]

        def forward(self, x):
            return self.module(x)

    model = DataParallel(net())
    return training(model, sgd(model.parameters()), lambda: loss_of(model))


def two_threads():
    """Two trainings at a time, the other one in a thread of its own."""
    def other():
        one = plain()
        while not over.is_set():
            one()
    over, thread = threading.Event(), threading.Thread(target=other, daemon=True)
    thread.start()
    atexit.register(lambda: (over.set(), thread.join()))  # torch's code is not to be left where it is
    return plain()


def another_thread():
    """One training, each step of which is made in a thread of its own."""
    one = plain()

    def iteration():
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    return iteration


def amd_gpu():
    torch.version.hip = "6.3"
    return placed("cuda:0")


def main(patterns):
    iteration = patterns[sys.argv[1]]()
    begun = time.monotonic()
    for _ in range(COUNT):
        iteration()
    slow, quick = ({phase: 1e3 * of(calls) for phase, calls in SLOW.items() if calls}
                   for of in (statistics.mean, lambda calls: sorted(calls)[len(calls) // 10]))
    calls = {phase: [1e3 * s for s in calls] for phase, calls in SLOW.items()}  # in order
    print("loop " + json.dumps({"iterations": COUNT, "slow": slow, "quick": quick, "calls": calls,
                                "seconds": time.monotonic() - begun, **SEEN}))


if __name__ == "__main__":
    main(globals())
