"""Names that are made to harm their readers are data to each of them: SQL, the HTTP API, metrics, files, the table on a terminal,
traces, dashboards, objects of Kubernetes."""
import csv
import io
import json
import os
import re
import shutil
import subprocess
import unicodedata

import conftest
import figures
import folder
import pytest
from conftest import ROOT, needed
from hostile import LONGEST, NAMES, TOO_LONG

ALL = [name for name in NAMES if name] + LONGEST  # the wire takes none that is empty
# Kernels and lines of programs have none on the wire (docs/wire.md).
PLAIN = [name for name in ALL if not any(c < " " or c == "\x7f" for c in name)]
# What a terminal obeys, and what turns writing.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
WORKLOAD = "\"} 1 # evil{x='; --\\\u202e<b>$1 é"  # what an import calls it


def made_batch(seq, names):
    """Ten steps in which each layer takes its part."""
    one = folder.batch(seq, 10 * seq, 10)
    length = 800 * folder.MS // len(names)
    starts = [folder.T0 + n * 1000 * folder.MS for n in range(10 * seq, 10 * seq + 10)]
    pieces = [(k + 1, n, start + k * length, length - k) for n, start in enumerate(starts, 10 * seq) for k in range(len(names))]
    one["layers"] = [{"id": k + 1, "name": name, "type": name, "parameters": 1} for k, name in enumerate(names)]
    one["intervals"] = {"layer": [p[0] for p in pieces], "phase": [0] * len(pieces), "step": folder.delta([p[1] for p in pieces]),
                        "start": folder.delta([p[2] for p in pieces]), "duration": [p[3] for p in pieces]}
    one["process"].update(model=NAMES[0], clock="kernels")
    of = range(len(PLAIN))
    one["kernels"] = {"steps": 10, "names": PLAIN, "layer": [0] * len(of), "phase": [7] * len(of), "name": list(of),
                      "count": [10] * len(of), "duration": [1000 + k for k in of]}
    one["waits"] = {"steps": 10, "calls": ["item"], "files": PLAIN, "layer": [0] * len(of), "phase": [7] * len(of),
                    "call": [0] * len(of), "file": list(of), "line": [41] * len(of), "count": [10] * len(of),
                    "inSteps": [10] * len(of), "duration": [1000 + k for k in of]}
    return one


