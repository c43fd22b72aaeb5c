"""What each reader says of a session, under names that all share: those of SQL, which docs/results.md describes.

A reader is a function of `served` that yields (key, value, how). `key` ends with the column's name; what stands before it says
whose it is, and begins with the relation. `how` says to what a value can be held:

  EXACT   the database's double
  DIGITS  the twelve digits that results.json has of it, and what is made of that
  UNIT    the double in another unit, or a sum: multiplied or added once more than the others
"""
import csv
import io
import json
import re
import subprocess

from conftest import needed

EXACT, DIGITS, UNIT = "exact", "digits", "unit"

# Columns by which rows are told apart, beside the workload.
KEYS = {"item": ("gpu_uuid", "kind", "layer", "phase"), "metric": ("gpu_uuid", "kind", "layer", "phase", "metric"),
        "quality": ("gpu_uuid", "method", "process", "metric"), "kernel": ("process", "layer", "phase", "kernel"),
        "wait": ("process", "layer", "phase", "call", "file", "line"), "copy": ("process", "layer", "phase", "type", "memory"),
        "rank": ("process",), "pattern": (), "model": ("n",), "share": ("kind", "name"), "usage": ("metric",)}
VIEWS = {"quality": "result_quality", "kernel": "result_kernel", "wait": "result_wait", "copy": "result_copy",
         "rank": "result_rank"}
# Columns of result_detail that are a metric's; all others are an item's.
OF_METRIC = ("metric", "mean", "stderr", "unit", "windows", "basis", "method", "source", "reason", "group_name", "group_mean",
             "group_stderr", "elapsed_mean", "amount_per_step", "amount_unit", "achieved", "peak", "peak_unit")


def of_row(relation, workload, row, how=EXACT, but=()):
    """Each column of a row that is no key."""
    key = (relation, workload, *(row[name] for name in KEYS[relation]))
    for name, value in row.items():
        if name not in KEYS[relation] and name not in but:
            yield (*key, name), value, how


def of_detail(row, how=EXACT):
    """A row of result_detail: of its item, and of its metric."""
    workload = row["workload_name"]
    own = {name: value for name, value in row.items() if name not in OF_METRIC}
    yield from of_row("item", workload, own, how)
    if row["metric"] is not None:
        told = {name: row[name] for name in (*KEYS["metric"], *OF_METRIC) if name in row}
        yield from of_row("metric", workload, told, how)


class Names(dict):
    """{name as in spec.metrics: name in SQL}, and the `units` by the latter, also of `peaks`."""

    def __init__(self, served):
        rows = served.sql("SELECT spec_name, name, unit, peak_unit FROM metric")
        super().__init__((row["spec_name"], row["name"]) for row in rows)
        self.units = {row["name"]: row["unit"] for row in rows}
        self.peaks = {row["name"]: row["peak_unit"] for row in rows}


# --- SQL --------------------------------------------------------------------------

def sql(served):
    for row in served.sql("SELECT * FROM result_detail"):
        yield from of_detail(row)
    for relation, view in VIEWS.items():
        for row in served.sql(f"SELECT * FROM {view}"):
            yield from of_row(relation, row["workload_name"], row)
    for row in served.sql("SELECT * FROM pattern"):
        workload = row["workload_name"]
        models = zip(row.pop("models"), row.pop("model_digests"), row.pop("batches"))
        yield from of_row("pattern", workload, row)
        for n, (class_, digest, batch) in enumerate(models):
            yield from of_row("model", workload, {"n": n, "class": class_, "digest": digest, "batch": batch})
    for relation, table in (("share", "pattern_share"), ("usage", "pattern_metric")):
        for row in served.sql(f"SELECT * FROM {table}"):
            yield from of_row(relation, row["workload_name"], row, but=("namespace", "workload_kind", "workload_name"))


# --- HTTP API ---------------------------------------------------------------------

HEAD = ("namespace", "session", "session_uid", "session_phase")


def sessions(served):
    return [one["session"] for one in served.api("/api/v1/sessions")["items"]]


def api(served):
    for name in sessions(served):
        at = f"/api/v1/namespaces/local/sessions/{name}"
        head = {key: value for key, value in served.api(f"{at}/layers?limit=1").items() if key in HEAD}
        for one in served.pages(f"{at}/layers"):
            metrics = one.pop("metrics")
            for metric, told in (metrics or {None: dict.fromkeys(OF_METRIC[1:])}).items():
                yield from of_detail({**head, **one, "metric": metric, **told})
        for relation, view in VIEWS.items():
            path = {"quality": "quality", "copy": "copies"}.get(relation, relation + "s")
            for row in served.pages(f"{at}/{path}"):
                yield from of_row(relation, row["workload_name"], {**head, **row})
    for short in served.pages("/api/v1/namespaces/local/patterns"):
        whole = served.api(f"/api/v1/namespaces/local/patterns/{short['pattern']}")
        assert {name: whole[name] for name in short} == short
        yield from api_pattern(whole)


