"""Collection and scrape intervals as people have them: job means stay right, and nothing is reported that is not known."""
import pytest

from harness import report, truth
from harness.demo import compare, observed
from harness.session import manifest

pytestmark = [pytest.mark.long, pytest.mark.intervals]


def profile(world, interval, duration, *more):
    """(comparison of all pods, rows, what the truth is by pod)."""
    world.use(interval=interval)
    world.cluster.apply("---\n".join([manifest("coarse", duration=duration),
                                      world.deployment.render("dlrm.yaml", "dlrm-ddp.yaml"), *more]))
    session = world.session("coarse")
    item = session.follow(900)
    assert item["status"]["phase"] == "Succeeded", session.condition("Succeeded")
    ranges, rows = observed(world.database, item["metadata"]["uid"])
    assert len(ranges) == 3 + len(more)
    return ranges, rows


def of_pods(ranges, rows, world, fast):
    """What is known of the trainings whose steps take seconds, or of the other."""
    return compare(world.cluster, {pod: spans for pod, spans in ranges.items() if ("fast" in pod) == fast}, rows)


def layers(rows):
    return [r for r in rows if r["kind"] == "layer" and r["metric"] in truth.SHARES]


@pytest.mark.extended
@pytest.mark.measures
def test_windows_of_15_s(trainings):
    ranges, rows = profile(trainings, "15s", "105s")
    figures = compare(trainings.cluster, ranges, rows).figures()
    report.keep("windows of 15 s", **figures)
    assert figures["job_error_percent"] <= truth.LIMITS["job_error_percent"]
    assert figures["memory_error_percent"] <= truth.LIMITS["memory_error_percent"]
    assert len(layers(rows)) >= 3 * 32 * 5, "every layer is listed"
    assert [r for r in layers(rows) if r["mean"] is not None] == [], "no layer is reported"
    assert [r for r in layers(rows) if not r["ms_per_step"]] == [], "every layer is timed"
    shown = trainings.database.value("SELECT count(*) FROM result WHERE coalesce(gpu_util, dram_active, fp32_active, "
                                     "sm_occupancy, sm_active) IS NOT NULL AND job_id LIKE '%/dlrm%'")
    assert shown == 0


def fast(world):
    """The same training with steps of some 50 ms."""
    text = world.deployment.render("dlrm.yaml", TRAIN_BATCH="16", TRAIN_STEPS="100000")
    return text.replace("name: dlrm\n", "name: dlrm-fast\n").replace("app: dlrm,", "app: dlrm-fast,")


def groups(comparison):
    """(error, standard error) in points of each group: its mean against its members', weighted by time.

    All that the group's name lists are members, of which some may be told alone too: these carry no group."""
    rows = layers(comparison.rows)
    told = {(r["pod_name"], r["metric"], r["phase"], r["group_name"]): r for r in rows if r["group_mean"] is not None}
    found = []
    for (pod, metric, phase, name), row in told.items():
        members = [r for r in rows if (r["pod_name"], r["metric"], r["phase"]) == (pod, metric, phase)
                   and r["layer"] in name.split("+")]
        assert sorted(r["layer"] for r in members) == sorted(name.split("+")), f"{name} has members that are not known"
        known = [r for r in members if "truth" in r]
        share = sum(r["share"] or 0 for r in known)
        unknown = {r["layer"]: r["share"] or 0 for r in members if "truth" not in r}
        assert sum(unknown.values()) < 0.01 * share, f"the virtual GPU knows nothing of {unknown} in {phase}"
        points = truth.SHARES[metric][1]
        true = sum(r["truth"] * (r["share"] or 0) for r in known) / share
        found.append(((row["group_mean"] - true) * points, row["group_stderr"] * points))
    return found


def test_windows_of_1_s(trainings):
    """Steps of seconds: layers are told, and right within their errors. Steps of 50 ms: groups or nothing."""
    ranges, rows = profile(trainings, "1s", "200s", fast(trainings))
    figures = of_pods(ranges, rows, trainings, fast=False).figures()
    report.keep("windows of 1 s", **figures)
    assert figures["job_error_percent"] <= truth.LIMITS["job_error_percent"]
    assert figures["memory_error_percent"] <= truth.LIMITS["memory_error_percent"]
    assert figures["estimates"] >= 40
    assert figures["mean_error_points"] <= 5
    assert figures["within_3_se"] >= truth.LIMITS["within_3_se"]

    short = of_pods(ranges, rows, trainings, fast=True)
    steps = [r["ms_per_step"] for r in short.rows if r["kind"] == "layer" and r["ms_per_step"]]
    assert steps and max(steps) < 100, "its steps are short"
    told = [(error, stderr) for _, error, stderr in short.points] + groups(short)
    report.keep("windows of 1 s, steps of 50 ms", ms=sum(steps) / len({r["metric"] for r in short.rows}),
                layers=len(short.points), groups=len(told) - len(short.points), told=told)
    wrong = [(error, stderr) for error, stderr in told if abs(error) > 3 * stderr]
    assert len(wrong) <= max(1, 0.05 * len(told)), wrong
