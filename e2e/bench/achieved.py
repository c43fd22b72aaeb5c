"""FLOP and bytes per second of layers whose work is known by construction: what `precisionprobe run --method Sampling`
says that they achieve, times how long they ran, against the FLOPs and bytes of their operation.

PP_CLI  the command line of precisionprobe
"""
import os
import sys
import tempfile
import time

import lab

TOKENS, WIDTH, COPIED = 8192, 8192, 1 << 30  # rows and columns of the matrices; bytes
BOUNDS = {"DRAMActive": (0.95, 1.05),  # the copy's bytes
          "TensorActive": (0.97, 1.30)}  # no fewer FLOPs than were done; a pipe that is active may wait for its operands


def train(seconds, data):
    """A product of matrices in bfloat16 and a copy of memory that is far larger than the caches."""
    import torch
    from torch import nn
    import models
    made = {"zeros": torch.zeros, "random": torch.randn}[data]
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16, device="cuda"), models.Copy(COPIED, "cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    if data == "zeros":
        nn.init.zeros_(model[0].weight)
    x = made(TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def profiled(args):
    command = [*lab.python(), os.path.abspath(__file__), "--seconds", str(args.seconds), "--data", args.data]
    with tempfile.TemporaryDirectory() as folder:
        return lab.profile(command, folder, "--method", "Sampling", "--budget", "5", env={"PP_ACHIEVED_ROLE": "train"})["gpus"][0]


def main():
    args = lab.arguments(__doc__, seconds=(30.0, "seconds of the training"),
                         data=("zeros", "in the matrices; random: the GPU comes to its power limit and its clock falls"))
    if os.environ.get("PP_ACHIEVED_ROLE") == "train":
        train(args.seconds, args.data)
        return 0
    gpu = profiled(args)
    product = 2 * TOKENS * WIDTH * WIDTH
    known = {("0", "forward", "TensorActive"): product, ("0", "backward", "TensorActive"): 2 * product,
             ("1", "forward", "DRAMActive"): 2 * COPIED}
    clock = next(item for item in gpu["items"] if item["kind"] == "job")["metrics"]["SMClock"]["mean"]
    rows = {(item["layer"], item["phase"]): item for item in gpu["items"] if item["kind"] == "layer"}
    for (layer, phase, metric), amount in known.items():
        row = rows[layer, phase]
        told = row["metrics"][metric]
        if told.get("achieved") is None:
            sys.exit(f"nothing is told of layer {layer}, {phase}: {told['reason']}; give it more --seconds")
        said = told["achieved"] * row["busyMillisecondsPerStep"] / 1e3 / amount
        low, high = BOUNDS[metric]
        lab.figure(f"{metric} of a known operation", said, "of its FLOPs or bytes", layer=layer, phase=phase,
                   limit=high, must_not_be_below=low, holds=low <= said <= high, known=amount, achieved=told["achieved"],
                   peak=told["peak"], mean=told["mean"], busy_ms=row["busyMillisecondsPerStep"], sm_mhz=clock)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
