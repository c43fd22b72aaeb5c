"""The main job: two trainings profiled for two minutes, their unselected twin, and the table held against the truth."""
import math
import re

import pytest

from harness import overlap, truth
from harness.demo import compare, observed
from harness.figures import draw
from harness.progress import wait_until
from harness.session import WHOLE, losses, manifest, pods_of
from harness.environment import NAME, SERVICES, SYSTEM
from harness.results_api import get, reader

pytestmark = [pytest.mark.long, pytest.mark.measures]

LEAVES = {f"{part}.{i}" for part in ("bot", "top") for i in range(6)} | {f"emb.{i}" for i in range(4)}
COLUMNS = ["job_id", "host_name", "ip", "forward", "layer", "cpu_num", "data_num", "gpu_util", "gpu_mem", "dram_active",
           "fp32_active", "sm_occupancy", "sm_active", "gpu_uuid"]  # of the 2024 paper's Table II
WINDOW = 250_000_000


class Run:
    """One session over the demo's trainings, and everything that the tests want to know of it."""

    def __init__(self, world):
        self.world = world
        self.session = world.session("main")
        self.phases = []

    def go(self):
        world, cluster = self.world, self.world.cluster
        cluster.apply(manifest("main", duration="120s", more=WHOLE) + "---\n"
                      + world.deployment.render("dlrm.yaml", "dlrm-ddp.yaml", "dlrm-twin.yaml"))
        self.phases.append(self.session.follow(60, until=("Pending", "Collecting"))["status"]["phase"])
        self.phases.append(self.session.follow(180, until=("Collecting",))["status"]["phase"])
        self.phases.append(self.session.follow(240, until=("Finishing", "Succeeded"))["status"]["phase"])
        cluster.kubectl("-n", SERVICES, "wait", "--for=condition=Succeeded", "psess/main", "--timeout=180s", timeout=200)
        self.item = self.session.get()
        self.uid = self.item["metadata"]["uid"]
        self.pods = {p["metadata"]["name"]: p for p in pods_of(cluster, "app in (dlrm, dlrm-twin)")}
        self.profiled = [name for name, p in self.pods.items() if p["metadata"]["labels"].get("profile") == "yes"]
        self.ranges, self.rows = observed(world.database, self.uid)
        self.comparison = compare(cluster, self.ranges, self.rows)
        self.losses = {}
        for name in self.pods:
            wait_until(f"30 losses of {name}", lambda name=name: len(losses(cluster, name)) >= 30, 240, every=2)
        self.losses = {name: losses(cluster, name) for name in self.pods}
        return self

    def of_job(self, job):
        return sorted(name for name, p in self.pods.items() if p["metadata"]["labels"]["job-name"] == job)


@pytest.fixture(scope="module")
def run(everything):
    everything.use()
    yield Run(everything).go()
    assert everything.clear() == []


def test_phases_and_conditions(run, world):
    assert run.phases[0] == "Pending" and run.phases[1] == "Collecting"
    status = run.item["status"]
    assert status["phase"] == "Succeeded" and status["pods"] == "3/3"
    assert status["observedGeneration"] == run.item["metadata"]["generation"]
    conditions = {c["type"]: c for c in status["conditions"]}
    for kind in ("Accepted", "Injected", "MetricsAvailable", "Stored", "Ready", "Succeeded"):
        assert conditions[kind]["status"] == "True", conditions[kind]
    for kind in ("Collecting", "Reconciling", "Stalled"):
        assert conditions[kind]["status"] == "False", conditions[kind]
    reasons = [reason for reason, _ in world.events(SERVICES, "main")]
    assert "CollectingStarted" in reasons and "Completed" in reasons
    assert status["results"]["sessionUID"] == run.uid
    assert world.database.rows(status["results"]["query"].rstrip(";")), "the query of the status finds the results"


