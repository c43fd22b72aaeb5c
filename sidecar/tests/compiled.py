"""A training whose model torch.compile compiles, on doubles of CUDA and CUPTI; prints what a test compares, as JSON.

usage: compiled.py CASE CUDA CUPTI   (the doubles)

Inductor writes its code as for a GPU: Triton's kernels, and calls of libraries for products. What runs that code here is a
double of Triton's compiler: a kernel fills what it would compute, and is launched on CUPTI's double by the name that Triton
would give it. Whose each kernel is comes from the model alone: each module has operators, or sizes, that no other has.
"""
import os
import pathlib
import re
import sys
import tempfile
import types

CACHE = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
if not CACHE:
    folder = tempfile.TemporaryDirectory(prefix="pp-inductor-")
    CACHE = os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name

import faults
import kernels
import torch
from torch import nn

FORWARD, BACKWARD, OTHER = 0, 1, 7
BATCH = 5
GEMM, STRANGE, COPY = b"nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", b"triton_poi_fused_strange_0", b"multi_tensor_apply_copy"
OPERATORS = {"gelu": "act", "softmax": "inner.norm", "tanh": "inner", "sin": "", "cos": "", "layer": "last"}
SIZES = {frozenset((8, 24)): "up", frozenset((24, 16)): "mid", frozenset((16, 12)): "inner.down", frozenset((12, 6)): "out"}


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.Softmax(-1)
        self.down = nn.Linear(16, 12, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 24, bias=False)
        self.act = nn.GELU()
        self.mid = nn.Linear(24, 16, bias=False)
        self.inner = Inner()
        self.out = nn.Linear(12, 6, bias=False)
        self.last = nn.LayerNorm(6)

    def forward(self, x):
        x = self.inner(self.mid(self.act(self.up(x))))
        return self.last(self.out(torch.sin(x)))


class Broken(Net):
    """The compiler leaves Inner to itself, behind a break: another frame, whose names are Inner's."""

    def __init__(self):
        super().__init__()
        self.inner.forward = None
        self.inner.__class__ = BrokenInner
        del self.inner.forward


class BrokenInner(Inner):
    def forward(self, x):
        x = self.norm(x)
        torch._dynamo.graph_break()
        return self.down(torch.tanh(x))


# ---- what runs the compiler's code ----

class Step:
    """What was launched since a step began: (layer in the region, phase, ns, name)."""
    phase = FORWARD
    region = ""
    launched = []
    how = kernels.ORDINARY
    strange = False


def launch(name, inside):
    ns = 100000 + 7000 * len(Step.launched)
    Step.launched.append((Step.region, inside, Step.phase, ns, name.decode()))
    kernels.launch([ns], Step.how, name)


def around(names):
    """The innermost module around these."""
    parts = [name.split(".") if name else [] for name in names]
    shared = []
    for each in zip(*parts):
        if len(set(each)) > 1:
            break
        shared.append(each[0])
    return ".".join(shared)


class Kernel:
    def __init__(self, name, source):
        self.name = name.encode()
        signature = re.search(r"def %s\(([^)]*)\)" % re.escape(name), source)[1]
        self.outputs = [at for at, each in enumerate(signature.split(",")) if re.match(r" *(in_)?out_ptr", each)]
        self.inside = around({OPERATORS[word] for word in name.split("_") if word in OPERATORS})

    def run(self, *args, **more):
        if Step.strange:
            Step.strange = False
            launch(STRANGE, None)
        for at in self.outputs:
            args[at].fill_(0.5)
        launch(self.name, self.inside)


def product(original):
    def run(*args, **more):
        sizes = {size for each in args for size in each.shape} - {BATCH}
        launch(GEMM, SIZES[frozenset(sizes)])
        return original(*args, **more)
    return run


