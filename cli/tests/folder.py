"""A results folder whose true values are known, as `precisionprobe run` leaves one."""
import json
import pathlib

T0 = 1769000000000000000
MS = 1000000
GPU = "GPU-11111111-2222-3333-4444-555555555555"
# name, start and length in a step of 1 s (ms), SMActive; the rest of the step is `other`, at 0.1
LAYERS = [("bottom", 0, 430, 0.8), ("top", 430, 370, 0.2)]
STEPS = 60


def active(ms):
    for _, start, length, value in LAYERS:
        if start <= ms % 1000 < start + length:
            return value
    return 0.1


def delta(values):
    return [b - a for a, b in zip([0, *values], values)]


def batch(seq, first, count):
    steps = range(first, first + count)
    starts = [T0 + n * 1000 * MS for n in steps]
    pieces = [(layer, n, start + at * MS, length * MS) for n, start in zip(steps, starts)
              for layer, (_, at, length, _) in enumerate(LAYERS, 1)]
    return {
        "type": "batch", "session": "local", "instance": "local", "seq": seq,
        "process": {"id": 0, "rank": 0, "worldSize": 1, "gpus": [GPU], "hostname": "box", "python": "3.11.2",
                    "torch": "2.6.0", "clock": "cuda", "model": "Two"},
        "stretch": {"id": 0, "start": starts[0], "end": starts[-1] + 1000 * MS, "last": first + count == STEPS},
        "layers": [{"id": i, "name": name, "type": "Linear", "parameters": 12} for i, (name, *_) in enumerate(LAYERS, 1)],
        "steps": {"number": delta(list(steps)), "start": delta(starts), "duration": [1000 * MS] * count,
                  "epoch": delta([0] * count), "batch": delta(list(steps))},
        "intervals": {"layer": [p[0] for p in pieces], "phase": [0] * len(pieces), "step": delta([p[1] for p in pieces]),
                      "start": delta([p[2] for p in pieces]), "duration": [p[3] for p in pieces]},
        "dropped": 0, "cost": {"nanoseconds": 1000, "marks": 4},
    }


def fine(seq, values, **more):
    """What PM sampling told, as a batch of its own: {layer's number: SMActive}, each within 0.002; and `more` of it."""
    end = T0 + STEPS * 1000 * MS
    whole = batch(seq, STEPS - 1, 1)
    none = {"number": [], "start": [], "duration": [], "epoch": [], "batch": []}
    return {**whole, "stretch": {"id": 1, "start": end, "end": end, "last": True}, "steps": none,
            "intervals": {"layer": [], "phase": [], "step": [], "start": [], "duration": []},
            "fine": {"gpu": GPU, "sources": ["sm__cycles_active", "", "", ""], "layer": list(values),
                     "phase": [0] * len(values), "kernels": [9] * len(values),
                     "smActive": [round(value * 1e6) for value in values.values()],
                     "smActiveError": [2000] * len(values), **more}}


# A second each of replays of the first layer, and of what goes with them: calls, ns of its kernels, windows' value. So
# its own is (0.4 * 100 us - 0.2 * 50 us) / 40 us.
REPLAYS = [(False, 10000, 40000, 0.4), (True, 20000, 0, 0.2)]
REPLAYED = 0.75


def dwells(seq):
    """As batches of their own, behind the training."""
    found = []
    for i, (background, calls, busy, _) in enumerate(REPLAYS):
        begin = T0 + (STEPS + i) * 1000 * MS
        one = as_grid(batch(seq + i, STEPS - 1, 1))
        cells = list(range(100))
        one["grid"] = {"start": begin, "cell": 10 * MS, "cells": delta(cells), "layer": [1] * 100, "phase": [0] * 100,
                       "busy": [8 * MS] * 100, "calls": [calls // 100] * 100, "kernels": [calls // 100 * busy] * 100}
        one["steps"] = {"number": [1], "start": [begin], "duration": [1000 * MS], "epoch": [-1], "batch": [-1]}
        found.append({**one, "stretch": {"id": 7 + i, "start": begin, "end": begin + 1000 * MS, "last": True, "dwell": 3,
                                         "background": background}})
    return found


def as_grid(batch):
    """The same batch as sums (here: none)."""
    whole = {**batch, "grid": {"start": batch["stretch"]["start"], "cell": 10 * MS, "cells": [], "layer": [], "phase": [],
                               "busy": [], "calls": []}}
    del whole["intervals"]
    return whole


def samples(replays=False):
    ends = range(100, (STEPS + replays * len(REPLAYS)) * 1000 + 1, 100)
    values = [sum(active(ms) for ms in range(end - 100, end)) / 100 if end <= STEPS * 1000
              else REPLAYS[(end - 1) // 1000 - STEPS][3] for end in ends]
    return {"gpu": GPU, "metric": "SMActive", "at": delta([T0 + end * MS for end in ends]), "value": values}


RESULTS = {"version": 1, "started": "2026-01-21T12:53:19Z", "finished": "2026-01-21T12:54:21Z",
           "command": ["python3", "train.py"], "method": "Auto", "metrics": ["SMActive"], "exitStatus": 0,
           "sampledSteps": STEPS, "dropped": 0, "costNs": 6000, "note": "", "gpus": []}


def write(folder: pathlib.Path, results=None, batches=None, lines=None):
    folder.mkdir(exist_ok=True)
    batches = [batch(i, 10 * i, 10) for i in range(STEPS // 10)] if batches is None else batches
    (folder / "results.json").write_text(json.dumps(RESULTS if results is None else results))
    (folder / "batches.jsonl").write_text("".join(json.dumps(b) + "\n" for b in batches))
    (folder / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in lines or [samples()]))
    return folder
