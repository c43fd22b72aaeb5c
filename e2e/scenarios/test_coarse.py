"""Collection and scrape intervals as people have them: job means stay right, and nothing is reported that is not known."""
import pytest

from harness import truth
from harness.demo import compare, observed
from harness.session import manifest

pytestmark = [pytest.mark.long, pytest.mark.measures, pytest.mark.intervals]


def profile(world, interval, duration):
    world.use(interval=interval)
    world.cluster.apply(manifest("coarse", duration=duration) + "---\n"
                        + world.deployment.render("dlrm.yaml", "dlrm-ddp.yaml"))
    session = world.session("coarse")
    item = session.follow(600)
    assert item["status"]["phase"] == "Succeeded", session.condition("Succeeded")
    ranges, rows = observed(world.database, item["metadata"]["uid"])
    assert len(ranges) == 3
    return compare(world.cluster, ranges, rows), rows


def layers(rows):
    return [r for r in rows if r["kind"] == "layer" and r["metric"] in truth.SHARES]


def test_windows_of_15_s(trainings):
    comparison, rows = profile(trainings, "15s", "105s")
    figures = comparison.figures()
    print(figures)
    assert figures["job_error_percent"] <= truth.LIMITS["job_error_percent"]
    assert figures["memory_error_percent"] <= truth.LIMITS["memory_error_percent"]
    assert len(layers(rows)) >= 3 * 32 * 5, "every layer is listed"
    assert [r for r in layers(rows) if r["mean"] is not None] == [], "no layer is reported"
    assert [r for r in layers(rows) if not r["ms_per_step"]] == [], "every layer is timed"
    shown = trainings.database.value("SELECT count(*) FROM result WHERE coalesce(gpu_util, dram_active, fp32_active, "
                                     "sm_occupancy, sm_active) IS NOT NULL AND job_id LIKE '%/dlrm%'")
    assert shown == 0


def test_windows_of_1_s(trainings):
    """Some layers can be told then; those that are reported are right within their errors."""
    comparison, _ = profile(trainings, "1s", "60s")
    figures = comparison.figures()
    print(figures)
    assert figures["job_error_percent"] <= truth.LIMITS["job_error_percent"]
    assert figures["memory_error_percent"] <= truth.LIMITS["memory_error_percent"]
    if figures["estimates"] >= 40:
        assert figures["within_3_se"] >= truth.LIMITS["within_3_se"]
