"""Are the allocator's peak by layer and phase, and the bytes that each leaves allocated, what torch.cuda.memory says? Those of
`precisionprobe run` against hooks of each module, and of each leaf's nodes of the graph, that read torch.cuda.memory and reset its
peak, in another process without the probe. A third trains without either: its own peak must be that under the probe.

PP_CLI  the command line of precisionprobe
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import lab

LIMIT = 1.0  # percent
LEAST = 1 << 20  # bytes: of what leaves less the error is told in bytes only
WARM = 6  # steps before the one that is looked at
MIB = 1 << 20


# ---- the truth ----

class Hooks:
    """The most bytes while a module ran, those in it left out, and what it left; {row: [peak, left, left until what comes next]}."""

    def __init__(self, torch, rows):
        self.cuda, self.found, self.open, self.since, self.ended = torch.cuda, {}, [], 0, None
        self.handles = []
        self.torch = torch
        for name, module in rows:
            self.watch(name, module)
        self.switch()

    def switch(self):
        """What has run since the last time is the innermost's that is open."""
        peak, now = self.cuda.max_memory_allocated(), self.cuda.memory_allocated()
        if self.open:
            of = self.found.setdefault(self.open[-1], [0, 0, 0])
            of[0] = max(of[0], peak)
            of[1] += now - self.since
            of[2] += now - self.since
        elif self.ended:
            self.found[self.ended][2] += now - self.since
        self.ended = None
        self.since = now
        self.cuda.reset_peak_memory_stats()

    def begin(self, row):
        self.switch()
        self.open.append(row)

    def end(self, row):
        self.switch()
        if row in self.open:
            del self.open[self.open.index(row):]

    def watch(self, name, module):
        leaf = not list(module.children())

        def begin(_, inputs):
            self.begin(f"{name} forward")

        def end(_, inputs, output):
            self.end(f"{name} forward")
            if leaf and self.torch.is_grad_enabled():
                self.watch_nodes(f"{name} backward", inputs, output)

        self.handles += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]

    def watch_nodes(self, row, inputs, output):
        before = {each.grad_fn for each in tensors(self.torch, inputs)}
        todo, seen = [each.grad_fn for each in tensors(self.torch, output)], set()
        while todo:
            node = todo.pop()
            if node is None or node in before or node in seen:
                continue
            seen.add(node)
            self.handles += [node.register_prehook(lambda *_: self.begin(row)), node.register_hook(lambda *_: self.end_node(row))]
            if type(node).__name__ != "AccumulateGrad":
                todo += [after for after, _ in node.next_functions]

    def end_node(self, row):
        self.end(row)
        self.ended = row if row in self.found else None

    def remove(self):
        self.switch()
        for handle in self.handles:
            handle.remove()
        return self.found