def test_what_was_held_out_is_predicted(run, world):
    """NVML's utilisation is of times of its own, which its windows' layers may not explain: then it is withheld."""
    rows = world.database.rows(f"SELECT metric, doubt, explained, items_z FROM result_quality "
                               f"WHERE session_uid = '{run.uid}' AND method = 'regression'")
    assert len({row["metric"] for row in rows}) > 4
    for row in rows:
        assert row["metric"] == "gpu_util" or (row["doubt"] is None and row["explained"] > 0.9), row
        assert row["items_z"] is None or 0.3 < row["items_z"] < 3, row
    condition = next(c for c in run.item["status"]["conditions"] if c["type"] == "Explained")
    told = "InDoubt" if any(row["doubt"] for row in rows) else "Predicted"
    assert condition["reason"] == told and ("gpu_util" in condition["message"]) == (told == "InDoubt"), condition


def test_printed_columns(run, world):
    lines = [line.split() for line in world.cluster.kubectl("-n", SERVICES, "get", "psess", "main").splitlines()]
    assert lines[0] == ["NAME", "PHASE", "PODS", "LAYERS", "PROGRESS", "AGE"]
    name, phase, pods, layers, progress = lines[1][:5]
    assert (name, phase, pods, progress) == ("main", "Succeeded", "3/3", "2m/2m")
    assert int(layers) >= len(LEAVES)


def test_every_leaf_in_both_phases(run):
    """Of all three pods, each with its time, which agrees with what the training itself has measured."""
    for pod in run.profiled:
        rows = {(r["layer"], r["phase"]): r for r in run.rows if r["pod_name"] == pod and r["kind"] == "layer"}
        true = {truth.key(r): r for r in truth.workload(truth.fetch(run.world.cluster, run.ranges[pod]), pod)["rows"]}
        for layer in LEAVES:
            for phase in ("forward", "backward"):
                row = rows[layer, phase]
                assert row["ms_per_step"] > 0 and row["total_ns"] > 0
                if true[layer, phase]["share"] > 0.02:
                    assert row["share"] == pytest.approx(true[layer, phase]["share"], rel=0.05), (pod, layer, phase)


def test_against_the_truth(run, record_property):
    figures = run.comparison.figures()
    print(figures)
    record_property("figures", figures)
    assert truth.failures(figures) == []
    assert figures["estimates"] > 100


def test_overlap_weighting_does_worse(run):
    """The same windows without a lag and without a regression, over the very layers that the probe reports."""
    plain = overlap.means(run.world.database, run.uid, WINDOW)
    ours, theirs, weight = 0.0, 0.0, 0.0
    for row in run.comparison.rows:
        points = truth.SHARES.get(row["metric"], (None, 0))[1]
        if row["kind"] != "layer" or "error" not in row:
            continue
        mean = plain[row["pod_name"], row["layer"], row["phase"], row["metric"]]
        weight += row["share"]
        ours += row["share"] * abs(row["error"]) * points
        theirs += row["share"] * abs(mean - row["truth"]) * points
    print(f"mean error: {ours / weight:.2f} points, of the overlap-weighted mean {theirs / weight:.2f}")
    assert theirs / weight > 2 * ours / weight


def test_twin_is_untouched(run):
    twin = run.pods[run.of_job("dlrm-twin")[0]]
    assert [c["name"] for c in twin["spec"]["containers"]] == ["trainer"]
    assert "initContainers" not in twin["spec"]
    assert [v["name"] for v in twin["spec"]["volumes"]] == ["training"]
    assert not [k for k in {**twin["metadata"].get("annotations", {}), **twin["metadata"]["labels"]}
                if k.startswith("precisionprobe.io/")]
    assert "PYTHONPATH" not in [e["name"] for e in twin["spec"]["containers"][0]["env"]]


def test_losses_are_bit_identical(run):
    same(run.losses[run.of_job("dlrm")[0]], run.losses[run.of_job("dlrm-twin")[0]])


