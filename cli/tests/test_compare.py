"""`precisionprobe report --compare`: recorded runs, and trainings whose truth is known.

PP_CLI          the program precisionprobe
PP_SOLVE_AGAIN  the program solve_again
"""
import csv
import io
import itertools
import json
import math
import re
import shutil

import pytest

import folder
import simulated
import terminal
from test_files import RECORDINGS, refused, written
from test_terminal import CLI, layer, of_layers

PAIRS = [("demo", "in_step"), ("sampling", "replay"), ("h200", "sampling"), ("regression", "h200")]


def compared(one, other, *arguments):
    return json.loads(written("--format=json", f"--compare={other}", *arguments, one))


def row_of(told, layer, quantity="ms_per_step", phase="forward"):
    return next(row for row in told["items"] if (row["layer"], row["quantity"], row["phase"]) == (layer, quantity, phase))


def holm(rows):
    """Whole steps are a family of their own."""
    marked = set()
    for level, of_step in ((0.01, True), (0.04, False)):
        known = sorted((row["p"], i) for i, row in enumerate(rows) if row["p"] is not None and (row["kind"] == "step") == of_step)
        for place, (p, i) in enumerate(known):
            if p > level / (len(known) - place):
                break
            marked.add(i)
    return marked


@pytest.mark.parametrize("one, other", PAIRS)
def test_real_runs(one, other):
    """Each row by hand from both runs' rows: values, differences, errors, z, and marks."""
    told = compared(RECORDINGS / one, RECORDINGS / other)
    sides = [{(item["kind"], item["layer"], item["phase"]): item for item in json.loads(written("--format=json", RECORDINGS / name))["items"]}
             for name in (one, other)]
    for row in told["items"]:
        key = (row["kind"], row["layer"], row["phase"])
        if row["kind"] == "step":
            continue
        here, there = (side.get(key) for side in sides)
        if row["only_in"]:
            assert (here is None) == (row["only_in"] == "other") and (there is None) == (row["only_in"] == "this")
            assert row["difference"] is None and row["z"] is None
        elif row["quantity"] in ("ms_per_step", "busy_ms_per_step"):
            assert (row["value"], row["other_value"]) == (here[row["quantity"]], there[row["quantity"]])
        else:
            check_metric(row, here["metrics"][row["quantity"]], there["metrics"][row["quantity"]])
        if row["z"] is not None:
            assert row["difference"] == pytest.approx(row["value"] - row["other_value"])
            assert row["difference_stderr"] == pytest.approx(math.hypot(row["stderr"], row["other_stderr"]))
            assert row["z"] == pytest.approx(row["difference"] / row["difference_stderr"])
    assert {i for i, row in enumerate(told["items"]) if row["more_than_noise"]} == holm(told["items"])
    assert told["more_than_noise"] == len(holm(told["items"])) and told["compared"] == sum(row["p"] is not None for row in told["items"])


def check_metric(row, here, there):
    assert (row["value"], row["stderr"]) == (here["mean"], here["stderr"])
    assert (row["other_value"], row["other_stderr"]) == (there["mean"], there["stderr"])
    unlike = next((reason for key, reason in (("method", "the methods differ"), ("source", "the sources differ"),
                                              ("basis", "one is a mean over busy, the other over elapsed time"))
                   if here[key] and there[key] and here[key] != there[key]), None)
    if unlike:
        assert row["reason"] == unlike and row["difference"] is None and row["z"] is None


def test_a_run_with_itself():
    told = compared(RECORDINGS / "h200", RECORDINGS / "h200")
    assert told["more_than_noise"] == 0 and {row["difference"] for row in told["items"]} == {0.0}
    lines = written(f"--compare={RECORDINGS / 'h200'}", RECORDINGS / "h200").splitlines()
    assert lines[0] == f"h200 compared with h200: 0 of {told['compared']} values differ by more than noise"
    assert lines[2] == " another clock of the GPU, node or data makes a difference, too)"
    assert lines[6].split() == ["whole", "step", "700.869", "700.869", "+0.000", "0.297", "0.0"]
    assert lines[-2:] == ["whole step (marked): +0.000 ± 0.297 ms, +0.0 %", "  z 0.0, p 1: no more than noise"]


