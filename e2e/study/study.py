"""The paper's study: three trainings profiled, its table and figures from their results, its statements held against these.

    PP_CLI=precisionprobe python3 e2e/study/study.py --output study

needs a GPU of 24 GiB or more, torch, torchvision and transformers. Each training gets the largest batch, of powers of two, whose
step takes at most --gib; DLRM has the paper's, 1K. With --small it runs small models on the CPU, to try the program.

PP_CLI    the command line of precisionprobe
PP_PYTHON the Python that trains, where it is not the one that runs this
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys

import statements

HERE = pathlib.Path(__file__).resolve().parent
PAPER = {"dlrm": ("514M", "65.26 %", "24.87 GB"), "resnext": ("460M", "94.92 %", "21.12 GB"), "gpt2": ("461M", "85.8 %", "18.08 GB")}
SMALL = {"dlrm": 64, "resnext": 2, "gpt2": 2}
PACED = 10  # s of a training without the probe, which tell how many steps the time to warm up is
WORDS = {True: "yes", False: "no", None: "not known"}


def cli(*arguments):
    return [*shlex.split(os.environ.get("PP_CLI") or "precisionprobe"), *arguments]


def training(*arguments):
    python = shlex.split(os.environ.get("PP_PYTHON") or sys.executable)
    return [*python, str(HERE / "trainings.py"), *map(str, arguments)]


def warm_steps(seconds, *arguments):
    told = subprocess.run(training(*arguments, "--seconds", PACED), check=True, stdout=subprocess.PIPE, text=True)
    return round(int(told.stdout.split()[0]) / PACED * seconds)


def profile(name, args):
    """Runs it under the probe; its folder of results."""
    folder = args.output / name
    if name == "dlrm" and not args.small:
        batch = 1024
    elif args.small:
        batch = SMALL[name]
    else:
        found = subprocess.run(training(name, "--fit", args.gib), check=True, stdout=subprocess.PIPE, text=True)
        batch = int(found.stdout.split()[-1])
    which = (name, "--batch", batch, *(["--small"] if args.small else []))
    warm = warm_steps(args.warm, *which)
    command = training(*which, "--seconds", args.seconds + args.warm + 20)
    print(f"{name}: batch {batch}", flush=True)
    asked = (f"--duration={args.seconds:.0f}s", f"--steps-skip={warm}", "--output", str(folder))
    subprocess.run(cli("run", "--quiet", *asked, "--", *command),
                   check=True, stdout=subprocess.DEVNULL)
    (folder / "batch").write_text(f"{batch}\n")
    return folder


def rows_of(folder):
    """As the HTTP API has them."""
    told = subprocess.run(cli("report", "--format=json", str(folder)), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(told.stdout)["items"]


def table_of_paper():
    lines = ["| Model | Parameters | GPU utilization | Memory used |", "|---|---|---|---|"]
    return lines + [f"| {name} | {' | '.join(PAPER[name])} |" for name in PAPER]


def table_of_statements(runs):
    lines = ["| | the paper says | holds here | by |", "|---|---|---|---|"]
    for where, text, ask in statements.STATEMENTS:
        holds, figures = ask(runs)
        lines.append(f"| {where} | {text} | {WORDS[holds]} | {figures} |")
    return lines


def write(args, folders):
    runs = {name: rows_of(folder) for name, folder in folders.items()}
    drawn = args.output / "figures"
    subprocess.run(cli("figures", "-o", str(drawn), *map(str, folders.values())), check=True, stdout=subprocess.DEVNULL)
    batches = ", ".join(f"{name} {(folder / 'batch').read_text().strip()}" for name, folder in folders.items())
    text = ["## Table III", "", "Here:", "", (drawn / "jobs.md").read_text().rstrip(), "", f"Batches: {batches}.", "", "In the paper:", "",
            *table_of_paper(), "", "## Its statements", "", *table_of_statements(runs)]
    (args.output / "study.md").write_text("\n".join(text) + "\n")
    print((args.output / "study.md").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("study"))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each session (60)")
    parser.add_argument("--warm", type=float, default=30.0, help="s before each session begins (30): what Adam does of DLRM changes for 20 s")
    parser.add_argument("--gib", type=float, default=18.0, help="that a step may take of the GPU (18)")
    parser.add_argument("--small", action="store_true", help="small models on the CPU")
    parser.add_argument("--only", choices=sorted(PAPER), action="append", help="one of them (any number)")
    parser.add_argument("--again", action="store_true", help="profile nothing: write what is in the folder again")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in PAPER if not args.only or name in args.only]
    folders = {name: args.output / name if args.again else profile(name, args) for name in wanted}
    if set(folders) == set(PAPER):
        write(args, folders)


if __name__ == "__main__":
    main()
