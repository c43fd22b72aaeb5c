"""Traces as others read them: Holistic Trace Analysis, and the parser of Chrome's developer tools. Both find every layer,
phase, step and rank, with the sums of the batches that the traces come from.

PP_CLI      the program precisionprobe
PP_READERS  a folder with the readers: Python's packages of readers.txt, and Node's in node_modules
"""
import collections
import json
import os
import pathlib
import subprocess

import folder
import pytest

HERE = pathlib.Path(__file__).parent
STEPS = 4

pytestmark = pytest.mark.skipif("PP_READERS" not in os.environ, reason="no readers of traces: e2e/test --all has them")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two ranks; the second one's steps begin 30 ms later, and its pieces are longer by 1,234 ns."""
    batches = [folder.batch(rank, 10, STEPS) for rank in range(2)]
    late = batches[1]
    for rank, batch in enumerate(batches):
        batch["process"].update(id=rank, rank=rank, worldSize=2)
    for side in ("start", "end"):
        late["stretch"][side] += 30 * folder.MS
    late["steps"]["start"][0] += 30 * folder.MS
    late["intervals"]["start"][0] += 30 * folder.MS
    late["intervals"]["duration"] = [ns + 1234 for ns in late["intervals"]["duration"]]
    late["intervals"]["phase"] = [0, 1] * STEPS
    return folder.write(tmp_path_factory.mktemp("results") / "run", batches=batches)


def truth(results):
    """({(rank, step, layer, phase): us}, {(rank, step): us}) by the batches' own numbers."""
    pieces, steps = collections.Counter(), {}
    for line in (results / "batches.jsonl").read_text().splitlines():
        batch = json.loads(line)
        rank, name = batch["process"]["rank"], {layer["id"]: layer["name"] for layer in batch["layers"]}
        told = batch["intervals"]
        numbers = running(told["step"])
        for layer, phase, step, ns in zip(told["layer"], told["phase"], numbers, told["duration"]):
            pieces[rank, step, name[layer], ("forward", "backward")[phase]] += ns / 1e3
        for step, ns in zip(running(batch["steps"]["number"]), batch["steps"]["duration"]):
            steps[rank, step] = ns / 1e3
    return dict(pieces), steps


def running(deltas):
    total, found = 0, []
    for delta in deltas:
        total += delta
        found.append(total)
    return found


def write_traces(results, to):
    for rank in range(2):
        told = subprocess.run([os.environ["PP_CLI"], "trace", f"--rank={rank}", results], capture_output=True, timeout=60,
                              check=True)
        (to / f"rank{rank}.json").write_bytes(told.stdout)


def lines_of(*command, **environment):
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_holistic_trace_analysis(results, tmp_path):
    write_traces(results, tmp_path)
    pieces, steps = collections.Counter(), {}
    for rank, step, name, category, dur in lines_of("/usr/bin/python3", str(HERE / "read_trace.py"), str(tmp_path),
                                                    PYTHONPATH=os.environ["PP_READERS"]):
        if category == "user_annotation":
            assert name == f"ProfilerStep#{step}"
            steps[rank, step] = dur
        else:
            pieces[rank, step, name, category] += dur
    expected, expected_steps = truth(results)
    assert dict(pieces) == pytest.approx(expected, abs=1e-3) and steps == pytest.approx(expected_steps, abs=1e-3)


def test_chromes_developer_tools(results, tmp_path):
    """Of all ranks in one file."""
    told = subprocess.run([os.environ["PP_CLI"], "trace", results], capture_output=True, timeout=60, check=True)
    (tmp_path / "trace.json").write_bytes(told.stdout)
    pieces, steps = collections.Counter(), {}
    for rank, _, name, category, _, dur, args in lines_of("node", str(HERE / "read_trace.mjs"), os.environ["PP_READERS"],
                                                          str(tmp_path / "trace.json")):
        if category == "user_annotation":
            assert name == f"ProfilerStep#{args['step']}"
            steps[rank, args["step"]] = dur
        else:
            assert (name, category) == (args["layer"], args["phase"])
            pieces[rank, args["step"], name, category] += dur
    expected, expected_steps = truth(results)
    assert dict(pieces) == pytest.approx(expected, abs=1e-3) and steps == pytest.approx(expected_steps, abs=1e-3)