@pytest.mark.parametrize("off, words", [(3.4, "z 3.4, p 0.0068: more than noise"), (3.0, "z 3.0, p 0.013: no more than noise"),
                                        (1e9, "z 1000000000.0, p < 1e-16: more than noise")])
def test_the_whole_step_is_judged_by_itself(tmp_path, off, words):
    """However many rows are beside it, which say nothing of it."""
    def training(name, step):
        (tmp_path / name).mkdir()
        rows = [{**layer(f"blocks.{i}", metrics={}), "millisecondsPerStepStandardError": 0.01, "millisecondsPerStepFreedom": 20} for i in range(80)]
        at = of_layers(tmp_path / name, rows)
        results = json.loads((at / "results.json").read_text())
        results["gpus"][0].update(stepMs=step, stepMsStandardError=1 / math.sqrt(2), stepMsFreedom=5)
        (at / "results.json").write_text(json.dumps(results))
        (at / "batches.jsonl").unlink()
        return at
    one, other = training("one", 100.0 + off), training("other", 100.0)
    told = compared(one, other)
    assert told["compared"] == 81 and (told["level"], told["step_level"]) == (0.05, 0.01)
    assert {written(f"--compare={other}", *depth, one).splitlines()[-1] for depth in ((), ("--depth=1",), ("--depth=2",))} == {f"  {words}"}


def test_rows_are_judged_without_the_whole_step(tmp_path):
    """One row alone: at 4 %, whatever the step does."""
    def training(name, ms):
        (tmp_path / name).mkdir()
        return of_layers(tmp_path / name, [{**layer("a", ms=ms, metrics={}), "millisecondsPerStepStandardError": 1 / math.sqrt(2)}])
    other = training("other", 10.0)
    for n, (off, marked) in enumerate(((2.04, False), (2.06, True))):  # the normal distribution's 0.0414 and 0.0394
        assert row_of(compared(training(f"one{n}", 10.0 + off), other), "a")["more_than_noise"] is marked


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """Ten runs of one training: its truth is the same, its noise is not."""
    at = tmp_path_factory.mktemp("alike")
    return [simulated.training(at / f"run{i}", seed=i, memory=0.5) for i in range(10)]


def test_what_does_not_differ_is_seldom_marked(alike):
    """In 45 comparisons at most the 5 % that Holm's procedure allows, and z as far from 0 as it says: within what chance makes of it."""
    told = [compared(one, other) for one, other in itertools.combinations(alike, 2)]
    alarms = sum(one["more_than_noise"] > 0 for one in told)
    assert len(told) == 45 and alarms <= 6, alarms
    for quantity in ("ms_per_step", "sm_active"):
        squares = [row["z"] ** 2 for one in told for row in one["items"] if row["quantity"] == quantity and row["z"] is not None]
        assert len(squares) >= 180 and 0.4 < sum(squares) / len(squares) < 1.6, quantity


@pytest.mark.parametrize("name", ["embedding", "top"])
def test_a_slower_layer_is_found(alike, tmp_path, name):
    """By 5 %: that layer is marked, and the whole step, within three standard errors of the truth; no other time."""
    slow = simulated.training(tmp_path / "slow", seed=99, layers=simulated.slower(name, 1.05), memory=0.5)
    told = compared(slow, alike[0])
    ms = next(ms for of, ms, _ in simulated.LAYERS if of == name)
    step = next(row for row in told["items"] if row["kind"] == "step")
    assert row_of(told, name)["more_than_noise"] is True and step["more_than_noise"] is True
    assert all(abs(row["difference"] - 0.05 * ms) < 3 * row["difference_stderr"] for row in (row_of(told, name), step))
    assert 3 * row_of(told, name)["difference_stderr"] < 0.05 * ms
    others = [row for row in told["items"] if row["quantity"] == "ms_per_step" and row["layer"] not in (name, "")]
    assert len(others) == 3 and not any(row["more_than_noise"] for row in others)
    table = written(f"--compare={alike[0]}", slow)
    at = table.splitlines().index(f"{name} forward")
    assert table.splitlines()[at + 1].split()[:2] == ["*", "ms/step"]
    assert table.splitlines()[-2].startswith("whole step (marked): +") and table.splitlines()[-1].endswith(": more than noise")


