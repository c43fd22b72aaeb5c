"""What the hook costs, in one process: prints one JSON line per figure. Run with the hook on PYTHONPATH.

In CPU time of the training's thread, so that what else the machine does is not measured.

PYTHONPATH=<hook>/python PRECISIONPROBE_RING=<empty folder> OMP_NUM_THREADS=1 python3 bench.py
"""
import glob
import json
import mmap
import os
import statistics
import struct
import sys
import time

import torch
from torch import nn
from precisionprobe_hook import _marks

torch.set_num_threads(1)
IDLE, COUNT, SAMPLE = 0, 1, 2


class Agent:
    """As little of the agent as is needed: sets the mode, and takes the marks by moving the tail."""

    def __init__(self):
        path = glob.glob(os.environ["PRECISIONPROBE_RING"] + "/*.ring")[0]
        file = open(path, "r+b")
        self.map = mmap.mmap(file.fileno(), 0)
        size = struct.unpack_from("<I", self.map, 12)[0]
        # The header's last line is the mode's, the two before it are the tails', and the two before these the heads'.
        self.at, self.tail, self.head = size - 64, size - 192, size - 320

    def mode(self, mode):
        beat = struct.unpack_from("<I", self.map, self.at + 4)[0]
        struct.pack_into("<II", self.map, self.at, mode, beat + 1 & 0xffffffff)

    def take(self):
        """Takes all; (marks, cost in ns) ever."""
        lines = struct.unpack_from("<QQQqq", self.map, self.head)
        struct.pack_into("<QQ", self.map, self.tail, lines[0], ~lines[0] & (2**64 - 1))
        return lines[2], lines[3]


def report(name, values, unit, **more):
    values = sorted(values)
    n = len(values)
    print(json.dumps({"figure": name, "median": round(statistics.median(values), 3), "unit": unit,
                      "low": round(values[n // 20], 3), "high": round(values[-1 - n // 20], 3), **more}), flush=True)


def model():
    layers = []
    for _ in range(20):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 1))


def main():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    x = torch.randn(32, 64)
    agent = Agent()

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    def steps(mode, count=30):
        agent.mode(mode)
        os.sched_yield()
        for _ in range(6):  # until the hook has settled, and found the layers
            step()
        while _marks.get_state() != {IDLE: _marks.OFF, COUNT: _marks.COUNTING, SAMPLE: _marks.MARKING}[mode]:
            # Nobody wakes the hook's thread here: its Python side is called as that would.
            _marks_probe().ask()
            step()
        before = agent.take()
        times = []
        for _ in range(count):
            begun = time.thread_time_ns()
            step()
            times.append(time.thread_time_ns() - begun)
        after = agent.take()
        return statistics.median(times) / 1e3, (after[0] - before[0]) / count, (after[1] - before[1]) / count / 1e3

    by_mode = {IDLE: [], COUNT: [], SAMPLE: []}
    for _ in range(15):  # interleaved: the machine's mood is in all of them
        for mode in by_mode:
            by_mode[mode].append(steps(mode))
    idle, count, sample = ([row[0] for row in by_mode[m]] for m in (IDLE, COUNT, SAMPLE))
    report("step, hook idle", idle, "us")
    report("counting against idle", [100 * (c / i - 1) for c, i in zip(count, idle)], "%")
    report("marked step against idle", [100 * (s / i - 1) for s, i in zip(sample, idle)], "%")
    marks = by_mode[SAMPLE][0][1]
    report("marks of a step", [row[1] for row in by_mode[SAMPLE]], "marks", layers=41)
    report("all of a marked step's extra time, by mark", [(s - i) * 1e3 / marks for s, i in zip(sample, idle)], "ns")
    report("cost as the hook measures it, against the true one",
           [row[2] / max(1e-9, row[0] - i) for row, i in zip(by_mode[SAMPLE], idle)], "ratio")
    agent.mode(SAMPLE)
    steps(SAMPLE, 1)
    mark = _marks.marker(_marks.BACKWARD_BEGIN)
    rows = []
    for _ in range(200):
        agent.take()
        begun = time.thread_time_ns()
        for _ in range(100):
            mark(None, None)
        rows.append((time.thread_time_ns() - begun) / 100)
    report("one mark, called from Python", rows, "ns")


def _marks_probe():
    return next(o for o in __import__("gc").get_objects() if type(o).__name__ == "_Probe")


if __name__ == "__main__":
    if not os.environ.get("PRECISIONPROBE_RING"):
        sys.exit(__doc__)
    main()
