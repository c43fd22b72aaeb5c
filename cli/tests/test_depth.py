"""`precisionprobe report --depth`: layers put together by the first parts of their names.

PP_CLI  the program precisionprobe
"""
import copy
import json
import math
import pathlib
import re

import pytest

import folder
from test_files import RECORDINGS, refused, table_of, written

SUMS = ("ms_per_step", "least_ms_per_step", "busy_ms_per_step", "busy_ns", "total_ns", "share")


def items_of(*arguments):
    return json.loads(written("--format=json", *arguments))["items"]


def parts(name, depth):
    return ".".join(name.split(".")[:depth])


@pytest.mark.parametrize("recording, depth", [("sampling", 1), ("demo", 1), ("regression", 1), ("sampling", 2)])
def test_sums_and_means(recording, depth):
    """By hand from the rows of all layers: times, parameters, and means by time."""
    each, folded = items_of(RECORDINGS / recording), items_of(f"--depth={depth}", RECORDINGS / recording)
    groups = {}
    for item in each:
        groups.setdefault((item["kind"], parts(item["layer"], depth), item["phase"]), []).append(item)
    assert [(item["kind"], item["layer"], item["phase"]) for item in folded] == list(groups)
    for item in folded:
        rows = groups[item["kind"], item["layer"], item["phase"]]
        for key in SUMS:
            known = all(row[key] is not None for row in rows)
            assert item[key] == (pytest.approx(sum(row[key] for row in rows), rel=1e-9) if known else None), key
        for name, told in item["metrics"].items():
            check_metric(told, [(row["metrics"][name], row["busy_ns"] if row["metrics"][name]["basis"] == "busy" else row["total_ns"])
                                for row in rows], len(rows))


def check_metric(told, values, n):
    if n == 1:
        return
    known = [(value, ns) for value, ns in values if value["mean"] is not None]
    time = sum(ns for _, ns in known)
    if not known or time < 0.95 * sum(ns for _, ns in values):
        assert told["mean"] is None and told["reason"] == "layers in it have no value of their own"
        return
    assert told["mean"] == pytest.approx(sum(value["mean"] * ns for value, ns in known) / time, rel=1e-9)
    assert told["stderr"] == pytest.approx(sum(value["stderr"] * ns for value, ns in known) / time, rel=1e-9)
    least, most = (of(value["mean"] for value, _ in known) for of in (min, max))
    assert least * (1 - 1e-9) <= told["mean"] <= most * (1 + 1e-9)


def metric(mean, source="a"):
    return {"mean": mean, "standardError": 0.02, "windows": 4.0, "method": "sampling", "source": source, "basis": "busy", "reason": None}


def row(name, ms, mean, bound="Memory", **more):
    ns = int(ms * folder.MS * 10)
    return {"kind": "layer", "layer": name, "type": "Linear", "phase": "forward", "parameters": 10, "calls": 20, "totalNs": 2 * ns,
            "millisecondsPerStep": 2 * ms, "leastMillisecondsPerStep": ms, "share": ms / 100, "busyNs": ns, "busyMillisecondsPerStep": ms,
            "idleShare": 0.5, "busyReason": None, "bound": bound, "boundLikely": 0.9, "metrics": {"SMActive": mean}, **more}


def of_rows(tmp_path, *rows):
    gpu = {"gpu": folder.GPU, "steps": 10, "stepMs": 100.0, "items": list(rows)}
    return folder.write(tmp_path / "made", {**folder.RESULTS, "gpus": [gpu]})


def test_an_error_that_is_not_known(tmp_path):
    """It is none of 0."""
    at = of_rows(tmp_path, row("h.0.a", 2, {**metric(0.5), "standardError": None}), row("h.0.b", 2, metric(0.3)))
    told, = (value for value in items_of("--depth=2", at)[0]["metrics"].values() if value["mean"] is not None)
    assert told["mean"] == pytest.approx(0.4) and told["stderr"] is None
    table = written("--format=table", at)
    assert " 50.0" in table and "50.0±" not in table and "30.0±2.0" in table


