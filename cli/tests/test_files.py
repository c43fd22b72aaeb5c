"""`precisionprobe report --format`: files for programs and for schedulers, of results whose values are known.

Schedulers' files are read as their own code reads them, which no package registry has; test_file_readers.py has the readers
that one has.

PP_CLI  the program precisionprobe
"""
import csv
import io
import json
import os
import pathlib
import re
import stat
import subprocess

import folder
import pytest

RECORDINGS = pathlib.Path(__file__).parent / "recordings"
HOSTILE = [*json.loads((pathlib.Path(__file__).parents[2] / "common/tests/hostile.json").read_text()), "x" * 10240]


def run(*arguments, **environment):
    told = subprocess.run([os.environ["PP_CLI"], "report", *map(str, arguments)], capture_output=True, timeout=60,
                          env={**os.environ, **environment})
    return told.returncode, told.stdout, told.stderr.decode()


def written(*arguments):
    code, out, why = run(*arguments)
    assert code == 0, why
    return out.decode()


def refused(*arguments, **environment):
    """What it says; nothing is written where it fails."""
    code, out, why = run(*arguments, **environment)
    assert code == 1 and out == b"" and why.startswith("precisionprobe: ") and why.count("\n") == 1
    return why.removeprefix("precisionprobe: ").rstrip("\n")


# --- results -----------------------------------------------------------------------

def metric(mean, basis="busy", **more):
    return {"mean": mean, "standardError": 0.01, "windows": 9.0, "method": "sampling", "source": "s", "group": None,
            "groupMean": None, "groupStandardError": None, "reason": None, "basis": basis, **more}


def item(name, phase, kernels, kind="layer", **metrics):
    return {"kind": kind, "layer": name, "type": "Linear" if name else "", "phase": phase, "parameters": 7 if name else None,
            "calls": 60, "totalNs": 123456789012345678, "millisecondsPerStep": 4.0, "leastMillisecondsPerStep": None,
            "share": 0.123456789012, "busyNs": 5, "busyMillisecondsPerStep": 3.0, "idleShare": 0.25, "busyReason": None,
            "metrics": metrics,
            "kernels": [{"name": n, "callsPerStep": calls, "millisecondsPerStep": ms} for n, calls, ms in kernels]}


JOB = {**item("", "idle", [], "job"), "metrics": {"GPUUtil": metric(62.5, "elapsed"), "GPUMem": metric(2048.5, "elapsed"),
                                                  "SMActive": metric(0.3141592653589793, "elapsed")}}
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::F<float>, std::array<char*, 3ul> >(int)"
ITEMS = [item("", "optimizer", [("adam, fused\n(int)", 1, 1.0)], "optimizer", SMActive=metric(0.25)),
         item("top", "forward", [("gemm", 2, 3.0)], SMActive=metric(0.5), FP32Active=metric(0.7), DRAMActive=metric(0.9)),
         item("bottom", "forward", [(ELEMENTWISE, 1, 3.0), ("", 1.02, 1.0)], SMActive=metric(0.3), DRAMActive=metric(0.85)),
         item("", "other", [("late", 1.4, 0.5)], "other"), JOB]
PATTERN = {"models": [{"class": "DLRM", "digest": "0" * 16, "batch": "64x13 float32, 64 int64"}],
           "step": {"milliseconds": {"value": 21.25, "standardError": 0.1}, "idleShare": {"value": 0.2}},
           "bounds": [{"by": "Memory", "share": {"value": 0.55}}, {"by": "Data", "share": {"value": 0.15}},
                      {"by": "Communication", "share": {"value": 0.25}}, {"by": "Launch", "share": {"value": 0.05}}]}
CHIP = {"capability": 90, "multiprocessors": 132, "smKHz": 1980000, "memoryKHz": 3201000, "memoryBits": 6144}