def tensors(torch, value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors(torch, one)


def truth(torch, models, training):
    for _ in range(WARM):
        training.step()
    torch.cuda.synchronize()
    hooks = Hooks(torch, models.layers(training) + models.parents(training))
    training.step()
    found = hooks.remove()
    return {"rows": found}


# ---- the training, with the probe and without ----

class Clock:
    """ms that the program's calls into torch take, by name; the hook calls them by these names, too."""

    def __init__(self, torch):
        self.took, self.step, self.looked, self.steps = {}, 0, set(), []
        self.wrap(torch.cuda.memory, "_record_memory_history")
        self.wrap(torch._C, "_cuda_memorySnapshot")
        self.wrap(torch._C, "_cuda_memoryStats")

    def wrap(self, module, name):
        function = getattr(module, name)

        def timed(*args, **kwargs):
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.took.setdefault(name, []).append((time.perf_counter() - begun) * 1e3)
                if name == "_cuda_memorySnapshot":
                    self.looked.add(self.step)
        setattr(module, name, timed)


def trained(torch, training, args, clock):
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        training.step()
        torch.cuda.synchronize()
        clock.steps.append((time.perf_counter() - begun) * 1e3)
        clock.step += 1
    looked = [clock.steps[i] for i in clock.looked if i < len(clock.steps)]
    return {"peak": torch.cuda.max_memory_allocated(), "steps": len(clock.steps), "looked": looked,
            "ms": statistics.median(clock.steps), "took": {name: [len(all_), sum(all_), max(all_)] for name, all_ in clock.took.items()}}


def train(args):
    import torch
    import models
    clock = Clock(torch) if args.role == "train" else None
    training = models.build(args.model, "cuda", batch=args.batch)
    told = trained(torch, training, args, clock) if clock else truth(torch, models, training)
    pathlib.Path(os.environ["PP_MEMORY_TOLD"]).write_text(json.dumps(told), encoding="utf-8")


def command_of(args, role):
    batch = ["--batch", str(args.batch)] if args.batch else []
    return [*lab.python(), os.path.abspath(__file__), args.model, *batch, "--seconds", str(args.seconds), "--role", role]


def run(args, folder):
    """The truth, what a training without the probe has at most, and with it, and what the probe says."""
    told = []
    for role in ("truth", "train"):
        path = pathlib.Path(folder) / role
        subprocess.run(command_of(args, role), check=True, stdout=sys.stderr, env={**os.environ, "PP_MEMORY_TOLD": str(path)})
        told.append(json.loads(path.read_text(encoding="utf-8")))
    path = pathlib.Path(folder) / "probed"
    results = lab.profile(command_of(args, "train"), pathlib.Path(folder) / "results", "--method", "Job", "--budget", "5",
                          env={"PP_MEMORY_TOLD": str(path)})
    return (*told, json.loads(path.read_text(encoding="utf-8")), results)


# ---- what they say ----

def outside(value, *ends):
    """How far a value is outside of two, between which it may be."""
    return max(min(ends) - value, value - max(ends), 0)


def peaks(args, rows, told):
    errors = {row: 100 * abs(told[row]["memoryPeakBytes"] / peak - 1) for row, (peak, *_) in rows.items()}
    worst = max(errors, key=errors.get)
    for phase in ("forward", "backward"):
        of = [error for row, error in errors.items() if row.endswith(phase)]
        lab.figure(f"allocator's peak by layer, {phase}: largest error", max(of, default=None), "%", limit=LIMIT, model=args.model,
                   rows=len(of), median=statistics.median(of) if of else None)
    lab.figure("its largest error, bytes", told[worst]["memoryPeakBytes"] - rows[worst][0], "B", row=worst, must=rows[worst][0])


def left(args, rows, told):
    """Backward: autograd lets what a node has saved go behind its hooks, before the next node, whose sums come there, too."""
    for phase in ("forward", "backward"):
        of = {row: ends for row, (_, *ends) in rows.items() if row.endswith(phase)}
        error = {row: outside(told[row]["memoryLiveBytes"], *(ends[:1] if phase == "forward" else ends)) for row, ends in of.items()}
        large = {row: 100 * error[row] / max(map(abs, ends)) for row, ends in of.items() if max(map(abs, ends)) >= LEAST}
        worst = max(error, key=error.get) if error else None
        lab.figure(f"live bytes by layer, {phase}: largest error", max(large.values(), default=None), "%", limit=LIMIT,
                   model=args.model, rows=len(large), worst=max(large, key=large.get) if large else None)
        lab.figure(f"live bytes by layer, {phase}: largest error of all", error.get(worst), "B", row=worst, rows=len(error),
                   ours=told[worst]["memoryLiveBytes"] if worst else None, hooks=of.get(worst))


def costs(args, plain, probed):
    took = probed["took"]
    lab.figure("steps that were looked at", len(probed["looked"]), model=args.model, holds=1 <= len(probed["looked"]) <= 3)
    lab.figure("such a step", statistics.median(probed["looked"]) if probed["looked"] else None, "ms", of_all=probed["ms"],
               without=plain["ms"], each=probed["looked"])
    for name in ("_record_memory_history", "_cuda_memorySnapshot", "_cuda_memoryStats"):
        calls, ms, most = took.get(name, (0, 0, 0))
        lab.figure(name, most, "ms", calls=calls, sum_ms=ms)


def main():
    args = lab.arguments(__doc__, models=lab.MODELS + lab.LIBRARIES + lab.ARCHITECTURES, seconds=(20.0, "of each training"),
                         role=("", "truth, train: trains"))
    if args.role:
        train(args)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found, plain, probed, results = run(args, folder)
    told = {f"{item['layer']} {item['phase']}": item for item in results["gpus"][0]["items"]
            if item["kind"] == "layer" and "memoryPeakBytes" in item}
    rows = {row: of for row, of in found["rows"].items() if row in told}
    lab.figure("rows that both tell", len(rows), holds=len(rows) > 0, model=args.model,
               by_hooks_alone=sorted(set(found["rows"]) - set(told))[:8], by_the_probe_alone=sorted(set(told) - set(rows))[:8])
    if rows:
        peaks(args, rows, told)
        left(args, rows, told)
    lab.figure("the program's own peak", probed["peak"], "B", without=plain["peak"], holds=probed["peak"] == plain["peak"],
               model=args.model)
    costs(args, plain, probed)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
