"""Whose the kernels of a compiled model are, by torch.profiler and the code that Inductor writes: no code of the probe's.

usage: compiled_peer.py MODEL DEVICE small|full BATCH|- STEPS

Prints {"rows": [[layer, phase, us of each step]], ...} as JSON. A pass of Inductor's own tells of each operator in whose call it
was traced; comments in the code tell of each call in it from which operators it was made; torch.profiler has the ranges of
graphs and of operators around each launch. Of a model whose graphs are replayed the same one without is recorded first: its
kernels run in the same order.
"""
import bisect
import collections
import difflib
import json
import os
import re
import sys
import tempfile

# Code that is compiled here, and stays: TORCHINDUCTOR_FORCE_DISABLE_CACHES has newer torches forget which files they wrote.
CACHE = tempfile.TemporaryDirectory(prefix="pp-inductor-peer-")
os.environ |= {"TORCHINDUCTOR_CACHE_DIR": CACHE.name, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}

PASSING = frozenset("""view _unsafe_view reshape permute t transpose expand unsqueeze squeeze slice select alias detach split
    split_with_sizes unbind as_strided getitem full full_like scalar_tensor empty iota copy_""".split())
COMMENT = re.compile(r"# (?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
CALLS = (re.compile(r"^\s+(triton_\w+)\.run\("), re.compile(r"\bextern_kernels\.(\w+)\("), re.compile(r"\btorch\.ops\.\w+\.(\w+)\.\w+\("),
         re.compile(r"^\s+aten\.(\w+)\.\w+\("))
SUM = re.compile(r"^\s+\w+ = \w+\[.*\]\.view\(.*\)\.(\w+)\(dim=0\)")  # of what the kernel before it leaves in parts
RUN = "## Call CompiledFxGraph"
STEP = "bench.step"


# ---- what the compiler says ----

def path_of(node):
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = re.sub(r"\._modules\['([^']+)'\]", r".\1", list(stack.values())[-1][0])
    match = re.match(r"L\['self'\]\.?(.*)$", path)
    return match and match[1]


def op_of(node):
    packet = getattr(node.target, "overloadpacket", node.target)
    return getattr(packet, "__name__", str(packet))


class Graphs:
    """What Inductor makes, graph by graph: {name in comments: [(operator, the one that it was made of, path)]}, and the code."""

    def __init__(self):
        import torch._inductor.config
        self.named = []
        torch._inductor.config.post_grad_custom_post_pass = self.see

    def see(self, graph):
        named = collections.defaultdict(list)
        for node in graph.nodes:
            if node.op == "call_function":
                origin = node.meta.get("original_aten")
                first = node.meta.get("from_node") or [None]
                name = getattr(first[0], "name", None) or (first[0][0] if first[0] else node.name)
                of = str(getattr(origin, "_overloadpacket", origin)).split(".")[-1]
                sums = op_of(node) == "add" and node.meta.get("partitioner_tag") == "is_backward"
                named[name].append((op_of(node), of, path_of(node), sums))
        self.named.append(dict(named))

    def codes(self):
        from torch._inductor.codecache import PyCodeCache
        found = []
        for module in PyCodeCache.modules if isinstance(PyCodeCache.modules, list) else PyCodeCache.modules.values():
            with open(module.__file__, encoding="utf-8") as file:
                text = file.read()
            if "AOT ID" in text[:200]:
                found.append(text)
        return found


def around(paths):
    paths = [path.split(".") if path else [] for path in paths]
    shared = []
    for parts in zip(*paths):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def place(names, originals, named, call, written):
    """The innermost module around those that the operators of a call are of; "" is the region."""
    nodes = [node for name in names for node in named.get(name, ()) if node[1] in originals or node[0] in originals]
    if not written:
        nodes = [node for node in nodes if node[0] == call][-1:] or nodes  # the last of them: others made what it reads
    working = [node for node in nodes if node[0] not in PASSING] or nodes
    paths = {path for _, _, path, sums in working if not sums}
    return around(paths) if paths and None not in paths else ""


def launches(code, named):
    """[(name of a kernel, or of an operator, whether the compiler wrote it, path)] in order."""
    found, names, originals = [], [], []
    body = code[code.index("def call(") if "def partition_0" not in code else code.index("def partition_0"):]
    for line in body.splitlines():
        comment = COMMENT.search(line)
        if comment:
            names = comment[1].split(", ")
            originals = {part.rpartition(".")[2] for part in comment[2].split(", ")}
        parts = SUM.search(line)
        if parts and found:
            found.append((parts[1], False, found[-1][2]))
        for at, call in enumerate(CALLS):
            match = call.search(line)
            if match:
                found.append((match[1], at == 0, place(names, originals, named, match[1], at == 0)))
                names, originals = [], []
                break
    return found


# ---- what torch.profiler says ----

def record(training, device, steps):
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    for count in (3, steps):  # what the first one sets up is not in the second
        with profile(activities=activities) as profiler:
            for _ in range(count):
                with record_function(STEP):
                    training.step()
            if device == "cuda":
                torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        return [event for event in json.load(open(file.name, encoding="utf-8"))["traceEvents"] if event.get("ph") == "X"]


def inside(outer, event):
    return event["tid"] == outer["tid"] and outer["ts"] <= event["ts"] <= outer["ts"] + outer["dur"]


class Run:
    """One call of a graph: the operators in it that no other is around, and its kernels, each with the operator's place or None."""

    def __init__(self, event, host, kernels):
        self.phase = "forward"
        self.start, self.ops, self.kernels = event["ts"], [], []
        end = event["ts"]
        for each in host:
            if each is not event and inside(event, each) and each["ts"] >= end:
                self.ops.append(each)
                end = each["ts"] + each["dur"]
        begins = [op["ts"] for op in self.ops]
        for kernel, launch in kernels:
            at = bisect.bisect_right(begins, launch["ts"]) - 1
            around_it = at >= 0 and launch["ts"] <= self.ops[at]["ts"] + self.ops[at]["dur"]
            self.kernels.append((kernel, at if around_it else None))
        self.kernels.sort(key=lambda each: each[0]["ts"])

    def written(self):
        return [kernel["name"] for kernel, _ in self.kernels if kernel["name"].startswith("triton_")]

    def places(self, graphs):
        """The path of each kernel, by the operators around their launches; None where this is no run of a graph."""
        fitting = [found for found in graphs if [name for name, written, _ in found if written] == self.written()]
        if not fitting:
            return None
        left, of = [each for each in fitting[0] if not each[1]], {}
        for at, op in enumerate(self.ops):
            if left and op["name"].split("::")[-1] == left[0][0]:
                of[at] = left.pop(0)[2]
        written = iter([each for each in fitting[0] if each[1]])
        return [next(written)[2] if kernel["name"].startswith("triton_") else of.get(at, "") for kernel, at in self.kernels]


def runs(events):
    host = sorted((e for e in events if e.get("cat") in ("cpu_op", "user_annotation")), key=lambda e: (e["ts"], -e["dur"]))
    called = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")
              and "correlation" in e.get("args", {})}
    kernels = [(e, called[e["args"]["correlation"]]) for e in events
               if e.get("cat") == "kernel" and e.get("args", {}).get("correlation") in called]
    found = []
    for event in (e for e in host if e["name"].startswith(RUN)):
        run = Run(event, [e for e in host if inside(event, e)], [pair for pair in kernels if inside(event, pair[1])])
        if any(e["name"].startswith("CompiledFunctionBackward") and inside(e, event) for e in host):
            run.phase = "backward"
        found.append(run)
    return found, [e for e in host if e["name"] == STEP]


