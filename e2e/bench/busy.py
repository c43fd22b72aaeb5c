"""Per layer and phase: how long the GPU was busy, as the probe says, against torch.profiler; whether all adds up.

The probe samples every step of one process. torch.profiler records another, which has no hook, and its kernels go to
layers by a path that shares no code with the probe's: to the innermost range that was open where they were launched,
ranges being put around the forward of each leaf and parent; in backward to the layer whose forward op has the sequence number of
the node. On a CPU ops stand for kernels and elapsed times for busy ones: that tries the program out, no more.
"""
import bisect
import collections
import json
import os
import re
import statistics
import sys
import tempfile

import lab

NAME_MOST, NAME_HEAD = 1024, 600  # bytes of a kernel's name that are told: longer ones are cut in their middle
OF_LAYER = ("forward", "backward", "recompute", "inference")
LAYER, STEP = re.compile("bench[.](forward|inference):(.*)"), "bench.step"
NODE = "autograd::engine::evaluate_function: "


# ---- the probe's word ----

def rows_of(batch):
    """(layer, phase) by their numbers. Layers that are no modules are `other` to the peer, who has ranges around modules."""
    layers = {0: None, **{layer["id"]: layer for layer in batch.get("layers", [])}}

    def row(number, phase):
        layer = layers[number]
        outside = layer is not None and layer.get("type") == lab.OUTSIDE
        return ("", "other") if outside else (layer["name"] if layer else "", lab.PHASES[phase])
    return row


def busy_of(batch, elapsed):
    """{(layer, phase): ns} of one batch; a row with a piece whose busy time is not known has None."""
    data = batch.get("grid") or batch.get("intervals") or {}
    values = data.get(("busy" if "grid" in batch else "duration") if elapsed else "kernels")
    count = len(data.get("layer", []))
    rows, row_of = collections.Counter(), rows_of(batch)
    unknown = set()
    for layer, phase, value in zip(data.get("layer", []), data.get("phase", []), values or [-1] * count):
        row = row_of(layer, phase)
        unknown.update([row] if value < 0 else [])
        rows[row] += max(0, value)
    return {row: None if row in unknown else ns for row, ns in rows.items()}


def of_nobody(batches):
    """Percent of kernels' time that we say is nobody's: no layer's, no row's of its own, no phase's of the step."""
    own = everything = 0
    for batch in batches:
        data = batch.get("grid") or batch.get("intervals") or {}
        for layer, phase, ns in zip(data.get("layer", []), data.get("phase", []), data.get("kernels") or []):
            own += max(0, ns) if layer == 0 and lab.PHASES[phase] == "other" else 0
            everything += max(0, ns)
    return 100 * own / everything if everything else None


def ours(batches, elapsed):
    """What each batch holds, those left out that begin or end a capture: (steps, us by row, us of gaps, us in all)."""
    found = []
    for batch in batches[1:-1]:
        steps = len(batch["steps"]["number"])
        gaps = batch["steps"].get("gap")
        found.append({"steps": steps, "rows": busy_of(batch, elapsed), "wall": sum(batch["steps"]["duration"]),
                      "gap": sum(gaps) if gaps and min(gaps) >= 0 else 0 if elapsed else None})
    return [f for f in found if f["steps"]]


def ours_by_name(batches):
    """{(layer, phase, kernel): (us, kernels) of a step}, of all batches that tell."""
    told = [batch for batch in batches if "kernels" in batch]
    steps = sum(batch["kernels"]["steps"] for batch in told)
    sums = collections.defaultdict(lambda: [0, 0])
    for batch in told:
        kernels, row_of = batch["kernels"], rows_of(batch)
        for layer, phase, name, count, ns in zip(*(kernels[key] for key in ("layer", "phase", "name", "count", "duration"))):
            sum_of = sums[(*row_of(layer, phase), kernels["names"][name])]
            sum_of[0] += ns / 1e3 / steps
            sum_of[1] += count / steps
    return sums


def as_told(name):
    """A kernel's name as the probe tells it."""
    text = name.encode()
    if len(text) <= NAME_MOST:
        return name
    return (text[:NAME_HEAD] + b"..." + text[NAME_HEAD + 3 - NAME_MOST:]).decode(errors="replace")


def per_step(parts, row):
    """us per step of a row over these batches; None where it is not known throughout."""
    values = [p["rows"].get(row, 0) for p in parts]
    return None if None in values else sum(values) / sum(p["steps"] for p in parts) / 1e3


# ---- torch.profiler's ----

