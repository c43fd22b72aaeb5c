"""Small real trainings for the tests of the hook. Prints what a test compares; knows no profiler.

usage: train.py KIND STEPS [SECONDS|FILE]   (at least STEPS steps, and until SECONDS have passed or FILE is there)
"""
import contextlib
import copy
import io
import json
import linecache
import os
import pickle
import sys
import time

import torch
from torch import nn


class Mixed(nn.Module):
    """In-place activation, sparse bag, a module called twice, a container whose child is not called."""

    def __init__(self):
        super().__init__()
        self.bot = nn.Sequential(nn.Linear(64, 64), nn.ReLU(inplace=True))
        self.emb = nn.EmbeddingBag(100, 64, sparse=True, mode="sum")
        self.twice = nn.Linear(64, 64)
        self.attention = nn.MultiheadAttention(64, 4)
        self.memory = nn.LSTM(64, 64)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(64, 1)

    def forward(self, x, bags):
        h = self.bot(x) + self.emb(bags)
        h = self.twice(torch.relu(self.twice(h)))
        h = h.unsqueeze(0)
        h = h + self.attention(h, h, h)[0]
        h = h + self.memory(h)[0]
        return self.out(self.drop(h.squeeze(0)))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 64)
        self.b = nn.Linear(64, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, x, bags):
        from torch.utils.checkpoint import checkpoint
        try:
            h = checkpoint(lambda v: torch.relu(self.b(torch.relu(self.a(v)))), x.requires_grad_(),
                           use_reentrant=True)
        except TypeError:  # torch 1.10
            h = checkpoint(lambda v: torch.relu(self.b(torch.relu(self.a(v)))), x.requires_grad_())
        return self.out(h)


class Autocast(Checkpointed):
    """Mixed precision, with what is recomputed in it."""

    def forward(self, x, bags):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x, bags).float()


class Big(nn.Module):
    """Few layers of some ms each, for comparing times."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, 768)
        self.second = nn.Linear(768, 768)
        self.third = nn.Linear(768, 1)

    def forward(self, x, bags):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Broken(nn.Linear):
    """Raises now and then, as a flaky operation would."""

    calls = 0

    def forward(self, x):
        Broken.calls += 1
        if Broken.calls % 5 == 0:
            raise RuntimeError("not this time")
        return super().forward(x)


class Flaky(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 64)
        self.b = Broken(64, 1)

    def forward(self, x, bags):
        return self.b(torch.relu(self.a(x)))


def data(rows=64, width=64):
    return [(torch.randn(width), torch.randint(0, 100, (5,)), torch.randn(1)) for _ in range(rows)]


def fast():
    """Whether torch calls a forward at once, as it does where there is no hook: the last line of its calls."""
    lines = []

    def trace(frame, event, _):
        if frame.f_code is not nn.Module._call_impl.__code__:
            return None
        if event == "line":
            lines.append(linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip())
        return trace

    module = nn.Identity()
    sys.settrace(trace)
    module(None)
    sys.settrace(None)
    return lines[-1].startswith("return forward_call(")


def tables(model):
    """How many hooks hang on modules, globally, and on the parameters' accumulators."""
    import torch.nn.modules.module as m
    optimizer = sys.modules["torch.optim.optimizer"]
    own = sum(len(x._forward_hooks) + len(x._forward_pre_hooks) + len(x._backward_hooks)
              for x in model.modules())
    everywhere = sum(len(getattr(m, name)) for name in dir(m)
                     if name.startswith("_global_") and name.endswith("_hooks"))
    steps = (len(getattr(optimizer, "_global_optimizer_pre_hooks", ()))
             + len(getattr(optimizer, "_global_optimizer_post_hooks", ())))
    return {"modules": own, "fast": fast(), "global": everywhere, "optimizer": steps,
            "record_function": torch.autograd.profiler.record_function.__qualname__,
            "iterator": torch.utils.data.dataloader._BaseDataLoaderIter.__next__.__qualname__,
            "wrapped": [f.__qualname__ for f in (torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
                                                 torch.optim.Optimizer.zero_grad)
                        if type(f).__name__ != "function"]}


def copies(model, kind, step):
    """What trainings do with a model between steps: keep a copy, save it."""
    if kind == "copies" and step % 20 == 0:
        other = copy.deepcopy(model)
        with torch.no_grad():
            other(torch.zeros(2, 64), torch.zeros(2, 5, dtype=torch.long))
        file = io.BytesIO()
        torch.save(model, file)
        pickle.loads(pickle.dumps(model))(torch.zeros(2, 64), torch.zeros(2, 5, dtype=torch.long))


