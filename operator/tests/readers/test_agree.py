"""One session's figures agree to the last digit, whoever reads them: SQL, the HTTP API, metrics, files of `precisionprobe report`,
results.json and the ConsumptionPattern. SQL is what the others are held against.

Columns come from the database's catalog, fields from the OpenAPI and the CustomResourceDefinition, families from /metrics: what is
new there is compared, or is said here to be lacking, or a test fails.
"""
import collections
import datetime
import math
import os
import pathlib
import re

import figures
import pytest
import yaml
from conftest import GROUP, ROOT
from figures import DIGITS, EXACT, KEYS, OF_METRIC, UNIT, VIEWS

# --- what a reader lacks on purpose -------------------------------------------------

WHOSE = {"namespace", "session", "workload_kind", "workload_name", "pod_name"}
OF_THE_OPERATOR = {"session_uid", "session_phase", "pod_uid", "node", "latest"}
OF_RESULTS = OF_THE_OPERATOR | WHOSE
# What samplers and drivers tell of a session that is running, or Postgres alone.
BOOKS = {"data_num", "window_ns", "revision", "final", "shared"}
SAMPLING = {"noise", "lag_ns", "lag_stderr_ns", "chip", "period_ns", "times", "failed_times", "sampled_ns", "sampler_cpu_ns"}
PATTERN_HEAD = {"namespace", "workload_kind", "workload_name", "object_name", "session_uid", "sessions", "gpus", "first_at", "last_at",
                "sessions_of_other_models", "sessions_on_other_gpus"}
NOT_IN_FILES = dict.fromkeys((*VIEWS, "pattern", "model", "share", "usage"))
# {reader: {relation: columns}}; None: all of it. docs/files.md, docs/api.md and docs/patterns.md say why.
LACKS = {
    "api": {},
    "report_json": {**NOT_IN_FILES, "item": OF_THE_OPERATOR | BOOKS},
    "report_csv": {**NOT_IN_FILES, "item": OF_THE_OPERATOR | BOOKS},
    "report_parquet": {**NOT_IN_FILES, "item": OF_THE_OPERATOR | BOOKS},
    "results": {"item": OF_RESULTS | BOOKS, "metric": {"unit", "elapsed_mean", "amount_unit", "peak_unit"},
                "quality": OF_RESULTS | SAMPLING, "kernel": OF_RESULTS | {"share"}, "wait": OF_RESULTS, "copy": OF_RESULTS,
                "rank": OF_RESULTS | {"others_own_ms_per_step"}, "pattern": PATTERN_HEAD},
    "status": {**dict.fromkeys(("item", "metric", *VIEWS)), "usage": {"most_stderr"}},
}
# Of a quality what a run's results tell: of sampling they do in `fine`, which the sampler writes while it runs, and of the others in
# `quality` and in `closure`.
OF_METHOD = {"sampling": set(), "regression": {*figures.QUALITY, "shift_ns", "shift_stderr_ns"}, "replay": set(figures.CLOSURE)}
# Ranks stand in results where there are several: of the demo's two pods the recording has one.
ROWS = {"results": lambda key: (key[0] == "quality" and key[-1] not in OF_METHOD[key[3]]) or key[:2] == ("rank", "demo")}
# The database knows where samples came from, a run that it was the driver (docs/files.md).
OTHERWISE = {("metric", "source")}
# Times of the object are whole seconds.
SECONDS = {"first_at", "last_at"}
# Made of two numbers of results.json, each to twelve digits, of which 1 less the other loses some: files tell those that are left.
MADE = {"elapsed_mean"}
# Doubles that may be whole, of more than twelve digits.
RATES = {"achieved", "peak"}


def columns(served):
    """{relation: columns that are no key}, by the catalog."""
    found = collections.defaultdict(set)
    relations = {"result_detail": None, "pattern": "pattern", "pattern_share": "share", "pattern_metric": "usage",
                 **{view: relation for relation, view in VIEWS.items()}}
    for row in served.sql("SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE a.attnum > 0 "
                          f"AND NOT a.attisdropped AND c.relname IN ({', '.join(repr(name) for name in relations)})"):
        relation, name = relations[row["relname"]], row["attname"]
        found[relation or ("metric" if name in OF_METRIC else "item")].add(name)
    found["pattern"] -= {"models", "model_digests", "batches"}  # rows of their own here
    found["model"] = {"class", "digest", "batch"}
    whose = {"share": {"namespace", "workload_kind", "workload_name"}, "usage": {"namespace", "workload_kind", "workload_name"}}
    return {relation: names - set(KEYS[relation]) - whose.get(relation, set()) for relation, names in found.items()}