class Ranges:
    """Ranges of one thread, nested; finds those around a time."""

    def __init__(self, events):
        self.events = sorted(events, key=lambda e: (e["ts"], -e["dur"]))
        self.begins = [e["ts"] for e in self.events]
        self.parents, stack = [], []
        for i, e in enumerate(self.events):
            while stack and self.events[stack[-1]]["ts"] + self.events[stack[-1]]["dur"] < e["ts"] + e["dur"]:
                stack.pop()
            self.parents.append(stack[-1] if stack else -1)
            stack.append(i)

    def around(self, ts):
        """From the innermost on."""
        i = bisect.bisect_right(self.begins, ts) - 1
        while i >= 0:
            if self.events[i]["ts"] + self.events[i]["dur"] >= ts:
                yield self.events[i]
            i = self.parents[i]


def is_op(event):
    return event["cat"].lower() != "user_annotation" and not event["name"].startswith(NODE)


def is_sum(inside, at):
    """Whether what is launched in these ranges is the engine's own addition, right under its evaluation of a node."""
    return at > 0 and inside[at - 1]["name"] in ("aten::add", "aten::add_")


class Record:
    """A chrome trace, and whose each kernel is."""

    def __init__(self, path, device):
        with open(path, encoding="utf-8") as file:
            events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
        with open(f"{path}.graph", encoding="utf-8") as file:
            self.graph = {int(number): behind for number, behind in json.load(file).items()}
        for e in events:
            e["dur"] = float(e.get("dur", 0))
            e["args"] = e.get("args", {})
        host = [e for e in events if e.get("cat", "").lower() in ("cpu_op", "user_annotation", "operator")]
        threads = collections.defaultdict(list)
        for e in host:
            threads[e["tid"]].append(e)
        self.threads = {tid: Ranges(found) for tid, found in threads.items()}
        self.steps = sorted((e for e in host if e["name"] == STEP), key=lambda e: e["ts"])
        self.begins = [e["ts"] for e in self.steps]
        self.lost = 0
        # The thread whose forwards are: the loop may be another's than the steps that are asked for.
        self.main = collections.Counter(e["tid"] for e in host if LAYER.match(e["name"])).most_common(1)[0][0]
        self.owner = self.nodes_of_layers()
        self.kernels = self.on_gpu(events) if device == "cuda" else self.on_cpu()

    def layer_at(self, tid, ts):
        found = (LAYER.match(e["name"]) for e in self.threads[tid].around(ts))
        return next((match[2] for match in found if match), None)

    def nodes_of_layers(self):
        """Sequence number -> layer of the op that made the node: the last one to begin with that number."""
        owner = {}
        ranges = self.threads[self.main]
        for e in ranges.events:
            number = e["args"].get("Sequence number", -1)
            if number >= 0 and not e["args"].get("Fwd thread id"):
                owner[number] = self.layer_at(self.main, e["ts"])
        return owner

    def layer_of(self, node):
        return self.owner.get(node["args"].get("Sequence number"))

    def stays(self, node):
        """Whether the sum of gradients that this node ended with is of its own layer's: every node in front of which it can
        have been made is, too."""
        behind = self.graph.get(node["args"].get("Sequence number"), [])
        return bool(behind) and all(self.owner.get(number) == self.layer_of(node) for number in behind)

    def on_gpu(self, events):
        launches = {e["args"]["correlation"]: e for e in events
                    if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]}
        kernels = [e for e in events if e.get("cat", "").lower() == "kernel"]
        linked = [(e, launches[e["args"]["correlation"]]) for e in kernels if e["args"].get("correlation") in launches]
        self.lost = len(kernels) - len(linked)
        return linked

    def on_cpu(self):
        """Ops that are in no other op but a node of the graph."""
        found = []
        for ranges in self.threads.values():
            for e, parent in zip(ranges.events, ranges.parents):
                outer = ranges.events[parent] if parent >= 0 else None
                if is_op(e) and not (outer and is_op(outer)):
                    found.append((e, e))
        return found

    def row(self, launch):
        """(layer, phase) of a launch. What the engine itself launches after a node, the sum of gradients that meet, is a
        layer's where they come from it and go on in it, else nobody's, as is what is added into parameters: AccumulateGrad
        has no sequence number."""
        tid, inside = launch["tid"], []
        for e in self.threads[tid].around(launch["ts"]) if tid in self.threads else ():
            inside.append(e)
            forward = LAYER.match(e["name"])
            if forward:
                return forward[2], forward[1]
            if e["name"].startswith("Optimizer.step#"):
                return "", "optimizer"
            if e["name"].startswith("Optimizer.zero_grad#"):
                return "", "zero_grad"
            if e["name"].startswith(NODE):
                layer = self.layer_of(e)
                if is_sum(inside, len(inside) - 1) and not self.stays(e):
                    layer = None
                return (layer, "backward") if layer else ("", "other")
        return "", "other"

    def busy(self):
        """[{(layer, phase): us}] of each step: the time in which one of a row's kernels ran."""
        spans = [collections.defaultdict(list) for _ in self.steps]
        for kernel, launch in self.kernels:
            step = bisect.bisect_right(self.begins, launch["ts"]) - 1
            if step >= 0:
                spans[step][self.row(launch)].append((kernel["ts"], kernel["ts"] + kernel["dur"]))
        return [{row: lab.covered(found) for row, found in step.items()} for step in spans]


    def by_name(self):
        """{(layer, phase, kernel): (us, kernels) of a step}."""
        sums = collections.defaultdict(lambda: [0, 0])
        for kernel, launch in self.kernels:
            if self.begins[0] <= launch["ts"] <= self.steps[-1]["ts"] + self.steps[-1]["dur"]:
                sum_of = sums[(*self.row(launch), as_told(kernel["name"]))]
                sum_of[0] += kernel["dur"] / len(self.steps)
                sum_of[1] += 1 / len(self.steps)
        return sums


