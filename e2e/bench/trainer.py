"""A training that does as it is told: one JSON object per line on standard input, one reply per line on output.

usage: trainer.py MODEL DEVICE small|full BATCH|- deterministic|free BACKEND

lab.py starts it, with the hook on PYTHONPATH or without; it looks at the hook's state and never at anything else of it.
"""
import collections
import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

import lab
import models


def hook_state():
    """What the hook has installed, in its own words; ABSENT where there is no hook."""
    marks = sys.modules.get("precisionprobe_hook._marks")
    if marks is None:
        return "ABSENT"
    names = {getattr(marks, name): name for name in ("OFF", "COUNTING", "DISCOVERING", "MARKING", "STOPPING")}
    return names.get(marks.get_state(), "UNKNOWN")


def called_lines():
    """Lines of Module's call that a call runs through: with any hook in a table it leaves torch's fast path."""
    module, seen = torch.nn.Identity(), []

    def trace(frame, event, _):
        if not frame.f_code.co_filename.endswith(os.path.join("nn", "modules", "module.py")):
            return None
        if event == "line":
            seen.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        module(None)
    finally:
        sys.settrace(before)
    return seen


def call_ns():
    module, times = torch.nn.Identity(), []
    for _ in range(51):
        begun = time.perf_counter_ns()
        for _ in range(200):
            module(None)
        times.append((time.perf_counter_ns() - begun) / 200)
    return statistics.median(times)


def entries(owner, prefix=""):
    """How many entries the hook tables of an object or a Python module hold, those that are empty left out."""
    tables = {name: getattr(owner, name, None) for name in dir(owner)
              if name.startswith(prefix) and name.endswith("_hooks")}
    return {name: len(table) for name, table in tables.items() if hasattr(table, "__len__") and len(table)}


def meeting(root):
    """{sequence number of a node of the graph: those of the nodes behind it in front of which gradients are summed up}."""
    edges, comes, queue, seen = {}, collections.Counter(), [root], {root}
    while queue:
        node = queue.pop()
        behind = [of for of, _ in node.next_functions if of is not None]
        comes.update(behind)
        edges[node] = behind
        new = [of for of in dict.fromkeys(behind) if of not in seen]
        seen.update(new)
        queue += new
    return {node._sequence_nr(): [of._sequence_nr() for of in behind if comes[of] > 1] for node, behind in edges.items()}


