"""What people do in a training besides training, one habit a function; prints what a test compares.

usage: habits.py HABIT. Each trains a little first and, under the hook, within a capture.
"""
import copy
import gc
import importlib.util
import inspect
import io
import json
import os
import pickle
import sys
import tempfile
import time
import weakref

if sys.argv[1] == "find_spec":
    importlib.util.find_spec("torch")
if sys.argv[1] == "patched_threads":
    import _thread

    def refuse(*_):
        raise SystemError("a green thread would block this one")

    _thread.start_new_thread = refuse

# A forked child's end waits so many seconds for autograd's threads, which it does not have; else 10.
os.environ["TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT"] = "1"

import torch
from torch import nn

torch.manual_seed(3)


def net():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


class Training:
    def __init__(self, model=None):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        self.model = model or net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.losses = []

    def steps(self, count, seconds=0):
        begun = time.monotonic()
        while count > 0 or time.monotonic() - begun < seconds:
            loss = self.model(torch.ones(4, 16)).square().sum()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(float(loss.detach()).hex())
            count -= 1
        return self

    def tell(self, **more):
        print(json.dumps({"losses": self.losses[:200], **more}))


def hooks():
    """Global hooks in place now, of forwards and of optimizers."""
    import torch.nn.modules.module as module
    optimizer = sys.modules["torch.optim.optimizer"]
    return (sum(len(getattr(module, name)) for name in dir(module)
                if name.startswith("_global_") and name.endswith("_hooks"))
            + len(getattr(optimizer, "_global_optimizer_pre_hooks", ())))


def find_spec():
    Training().steps(100).tell()


def patched_threads():
    Training().steps(100).tell()


def script():
    training = Training().steps(50)
    scripted = torch.jit.script(training.model)
    file = io.BytesIO()
    torch.save(training.model, file)
    file.seek(0)
    loaded = torch.load(file, **({"weights_only": False} if torch.__version__ >= "2" else {}))
    torch.jit.script(loaded)
    traced = torch.jit.trace(training.model, torch.ones(4, 16))
    same = bool((scripted(torch.ones(4, 16)) == traced(torch.ones(4, 16))).all())
    training.steps(50).tell(same=same, own=sum(len(m._forward_hooks) + len(m._forward_pre_hooks)
                                               for m in loaded.modules()))


def kept():
    """What a function can do is done with a method of torch's that is wrapped within a capture, and afterwards."""
    training = Training().steps(50)
    method, function = training.optimizer.zero_grad, type(training.optimizer).zero_grad
    weak, reference, twin = weakref.WeakMethod(method), weakref.ref(function), copy.deepcopy(function)
    again = pickle.loads(pickle.dumps(function))
    own = pickle.loads(pickle.dumps(method))
    same = [twin is function, reference() is function, again is function, weak() == method, copy.copy(function) is function,
            type(own.__self__).__name__, copy.deepcopy(method).__self__ is training.optimizer]
    for call in (method, weak(), own, lambda: twin(training.optimizer)):
        training.steps(10)
        training.model(torch.ones(4, 16)).square().sum().backward()
        call()
    del function, twin, again
    gc.collect()
    training.steps(20).tell(same=same)


def cleared():
    """Hooks of everybody are thrown away within a capture, and the user's own are there before and after."""
    import torch.nn.modules.module as module
    calls = []
    training = Training().steps(30)
    module._global_forward_hooks.clear()
    training.steps(10)
    handle = module.register_module_forward_hook(lambda *_: calls.append(1))
    training.steps(10)
    module._global_forward_pre_hooks.clear()
    training.steps(10)
    handle.remove()
    training.steps(40).tell(calls=len(calls))


def several():
    """Models of one process: two that train in turn, one of them made within a capture, and one that is evaluated."""
    first = Training().steps(30)
    teacher = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    second = Training(nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 1)))
    for _ in range(40):
        with torch.no_grad():
            teacher(torch.ones(4, 16))
        first.steps(1)
        second.steps(1)
    first.losses += second.losses
    first.tell()


