"""Per layer inside of a compiled model and phase: how long the GPU was busy with it, as the probe says, against torch.profiler
and the code that the compiler wrote (compiled_peer.py); how much of the model's kernels' time is told by layer.

The probe samples every step of one process; the peer is another, which has no hook. Both compile anew: what comes from a cache is
told as one layer.
"""
import json
import statistics
import subprocess
import sys
import tempfile

import busy
import lab


def peer(args):
    command = [*lab.python(), str(lab.HERE / "compiled_peer.py"), args.model, args.device, "small" if args.small else "full",
               str(args.batch or "-"), str(args.steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=lab.plain_environment())
    return json.loads(done.stdout.splitlines()[-1])


def shares(rows, region, model, who):
    """How much of the time of a region and of the layers in it is these layers', by phase."""
    for phase in ("forward", "backward"):
        every = {layer: us for (layer, of), us in rows.items() if of == phase}
        total = sum(every.values())
        inside = total - every.get(region, 0)
        lab.figure("time of a region's kernels that is told by layer", 100 * inside / total if total else None, "%", phase=phase,
                   of=who, us=total, layers=len(every), model=model)


def main():
    args = lab.arguments(__doc__, models=lab.COMPILED, seconds=(12.0, "seconds sampled"),
                         steps=(30, "steps that torch.profiler records"))
    with tempfile.TemporaryDirectory() as cache:
        batches, _ = busy.probed(args, {"TORCHINDUCTOR_CACHE_DIR": cache})
    parts = busy.ours(batches, args.device == "cpu")
    if not parts:
        lab.figure("busy inside of a region", None, model=args.model, why="fewer than three batches", holds=False)
        return
    theirs = peer(args)
    lab.figure("recorded", theirs["runs"], "runs", peer="torch.profiler", holds=theirs["runs"] > 0, model=args.model)
    unknown = theirs["unknown_percent"]  # of what the peer cannot tell by layer it says nothing against us, either
    lab.figure("time of kernels in runs that the peer does not know", unknown, "%", limit=5, model=args.model,
               holds=args.device == "cpu" or unknown is not None and unknown <= 5)
    steps = {(layer, phase): us for layer, phase, us in theirs["rows"]}
    ours = {row: busy.per_step(parts, row) for row in {row for part in parts for row in part["rows"]}
            if row[1] in ("forward", "backward") and row[0] in {*theirs["names"], theirs["region"]}}
    shares({row: us or 0 for row, us in ours.items()}, theirs["region"], args.model, "ours")
    shares({row: statistics.mean(us) for row, us in steps.items()}, theirs["region"], args.model, "peer")
    worst, weighted, total = 0.0, 0.0, 0.0
    for row in sorted({*ours, *steps}):
        mine, peers = ours.get(row) or 0.0, statistics.mean(steps.get(row, [0.0]))
        limit = busy.limit_of(max(mine, peers))
        error = 100 * (mine / peers - 1) if peers else None
        holds = None if limit is None or row[0] == theirs["region"] else error is not None and abs(error) <= limit
        lab.figure("busy inside of a region", mine, "us", peer=peers, error_percent=error, limit=limit, holds=holds, layer=row[0],
                   phase=row[1], model=args.model)
        if row[0] != theirs["region"]:
            weighted, total = weighted + abs(mine - peers), total + peers
            worst = max(worst, abs(error or 0.0) if peers >= 50 else 0.0)
    lab.figure("error of busy inside of a region, layers >= 50 us, worst", worst, "%", limit=2, holds=worst <= 2, model=args.model)
    lab.figure("error of busy inside of a region, weighted", 100 * weighted / total if total else None, "%", model=args.model)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
