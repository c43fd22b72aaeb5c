"""What e2e/portable lays out runs by what it has brought along.

PP_CLI           the program precisionprobe, in its build folder
PP_TORCH_PYTHON  pythons that have torch, separated by colons
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "e2e"))
from harness import krew, portable  # noqa: E402
from harness.progress import CommandError  # noqa: E402

TRAIN = str(pathlib.Path(__file__).parent / "train.py")


@pytest.fixture(name="folder", scope="module")
def laid_out(tmp_path_factory):
    """Laid out, and moved to another place, with a space in its name."""
    base = tmp_path_factory.mktemp("portable")
    build = pathlib.Path(os.environ["PP_CLI"]).resolve().parents[1]
    subprocess.run(["cmake", "--install", build, "--prefix", base / "stage"], check=True, capture_output=True, timeout=60)
    portable.lay_out(str(base / "stage"), str(base / "made"))
    shutil.rmtree(base / "stage")
    return shutil.move(base / "made", base / "moved here")


@pytest.mark.parametrize("program", portable.PROGRAMS)
def test_all_libraries_are_its_own(folder, program):
    linker, = (folder / "lib").glob("ld-*")
    listed = subprocess.run([linker, "--library-path", folder / "lib", "--list", folder / "libexec" / program],
                            capture_output=True, text=True, check=True, timeout=60).stdout
    libraries = [line.split()[2:] for line in listed.splitlines() if "=>" in line]
    places = [" ".join(words[:-1]) for words in libraries]
    assert len(places) > 3 and all(place.startswith(f"{folder}/") for place in places), listed


def test_nothing_is_taken_from_where_it_runs(folder, tmp_path):
    """An empty entry of a path of libraries is the current folder."""
    (tmp_path / "libuv.so.1").write_text("no library")
    for more in ({}, {"LD_LIBRARY_PATH": "/nowhere"}):
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        (folder / "lib/libuv.so.1").rename(folder / "lib/away")
        try:
            done = subprocess.run([folder / "bin/precisionprobe", "--version"], capture_output=True, text=True, check=False,
                                  timeout=60, env={**environment, **more}, cwd=tmp_path)
        finally:
            (folder / "lib/away").rename(folder / "lib/libuv.so.1")
        assert "invalid ELF header" not in done.stderr and "too short" not in done.stderr, done.stderr


def test_a_training_is_probed(folder, tmp_path):
    python = os.environ["PP_TORCH_PYTHON"].split(":")[0]
    environment = {name: value for name, value in os.environ.items() if name != "PRECISIONPROBE_HOOK"}
    done = subprocess.run([folder / "bin/precisionprobe", "run", "--budget", "50", "-o", tmp_path / "out", "--", python, TRAIN,
                           "300"], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert any(item["kind"] == "layer" for gpu in results["gpus"] for item in gpu["items"])


def test_a_folder_with_something_in_it_stays(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(CommandError, match="is not empty"):
        portable.lay_out(str(tmp_path), str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
def test_the_plugin_is_found_by_kubectl(folder, tmp_path):
    """As krew installs it: the archive unpacked somewhere, and a link to the program in PATH."""
    archives = [tmp_path / f"{i}.tar.gz" for i in range(2)]
    for archive in archives:
        krew.pack(folder, archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    told = krew.manifest(archives[0], "https://example.org/p.tar.gz", "https://example.org", "x86_64")
    of, = told["spec"]["platforms"]
    assert of["sha256"] == hashlib.sha256(archives[0].read_bytes()).hexdigest() and of["selector"]["matchLabels"]["arch"] == "amd64"
    assert told["spec"]["version"] == "v" + subprocess.run([folder / "bin/precisionprobe", "--version"], capture_output=True, text=True,
                                                           check=True, timeout=60).stdout.split()[1]
    (tmp_path / "store").mkdir()
    (tmp_path / "bin").mkdir()
    subprocess.run(["tar", "-xzf", archives[0], "-C", tmp_path / "store"], check=True, timeout=60)
    assert not (tmp_path / "store/bench").exists()
    os.symlink(tmp_path / "store" / of["bin"], tmp_path / "bin/kubectl-precisionprobe")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    shown = subprocess.run(["kubectl", "precisionprobe", "start", "--help"], capture_output=True, text=True, check=True, timeout=60,
                           env={**os.environ, "PATH": path}).stdout
    assert shown.startswith("Usage: kubectl precisionprobe start ")
    completed = subprocess.run([tmp_path / "store/bin/kubectl_complete-precisionprobe", "sta"], capture_output=True, text=True, check=True,
                               timeout=60).stdout
    assert completed == "start\nstatus\n:4\n"


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
@pytest.mark.parametrize("document", ["README.md", "docs/kubectl.md"])
def test_what_is_said_of_installing_the_plugin(folder, document):
    """The commands, with this folder for that of the document; krew's are those that e2e/krew tells."""
    text = (ROOT / document).read_text()
    place, = re.findall(r"^\./e2e/portable (\S+)$", text, re.M)
    path, = re.findall(r"^export PATH=.*$", text, re.M)
    told = subprocess.run(["sh", "-c", f"{path.replace(place, str(folder))}; kubectl precisionprobe start --help"], capture_output=True, text=True,
                          check=True, timeout=60).stdout
    assert told.startswith("Usage: kubectl precisionprobe start ")
    usage = subprocess.run([ROOT / "e2e/krew", "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    install, = re.findall(r"^ *(kubectl krew install .*)$", usage, re.M)
    assert install.replace("ARCHIVE", "precisionprobe.tar.gz") in text