def same(ours, theirs):
    common = sorted(set(ours) & set(theirs))
    assert len(common) >= 25
    assert [ours[n] for n in common] == [theirs[n] for n in common]


def test_the_papers_view(run, world):
    columns = world.database.rows("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'result' "
                                  "ORDER BY ordinal_position")
    assert [c["column_name"] for c in columns] == COLUMNS
    kinds = {c["column_name"]: c["data_type"] for c in columns}
    assert kinds["forward"] == "boolean" and kinds["layer"] == "text" and kinds["sm_active"] == "double precision"
    rows = world.database.rows("SELECT * FROM result")
    ours = [r for r in rows if r["job_id"] in (f"{SERVICES}/dlrm", f"{SERVICES}/dlrm-ddp")]
    for host in {r["host_name"] for r in ours}:
        of_host = {(r["layer"], r["forward"]) for r in ours if r["host_name"] == host}
        assert {(layer, forward) for layer in LEAVES for forward in (True, False)} <= of_host, host
    assert len({r["host_name"] for r in ours}) == 3
    for row in ours:
        assert row["gpu_util"] is None or 0 <= row["gpu_util"] <= 100
        for name in ("dram_active", "fp32_active", "sm_occupancy", "sm_active"):
            assert row[name] is None or 0 <= row[name] <= 1
        assert row["ip"] and row["data_num"] >= 0
    assert sum(row["sm_active"] is not None for row in ours) > len(ours) / 2
    printed = world.database.psql("SELECT * FROM result LIMIT 3")
    assert [c.strip() for c in printed.splitlines()[0].split("|")] == COLUMNS


def test_sample_rows_are_deduplicated(run, world):
    counts = run.item["status"]["counts"]
    assert counts["samplesDeduplicated"] > 0 and counts["samplesStored"] > 0
    row = world.database.rows(f"SELECT count(*) AS stored, sum(windows)::bigint AS windows, max(windows) AS most FROM sample "
                              f"WHERE session_uid = '{run.uid}'")[0]
    assert row["stored"] == counts["samplesStored"]
    assert row["windows"] - row["stored"] == counts["samplesDeduplicated"]
    assert row["most"] > 1
    assert counts["sampleErrorPercent"] <= 1 and counts["sampleSpreadPercent"] > 0


def test_nothing_is_invented(run):
    """An estimate has a value with its error, or a reason; a value of its own is never beside a group's."""
    for row in run.rows:
        if row["kind"] != "layer" or row["metric"] not in truth.SHARES:
            continue
        if row["mean"] is None:
            assert row["reason"] or row["group_name"], row
        else:
            assert row["stderr"] is not None and row["stderr"] > 0 and math.isfinite(row["mean"])
            assert row["group_mean"] is None


def test_ranks_are_side_by_side(run, world):
    """Those of the job with two; the job with one has none. What is a rank's own and what it waits are its step."""
    rows = world.database.rows("SELECT workload_name, rank, world_size, steps, ms_per_step, own_ms_per_step, wait_ms_per_step, "
                               f"others_own_ms_per_step FROM result_rank WHERE session_uid = '{run.uid}' ORDER BY rank")
    assert [(r["workload_name"], r["rank"], r["world_size"]) for r in rows] == [("dlrm-ddp", 0, 2), ("dlrm-ddp", 1, 2)]
    values = [{key: float(r[key]) for key in r if key != "workload_name"} for r in rows]
    for one, other in (values, values[::-1]):
        assert one["steps"] > 10 and one["wait_ms_per_step"] > 0
        assert abs(one["own_ms_per_step"] + one["wait_ms_per_step"] - one["ms_per_step"]) < 1e-6 * one["ms_per_step"]
        assert one["others_own_ms_per_step"] == other["own_ms_per_step"]
    items = world.database.rows("SELECT rank, sum(ms_per_step) AS ms, count(others_ms_per_step) AS others, count(*) AS n "
                                f"FROM result_rank_item WHERE session_uid = '{run.uid}' GROUP BY rank ORDER BY rank")
    for item, rank in zip(items, values):
        assert item["others"] == item["n"] and float(item["ms"]) > 0.8 * rank["ms_per_step"], (item, rank)