def results(**gpu):
    return {**folder.RESULTS, "pattern": PATTERN,
            "gpus": [{"gpu": folder.GPU, "captures": 1, "firstStepNs": folder.T0, "lastStepNs": folder.T0 + 60123456789,
                      "steps": 60, "stepMs": 22.0, "observedNs": 3, "stepNs": 2, "gapNs": None, "countedSteps": 0,
                      "countedStepMs": None, "countedIdleShare": None, "lagMs": 133.878674098,
                      "lagStandardErrorMs": 0.0244480335687, "kernelSteps": 60, "items": ITEMS, **gpu}]}


def batches():
    """With the layer `top` behind the layer `bottom`, and the optimizer behind both."""
    found = [folder.batch(i, 10 * i, 10) for i in range(2)]
    for batch in found:
        batch["process"]["chip"] = CHIP
        told = batch["intervals"]
        for key, value in (("layer", 0), ("phase", 2), ("step", 0), ("start", 0), ("duration", folder.MS)):
            told[key] = told[key] + [value]  # at the last step's last piece
        told["start"][-1] = 400 * folder.MS
    return found


@pytest.fixture
def training(tmp_path):
    return folder.write(tmp_path / "dlrm", results(), batches())


def hostile(tmp_path):
    named = [item(name, "forward", []) for name in HOSTILE]
    for one, name in zip(named, HOSTILE):
        one.update(type=name, busyReason=name, metrics={"SMActive": metric(0.5, source=name)})
    return folder.write(tmp_path / "dlrm", results(items=named))


# --- rows --------------------------------------------------------------------------

def unguarded(text):
    return text.removeprefix("'")


def table_of(text):
    """Rows by their columns' names, as RFC 4180 has them."""
    assert text.endswith("\r\n")
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert all(len(row) == len(rows[0]) for row in rows)
    return [dict(zip(rows[0], row)) for row in rows[1:]]


def rows_of_json(text):
    """A row of each metric, as CSV has them."""
    for one in json.loads(text)["items"]:
        own = {key: value for key, value in one.items() if key != "metrics"}
        for name, told in (one["metrics"] or {None: {}}).items():
            yield {**own, "metric": name, **told}


COLUMNS = {"share": "share", "total_ns": "totalNs", "ms_per_step": "millisecondsPerStep", "calls": "calls",
           "least_ms_per_step": "leastMillisecondsPerStep", "busy_ns": "busyNs", "idle_share": "idleShare",
           "parameters": "parameters", "busy_reason": "busyReason", "busy_ms_per_step": "busyMillisecondsPerStep"}
OF_METRIC = {"mean": "mean", "stderr": "standardError", "windows": "windows", "method": "method", "source": "source",
             "group_name": "group", "group_mean": "groupMean", "group_stderr": "groupStandardError", "reason": "reason"}


@pytest.mark.parametrize("recording", ["demo", "h200", "in_step", "regression", "replay", "sampling"])
def test_rows_have_all_digits_that_results_have(recording):
    at = RECORDINGS / recording
    known = {(gpu["gpu"], one["kind"], one["layer"], one["phase"] if one["kind"] == "layer" else ""): (gpu, one)
             for gpu in json.loads((at / "results.json").read_text())["gpus"] for one in gpu["items"]}
    rows = list(rows_of_json(written("--format=json", at)))
    assert len(rows) == sum(len(one["metrics"]) for _, one in known.values())
    for row in rows:
        gpu, one = known[row["gpu_uuid"], row["kind"], row["layer"], row["phase"]]
        told, = [value for name, value in one["metrics"].items() if re.sub("_", "", row["metric"]) == name.lower()]
        assert {ours: row[ours] for ours in COLUMNS} == {ours: one[name] for ours, name in COLUMNS.items()}
        assert row["type"] == (one["type"] or None)
        assert {ours: row[ours] for ours in OF_METRIC} == {ours: told[name] for ours, name in OF_METRIC.items()}
        assert (row["marked_steps"], row["counted_ms_per_step"], row["gap_ns"]) == (gpu["steps"], gpu["countedStepMs"],
                                                                                    gpu["gapNs"])
        if told.get("basis") == "busy" and None not in (told["mean"], one["idleShare"]):
            busy = 1 - one["idleShare"]  # of which fewer digits are left the nearer both are
            assert row["elapsed_mean"] == pytest.approx(told["mean"] * busy, rel=1e-10 / max(busy, 1e-10))


