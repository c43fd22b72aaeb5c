"""Kernels whose activity is known by construction, against what `precisionprobe run --method Sampling` says of them.

Each layer launches a kernel of so many blocks and threads, which spins or multiplies for so long; each of its blocks notes
for how long it ran. SMActive is the blocks' time over that of all SMs, SMOccupancy their warps' over all places for warps,
FP32Active the multiplications over those that the SMs have cycles for, DRAMActive the bytes that a copy moves over those that
the memory could. No other tool is asked, but for the 0.2 us that a block does not see of itself (UNSEEN). Kernels come alone,
back to back, and two at a time on two streams.

PP_CLI  the command line of precisionprobe
PP_NCU  that of ncu, where it is not on PATH; asked for with --steps
"""
import collections
import json
import math
import os
import pathlib
import random
import shlex
import shutil
import statistics
import sys
import tempfile
import time

import accuracy
import errors
import lab
import windows

SOURCE = """
typedef unsigned long long u64;
__device__ u64 wall() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
__device__ void note(u64 *told, u64 *ran, u64 from, long long cycles) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const u64 until = wall();
        atomicAdd(told, until - from); atomicAdd(told + 1, (u64)(clock64() - cycles));
        atomicMin(ran, from); atomicMax(ran + 1, until);
    }
}
extern "C" __global__ void spin(int cycles, u64 *told, u64 *ran) {
    const u64 from = wall();
    const long long begun = clock64();
    while (clock64() - begun < cycles) { }
    note(told, ran, from, begun);
}
extern "C" __global__ void multiply(int loops, float *sink, u64 *told, u64 *ran) {
    const u64 from = wall();
    const long long begun = clock64();
    float a = threadIdx.x, b = 0.5f + a * 1e-7f, c = a * 1e-6f, d = a + 1;
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int k = 0; k < 64; k++) { a = fmaf(a, b, c); d = fmaf(d, b, c); }
    }
    if (a + d == 12345.678f) sink[0] = a;
    note(told, ran, from, begun);
}
"""
PER_LOOP = 128  # multiplications of a thread
LANES, WARPS = 128, 64  # of an SM: multiplications in a cycle, places for warps
COPIED = 1 << 28  # bytes
LENGTHS = (20, 40, 80, 160, 320, 640)  # us
CLOCK_MHZ = 1900  # about: how long a kernel takes is measured
CALLS = 1 << 16  # of a layer, of which it is known from when to when its blocks ran
NEVER = (1 << 63) - 1
WARM = 5  # s: the GPU's clock settles meanwhile, so that kernels take up to 1 % longer; no capture is that early
TICK = 32  # ns, of the GPU's timer
# us that a block takes an SM's places for and does not see of itself, before its first and after its last instruction: what ncu
# counts beyond the blocks' own times, of spinning kernels of 20 to 160 us on an H200 (--steps), and what it scatters by.
UNSEEN = {"SMActive": 0.2, "SMOccupancy": 0.12}
UNSEEN_ERROR = 0.05