class Trainer:
    def __init__(self, name, device, small, batch, deterministic, backend):
        if lab.distributed(name):
            gpu = device == "cuda" and torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
            if gpu:
                torch.cuda.set_device(int(os.environ["RANK"]))
            torch.distributed.init_process_group("nccl" if gpu else "gloo")
        self.device = device
        self.training = models.build(name, device, small, batch, deterministic, backend)
        # The processor time of this thread: what else the machine does is not in it. Of one that never waits.
        self.clock = time.thread_time if os.environ.get("BENCH_CLOCK") == "thread" else time.perf_counter
        self.warm = False
        self.chunk = 1
        self.taken = 0
        self.before = self.attributes()

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def block(self, count):
        """us per step of count steps, the GPU's work done."""
        self.synchronize()
        begun = self.clock()
        for _ in range(count):
            self.training.step()
        self.synchronize()
        self.taken += count
        return (self.clock() - begun) / count * 1e6

    # ---- commands ----

    def do_warm(self, steps=30, chunk=0.25):
        """Steps until nothing is new any more, then how many make a chunk of so many seconds."""
        self.block(steps)
        self.chunk = max(1, round(chunk * 1e6 / self.block(max(3, steps // 3))))
        count = torch.cuda.device_count() if self.device == "cuda" else 0
        gpus = [str(getattr(torch.cuda.get_device_properties(i), "uuid", "")) for i in range(count)]
        return {"chunk": self.chunk, "torch": torch.__version__, "gpus": gpus,
                "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu"}

    def do_run(self, seconds=0.0, steps=0):
        """Chunks for so long: [us per step, state of the hook before, and after]."""
        chunks, end, last = [], time.perf_counter() + seconds, self.taken + steps
        while time.perf_counter() < end or self.taken < last:
            before = hook_state()
            us = self.block(self.chunk)
            chunks.append([us, before, hook_state()])
        return {"chunks": chunks, "steps": self.chunk}

    def do_until(self, state, patience=60.0):
        """Steps until the hook is in a state; how many seconds that took, None where it never is."""
        begun = time.perf_counter()
        while hook_state() != state:
            if time.perf_counter() - begun > patience:
                return {"seconds": None, "state": hook_state()}
            self.block(1)
        self.block(2)
        return {"seconds": time.perf_counter() - begun, "state": state}

    def do_step_ns(self):
        """Median of an optimizer's step of one small parameter on the CPU, and the hook's state meanwhile."""
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.zeros(1)
        optimizer, times = torch.optim.SGD([parameter], lr=1e-3), []  # torch 1.13 has no default
        before = hook_state()
        for _ in range(2000):
            begun = time.perf_counter_ns()
            optimizer.step()
            times.append(time.perf_counter_ns() - begun)
        return {"ns": statistics.median(times), "state": before if before == hook_state() else "CHANGED"}

    def do_check(self):
        after = self.attributes()
        optimizer = sys.modules["torch.optim.optimizer"]
        parameters = [p for p in self.training.model.parameters()
                      if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)]
        return {"state": hook_state(), "module_tables": entries(torch.nn.modules.module, "_global_"),
                "optimizer_tables": {**entries(optimizer, "_global_"), **entries(self.training.optimizer)},
                "hooked_modules": sum(bool(entries(m)) for m in self.training.model.modules()),
                "hooked_parameters": len(parameters),
                "changed": sorted(k for k in {*self.before, *after} if self.before.get(k) != after.get(k)),
                "lines": called_lines(), "call_ns": call_ns()}

    def do_losses(self, steps):
        """Losses as they are, bit by bit."""
        losses = [self.training.step() for _ in range(steps)]
        self.synchronize()
        return {"losses": [float(loss).hex() for loss in losses], "state": hook_state()}

    def do_profile(self, activities, seconds):
        """Chunks inside torch.profiler, and what its start and its end take."""
        from torch.profiler import ProfilerActivity, profile
        begun = time.perf_counter()
        profiler = profile(activities=[getattr(ProfilerActivity, a) for a in activities])
        with profiler:
            self.block(1)
            started = time.perf_counter()
            chunks = self.do_run(seconds)["chunks"]
            stopping = time.perf_counter()
        return {"chunks": chunks, "start_s": started - begun, "stop_s": time.perf_counter() - stopping}

    def do_kernels(self, steps):
        """ns of a step in which a kernel ran, by torch.profiler without the CPU's activity."""
        from torch.profiler import ProfilerActivity, profile
        for count in (3, steps):  # what the first one sets up is not in the second
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                self.block(count)
        with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
            profiler.export_chrome_trace(file.name)
            events = json.load(open(file.name, encoding="utf-8"))["traceEvents"]
        spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel"]
        return {"ns": lab.covered(spans) * 1e3 / steps, "kernels": len(spans) / steps}

    def do_record(self, steps, path):
        """A chrome trace of torch.profiler, in which each leaf module's forward and each step has a range. It records the
        thread that starts it, and those of the engine."""
        from torch.profiler import ProfilerActivity, profile
        from torch.autograd.profiler import record_function
        for name, module in models.layers(self.training) + models.parents(self.training):
            self.put_range(record_function, name, module)
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.device == "cuda" else [])
        graph = {}
        backward = torch.Tensor.backward
        torch.Tensor.backward = lambda loss, *args, **more: (graph.update(meeting(loss.grad_fn)),
                                                             backward(loss, *args, **more))[1]
        for count in (3, steps):  # what the first one sets up is not in the second
            profiler = profile(activities=activities)
            self.training.within(profiler.start)
            for _ in range(count):
                step = record_function("bench.step")
                self.training.within(step.__enter__)
                self.training.step()
                self.training.within(lambda: step.__exit__(None, None, None))
            self.synchronize()
            self.training.within(profiler.stop)
        torch.Tensor.backward = backward
        profiler.export_chrome_trace(path)
        with open(path + ".graph", "w", encoding="utf-8") as file:
            json.dump(graph, file)
        return {"steps": steps}

    @staticmethod
    def put_range(record_function, name, module):
        """Around its forward; around the call of one that is compiled, which has no forward of its own."""
        kind = type(module)
        function = kind.__call__ if models.compiled(module) else module.forward

        def ranged(*args, **kwargs):
            with record_function(f"bench.{'forward' if torch.is_grad_enabled() else 'inference'}:{name}"):
                return function(*args, **kwargs)

        if models.compiled(module):
            kind.__call__ = ranged
        else:
            module.forward = ranged

    def do_memory(self):
        gpu = {}
        if self.device == "cuda":
            free, total = torch.cuda.mem_get_info()
            gpu = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
                   "used": total - free}
        return {"steps": self.taken, "state": hook_state(), "pid": os.getpid(), **gpu}

    # ---- what must be as it was ----

    def attributes(self):
        """Of each module its attributes and what they are; of torch's classes what a profiler may replace."""
        found = {}
        for name, module in self.training.model.named_modules():
            for key, value in vars(module).items():
                found[f"{name}.{key}"] = value if isinstance(value, (bool, int, float, str)) else id(value)
        loader = sys.modules.get("torch.utils.data.dataloader")
        for cls, names in ((torch.nn.Module, ("__call__", "_call_impl")), (type(self.training.optimizer), ("step",)),
                           (torch.optim.Optimizer, ("zero_grad", "step")), (torch.Tensor, ("backward",)),
                           (getattr(loader, "_BaseDataLoaderIter", object), ("__next__",))):
            for name in names:
                found[f"{cls.__name__}.{name}"] = id(vars(cls).get(name))
        return found


def main():
    name, device, small, batch, deterministic, backend = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no reply
    trainer = Trainer(name, device, small == "small", None if batch == "-" else int(batch),
                      deterministic == "deterministic", backend)
    replies.write(json.dumps({"reply": "ready", "state": hook_state(), "pid": os.getpid()}) + "\n")
    for line in sys.stdin:
        command = json.loads(line)
        what = command.pop("do")
        if what == "quit":
            break
        replies.write(json.dumps({"reply": what, **getattr(trainer, "do_" + what)(**command)}) + "\n")


if __name__ == "__main__":
    main()