def test_another_use_of_the_gpu_is_found(alike, tmp_path):
    layers = [(of, ms, active + 0.1 if of == "bottom" else active) for of, ms, active in simulated.LAYERS]
    told = compared(simulated.training(tmp_path / "busier", seed=98, layers=layers, memory=0.5), alike[1])
    row = row_of(told, "bottom", "sm_active")
    assert row["more_than_noise"] and abs(row["difference"] - 0.1) < 3 * row["difference_stderr"] < 0.1
    assert not any(row["more_than_noise"] for row in told["items"] if row["unit"] == "ms")


def test_trainings_that_have_nothing_in_common(alike):
    """No layer's name is in both, and one's GPU is of no model that is known."""
    said = written(f"--compare={RECORDINGS / 'demo'}", RECORDINGS / "h200")
    assert "no layer is in both: these are different trainings, or another model\n" in said
    assert "the GPU's model is not known of demo: whether both are alike is not, either\n" in said
    assert not re.search("different trainings|is not known of", written(f"--compare={alike[0]}", alike[1]))


def test_layers_that_one_alone_has(alike, tmp_path):
    layers = [*simulated.LAYERS[:3], ("tail", 120.0, 0.75)]
    told = compared(simulated.training(tmp_path / "renamed", seed=97, layers=layers), alike[2])
    assert [(row["layer"], row["only_in"]) for row in told["items"] if row["only_in"]] == [("tail", "this"), ("head", "other")]
    lines = written(f"--compare={alike[2]}", tmp_path / "renamed").splitlines()
    assert "only in renamed: tail forward" in lines and "only in run2: head forward" in lines


def test_unlike_gpus_are_never_differenced(alike, tmp_path):
    h100, a100 = ({"capability": capability, "multiprocessors": sms, "smKHz": 1980000, "memoryKHz": 2619000, "memoryBits": 5120}
                  for capability, sms in ((90, 132), (80, 108)))
    one, other = (simulated.training(tmp_path / f"of{i}", seed=96 + i, chip=chip) for i, chip in enumerate((h100, a100)))
    told = compared(one, other)
    assert told["compared"] == 0 and {row["reason"] for row in told["items"]} == {"the GPUs are of different models"}
    assert all(row["difference"] is None and row["value"] is not None for row in told["items"])
    text = written(f"--compare={other}", one)
    assert "nothing is compared: the GPUs are of different models (compute capability 9.0, 132 SMs, " in text
    assert text.splitlines()[-1].endswith("not compared: the GPUs are of different models")
    same = simulated.training(tmp_path / "same", seed=95, chip=h100)
    assert compared(one, same)["compared"] > 0 and compared(one, alike[0])["compared"] > 0


def test_peaks_tell_models_apart(tmp_path):
    def with_peak(name, peak):
        value = {"mean": 0.5, "standardError": 0.01, "method": "sampling", "basis": "busy", "peak": peak, "achieved": peak / 2}
        return of_layers(tmp_path / name, [layer("a", metrics={"DRAMActive": value})])
    for name in ("one", "near", "far"):
        (tmp_path / name).mkdir()
    one = with_peak("one", 4.92e12)
    assert compared(one, with_peak("near", 4.93e12))["compared"] == 1
    assert compared(one, with_peak("far", 3.35e12))["compared"] == 0


