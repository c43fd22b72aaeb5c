"""Per layer and phase: what PM sampling, replays or regression tell of the GPU's counters, against Nsight Compute.

Three processes of the same training, which share nothing: `precisionprobe run` samples one; Nsight Compute
measures each kernel of one step of another, in one pass per group of metrics, caches and clocks left alone;
torch.profiler records a third, which tells in order of their launches whose each kernel is (busy.py).

PP_CLI  the command line of precisionprobe; PP_NCU that of ncu, where it is not on PATH
"""
import argparse
import bisect
import csv
import difflib
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

import again
import busy
import errors
import lab
import whole_samples
import windows

PEAK = ".avg.pct_of_peak_sustained_elapsed"
TIME = "gpu__time_duration.sum"
METRICS = {"SMActive": "sm__cycles_active", "SMOccupancy": "sm__warps_active", "DRAMActive": "dram__throughput",
           "FP32Active": "sm__inst_executed_pipe_fma", "TensorActive": "sm__pipe_tensor_cycles_active"}
# What NVML counts as FP32Active (docs/accuracy.md): no integer instructions of that pipe.
FP32 = tuple(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("ffma", "fadd", "fmul"))
CYCLES = "sm__cycles_elapsed.sum"
ELAPSED = "sm__cycles_elapsed.avg"
LANES = 128  # threads whose instructions an SM executes in a cycle
PASSES = (("SMActive", "SMOccupancy", "DRAMActive"), ("FP32Active",), ("TensorActive",))  # what ncu measures in one run each
# Rows by their busy time; limits of the mean error of a metric, and of all p95, points (errors.py).
CLASSES = {
    "Sampling": errors.fine_classes(),
    "Replay": (("of layers", 0, float("inf"), {"SMActive": 3.0, "SMOccupancy": 3.0, "DRAMActive": 5.0}, None),
                 *((name, low, high, {}, None) for name, low, high, _, _ in errors.fine_classes())),
    "Regression": (("of layers", 0, float("inf"), dict.fromkeys(METRICS, 3.0), None),),
}
COVERAGE = {"Sampling": 95, "Replay": 0, "Regression": 0}  # percent of the busy time in rows that have a value
TO_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}


# ---- the trainings ----

def train(args):
    """A training that steps for a while, or whose one step is looked at by ncu."""
    import time
    import torch
    import models
    training = models.build(args.model, "cuda", batch=args.batch)
    for _ in range(3 if args.model.startswith("slow") else 30):
        training.step()
    torch.cuda.synchronize()
    if args.role == "step":
        torch.cuda.profiler.start()
        training.step()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        return
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        training.step()
    torch.cuda.synchronize()


# Of layers that do the same again and again the peers look at two times: a kernel's counters are the same each time.
LOOKED_AT = {"slow": "slow-short"}


def command_of(args, role):
    batch = ["--batch", str(args.batch)] if args.batch else []
    model = args.model if role == "train" else LOOKED_AT.get(args.model, args.model)
    return [*lab.python(), os.path.abspath(__file__), model, *batch, "--role", role, "--seconds", str(args.seconds)]


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def sample(args, folder):
    lab.profile(command_of(args, "train"), folder / "results", "--method", args.method, "--budget", str(args.budget),
                "--capture", f"{args.capture}s", *["--keep-windows"] * bool(args.keep), *shlex.split(args.more))


def asked(name, method):
    """ncu's metrics for one of ours."""
    return (*FP32, CYCLES) if name == "FP32Active" and method != "Sampling" else (METRICS[name] + PEAK,)


def percent(kernel, name, method):
    """Of a kernel's time under ncu."""
    values = [float(kernel[metric].replace(",", "")) for metric in asked(name, method)]
    return values[0] if len(values) == 1 else 100 * sum(values[:-1]) / LANES / values[-1]


