"""What the benchmarks share: trainings and sessions to command, figures to print, medians with their intervals.

PP_AGENT  the agent's command line (several words where it needs a loader)
PP_HOOK   the folder with the hook's Python (sitecustomize.py in it)
PP_PYTHON the Python that trains, where it is not the one that runs the benchmark
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import stuck

HERE = pathlib.Path(__file__).resolve().parent

# Trainings by their names: what models.py has for all programs, what libraries.py, architectures.py, third_set.py and fourth_set.py have.
MODELS = ("dlrm", "resnet50", "gpt", "unet", "recommender")
HANG = 300  # seconds after which a training that does not answer is taken for hung: the longest, a compilation, takes 100
WHOLE = 99  # a depth that leaves out no module; a session that has one tells compiled regions as one layer each
COMPILED = ("gpt-compile", "gpt-reduce-overhead", "resnet50-compile", "resnet50-reduce-overhead")
LIBRARIES = ("timm-vit", "timm-small-vit", "timm-convnext", "torchvision-compiled", "hf-llama", "peft-lora", "pyg-graph",
             "pyg-big-graph", "policy-gradient", "lightning-gan")
ARCHITECTURES = ("torchvision-resnext", "torchvision-swin", "torchvision-efficientnet", "torchaudio-conformer", "hf-mixtral",
                 "hf-t5", "hf-whisper", "diffusers-unet", "e3nn-messages", "torchvision-video", "torchvision-segmentation", "timm-mixer",
                 "timm-regnet", "hf-neox", "hf-deberta", "hf-wav2vec", "pyg-attention")
THIRD_SET = ("torch-lstm", "torchvision-densenet", "torchvision-maxvit", "timm-nfnet", "torchaudio-tasnet", "hf-segformer", "hf-clip",
             "hf-gemma", "pyg-gps")
FOURTH_SET = ("timm-hrnet", "torchvision-raft", "torchaudio-demucs", "hf-modernbert", "hf-qwen", "hf-patchtst", "hf-dino", "hf-mamba",
              "pyg-gat")
ELSEWHERE = {"libraries": LIBRARIES, "architectures": ARCHITECTURES, "third_set": THIRD_SET, "fourth_set": FOURTH_SET}


def arguments(doc, models=None, **more):
    """The options that all have, and the program's own as name=(default, help)."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if models:
        parser.add_argument("model", choices=models)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="small models, to try the program out")
    parser.add_argument("--batch", type=int, help="batch size, where it is not the model's own")
    for name, (default, text) in more.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default,
                            help=f"{text} ({default})")
    return parser.parse_args()


def needed(name):
    if not os.environ.get(name):
        sys.exit(f"{name} is not set: see {HERE / 'README.md'}")
    return os.environ[name]


def python():
    """The Python that trains, as the begin of a command."""
    return shlex.split(os.environ.get("PP_PYTHON") or sys.executable)


def profile(command, folder, *options, env=None):
    """What `precisionprobe run` with these options tells of a command: its results.json, left in the folder."""
    subprocess.run([*shlex.split(needed("PP_CLI")), "run", "--quiet", *options, "-o", str(folder), "--", *command], check=True,
                   env={**os.environ, **(env or {})}, stdout=sys.stderr)
    return json.loads((pathlib.Path(folder) / "results.json").read_text(encoding="utf-8"))


# ---- figures ----

_failed = []


def status():
    """What a program ends with: 1 where a figure does not hold."""
    return 1 if _failed else 0


def figure(name, value, unit=None, interval=None, limit=None, holds=None, **more):
    """Prints one figure; `limit` is what it must not pass, `holds` whether it does not."""
    def short(x):
        return float(f"{x:.6g}") if isinstance(x, float) else x
    line = {"figure": name, "value": short(value)}
    if unit:
        line["unit"] = unit
    if interval:
        line["interval"] = [short(x) for x in interval]
    if limit is not None:
        line["limit"] = limit
        line["holds"] = value is not None and value <= limit if holds is None else holds
    elif holds is not None:
        line["holds"] = holds
    _failed.extend([name] if line.get("holds") is False else [])
    print(json.dumps({**line, **{k: short(v) for k, v in more.items()}}), flush=True)