def models_of(row):
    """As an object has them."""
    return [{"class": name, "digest": digest, "batch": batch}
            for name, digest, batch in zip(row["models"], row["model_digests"], row["batches"])]


def figure(row, name):
    """As an object has it: what is not known is not there."""
    found = {"value": row[name], "standardError": row[f"{name}_stderr"]}
    return {key: value for key, value in found.items() if value is not None} if row[name] is not None else None


def test_patterns_are_those_of_the_database(run, world):
    """Objects, the session's status and SQL, to the last digit. Other sessions of these Jobs may be part of them."""
    names = wait_until("patterns in the status", lambda: run.session.get()["status"].get("patterns"), 30)
    assert sorted(p["workload"] for p in names) == ["Job/dlrm", "Job/dlrm-ddp"]
    world.cluster.kubectl("-n", SERVICES, "wait", "--for=condition=Ready", "cpat/job-dlrm", "cpat/job-dlrm-ddp", "--timeout=30s")
    for short in names:
        name = short["workload"].removeprefix("Job/")
        of = f"WHERE namespace = '{SERVICES}' AND workload_kind = 'Job' AND workload_name = '{name}'"
        row, = world.database.rows(f"SELECT *, step_ns * 1e-6 AS ms, step_ns_stderr * 1e-6 AS ms_stderr FROM pattern {of}")
        item = world.cluster.get("-n", SERVICES, "cpat", f"job-{name}")
        assert item["spec"] == {"workload": {"kind": "Job", "name": name}} and short["pattern"] == f"job-{name}"
        status = item["status"]
        assert [status[key] for key in ("sessions", "gpus", "steps")] == [row[key] for key in ("sessions", "gpus", "steps")]
        assert row["sessions"] >= 1 and row["gpus"] >= len(run.of_job(name))
        assert status["lastSession"] == run.uid == row["session_uid"]
        assert status["models"] == models_of(row) and all(re.fullmatch("[0-9a-f]{16}", m["digest"]) for m in status["models"])
        assert status["sessionsOfOtherModels"] == row["sessions_of_other_models"] == short["sessionsOfOtherModels"]
        assert status["bound"] == row["bound"] == short["bound"] and figure(row, "lead") == status["boundLead"]
        assert status["step"]["milliseconds"] == figure(row, "ms") == short["milliseconds"]
        assert row["ms_stderr"] > 0 and status["step"].get("idleShare") == figure(row, "idle")
        shares = world.database.rows(f"SELECT kind, name, share, share_stderr FROM pattern_share {of}")
        assert {(s["kind"], s["name"]): figure(s, "share") for s in shares} == {
            **{("bound", b["by"]): b["share"] for b in status["bounds"]},
            **{("layer", t["layerType"]) if "layerType" in t else ("phase", t["phase"]): t["share"] for t in status["time"]}}
        assert abs(sum(s["share"] for s in shares if s["kind"] == "bound") - 1) < 1e-9
        metrics = {m["metric"]: m for m in world.database.rows(f"SELECT * FROM pattern_metric {of}")}
        found = {m["name"]: m for m in status["metrics"]}
        assert {m.lower() for m in found} == {m.replace("_", "") for m in metrics} and len(found) >= 5
        for key, m in metrics.items():
            told = next(t for n, t in found.items() if n.lower() == key.replace("_", ""))
            assert [told.get(part) for part in ("mean", "p50", "p95", "max", "profile", "source")] == [
                *(figure(m, part) for part in ("mean", "p50", "p95")), m["most"], m["profile"], m["source"]]