@pytest.mark.parametrize("recording", ["demo", "replay", "sampling"])
def test_csv_is_the_same_as_json(recording):
    at = RECORDINGS / recording
    rows, ours = list(rows_of_json(written("--format=json", at))), table_of(written("--format=csv", at))
    assert len(rows) == len(ours)
    for row, own in zip(rows, ours):
        assert list(row) == list(own)
        for name, value in row.items():
            assert own[name] == "" if value is None else \
                (unguarded(own[name]) if isinstance(value, str) else float(own[name])) == value, name


def test_units_and_names(training):
    first, *_ = rows_of_json(written("--format=json", training))
    assert (first["namespace"], first["session"], first["workload_kind"], first["workload_name"], first["pod_name"]) == (
        "local", "dlrm", "Run", "dlrm", "dlrm")
    assert (first["total_ns"], first["lag_ns"], first["lag_stderr_ns"]) == (123456789012345678, 133878674, 24448.0335687)
    assert (first["first_marked"], first["last_marked"]) == ("2026-01-21T12:53:20.000000000Z", "2026-01-21T12:54:20.123456789Z")
    assert (first["metric"], first["unit"], first["elapsed_mean"]) == ("sm_active", "share of 1", 0.1875)
    job = next(row for row in rows_of_json(written("--format=json", training)) if row["kind"] == "job"
               and row["metric"] == "sm_active")
    assert job["mean"] == job["elapsed_mean"] == 0.3141592653589793


def test_an_item_without_metrics_is_a_row(training):
    row, = [row for row in table_of(written("--format=csv", training)) if row["kind"] == "other"]
    assert row["metric"] == row["mean"] == row["method"] == "" and row["calls"] == "60"


def test_what_is_of_another_type_is_not_known(tmp_path):
    """A file may have been written by anybody."""
    wrong = {**ITEMS[1], "calls": "many", "share": {"a": 1}, "layer": 5, "metrics": {"SMActive": [1], "Made": metric(1.5)}}
    row, made = table_of(written("--format=csv", folder.write(tmp_path / "x", results(items=[wrong], lagMs="1", steps=1.5))))
    assert [row[name] for name in ("calls", "share", "layer", "mean", "lag_ns", "marked_steps")] == [""] * 6
    assert (made["metric"], made["mean"], made["unit"]) == ("Made", "1.5", "")


def test_hostile_names_survive(tmp_path):
    at = hostile(tmp_path)
    rows = list(rows_of_json(written("--format=json", at)))
    assert [[row[name] for name in ("layer", "busy_reason", "source")] for row in rows] == [[n] * 3 for n in HOSTILE]
    assert [row["type"] or "" for row in rows] == HOSTILE
    rows = table_of(run("--format=csv", at)[1].decode())
    assert [[unguarded(row[name]) for name in ("layer", "type", "source")] for row in rows] == [[n] * 3 for n in HOSTILE]
    assert not [text for row in rows for text in row.values() if text[:1] in tuple("=+-@\t\r\n") and text]


def test_empty_is_not_null(training):
    """Kind, layer and phase; type and parameters; calls."""
    assert ',"optimizer","","",,,60,' in written("--format=csv", training)


def test_hostile_names_harm_no_terminal(tmp_path):
    """The table; texts that are no names, too."""
    bad = results()
    bad["gpus"][0].update(gpu="GPU\x1b[2J", items=[{**one, "busyReason": "\x1b[31m\u202e", "phase": "\x07" if i else "forward"}
                                                   for i, one in enumerate(json.loads(json.dumps(ITEMS[1:3])))])
    for at in (hostile(tmp_path), folder.write(tmp_path / "other", bad)):
        text = written("--kernels", at)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize("by, expected", [
    ("layer", ["bottom", "bottom", "top", "data", "other", "idle", "job"]),
    ("time", ["top", "data", "bottom", "bottom", "other", "idle", "job"]),
    ("ms_per_step", ["top", "data", "bottom", "bottom", "other", "idle", "job"]),
    ("sm_active", ["bottom", "bottom", "top", "data", "other", "idle", "job"]),
    ("DRAMActive", ["top", "data", "bottom", "other", "bottom", "idle", "job"])])