class Compiler:
    """torch's compiler, that shows what it captured, and how often."""

    def __init__(self):
        self.graphs = []
        torch._dynamo.reset()
        self.options = {"backend": self.backend, "fullgraph": True}

    def backend(self, graph, inputs):
        self.graphs.append(len(list(graph.graph.nodes)))
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def told(self):
        counters = torch._dynamo.utils.counters
        return {"graphs": self.graphs, **{name: dict(counters[name]) for name in ("frames", "stats", "graph_break")}}


def compile():
    """The whole model: compiled before the first step."""
    compiler = Compiler()
    training = Training()
    training.model = torch.compile(training.model, **compiler.options)
    training.steps(50).tell(**compiler.told())


def compile_hooked():
    """The same with a hook of the user's own in it: torch then looks at what it keeps of everybody's hooks."""
    compiler, model = Compiler(), net()
    model[1].register_forward_hook(lambda *_: None)
    Training(torch.compile(model, **compiler.options)).steps(50).tell(**compiler.told())


def symbolic():
    """A model that is traced within a capture keeps its symbols."""
    from torch.fx.experimental.proxy_tensor import make_fx
    training = Training().steps(50)
    graph = make_fx(training.model, tracing_mode="symbolic", _allow_non_fake_inputs=True)(torch.ones(4, 16))
    training.steps(50).tell(code=graph.code, guards=len(graph.shape_env.guards))


def signatures():
    """As torchrec's lazy modules do, the parameters of every forward hook are counted."""
    import torch.nn.modules.module as module

    class Lazy(nn.Linear):
        def forward(self, x):
            for hook in list(module._global_forward_pre_hooks.values()):
                assert len(inspect.signature(hook).parameters) == 2
            return super().forward(x)
    Training(nn.Sequential(Lazy(16, 16), nn.ReLU(), nn.Linear(16, 1))).steps(100).tell()


def own_locals(rate=0.01):
    """A program keeps its options as the copy of its variables, and changes one there."""
    options = locals()
    options["rate"] = 0.5
    training = Training()
    training.steps(100).tell(options={name: str(value) for name, value in options.items()})


def kept_closures():
    """An optimizer that keeps its closure, which refers to it, goes with the next collection."""
    class Keeps(torch.optim.SGD):
        def step(self, closure):
            self.kept = closure
            with torch.enable_grad():
                self.loss = closure()
            super().step()
    training, optimizers = Training(), []

    def make():
        optimizer = Keeps(training.model.parameters(), lr=0.01)
        optimizers.append(weakref.ref(optimizer))

        def closure():
            optimizer.zero_grad()
            loss = training.model(torch.ones(4, 16)).square().sum()
            loss.backward()
            return loss
        for _ in range(4):
            optimizer.step(closure)
            training.losses.append(float(optimizer.loss.detach()).hex())
    for _ in range(40):
        make()
    gc.collect()
    training.tell(alive=sum(optimizer() is not None for optimizer in optimizers[:-1]))


def own_optimizer_hooks():
    """Hooks of all optimizers that call a module, while the session begins, captures and ends."""
    seen, reference = [], nn.Linear(16, 1)

    def look(*_):
        time.sleep(0.002)
        with torch.no_grad():
            seen.append(float(reference(torch.ones(1, 16))))
    torch_optimizer = sys.modules["torch.optim.optimizer"]
    names = ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")
    puts = [getattr(torch_optimizer, name) for name in names if hasattr(torch_optimizer, name)]  # torch >= 2.0
    for put in puts:
        put(look)
    training = Training().steps(20)
    for put in puts * 2:
        put(look)  # behind those of a hook that came meanwhile, and one more, for which torch walks on
    training.steps(40, seconds=3)
    del training.losses[60:]  # which there are on a slow machine, too
    training.tell(same=len(set(seen)))