class Watch:
    """An independent record of when layers run: forwards replaced, tensor hooks on their outputs; and of the rest."""

    def __init__(self, model):
        self.data = []
        self.zero_grad = []
        self.forward = {}
        self.backward = {}
        self.arrived = []
        for name, module in model.named_children():
            self.wrap(name, module)

    def wrap(self, name, module):
        original = module.forward

        def forward(x):
            begun = time.monotonic_ns()
            out = original(x)
            self.forward.setdefault(name, []).append((begun, time.monotonic_ns()))
            if out.requires_grad:
                out.register_hook(lambda grad: self.arrive(name))
            return out

        module.forward = forward

    def arrive(self, name):
        now = time.monotonic_ns()
        if self.arrived:
            before, begun = self.arrived.pop()
            self.backward.setdefault(before, []).append((begun, now))
        self.arrived.append((name, now))

    def batches(self, loader):
        iterator, item = iter(loader), ()
        while item is not None:
            begun = time.monotonic_ns()
            item = next(iterator, None)
            self.data.append((begun, time.monotonic_ns()))
            if item is not None:
                yield item

    def zeroed(self, optimizer):
        begun = time.monotonic_ns()
        optimizer.zero_grad()
        self.zero_grad.append((begun, time.monotonic_ns()))

    def step(self):
        """The first layer of the model is the last in backward: it ends with backward itself."""
        now = time.monotonic_ns()
        if self.arrived:
            before, begun = self.arrived.pop()
            self.backward.setdefault(before, []).append((begun, now))


def train(kind, steps, until):
    over = (lambda: os.path.exists(until)) if "/" in until else lambda: time.monotonic() - begun >= float(until)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    models = {"checkpoint": Checkpointed, "big": Big, "flaky": Flaky, "amp": Autocast}
    model = models.get(kind, Mixed)()
    loss_fn = nn.MSELoss()
    wrapped = model
    if kind == "ddp":
        os.environ.update(MASTER_ADDR="127.0.0.1", USE_LIBUV="0")
        for name, value in (("MASTER_PORT", "29555"), ("RANK", "0"), ("WORLD_SIZE", "1")):
            os.environ.setdefault(name, value)
        torch.distributed.init_process_group("gloo")
        model.emb.sparse = False
        wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01)]
    if kind == "two":
        dense = [p for n, p in model.named_parameters() if not n.startswith("emb")]
        optimizers = [torch.optim.Adam(dense, lr=1e-3), torch.optim.SparseAdam(list(model.emb.parameters()))]
    watch = Watch(model) if kind == "big" else None
    width, batch = (512, 96) if kind == "big" else (64, 16)
    workers = 2 if kind == "workers" else 0
    loader = torch.utils.data.DataLoader(data(batch * 8, width), batch_size=batch, num_workers=workers)
    schedule = torch.optim.lr_scheduler.StepLR(optimizers[0], 100)
    accumulate = 2 if kind == "accumulate" else 1
    begun = time.monotonic()
    n = micro = 0
    times = []
    while n < steps or not over():
        for x, bags, y in watch.batches(loader) if watch else loader:
            try:
                loss = loss_fn(wrapped(x, bags), y)
            except RuntimeError as e:
                assert "not this time" in str(e), e
                continue
            if os.environ.get("RANK", "0") != "0":
                loss.register_hook(lambda _: time.sleep(0.06))  # every rank but the first is late
            loss.backward()
            if watch:
                watch.step()
            micro += 1
            if micro % accumulate:
                continue
            for optimizer in optimizers:
                optimizer.step()
            times.append(time.monotonic_ns())
            for optimizer in optimizers:
                watch.zeroed(optimizer) if watch else optimizer.zero_grad()
            schedule.step()
            copies(model, kind, n)
            print("loss", n, float(loss.detach()).hex(), flush=True)
            n += 1
    print("steps", json.dumps(times))
    print("tables", json.dumps(tables(model)))
    if watch:
        print("watch", json.dumps({"forward": watch.forward, "backward": watch.backward,
                                   "data": watch.data, "zero_grad": watch.zero_grad}))


def fork_and_train():
    """A child forked in the middle of a training, that trains itself."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def some(count):
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    torch.set_num_threads(1)
    some(200)
    child = os.fork()
    if child == 0:
        import torch.nn.modules.module as m
        with contextlib.suppress(BaseException):
            clean = not model._forward_hooks and not m._global_forward_pre_hooks
            model(torch.ones(2, 4))
            os._exit(0 if clean else 3)
        os._exit(4)
    status = os.waitpid(child, 0)[1]
    some(200)
    print("child", os.WEXITSTATUS(status) if os.WIFEXITED(status) else "signal %d" % status)


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        fork_and_train()
    else:
        train(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "0")
