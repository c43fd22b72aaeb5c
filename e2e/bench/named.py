"""Is what a training does besides its layers told as what it is? Copies by type and bytes, waits of the host by the call that
waits and its place, ranges by their names: of a program that knows how much of each it does in a step.

PP_CLI  the command line of precisionprobe
"""
import os
import pathlib
import sys
import tempfile

import lab

UP, DOWN, ACROSS = 8 << 20, 1 << 20, 24 << 20  # bytes that a step copies to the GPU, from it, and within it, outside of layers
SYNCHRONIZED = 2  # calls in a step
PRODUCTS = {"scores": 1, "values": 3}  # ranges, and how many equal products each has
CLOSE = 0.02


def train(args):
    """A model between two ranges, one of NVTX and one of record_function, with copies and waits of known number and size."""
    import time
    import torch
    from torch import nn
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    upward = torch.randn(UP // 4, pin_memory=True)
    downward = torch.empty(DOWN // 4, pin_memory=True)
    here, there = (torch.randn(ACROSS // 4, device="cuda") for _ in range(2))
    x, matrix = torch.randn(4096, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
    begun = time.monotonic()
    while time.monotonic() < begun + args.seconds:
        came = upward.to("cuda", non_blocking=True)
        there.copy_(here)
        y = x + came[0]
        torch.cuda.nvtx.range_push("scores")
        for _ in range(PRODUCTS["scores"]):
            y = y @ matrix
        torch.cuda.nvtx.range_pop()
        with torch.profiler.record_function("values"):
            for _ in range(PRODUCTS["values"]):
                y = y @ matrix
        loss = model(y * 1e-6).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        downward.copy_(there[:DOWN // 4], non_blocking=True)
        for _ in range(SYNCHRONIZED):
            torch.cuda.synchronize()


def profiled(args):
    command = ["env", "PRECISIONPROBE_COPIES=1", *lab.python(), os.path.abspath(__file__), "--seconds", str(args.seconds), "--role", "train"]
    with tempfile.TemporaryDirectory() as scratch:
        return lab.profile(command, pathlib.Path(scratch) / "results", "--method", "Job", "--budget", "10", "--capture", "2s")


def copies(results):
    """Bytes of a step by where from and where to, outside of layers: what autograd copies is not the program's."""
    of = {}
    for item in results.get("copies", {}).get("items", []):
        if item["layer"]:
            continue
        of[item["type"]] = of.get(item["type"], 0) + item["bytesPerStep"]
    for name, must in (("h2d", UP), ("d2h", DOWN), ("d2d", ACROSS)):
        lab.figure("copied", of.get(name), "B", type=name, must=must, all=of, holds=abs((of.get(name) or 0) - must) <= CLOSE * must)


def waits(results):
    calls = results.get("hostWaits", {}).get("calls", [])
    waited = [call for call in calls if call["call"] == "cuda.synchronize"]
    of, ms = sum(call["callsPerStep"] for call in waited), sum(call["millisecondsPerStep"] for call in waited)
    here = sum(call["millisecondsPerStep"] for call in waited if pathlib.Path(call["file"]).name == "named.py")
    lab.figure("waits for the GPU", of, must=SYNCHRONIZED, holds=abs(of - SYNCHRONIZED) <= CLOSE * SYNCHRONIZED)
    lab.figure("of these, time whose place is told", here, "ms", must=ms, calls=calls[:4], holds=here >= (1 - CLOSE) * ms > 0)


def ranges(results):
    """The products are equal: time goes by their number. Each is of its own range only."""
    ms = {}
    for item in results["gpus"][0]["items"]:
        if item.get("layer") in PRODUCTS:
            ms[item["layer"]] = ms.get(item["layer"], 0) + item["busyMillisecondsPerStep"]
    ratio, must = ms["values"] / ms["scores"] if len(ms) == 2 else None, PRODUCTS["values"] / PRODUCTS["scores"]
    lab.figure("time of a range over another's", ratio, must=must, ms=ms, holds=ratio is not None and abs(ratio - must) <= 2 * CLOSE * must)


def main():
    args = lab.arguments(__doc__, seconds=(15.0, "seconds of the training"), role=("", "train: trains"))
    if args.role:
        train(args)
        return
    results = profiled(args)
    for look in (copies, waits, ranges):
        look(results)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