def made_functions():
    """Functions that a forward makes go, with what they hold."""
    class Thing:
        pass
    things = []

    class Makes(nn.Linear):
        def forward(self, x):
            thing = Thing()
            things.append(weakref.ref(thing))

            class Same(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 1.0

                @staticmethod
                def backward(ctx, gradient):
                    return gradient if thing else None
            return Same.apply(super().forward(x))
    training = Training(nn.Sequential(Makes(16, 16), nn.Linear(16, 1))).steps(60)
    gc.collect()
    training.tell(alive=sum(thing() is not None for thing in things[:-2]))


def closed_descriptors():
    """As a daemon does, all descriptors but the first three are closed; then files are opened."""
    os.closerange(3, 256)
    files = [tempfile.TemporaryFile() for _ in range(20)]
    Training().steps(100).tell(sizes=[os.fstat(file.fileno()).st_size for file in files])


def compile_late():
    """The same within a capture, and the plain one afterwards."""
    compiler = Compiler()
    training = Training().steps(50)
    plain, training.model = training.model, torch.compile(training.model, **compiler.options)
    training.steps(50)
    training.model = plain
    training.steps(50).tell(**compiler.told())


class Asking(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        y = self.inner(x)
        if y.sum() > 1e9:
            return y * 2
        return y * (1 + 0 * y.sum().item())


def compile_waits():
    """What waits for a value breaks the graph, or is in it; compiled before the first step, and within a capture."""
    compiler = Compiler()
    training = Training(Asking())
    training.model = torch.compile(training.model, backend=compiler.backend)
    training.steps(60)
    training.model = torch.compile(Asking(), backend=compiler.backend)
    training.steps(60).tell(**compiler.told())


def compile_parts():
    """In each way that there is: a module wrapped, one in place, one's forward, a function with a graph of its own."""
    compiler = Compiler()
    model = nn.Sequential(nn.Linear(16, 16), net(), net(), net(), nn.Linear(1, 16))
    for i in (1, 2):
        model[i][2] = nn.Linear(16, 16)
    model[1] = torch.compile(model[1], **compiler.options)
    model[2].compile(**compiler.options)
    model[3].forward = torch.compile(model[3].forward, **compiler.options)

    def scaled(x, by=2):
        return torch.tanh(x) * by

    class Scaled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.scaled = torch.compile(scaled, **compiler.options)

        def forward(self, x):
            return self.scaled(self.inner(x), by=3)

    training = Training(Scaled(model)).steps(100)
    training.tell(signature=str(inspect.signature(training.model.scaled)), **compiler.told())


def compile_inductor():
    training = Training()
    training.model = torch.compile(training.model, fullgraph=True, mode="reduce-overhead")
    training.steps(50).tell()


def compile_oddly():
    """What is compiled raises, is nested, runs while torch walks its table of optimizer hooks, is copied."""
    compiler = Compiler()

    def broken(x):
        if x.shape[0] == 3:
            raise ValueError("mine")
        return torch.relu(x)

    inner = torch.compile(broken, backend=compiler.backend)
    outer = torch.compile(lambda x: inner(x) + 1, backend=compiler.backend)
    optimizers = sys.modules["torch.optim.optimizer"]
    first = optimizers.register_optimizer_step_pre_hook(  # before the hook's own
        lambda *_: [None, inner(torch.ones(2, 2))][0])
    training = Training(torch.compile(net(), **compiler.options)).steps(30)
    first.remove()
    raised = 0
    for _ in range(5):
        training.steps(5)
        outer(torch.ones(2, 2))
        try:
            inner(torch.ones(3, 3))
        except ValueError as e:
            raised += str(e) == "mine"
    handles = [optimizers.register_optimizer_step_post_hook(lambda *_: inner(torch.ones(2, 2))) for _ in range(2)]
    training.steps(5)
    for handle in handles:
        handle.remove()
    twin = copy.deepcopy(training.model)
    same = bool((twin(torch.ones(4, 16)) == training.model(torch.ones(4, 16))).all())
    training.steps(20).tell(raised=raised, same=same, **compiler.told())


def compile_and_drop():
    """Modules that keep what was compiled of them, and are dropped: their memory is the user's again."""
    compiler = Compiler()
    training = Training(torch.compile(net(), **compiler.options)).steps(30)

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.run = torch.compile(self.work, backend=compiler.backend)

        def work(self, x):
            return self.linear(x)

    own = Own()
    own.run(torch.ones(2, 2))
    gone = weakref.ref(own)
    del own
    torch._dynamo.reset()
    gc.collect()
    training.steps(20).tell(gone=gone() is None, **compiler.told())


def export():
    training = Training().steps(50)
    program = torch.export.export(training.model, (torch.ones(4, 16),))
    training.steps(50).tell(nodes=len(list(program.graph.nodes)))


def export_draft():
    training = Training().steps(50)
    program = torch.export.draft_export(training.model, (torch.ones(4, 16),))
    training.steps(50).tell(nodes=len(list(program.graph.nodes)))


def teacher():
    """A model that is only evaluated, and dropped before the first step: its memory is the user's again."""
    model = net()
    with torch.no_grad():
        model(torch.ones(4, 16))
    gone = weakref.ref(model)
    del model
    gc.collect()
    early = gone() is None
    training = Training().steps(50)
    training.model(torch.ones(4, 16))  # a forward with a graph, and no step of this model after it
    parameter = weakref.ref(training.model[0].weight)
    del training.model, training.optimizer
    gc.collect()
    if "PRECISIONPROBE_RING" in os.environ:
        Training().steps(40)
    gc.collect()
    print(json.dumps({"early": early, "late": parameter() is None}))


def rebuild():
    """The same architecture again and again, as a search over learning rates does."""
    training = Training().steps(50)
    losses = training.losses
    for _ in range(5):
        training.model = net()
        training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.01)
        training.losses = []
        training.steps(20, 0.2)
        losses += training.losses[:20]
    training.losses = losses
    training.tell()


def derived():
    """An optimizer whose step calls that of the class above it; torch hooks both."""
    class Derived(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    training = Training()
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.01)
    training.optimizer = Derived(training.model.parameters(), lr=0.01)
    training.steps(60).tell()


def fast_path():
    """An encoder takes other kernels in evaluation where its modules have no hooks."""
    layer = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    calls = []
    original = torch._transformer_encoder_layer_fwd
    torch._transformer_encoder_layer_fwd = lambda *a, **k: calls.append(1) or original(*a, **k)
    training = Training(nn.Sequential(layer, nn.Linear(16, 1)))
    for _ in range(10):
        loss = training.model.train()(torch.ones(2, 4, 16)).square().sum()
        loss.backward()
        training.optimizer.step()
        training.losses.append(float(loss.detach()).hex())
        with torch.no_grad():
            training.model.eval()(torch.ones(2, 4, 16))
    training.tell(calls=len(calls))


def oom():
    """A forward that fails half way is tried again with less; what the first has made is free by then."""
    class Token:
        pass

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(context, x, token):
            context.token = token
            return x * 1

        @staticmethod
        def backward(context, gradient):
            return gradient, None

    class Half(nn.Module):
        def forward(self, x):
            if len(x) > 4:
                raise RuntimeError("out of memory")
            return x

    class Net(nn.Sequential):
        def forward(self, x, token):
            x = self[0](x)
            return self[2](self[1](Mark.apply(x, token) if token else x))

    model = Net(nn.Linear(16, 16), Half(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    free = []
    gc.freeze()  # torch's own objects need not be looked at again and again
    for n in range(60):
        token = Token()
        held = weakref.ref(token)
        try:
            model(torch.ones(8, 16), token)
        except RuntimeError:
            pass
        del token
        loss = model(torch.ones(4, 16), None).square().sum()
        gc.collect()
        free.append(held() is None)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()).hex())
    print(json.dumps({"losses": losses, "free": all(free)}))


def fork():
    Training().steps(20)
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    print(json.dumps({"status": status, "seconds": time.monotonic() - begun}))


def forked_rank():
    """Trains in a process that multiprocessing forks from one which has imported torch, as notebooks' launchers do."""
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=lambda: Training().steps(20).tell())
    child.start()
    child.join()
    print(json.dumps({"status": child.exitcode}))


