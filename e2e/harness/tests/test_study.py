"""The paper's statements, asked about results that are known."""
import copy
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "study"))
import statements  # noqa: E402


def row(kind, phase="", name="", type_="", ns=0, **metrics):
    return {"kind": kind, "phase": phase, "layer": name, "type": type_, "busy_ns": ns, "total_ns": ns,
            "metrics": {metric: {"mean": mean, "stderr": error} for metric, (mean, error) in metrics.items()}}


def dlrm():
    rows = []
    for phase in ("forward", "backward"):
        rows += [row("layer", phase, "emb.0", "EmbeddingBag", 700, sm_active=(0.9, 0.01), sm_occupancy=(0.8, 0.01), dram_active=(0.7, 0.01)),
                 row("layer", phase, "top.0", "Linear", 200, sm_active=(0.5, 0.01), sm_occupancy=(0.2, 0.01), dram_active=(0.3, 0.01)),
                 row("layer", phase, "top.1", "ReLU", 50, sm_active=(0.4, 0.01), sm_occupancy=(0.3, 0.01), dram_active=(0.3, 0.01)),
                 row("layer", phase, "top.7", "Sigmoid", 2, sm_active=(0.1, 0.1)), row("layer", phase, "loss", "MSELoss", 1)]
    return rows + [job(60, 24000, 0.30, 0.1)]


def job(util, memory, dram, computing):
    return row("job", gpu_util=(util, 0.5), gpu_mem=(memory, 1), dram_active=(dram, 0.001), fp32_active=(computing, 0.001),
               tensor_active=(computing, 0.001), sm_active=(computing, 0.001))


@pytest.fixture
def runs():
    return {"dlrm": dlrm(), "resnext": [job(95, 21000, 0.31, 0.5)], "gpt2": [job(86, 18000, 0.32, 0.6)]}


def answers(runs):
    return [ask(runs)[0] for _, _, ask in statements.STATEMENTS]


def test_a_study_like_the_papers_holds(runs):
    assert answers(runs) == [True] * len(statements.STATEMENTS)


@pytest.mark.parametrize("number, change", [
    (0, lambda runs: runs["dlrm"][0].update(busy_ns=100)),
    (1, lambda runs: [runs["dlrm"][i].update(busy_ns=0) for i in (2, 7)]),
    (2, lambda runs: runs["dlrm"][0]["metrics"]["sm_active"].update(mean=0.3)),
    (3, lambda runs: runs["dlrm"][0]["metrics"]["dram_active"].update(mean=0.1)),
    (4, lambda runs: runs["dlrm"][5].update(busy_ns=100)),
    (5, lambda runs: runs["gpt2"][0]["metrics"]["gpu_util"].update(mean=50)),
    (6, lambda runs: runs["resnext"][0]["metrics"]["gpu_mem"].update(mean=30000)),
    (7, lambda runs: runs["gpt2"][0]["metrics"]["dram_active"].update(mean=0.6)),
    (8, lambda runs: runs["gpt2"][0]["metrics"]["fp32_active"].update(mean=0.05)),
])
def test_what_does_not_hold_is_said(runs, number, change):
    changed = copy.deepcopy(runs)
    change(changed)
    assert answers(changed)[number] is False


def test_too_near_or_not_measured_is_not_known(runs):
    runs["gpt2"][0]["metrics"]["gpu_util"].update(mean=60.5)
    runs["resnext"][0]["metrics"]["dram_active"] = {"mean": None}
    told = answers(runs)
    assert told[5] is None and told[7] is None and "not measured" in statements.STATEMENTS[7][2](runs)[1]


def test_a_mean_is_by_time(runs):
    rows = statements.layers(runs["dlrm"], "forward", "Linear", "ReLU")
    mean, error = statements.over(rows, "sm_active")
    assert mean == pytest.approx((200 * 0.5 + 50 * 0.4) / 250) and error == pytest.approx(0.01 * (200 ** 2 + 50 ** 2) ** 0.5 / 250)
