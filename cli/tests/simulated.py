"""Folders of trainings whose truth is known and whose steps and counters are noisy, solved by the real solver.

PP_SOLVE_AGAIN  the program solve_again
"""
import json
import math
import os
import random
import subprocess

import folder
from folder import GPU, MS, T0, delta

STEPS = 60
# name, milliseconds of a step, SMActive; the rest of a step is `other`, 20 ms at 0.1.
LAYERS = [("embedding", 150.0, 0.9), ("bottom", 230.0, 0.6), ("top", 340.0, 0.3), ("head", 120.0, 0.75)]
REST = (20.0, 0.1)


def steps_of(rng, layers, spread=0.02, memory=0.0):
    """For each step the layers' milliseconds: each varies by `spread`, and with it what it was in the step before."""
    states, found = [0.0] * len(layers), []
    for _ in range(STEPS):
        states = [memory * state + math.sqrt(1 - memory ** 2) * rng.gauss(0, 1) for state in states]
        found.append([ms * (1 + spread * state) for (_, ms, _), state in zip(layers, states)])
    return found


def batches_of(steps, layers, chip=None):
    """One batch of all steps, and the pieces (start and end in ns from T0, SMActive) that the counters see."""
    at, starts, lengths, pieces, seen = 0, [], [], [], []
    for number, times in enumerate(steps):
        starts.append(at)
        for layer, (ms, (_, _, active)) in enumerate(zip(times, layers), 1):
            pieces.append((layer, number, at, round(ms * MS)))
            seen.append((at, at + round(ms * MS), active))
            at += round(ms * MS)
        seen.append((at, at + round(REST[0] * MS), REST[1]))
        at += round(REST[0] * MS)
        lengths.append(at - starts[-1])
    whole = folder.batch(0, 0, 1)
    return {**whole, "stretch": {"id": 0, "start": T0, "end": T0 + at, "last": True},
            "process": {**whole["process"], **({"chip": chip} if chip else {})},
            "layers": [{"id": i, "name": name, "type": "Linear", "parameters": 12} for i, (name, *_) in enumerate(layers, 1)],
            "steps": {"number": delta(range(len(steps))), "start": delta([T0 + start for start in starts]), "duration": lengths,
                      "epoch": delta([0] * len(steps)), "batch": delta(range(len(steps)))},
            "intervals": {"layer": [p[0] for p in pieces], "phase": [0] * len(pieces), "step": delta([p[1] for p in pieces]),
                          "start": delta([T0 + p[2] for p in pieces]), "duration": [p[3] for p in pieces]}}, seen


def samples_of(rng, seen, noise=0.02):
    """What a counter of windows of 100 ms reads, each off by its noise."""
    window, values, at = 100 * MS, [], 0
    for end in range(window, seen[-1][1] + 1, window):
        while seen[at][1] <= end - window:
            at += 1
        held = sum((min(stop, end) - max(start, end - window)) * active for start, stop, active in seen[at:at + 8]
                   if start < end and stop > end - window)
        values.append(min(1.0, max(0.0, held / window + rng.gauss(0, noise))))
    return {"gpu": GPU, "metric": "SMActive", "at": delta([T0 + (i + 1) * window for i in range(len(values))]), "value": values}


def training(at, seed, layers=None, **more):
    """A folder, as a run leaves one."""
    rng = random.Random(seed)
    layers = LAYERS if layers is None else layers
    chip = more.pop("chip", None)
    batch, seen = batches_of(steps_of(rng, layers, **more), layers, chip)
    raw = folder.write(at.parent / f"{at.name}.raw", {**folder.RESULTS, "method": "Regression"}, [batch], [samples_of(rng, seen)])
    at.mkdir()
    subprocess.run([os.environ["PP_SOLVE_AGAIN"], raw, at], check=True, timeout=60)
    return at


def slower(name, factor):
    return [(of, ms * factor if of == name else ms, active) for of, ms, active in LAYERS]


def told(results, layer):
    """A layer's row in a folder's results."""
    gpu = json.loads((results / "results.json").read_text())["gpus"][0]
    return next(item for item in gpu["items"] if item["layer"] == layer)
