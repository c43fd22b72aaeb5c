"""Per GPU of one process, layer and phase: how long it was busy, as the probe says, against torch.profiler by device.

The model lies on two GPUs of the process. As busy.py does it, the probe samples one process and torch.profiler records
another, whose kernels go to layers by a path that shares no code with the probe's; each says on which GPU they ran. Asked
is: has each GPU the rows of what ran there, and no others; are its busy times, and its kernels by name, the peer's; do its parts
and gaps add up to the step? On a CPU, where nothing is told by GPU, it tries the program out, no more.
"""
import os
import sys
import tempfile

import busy
import lab

MODELS = ("pipeline", "pipeline-chunks")


def recorded(args):
    """What torch.profiler has, and the GPUs' UUIDs by their numbers."""
    with tempfile.TemporaryDirectory() as folder, lab.Trainer(args) as trainer:
        about = trainer.ask("warm")
        path = args.keep or os.path.join(folder, "trace.json")
        trainer.ask("record", steps=args.steps, path=path)
        record = busy.Record(path, args.device)
    lab.figure("recorded", len(record.steps), "steps", peer="torch.profiler", kernels=len(record.kernels) / args.steps,
               kernels_without_launch=record.lost, model=args.model)
    return record, about["gpus"]


def is_of(batch, uuid):
    """The driver's UUIDs have a word before them that torch's have not."""
    return [gpu.split("-", 1)[-1] for gpu in batch["process"]["gpus"]] == [uuid.split("GPU-")[-1]]


def strays(parts, steps, least=10):
    """Rows of layers that one of both has, of so many us a step at least, and the other has not."""
    ours = {row for p in parts for row, ns in p["rows"].items() if ns and busy.per_step(parts, row) >= least}
    theirs = {row for step in steps for row in step if sum(s.get(row, 0) for s in steps) / len(steps) >= least}
    known = {row for p in parts for row, ns in p["rows"].items() if ns}, {row for step in steps for row in step}
    return sorted(row for row in (ours - known[1]) | (theirs - known[0]) if row[1] in busy.OF_LAYER)


def compare(args, number, batches, walls, record):
    model, elapsed = f"{args.model} on GPU {number}", args.device == "cpu"
    parts, kernels = busy.ours(batches, elapsed), record.kernels
    if not parts:
        lab.figure("busy", None, model=model, why="fewer than three batches", holds=False)
        return
    if not elapsed:
        record.kernels = [(kernel, launch) for kernel, launch in kernels if kernel["args"]["device"] == number]
    steps, names = record.busy(), record.by_name()
    record.kernels = kernels
    found = strays(parts, steps)
    lab.figure("layers on the wrong GPU, or on none", len(found), "rows", limit=0, holds=elapsed or not found,
               rows=[" ".join(row) for row in found[:10]], model=model)
    busy.print_rows(parts, steps, model)
    if not elapsed:
        busy.print_names(busy.ours_by_name(batches), names, model)
    busy.print_sum(parts, walls, model, elapsed)


def main():
    args = lab.arguments(__doc__, models=MODELS, seconds=(12.0, "seconds sampled"),
                         steps=(50, "steps that torch.profiler records"), keep=("", "where its trace is kept"))
    batches, walls = busy.probed(args)
    record, uuids = recorded(args)
    if args.device == "cpu":
        compare(args, 0, batches, walls, record)
        return
    told = sorted({gpu for batch in batches for gpu in batch["process"]["gpus"]})
    lab.figure("GPUs that are told", len(told), limit=2, holds=len(told) == 2, gpus=told, model=args.model)
    for number in (0, 1):
        compare(args, number, [batch for batch in batches if is_of(batch, uuids[number])], walls, record)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