# --- equal ------------------------------------------------------------------------

def moment(value):
    if isinstance(value, int):  # ns
        return value
    text, fraction = re.fullmatch(r"(.{19})(?:\.(\d+))?(?:Z|\+00:00)", value).groups()
    whole = datetime.datetime.fromisoformat(text + "+00:00")
    return int(whole.timestamp()) * 10 ** 9 + int((fraction or "0").ljust(9, "0"))


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def twelve(value):
    return float(f"{value:.12g}")


def same_number(theirs, ours, how, column):
    if how == DIGITS and column in RATES:
        return twelve(theirs) == twelve(ours)
    if isinstance(theirs, int) and isinstance(ours, float) and how != EXACT:
        ours = round(ours)
    if how == EXACT or (isinstance(theirs, int) and isinstance(ours, int)):
        return theirs == ours
    if how == UNIT:
        return math.isclose(theirs, ours, rel_tol=1e-15, abs_tol=0)
    return twelve(theirs) == twelve(ours) or (column in MADE and abs(theirs - ours) <= last_digit(ours))


def last_digit(value):
    """What one more in the last digit that is written of it makes."""
    digits = re.sub(r"e.*|[-.]", "", f"{value!r}").strip("0")
    return 10.0 ** (math.floor(math.log10(abs(value))) - len(digits) + 1) * 1.01 if value else 0


def same(theirs, ours, how, column):
    """`theirs`: as SQL has it."""
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(same(*pair, how, column) for pair in zip(theirs, ours))
    if is_number(theirs) and is_number(ours):
        return same_number(theirs, ours, how, column)
    if column in SECONDS:
        return moment(theirs) // 10 ** 9 == moment(ours) // 10 ** 9
    if column in ("first_marked", "last_marked"):  # to_timestamp() rounds to us
        return abs(moment(theirs) - moment(ours)) <= (0 if how == EXACT else 1000)
    return type(theirs) is type(ours) and theirs == ours


def gathered(told):
    """{key: (value, how)}; whoever says a thing twice says it equally."""
    found = {}
    for key, value, how in told:
        assert found.setdefault(key, (value, how))[0] == value, (key, value, found[key])
    return found


# --- SQL and the rest ---------------------------------------------------------------

@pytest.fixture(scope="module")
def database(served):
    return gathered(figures.sql(served))


@pytest.fixture(scope="module")
def catalog(served):
    return columns(served)


def kinds(served):
    """{column: what a CSV's cell is}."""
    types = {"bigint": int, "integer": int, "double precision": float, "numeric": float}
    rows = served.sql("SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute "
                      "WHERE attrelid = 'result_detail'::regclass AND attnum > 0")
    return {row["attname"]: types.get(row["type"], str) for row in rows}


def parquet(served):
    packages = os.environ.get("PP_READERS")
    if packages:
        import sys
        sys.path.insert(0, packages)
    pytest.importorskip("pyarrow")
    import pyarrow
    at = str(pathlib.Path(pyarrow.__file__).parents[1])
    return figures.report_parquet(served, {**os.environ, "PYTHONPATH": at})


READERS = {"api": figures.api, "report_json": figures.report_json, "report_csv": lambda s: figures.report_csv(s, kinds(s)),
           "report_parquet": parquet, "results": figures.results, "status": figures.status}


def is_lacking(reader, key):
    relation, column = key[0], key[-1]
    lacks = LACKS[reader].get(relation, set())
    return lacks is None or column in lacks or ROWS.get(reader, lambda _: False)(key)


@pytest.mark.parametrize("reader", READERS)
def test_figures_are_the_databases(served, database, catalog, reader):
    told = gathered(READERS[reader](served))
    wrong = [(key, "SQL", database.get(key, ("nothing",))[0], reader, value, how) for key, (value, how) in told.items()
             if (key[0], key[-1]) not in OTHERWISE and (key not in database or not same(database[key][0], value, how, key[-1]))]
    assert not wrong, f"{len(wrong)} differ, as {wrong[:5]}"
    missing = [key for key in database if key not in told and not is_lacking(reader, key)]
    assert not missing, f"{len(missing)} are missing from {reader}, as {missing[:5]}"
    unneeded = [key for key in told if is_lacking(reader, key)]
    assert not unneeded, f"{reader} has what it is said to lack: {unneeded[:5]}"
    seen = {(key[0], key[-1]) for key in told}
    rows = {(key[0], key[-1]) for key in database if not ROWS.get(reader, lambda _: False)(key)}
    for relation, names in catalog.items():
        lacks = LACKS[reader].get(relation, set())
        there = {name for name in names if (relation, name) in rows}  # in rows that the reader has, too
        assert lacks is None or there - lacks == {name for of, name in seen if of == relation}, (reader, relation)