def test_the_api_tells_the_same_patterns(run, world):
    """As the database has them, to the last digit."""
    token = {"Authorization": f"Bearer {reader(world.cluster, SERVICES)}"}
    base = f"/api/v1/namespaces/{SERVICES}/patterns"
    with world.forward(SYSTEM, f"service/{NAME}", 443) as address:
        status, listed, _ = get(world.cluster, address, base, **token)
        ours = [p for p in listed["items"] if p["pattern"] in ("job-dlrm", "job-dlrm-ddp")]
        assert status == 200 and len(ours) == 2
        for head in ours:
            status, whole, _ = get(world.cluster, address, f"{base}/{head['pattern']}", **token)
            assert status == 200 and {key: whole[key] for key in head} == head
            of = f"WHERE namespace = '{SERVICES}' AND workload_name = '{head['workload_name']}'"
            row, = world.database.rows(f"SELECT * FROM pattern {of}")
            same = {"pattern": "object_name", "last_session": "session_uid"}
            told = {key: value for key, value in head.items() if key not in ("first_finished", "last_finished", "models")}
            assert head["models"] == models_of(row)
            assert told == {key: row[same.get(key, key)] for key in told}
            metrics = world.database.rows(f"SELECT * FROM pattern_metric {of} ORDER BY metric")
            assert whole["metrics"] == [{key: m[key] for key in whole["metrics"][0]} for m in metrics]
            shares = world.database.rows(f"SELECT * FROM pattern_share {of}")
            parts = whole["bounds"] + whole["time"]
            assert sorted(parts, key=str) == sorted(({key: share[key] for key in parts[0]} for share in shares), key=str)
    world.cluster.kubectl("-n", SERVICES, "delete", "serviceaccount/reader", "rolebinding/reader")


def test_figures_are_drawn_of_the_results(run, world, tmp_path):
    """As the demo does; what a drawing says is held against results by cli/tests/test_figures.py."""
    files = [path.rsplit("/", 1)[1] for path in draw(world.cluster, SERVICES, run.session.name, str(tmp_path / "figures"),
                                                      world.preset)]
    assert sorted(files) == sorted(f"{name}-{kind}.svg" for name in ("dlrm", "dlrm-ddp", "dlrm-ddp-2")
                                   for kind in ("gpu-util", "metrics")) + ["jobs.md", "jobs.svg"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (tmp_path / "figures/jobs.md").read_text().splitlines()]
    told = sorted(row[rows[0].index("SMActive, %")] for row in rows[2:])
    known = world.database.rows("SELECT mean, stderr FROM result_detail WHERE kind = 'job' AND metric = 'sm_active' "
                                f"AND session_uid = '{run.uid}'")
    assert told == sorted(f"{100 * row['mean']:.1f} ± {100 * row['stderr']:.1f}" for row in known) and len(told) == 3
    world.cluster.kubectl("-n", SERVICES, "delete", "serviceaccount/reader", "rolebinding/reader")