# Names of the database's tables that the API has otherwise.
PATTERN_NAMES = {"pattern": "object_name", "last_session": "session_uid", "first_finished": "first_at", "last_finished": "last_at"}


def api_pattern(whole):
    workload = whole["workload_name"]
    for n, model in enumerate(whole.pop("models")):
        yield from of_row("model", workload, {"n": n, **model})
    for row in whole.pop("bounds") + whole.pop("time"):
        yield from of_row("share", workload, row)
    for row in whole.pop("metrics"):
        yield from of_row("usage", workload, row)
    yield from of_row("pattern", workload, {PATTERN_NAMES.get(name, name): value for name, value in whole.items()})


# --- files ------------------------------------------------------------------------

def report(served, form, **environment):
    done = subprocess.run([needed("PP_CLI"), "report", f"--format={form}", *map(str, served.folders.values())], check=True,
                          capture_output=True, timeout=900, env=environment or None)
    return done.stdout


def report_json(served):
    for one in json.loads(report(served, "json"))["items"]:
        metrics = one.pop("metrics")
        for metric, told in (metrics or {None: dict.fromkeys(OF_METRIC[1:])}).items():
            yield from of_detail({**one, "metric": metric, **told}, DIGITS)


def cell(text, kind):
    """A cell of a CSV that Postgres would have read: nothing is NULL, and quotes are of texts."""
    if kind is str:
        return text.removeprefix("'")
    return None if text == "" else kind(text)


def report_csv(served, kinds):
    """`kinds`: {column: str, int or float}."""
    text = report(served, "csv").decode()
    # Python's reader does not tell an empty text from none: texts that are none are the ones without quotes.
    rows = [re.findall(r'(?:^|,)("(?:[^"]|"")*"|[^,"]*)', line) for line in text.split("\r\n")[1:-1]]
    for row, raw in zip(csv.DictReader(io.StringIO(text, newline=""), strict=True), rows):
        made = {name: None if written == "" else cell(value, kinds[name])
                for (name, value), written in zip(row.items(), raw)}
        yield from of_detail(made, DIGITS)


def report_parquet(served, environment):
    import pyarrow.parquet
    table = pyarrow.parquet.read_table(io.BytesIO(report(served, "parquet", **environment)))
    for name in ("first_marked", "last_marked"):  # in ns, which Python's times do not have
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast("int64"))
    for row in table.to_pylist():
        yield from of_detail(row, DIGITS)


# --- results.json -----------------------------------------------------------------

ITEM = {"type": "type", "parameters": "parameters", "calls": "calls", "total_ns": "totalNs", "ms_per_step": "millisecondsPerStep",
        "least_ms_per_step": "leastMillisecondsPerStep", "share": "share", "busy_ns": "busyNs",
        "busy_ms_per_step": "busyMillisecondsPerStep", "idle_share": "idleShare", "busy_reason": "busyReason",
        "bound": "bound", "bound_likely": "boundLikely",
        "memory_peak_bytes": "memoryPeakBytes", "memory_live_bytes": "memoryLiveBytes", "whole_reason": "wholeReason",
        "ms_per_step_stderr": "millisecondsPerStepStandardError", "ms_per_step_freedom": "millisecondsPerStepFreedom",
        "busy_ms_per_step_stderr": "busyMillisecondsPerStepStandardError", "busy_ms_per_step_freedom": "busyMillisecondsPerStepFreedom"}
GPU = {"step_ns": "stepNs", "gap_ns": "gapNs", "counted_steps": "countedSteps", "counted_ms_per_step": "countedStepMs",
       "counted_idle_share": "countedIdleShare", "marked_steps": "steps", "captures": "captures", "first_marked": "firstStepNs",
       "last_marked": "lastStepNs", "step_ms_stderr": "stepMsStandardError", "step_ms_freedom": "stepMsFreedom",
       "counted_ms_per_step_stderr": "countedStepMsStandardError", "counted_ms_per_step_freedom": "countedStepMsFreedom"}
METRIC = {"mean": "mean", "stderr": "standardError", "windows": "windows", "basis": "basis", "method": "method", "source": "source",
          "reason": "reason", "group_name": "group", "group_mean": "groupMean", "group_stderr": "groupStandardError",
          "amount_per_step": "perStep", "achieved": "achieved", "peak": "peak"}