def measure(args, folder, kind="ncu", *options):
    ncu = shlex.split(os.environ.get("PP_NCU") or shutil.which("ncu") or sys.exit("no ncu on PATH: set PP_NCU"))
    for number, names in enumerate(PASSES):
        if (folder / f"{kind}{number}.csv").exists():
            continue
        metrics = ",".join([metric for name in names for metric in asked(name, args.method)] + [TIME, ELAPSED])
        text = run([*ncu, "--cache-control", "none", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", metrics,
                    *(options or ("--profile-from-start", "off")), *command_of(args, "step")])
        (folder / f"{kind}{number}.csv").write_text(text, encoding="utf-8")


def measure_step(args, folder):
    """The step as one range, in which kernels run as they do in training: none waits for another."""
    measure(args, folder, "range", "--replay-mode", "app-range")


def record(args, folder):
    """Whose each kernel of a step is: [name, us, layer, phase] in order of their launches."""
    looked_at = argparse.Namespace(**{**vars(args), "model": LOOKED_AT.get(args.model, args.model)})
    with lab.Trainer(looked_at) as trainer:
        trainer.ask("warm")
        trainer.ask("record", steps=3, path=str(folder / "trace.json"))
    found = busy.Record(folder / "trace.json", "cuda")
    kernels = sorted(found.kernels, key=lambda pair: pair[1]["ts"])
    rows = [[kernel["name"], kernel["dur"], *found.row(launch)] for kernel, launch in kernels
            if bisect.bisect_right(found.begins, launch["ts"]) == 2]
    (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    for name in ("trace.json", "trace.json.graph"):
        (folder / name).unlink()


# ---- what they tell ----

def table(path):
    """ncu's table: a dict for each kernel, numbers as they are, times in us."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = list(csv.reader(line for line in file if line.startswith('"')))
    if len(lines) < 3:
        sys.exit(f"{path} has no table of ncu's: is profiling allowed here?")
    head, units = lines[0], dict(zip(lines[0], lines[1]))
    kernels = [dict(zip(head, line)) for line in lines[2:]]
    for kernel in kernels:
        kernel[TIME] = float(kernel[TIME].replace(",", "")) * TO_US[units[TIME]]
    return kernels


def base_name(name):
    """What a kernel's function is called, without its namespaces, template's arguments and parameters."""
    mangled = re.match("_ZN?", name)
    if mangled:
        at, parts = mangled.end(), []
        while length := re.match(r"\d+", name[at:]):
            begin = at + length.end()
            at = begin + int(length[0])
            parts.append(name[begin:at])
        return parts[-1] if parts else name
    plain = re.sub(r"\(anonymous namespace\)|<unnamed>", "", name.removeprefix("void "))
    return re.split("[<(]", plain)[0].strip().rpartition("::")[2]


def matched(rows, found):
    """For each recorded kernel that of ncu's run, matched in order by names; None where that run has none."""
    ours, theirs = ([base_name(name) for name in names]
                    for names in ((row[0] for row in rows), (kernel["Kernel Name"] for kernel in found)))
    pairs = [None] * len(rows)
    for block in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        pairs[block.a:block.a + block.size] = found[block.b:block.b + block.size]
    return pairs


def match(rows, tables, model):
    """ncu's kernels in the order of the recorded ones: [of each run: a kernel, or None]."""
    runs = [matched(rows, found) for found in tables]
    known = sum(us for i, (_, us, *_) in enumerate(rows) if all(run[i] for run in runs))
    share = 100 * known / sum(us for _, us, *_ in rows)
    lab.figure("kernels that ncu saw by the same names in the same order", share, "% of their time", must=">= 95",
               holds=share >= 95, kernels=len(rows), ncus=[len(found) for found in tables], model=model)
    return runs


def ncu_is_longer(rows, runs):
    """us by which its kernels are longer than their records: the median."""
    return statistics.median(kernel[TIME] - row[1] for run in runs for kernel, row in zip(run, rows) if kernel)


def cycles(kernel):
    """Of an SM, while ncu looked at a kernel; None in tables of earlier runs."""
    text = kernel.get(ELAPSED)
    return float(text.replace(",", "")) if text else None


def idle_clock(runs):
    """MHz: the fastest that an SM ran at, which is what it does where nothing slows it down."""
    clocks = [cycles(kernel) / kernel[TIME] for run in runs for kernel in run if kernel and cycles(kernel)]
    return max(clocks, default=None)


def of_record(kernel, name, us, longer, clock):
    """By what a share that ncu tells is to be multiplied to be one of the time that a kernel's record has.

    Nothing of the kernel runs in the time by which ncu's is longer. Shares within SMs are of their cycles, of which such
    time has more than as much of the kernel's own, where that slows the clock down."""
    if name == "DRAMActive" or not clock or not cycles(kernel):
        return (us + longer) / us
    return cycles(kernel) / (cycles(kernel) - longer * clock)


def percent_of_record(kernel, name, us, longer, clock, method):
    """Of the time that a kernel's record has, `us`."""
    return percent(kernel, name, method) * of_record(kernel, name, us, longer, clock)


def truth(rows, runs, model, method="Sampling"):
    """{(layer, phase): {"us": of a step, metric: percent}} of rows all of whose kernels ncu saw.

    What ncu counts for a kernel it divides by a time that begins before and ends after what the kernel's record has:
    shares of that time are turned into shares of the record's by the median of the difference over all kernels.
    """
    longer, clock = ncu_is_longer(rows, runs), idle_clock(runs)
    lab.figure("ncu's kernels are longer than their records", longer, "us", kernels=len(rows), idle_mhz=clock, model=model)
    sums, missed = {}, set()
    for i, (_, us, layer, phase) in enumerate(rows):
        row = sums.setdefault((layer, phase), {"us": 0.0, **dict.fromkeys(METRICS, 0.0)})
        row["us"] += us
        for run, names in zip(runs, PASSES):
            if run[i] is None:
                missed.add((layer, phase))
                continue
            for name in names:
                row[name] += us * percent_of_record(run[i], name, us, longer, clock, method)
    return {key: {"us": row["us"], **{name: row[name] / row["us"] for name in METRICS}} for key, row in sums.items()
            if key not in missed}


def alike(rows, runs):
    """Rows whose kernels last as long under ncu as they were recorded, to 5 %, its median difference apart. Where they
    do not, ncu has looked at another run of them: alone, it leaves no kernel the traffic of those before it."""
    longer = ncu_is_longer(rows, runs)
    times = {}
    for i, (_, us, layer, phase) in enumerate(rows):
        if runs[0][i]:
            pair = times.setdefault((layer, phase), [0.0, 0.0])
            pair[0] += us + longer
            pair[1] += runs[0][i][TIME]
    return {key for key, (recorded, measured) in times.items() if abs(measured / recorded - 1) < 0.05}


def by_kernel(rows, runs, passes=PASSES):
    """What ncu says of the i-th kernel, percent of its record's time: a function of i and a metric of the passes, which `runs` are
    of; None where it has not seen it."""
    longer, clock = ncu_is_longer(rows, runs), idle_clock(runs)
    run_of = {name: run for run, names in zip(runs, passes) for name in names}

    def ncu(i, name):
        kernel = run_of[name][i]
        return kernel and percent_of_record(kernel, name, rows[i][1], longer, clock, "Sampling")

    return ncu


def print_step(folder, results, runs, model, method):
    """A step's activity, us of all: as sampled, by ncu's range of one step, and the sum of ncu's kernels.

    The counters of a range and of samples are the same, and no row is told from another: what these two differ by is no
    matter of whose a sample is. What the sum of kernels differs from the range by is what ncu does to kernels."""
    gpu = results["gpus"][0]
    for number, names in enumerate(PASSES):
        step, = table(folder / f"range{number}.csv")
        for name in names:
            sampled = [fine["closure"][name]["held"] for fine in gpu["fine"] if name in fine.get("closure", {})]
            ours = sampled[0] * gpu["stepMs"] * 1e3 if len(sampled) == 1 else None
            kernels = [(percent(run[number], name, method), run[number][TIME]) for run in zip(*runs) if run[number]]
            lab.figure(f"{name} of a step", ours, "us", peer=percent(step, name, method) * step[TIME] / 100,
                       ncus_kernels=sum(value * us for value, us in kernels) / 100, step_us=gpu["stepMs"] * 1e3,
                       range_us=step[TIME], kernels_us=sum(us for _, us in kernels), model=model)


def evaluate(args, folder):
    rows = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    results = json.loads((folder / "results" / "results.json").read_text(encoding="utf-8"))
    if args.method == "Sampling" and not errors.print_fine(args.model, results["gpus"][0].get("fine")):
        return []
    if args.method == "Replay":
        lab.figure("pause", results["pausedNs"] / 1e9, "s", model=args.model, holds=results["pausedNs"] > 0)
        errors.print_closure(args.model, results["gpus"][0].get("closure") or {})
    runs = match(rows, [table(folder / f"ncu{i}.csv") for i in range(len(PASSES))], args.model)
    if args.step:
        print_step(folder, results, runs, args.model, args.method)
    true = truth(rows, runs, args.model, args.method)
    kept = windows.of_run(folder / "results")
    told = again.estimates(args.again, kept, rows) if args.again else errors.estimates(results, args.method)
    if args.method == "Regression":
        lab.figure("lag", results["gpus"][0]["lagMs"], "ms", model=args.model, error=results["gpus"][0]["lagStandardErrorMs"],
                   windows=results["gpus"][0]["windows"])
        for (layer, phase), row in true.items():
            values = told.get((layer, phase), {})
            lab.figure("a row", row["us"], "us", model=args.model, row=f"{layer} {phase}",
                       **{name: [row[name], *values.get(name, ())] for name in METRICS})
    if args.method == "Sampling":
        whole_samples.print_figures(kept, METRICS, rows, by_kernel(rows, runs), args.model)
    page = []
    for kind in CLASSES[args.method]:
        errors.print_class(told, true, kind, page, "ncu", args.model, alike(rows, runs))
    errors.print_coverage(told, true, args.model, COVERAGE[args.method])
    return page


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--method", default="Sampling", choices=tuple(CLASSES))
    parser.add_argument("--more", default="", help="further options of precisionprobe run, e.g. '--replay-duration 600ms'")
    parser.add_argument("--batch", type=int, help="batch size, where it is not the model's own")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the sampled training (60)")
    parser.add_argument("--budget", type=float, default=5.0, help="percent (5)")
    parser.add_argument("--capture", type=float, default=2.0, help="seconds (2)")
    parser.add_argument("--keep", help="a folder for what was measured; with it there, nothing is measured again")
    parser.add_argument("--again", metavar="PROGRAM", help="sample_again of a build: what it makes of the windows in --keep's folder")
    parser.add_argument("--step", action="store_true", help="compare a step's sums with ncu's range of a step, too (minutes)")
    parser.add_argument("--page", help="a Markdown file to which the table is added")
    parser.add_argument("--role", choices=("train", "step"), help=argparse.SUPPRESS)
    parser.set_defaults(device="cuda", small=False)
    return parser.parse_args()


def main():
    args = arguments()
    if args.role:
        train(args)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        makers = [("results/results.json", sample), ("rows.json", record), (f"ncu{len(PASSES) - 1}.csv", measure)]
        if args.step:
            makers.append((f"range{len(PASSES) - 1}.csv", measure_step))
        for made, make in makers:
            if not (folder / made).exists():
                make(args, folder)
        page = evaluate(args, folder)
    if args.page:
        errors.write_page(args.page, args.model + (f", batch {args.batch}" if args.batch else ""), page)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
