"""What the hook needs fails, and the training is as without it: its results, its output, its exit status."""
import json
import os
import pathlib

import pytest
from conftest import HERE, needed, plain, run, undelta

FAULTS = str(HERE / "faults.py")
DOUBLES = pathlib.Path(needed("PP_HOOK")).parent / "tests"
CUDA = str(DOUBLES / "cuda" / "libcuda.so.1")
OLD_CUDA = str(DOUBLES / "cuda-old" / "libcuda.so.1")


def trained(probe, python, *arguments, environment=None, **settings):
    """A case of faults.py under the agent: what it tells and the batches; its losses are those of a plain run."""
    extra = {"LD_PRELOAD": str(DOUBLES / "faults.so"), **(environment or {})}
    probe.configure(**settings)
    agent = probe.start("--dump")
    result = run(python, FAULTS, *arguments, environment=probe.environment({"AGENT": str(agent.pid), **extra}))
    probe.finish()
    alone = plain(python, FAULTS, "plain")
    told = json.loads(result.stdout.splitlines()[-1])
    assert len(result.stdout.splitlines()) == 1 and result.stderr == alone.stderr
    assert (told["losses"], told["others"]) == (json.loads(alone.stdout)["losses"], 0)
    assert told["hooks"] == []
    return told, probe.batches()


def steps(batches):
    return sum(len(b["steps"]["number"]) for b in batches)


SYSTEM = ["open:1", "open:2", "read", "fchmod", "posix_fallocate", "flock", "mmap", "rename"]
OPEN = """
import ctypes, json, os, sys
from precisionprobe_hook import _marks
fault = ctypes.CDLL(None).pp_fault
def tried():
    try:
        _marks.open(sys.argv[1], "python", "torch", "host", "", 0, 1, 2, 0)
    except OSError as error:
        return str(error), os.listdir(sys.argv[1])
told = {}
for name in sys.argv[2:]:
    fault(name.encode())
    told[name] = tried()
fault(b"")
print(json.dumps([told, tried(), len(os.listdir(sys.argv[1]))]))
"""


def test_a_ring_that_cannot_be_made_leaves_nothing(tmp_path):
    """Each call of the system fails in turn; then none."""
    ring = tmp_path / "ring"
    ring.mkdir()
    result = run("/usr/bin/python3", "-c", OPEN, str(ring), *SYSTEM,
                 environment={**os.environ, "PYTHONPATH": needed("PP_HOOK"),
                              "LD_PRELOAD": str(DOUBLES / "faults.so")})
    told, last, files = json.loads(result.stdout)
    for name, outcome in told.items():
        assert outcome and outcome[0] and outcome[1] == [], (name, outcome)
    assert (last, files, result.stderr) == (None, 1, "")


@pytest.mark.parametrize("call", ["posix_fallocate", "pthread_create"])
def test_no_ring_or_no_thread(probe, python, call):
    told, batches = trained(probe, python, "session", environment={"PP_FAULT": call})
    assert steps(batches) == 0
    ring = told["ring"]
    assert ring is None if call == "posix_fallocate" else (ring["detached"], ring["failures"]) == (1, 1)


def test_allocations_that_fail(probe, python):
    told, _ = trained(probe, python, "memory", overheadBudgetPercent=60, stretch={"seconds": 0.02})
    assert told["counted"] and told["failed"] >= 60


def test_a_ring_that_nobody_reads(probe, python):
    told, batches = trained(probe, python, "full")
    stuck = told["stuck"]
    assert told["filled"] and stuck["marks"] == stuck["head"] + stuck["lost"]
    assert told["again"] and sum(b["dropped"] for b in batches) > 0 and steps(batches) > 0


@pytest.mark.parametrize("fault", ["create", "query", "context", "calibrate", "old", "missing"])
def test_events_that_never_work(probe, python, fault):
    library = {"old": OLD_CUDA, "missing": ""}.get(fault, CUDA)
    told, batches = trained(probe, python, "session", library, environment={"PP_CUDA_FAULT": fault})
    if fault in ("old", "missing"):
        assert told["ring"]["clock"] == "host" and steps(batches) > 0 and told["ring"]["lost"] == 0
    else:
        assert told["ring"]["clock"] == "cuda" and steps(batches) == 0 and told["ring"]["lost"] > 100


def test_a_gpu_that_is_used_only_from_the_first_step_on(probe, python):
    told, batches = trained(probe, python, "later", CUDA)
    assert told["asked"] == 1 and told["ring"]["clock"] == "cuda" and steps(batches) > 0
    assert {b["process"]["clock"] for b in batches} == {"cuda"}


def test_data_that_ends_while_marks_are_events(probe, python):
    told, batches = trained(probe, python, "epochs", CUDA)
    assert told["batches"] == [3] and told["ring"]["failures"] == 0
    assert any(5 in b.get(kind, {}).get("phase", ()) for b in batches for kind in ("intervals", "grid"))


def test_events_that_work_again(probe, python):
    told, batches = trained(probe, python, "cuda", CUDA)
    assert all(fault["counted"] and fault["again"] for fault in told["told"].values()), told
    numbers = [n for b in batches for n in undelta(b["steps"]["number"])]
    after = [fault["steps"] for fault in told["told"].values()]
    # Whole steps between each fault and the next, in times that can be.
    for begin, end in zip(after, after[1:]):
        assert [n for n in numbers if begin - 30 < n < end], (told, numbers)


def test_marks_that_are_lost_while_the_gpu_is_behind(probe, python):
    """The step that lost them is not told, and those before it are."""
    told, batches = trained(probe, python, "behind", CUDA)
    numbers = {n for b in batches for n in undelta(b["steps"]["number"])}
    for damaged in told["damaged"]:
        assert not numbers & {damaged} and {damaged - 2, damaged - 1} <= numbers, (damaged, sorted(numbers))
