"""The built hook in every Python of this machine; where it is none of the hook's, nothing happens."""
import glob
import json
import os
import pathlib
import subprocess

import pytest
from conftest import HERE, needed, pythons

TELL = "import json, sys; print(json.dumps([list(sys.version_info[:2]), sys.executable]))"
USE = """
import sys
from precisionprobe_hook import _marks
_marks.open(sys.argv[1], "python", "torch", "host", "", 0, 1, 2, 0)
begin, end = _marks.marker(_marks.OPTIMIZER_BEGIN), _marks.marker(_marks.OPTIMIZER_END)
_marks.set_state(_marks.COUNTING)
for _ in range(3):
    begin("optimizer")
    end("optimizer")
told = []
assert _marks.start(lambda: told.append(_marks.wait(_marks.mode())))
layer = _marks.layer("layer", "Type", 7)
_marks.leave()
print(layer, _marks.steps(), told)
"""


def is_program(path):
    """Not a script, as python3-config and what pyenv puts on PATH."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def every_python():
    """{version: a python of it}, of those that run."""
    found = {}
    places = [os.path.join(folder, "python[23]*") for folder in os.environ["PATH"].split(":")]
    places.append(os.path.expanduser("~/.pyenv/versions/*/bin/python"))
    real = {os.path.realpath(path) for place in places for path in glob.glob(place)}
    for program in sorted(filter(is_program, real)) + pythons():
        told = subprocess.run([program, "-S", "-c", TELL], capture_output=True, text=True)
        if told.returncode == 0:
            version, own = json.loads(told.stdout)
            found[tuple(version)] = program if program in pythons() else own
    return found


def hooked(python, *arguments, ring, path=()):
    environment = {**os.environ, "PYTHONPATH": ":".join([needed("PP_HOOK"), *path]), "PRECISIONPROBE_RING": str(ring),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, *arguments], capture_output=True, text=True, env=environment, timeout=60)


PYTHONS = every_python()
OURS = sorted(version for version in PYTHONS if version >= (3, 8))
OTHERS = sorted(version for version in PYTHONS if version < (3, 8))


@pytest.mark.parametrize("version", OURS, ids=str)
def test_extension_works(tmp_path, version):
    result = hooked(PYTHONS[version], "-c", USE, str(tmp_path), ring="")
    assert (result.returncode, result.stdout, result.stderr) == (0, "1 3 [-1]\n", "")
    assert [path.suffix for path in tmp_path.iterdir()] == [".ring"]


@pytest.mark.parametrize("version", OURS + OTHERS, ids=str)
def test_python_without_torch_or_before_3_8_is_left_alone(tmp_path, version):
    """The user's own sitecustomize runs, imports work, and what is said is the program's."""
    own = tmp_path / "own"
    (own / "torch").mkdir(parents=True)
    (own / "sitecustomize.py").write_text("import sys\nsys.user_site = 'mine'\n")
    (own / "torch" / "__init__.py").write_text("" if version < (3, 8) else "raise ImportError('no torch')\n")
    ring = tmp_path / "ring"
    ring.mkdir()
    code = "import sys, xml.dom\ntry:\n import torch\nexcept ImportError:\n pass\nprint(sys.user_site)"
    result = hooked(PYTHONS[version], "-c", code, ring=ring, path=[str(own)])
    assert (result.returncode, result.stdout, result.stderr) == (0, "mine\n", "")
    assert [path.name for path in ring.iterdir()] == ["loaded"] * (version in OURS)


def test_what_is_not_portable_is_found():
    """By what the build asks: of a program that needs more than it may, and of what it is asked for."""
    check = str(HERE.parent / "hook" / "portable")
    machine = os.uname().machine
    wrong = subprocess.run([check, needed("PP_AGENT"), "--machine", machine], capture_output=True, text=True)
    assert wrong.returncode == 1 and " needs libuv.so.1\n" in wrong.stderr
    built = list(pathlib.Path(needed("PP_HOOK")).glob("precisionprobe_hook/*/*"))
    static = [file for file in built if file.name == "precisionprobe-environment"]
    dynamic = [file for file in built if file not in static]
    assert static and {file.name for file in dynamic} == {"_marks.abi3.so", "precisionprobe-sampler"}
    for file in built:
        result = subprocess.run([check, file, "--machine", file.parent.name, "--static"], capture_output=True, text=True)
        assert (result.returncode, result.stderr) == ((0, "") if file in static else (1, f"{file} needs a loader\n"))
    for file in dynamic:
        said = {}
        for glibc in ("2.1", "99"):
            said[glibc] = subprocess.run([check, file, "--machine", file.parent.name, "--glibc", glibc],
                                         capture_output=True, text=True)
        assert said["99"].returncode == 0, said["99"].stderr
        assert said["2.1"].returncode == 1 and ", newer than 2.1\n" in said["2.1"].stderr
