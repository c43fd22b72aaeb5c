"""What the tests of hook and agent share: the built programs, a ring directory, trainings.

PP_AGENT         the agent's program
PP_HOOK          the folder with the built hook's Python (sitecustomize.py in it)
PP_TORCH_PYTHON  a python that has torch; several, separated by colons, are all tested
"""
import functools
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

HERE = pathlib.Path(__file__).parent
TRAIN = str(HERE / "train.py")
SESSION = "11111111-2222-3333-4444-555555555555"


def needed(name):
    value = os.environ.get(name)
    if not value:
        pytest.exit("%s is not set: see sidecar/tests/conftest.py" % name, returncode=2)
    return value


def pythons():
    return needed("PP_TORCH_PYTHON").split(":")


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", pythons())


def settings_of(uid, **changes):
    """A session's settings, as the operator writes them."""
    return {"version": 1, "session": {"uid": uid, "namespace": "ml", "name": "dlrm"},
            "endpoint": "wss://localhost:1/v1/ingest",
            "layers": {"include": [], "exclude": [], "types": [], "depth": 0},
            "phases": ["Forward", "Backward", "Optimizer"], "steps": {"skip": 0, "max": 0},
            "durationSeconds": 0, "overheadBudgetPercent": 100, "stretch": {"seconds": 1}, **changes}


class Probe:
    """A ring directory, the agent on it, and trainings beside it."""

    def __init__(self, folder):
        self.folder = folder
        self.ring = folder / "ring"
        self.ring.mkdir()
        self.spool = folder / "spool"
        self.spool.mkdir()
        self.settings = folder / "settings.json"
        self.log = folder / "agent.log"
        self.agent = None
        self.under = []       # the command that the agent is started by
        self.training = None  # one that goes on beside the test

    def configure(self, **changes):
        self.settings.write_text(json.dumps(settings_of(SESSION, **changes)))

    def start(self, *options, environment=None):
        """Starts the agent and waits until it has told trainers-to-be what to do."""
        command = [*self.under, needed("PP_AGENT"), "run", "--settings", str(self.settings), "--ring", str(self.ring),
                   "--spool", str(self.spool), *options]
        self.out = open(self.folder / "dump.txt", "w")
        self.agent = subprocess.Popen(command, stdout=self.out, stderr=open(self.log, "a"),
                                      env={**os.environ, **(environment or {})})
        until(lambda: (self.ring / "control.json").exists(), "the agent's control file")
        return self.agent

    def finish(self):
        """SIGTERM, as the kubelet sends a native sidecar when the trainer is done."""
        if self.agent.poll() is None:
            self.agent.send_signal(signal.SIGTERM)
        assert self.agent.wait(30) == 0, self.log.read_text()

    def stop(self):
        """Whatever a test has left running."""
        for process in (self.agent, self.training):
            if process and process.poll() is None:
                process.kill()
                process.wait()

    def environment(self, extra=None):
        path = [needed("PP_HOOK")] + ([extra.pop("PYTHONPATH")] if extra and "PYTHONPATH" in extra else [])
        return {**os.environ, "PYTHONPATH": ":".join(path), "PRECISIONPROBE_RING": str(self.ring),
                "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **(extra or {})}

    def batches(self):
        whole = (self.folder / "dump.txt").read_text().rpartition("\n")[0]  # the agent may be writing a line
        return [json.loads(line) for line in whole.splitlines()]


def until(condition, what, seconds=300):
    """Waits for a condition, not for a time: only a hang takes as long as the limit."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited %d s for %s" % (seconds, what)
        time.sleep(0.01)


def run(python, *arguments, environment=None, check=True):
    clean = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    clean.pop("PYTHONPATH", None)
    result = subprocess.run([python, *arguments], capture_output=True, text=True, timeout=1200,
                            env=environment or clean)
    if check:
        assert result.returncode == 0, result.stderr
    return result


@functools.lru_cache(maxsize=None)
def plain(python, *arguments):
    """A program without the hook: what it does is the same for every test that compares with it."""
    return run(python, *arguments)


@functools.lru_cache(maxsize=None)
def torch_of(python):
    """Its version's first two numbers."""
    version = run(python, "-c", "import torch; print(torch.__version__)").stdout
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def losses(result):
    return [line for line in result.stdout.splitlines() if line.startswith("loss ")]


def told(result, word):
    for line in result.stdout.splitlines():
        if line.startswith(word + " "):
            return json.loads(line[len(word) + 1:])
    raise AssertionError("the training did not print %s" % word)


def undelta(values):
    total, result = 0, []
    for value in values:
        total += value
        result.append(total)
    return result


def sampled(probe, python, *arguments, **settings):
    """A program under the agent; its result and the batches."""
    probe.configure(**settings)
    probe.start("--dump")
    result = run(python, *arguments, environment=probe.environment())
    probe.finish()
    return result, probe.batches()


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """As sampled(), for tests that look at one run from several sides."""
    runs = {}

    def sampled_once(python, *arguments, **settings):
        key = json.dumps([python, arguments, settings])
        if key not in runs:
            one = Probe(tmp_path_factory.mktemp("once"))
            try:
                runs[key] = sampled(one, python, *arguments, **settings)
            finally:
                one.stop()
        return runs[key]

    return sampled_once


def layers_of(batches):
    return {layer["id"]: layer for batch in batches for layer in batch["layers"]}


def pieces(batches):
    """(layer, or None, phase, ns, calls) of each interval, or cell of a grid."""
    layers = layers_of(batches)
    for batch in batches:
        part = batch.get("grid") or batch["intervals"]
        durations = part["busy" if "grid" in batch else "duration"]
        calls = part.get("calls") or [1 - goes_on for goes_on in part.get("goesOn") or [0] * len(durations)]
        for row in zip(part["layer"], part["phase"], durations, calls):
            yield (layers.get(row[0]), *row[1:])


@pytest.fixture
def probe(tmp_path):
    p = Probe(tmp_path)
    yield p
    p.stop()