def test_methods_sources_and_bases(tmp_path):
    """Values that were not come by alike are shown, and the reason in place of a difference."""
    value = {"mean": 0.5, "standardError": 0.01, "method": "sampling", "source": "a", "basis": "busy"}
    unlike = [{"method": "regression"}, {"source": "b"}, {"basis": "elapsed"}]
    reasons = ["the methods differ", "the sources differ", "one is a mean over busy, the other over elapsed time"]
    (tmp_path / "one").mkdir()
    one = of_layers(tmp_path / "one", [layer("a", metrics={"SMActive": value})])
    for i, (change, reason) in enumerate(zip(unlike, reasons)):
        (tmp_path / str(i)).mkdir()
        other = of_layers(tmp_path / str(i), [layer("a", metrics={"SMActive": {**value, **change}})])
        row = row_of(compared(one, other), "a", "sm_active")
        assert row["reason"] == reason and row["difference"] is None and row["reason_detail"] == ", ".join(
            [value[next(iter(change))], *change.values()])
        assert f"not compared: 1 value, since {reason} (" in written(f"--compare={other}", one)


def of_earlier_releases(folder):
    """The results of a folder without standard errors of times."""
    results = json.loads((folder / "results.json").read_text())
    for told in [results["gpus"][0], *results["gpus"][0]["items"]]:
        for key in [key for key in told if key.endswith(("StepStandardError", "StepFreedom", "MsStandardError", "MsFreedom"))]:
            del told[key]
    return results


def test_results_alone_have_no_errors_of_times(alike, tmp_path):
    """Of results of earlier releases, without their batches: the difference is told, and no z."""
    (tmp_path / "kept.json").write_text(json.dumps(of_earlier_releases(alike[0])))
    row = row_of(compared(tmp_path / "kept.json", alike[1]), "top")
    assert row["difference"] is not None and row["z"] is None and row["reason"] == "a standard error is not known"
    assert "Freedom" in (alike[0] / "results.json").read_text()


@pytest.mark.parametrize("windows, p", [(3, 0.10119), (1e9, 0.033895)])
def test_few_windows_leave_their_mean_unsure(tmp_path, windows, p):
    """The job's mean, of windows, three of its standard errors apart: by Student's t, of as many as there are."""
    results = json.loads((RECORDINGS / "h200/results.json").read_text())
    job, = (item["metrics"]["SMActive"] for item in results["gpus"][0]["items"] if item["kind"] == "job")
    assert job["method"] == "job"
    job["windows"] = windows
    (tmp_path / "here.json").write_text(json.dumps(results))
    job["mean"] += 3 * job["standardError"]
    (tmp_path / "there.json").write_text(json.dumps(results))
    told = compared(tmp_path / "there.json", tmp_path / "here.json")
    row, = (row for row in told["items"] if (row["kind"], row["quantity"]) == ("job", "sm_active"))
    assert row["z"] == pytest.approx(3 / math.sqrt(2), rel=1e-3) and row["p"] == pytest.approx(p, rel=5e-3)


def test_few_captures_are_said(tmp_path):
    results = json.loads((RECORDINGS / "sampling/results.json").read_text())
    long = json.loads((RECORDINGS / "h200/results.json").read_text())["gpus"][0]
    assert long["captures"] == 1 and long["stepNs"] > 10e9
    for captures, words in ((2, "captures: 2, other 2; so few say little"), (1, "captures: 1, other 2; how captures differ"), (9, "")):
        results["gpus"][0]["captures"] = captures
        (tmp_path / "one.json").write_text(json.dumps(results))
        text = written(f"--compare={RECORDINGS / 'sampling'}" if captures < 9 else f"--compare={tmp_path / 'one.json'}", tmp_path / "one.json")
        assert words in text and ("captures:" in text) == bool(words)
    # A long one says how they differ; that does not help the other.
    assert "captures: 1, other 2; so few say little" in written(f"--compare={RECORDINGS / 'sampling'}", RECORDINGS / "h200")
    assert "captures:" not in written(f"--compare={RECORDINGS / 'h200'}", RECORDINGS / "h200")


