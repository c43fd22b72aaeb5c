"""Per layer and phase: what PM sampling tells of the virtual GPU's counters, against what ran there.

The counterpart of accuracy.py where there is no GPU: `precisionprobe run --method Sampling` of ../training/kernels.py, whose
kernels' levels are drawn from the seed, on the virtual GPU's driver (../gpu/driver). Samples are 100 us long there, four
times as long as on a GPU, and so are the classes of rows.

PP_CLI    the command line of precisionprobe, with its hook beside it or in PRECISIONPROBE_HOOK
PP_VGPU   the folder with the built driver: e2e/gpu/driver in a build folder
PP_PYTHON the Python that trains (with torch), where it is not the one that runs this
"""
import argparse
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

import errors
import lab

E2E = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(E2E))
from harness import driver  # noqa: E402

PERIOD = 100  # us


def train(args, folder):
    """(what the training printed last, results)."""
    timeline = str(folder / "timeline")
    laid = driver.lay_out(lab.needed("PP_VGPU"), str(folder / "driver"), timeline)
    command = [*shlex.split(lab.needed("PP_CLI")), "run", "--quiet", "--method", "Sampling", "--sampling-period", f"{PERIOD}us",
               "--budget", str(args.budget), "--capture", "2s", "-o", str(folder / "results"), "--", *lab.python(),
               str(E2E / "training/kernels.py"), laid, timeline, args.model, str(args.seed), str(args.seconds), str(args.times)]
    environment = {**os.environ, "LD_LIBRARY_PATH": laid, "NVIDIA_VISIBLE_DEVICES": driver.GPU, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return driver.truth_of(done.stdout), json.loads((folder / "results/results.json").read_text(encoding="utf-8"))


def truth_of(said):
    return {(row["layer"], row["phase"]): {"us": row["ns"] / 1000 / said["steps"],
                                           **{name: 100 * row[name] for name in errors.METRICS if name in row}} for row in said["truth"]}


def evaluate(args, said, results):
    if not errors.print_fine(args.model, results["gpus"][0].get("fine")):
        return []
    true, told, page = truth_of(said), errors.estimates(results, "Sampling"), []
    for kind in errors.fine_classes(PERIOD):
        errors.print_class(told, true, kind, page, "truth", args.model)
    errors.print_coverage(told, true, args.model, 95, short=10 * PERIOD / 25)
    return page


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("long", "short", "random"))
    parser.add_argument("--seed", type=int, help="of what is drawn; default: another one each time")
    parser.add_argument("--seconds", type=float, default=20.0, help="that it trains at least (20)")
    parser.add_argument("--times", type=int, default=8, help="that the monitors are read at least (8)")
    parser.add_argument("--budget", type=float, default=0.6, help="percent (0.6: captures with times between them)")
    parser.add_argument("--page", help="a Markdown file to which the table is added")
    return parser.parse_args()


def main():
    args = arguments()
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 30)
    with tempfile.TemporaryDirectory() as scratch:
        said, results = train(args, pathlib.Path(scratch))
        lab.figure("seed", args.seed, model=args.model, steps=said["steps"], seconds=said["seconds"])
        page = evaluate(args, said, results)
    if args.page:
        errors.write_page(args.page, f"virtual GPU, {args.model}, seed {args.seed}", page)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