def forked_trainer():
    """The same by os.fork()."""
    child = os.fork()
    if child == 0:
        Training().steps(20).tell()
        sys.exit(0)
    print(json.dumps({"status": os.waitpid(child, 0)[1]}))


class Augmented(torch.utils.data.Dataset):
    """Runs a network to load its data."""

    def __init__(self):
        self.net = torch.nn.Linear(16, 16)

    def __len__(self):
        return 16

    def __getitem__(self, i):
        return self.net(torch.full((16,), float(i))).detach()


def forked_helpers():
    """A DataLoader's workers, which run a network too, and a process that never trains."""
    import multiprocessing
    torch.manual_seed(5)
    data = torch.utils.data.DataLoader(Augmented(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    child = multiprocessing.get_context("fork").Process(target=lambda: torch.ones(3).sum())
    child.start()
    seen = [float(batch.sum()) for batch in data]
    child.join()
    print(json.dumps({"status": child.exitcode, "seen": seen}))


def serve():
    """Trains, then only evaluates, for 42 s."""
    training = Training().steps(50)
    training.model(torch.ones(4, 16))
    first = hooks()
    begun = time.monotonic()
    while time.monotonic() - begun < 42:
        training.model(torch.ones(4, 16))
        time.sleep(0.2)
    training.tell(first=first, last=hooks())


def long():
    """Trains for 40 s."""
    training = Training().steps(10, 1)
    first = hooks()
    begun = time.monotonic()
    while time.monotonic() - begun < 39:
        training.steps(1)
        time.sleep(0.2)
    training.tell(first=first, last=hooks())


def sessions():
    """Plays the agent: the ring asks for a session that the control file is not of yet."""
    from precisionprobe_hook import _marks
    folder = os.environ["PRECISIONPROBE_RING"]
    ring = next(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".ring"))
    with open(ring, "r+b") as file:
        at = file.read(8192).index((2000000010).to_bytes(4, sys.byteorder))

        def ask_for(number):
            file.seek(at)
            file.write(number.to_bytes(4, sys.byteorder))
            file.flush()

        training = Training()
        ask_for(2000000011)
        seen = set()
        begun = time.monotonic()
        while time.monotonic() - begun < 2.5:
            training.steps(5)
            seen.add(_marks.get_state() == _marks.MARKING)
        with open(os.path.join(folder, "control.json"), "w") as control:
            json.dump({"mode": "sample", "session": 2000000012}, control)
        ask_for(2000000012)
        while _marks.get_state() != _marks.MARKING and time.monotonic() - begun < 20:
            training.steps(5)
    print(json.dumps({"early": sorted(seen), "marking": _marks.get_state() == _marks.MARKING}))


def spawned():
    """A worker of a DataLoader in a process of its own, whose main module takes long to import."""
    data = torch.utils.data.DataLoader(torch.ones(32, 16), batch_size=4, num_workers=1,
                                       multiprocessing_context="spawn")
    training = Training()
    for batch in data:
        loss = training.model(batch).square().sum()
        loss.backward()
        training.optimizer.step()
    rings = os.listdir(os.environ["PRECISIONPROBE_RING"]) if "PRECISIONPROBE_RING" in os.environ else []
    training.tell(rings=sum(name.endswith(".ring") for name in rings))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
elif sys.argv[1] == "spawned":
    time.sleep(0.5)
