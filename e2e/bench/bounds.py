"""What bounds a step, as `precisionprobe run` says, of trainings that are built to be bound by one thing each (bounded.py).

Where the cause can be taken away, a training without it must be faster, or it is not what it is built to be.

PP_CLI  the command line of precisionprobe
"""
import os
import pathlib
import sys
import tempfile

import lab

KINDS = ("Tensor", "FP32", "Memory", "Latency", "Launch", "Data", "Synchronization", "Communication")
REMOVABLE = ("Data", "Synchronization", "Communication")
RANKS = {"Communication": 2}
FASTER = 1.2  # by which a training without its cause must be


def command(args, kind, removed):
    """What trains, in as many processes as it takes."""
    ranks = 1 if removed else RANKS.get(kind, 1)
    spread = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [*lab.python(), *spread, os.path.abspath(__file__), kind, "--seconds", str(args.seconds), "--role", "train",
            "--removed", str(int(removed))]


def profiled(args, kind, removed=False):
    """results.json of one training, and ms of a step by its own clock."""
    with tempfile.TemporaryDirectory() as scratch:
        told = pathlib.Path(scratch) / "told"
        results = lab.profile(command(args, kind, removed), pathlib.Path(scratch) / "results", "--method", "Sampling", "--budget",
                              str(args.budget), "--capture", "2s", env={"PP_TOLD": str(told)})
        return results, float(told.read_text(encoding="utf-8"))


def judge(args, kind):
    results, step = profiled(args, kind)
    pattern = results.get("pattern") or {}
    bound, shares = pattern.get("bound"), {each["by"]: each["share"]["value"] for each in pattern.get("bounds", [])}
    if kind in REMOVABLE:
        _, free = profiled(args, kind, removed=True)
        lab.figure("step without its cause", free, "ms", kind=kind, limit=step / FASTER, holds=free <= step / FASTER)
    lab.figure("bound", bound, must=kind, holds=bound == kind, lead=pattern.get("boundLead"), shares=shares, step=step,
               told=(pattern.get("step") or {}).get("milliseconds"))


def main():
    args = lab.arguments(__doc__, models=(*KINDS, "all"), seconds=(20.0, "seconds of each training"), budget=(10.0, "percent"),
                         role=("", "train: trains, and says how long a step took"), removed=(0, "1: without its cause"))
    if args.role:
        import bounded
        ms = bounded.train(args.model, bool(args.removed), args.seconds)
        if int(os.environ.get("RANK", 0)) == 0:
            pathlib.Path(os.environ["PP_TOLD"]).write_text(str(ms), encoding="utf-8")
        return
    for kind in KINDS if args.model == "all" else (args.model,):
        judge(args, kind)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
