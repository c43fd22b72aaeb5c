"""Whether replays (precisionprobe run --method Replay) change any bit of a training, and how long they hold it.

The same training runs twice without the probe and once with it, in processes of their own, with deterministic settings.
What they hold at the end is compared: losses, parameters, buffers, gradients, the optimizer's state, random numbers.

PP_CLI  the command line of precisionprobe
"""
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import lab

METRICS = ("SMActive", "SMOccupancy", "DRAMActive", "FP32Active")


def digest(torch, values):
    whole = hashlib.blake2b(digest_size=16)
    for value in values:
        if torch.is_tensor(value):
            value = (value.coalesce().values() if value.is_sparse else value).detach().cpu().contiguous()
            whole.update(memoryview(value.view(-1).view(torch.uint8).numpy()) if value.numel() else b"")
        else:
            whole.update(repr(value).encode())
    return whole.hexdigest()


def leaves(value):
    """Of nested dicts and lists, in order of their keys."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value, key=str) for leaf in leaves(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]


def train(args):
    import torch
    import models
    torch.set_num_threads(1)
    training = models.build(args.model, args.device, small=args.small, batch=args.batch, deterministic=True)
    losses = [training.step() for _ in range(args.steps)]
    model = training.model
    random = [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if args.device == "cuda" else [])
    state = {"losses": losses, "parameters": list(model.parameters()), "buffers": list(model.buffers()),
             "gradients": [p.grad for p in model.parameters()], "optimizer": leaves(training.optimizer.state_dict()),
             "random": random}
    print("STATE " + json.dumps({name: digest(torch, values) for name, values in state.items()}), flush=True)


def command_of(args):
    more = ["--small"] if args.small else []
    more += ["--batch", str(args.batch)] if args.batch else []
    return [*lab.python(), os.path.abspath(__file__), args.model, "--device", args.device, "--steps", str(args.steps), *more]


def state_of(command, limit):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit,
                          env={**os.environ, "PP_ISOLATED_ROLE": "train", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
                          check=False)
    told = [line[6:] for line in done.stdout.splitlines() if line.startswith("STATE ")]
    if done.returncode != 0 or not told:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-1500:]}")
    return json.loads(told[0]), done.stderr


def print_values(args, results):
    """Each replayed layer's values, percent, and why there is none."""
    items = [item for gpu in results["gpus"] for item in gpu["items"] if item["kind"] == "layer"]
    for item in items:
        told = {name: item["metrics"].get(name) or {} for name in METRICS}
        values = {name: [round(100 * e["mean"], 2), round(100 * e["standardError"], 2), e["windows"]]
                  for name, e in told.items() if e.get("mean") is not None}
        lab.figure("replayed", item["layer"] + " " + item["phase"], model=args.model, type=item["type"],
                   busy_us=1000 * (item["busyMillisecondsPerStep"] or 0), **values,
                   why=told["SMActive"].get("reason"))
    for name in METRICS:
        valued = [item for item in items if (item["metrics"].get(name) or {}).get("mean") is not None]
        busy = [sum(item["busyNs"] or 0 for item in some) for some in (valued, items)]
        lab.figure(f"layers with a value of {name}", len(valued), model=args.model, of=len(items),
                   busy_percent=100 * busy[0] / busy[1] if busy[1] else None)


def main():
    args = lab.arguments(__doc__, models=("dlrm", "resnet50", "gpt", "gpt-amp-checkpoint"), steps=(700, "steps"),
                         dwell=(600, "ms of each dwell"), max_pause=(60000, "ms of all pauses"),
                         memory=(2048, "MiB that replays may take"), limit=(100.0, "seconds that the probed training may take"))
    if os.environ.get("PP_ISOLATED_ROLE") == "train":
        train(args)
        return 0
    command = command_of(args)
    with tempfile.TemporaryDirectory() as folder:
        probed = [*shlex.split(lab.needed("PP_CLI")), "run", "--quiet", "--method", "Replay", "--budget", "20",
                  "--replay-duration", f"{args.dwell}ms", "--replay-max-pause", f"{args.max_pause}ms", "--replay-memory",
                  str(args.memory), "-o", folder, "--", *command]
        found, said = state_of(probed, args.limit)
        results = json.loads((pathlib.Path(folder) / "results.json").read_text(encoding="utf-8"))
    print_values(args, results)
    paused = results["pausedNs"] / 1e6
    lab.figure("pause", paused, "ms", limit=args.max_pause, model=args.model, dwell=args.dwell,
               dropped=results["dropped"], sampled_steps=results["sampledSteps"], note=results["note"])
    plain, again = (state_of(command, args.limit)[0] for _ in range(2))
    same = {name: found[name] == plain[name] for name in plain}
    lab.figure("state identical", all(same.values()), model=args.model, steps=args.steps,
               holds=all(same.values()) and plain == again and paused > 0, reproducible_without=plain == again,
               **same, said=said[-300:] if paused == 0 else None)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
