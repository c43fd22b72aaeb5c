"""Does a layer take as long in the training as the results say? Elapsed times of `precisionprobe run`, which marks all layers,
with the least that they may be, against CUDA events of one layer's own hooks at a time, in the same process between captures.

PP_CLI  the command line of precisionprobe
"""
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import lab

ROOM = 0.05  # of a time
SHARE = 0.01  # of the step: shorter rows are not looked at
LOOK = 4  # steps, with hooks of all, that tell which rows those are


# ---- the training ----

class Hooked:
    """CUDA events of one layer's forward or backward, two at each begin, whose distance is what one costs. Backward where it is
    one node of the graph, which has a begin and an end."""

    def __init__(self, torch, module, backward, steps):
        self.torch, self.backward, self.events = torch, backward, []
        self.ready = [torch.cuda.Event(enable_timing=True) for _ in range(12 * steps)]
        for event in self.ready:
            event.record()  # makes it, which takes longer than to record it again
        self.handles = [module.register_forward_hook(self.behind)]
        if not backward:
            self.handles.append(module.register_forward_pre_hook(lambda *_: self.begin()))

    def mark(self):
        event = self.ready.pop() if self.ready else self.torch.cuda.Event(enable_timing=True)
        event.record()
        self.events.append(event)

    def begin(self):
        self.mark()
        self.mark()

    def behind(self, _, inputs, output):
        if not self.backward:
            self.mark()
            return
        node = getattr(output, "grad_fn", None)
        before = [x.grad_fn for x in inputs if isinstance(x, self.torch.Tensor)]
        rest = [of for of, _ in node.next_functions if of is not None and of not in before] if node else [None]
        if all(type(of).__name__ in ("AccumulateGrad", "TBackward0") for of in rest):
            node.register_prehook(lambda _: self.begin())
            node.register_hook(lambda *_: self.mark())

    def begin_step(self):
        self.events = []
        return self.events

    def remove(self):
        for handle in self.handles:
            handle.remove()


def elapsed(torch, training, some, steps):
    """{row: [ms in a step, ms of them that are the hooks' own]}, medians, of the rows {row: (module, backward)}, all of which
    have hooks; nothing where it is not known. The host does not wait for the GPU before the last step is over."""
    hooked = {row: Hooked(torch, module, backward, steps) for row, (module, backward) in some.items()}
    marks = []
    for _ in range(steps):
        marks.append({row: one.begin_step() for row, one in hooked.items()})
        training.step()
    for one in hooked.values():
        one.remove()
    training.step()  # nodes that carry hooks still are gone
    torch.cuda.synchronize()
    return {row: [statistics.median(summed(step[row], *ends) for step in marks) for ends in ((1, 2), (0, 1))] for row in some
            if all(step[row] for step in marks)}


def summed(events, begin, end):
    """ms between the events of these places in each three."""
    return sum(a.elapsed_time(b) for a, b in zip(events[begin::3], events[end::3]))


def steps_for(torch, training, seconds):
    """ms of a step."""
    begun, count = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        training.step()
        count += 1
    torch.cuda.synchronize()
    return (time.monotonic() - begun) / count * 1e3


def train(args):
    """A training of whose layers one at a time has hooks for some steps; writes what they say."""
    import torch
    import models
    training = models.build(args.model, "cuda", batch=args.batch)
    ms, told = steps_for(torch, training, args.seconds / 2), {}
    rows = {f"{name} {phase}": (module, phase == "backward") for name, module in models.layers(training)
            for phase in ("forward", "backward")}
    for row, (about, _) in elapsed(torch, training, rows, LOOK).items():
        if about >= SHARE / 2 * ms:
            told.update(elapsed(torch, training, {row: rows[row]}, args.steps))
    steps_for(torch, training, args.seconds / 2)
    with open(os.environ["PP_ELAPSED_TOLD"], "w", encoding="utf-8") as file:
        json.dump(told, file)


def profiled(args):
    batch = ["--batch", str(args.batch)] if args.batch else []
    command = [*lab.python(), os.path.abspath(__file__), args.model, *batch, "--seconds", str(args.seconds), "--steps", str(args.steps)]
    with tempfile.TemporaryDirectory() as scratch:
        told = pathlib.Path(scratch) / "told.json"
        results = lab.profile(command, pathlib.Path(scratch) / "results", "--method", "Job", "--budget", str(args.budget),
                              env={"PP_ELAPSED_TOLD": str(told)})
        return results["gpus"][0], json.loads(told.read_text(encoding="utf-8"))


# ---- what they say ----

def rows(gpu):
    """{row: item} of what takes its share of the step."""
    return {f"{item['layer']} {item['phase']}": item for item in gpu["items"]
            if item["kind"] == "layer" and item["millisecondsPerStep"] >= SHARE * gpu["countedStepMs"]}


def holds(item, ms, own):
    """Whether the row may take as long as without hooks, which take some of what they measure."""
    return (1 - ROOM) * item["leastMillisecondsPerStep"] <= ms and ms - own <= (1 + ROOM) * item["millisecondsPerStep"]


def near(item, ms, own):
    most = item["millisecondsPerStep"]
    return (1 - ROOM) * (ms - own) <= most <= (1 + ROOM) * ms


def main():
    args = lab.arguments(__doc__, models=lab.MODELS + lab.LIBRARIES, seconds=(40.0, "of the session"),
                         budget=(5.0, "percent"), steps=(30, "with hooks of a layer's own"))
    if os.environ.get("PP_ELAPSED_TOLD"):
        train(args)
        return 0
    gpu, own = profiled(args)
    if all(item["leastMillisecondsPerStep"] is None for item in gpu["items"]):
        sys.exit("no bounds are told: too few steps were counted, or the training waits; give it more --seconds")
    compared = {row: (item, *own[row]) for row, item in rows(gpu).items() if own.get(row)}
    if not compared:
        sys.exit("no row of 1 % of the step can have hooks of its own: none is one node of the graph")
    lab.figure("marked step less counted step", gpu["stepMs"] - gpu["countedStepMs"], "ms", model=args.model,
               counted_ms=gpu["countedStepMs"], marked_ms=gpu["stepMs"], rows=len(rows(gpu)))
    for row, (item, ms, hooks) in compared.items():
        if not holds(item, ms, hooks):
            lab.figure("a row outside of its bounds", ms, "ms", model=args.model, row=row, of_which_hooks=hooks,
                       least=item["leastMillisecondsPerStep"], most=item["millisecondsPerStep"],
                       busy=item["busyMillisecondsPerStep"])
    within = [holds(*row) for row in compared.values()]
    lab.figure("rows whose time without marks is within their bounds", 100 * sum(within) / len(within), "%", model=args.model,
               must="100", holds=all(within), rows=len(within), of_which_within_5_percent=sum(near(*row) for row in compared.values()),
               hooks_over_all=statistics.median(hooks / ms for _, ms, hooks in compared.values()),
               least_over_most=statistics.mean(item["leastMillisecondsPerStep"] / item["millisecondsPerStep"]
                                               for item, *_ in compared.values()))
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