def test_rows_in_another_order(tmp_path, by, expected):
    """Unknown values come last, and what is alike stays as it was."""
    rows = [("idle", "idle", None, None), ("job", "idle", 9.0, 0.99), ("data", "data", 4.0, None), ("bottom", "forward", 1.0, 0.9),
            ("other", "other", None, None), ("top", "forward", 5.0, 0.1), ("bottom", "backward", 1.0, 0.9)]
    items = [{**item(name if phase in ("forward", "backward") else "", phase, [],
                     "layer" if phase in ("forward", "backward") else name, SMActive=metric(active)), "millisecondsPerStep": ms}
             for name, phase, ms, active in rows]
    for one in items:
        if one["layer"] == "top":
            one["metrics"]["DRAMActive"] = metric(0.5)
        if one["kind"] == "data":
            one["metrics"]["DRAMActive"] = metric(0.4)
    at = folder.write(tmp_path / "dlrm", results(items=items))
    told = json.loads(written("--format=json", f"--sort={by}", at))["items"]
    assert [one["layer"] or one["kind"] for one in told] == expected
    assert [one["phase"] for one in told if one["layer"] == "bottom"] == ["forward", "backward"]
    table = written(f"--sort={by}", at)
    assert [line.split()[0] for line in table.splitlines()[5:5 + len(rows)]] == expected


def test_rows_by_their_texts():
    for by in ("type", "phase", "bound"):
        told = json.loads(written("--format=json", f"--sort={by}", RECORDINGS / "h200"))["items"]
        known = [one[by] for one in told if one["kind"] == "layer" and one[by]]
        assert [one[by] for one in told][:len(known)] == sorted(known) and len(set(known)) > 1
        assert [one["kind"] for one in told][-2:] == ["idle", "job"]


@pytest.mark.parametrize("recording", ["sampling", "h200", "demo", "replay"])
def test_rows_are_read_again(tmp_path, recording):
    """As the HTTP API answers them: the same rows, and the same table but for what rows do not have."""
    rows = written("--format=json", RECORDINGS / recording)
    (tmp_path / "layers.json").write_text(rows)
    again = written("--format=json", tmp_path / "layers.json")
    assert again == rows and json.loads(again)["items"][0]["session"] == recording
    table, whole = (re.sub(r"; [0-9]+ W; SM clock [0-9]+ to [0-9]+ MHz", "", written(at)).splitlines()
                    for at in (tmp_path / "layers.json", RECORDINGS / recording))
    assert [line for line in table if "±" in line and "percent" not in line] == [line for line in whole if "±" in line and "percent" not in line
                                                                               and not line.startswith("bound by")]


def test_several_and_files(training, tmp_path):
    other = folder.write(tmp_path / "other", results())
    (tmp_path / "kept.json").write_bytes((other / "results.json").read_bytes())
    names = [row["session"] for row in table_of(written("--format=csv", training, other / "results.json", tmp_path / "kept.json"))]
    assert list(dict.fromkeys(names)) == ["dlrm", "other", "kept"] and len(set(map(names.count, names))) == 1
    table = written(training)
    assert written(training, other) == f"{training}:\n{table}\n{other}:\n{table}"
    assert written(training / "results.json") == table


def test_nothing_was_sampled(tmp_path):
    at = folder.write(tmp_path / "none", folder.RESULTS)
    assert json.loads(written("--format=json", at)) == {"items": []} and table_of(written("--format=csv", at)) == []


def test_wrong_arguments(training):
    assert refused("--format=xml", training).startswith("--format must be table, csv, json, html, parquet, koordinator, ")
    assert refused("--format=csv", "--kernels", training) == "--kernels is of the table"
    assert refused("--sort=x", training).startswith("--sort must be layer, type, phase, bound, time, share, ")
    assert refused("--sort=layer", "--format=orion", training) == "--sort is of rows, which orion has none of"
    assert refused("--set=a=b", training).startswith("--set is for what schedulers take: ")
    assert "No such file" in refused("--format=csv", training / "nowhere")
    assert refused("--format=csv", training / "batches.jsonl")


