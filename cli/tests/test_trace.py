"""`precisionprobe trace`: Chrome's trace events of the steps that were kept in full.

PP_CLI  the program precisionprobe
"""
import json
import os
import subprocess

import folder
import pytest
from test_files import RECORDINGS


def run(results, *options):
    return subprocess.run([os.environ["PP_CLI"], "trace", *options, results], capture_output=True, text=True, timeout=60)


def trace(results, *options):
    told = run(results, *options)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def test_events_of_a_step(tmp_path):
    batch = folder.batch(0, 3, 1)
    batch["steps"]["gap"] = [170 * folder.MS]
    batch["steps"]["epoch"] = [-1]
    batch["intervals"]["kernels"] = [400 * folder.MS, -1]
    told = trace(folder.write(tmp_path, batches=[batch]))
    assert told["otherData"] == {"startNs": str(folder.T0 + 3000 * folder.MS)}
    step, bottom, top = [e for e in told["traceEvents"] if e["ph"] == "X"]
    assert step == {"ph": "X", "name": "ProfilerStep#3", "cat": "user_annotation", "pid": 0, "tid": 0, "ts": 0, "dur": 1e6,
                    "args": {"step": 3, "batch": 3, "gap": 170e3}}
    assert bottom == {"ph": "X", "name": "bottom", "cat": "forward", "pid": 0, "tid": 1, "ts": 0, "dur": 430e3,
                      "args": {"layer": "bottom", "type": "Linear", "phase": "forward", "step": 3, "busy": 400e3}}
    assert (top["ts"], top["dur"]) == (430e3, 370e3) and "busy" not in top["args"]


def test_names_of_ranks_and_phases(tmp_path):
    batches = [folder.batch(0, 0, 1), folder.batch(1, 0, 1)]
    for rank, batch in enumerate(batches):
        batch["process"].update(id=rank, rank=1 - rank, worldSize=2, model='Two"\\')
    told = trace(folder.write(tmp_path, batches=batches))["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in told if e["ph"] == "M"}
    assert names["process_name", 1, 0] == 'rank 1 of 2 Two"\\' and names["thread_name", 0, 0] == "steps"
    phases = ["forward", "backward", "optimizer", "recompute", "zero_grad", "data", "communication", "other", "inference"]
    assert [names["thread_name", 0, 1 + i] for i in range(len(phases))] == phases
    assert {e["pid"] for e in told if e["ph"] == "X"} == {0, 1}


def test_a_rank_that_began_earlier(tmp_path):
    """Nothing lies before 0, where readers leave it out."""
    batches = [folder.batch(0, 2, 1), folder.batch(1, 0, 1)]
    for rank, batch in enumerate(batches):
        batch["process"].update(id=rank, rank=rank, worldSize=2)
    told = trace(folder.write(tmp_path, batches=batches))["traceEvents"]
    assert min(e["ts"] for e in told if e["ph"] == "X") == 0


def test_replays_are_no_training():
    batches = [json.loads(line) for line in (RECORDINGS / "replay/batches.jsonl").read_text().splitlines()]
    dwells = [batch for batch in batches if "dwell" in batch["stretch"]]
    pieces = sum(len(batch["intervals"]["layer"]) for batch in batches if batch not in dwells and "intervals" in batch)
    told = [e for e in trace(RECORDINGS / "replay")["traceEvents"] if e["ph"] == "X" and e["cat"] != "user_annotation"]
    assert dwells and len(told) == pieces > 0


def test_one_rank(tmp_path):
    """Beside the others: its times begin where theirs do. What looks for its rank in the text finds a space before it."""
    batches = [folder.batch(0, 0, 1), folder.batch(1, 2, 1)]
    for rank, batch in enumerate(batches):
        batch["process"].update(id=rank, rank=rank, worldSize=2)
    results = folder.write(tmp_path, batches=batches)
    told = trace(results, "--rank=1")
    assert told["distributedInfo"] == {"rank": 1, "world_size": 2} and '"rank": 1' in run(results, "--rank=1").stdout
    assert {(e["pid"], e["ts"]) for e in told["traceEvents"] if e.get("cat") == "user_annotation"} == {(1, 2e6)}
    assert "distributedInfo" not in trace(results)


@pytest.mark.parametrize("rank, message", [
    ("2", "--rank names no process of the run"), ("-1", "--rank must be a number from 0 to 65535"), ("1x", "--rank"),
    ("", "--rank")])
def test_no_such_rank(tmp_path, rank, message):
    told = run(folder.write(tmp_path), f"--rank={rank}")
    assert told.returncode == 1 and message in told.stderr


def test_sums_are_left_out(tmp_path):
    told = trace(folder.write(tmp_path, batches=[folder.batch(0, 0, 2), folder.as_grid(folder.batch(1, 2, 50))]))
    assert [e["args"]["step"] for e in told["traceEvents"] if e.get("cat") == "user_annotation"] == [0, 1]


@pytest.mark.parametrize("text, message", [
    ("", None),
    ("{}\n", "batches.jsonl:1: session is required"),
    ("nonsense\n", "batches.jsonl:1:"),
])
def test_foreign_files(tmp_path, text, message):
    folder.write(tmp_path)
    (tmp_path / "batches.jsonl").write_text(text)
    told = run(tmp_path)
    if message is None:
        assert told.returncode == 0 and json.loads(told.stdout)["traceEvents"] == []
    else:
        assert (told.returncode, told.stdout) == (1, "") and message in told.stderr


def test_a_run_that_is_still_written(tmp_path):
    """What it has written so far, without a line that has no end yet; where results are complete, that is a damage."""
    folder.write(tmp_path)
    lines = (tmp_path / "batches.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "batches.jsonl").write_text("".join(lines[:2]) + lines[2][:100])
    assert "batches.jsonl:3: " in run(tmp_path).stderr
    (tmp_path / "results.json").unlink()
    assert [e["args"]["step"] for e in trace(tmp_path)["traceEvents"] if e.get("cat") == "user_annotation"] == list(range(20))


def test_no_folder(tmp_path):
    told = run(tmp_path)
    assert "batches.jsonl: No such file" in told.stderr and told.stdout == ""