def interval(sample, draws=1000, level=0.95):
    """[low, high] of sample(), which draws a statistic anew from data of its own drawn with replacement."""
    values = sorted(sample() for _ in range(draws))
    tail = (1 - level) / 2
    return [values[int(tail * draws)], values[min(draws - 1, int((1 - tail) * draws))]]


_random = random.Random(1)


def redraw(values):
    return _random.choices(values, k=len(values))


def of_median(values):
    """Median and its interval by bootstrap."""
    return statistics.median(values), interval(lambda: statistics.median(redraw(values)))


# Two-sided 5 % points of Student's t, by degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def widened(value, limits, groups):
    """An interval of so few groups that were drawn: the bootstrap's is too narrow by so much (Hesterberg: The American
    Statistician 69, 2015, 371-386). None: one group says nothing of others."""
    if groups < 2:
        return None
    t = _T[groups - 2] if groups - 2 < len(_T) else 1.96 + 2.7 / (groups - 1)
    factor = t / 1.96 * math.sqrt(groups / (groups - 1))
    return [value + factor * (limit - value) for limit in limits]


def of_groups(groups):
    """Median over groups of each one's median, and its interval: groups are drawn, then values in each."""
    def sample():
        return statistics.median(statistics.median(redraw(group)) for group in redraw(groups))
    value = statistics.median(statistics.median(group) for group in groups)
    return value, widened(value, interval(sample), len(groups))


def covered(spans):
    """Length of a union."""
    total, end = 0.0, float("-inf")
    for a, b in sorted(spans):
        total += max(0.0, b - max(a, end))
        end = max(end, b)
    return total


# ---- processes ----