def layers(seed, sms):
    """What each layer does, in an order that is drawn: (name, kind, blocks, threads, us, where)."""
    draw, found = random.Random(seed), []
    for i, us in enumerate(LENGTHS * 2):
        share = draw.choice((0.25, 0.5, 0.75, 1.0))
        threads = draw.choice((128, 256, 512, 1024))
        found.append((f"spin{i}", "spin", max(1, round(share * sms)), threads, us, "behind"))
    for i, us in enumerate(LENGTHS):
        found.append((f"multiply{i}", "multiply", sms, draw.choice((256, 512, 1024)), us, "behind"))
    for i, us in enumerate((40, 160)):
        found.append((f"alone{i}", "spin", max(1, sms // 2), 512, us, "alone"))
    draw.shuffle(found)
    found += [("beside0", "spin", sms // 4, 512, 500, "beside"), ("beside1", "spin", sms // 2, 256, 300, "behind"),
              ("copy", "copy", 0, 0, 0, "behind")]
    return found


# ---- the training ----

def build(seed):
    import torch
    from torch import nn
    import models
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    spin, multiply = (torch.cuda._compile_kernel(SOURCE, name) for name in ("spin", "multiply"))
    beside = torch.cuda.Stream()

    class Known(nn.Module):
        def __init__(self, kind, blocks, threads, us, where):
            super().__init__()
            self.kind, self.blocks, self.threads, self.where, self.calls, self.cold = kind, blocks, threads, where, 0, 0
            self.cycles = us * CLOCK_MHZ
            # A warp's instruction takes four cycles to come; a quarter of the SM's lanes does what one of four issues.
            self.loops = max(1, round(self.cycles / PER_LOOP * LANES / max(threads, LANES)))
            self.register_buffer("told", torch.zeros(2, dtype=torch.int64, device="cuda"))
            self.register_buffer("sink", torch.zeros(1, device="cuda"))
            self.register_buffer("ran", torch.tensor([[NEVER, 0]] * (CALLS + 1), device="cuda"))  # ns of the GPU's clock

        def launch(self):
            size = {"grid": (self.blocks, 1, 1), "block": (self.threads, 1, 1)}
            ran = self.ran[min(self.calls, CALLS)]
            if self.kind == "spin":
                spin(**size, args=[self.cycles, self.told, ran])
            else:
                multiply(**size, args=[self.loops, self.sink, self.told, ran])

        def forward(self, x):
            if self.where == "alone":
                torch.cuda.synchronize()
                time.sleep(3e-4)
            if self.where == "beside":
                beside.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(beside):
                    self.launch()
            else:
                self.launch()
            self.calls += 1
            return x

    class Copy(models.Copy):
        def forward(self, x):
            torch.cuda.current_stream().wait_stream(beside)
            return super().forward(x)

    parts = {name: Copy(COPIED, "cuda") if kind == "copy" else Known(kind, *rest) for name, kind, *rest in layers(seed, sms)}
    parts["last"] = nn.Linear(64, 64, device="cuda")
    return sms, nn.Sequential(collections.OrderedDict(parts))


def forget(model):
    """What blocks have noted so far."""
    for part in model.children():
        if hasattr(part, "told"):
            part.told.zero_()
            part.cold = part.calls


def train(args):
    """Steps for a while; says what each layer's blocks noted of a call, on average."""
    import torch
    sms, model = build(args.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(64, 64, device="cuda")
    begun, warm = time.monotonic(), False
    while (now := time.monotonic()) < begun + args.seconds:
        if not warm and now >= begun + WARM:
            warm = True
            forget(model)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    told = {}
    for name, part in model.named_children():
        if hasattr(part, "calls"):
            ns, cycles = (value / (part.calls - part.cold) for value in part.told.tolist())
            told[name] = {"us": ns / 1e3, "mhz": cycles / ns * 1e3, "threads": part.threads, "blocks": part.blocks,
                          "multiplications": PER_LOOP * part.loops * part.threads * part.blocks
                          if part.kind == "multiply" else 0}
            told[name]["ran"] = part.ran[:min(part.calls, CALLS)].tolist()
    with open(os.environ["PP_KNOWN_TOLD"], "w", encoding="utf-8") as file:
        json.dump({"sms": sms, "layers": told}, file)


def step(args):
    """Some steps, which ncu looks at."""
    import torch
    _, model = build(args.seed)
    x = torch.randn(64, 64, device="cuda")
    model(x)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(args.steps):
        model(x)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def looked_at(args, folder, sms):
    """{(layer, phase): {"us": under ncu, metric: [percent of the SMs' time, in each step]}} by Nsight Compute."""
    ncu = shlex.split(os.environ.get("PP_NCU") or shutil.which("ncu") or sys.exit("no ncu on PATH: set PP_NCU"))
    metrics = ("SMActive", "SMOccupancy", "FP32Active")
    wanted = ",".join([accuracy.METRICS[name] + accuracy.PEAK for name in metrics] + [accuracy.TIME])
    text = accuracy.run([*ncu, "--profile-from-start", "off", "--cache-control", "none", "--clock-control", "none", "--csv",
                         "--page", "raw", "-k", "regex:^(spin|multiply)", "--metrics", wanted, *command_of(args)],
                        env={**os.environ, "PP_KNOWN_ROLE": "step"})
    (folder / "ncu.csv").write_text(text, encoding="utf-8")
    kernels, names = accuracy.table(folder / "ncu.csv"), [name for name, kind, *_ in layers(args.seed, sms) if kind != "copy"]
    found = {}
    for i, kernel in enumerate(kernels):
        row = found.setdefault((names[i % len(names)], "forward"), {"us": [], **{name: [] for name in metrics}})
        row["us"].append(kernel[accuracy.TIME])
        for name in metrics:
            row[name].append(accuracy.percent(kernel, name, "Sampling"))
    return found


def print_peer(true, peer):
    """What Nsight Compute says of the same kernels alone, of its own time, and by how much it differs from step to step."""
    for low, high in ((50, float("inf")), (10, 50)):
        for metric in ("SMActive", "SMOccupancy", "FP32Active"):
            off, spread = [], []
            for key, row in peer.items():
                if metric not in true.get(key, {}) or not low <= true[key]["us"] < high:
                    continue
                us = true[key]["us"]
                values = [value * time / us for value, time in zip(row[metric], row["us"])]
                off.append(statistics.mean(values) - true[key][metric])
                spread.append(statistics.stdev(values))
            if off:
                lab.figure(f"ncu's {metric} less what is known, rows of {low} us and more", statistics.mean(off), "points",
                           rms=math.sqrt(statistics.mean(x * x for x in off)), from_step_to_step=statistics.mean(spread),
                           rows=len(off), steps=len(row["us"]))


def command_of(args):
    return [*lab.python(), os.path.abspath(__file__), "--seconds", str(args.seconds), "--seed", str(args.seed), "--steps", str(args.steps)]


def profiled(args, folder):
    told = folder / "told.json"
    results = lab.profile(command_of(args), folder / "results", "--method", "Sampling", "--budget", str(args.budget),
                          "--capture", args.capture, *["--keep-windows"] * bool(args.keep), env={"PP_KNOWN_ROLE": "train", "PP_KNOWN_TOLD": str(told)})
    return json.loads(told.read_text(encoding="utf-8")), results


# ---- what is known, and what was told ----

def truth(known, gpu, unseen=True):
    """{(layer, phase): {"us": recorded, metric: percent, "errors": {metric: what that may be off by}}}. Without `unseen` metrics
    are what blocks have noted of themselves."""
    sms, found = known["sms"], {}
    for item in gpu["items"]:
        if item["kind"] != "layer" or item["phase"] != "forward":
            continue
        us = item["busyMillisecondsPerStep"] * 1e3
        row = {"us": us}
        if item["layer"] in known["layers"]:
            one = known["layers"][item["layer"]]
            for name, places in (("SMActive", 1), ("SMOccupancy", one["threads"] / 32 / WARPS)):
                row[name] = 100 * (one["us"] + UNSEEN[name] * one["blocks"] * unseen) / us / sms * places
            if one["multiplications"]:
                row["FP32Active"] = 100 * one["multiplications"] / (LANES * sms * us * one["mhz"])
        elif item["layer"] == "copy" and item["metrics"]["DRAMActive"].get("peak"):
            row["DRAMActive"] = 100 * 2 * COPIED / (item["metrics"]["DRAMActive"]["peak"] * us / 1e6)
        else:
            continue
        row["errors"] = {name: row[name] * UNSEEN_ERROR / us if name in UNSEEN else 0.0 for name in errors.METRICS if name in row}
        found[item["layer"], "forward"] = row
    return found


def print_z(told, true, kind):
    """Root mean square of error over standard error and what is known may be off by together, of a class of rows."""
    name, low, high, _, _ = kind
    for metrics in (*((metric,) for metric in errors.METRICS), errors.METRICS):
        found = [off / error for metric in metrics for off, _, _, key in errors.compare(told, true, metric, low, high)
                 if (error := math.hypot(told[key][metric][1], true[key]["errors"][metric])) > 0]
        if found:
            what = metrics[0] if len(metrics) == 1 else "all metrics"
            z = math.sqrt(sum(z * z for z in found) / len(found))
            asked = {"must": "0.8 to 1.25", "holds": 0.8 <= z <= 1.25} if len(metrics) > 1 else {}
            lab.figure(f"error over standard error of {what}, rows {name}", z, "rms", values=len(found), **asked)


# ---- records against the GPU's own clock ----

def line_of(points):
    """The slope of a line, its standard error and what is left (root mean square): of [(x, y)]."""
    n, middle, mean = len(points), statistics.mean(x for x, _ in points), statistics.mean(y for _, y in points)
    xx = sum((x - middle) ** 2 for x, _ in points)
    slope = sum((x - middle) * (y - mean) for x, y in points) / xx
    rest = math.sqrt(sum((y - mean - slope * (x - middle)) ** 2 for x, y in points) / (n - 2))
    return slope, rest / math.sqrt(xx), rest


def by_ticks(kernels):
    """By how much the kernels' clock is faster than the GPU's timer, by what times have beyond its ticks (join_stamps.c)."""
    times = [b.start - a.start for a, b in zip(kernels, kernels[1:]) if 0 < b.start - a.start < 1e6]
    return sum(time - TICK * round(time / TICK) for time in times) / sum(times)


def calls_of(window, known):
    """[(kernel, when its first block began and its last ended)] of a window: a step's first kernels are its layers', in their order
    up to those that run beside each other."""
    layers_ran = [layer["ran"] for name, layer in known["layers"].items() if not name.startswith("beside")]
    steps = collections.defaultdict(list)
    for kernel in window.kernels:
        if kernel.phase == windows.FORWARD:
            steps[kernel.step].append(kernel)
    whole = {step: sorted(kernels)[:len(layers_ran)] for step, kernels in steps.items() if len(kernels) >= len(layers_ran)}

    def pairs(shift):
        return [(kernel, ran[step + shift]) for step, kernels in whole.items() for kernel, ran in zip(kernels, layers_ran)
                if 0 <= step + shift < len(ran)]

    def spread(shift):
        off = sorted(ran[0] - kernel.start for kernel, ran in pairs(shift)) or [0, math.inf]
        return off[len(off) * 9 // 10] - off[len(off) // 10]
    return pairs(min(range(-3, 4), key=spread))


def print_records(kept, known):
    """Kernels' records against the GPU's timer, which their blocks read: by how much their clock is faster in a window."""
    for window in kept:
        found = calls_of(window, known)
        if len(found) < 100:
            continue
        slope, error, rest = line_of([(ran[0] / 1e9, (kernel.start - ran[0]) / 1e3) for kernel, ran in found])
        longer = statistics.median(kernel.end - kernel.start - (ran[1] - ran[0]) for kernel, ran in found) / 1e3
        lab.figure("records' clock is faster than the GPU's timer", slope, "ppm", window=window.path.name, error=error,
                   by_ticks=1e6 * by_ticks(sorted(window.kernels)), rest_us=rest, longer_than_blocks_us=longer, kernels=len(found),
                   seconds=(found[-1][0].start - found[0][0].start) / 1e9)


def main():
    args = lab.arguments(__doc__, seconds=(60.0, "seconds of the training"), budget=(10.0, "percent"),
                         capture=("400ms", "a capture's length"), seed=(1, "by which layers are drawn"),
                         steps=(0, "that Nsight Compute looks at too"), keep=("", "a folder for what was measured"))
    role = {"train": train, "step": step}.get(os.environ.get("PP_KNOWN_ROLE"))
    if role:
        role(args)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        known, results = profiled(args, folder)
        peer = looked_at(args, folder, known["sms"]) if args.steps else {}
        kept = windows.of_run(folder / "results") if args.keep else []
    true, told = truth(known, results["gpus"][0]), errors.estimates(results, "Sampling")
    for key, row in sorted(true.items(), key=lambda pair: pair[1]["us"]):
        values = told.get(key, {})
        layer = {name: value for name, value in known["layers"].get(key[0], {}).items() if name != "ran"}
        lab.figure("a row", row["us"], "us", row=key[0], **layer,
                   **{metric: [row[metric], *values.get(metric, ())] for metric in errors.METRICS if metric in row})
    page = []
    for kind in errors.fine_classes():
        errors.print_class(told, true, kind, page, "by construction", "known")
        print_z(told, true, kind)
    print_peer(truth(known, results["gpus"][0], unseen=False), peer)
    print_records(kept, known)
    errors.print_coverage(told, true, "known", 95)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