def test_a_full_disk_is_told(training):
    with open("/dev/full", "wb") as full:
        told = subprocess.run([os.environ["PP_CLI"], "report", "--format=csv", training], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=60)
    assert told.returncode == 1 and "No space left" in told.stderr


# --- Parquet -----------------------------------------------------------------------

def python3(tmp_path, text):
    """A PATH whose python3 is a script."""
    at = tmp_path / "bin"
    at.mkdir()
    (at / "python3").write_text(text)
    (at / "python3").chmod(stat.S_IRWXU)
    return str(at)


def test_what_parquet_needs_is_told(training, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused("--format=parquet", training, PATH=str(empty)).startswith("--format parquet needs python3 with pyarrow")
    isolated = python3(tmp_path, '#!/bin/sh\nexec /usr/bin/python3 -I -S "$@"\n')
    why = refused("--format=parquet", training, PATH=isolated)
    assert why.startswith("--format parquet needs pyarrow") and "pip install pyarrow" in why


def test_what_goes_wrong_in_python_is_told(training, tmp_path):
    code, out, why = run("--format=parquet", training, PATH=python3(tmp_path, "#!/bin/sh\necho broken >&2\nexit 9\n"))
    assert (code, out, why) == (1, b"", "broken\nprecisionprobe: python3 did not write the file to its end\n")


def test_rows_for_parquet(training, tmp_path):
    """Its program gets the rows that CSV has, with the columns' types."""
    told = run("--format=parquet", training, PATH=python3(tmp_path, "#!/bin/sh\nexec /bin/cat\n"))[1].decode()
    (columns, *rows), types = map(json.loads, told.splitlines()), {"text": str, "integer": int, "real": (int, float), "time": int}
    ours = table_of(written("--format=csv", training))
    assert [name for name, _ in columns] == list(ours[0]) and len(rows) == len(ours)
    for row, own in zip(rows, ours):
        for (name, kind), value in zip(columns, row):
            assert value is None or isinstance(value, types[kind])
            assert kind == "time" or own[name] == ("" if value is None else value if kind == "text" else own[name])
            assert kind not in ("integer", "real") or value is None or json.loads(own[name]) == value
    at = [name for name, _ in columns].index("last_marked")
    assert rows[0][at] == folder.T0 + 60123456789


# --- Orion -------------------------------------------------------------------------

def read_by_orion(text):
    """As populate_kernel_info() of its scheduler: at each comma, without quotes, the first line left out."""
    found = []
    for line in text.split("\n")[1:]:
        if line:
            name, profile, memory, sms, duration = line.split(",")
            found.append((name, int(profile), int(memory), int(sms), float(duration)))
    return found


def test_orion(training):
    code, out, notes = run("--format=orion", training)
    assert code == 0, notes
    lines = out.decode().split("\n")
    assert lines[0] == "Name,Profile,Memory_footprint,SM_usage,Duration"  # as benchmarking/model_kernels/ has it
    assert read_by_orion(out.decode()) == [
        # 3/4 of the layer's time: at most 0.3 / 0.75 of the SMs, memory at least (0.85 - 0.25) / 0.75 of its limit
        ("void at::native::vectorized_elementwise_kernel", 0, 0, 53, 3e6),
        ("(not told apart)", -1, 0, 132, 980392),
        ("gemm", 1, 0, 66, 1.5e6), ("gemm", 1, 0, 66, 1.5e6),
        ("adam; fused;(int)", -1, 0, 33, 1e6),
        ("late", -1, 0, 132, 357143)]  # nothing is known: all SMs
    assert notes.splitlines() == ["precisionprobe: orion: 6 kernels of a step: num_kernels of its configuration",
                                  "precisionprobe: orion: of 2 the order within their layer is not known",
                                  "precisionprobe: orion: 1 stand last: it is not known when they run",
                                  "precisionprobe: orion: 2 do not run as often in each step: rounded"]


def test_orion_tells_each_call_of_a_layer(tmp_path):
    """`bottom` runs before `top` and behind it; the one that a step makes in vain now and then is no call of its own. A call that
    layers in it cut off is one."""
    found = batches()
    for batch, first in zip(found, (0, 10)):
        told, column = batch["intervals"], {"layer": [], "phase": [], "step": [], "start": [], "duration": [], "goesOn": []}
        for n in range(first, first + 10):
            begin = folder.T0 + n * 1000 * folder.MS
            pieces = [(1, 10, 0), (2, 100, 1), (2, 300, 0), (1, 400, 0)] + [(1, 500, 0)] * (n % 4 == 0)
            for layer, at, more in pieces:
                for key, value in (("layer", layer), ("phase", 0), ("step", n), ("start", begin + at * folder.MS),
                                   ("duration", folder.MS), ("goesOn", more)):
                    column[key].append(value)
        told.update(column, step=folder.delta(column["step"]), start=folder.delta(column["start"]))
    kernels = results(items=[item("bottom", "forward", [("relu", 3, 3.0)]), item("top", "forward", [("gemm", 1, 1.0)]), JOB])
    code, out, notes = run("--format=orion", folder.write(tmp_path / "twice", kernels, found))
    assert code == 0, notes
    assert [name for name, *_ in read_by_orion(out.decode())] == ["relu", "relu", "gemm", "relu"]
    assert notes == "precisionprobe: orion: 4 kernels of a step: num_kernels of its configuration\n"


def test_orion_refuses_what_it_cannot_be_told(training, tmp_path):
    assert refused("--format=orion", training, training) == "--format orion takes one training, not 2"
    two = results()
    two["gpus"] *= 2
    assert refused("--format=orion", folder.write(tmp_path / "two", two)).startswith("gpus of two are 2")
    unknown = folder.write(tmp_path / "unknown", results())
    assert refused("--format=orion", unknown).startswith("chip of unknown is not known")
    none = results()
    del none["gpus"][0]["kernelSteps"]
    assert refused("--format=orion", folder.write(tmp_path / "none", none, batches())).startswith("kernels of none")
    (unknown / "batches.jsonl").unlink()
    assert "batches.jsonl" in refused("--format=orion", unknown)
    much = results(items=[item("top", "forward", [("k", 1e9, 1.0)])])
    assert "kernels of top forward" in refused("--format=orion", folder.write(tmp_path / "much", much, batches()))
    assert refused("--format=orion", "--set=a=b", training) == "--set is not of orion, which needs nothing told"


# --- Lucid -------------------------------------------------------------------------

LUCID = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label"  # of simulation/analyzer/single_data.csv


def test_lucid(training, tmp_path):
    other = results()
    other["pattern"] = {**PATTERN, "models": [{"class": 'A,"b"', "batch": "*x3 float32"}]}
    code, out, notes = run("--format=lucid", training, folder.write(tmp_path / "other", other))
    assert code == 0 and out.decode().split("\n")[0] == LUCID
    one, two = csv.DictReader(io.StringIO(out.decode()), strict=True)
    assert one == {"model": "DLRM", "dataset": "", "batchsize": "64", "amp": "", "speed": one["speed"], "gpu_util": "62.5",
                   "gmem_util": "", "gmem": "2048.5", "label": ""}
    assert float(one["speed"]) == pytest.approx(64 * 1000 / 21.25)
    assert (two["model"], two["batchsize"], two["speed"]) == ('A,"b"', "", "")
    assert notes == ("precisionprobe: lucid: empty, since not measured (--set NAME=VALUE): dataset, batchsize, amp, speed, "
                     "gmem_util, label\n")


def test_lucid_counts_all_gpus(tmp_path):
    two = results()
    two["gpus"].append({**two["gpus"][0], "gpu": "GPU-b"})
    row, = csv.DictReader(io.StringIO(written("--format=lucid", folder.write(tmp_path / "two", two))))
    assert (float(row["speed"]), row["gpu_util"]) == (pytest.approx(2 * 64 * 1000 / 21.25), "62.5")


def test_lucid_is_told_the_rest(training):
    code, out, notes = run("--format=lucid", training, *(f"--set={text}" for text in (
        "dataset=Criteo", "amp=1", "gmem_util=12.5", "label=2", "model=DLRM-RM2", "batchsize=128")))
    assert (code, notes) == (0, "")
    row, = csv.DictReader(io.StringIO(out.decode()))
    assert row == {"model": "DLRM-RM2", "dataset": "Criteo", "batchsize": "128", "amp": "1", "speed": row["speed"],
                   "gpu_util": "62.5", "gmem_util": "12.5", "gmem": "2048.5", "label": "2"}
    assert float(row["speed"]) == pytest.approx(128 * 1000 / 21.25)


def test_what_is_measured_cannot_be_told(training):
    for told, why in (("gpu_util=1", "--set must be NAME=VALUE, NAME one of model, dataset, batchsize, amp, gmem_util, label"),
                      ("amp=yes", "--set amp must be a whole number from 0 on"), ("gmem_util=nan", "--set gmem_util must be a number"),
                      ("dataset=", "--set dataset must be a text"), ("dataset", "--set must be NAME=VALUE, NAME one of "),
                      ("batchsize=-1", "--set batchsize must be a whole number from 0 on")):
        assert refused("--format=lucid", f"--set={told}", training).startswith(why)
    assert refused("--format=lucid", "--set=amp=1", "--set=amp=0", training) == "--set amp is there twice"


# --- Muri --------------------------------------------------------------------------

MURI = ("job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,"
        "resource_time_1,resource_time_2,priority")  # of simulator/trace-data/trace1.csv
TOLD = ("--set=iterations=1000", "--set=submit_time=1456000")


def read_by_muri(row):
    """As add_job() of jobs.py."""
    job = {**row, "resource_time": []}
    for key, value in row.items():
        if "resource_time" in key:
            job["resource_time"].append(float(value) / 1000)
        elif value.isdigit():
            job[key] = int(value)
    for key in ("submit_time", "duration", "iteration_time"):
        job[key] = int(float(job[key])) / 1000 if key == "duration" else job[key] / 1000
    return {**job, "tput": 1 / job["iteration_time"], "remaining_iteration": float(job["iterations"])}


def test_muri(training):
    code, out, notes = run("--format=muri", *TOLD, training, training)
    assert code == 0 and out.decode().split("\n")[0] == MURI
    one, two = map(read_by_muri, csv.DictReader(io.StringIO(out.decode())))
    assert (one["job_id"], two["job_id"], one["num_gpu"], one["model_name"], one["batch_size"]) == (0, 1, 1, "DLRM", 64)
    assert (one["iterations"], one["submit_time"], one["duration"], one["iteration_time"]) == (1000, 1456.0, 21.25, 0.021)
    assert one["resource_time"] == pytest.approx([0.15 * 0.02125, 0.55 * 0.02125, 0.25 * 0.02125])
    assert notes.splitlines()[0] == "precisionprobe: muri: iteration_time of dlrm is whole ms: 21 for 21.250"


def test_muri_refuses_what_it_cannot_be_told(tmp_path):
    def without(name, **more):
        return folder.write(tmp_path / name, {**results(), "pattern": {**PATTERN, **more}})
    at = without("whole")
    assert refused("--format=muri", at) == "submit_time is needed for muri and was not measured: --set submit_time=VALUE"
    for field, more in (("pattern.step.milliseconds", {"step": {"idleShare": {"value": 0.2}}}),
                        ("pattern.step.milliseconds", {"step": {"milliseconds": {"value": 0.2}}}),
                        ("pattern.step.idleShare", {"step": {"milliseconds": {"value": 21.25}}}),
                        ("pattern.bounds", {"bounds": []}), ("model_name", {"models": []}),
                        ("batch_size", {"models": [{"class": "A"}]})):
        assert refused("--format=muri", *TOLD, without("part", **more)).startswith(f"{field} of part is not known, and Muri ")
    assert read_by_muri(*csv.DictReader(io.StringIO(written(
        "--format=muri", *TOLD, "--set=batch_size=8", "--set=model_name=x", "--set=num_gpu=16", "--set=priority=1",
        without("part", models=[])))))["num_gpu"] == 16


# --- Trimaran ----------------------------------------------------------------------

def read_by_load_watcher(text):
    """As the decoders of pkg/watcher/watcher_json.go: by name and type, what they do not know left out."""
    told = json.loads(text)
    assert isinstance(told["timestamp"], int) and isinstance(told["source"], str)
    assert isinstance(told["window"]["start"], int) and isinstance(told["window"]["end"], int)
    assert isinstance(told["window"]["duration"], str)
    for node in told["data"]["NodeMetricsMap"].values():
        for one in node["metrics"]:
            assert all(isinstance(one[key], str) for key in ("name", "type", "operator")) and isinstance(one["value"], float)
    return told


def test_trimaran(training, tmp_path):
    told = read_by_load_watcher(written("--format=trimaran", training))
    assert told["window"] == {"duration": "60s", "start": folder.T0 // 10**9, "end": folder.T0 // 10**9 + 60}
    assert told["timestamp"] == told["window"]["end"] and told["source"] == "PrecisionProbe"
    metrics = told["data"]["NodeMetricsMap"]["box"]["metrics"]  # the batches' host
    assert [(one["name"], one["type"], one["operator"], one["value"]) for one in metrics] == [
        ("SMActive", "GPU", "AVG", 31.4159265359), ("GPUUtil", "GPU", "AVG", 62.5)]
    assert "box" not in (named := read_by_load_watcher(written("--format=trimaran", "--set=host=node-1", training)))["data"][
        "NodeMetricsMap"] and "node-1" in named["data"]["NodeMetricsMap"]
    assert "has several trainings" in refused("--format=trimaran", training, training)
    other = folder.write(tmp_path / "none", results(items=ITEMS[:2]), batches())
    assert refused("--format=trimaran", other).startswith("metrics of none are not known")


def test_two_gpus_are_told_by_their_mean(tmp_path):
    two = results()
    two["gpus"].append(json.loads(json.dumps(two["gpus"][0])))
    two["gpus"][1]["gpu"] = "GPU-b"
    two["gpus"][1]["items"][-1]["metrics"]["GPUUtil"]["mean"] = 37.5
    told = read_by_load_watcher(written("--format=trimaran", folder.write(tmp_path / "two", two, batches())))
    assert [one["value"] for one in told["data"]["NodeMetricsMap"]["box"]["metrics"] if one["name"] == "GPUUtil"] == [50.0]


# --- Koordinator -------------------------------------------------------------------

WHERE = ("--set=node=node-1", "--set=namespace=ml", "--set=pod=dlrm-0")
QUANTITY = re.compile(r"([0-9]+)(m?)\Z")


def test_koordinator(training):
    told = json.loads(written("--format=koordinator", *WHERE, training))
    assert (told["apiVersion"], told["kind"], told["metadata"]) == ("slo.koordinator.sh/v1alpha1", "NodeMetric",
                                                                    {"name": "node-1"})
    assert told["status"]["updateTime"] == folder.RESULTS["finished"]
    pod, = told["status"]["podsMetric"]
    device, = pod["podUsage"]["devices"]
    assert (pod["name"], pod["namespace"], pod["extensions"]) == ("dlrm-0", "ml", {"Object": {"precisionprobe.io/pattern": PATTERN}})
    assert device == {"type": "gpu", "id": folder.GPU, "health": False,
                      "resources": {"koordinator.sh/gpu-core": "62500m", "koordinator.sh/gpu-memory": str(int(2048.5 * 2**20))}}
    assert all(QUANTITY.match(text) for text in device["resources"].values())


def test_koordinator_refuses_what_it_cannot_be_told(training, tmp_path):
    for name in ("node", "namespace", "pod"):
        where = [text for text in WHERE if not text.startswith(f"--set={name}=")]
        assert refused("--format=koordinator", *where, training).startswith(f"{name} is needed for koordinator")
    none = folder.write(tmp_path / "none", results(items=ITEMS[:2]))
    assert refused("--format=koordinator", *WHERE, none) == "devices of none are not known: no GPU was measured"