def test_there_is_something_to_compare(database, catalog):
    """Each column has a value in some session, but a run's node and what these windows need not say."""
    known = {(key[0], key[-1]) for key, (value, _) in database.items() if value is not None and value != ""}
    unknown = {(relation, name) for relation, names in catalog.items() for name in names} - known
    assert unknown - {("quality", "untold")} == {(relation, "node") for relation in ("item", *VIEWS)}
    assert len(database) > 10000


@pytest.mark.parametrize("how, factor", [(EXACT, 1 + 2 ** -52), (UNIT, 1 + 1e-14), (DIGITS, 1 + 1e-11)])
def test_the_last_digit_counts(database, how, factor):
    numbers = [(value, key) for key, (value, _) in database.items() if isinstance(value, float) and value]
    assert numbers
    for value, key in numbers:
        assert same(value, value, how, key[-1]) and not same(value, value * factor, how, "any"), key


# --- fields that are described ------------------------------------------------------

def properties(schemas, schema):
    """A schema's own, with those that it is made of."""
    if "$ref" in schema:
        return properties(schemas, schemas[schema["$ref"].rsplit("/", 1)[1]])
    found = dict(schema.get("properties", {}))
    for one in schema.get("allOf", []):
        found.update(properties(schemas, one))
    return found


def test_the_api_tells_what_its_openapi_describes(served, catalog):
    schemas = yaml.safe_load((ROOT / "docs/openapi/api.yaml").read_text())["components"]["schemas"]
    whole = served.api("/api/v1/namespaces/local/patterns/run-made")
    described = properties(schemas, schemas["Pattern"])
    assert set(whole) == set(described)
    for part in ("bounds", "time", "metrics"):
        assert set(whole[part][0]) == set(properties(schemas, described[part]["items"])), part
    assert set(whole["models"][0]) == set(described["models"]["items"]["properties"])
    layers = served.api("/api/v1/namespaces/local/sessions/sampling/layers")
    told = next(one for one in layers["items"] if one["metrics"])
    metric = properties(schemas, schemas["Layers"])["items"]["items"]["properties"]["metrics"]["additionalProperties"]
    assert set(next(iter(told["metrics"].values()))) == set(metric["properties"]) == set(OF_METRIC) - {"metric"}
    assert set(told) | set(layers) - {"items", "continue"} == catalog["item"] | {"metrics", *KEYS["item"]}


def test_conditions_are_the_objects(served):
    """Of each session, whether the operator wrote them or they came with it."""
    schemas = yaml.safe_load((ROOT / "docs/openapi/api.yaml").read_text())["components"]["schemas"]
    described = properties(schemas, schemas["Session"])["conditions"]["items"]["properties"]
    for (namespace, name), object_ in served.kubernetes.objects[GROUP, "profilesessions"].items():
        told = served.api(f"/api/v1/namespaces/{namespace}/sessions/{name}")["conditions"]
        names = {"last_transition_time": "lastTransitionTime"}
        assert told == [{key: one[names.get(key, key)] for key in described} for one in object_["status"]["conditions"]] and len(told) > 1
        listed, = [one for one in served.api(f"/api/v1/namespaces/{namespace}/sessions")["items"] if one["session"] == name]
        assert listed["reason"] == next(one["reason"] for one in told if one["type"] == "Succeeded")
    assert served.api("/api/v1/sessions")["items"][0]["reason"]


def test_a_session_has_another_etag_with_other_conditions(served):
    """They change while the database does not."""
    at = "/api/v1/namespaces/local/sessions/made"
    kept = served.kubernetes.find(GROUP, "profilesessions", "local", "made")
    known = {"If-None-Match": served.operator.get(at, "all")[1]["ETag"]}
    assert served.operator.get(at, "all", **known)[0] == 304
    told = [{**one, "message": "another"} for one in kept["status"]["conditions"]]
    served.kubernetes.put(GROUP, "profilesessions", {**kept, "status": {**kept["status"], "conditions": told}})
    served.wait("another document", lambda: served.operator.get(at, "all", **known)[0] == 200)
    served.kubernetes.put(GROUP, "profilesessions", kept)
    served.wait("the one that is known", lambda: served.operator.get(at, "all", **known)[0] == 304)


