"""`precisionprobe import` into a real Postgres, which is started here (operator/store/tests/postgres).

PP_CLI  the program precisionprobe
"""
import copy
import datetime
import glob
import json
import os
import pathlib
import subprocess
import time

import folder
import pytest

SERVER = str(pathlib.Path(__file__).parents[2] / "operator/store/tests/postgres")
PSQL = sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"))[-1]
TABLES = ["session", "target", "process", "layer", "activity", "metric_sample", "sample", "attribution", "fit", "item",
          "estimate", "usage", "usage_metric", "usage_share", "pattern", "pattern_metric", "pattern_share", "fine", "kernel", "host_wait", "gpu_copy"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    state = tmp_path_factory.mktemp("postgres") / "state"
    subprocess.run([SERVER, "start", state], check=True)
    yield (pathlib.Path(state.read_text().strip()) / "conninfo").read_text().strip()
    subprocess.run([SERVER, "stop", state], check=True)


def ask(database, sql):
    got = subprocess.run([PSQL, "-XAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql], capture_output=True,
                         text=True)
    assert got.returncode == 0, got.stderr
    return [line.split("|") for line in got.stdout.splitlines()]


@pytest.fixture
def database(server, request):
    name = "t" + str(abs(hash(request.node.name)))
    ask(server, f"CREATE DATABASE {name}")
    return server.replace("dbname=postgres", f"dbname={name}")


def start(*arguments, **environment):
    return subprocess.Popen([os.environ["PP_CLI"], "import", *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.PIPE, env={**os.environ, **environment})


def run(*arguments, **environment):
    child = start(*arguments, **environment)
    out, complaint = child.communicate(timeout=60)
    return child.returncode, out, complaint


def test_who_holds_a_lock_is_waited_for(database, tmp_path):
    """As pg_dump may, where there is something to change: the attempt that got no lock within 2 s is followed by others."""
    place = folder.write(tmp_path / "run")
    assert run("--database", database, place)[0] == 0
    holder = subprocess.Popen([PSQL, "-XAtq", "-d", database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        holder.stdin.write("BEGIN; LOCK TABLE metric; SELECT 'held';\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        child = start("--database", database, place)
        end = time.monotonic() + 60
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        for waiting in ("1", "0"):  # an attempt has begun, and it has given way
            while (ask(database, waits) != [["0"]]) != (waiting == "1") and time.monotonic() < end:
                time.sleep(0.05)
        assert child.poll() is None and time.monotonic() < end
    finally:
        holder.communicate("COMMIT;\n", timeout=60)
    out, complaint = child.communicate(timeout=60)
    assert child.returncode == 0, complaint


def test_replays_are_solved_and_are_no_training(database, tmp_path):
    batches = [folder.batch(i, 10 * i, 10) for i in range(folder.STEPS // 10)]
    results = {**folder.RESULTS, "method": "Replay"}
    place = folder.write(tmp_path / "replayed", results, batches + folder.dwells(len(batches)), [folder.samples(True)])
    code, _, complaint = run("--database", database, place)
    assert code == 0, complaint
    told = ask(database, "SELECT layer, method, source, round(mean::numeric, 6), reason FROM result_detail "
                         "WHERE kind = 'layer' AND metric = 'sm_active' ORDER BY layer")
    assert told == [["bottom", "replay", "replays", str(folder.REPLAYED) + "0000", ""],
                    ["top", "none", "nvml", "", "it was not replayed"]]
    assert ask(database, "SELECT dwell, background, count(*), sum(cardinality(step_number)) FROM activity GROUP BY 1, 2 "
                         "ORDER BY 1, 2") == [["3", "f", "1", "0"], ["3", "t", "1", "0"], ["", "", "6", str(folder.STEPS)]]
    assert ask(database, "SELECT steps FROM target") == [[str(folder.STEPS)]]
    (job,), = ask(database, "SELECT round(mean::numeric, 3) FROM result_detail WHERE kind = 'job'")
    whole = folder.samples()["value"]
    assert float(job) == pytest.approx(sum(whole) / len(whole), abs=0.01)


def test_how_right_replayed_values_are(database, tmp_path):
    """What they say of every other of the training's windows, where busy times are known: the mean of those between, which
    the rest of a step has its value from."""
    batches = [folder.batch(i, 10 * i, 10) for i in range(folder.STEPS // 10)]
    for batch in batches:
        batch["intervals"]["kernels"] = batch["intervals"]["duration"]
        batch["steps"]["gap"] = [200 * folder.MS] * 10
    place = folder.write(tmp_path / "replayed", {**folder.RESULTS, "method": "Replay"},
                         batches + folder.dwells(len(batches)), [folder.samples(True)])
    code, _, complaint = run("--database", database, place)
    assert code == 0, complaint
    (metric, held, difference, windows, lag), = ask(database, "SELECT metric, held, difference, windows, lag_ns FROM "
                                                              "result_quality WHERE method = 'replay'")
    true = folder.samples()["value"]
    assert metric == "sm_active" and abs(float(held) + float(difference) / 2 - sum(true) / len(true)) < 0.005
    assert abs(float(difference)) < 0.05 and 200 < int(windows) <= 300 and lag == ""


def test_host_waits(database, tmp_path):
    batches = [folder.batch(i, 10 * i, 10) for i in range(folder.STEPS // 10)]
    for batch in batches[:2]:
        batch["waits"] = {"steps": 10, "calls": ["item"], "files": ["train.py"], "layer": [0], "phase": [7], "call": [0],
                          "file": [0], "line": [41], "count": [20], "inSteps": [5], "duration": [30 * folder.MS]}
    place = folder.write(tmp_path / "dlrm", batches=batches)
    for _ in range(2):  # again changes nothing
        code, _, complaint = run("--database", database, place)
        assert code == 0, complaint
    assert ask(database, "SELECT layer, phase, call, file, line, calls_per_step, share_of_steps, ms_per_step FROM result_wait") == [
        ["", "other", "item", "train.py", "41", "2", "0.5", "3"]]


def test_copies(database, tmp_path):
    batches = [folder.batch(i, 10 * i, 10) for i in range(folder.STEPS // 10)]
    for batch in batches[:2]:
        batch["copies"] = {"steps": 10, "layer": [0], "phase": [7], "type": [0], "memory": [2], "count": [20],
                           "bytes": [300000000], "duration": [30 * folder.MS]}
    place = folder.write(tmp_path / "dlrm", batches=batches)
    for _ in range(2):  # again changes nothing
        code, _, complaint = run("--database", database, place)
        assert code == 0, complaint
    assert ask(database, "SELECT layer, phase, type, memory, per_step, bytes_per_step, ms_per_step, gb_per_second FROM result_copy") == [
        ["", "other", "h2d", "pinned", "2", "30000000", "3", "10"]]


def everything(database):
    return {table: ask(database, f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4") for table in TABLES}


def test_views_show_it_and_twice_changes_nothing(database, tmp_path):
    results = folder.write(tmp_path / "dlrm")
    code, out, complaint = run("--database", database, results)
    assert code == 0 and out.startswith("imported as session "), complaint
    rows = {r[0]: r[1:] for r in ask(database, "SELECT layer, job_id, host_name, forward, sm_active, gpu_util FROM result")}
    assert set(rows) == {"bottom", "top"}
    for name, _, _, value in folder.LAYERS:
        assert rows[name][:3] == ["local/dlrm", "box", "t"] and rows[name][4] == ""
        assert abs(float(rows[name][3]) - value) < 0.01, rows
    detail = ask(database, "SELECT DISTINCT session, session_uid, workload_kind, gpu_uuid, source, final, latest, revision "
                           "FROM result_detail")
    assert detail == [["dlrm", out.split()[-1], "Run", folder.GPU, "nvml", "t", "t", "1"]]
    assert ask(database, "SELECT count(*), min(source) FROM metric_sample") == [["600", "nvml"]]
    assert ask(database, "SELECT count(*), sum(steps) FROM activity, target") == [["6", "360"]]
    assert ask(database, "SELECT metric, source, round(mean::numeric, 2) FROM pattern_metric") == [["sm_active", "layers", "0.44"]]
    assert ask(database, "SELECT namespace, workload_kind, workload_name, sessions, gpus FROM pattern") == [
        ["local", "Run", "dlrm", "1", "1"]]
    assert ask(database, "SELECT round(sum(share)::numeric, 9) FROM pattern_share WHERE kind = 'bound'") == [["1.000000000"]]
    before = everything(database)
    code, again, complaint = run("-d", database, "--name", "other", results)
    assert (code, again) == (0, out.replace("imported as", "is there already:")), complaint
    assert everything(database) == before


def test_busy_times(database, tmp_path):
    """Kernels in the half of each layer, in none of the first batch, for which no other client left room."""
    batches = [folder.batch(i, 10 * i, 10) for i in range(6)]
    for batch in batches[1:]:
        batch["intervals"]["kernels"] = [n // 2 for n in batch["intervals"]["duration"]]
        batch["steps"]["gap"] = [600 * folder.MS] * 10
    batches[0]["process"]["kernels"] = "another CUPTI client"
    assert run("-d", database, folder.write(tmp_path / "run", batches=batches))[0] == 0
    rows = ask(database, "SELECT DISTINCT kind, layer, round(ms_per_step), round(busy_ms_per_step), idle_share, busy_reason, "
                         "gap_ns / 60 FROM result_detail WHERE kind <> 'idle' ORDER BY kind, layer")
    gap = str(600 * folder.MS)
    assert rows == [["job", "", "1000", "", "", "known of the steps: gap_ns", gap],
                    ["layer", "bottom", "430", "215", "0.5", "", gap], ["layer", "top", "370", "185", "0.5", "", gap],
                    ["other", "", "200", "0", "1", "", gap]]


def test_fine_values_go_first(database, tmp_path):
    """The latest ones, and for the layer of which they tell; the other has what the windows tell."""
    batches = [folder.batch(i, 10 * i, 10) for i in range(6)] + [folder.fine(6, {1: 0.5, 2: 0.4}),
                                                                folder.fine(7, {1: 0.75})]
    code, _, complaint = run("--database", database, folder.write(tmp_path / "dlrm", batches=batches))
    assert code == 0, complaint
    rows = ask(database, "SELECT layer, method, source, round(mean::numeric, 2), round(stderr::numeric, 3) FROM estimate "
                         "WHERE kind = 'layer' AND metric = 'sm_active' ORDER BY layer")
    assert rows[0] == ["bottom", "sampling", "sm__cycles_active", "0.75", "0.002"]
    assert rows[1][:4] == ["top", "regression", "nvml", "0.20"]
    assert ask(database, "SELECT DISTINCT observed_ns FROM attribution") == [["60000000000"]]


def test_how_right_fine_values_are(database, tmp_path):
    """As the latest batch tells it."""
    sampling = {"chip": "GH100", "period": 25000, "times": 3, "failed": 1, "sampled": 4000000000, "samples": 150000,
                "lag": -1400123, "lagError": 31, "samplerCpu": 5000000000}
    told = {"sampling": sampling, "closure": {"metric": [0], "held": [400000], "difference": [-2500], "noise": [30000]}}
    batches = [folder.batch(i, 10 * i, 10) for i in range(6)] + [
        folder.fine(6, {1: 0.5}, sampling={**sampling, "lag": 5}), folder.fine(7, {1: 0.75}, **told)]
    code, _, complaint = run("--database", database, folder.write(tmp_path / "dlrm", batches=batches))
    assert code == 0, complaint
    assert ask(database, "SELECT process, metric, held, difference, noise, windows, lag_ns, lag_stderr_ns, chip, period_ns, "
                         "times, failed_times, sampled_ns, sampler_cpu_ns, latest FROM result_quality WHERE method = 'sampling'"
               ) == [["0", "sm_active", "0.4", "-0.0025", "0.03", "150000", "-1400123", "31", "GH100", "25000", "3", "1",
                      "4000000000", "5000000000", "t"]]
    # of the layer of which PM sampling told nothing
    assert ask(database, "SELECT metric, doubt FROM result_quality WHERE method = 'regression'") == [["sm_active", ""]]


@pytest.mark.parametrize("doubt,why", [(1, "samples differ by more"), (2, "others use the GPU")])
def test_what_speaks_against_fine_values(database, tmp_path, doubt, why):
    """Others' work is in all that a GPU's counters say; where samples are not explained windows may tell."""
    batches = [folder.batch(i, 10 * i, 10) for i in range(6)] + [
        folder.fine(6, {1: 0.75}, quality={"metric": [0], "explained": [700000], "doubt": [doubt]})]
    code, _, complaint = run("--database", database, folder.write(tmp_path / "dlrm", batches=batches))
    assert code == 0, complaint
    rows = ask(database, "SELECT layer, method, mean IS NULL, reason FROM estimate "
                         "WHERE kind IN ('layer', 'job') AND metric = 'sm_active' ORDER BY kind, layer")
    assert rows[0][:3] == ["", "job", "f"]
    for layer in rows[1:]:
        assert layer[1:3] == (["none", "t"] if doubt == 2 else ["regression", "f"]) and (doubt == 1 or why in layer[3])
    assert ask(database, "SELECT DISTINCT shared FROM attribution") == [["t" if doubt == 2 else "f"]]
    assert why in ask(database, "SELECT doubt FROM result_quality WHERE method = 'sampling'")[0][0]


def test_how_right_values_of_windows_are(database, tmp_path):
    code, _, complaint = run("--database", database, folder.write(tmp_path / "dlrm"))
    assert code == 0, complaint
    (metric, doubt, explained, miss, items, lag), = ask(
        database, "SELECT metric, doubt, explained, miss, items, lag_ns FROM result_quality WHERE method = 'regression'")
    assert metric == "sm_active" and not doubt and float(explained) > 0.9 and float(miss) < 0.05 and int(items) > 0 and lag


def test_two_at_once_import_it_once(database, tmp_path):
    results = folder.write(tmp_path / "run")
    children = [start("-d", database, results) for _ in range(2)]
    said = sorted(child.communicate(timeout=60)[0].rsplit(" ", 1)[0] for child in children)
    assert said == ["imported as session", "is there already: session"]
    assert ask(database, "SELECT count(*) FROM session") == [["1"]]


def test_libpqs_environment_and_name(database, tmp_path):
    known = dict(pair.split("=") for pair in database.split())
    environment = {"PG" + {"dbname": "DATABASE"}.get(k, k.upper()): v for k, v in known.items()}
    assert run("--name", "bert", folder.write(tmp_path / "x"), **environment)[0] == 0
    assert ask(database, "SELECT DISTINCT job_id FROM result") == [["local/bert"]]


def test_all_or_nothing(database, tmp_path):
    assert run("-d", database, folder.write(tmp_path / "first"))[0] == 0
    ask(database, "ALTER TABLE estimate ADD CONSTRAINT none CHECK (false) NOT VALID")
    before = everything(database)
    code, _, complaint = run("-d", database, folder.write(tmp_path / "second", {**folder.RESULTS, "method": "Job"}))
    assert code == 1 and "violates check constraint" in complaint
    assert everything(database) == before


def test_no_server_is_said_at_once(tmp_path):
    code, _, complaint = run("-d", f"host={tmp_path} user=nobody", folder.write(tmp_path / "run"))
    assert code == 1 and "cannot connect to Postgres" in complaint


def with_batch(change):
    bad = [folder.batch(0, 0, 30), folder.batch(1, 30, 30)]
    change(bad[1])
    return {"batches": bad}


def with_samples(**changes):
    return {"lines": [{**folder.samples(), **changes}]}


@pytest.mark.parametrize("parts, message", [
    ({"results": {}}, "gpus is missing"),
    ({"results": {"gpus": []}}, "version is required"),
    ({"results": {**folder.RESULTS, "version": 2}}, "version must be 1"),
    ({"results": {**folder.RESULTS, "started": 5}}, "started must be"),
    ({"results": {**folder.RESULTS, "finished": "2020-01-01T00:00:00Z"}}, "finished is before started"),
    ({"results": {**folder.RESULTS, "method": "Guess"}},
     'method "Guess" is none of Auto, Job, Regression, Sampling and Replay'),
    ({"results": {**folder.RESULTS, "metrics": ["Speed"]}}, "metrics entry 0 is no metric"),
    ({"results": {**folder.RESULTS, "command": {"a": 1}}}, "command must be"),
    ({"batches": []}, "batches.jsonl holds no step"),
    ({"batches": [[]]}, "batches.jsonl:1:  the line is no JSON object"),
    (with_batch(lambda b: b.update(seq=7)), "batches.jsonl:2: seq must be 1"),
    (with_batch(lambda b: b["intervals"]["duration"].pop()), "batches.jsonl:2: intervals"),
    (with_batch(lambda b: b["layers"][0].update(name="x" * 600)), "batches.jsonl:2: layers[0].name"),
    (with_batch(lambda b: b["steps"].update(duration=[-1] * 30)), "batches.jsonl:2: steps.duration[0]"),
    ({"batches": [folder.fine(0, {1: 0.5}, closure={"metric": [4], "held": [1], "difference": [1]})]},
     "batches.jsonl:1: fine.closure.metric[0]"),
    (with_samples(gpu="'; DROP TABLE session"), "samples.jsonl:1: gpu is no GPU's UUID"),
    (with_samples(metric="Speed"), "samples.jsonl:1: metric no such metric"),
    (with_samples(value=[1]), "samples.jsonl:1: value must be an array as long as at"),
    (with_samples(at=[folder.T0, 0], value=[1, 1]), "samples.jsonl:1: at[1] is not later"),
    (with_samples(at=[folder.T0, 2 ** 62], value=[1, 1]), "samples.jsonl:1: at[1] is no time"),
    (with_samples(at=[folder.T0], value=["1"]), "samples.jsonl:1: value[0] must be a number"),
    (with_samples(at=[folder.T0, 500 * 86400 * 10 ** 9], value=[1, 1]), "samples must lie within 400 days"),
])
def test_foreign_and_hostile_folders(tmp_path, parts, message):
    code, _, complaint = run("-d", "host=/nowhere", folder.write(tmp_path / "bad", **copy.deepcopy(parts)))
    assert code == 1 and message in complaint


def test_what_is_missing_is_named(tmp_path):
    results = folder.write(tmp_path / "run")
    (results / "samples.jsonl").unlink()
    assert "samples.jsonl: No such file" in run("-d", "host=/nowhere", results)[2]
    assert "which folder?" in run("-d", "x")[2]
    assert "results.json" in run("-d", "x", tmp_path)[2]


# The database's source is nvml where no other is known.
OTHERWISE = {"source"}


@pytest.mark.parametrize("recording", ["regression", "replay", "sampling"])
def test_rows_of_files_are_those_of_the_database(database, recording):
    """As `precisionprobe report` writes them, without any database."""
    at = pathlib.Path(__file__).parent / "recordings" / recording
    code, _, complaint = run("--database", database, at)
    assert code == 0, complaint
    told = subprocess.run([os.environ["PP_CLI"], "report", "--format=json", at], capture_output=True, text=True, check=True)
    files = {(one["gpu_uuid"], one["kind"], one["layer"], one["phase"], name): {**one, **metric, "metric": name}
             for one in json.loads(told.stdout)["items"] for name, metric in one.pop("metrics").items()}
    names = [name for name in next(iter(files.values())) if name not in OTHERWISE]
    rows = [json.loads(row) for (row,) in ask_rows(database, f"SELECT to_json(d) FROM (SELECT {', '.join(names)} "
                                                             "FROM result_detail) d")]
    assert len(rows) == len(files)
    for row in rows:
        ours = files[tuple(row[name] for name in ("gpu_uuid", "kind", "layer", "phase", "metric"))]
        for name in names:
            assert close(ours[name], row[name]), (name, ours[name], row[name], ours)


def ask_rows(database, sql):
    got = subprocess.run([PSQL, "-XAt", "-F", "\x1f", "-d", database, "-c", sql], capture_output=True, text=True, check=True)
    return [line.split("\x1f") for line in got.stdout.splitlines()]


def close(ours, theirs):
    """To the digits that files have: twelve, and microseconds of times in the database."""
    if isinstance(ours, (int, float)) and not isinstance(theirs, str):
        return ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    if ours != theirs and ours and ours.startswith("20"):
        ours, theirs = map(datetime.datetime.fromisoformat, (ours, theirs))
        return abs(ours - theirs) <= datetime.timedelta(microseconds=1)
    return ours == theirs