def compile_for_a_gpu():
    """Inductor's kernels are Triton's, which is not needed, and need not be there."""
    import torch._inductor.codegen.triton
    import torch._inductor.compile_fx
    import torch._inductor.kernel.mm
    import torch._inductor.runtime.triton_heuristics
    import torch.utils._triton
    from torch._inductor import async_compile, codecache, config, select_algorithm
    codecache.CacheBase.get_system()  # which it keeps: there is no GPU
    config.cpu_backend, config.compile_threads = "triton", 1
    torch.utils._triton.has_triton_package()
    torch.utils._triton.triton_hash_with_backend = lambda: "none"
    if "triton" in sys.modules:
        from triton.backends.compiler import GPUTarget
        sys.modules["triton"].runtime.driver.set_active(types.SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32)))
    else:
        for name in ("triton", "triton.language"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["triton"].language = sys.modules["triton.language"]
    async_compile.AsyncCompile.triton = lambda self, name, source, *args, **more: Kernel(name, source)
    for name in ("mm", "addmm", "bmm"):
        setattr(select_algorithm.extern_kernels, name, product(getattr(select_algorithm.extern_kernels, name)))


def ask_for_hooks():
    """As newer torches do before they call a compiled module, and warn."""
    tables = torch.nn.modules.module
    if not hasattr(tables, "_has_any_global_hook"):
        tables._has_any_global_hook = lambda: any(getattr(tables, "_global_" + name) for name in (
            "backward_pre_hooks", "backward_hooks", "forward_pre_hooks", "forward_hooks", "forward_hooks_always_called",
            "forward_hooks_with_kwargs"))


def written():
    """The code that the compiler has written, and the keys of graphs in its cache."""
    code, keys = [], []
    for path in pathlib.Path(CACHE).rglob("*"):
        if path.suffix == ".py":
            code.append(path.read_text().replace(CACHE, ""))
        elif path.parent.parent.name == "fxgraph":
            keys.append(path.name)
    return sorted(code) + sorted(keys)


# ---- trainings ----

class Training(kernels.Training):
    def __init__(self, model, compiled):
        faults.Training.__init__(self)
        self.model = model
        self.compiled = compiled
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.001, foreach=False)
        self.begin = [parameter.detach().clone() for parameter in model.parameters()]
        self.log, self.pause, self.late, self.ahead = [], 0, 0, 0
        self.kernels = []
        self.hooked = False  # so torch says of compiled modules, and warns where it is so

    def forward(self, x):
        Step.region = ""
        return self.compiled(x)

    def step(self):
        at = self.steps % faults.PERIOD
        if at == 0:
            with torch.no_grad():
                for parameter, begin in zip(self.model.parameters(), self.begin):
                    parameter.copy_(begin)
        Step.launched, Step.phase = [], FORWARD
        self.hooked |= bool(torch.nn.modules.module._has_any_global_hook())
        loss = self.forward(torch.ones(BATCH, 8)).square().sum()
        Step.phase = BACKWARD
        loss.backward()
        self.optimizer.step()
        for parameter in self.model.parameters():
            parameter.grad = None
        self.kernels = Step.launched
        self.steps += 1
        if self.steps <= faults.PERIOD:
            self.losses.append(float(loss.detach()).hex())
        elif float(loss.detach()).hex() != self.losses[at]:
            self.others += 1
        self.wait()


def whole():
    """A model that is one region."""
    torch.manual_seed(3)
    model = Net()
    return Training(model, torch.compile(model))


def replayed():
    """The same; each of its graphs is launched whole, as a CUDA graph is, behind a copy that is launched by itself."""
    class Replayed(Training):
        def forward(self, x):
            Step.region, Step.phase, Step.how = None, OTHER, kernels.ORDINARY
            launch(COPY, "")
            Step.phase, Step.how = FORWARD, kernels.OF_GRAPH
            return super().forward(x)
    torch.manual_seed(3)
    model = Net()
    return Replayed(model, torch.compile(model))


def strange():
    """In each forward a kernel runs that nobody has recorded."""
    class Strange(Training):
        def forward(self, x):
            Step.strange = True
            return super().forward(x)
    torch.manual_seed(3)
    model = Net()
    return Strange(model, torch.compile(model))


def broken():
    torch.manual_seed(3)
    model = Broken()
    return Training(model, torch.compile(model))


class Two(nn.Module):
    """Of the same kind, each compiled: they run the same graphs."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.Linear(8, 8, bias=False), nn.Linear(6, 8, bias=False)
        self.first, self.second = Net(), Net()

    def forward(self, x):
        Step.region = "first."
        x = self.between(self.first(self.before(x)))
        Step.region = "second."
        return self.second(x)


def shared():
    class Backward(torch.autograd.Function):
        """Between the two: from here on backward is of the first."""
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            Step.region = "first."
            return gradient.clone()

    torch.manual_seed(3)
    model = Two()
    model.first.compile()
    model.second.compile()
    model.between.register_forward_hook(lambda module, args, result: Backward.apply(result))
    return Training(model, model)


if __name__ == "__main__":
    case, cuda, cupti = sys.argv[1:]
    compile_for_a_gpu()
    ask_for_hooks()
    kernels.load(cuda, cupti)
    training = globals()[case]()
    training.until(lambda: training.steps >= faults.PERIOD and (not faults.RING or faults.ring()["kernel_head"] > 2000))
    counters = torch._dynamo.utils.counters
    training.end(kernels=training.kernels, graphs=counters["stats"]["unique_graphs"], hits=counters["inductor"]["fxgraph_cache_hit"],
                 hooked=training.hooked, cache=written())