# ---- side by side ----

def compare(parts, steps, row):
    """{ours, theirs, error, interval, holds} of a row, us per step and percent."""
    theirs = [s.get(row, 0.0) for s in steps]
    value, mean = per_step(parts, row), statistics.mean(theirs)
    if value is None or mean == 0:
        return {"ours": value, "theirs": mean, "error": None, "interval": None}

    def drawn():
        return (per_step(lab.redraw(parts), row) / max(statistics.mean(lab.redraw(theirs)), 1e-9) - 1) * 100
    return {"ours": value, "theirs": mean, "error": (value / mean - 1) * 100, "interval": lab.interval(drawn, 300)}


def limit_of(us):
    return 2 if us >= 50 else 5 if us >= 10 else None


def print_rows(parts, steps, model):
    rows = sorted({row for p in parts for row in p["rows"]} | {row for s in steps for row in s})
    found = {row: compare(parts, steps, row) for row in rows}
    for (layer, phase), c in found.items():
        limit = limit_of(c["theirs"])
        holds = None if limit is None else c["error"] is not None and abs(c["error"]) <= limit
        lab.figure("busy", c["ours"], "us", peer=c["theirs"], error_percent=c["error"], limit=limit, holds=holds,
                   error_interval=c["interval"], layer=layer, phase=phase, model=model)
    for name, low, high in ((">= 50 us", 50, float("inf")), ("10 to 50 us", 10, 50)):
        kept = {row: c for row, c in found.items() if low <= c["theirs"] < high and row[1] in OF_LAYER}
        known = {row: c for row, c in kept.items() if c["error"] is not None}
        if not known:
            lab.figure(f"error of busy, layers {name}, worst", None, "%", model=model, rows=len(kept))
            continue
        worst = max(known, key=lambda row: abs(known[row]["error"]))
        more = {"model": model, "rows": len(kept), "unknown": len(kept) - len(known)}
        lab.figure(f"error of busy, layers {name}, worst", abs(known[worst]["error"]), "%", limit=limit_of(low),
                   holds=len(known) == len(kept) and abs(known[worst]["error"]) <= limit_of(low),
                   interval=known[worst]["interval"], row=" ".join(worst),
                   past_limit=sum(abs(c["error"]) > limit_of(low) for c in known.values()), **more)
        weighted = sum(abs(c["ours"] - c["theirs"]) for c in known.values()) / sum(c["theirs"] for c in known.values())
        lab.figure(f"error of busy, layers {name}, weighted", 100 * weighted, "%", **more)


def print_names(ours, theirs, model):
    """Kernels by name in each layer and phase: those of 50 us and more in a step, and how much of all time has its name."""
    top = {key for key, (us, _) in theirs.items() if us >= 50}
    errors = {key: (ours[key][0] / theirs[key][0] - 1) * 100 if key in ours else -100.0 for key in top}
    both = sum(us for key, (us, _) in ours.items() if key in theirs)
    everything = sum(us for us, _ in ours.values())
    share = 100 * both / everything if everything else 0
    lab.figure("time of kernels whose name, layer and phase the peer has too", share, "%", must=">= 98", holds=share >= 98,
               names=len({name for *_, name in ours}), model=model)
    if not top:
        lab.figure("error of a kernel's time, >= 50 us, worst", None, "%", model=model, rows=0)
        return
    worst = max(top, key=lambda key: abs(errors[key]))
    lab.figure("error of a kernel's time, >= 50 us, worst", abs(errors[worst]), "%", limit=2, holds=abs(errors[worst]) <= 2,
               row=" ".join(worst)[:200], past_limit=sum(abs(e) > 2 for e in errors.values()), rows=len(top), model=model)
    calls = {key: (ours[key][1] if key in ours else 0, theirs[key][1]) for key in top}
    lab.figure("kernels >= 50 us that ran as often", sum(abs(a / b - 1) < 0.01 for a, b in calls.values()), "rows", rows=len(top),
               model=model)


