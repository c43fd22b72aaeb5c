"""Ranks side by side: of two over gloo, the one that the other waits for, and what it takes longer for.

PP_CLI, PP_HOOK, PP_TORCH_PYTHON  as in test_run.py
MASTER_PORT                       where the ranks meet
"""
import json
import os
import pathlib
import subprocess

import pytest

RANKS = str(pathlib.Path(__file__).parent / "ranks.py")
LATE_MS = 8


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", os.environ["PP_TORCH_PYTHON"].split(":"))


def run(folder, python, how):
    """(what was told, results)"""
    told = subprocess.run([os.environ["PP_CLI"], "run", "--budget", "50", "--capture", "200ms", "-o", str(folder), "--",
                           python, RANKS, how, "400"], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PRECISIONPROBE_HOOK": os.environ["PP_HOOK"]})
    assert told.returncode == 0, told.stderr
    return told.stderr, json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("how, layer, phase", [
    ("layer", "1", "forward"), ("loader", "", "data"), ("code", "", "other")])
def test_the_slow_rank(python, tmp_path, how, layer, phase):
    told, results = run(tmp_path / "results", python, how)
    ranks = {r["rank"]: r for r in results["ranks"]}
    assert set(ranks) == {0, 1} and all(r["steps"] > 50 and r["worldSize"] == 2 for r in ranks.values())
    assert ranks[0]["waitMs"] - ranks[1]["waitMs"] > LATE_MS / 2
    slowest = results["slowest"]
    assert slowest["rank"] == 1 and slowest["behindMs"] > LATE_MS / 2
    assert slowest["lateSteps"] > slowest["toldSteps"] / 2 > 0
    first = slowest["items"][0]
    assert (first["layer"], first["phase"]) == (layer, phase)
    excess = first["millisecondsPerStep"] - first["othersMillisecondsPerStep"]
    assert excess > LATE_MS / 2 and excess > 0.6 * slowest["behindMs"]  # a busy machine makes all of it longer
    assert "the others wait for rank 1 (process " in told
    report = subprocess.run([os.environ["PP_CLI"], "report", str(tmp_path / "results")], capture_output=True, text=True,
                            timeout=60)
    assert report.stdout.strip() in told


def test_nobody_is_slow(python, tmp_path):
    told, results = run(tmp_path / "results", python, "nothing")
    assert len(results["ranks"]) == 2 and "ranks, side by side" in told
    slowest = results.get("slowest")
    assert not slowest or slowest["behindMs"] < LATE_MS / 2, slowest


def test_rows_are_of_the_steps_in_their_heading(python, tmp_path):
    """Two processes without a GPU are in one table: what one does while the other does something else counts in full."""
    _, results = run(tmp_path / "results", python, "layer")
    (table,) = results["gpus"]
    rows = sum(i["millisecondsPerStep"] for i in table["items"] if i["kind"] not in ("idle", "job"))
    assert rows == pytest.approx(table["stepMs"], rel=0.02)
    (late,) = [i for i in table["items"] if (i["layer"], i["phase"]) == ("1", "forward")]
    of_ranks = [i["millisecondsPerStep"] for r in results["ranks"] for i in r["items"]
                if (i["layer"], i["phase"]) == ("1", "forward")]
    assert late["millisecondsPerStep"] == pytest.approx(sum(of_ranks) / 2, rel=0.05) and max(of_ranks) > LATE_MS / 2