def test_the_operators_own_metrics_are_the_results(run, world):
    """To the last digit where a Job has one GPU; the mean where it has two. The layers add up to the marked step."""
    of = {name: f'workload_namespace="{SERVICES}",workload_kind="Job",workload_name="{name}"' for name in ("dlrm", "dlrm-ddp")}

    def told():
        metrics = world.metrics(world.wait_for_leader())
        sessions = [key for key in metrics or () if key.startswith("precisionprobe_workload_info{") and run.uid in key]
        return metrics if all(any(labels in key for key in sessions) for labels in of.values()) else None

    metrics = wait_until("the session's workloads at /metrics", told, 60)
    for name, labels in of.items():
        rows = world.database.rows(
            "SELECT layer, phase, sum(i.total_ns / 1e9::float8 / a.step_count) AS seconds, count(*) AS gpus FROM item i "
            "JOIN attribution a USING (session_uid, pod_uid, gpu_uuid) JOIN target t USING (session_uid, pod_uid) "
            f"WHERE session_uid = '{run.uid}' AND workload_name = '{name}' AND i.kind = 'layer' GROUP BY 1, 2")
        step, = world.database.rows(
            "SELECT avg(a.step_ns / 1e9::float8 / a.step_count) AS seconds, count(*) AS gpus FROM attribution a "
            f"JOIN target t USING (session_uid, pod_uid) WHERE session_uid = '{run.uid}' AND workload_name = '{name}'")
        series = {key: value for key, value in metrics.items() if key.startswith(f"precisionprobe_layer_step_seconds{{{labels},")}
        assert abs(sum(series.values()) / step["seconds"] - 1) < 1e-6
        named = {(r["layer"], r["phase"]): r["seconds"] / step["gpus"] for r in rows}
        found = {key: series.get(f'precisionprobe_layer_step_seconds{{{labels},layer="{key[0]}",phase="{key[1]}"}}')
                 for key in named}
        assert len({layer for (layer, _), value in found.items() if value is not None}) == min(20, len({k[0] for k in named}))
        assert all(value is None or value == pytest.approx(named[key], rel=1e-12, abs=0) for key, value in found.items())
        if step["gpus"] == 1:
            assert all(value in (None, named[key]) for key, value in found.items())
    usage = {key: value for key, value in metrics.items() if key.startswith(f"precisionprobe_layer_usage_ratio{{{of['dlrm']},")}
    means = {f'precisionprobe_layer_usage_ratio{{{of["dlrm"]},layer="{r["layer"]}",phase="{r["phase"]}",metric="{r["metric"]}"}}':
             r["mean"] / 100 if r["metric"] == "gpu_util" else r["mean"]
             for r in run.rows if r["kind"] == "layer" and r["pod_name"] in run.of_job("dlrm") and r["mean"] is not None}
    of_layers = {key: value for key, value in usage.items() if 'layer=""' not in key}
    assert len(of_layers) > 20 and of_layers.items() <= means.items()
    assert metrics["precisionprobe_workloads_left_out"] == 0


def test_the_means_of_a_usage_are_the_truth(run, world):
    """What patterns are made of. Of all the step's time, by the layers' values or by windows: as the virtual GPU knows it."""
    for pod in run.of_job("dlrm"):
        item = truth.workload(truth.fetch(world.cluster, run.ranges[pod]), pod)
        means = {m["metric"]: m for m in world.database.rows(
            f"SELECT metric, mean, mean_stderr FROM usage_metric JOIN target USING (session_uid, pod_uid) "
            f"WHERE session_uid = '{run.uid}' AND pod_name = '{pod}'")}
        for metric, (series, _) in truth.SHARES.items():
            known = item["mean"][series]
            assert abs(means[metric]["mean"] - known) <= max(3 * means[metric]["mean_stderr"], 0.02 * abs(known)), metric


def test_ddp_losses_without_the_probe(run, world):
    """The same two ranks once more, unselected now that the session is over: the same losses to the last bit."""
    profiled = [run.losses[name] for name in run.of_job("dlrm-ddp")]
    cluster = world.cluster
    cluster.kubectl("-n", SERVICES, "delete", "jobs", "dlrm-ddp", "dlrm", "dlrm-twin", "--timeout=60s")
    wait_until("the pods to go", lambda: not pods_of(cluster, "app in (dlrm, dlrm-twin)"), 60)
    cluster.apply(world.deployment.render("dlrm-ddp.yaml"))
    pods = world.running(SERVICES, "job-name=dlrm-ddp", count=2)
    assert all("initContainers" not in p["spec"] for p in pods)
    names = sorted(p["metadata"]["name"] for p in pods)
    wait_until("25 losses of each rank", lambda: all(len(losses(cluster, name)) >= 25 for name in names), 240, every=2)
    for rank, name in enumerate(names):
        same(profiled[rank], losses(cluster, name))