def leaves(schema, path=""):
    if "items" in schema:
        yield from leaves(schema["items"], f"{path}[]")
    elif "properties" in schema:
        for name, one in schema["properties"].items():
            yield from leaves(one, f"{path}.{name}")
    else:
        yield path


def leaves_of(value, path=""):
    if isinstance(value, dict):
        for name, one in value.items():
            yield from leaves_of(one, f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from leaves_of(one, f"{path}[]")
    else:
        yield path


class Seen(dict):
    """A dictionary that remembers what was asked of it, and of those within."""

    def __init__(self, value, path, asked):
        super().__init__(value)
        self.path, self.asked = path, asked

    def wrap(self, name, value):
        at = f"{self.path}.{name}"
        self.asked.add(at)
        if isinstance(value, dict):
            return Seen(value, at, self.asked)
        if isinstance(value, list):
            self.asked.add(f"{at}[]")
            return [Seen(one, f"{at}[]", self.asked) if isinstance(one, dict) else one for one in value]
        return value

    def __getitem__(self, name):
        return self.wrap(name, super().__getitem__(name))

    def get(self, name, default=None):
        self.asked.add(f"{self.path}.{name}")
        return self.wrap(name, super().get(name)) if name in self else default


def test_every_field_of_a_pattern_is_compared(served):
    """By the CustomResourceDefinition: the comparison above has asked for each, and it is in an object of some workload."""
    crd = yaml.safe_load((ROOT / "crds/consumptionpattern.yaml").read_text())
    described = set(leaves(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]))
    conditions = {path for path in described if path.startswith(".conditions")}  # not of figures
    asked, there = set(), set()
    for workload, object_ in served.patterns().items():
        there |= set(leaves_of(object_["status"]))
        seen = Served(object_, workload, asked)
        list(figures.status(seen.over(served)))
    assert described - conditions == asked & described
    assert described - there == set(), "nowhere told"


class Served:
    """One pattern, in place of all."""

    def __init__(self, object_, workload, asked):
        self.found = {workload: {**object_, "status": Seen(object_["status"], "", asked)}}

    def over(self, served):
        self.sql = served.sql
        return self

    def patterns(self):
        return self.found


# --- Prometheus -------------------------------------------------------------------

TOP = 20  # metrics.layers
UNITS = {"percent": 0.01, "MiB": 1 << 20, "MHz": 1e6}


def mean(values):
    return math.fsum(values) / len(values) if values else None


class Workload:
    """What /metrics is to say of one, from what SQL says."""

    def __init__(self, served, name):
        self.name, self.served = name, served
        self.rows = served.sql(f"SELECT * FROM result_detail WHERE workload_name = '{name}' AND latest")
        self.usages = served.sql(f"SELECT u.* FROM usage u JOIN target t USING (session_uid, pod_uid) WHERE workload_name = '{name}'")
        self.gpus = sorted({row["gpu_uuid"] for row in self.rows})

    def items(self, kind, layer, phase):
        """{GPU: row of the item}, whichever its metric."""
        return {r["gpu_uuid"]: r for r in self.rows if (r["kind"], r["layer"], r["phase"]) == (kind, layer, phase)}

    def per_step(self, column, item):
        values = [row[column] and row[column] / 1e9 / row["marked_steps"] for row in self.items(*item).values()]
        return None if None in values else math.fsum(values) / len(self.gpus)

    def metric(self, metric, item):
        return mean([r["mean"] for r in self.rows if (r["kind"], r["layer"], r["phase"]) == item and r["metric"] == metric
                     and r["mean"] is not None])

    def usage(self, table, column, where):
        found = self.served.sql(f"SELECT x.{column} AS value FROM {table} x JOIN target t USING (session_uid, pod_uid) "
                                f"WHERE workload_name = '{self.name}' AND {where} AND x.{column} IS NOT NULL")
        return [row["value"] for row in found]

    def one(self, sql):
        return self.served.sql(f"SELECT ({sql.format(name=self.name)}) AS value")[0]["value"]


def item_of(labels):
    layer, phase = labels["layer"], labels["phase"]
    return ("layer", layer, phase) if layer else (phase, "", "")


def unit_of(served, metric):
    unit = served.sql(f"SELECT unit FROM metric WHERE name = '{metric}'")[0]["unit"]
    return UNITS.get(unit, 1)


def of_metric(w, metric):
    values = w.usage("usage_metric", "mean", f"metric = '{metric}'")
    return mean(values) * unit_of(w.served, metric)