def plain_environment():
    """Of a process without the hook."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PRECISIONPROBE_RING")}


class Trainer:
    """trainer.py in a process of its own; with a ring the hook is in it."""

    def __init__(self, args, model=None, ring=None, deterministic=False, prefix=(), environment=None,
                 backend="inductor"):
        env = plain_environment() | (environment or {})
        if ring:
            env.update(PYTHONPATH=needed("PP_HOOK"), PRECISIONPROBE_RING=str(ring))
        command = [*prefix, *python(), str(HERE / "trainer.py"), model or args.model, args.device,
                   "small" if args.small else "full", str(args.batch or "-"),
                   "deterministic" if deterministic else "free", backend]
        self.errors, self.hung = tempfile.TemporaryFile("w+"), ""
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, bufsize=1)

    def reply(self, what, most=HANG):
        """Its answer; where none comes for so many seconds it is ended, and what its threads wait for is told."""
        watch = threading.Timer(most, self.end_hung)
        watch.start()
        try:
            for line in self.process.stdout:
                if line.startswith('{"reply": "%s"' % what):
                    return json.loads(line)
        finally:
            watch.cancel()
        self.errors.seek(0)
        raise RuntimeError(f"the training ended at '{what}' ({self.process.wait()}):\n{self.hung}{self.errors.read()[-3000:]}")

    def end_hung(self):
        self.hung = f"it hung:\n{stuck.waits(self.process.pid)}\n"
        self.process.kill()

    def ready(self):
        self.pid = self.reply("ready")["pid"]
        return self

    def ask(self, what, **options):
        self.tell(what, **options)
        return self.reply(what, HANG + options.get("seconds", 0))

    def tell(self, what, **options):
        self.process.stdin.write(json.dumps({"do": what, **options}) + "\n")

    def quit(self):
        if self.process.poll() is None:
            try:
                self.tell("quit")
                self.process.stdin.close()
                self.process.wait(60)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.errors.close()
        self.process.stdout.close()

    def __enter__(self):
        return self.ready()

    def __exit__(self, *_):
        self.quit()


class Ring:
    """A ring directory, on the memory-backed file system that a pod has there."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="pp-ring-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def _cpu(pid):
    """Seconds of a processor that a process has taken; 0 where it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Session:
    """An agent on a ring directory. It ends sampling by itself after `seconds`, counted from the first sampled step."""

    def __init__(self, ring, seconds=0.0, budget=1.0, capture=2.0, skip=0, most=0, fine=0, include=(), depth=0):
        self.folder, self.ring = tempfile.mkdtemp(prefix="pp-session-"), ring
        # By its UID the hook knows that it is another one, which starts a sampler of its own.
        settings = {"version": 1, "session": {"uid": uuid.uuid4().hex, "namespace": "bench", "name": "bench"},
                    "endpoint": "wss://localhost:1/v1/ingest",
                    "layers": {"include": list(include), "exclude": [], "types": [], "depth": depth},
                    "phases": ["Forward", "Backward", "Optimizer"], "steps": {"skip": skip, "max": most},
                    "durationSeconds": seconds, "overheadBudgetPercent": budget, "stretch": {"seconds": capture},
                    "fine": {"periodNs": fine}}
        path = os.path.join(self.folder, "settings.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(settings, file)
        self.dump = os.path.join(self.folder, "dump")
        self.log = os.path.join(self.folder, "log")
        control = os.path.join(ring, "control.json")
        if os.path.exists(control):
            os.unlink(control)
        with open(self.dump, "w", encoding="utf-8") as out, open(self.log, "w", encoding="utf-8") as log:
            self.agent = subprocess.Popen([*shlex.split(needed("PP_AGENT")), "run", "--dump", "--ring", ring,
                                           "--settings", path], stdout=out, stderr=log)
        until = time.monotonic() + 20
        while not os.path.exists(control):
            if self.agent.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the agent does not start:\n{self.said()}")
            time.sleep(0.01)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def cpu(self):
        """Seconds of a processor that the agent and the samplers beside the training have taken."""
        found = {"agent": _cpu(self.agent.pid), "sampler": 0.0}
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            if words[0].endswith(b"precisionprobe-sampler") and words[1:2] == [self.ring.encode()]:
                found["sampler"] += _cpu(path.parent.name)
        return found

    def batches(self):
        """Those printed so far; a last line that is not whole yet is left out."""
        with open(self.dump, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.startswith("{") and line.endswith("}\n")]

    def stop(self):
        """Ends the agent; its batches."""
        if self.agent.poll() is None:
            self.agent.send_signal(signal.SIGTERM)
        try:
            self.agent.wait(40)
        except subprocess.TimeoutExpired:
            self.agent.kill()
            self.agent.wait()
        return self.batches()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


OUTSIDE = "(outside of modules)"  # the type of layers that are none
PHASES = ("forward", "backward", "optimizer", "recompute", "zero_grad", "data", "communication", "other", "inference")


def distributed(model):
    """Whether a training takes two processes."""
    return model.endswith(("-ddp", "-fsdp2"))


def shares(batches):
    """Percent of the sampled time that each phase has, and how many layers of which types there are."""
    total, types = collections.Counter(), {}
    for b in batches:
        types.update({layer["name"]: layer.get("type", "") for layer in b.get("layers", [])})
        data = b.get("grid") or b.get("intervals") or {}
        for phase, ns in zip(data.get("phase", []), data.get("busy" if "grid" in b else "duration", [])):
            total[PHASES[phase]] += ns
    whole = sum(total.values()) or 1
    return {"phases_percent": {phase: round(100 * ns / whole, 2) for phase, ns in total.most_common()},
            "layer_types": dict(collections.Counter(types.values()))}


def sampled(batches):
    """What batches hold. Marks and cost by step are the median batch's: the first has preparations in it."""
    each = [(b["cost"]["marks"] / n, b["cost"]["nanoseconds"] / n) for b in batches[1:]
            if "cost" in b and (n := len(b.get("steps", {}).get("number", ())))]
    marks, cost = (statistics.median(column) for column in zip(*each)) if each else (None, None)
    return {"steps": sum(len(b["steps"]["number"]) for b in batches if "steps" in b), "marks_of_a_step": marks,
            "cost_of_a_step_ns": cost, "cost_ns": sum(b.get("cost", {}).get("nanoseconds", 0) for b in batches),
            "fine": sum("fine" in b for b in batches), "dropped": sum(b.get("dropped", 0) for b in batches),
            "clocks": sorted({b["process"]["clock"] for b in batches}),
            "no_busy_because": sorted({b["process"].get("kernels") or "" for b in batches} - {""})}


def times(reply, *states):
    """us per step of the chunks; with states only of those that had the hook in one of them from begin to end."""
    return [us for us, before, after in reply["chunks"] if not states or (before == after and before in states)]
