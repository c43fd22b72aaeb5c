"""Consumption patterns of the same training, run after run, and of another one.

`precisionprobe run --method Sampling` of ../training/kernels.py on the virtual GPU's driver (../gpu/driver): so many runs of one
seed, and as many of another, whose kernels have other levels; or, on a GPU, of one of the benches' trainings with two batch
sizes. A figure of a run is held against its mean over the runs, in its own standard errors: z is the root mean square of these
over all figures, and 1 where standard errors say what differs. Two trainings are told apart where any figure of theirs differs
by more than 5 standard errors.

PP_CLI    the command line of precisionprobe, with its hook beside it or in PRECISIONPROBE_HOOK
PP_VGPU   the folder with the built driver: e2e/gpu/driver in a build folder
PP_PYTHON the Python that trains (with torch), where it is not the one that runs this
"""
import argparse
import json
import math
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys
import tempfile

import lab

E2E = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(E2E))
from harness import driver  # noqa: E402

VIRTUAL = ("long", "short", "random")
LOW, HIGH = 0.8, 1.25
APART = 5


def on_virtual_gpu(args, seed, folder):
    """What trains, its environment, and options of `precisionprobe run`."""
    timeline = str(folder / "timeline")
    laid = driver.lay_out(lab.needed("PP_VGPU"), str(folder / "driver"), timeline)
    command = [*lab.python(), str(E2E / "training/kernels.py"), laid, timeline, args.model, str(seed), str(args.seconds), "4"]
    return command, {"LD_LIBRARY_PATH": laid, "NVIDIA_VISIBLE_DEVICES": driver.GPU, "OMP_NUM_THREADS": "1"}, \
        ["--sampling-period", "100us"]


def on_gpu(args, batch):
    command = [*lab.python(), str(lab.HERE / "accuracy.py"), args.model, "--role", "train", "--seconds", str(args.seconds)]
    return command + (["--batch", str(batch)] if batch else []), {}, []


def train(args, which, folder):
    """The pattern of one run, of a seed or a batch size."""
    command, more, options = on_virtual_gpu(args, which, folder) if args.model in VIRTUAL else on_gpu(args, which)
    command = [*shlex.split(lab.needed("PP_CLI")), "run", "--quiet", "--method", "Sampling", *options, "--budget", str(args.budget),
               "--capture", "2s", "-o", str(folder / "results"), "--", *command]
    environment = {**os.environ, **more}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    results = folder / "results/results.json"
    if args.keep:
        kept = pathlib.Path(args.keep)
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(results, kept / f"{args.model}-{which}-{len(list(kept.iterdir()))}.json")
    return json.loads(results.read_text(encoding="utf-8"))["pattern"]


def figures(pattern):
    """{(group, name): (value, standard error)} of those that have one."""
    found = {("step", name): pattern["step"].get(name) for name in ("milliseconds", "idleShare")}
    found |= {("bounds", bound["by"]): bound["share"] for bound in pattern["bounds"]}
    found |= {("time", part.get("layerType") or part.get("phase")): part["share"] for part in pattern["time"]}
    for metric in pattern["metrics"]:
        found |= {(f"{part} of metrics", metric["name"]): metric.get(part) for part in ("mean", "p50", "p95")}
    return {key: (f["value"], f["standardError"]) for key, f in found.items() if f and f.get("standardError", 0) > 0}


def squares(runs, key):
    """Of each run's figure: the square of what it is off the mean, in its standard errors, as of n runs."""
    values = [run[key] for run in runs if key in run]
    if len(values) < 3:
        return []
    mean = sum(value for value, _ in values) / len(values)
    return [((value - mean) / error) ** 2 * len(values) / (len(values) - 1) for value, error in values]


def agreement(runs):
    """z by group and of all metrics' figures."""
    groups, of_key = {}, {}
    for key in sorted(set().union(*runs)):
        of_key[key] = squares(runs, key)
        groups.setdefault(key[0], []).extend(of_key[key])
    for group, found in groups.items():
        if found:
            worst = max((key for key in of_key if key[0] == group and of_key[key]), key=lambda key: sum(of_key[key]))
            lab.figure(f"z of patterns' figures: {group}", math.sqrt(sum(found) / len(found)), figures=len(found), worst=worst[1],
                       of_which=[run[worst] for run in runs if worst in run])
    of_metrics = [s for group, found in groups.items() if group.endswith("metrics") for s in found]
    z = math.sqrt(sum(of_metrics) / len(of_metrics))
    lab.figure("z of patterns' figures: all of metrics", z, figures=len(of_metrics), holds=LOW <= z <= HIGH)


def differences(ones, others, group):
    """Of two trainings, run by run: the largest difference of a metric's mean in its standard errors."""
    return [max(abs(one[key][0] - other[key][0]) / math.hypot(one[key][1], other[key][1])
                for key in one if key in other and key[0] == group) for one, other in zip(ones, others)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=(*VIRTUAL, *lab.MODELS, *lab.LIBRARIES))
    parser.add_argument("--seed", type=int, help="of what is drawn; default: another one each time")
    parser.add_argument("--batch", type=int, default=0, help="on a GPU: batch size (the model's own)")
    parser.add_argument("--other-batch", type=int, default=0, help="on a GPU: that of the training that is to be told apart")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="that each trains at least (20)")
    parser.add_argument("--budget", type=float, default=0.6, help="percent (0.6: captures with times between them)")
    parser.add_argument("--keep", help="a folder for the results of each run")
    return parser.parse_args()


def main():
    args = arguments()
    seed = random.SystemRandom().randrange(1 << 29) if args.seed is None else args.seed
    one, other = (seed, seed + 1) if args.model in VIRTUAL else (args.batch, args.other_batch)
    runs = {}
    for which in (one, other):
        for _ in range(args.runs):
            with tempfile.TemporaryDirectory() as scratch:
                runs.setdefault(which, []).append(figures(train(args, which, pathlib.Path(scratch))))
    lab.figure("seed or batch size", one, model=args.model, runs=args.runs)
    agreement(runs[one])
    group = "mean of metrics"
    apart = differences(runs[one], runs[other], group)
    lab.figure("largest difference of another training's metrics, least of the runs", min(apart), "standard errors",
               holds=min(apart) > APART)
    same = differences(runs[one], runs[one][1:] + runs[one][:1], group)
    lab.figure("the same of two runs of one, most of the runs", max(same), "standard errors", limit=APART)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