def cost(w):
    target = "FROM target WHERE workload_name = '{name}'"
    took = {gpu: (rows[0]["step_ns"], rows[0]["counted_ms_per_step"], rows[0]["counted_steps"]) for gpu in w.gpus
            for rows in [[r for r in w.rows if r["gpu_uuid"] == gpu]]}
    counted = w.one(f"SELECT sum(coalesce(counted_ns, 0)) FROM attribution JOIN target USING (session_uid, pod_uid) "
                    "WHERE workload_name = '{name}'")
    return w.one(f"SELECT sum(cost_ns) {target}") / (sum(t[0] for t in took.values()) + counted)


# How each family follows from the views and tables. Left out: `(rest)`, whose members no series tells.
FAMILIES = {
    "precisionprobe_workload_info": lambda w, labels: 1,
    "precisionprobe_workload_finished_timestamp_seconds":
        lambda w, _: moment(w.one("SELECT finished_at FROM session WHERE name = '{name}'")) / 1e9,
    "precisionprobe_workload_gpus": lambda w, _: len(w.gpus),
    "precisionprobe_workload_layers": lambda w, _: len({r["layer"] for r in w.rows if r["kind"] == "layer"}),
    "precisionprobe_workload_step_seconds": lambda w, _: mean([u["step_ns"] for u in w.usages]) / 1e9,
    "precisionprobe_workload_idle_ratio": lambda w, _: mean([u["idle"] for u in w.usages]),
    "precisionprobe_workload_bound_ratio":
        lambda w, labels: math.fsum(w.usage("usage_share", "share", f"kind = 'bound' AND name = '{labels['bound']}'")) / len(w.usages),
    "precisionprobe_workload_usage_ratio": lambda w, labels: of_metric(w, labels["metric"]),
    "precisionprobe_workload_memory_bytes": lambda w, _: of_metric(w, "gpu_mem"),
    "precisionprobe_workload_transfer_bytes_per_second": lambda w, labels: of_metric(w, labels["metric"]),
    "precisionprobe_workload_power_watts": lambda w, _: of_metric(w, "power"),
    "precisionprobe_workload_sm_clock_hertz": lambda w, _: of_metric(w, "sm_clock"),
    "precisionprobe_workload_probe_cost_ratio": lambda w, _: cost(w),
    "precisionprobe_workload_probe_budget_ratio": lambda w, _: 0.01,  # the default: a run's spec has none
    "precisionprobe_layer_step_seconds": lambda w, labels: w.per_step("total_ns", item_of(labels)),
    "precisionprobe_layer_busy_seconds": lambda w, labels: w.per_step("busy_ns", item_of(labels)),
    "precisionprobe_layer_step_ratio":
        lambda w, labels: math.fsum(r["share"] for r in w.items(*item_of(labels)).values()) / len(w.gpus),
    "precisionprobe_layer_usage_ratio":
        lambda w, labels: w.metric(labels["metric"], item_of(labels)) * unit_of(w.served, labels["metric"]),
}


def test_metrics_are_the_databases(served):
    workloads = {name: Workload(served, name) for name in served.folders}
    seen = collections.Counter()
    wrong = []
    for family, labels, value in figures.series(served.metrics()):
        seen[family] += 1
        if labels.get("layer") == "(rest)":
            continue
        expected = FAMILIES[family](workloads[labels["workload_name"]], labels)
        if not math.isclose(expected, value, rel_tol=1e-15):
            wrong.append((family, labels, expected, value))
    assert not wrong, f"{len(wrong)} differ, as {wrong[:5]}"
    assert set(seen) == set(FAMILIES), "each family is told of some workload"


def test_metrics_lack_nothing_but_the_rest(served):
    """Of each workload the layers that take most time, and all that is no layer's; each metric that is a share."""
    text = served.metrics()
    told = {(labels["workload_name"], item_of(labels), labels.get("metric")) for _, labels, _ in figures.series(text) if "layer" in labels}
    shares = {row["name"] for row in served.sql("SELECT name FROM metric WHERE unit IN ('share of 1', 'percent')")}
    for name in served.folders:
        w = Workload(served, name)
        taken = collections.Counter()
        for item in {(r["kind"], r["layer"], r["phase"]) for r in w.rows if r["kind"] == "layer"}:
            taken[item[1]] += w.per_step("total_ns", item)
        apart = {layer for layer, _ in taken.most_common(TOP)}
        for row in w.rows:
            item = (row["kind"], row["layer"], row["phase"])
            if row["kind"] in ("idle", "job") or (row["kind"] == "layer" and row["layer"] not in apart):
                continue
            assert (name, item, None) in told
            if row["mean"] is not None and row["metric"] in shares:
                assert (name, item, row["metric"]) in told, (name, item, row["metric"])