def print_sum(parts, walls, model, elapsed):
    """All pieces and the gaps, each measured, against the step's time on the host's clock of whole blocks."""
    rows = {row for p in parts for row in p["rows"]}
    by_phase = collections.Counter()
    for row in rows:
        by_phase["layers" if row[1] in OF_LAYER else row[1]] += per_step(parts, row) or 0
    steps = sum(p["steps"] for p in parts)
    known = all(p["gap"] is not None for p in parts) and all(per_step(parts, row) is not None for row in rows)
    by_phase["gaps"] = sum(p["gap"] or 0 for p in parts) / steps / 1e3
    for phase, us in by_phase.items():
        lab.figure("busy of a step's part", us, "us", part=phase, model=model)
    total = sum(by_phase.values())
    lab.figure("step as sampled", sum(p["wall"] for p in parts) / steps / 1e3, "us", sum_of_parts=total, model=model)
    for name, times in walls.items():
        if not times:
            lab.figure(f"sum of parts against {name} steps", None, "%", model=model, why="no such chunk")
            continue

        def drawn():
            return (total / statistics.mean(lab.redraw(times)) - 1) * 100
        error = (total / statistics.mean(times) - 1) * 100
        asked = {"limit": 1, "holds": known and abs(error) <= 1} if name == "marked" else {}  # else marking shows
        lab.figure(f"sum of parts against {name} steps", error, "%", lab.interval(drawn), **asked,
                   step_us=statistics.mean(times), sum_us=total, model=model)


# ---- the two trainings ----

def probed(args, environment=None, depth=0):
    with lab.Ring() as ring, lab.Trainer(args, ring=ring, environment=environment) as trainer:
        about = trainer.ask("warm")
        idle = lab.times(trainer.ask("run", seconds=args.seconds / 4))
        with lab.Session(ring, seconds=args.seconds, budget=100, capture=3600, depth=depth) as session:
            reply = trainer.ask("run", seconds=args.seconds)
            trainer.ask("until", state="OFF")
            batches = session.stop()
        idle += lab.times(trainer.ask("run", seconds=args.seconds / 4))
    held = lab.sampled(batches)
    steps = held.pop("steps")
    lab.figure("sampled", steps, "steps", model=args.model, device=about["device"], torch=about["torch"], **held)
    return batches, {"marked": lab.times(reply, "MARKING"), "unmarked": idle}


def recorded(args):
    with tempfile.TemporaryDirectory() as folder, lab.Trainer(args) as trainer:
        trainer.ask("warm")
        path = args.keep or os.path.join(folder, "trace.json")
        trainer.ask("record", steps=args.steps, path=path)
        record = Record(path, args.device)
    lab.figure("recorded", len(record.steps), "steps", peer="torch.profiler", kernels=len(record.kernels) / args.steps,
               kernels_without_launch=record.lost, launched_from_unknown_threads=sum(
                   launch["tid"] not in record.threads for _, launch in record.kernels), model=args.model)
    return record.busy(), record.by_name()


def main():
    args = lab.arguments(__doc__, models=lab.MODELS + lab.LIBRARIES, seconds=(12.0, "seconds sampled"),
                         steps=(50, "steps that torch.profiler records"), keep=("", "where its trace is kept"))
    elapsed = args.device == "cpu"
    batches, walls = probed(args, depth=lab.WHOLE if "compiled" in args.model else 0)  # compiled.py is about the rest
    parts = ours(batches, elapsed)
    if not parts:
        lab.figure("busy", None, model=args.model, why="fewer than three batches")
        return
    nobody = None if elapsed else of_nobody(batches)
    lab.figure("time of kernels that is nobody's", nobody, "%", limit=5, holds=elapsed or nobody is not None and nobody <= 5,
               model=args.model)
    steps, theirs = recorded(args)
    print_rows(parts, steps, args.model)
    if not elapsed:
        print_names(ours_by_name(batches), theirs, args.model)
    print_sum(parts, walls, args.model, elapsed)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