def write(place, names, chosen=None):
    batches = [made_batch(seq, names) for seq in range(folder.STEPS // 10)]
    return folder.write(place, {**folder.RESULTS, "command": ALL}, batches)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    place = conftest.solved(write(tmp_path_factory.mktemp("hostile") / "run", ALL))
    yield from conftest.serve({WORKLOAD: place}, metrics__layers=200)


@pytest.fixture
def place(hostile):
    return hostile.folders[WORKLOAD]


def program(*arguments):
    return subprocess.run([needed("PP_CLI"), *map(str, arguments)], capture_output=True, timeout=60)


# --- SQL and HTTP -----------------------------------------------------------------

def test_sql_has_them_whole(hostile):
    assert sorted(r["layer"] for r in hostile.sql("SELECT DISTINCT layer FROM result_detail WHERE kind = 'layer'")) == sorted(ALL)
    assert {r["type"] for r in hostile.sql("SELECT DISTINCT type FROM result_detail WHERE kind = 'layer'")} == set(ALL)
    assert {r["layer"] for r in hostile.sql("SELECT layer FROM result")} == set(ALL)
    assert {r["kernel"] for r in hostile.sql("SELECT kernel FROM result_kernel")} == set(PLAIN)
    assert {r["file"] for r in hostile.sql("SELECT file FROM result_wait")} == set(PLAIN)
    assert hostile.sql("SELECT DISTINCT workload_name, session FROM result_detail") == [
        {"workload_name": WORKLOAD, "session": WORKLOAD}]
    assert hostile.sql("SELECT spec->'command' AS command FROM session")[0]["command"] == ALL


def test_the_api_has_them_whole(hostile):
    """Page by page: they are in the cursors, too."""
    (name,) = hostile.kubernetes.objects[conftest.GROUP, "profilesessions"].values()
    assert name["metadata"]["name"] == WORKLOAD
    at = f"/api/v1/namespaces/local/sessions/{conftest.quoted(WORKLOAD)}"
    layers = hostile.pages(f"{at}/layers")
    assert sorted(one["layer"] for one in layers if one["kind"] == "layer") == sorted(ALL)
    assert {one["type"] for one in layers if one["kind"] == "layer"} == set(ALL)
    assert sorted(one["kernel"] for one in hostile.pages(f"{at}/kernels")) == sorted(PLAIN)
    assert sorted(one["file"] for one in hostile.pages(f"{at}/waits")) == sorted(PLAIN)
    timeline = hostile.api(f"{at}/timeline?limit=1")
    assert {one["layer"] for one in timeline["items"][0]["intervals"]} >= set(ALL)
    status, headers, _ = hostile.operator.get(f"{at}/layers", "all")
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"


# --- Prometheus -------------------------------------------------------------------

def test_metrics_have_a_series_for_each(hostile):
    text = hostile.metrics()
    values = [labels["layer"] for family, labels, _ in figures.series(text)
              if family == "precisionprobe_layer_step_seconds" and labels["phase"] == "forward"]
    assert len(values) == len(set(values)) == len(ALL)
    assert not [value for value in values if len(value.encode()) > 120 or OBEYED.search(value.replace("\n", ""))]
    untouched = [name for name in ALL if len(name.encode()) <= 120 and name.isprintable() and name not in ("(rest)",)]
    assert set(untouched) <= set(values)
    assert "(rest)" not in values


def test_metrics_are_well_formed(hostile):
    text = hostile.metrics()
    assert "evil_metric" not in {re.split("[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    assert not re.search(r"(?m)^# (HELP|TYPE) evil", text) and "\r" not in text and "\x1b" not in text
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_as_prometheus_client_parses_them(hostile):
    parser = pytest.importorskip("prometheus_client.parser")
    found = list(parser.text_string_to_metric_families(hostile.metrics()))
    assert not [family.name for family in found if not family.name.startswith(("precisionprobe_", "process_"))]
    layers = [sample.labels for family in found for sample in family.samples if sample.name == "precisionprobe_layer_step_seconds"]
    assert len({labels["layer"] for labels in layers if labels["phase"] == "forward"}) == len(ALL)
    assert {frozenset(labels) for labels in layers} == {
        frozenset(("workload_namespace", "workload_kind", "workload_name", "layer", "phase"))}


# --- files, tables, traces ----------------------------------------------------------

def test_a_spreadsheet_calculates_nothing(place):
    text = program("report", "--format=csv", place).stdout.decode()
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert {row["layer"].removeprefix("'") for row in rows if row["kind"] == "layer"} == set(ALL)
    assert not [cell for row in rows for cell in row.values() if cell and cell[0] in "=+-@\t\r\n" and not is_number(cell)]
    rows = list(csv.DictReader(io.StringIO((place / "layers.csv").read_bytes().decode(), newline=""), strict=True))
    assert {row["layer"].removeprefix("'") for row in rows if row["kind"] == "layer"} == set(ALL)
    assert not [cell for row in rows for cell in row.values() if cell and cell[0] in "=+-@\t\r\n" and not is_number(cell)]


def is_number(text):
    return re.fullmatch(r"-?\d+(\.\d+)?(e[-+]\d+)?", text)


def test_files_have_them_whole(place):
    told = json.loads(program("report", "--format=json", place).stdout)["items"]
    assert sorted(one["layer"] for one in told if one["kind"] == "layer") == sorted(ALL)


def test_a_terminal_obeys_none(place):
    for arguments in (["report", "--kernels", place], ["report", "--sort=layer", place]):
        done = program(*arguments)
        assert done.returncode == 0 and not OBEYED.search(done.stdout.decode() + done.stderr.decode())


def test_traces_have_them_whole(place):
    done = program("trace", place)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    names = {event.get("name") for event in (told["traceEvents"] if isinstance(told, dict) else told)}
    assert set(ALL) <= names


@pytest.mark.parametrize("name", ["", TOO_LONG, LONGEST[1] + "x", LONGEST[0] + "é"])
def test_what_no_name_can_be_is_told(tmp_path, name):
    """Of whose name, and nothing is stored."""
    done = program("import", "--database", "host=/nowhere", write(tmp_path / "run", [name]))
    assert done.returncode == 1 and b"batches.jsonl:1: layers[0].name" in done.stderr
    assert len(done.stderr) < 1024


@pytest.mark.parametrize("name", [name for name in NAMES if not name or re.search("[\x00-\x1f\x7f/]", name)] + [".", "..", TOO_LONG])
def test_what_no_session_can_be_called_is_told(place, name):
    """Of what paths of the HTTP API cannot have."""
    done = program("import", "--database", "host=/nowhere", "--name", name, place)
    assert done.returncode == 1 and b"--name must have 1 to 253 bytes" in done.stderr and not OBEYED.search(done.stderr.decode())


# --- dashboards -------------------------------------------------------------------

BOARDS = ROOT / "charts/precisionprobe/files/dashboards"
VARIABLE = re.compile(r"\$\{?(\w+)(?::(\w+))?\}?")


def board(name):
    return json.loads((BOARDS / name).read_text())


def questions(found):
    """SQL or PromQL of panels and variables."""
    for panel in found["panels"]:
        for target in panel["targets"]:
            yield target.get("rawSql") or target["expr"]
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]
            yield query if isinstance(query, str) else query["query"]


def test_dashboards_quote_what_is_chosen():
    """In SQL each choice is a text that Grafana quotes; in PromQL none is a layer's name, but what Kubernetes lets be a name."""
    for sql in questions(board("postgres.json")):
        for variable, form in VARIABLE.findall(sql):
            assert form == "sqlstring" or variable == "__timeFilter", (variable, sql)
    chosen = {variable for expression in questions(board("prometheus.json")) for variable, _ in VARIABLE.findall(expression)}
    assert chosen - {"__rate_interval", "__interval", "__range"} == {"namespace", "workload", "metric"}


def test_dashboards_ask_of_hostile_names(hostile):
    """Grafana's sqlstring: in quotes, and those within twice."""
    (uid,) = [row["uid"] for row in hostile.sql("SELECT uid FROM session")]
    chosen = {"namespace": "local", "workload": f"Run/{WORKLOAD}", "session": uid}
    answered = 0
    for sql in questions(board("postgres.json")):
        for variable, value in chosen.items():
            sql = sql.replace("${%s:sqlstring}" % variable, "'" + value.replace("'", "''") + "'")
        sql = re.sub(r"\$__timeFilter\(([\w.]+)\)", r"\1 BETWEEN '2000-01-01' AND '2100-01-01'", sql)
        rows = hostile.sql(re.sub(r"\bAS (__\w+)", r'AS "\1"', sql))
        answered += any(WORKLOAD in map(str, row.values()) or set(ALL) & set(map(str, row.values())) for row in rows)
    assert answered >= 5


def test_dashboards_render_no_names_as_html():
    """Panels that show texts of rows have no cells that are HTML or Markdown."""
    for name in ("postgres.json", "prometheus.json"):
        text = (BOARDS / name).read_text()
        assert '"markdown"' not in text and '"disableSanitizeHtml"' not in text
        assert not [panel for panel in board(name)["panels"] if panel["type"] == "text" and VARIABLE.search(json.dumps(panel["options"]))]


# --- Kubernetes -------------------------------------------------------------------

def test_patterns_have_them_whole_and_lawful_names(hostile):
    (object_,) = hostile.kubernetes.objects[conftest.GROUP, "consumptionpatterns"].values()
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", object_["metadata"]["name"])
    assert object_["spec"]["workload"] == {"kind": "Run", "name": WORKLOAD}
    told = {one["layerType"] for one in object_["status"]["time"] if "layerType" in one}
    assert told <= {*ALL, ""} and len(object_["status"]["time"]) <= 64
    assert object_["status"]["models"] == [{"class": NAMES[0]}]
    whole = hostile.api(f"/api/v1/namespaces/local/patterns/{object_['metadata']['name']}")
    assert {row["name"] for row in whole["time"] if row["kind"] == "layer"} == told


def test_no_name_is_in_an_event_or_a_log(hostile):
    """Conditions and Events count layers; the log is JSON."""
    for line in hostile.operator.text().splitlines():
        json.loads(line)
        assert not OBEYED.search(line)