QUALITY = {"doubt": "doubt", "untold": "untold", "explained": "explained", "miss": "miss", "expected_miss": "expectedMiss",
           "items": "items", "items_z": "itemsZ", "idle": "idle", "idle_stderr": "idleStandardError"}
RANK = {"rank": "rank", "world_size": "worldSize", "steps": "steps"}
RANK_MS = {"ms_per_step": "stepMs", "wait_ms_per_step": "waitMs", "own_ms_per_step": "ownMs", "own_stderr_ms": "ownStandardErrorMs"}
PER_STEP = {"calls_per_step": "callsPerStep", "ms_per_step": "millisecondsPerStep"}
WAIT = {**PER_STEP, "share_of_steps": "shareOfSteps"}
COPY = {"per_step": "perStep", "bytes_per_step": "bytesPerStep", "ms_per_step": "millisecondsPerStep",
        "gb_per_second": "gigabytesPerSecond"}
# Of these objects what no column has, and why.
NO_COLUMN = {
    "gpu": {"chip": "of the driver", "gpuModel": "in the table process", "gpu": "a key", "items": "rows", "quality": "rows of another view",
            "closure": "rows of another view", "stepMs": "stepNs over steps", "observedNs": "in the table attribution", "windows": "in the table attribution",
            "samples": "in the table attribution", "lagMs": "below", "lagStandardErrorMs": "below",
            "kernelSteps": "in the table process"},
    "item": {"kind": "a key", "layer": "a key", "phase": "a key", "metrics": "rows", "kernels": "rows of another view"},
    "rank": {"process": "a key", "items": "rows of another view"},
    "wait": dict.fromkeys(("layer", "phase", "call", "file", "line"), "a key"),
    "copy": dict.fromkeys(("layer", "phase", "type", "memory"), "a key"), "kernel": {"name": "a key"},
    "quality": {"method": "a key", "shiftMs": "below", "shiftStandardErrorMs": "below"}, "metric": {}, "closure": {},
}
CLOSURE = {"held": "held", "difference": "difference", "windows": "windows"}


def taken(object_, names, what):
    """The object's members by their columns; each that it has must be known."""
    unknown = set(object_) - set(names.values()) - set(NO_COLUMN[what])
    assert not unknown, f"results.json: a {what} has {sorted(unknown)}, which no column is said to hold"
    return {column: object_.get(name) for column, name in names.items()}


def scaled(value, by):
    return None if value is None else value * by


def results_gpu(workload, gpu, names):
    own = {**taken(gpu, GPU, "gpu"), "lag_ns": scaled(gpu["lagMs"], 1e6), "lag_stderr_ns": scaled(gpu["lagStandardErrorMs"], 1e6)}
    for one in gpu["items"]:
        row = {"gpu_uuid": gpu["gpu"], "kind": one["kind"], "layer": one["layer"],
               "phase": one["phase"] if one["kind"] == "layer" else "", **taken(one, ITEM, "item")}
        row["type"] = row["type"] or None
        yield from of_row("item", workload, {**row, **own}, DIGITS)
        for metric, told in one["metrics"].items():
            key = {name: row[name] for name in KEYS["item"]}
            yield from of_row("metric", workload, {**key, "metric": names[metric], **taken(told, METRIC, "metric")}, DIGITS)
        for kernel in one.get("kernels", []) if one["kind"] != "job" else []:  # the job's are sums
            key = {"process": 0, "layer": one["layer"], "phase": one["phase"] if one["kind"] == "layer" else one["kind"]}
            yield from of_row("kernel", workload, {**key, "kernel": kernel["name"], **taken(kernel, PER_STEP, "kernel")}, DIGITS)
    for metric, told in gpu.get("quality", {}).items():
        row = {"gpu_uuid": gpu["gpu"], "method": told["method"], "process": None, "metric": names[metric],
               **taken(told, QUALITY, "quality"), "shift_ns": scaled(told["shiftMs"], 1e6),
               "shift_stderr_ns": scaled(told["shiftStandardErrorMs"], 1e6)}
        yield from of_row("quality", workload, row, DIGITS)
    for metric, told in gpu.get("closure", {}).items():
        key = {"gpu_uuid": gpu["gpu"], "method": "replay", "process": None, "metric": names[metric]}
        yield from of_row("quality", workload, {**key, **taken(told, CLOSURE, "closure")}, DIGITS)