# ---- both ----

def visible(model, path):
    """The layer that a path is: containers do nothing themselves."""
    from torch import nn
    parts = path.split(".") if path else []
    while parts:
        module = model.get_submodule(".".join(parts))
        if not isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            return ".".join(parts)
        parts.pop()
    return type(model).__name__


def tell_difference(found, made):
    """On stderr, of a run that is none of the graphs' that were made: where it leaves the one that is most like it."""
    names = found.written()
    like = [[name for name, written, _ in graph if written] for graph in made]
    nearest = max(like, key=lambda graph: difflib.SequenceMatcher(None, graph, names, False).ratio(), default=[])
    changes = list(difflib.unified_diff(nearest, names, "code", "run", lineterm="", n=0))
    print(f"{found.phase}: {len(names)} kernels ran of {[len(graph) for graph in like]} in the code", *changes[:20], sep="\n", file=sys.stderr)


def learn(name, device, small, batch, steps):
    """[(phase, [name of a kernel], [path])] of runs of the model as it is without CUDA graphs, and these graphs."""
    import models
    graphs = Graphs()
    training = models.build(name, device, small, batch)
    for _ in range(5):
        training.step()
    made = [launches(code, named) for code, named in zip(graphs.codes(), graphs.named)]
    events = record(training, device, steps)
    found = runs(events)[0]
    known = [(run.phase, [kernel["name"] for kernel, _ in run.kernels], run.places(made)) for run in found]
    for run in [run for run, (_, _, paths) in zip(found, known) if paths is None][:2]:
        tell_difference(run, made)
    return training, events, [each for each in known if each[2] is not None]


def paths_of(phase, names, known):
    """Of a run's kernels, as of the same ones without CUDA graphs; what is copied before them is the region's. None: not known."""
    for of, each, paths in known:
        more = len(names) - len(each)
        if of == phase and more >= 0 and names[more:] == each and not any(name.startswith("triton_") for name in names[:more]):
            return [""] * more + paths
    return None


def main():
    import lab
    import models
    name, device, small, batch, steps = sys.argv[1:]
    small, batch, steps = small == "small", None if batch == "-" else int(batch), int(steps)
    plain = name.replace("reduce-overhead", "compile")
    training, events, known = learn(plain, device, small, batch, steps)
    if plain != name:
        training = models.build(name, device, small, batch)
        for _ in range(8):
            training.step()
        events = record(training, device, steps)
    model = models.compiled(training.model)
    found, marks = runs(events)
    begins = [mark["ts"] for mark in marks]
    spans = [collections.defaultdict(list) for _ in marks]
    unknown = total = 0
    for run in found:
        names = [kernel["name"] for kernel, _ in run.kernels]
        fitting = paths_of(run.phase, names, known)
        step = bisect.bisect_right(begins, run.start) - 1
        for (kernel, _), path in zip(run.kernels, fitting or [""] * len(names)):
            total += kernel["dur"]
            unknown += 0 if fitting else kernel["dur"]
            spans[step][visible(model, path), run.phase].append((kernel["ts"], kernel["ts"] + kernel["dur"]))
    rows = sorted({row for step in spans for row in step})
    print(json.dumps({"region": type(model).__name__, "names": [layer for layer, _ in model.named_modules()],
                      "runs": len(found), "unknown_percent": 100 * unknown / total if total else None,
                      "rows": [[*row, [lab.covered(step.get(row, [])) for step in spans]] for row in rows]}))


if __name__ == "__main__":
    main()
