"""Which trainings of real libraries are tried, with which Pythons and torches (sidecar/tests/test_libraries.py).

A training is tried in each pair whose requirement file has its library; where it has not, LEFT_OUT says why.
"""
import glob
import os
import re
import shutil
import subprocess
from typing import NamedTuple

from .progress import ROOT


class Pair(NamedTuple):
    python: str
    torch: str
    pins: str  # the requirement file, in sidecar/tests
    image: bool = False  # Python and torch are the torch image's


IMAGE = Pair("3.13", "2.6", "libraries-image.txt", image=True)
PAIRS = [Pair("3.8", "1.13", "libraries-py38-torch1.13.txt"), Pair("3.9", "2.1", "libraries-py39-torch2.1.txt"),
         Pair("3.11", "2.4", "libraries-py311-torch2.4.txt"), Pair("3.13", "2.6", "libraries-py313-torch2.6.txt"),
         Pair("3.12", "2.15", "libraries-py312-torch2.15.txt")]

# {training of library_train.py: the package whose training it is, None for torch alone}
TRAININGS = {
    "policy-gradient": None, "hf-llama": "transformers", "hf-trainer": "transformers", "accelerate-accumulation": "accelerate",
    "peft-lora": "peft", "timm-vit": "timm", "timm-convnext": "timm", "torchvision-resnet": "torchvision",
    "pyg-graph": "torch_geometric", "torchrec-dlrm": "torchrec", "torchtune-llama": "torchtune",
    "lightning-automatic": "lightning", "lightning-gan": "lightning", "deepspeed-zero1": "deepspeed",
    "deepspeed-zero2": "deepspeed", "deepspeed-zero3": "deepspeed", "ray-train": "ray"}

# What is told before another torch is as docs/frameworks.md says, and not the script's steps.
SINCE = {"lightning-gan": (2, 1)}

LEFT_OUT = {
    ("3.8", "deepspeed"): "its releases of that time look for a GPU",
    ("3.9", "deepspeed"): "its releases of that time look for a GPU",
    ("3.8", "torchtune"): "torchao, which it imports, loads with no torch before 2.2",
    ("3.9", "torchtune"): "torchao, which it imports, loads with no torch before 2.2",
    ("3.12", "torchrec"): "fbgemm-gpu, which it imports, does not load with torch 2.15",
}


def versions(pair):
    """{package: version} of a pair's requirement file."""
    with open(os.path.join(ROOT, "sidecar/tests", pair.pins), encoding="utf-8") as file:
        return {name.lower().replace("-", "_"): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", file.read(), re.M)}


def trainings(pair):
    known, torch = versions(pair), tuple(int(part) for part in pair.torch.split("."))
    return [training for training, library in TRAININGS.items()
            if (library is None or library in known) and torch >= SINCE.get(training, (0,))]


def interpreter(version):
    """A Python of this version that the machine has, on its PATH or of pyenv; None where there is none."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for path in [shutil.which(f"python{version}"), *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python{version}"))]:
        if path and subprocess.run([path, "-c", "import ssl, venv"], check=False, capture_output=True).returncode == 0:
            return path
    return None


def table():
    """The rows of docs/frameworks.md: each library's version in each pair."""
    rows = ["| library | " + " | ".join(f"Python {pair.python}, torch {pair.torch}" for pair in PAIRS) + " |",
            "|---|" + "---|" * len(PAIRS)]
    for library in dict.fromkeys(filter(None, TRAININGS.values())):
        rows.append(f"| {library} | " + " | ".join(versions(pair).get(library, "-") for pair in PAIRS) + " |")
    return "\n".join(rows)