def results(served):
    names = Names(served)
    for workload, place in served.folders.items():
        whole = json.loads((place / "results.json").read_text())
        for gpu in whole["gpus"]:
            yield from results_gpu(workload, gpu, names)
        for one in whole.get("ranks", []):
            row = {"process": one["process"], **taken(one, {**RANK, **RANK_MS}, "rank")}
            yield from of_row("rank", workload, row, DIGITS)
        for relation, list_, columns in (("wait", whole.get("hostWaits", {}).get("calls", []), WAIT),
                                         ("copy", whole.get("copies", {}).get("items", []), COPY)):
            for one in list_:
                row = {"process": 0, **{name: one[name] for name in KEYS[relation][1:]}, **taken(one, columns, relation)}
                yield from of_row(relation, workload, row, DIGITS)
        yield from figures_of(workload, whole["pattern"], names, DIGITS)


# --- patterns as objects ----------------------------------------------------------

def part(figure, name):
    return (figure or {}).get(name)


UNITS = {"Tensor": "tensor_active", "FP32": "fp32_active", "Memory": "dram_active"}


def check_peak(one, metric, names, peaks):
    """A bound's is its unit's metric's; without a peak and what is achieved there is no unit of theirs."""
    assert one.get("peak") == peaks.get(metric)
    told = one.get("peak") is not None or one.get("achieved") is not None
    assert one.get("peakUnit") == (names.peaks[metric] if told else None)


def figures_of(workload, status, names, how):
    """pp_pattern_figures of controller/pattern_object.h."""
    unit = DIGITS if how == DIGITS else UNIT
    step, lead = status["step"], status.get("boundLead")
    time = step.get("milliseconds")
    yield from of_row("pattern", workload, {
        "bound": status["bound"], "busy": status["shares"] == "busy", "steps": status["steps"], "lead": part(lead, "value"),
        "lead_stderr": part(lead, "standardError"), "gpu_model": status.get("gpuModel"), "undisturbed": step["undisturbed"],
        "idle": part(step.get("idleShare"), "value"), "idle_stderr": part(step.get("idleShare"), "standardError")}, how)
    yield from of_row("pattern", workload, {
        "step_ns": scaled(part(time, "value"), 1e6), "step_ns_stderr": scaled(part(time, "standardError"), 1e6),
        "step_sd_ns": scaled(step.get("spreadMilliseconds"), 1e6)}, unit)
    for n, model in enumerate(status["models"]):
        yield from of_row("model", workload, {"n": n, **{name: model.get(name, "") for name in ("class", "digest", "batch")}}, how)
    for one in status["bounds"] + status["time"]:
        kind = next(kind for kind in ("by", "layerType", "phase") if kind in one)
        yield from of_row("share", workload, {"kind": {"by": "bound", "layerType": "layer"}.get(kind, kind), "name": one[kind],
                                              "share": one["share"]["value"], "share_stderr": part(one["share"], "standardError"),
                                              "achieved": part(one.get("achieved"), "value"),
                                              "achieved_stderr": part(one.get("achieved"), "standardError")}, how)
    peaks = {names[one["name"]]: one.get("peak") for one in status["metrics"]}
    for one in status["bounds"]:
        check_peak(one, UNITS.get(one["by"]), names, peaks)
    for one in status["metrics"]:
        check_peak(one, names[one["name"]], names, peaks)
        assert one["unit"] == names.units[names[one["name"]]]
        row = {"metric": names[one["name"]], "source": one["source"], "most": one.get("max"), "profile": one.get("profile"),
               "peak": one.get("peak")}
        for name in ("mean", "p50", "p95", "achieved"):
            row.update({name: part(one.get(name), "value"), f"{name}_stderr": part(one.get(name), "standardError")})
        yield from of_row("usage", workload, row, how)


def status(served):
    names = Names(served)
    for workload, object_ in served.patterns().items():
        told = object_["status"]
        yield from figures_of(workload, told, names, EXACT)
        yield from of_row("pattern", workload, {
            "namespace": object_["metadata"]["namespace"], "object_name": object_["metadata"]["name"],
            "workload_kind": object_["spec"]["workload"]["kind"], "workload_name": object_["spec"]["workload"]["name"],
            "sessions": told["sessions"], "gpus": told["gpus"], "sessions_of_other_models": told["sessionsOfOtherModels"],
            "sessions_on_other_gpus": told["sessionsOnOtherGpus"],
            "first_at": told["firstFinished"], "last_at": told["lastFinished"], "session_uid": told["lastSession"]}, EXACT)


# --- Prometheus -------------------------------------------------------------------

LINE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def series(text):
    """(family, labels, value) of workloads and layers."""
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if match and match[1].startswith(("precisionprobe_workload_", "precisionprobe_layer_")):
            labels = {name: re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value) for name, value in LABEL.findall(match[2])}
            yield match[1], labels, float(match[3])
