"""What a step of a training takes of energy: as `precisionprobe run` says of a probed one, against the driver's own
counter over as many seconds of the same training without the probe, in turn.

PP_CLI  the command line of precisionprobe
"""
import ctypes
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import lab

ROLE = {"PP_ENERGY_ROLE": "train"}  # a process that trains has it


class Counter:
    """NVML's count of a GPU's energy, J."""

    def __init__(self, uuid):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device)):
            raise RuntimeError(f"NVML does not know {uuid}")

    def read(self):
        value = ctypes.c_ulonglong()
        if self.library.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value)):
            raise RuntimeError("NVML does not count this GPU's energy")
        return value.value / 1e3


def train(args):
    """Steps for a while; prints what a step took of the counter, for whom it counts."""
    import torch
    import models
    training = models.build(args.model, "cuda", batch=args.batch)
    for _ in range(30):
        training.step()
    torch.cuda.synchronize()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    counter, begun, steps = Counter(uuid), time.monotonic(), 0
    joules = counter.read()
    while time.monotonic() < begun + args.seconds:
        training.step()
        steps += 1
    torch.cuda.synchronize()
    took = time.monotonic() - begun
    print("STEPS " + json.dumps({"joules": (counter.read() - joules) / steps, "ms": took / steps * 1e3}), flush=True)


def command_of(args):
    batch = ["--batch", str(args.batch)] if args.batch else []
    return [*lab.python(), os.path.abspath(__file__), args.model, "--seconds", str(args.seconds), *batch]


def steps_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, **ROLE})
    told = [line[6:] for line in done.stdout.splitlines() if line.startswith("STEPS ")]
    if done.returncode != 0 or not told:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-1500:]}")
    return json.loads(told[0])


def probed(args):
    with tempfile.TemporaryDirectory() as folder:
        results = lab.profile(command_of(args), folder, "--method", "Job", "--budget", str(args.budget),
                              "--capture", args.capture, env=ROLE)
    gpu = results["gpus"][0]
    job = next(item for item in gpu["items"] if item["kind"] == "job")
    power = job["metrics"]["Power"]
    return {"joules": power["perStep"], "watts": power["mean"], "ms": gpu["countedStepMs"], "sampled_ms": gpu["stepMs"]}


def main():
    args = lab.arguments(__doc__, models=("dlrm", "resnet50", "gpt"),
                         seconds=(40.0, "seconds of each training, enough for several captures"),
                         rounds=(3, "trainings of each kind"), budget=(5.0, "percent"), capture=("200ms", "a capture"))
    if os.environ.get("PP_ENERGY_ROLE") == "train":
        train(args)
        return 0
    said, counted = [], []
    for _ in range(args.rounds):
        counted.append(steps_of(command_of(args)))
        said.append(probed(args))
    joules = [statistics.median(one["joules"] for one in some) for some in (said, counted)]
    lab.figure("energy of a step", joules[0], "J", model=args.model, peer="NVML's counter, without the probe",
               counted=joules[1], rounds=[[one["joules"] for one in some] for some in (said, counted)],
               step_ms=[[one["ms"] for one in some] for some in (said, counted)], watts=[one["watts"] for one in said],
               sampled_step_ms=[one["sampled_ms"] for one in said])
    lab.figure("its difference", 100 * abs(joules[0] / joules[1] - 1), "%", limit=5.0, model=args.model)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