def test_times_that_are_not_known(tmp_path):
    """They are not listed as none."""
    at = of_rows(tmp_path, row("h.0.a", 2, metric(0.5)), {**row("h.0.b", 2, metric(0.3)), "millisecondsPerStep": None, "share": None,
                                                          "busyMillisecondsPerStep": None})
    table = written("--format=table", at)
    assert re.search(r"h.0.b .* - +- ", table) and "not listed" not in table


def test_a_module_that_has_a_row_of_its_own(tmp_path):
    """It keeps its type and its calls; what is not below it does not join it."""
    own = {**row("h.0", 1, metric(0.2), bound="Tensor"), "type": "Block", "calls": 10, "memoryPeakBytes": 7, "memoryLiveBytes": -5}
    at = of_rows(tmp_path, row("h.0.attn", 2, metric(0.5), memoryPeakBytes=9, memoryLiveBytes=3), own, row("h.01.attn", 4, metric(0.9)),
                 {**row("h.0.attn", 2, metric(0.5)), "phase": "backward"}, {**row("loss", 1, metric(0.1)), "type": "(outside of modules)"})
    folded = items_of("--depth=2", at)
    assert [(one["layer"], one["phase"], one["type"], one["calls"]) for one in folded] == [
        ("h.0", "forward", "Block", 10), ("h.01", "forward", "(1 layer)", None), ("h.0", "backward", "(1 layer)", None),
        ("loss", "forward", "(outside of modules)", 20)]
    both = folded[0]
    assert (both["parameters"], both["busy_ms_per_step"], both["memory_peak_bytes"], both["memory_live_bytes"]) == (20, 3, 9, -2)
    assert both["idle_share"] == pytest.approx(0.5) and both["metrics"]["sm_active"]["mean"] == pytest.approx(0.4)
    assert both["bound"] == "Memory" and both["bound_likely"] == pytest.approx(0.6)
    assert [line.split()[0] for line in written("--depth=2", at).splitlines()[5:9]] == ["h.0", "h.01", "h.0", "loss"]


@pytest.mark.parametrize("other, mean", [(metric(0.7), 0.6), (metric(0.7, source="b"), None), ({**metric(None), "reason": "why"}, None)])
def test_values_of_unlike_sources_or_of_too_little_time(tmp_path, other, mean):
    at = of_rows(tmp_path, row("a.b", 2, metric(0.5)), row("a.c", 2, other))
    told = items_of("--depth=1", at)[0]["metrics"]["sm_active"]
    assert told["mean"] == (mean and pytest.approx(mean)) and (told["reason"] is None) == (mean is not None)
    at = of_rows(tmp_path, row("a.b", 98, metric(0.5)), row("a.c", 2, other))
    assert items_of("--depth=1", at)[0]["metrics"]["sm_active"]["mean"] == pytest.approx(0.504 if mean else 0.5)


def test_nothing_to_put_together():
    for form in ("csv", "json", "table"):
        assert written(f"--format={form}", "--depth=64", RECORDINGS / "sampling") == written(f"--format={form}", RECORDINGS / "sampling")


def test_kernels_and_files(tmp_path):
    kernel = {"name": "gemm", "callsPerStep": 2.0, "millisecondsPerStep": 1.5}
    rows = [{**row(name, 2, metric(0.5)), "kernels": copy.deepcopy([kernel])} for name in ("a.b", "a.c")]
    at = of_rows(tmp_path, *rows)
    told = [line for line in written("--depth=1", "--kernels", at).splitlines() if "gemm" in line]
    assert len(told) == 1 and "3.0" in told[0]
    assert [one["layer"] for one in table_of(written("--depth=1", "--format=csv", at))] == ["a"]


def test_wrong_depths(tmp_path):
    at = of_rows(tmp_path, row("a.b", 2, metric(0.5)))
    for wrong in ("0", "65", "x", "", "1x"):
        assert refused(f"--depth={wrong}", at) == f"--depth must be 1 to 64, not {wrong}"
    assert refused("--depth=1", "--format=orion", at) == "--depth is of rows, which orion has none of"
    assert pathlib.Path(at).is_dir()