def test_errors_come_from_the_batches_of_earlier_results(tmp_path):
    """And they are those that are stored today."""
    raw = simulated.training(tmp_path / "run", seed=1).parent / "run.raw"
    (raw / "results.json").write_text(json.dumps(of_earlier_releases(tmp_path / "run")))
    row = row_of(compared(raw, tmp_path / "run"), "top")
    assert row["stderr"] == pytest.approx(row["other_stderr"], rel=1e-9) and row["z"] == 0


def test_errors_that_results_tell_need_no_batches(alike, tmp_path):
    run = shutil.copytree(alike[0], tmp_path / alike[0].name)
    (run / "batches.jsonl").write_text("no batch\n")
    assert row_of(compared(run, alike[1]), "top") == row_of(compared(alike[0], alike[1]), "top")
    (run / "results.json").write_text(json.dumps(of_earlier_releases(alike[0])))
    assert "batches.jsonl" in refused(f"--compare={alike[1]}", run)


def test_put_together_by_depth(tmp_path):
    layers = [(f"h.{i}.{part}", 60.0, 0.5) for i in range(2) for part in ("attn", "mlp")]
    faster = [(name, ms * (0.9 if name.startswith("h.1") else 1), active) for name, ms, active in layers]
    one, other = simulated.training(tmp_path / "one", 1, layers), simulated.training(tmp_path / "other", 2, faster)
    (other / "batches.jsonl").write_bytes((tmp_path / "other.raw" / "batches.jsonl").read_bytes())
    (one / "batches.jsonl").write_bytes((tmp_path / "one.raw" / "batches.jsonl").read_bytes())
    told = compared(one, other, "--depth=2")
    assert row_of(told, "h.1")["more_than_noise"] is True and row_of(told, "h.0")["more_than_noise"] is False
    assert abs(row_of(told, "h.1")["difference"] - 12) < 3 * row_of(told, "h.1")["difference_stderr"] < 12


def test_csv_has_the_same_rows():
    arguments = (f"--compare={RECORDINGS / 'in_step'}", RECORDINGS / "demo")
    rows = list(csv.DictReader(io.StringIO(written("--format=csv", *arguments))))
    told = json.loads(written("--format=json", *arguments))["items"]
    assert len(rows) == len(told) > 100
    for row, one in zip(rows, told):
        assert {name: "" if value is None else str(value).lower() if isinstance(value, bool) else value if isinstance(value, str)
                else float(value) for name, value in one.items()} == {
                    name: float(value) if isinstance(one[name], (int, float)) and not isinstance(one[name], bool) else value
                    for name, value in row.items()}


def test_rows_that_do_not_differ_are_counted(alike):
    short = written(f"--compare={alike[0]}", alike[0])
    assert "no more than noise in 6 other rows (--all lists them)" in short and "bottom forward" not in short
    assert "bottom forward" in written("--all", f"--compare={alike[0]}", alike[0])


def test_in_80_columns():
    lines = terminal.read([CLI, "report", "--all", f"--compare={RECORDINGS / 'in_step'}", RECORDINGS / "demo"], rows=300)
    values = [line for line in lines if line.startswith(("    ", "  * "))]
    assert len(values) > 100 and all(len(line) <= 80 for line in values)
    assert lines[-2].startswith("whole step (marked): ") and len(lines[-2]) <= 80 and lines[-1].startswith("  z ")


def test_hostile_names(tmp_path):
    at = of_layers(tmp_path, [layer("a\x1b[2J\u202e", ms=2.0)])
    text = written("--all", f"--compare={at}", at)
    assert "a?[2J? forward" in text and "\x1b" not in text


def test_wrong_arguments(alike):
    one, other = alike[:2]
    assert refused("--format=parquet", f"--compare={other}", one) == "--compare is told as table, csv or json, not parquet"
    assert refused(f"--compare={other}", one, one) == "--compare is of one training with one other"
    assert refused("--all", one) == "--all is of --compare"
    assert "No such file" in refused(f"--compare={one / 'nowhere'}", one)
    assert folder.GPU in written(f"--compare={other}", one)
