"""PM sampling in a session: values from the GPU's monitors are those of what ran, or it is said why there are none."""
import random
import time

import pytest

from harness import driver
from harness.progress import wait_until
from harness.session import manifest

pytestmark = [pytest.mark.measures]
COLUMNS = {"sm_active": "SMActive", "sm_occupancy": "SMOccupancy", "dram_active": "DRAMActive",
           "fp32_active": "FP32Active"}
PERIOD = 100000  # ns that are asked for
MHZ = 1980
MEMORY, FP32 = 2 * 3201e6 * 6144 / 8, 2 * 128 * 132 * MHZ * 1e6  # peaks: bytes and FLOP per second


def profile(world, method, name, model, seed, seconds, duration, **settings):
    """A session beside a training; (the session, what the training has printed, its rows)."""
    world.use(config__sampling__periodMicroseconds=str(PERIOD // 1000), config__injection__captureSeconds="2",
              config__sampling__auto="true")
    world.deployment.put_driver(**settings)
    world.cluster.apply(
        manifest(name, duration=duration, more=f"  method: {method}\n  overheadBudgetPercent: 0.3\n") + "---\n"
        + world.deployment.render("kernels.yaml", TRAIN_MODEL=model, TRAIN_SEED=str(seed), TRAIN_SECONDS=str(seconds)))
    session = world.session(name)
    pod = world.running(session.namespace, "job-name=kernels")[0]["metadata"]["name"]
    item = session.follow(seconds + 120)
    assert item["status"]["phase"] == "Succeeded", session.condition("Succeeded")
    rows = world.database.rows("SELECT kind, layer, type, phase, metric, mean, stderr, method, source, reason, achieved, peak "
                               f"FROM result_detail WHERE session_uid = '{item['metadata']['uid']}'")
    world.cluster.kubectl("-n", session.namespace, "wait", "--for=condition=Complete", "job/kernels",
                          f"--timeout={seconds + 60}s", timeout=seconds + 70)
    return session, world.cluster.kubectl("-n", session.namespace, "logs", pod, "-c", "trainer"), rows


def of_layers(rows):
    """Of modules: what runs outside of them launches no kernel here, so nothing is told of it."""
    layers = [row for row in rows if row["kind"] == "layer" and row["metric"] in COLUMNS]
    outside = [row for row in layers if row["type"] == "(outside of modules)"]
    assert {(row["layer"], row["phase"], row["mean"]) for row in outside} == {
        ("loss", "forward", None), ("loss", "backward", None), ("gradients", "backward", None)}
    return [row for row in layers if row not in outside]


def check_clocks(rows):
    """The driver is an H200's, whose kernels slow the SMs' clock down by 15 % of what they keep them active: FLOPs are by that."""
    clocks = {(row["layer"], row["phase"]): row["mean"] for row in rows if row["metric"] == "sm_clock" and row["kind"] == "layer"}
    for row in of_layers(rows):
        mhz = clocks[row["layer"], row["phase"]]
        if row["metric"] == "sm_active":
            assert abs(mhz / MHZ - (1 - 0.15 * row["mean"])) < 0.03, (row, mhz)
        peak, achieved = {"dram_active": (MEMORY, row["mean"] * MEMORY),
                          "fp32_active": (FP32, row["mean"] * FP32 * mhz / MHZ)}.get(row["metric"], (None, None))
        assert row["peak"] == peak and (row["achieved"] == achieved or abs(row["achieved"] / achieved - 1) < 1e-9), row


def check_quality(rows, seconds):
    """How sampling went, and that the values reproduce samples that they do not come from."""
    assert {row["metric"] for row in rows} == set(COLUMNS) and len(rows) == len(COLUMNS)
    for row in rows:
        assert row["gpu_uuid"] and row["chip"] == "GH100" and row["windows"] > 5000, row
        assert driver.is_plausible(row["period_ns"], row["lag_ns"], PERIOD, seconds) and row["lag_stderr_ns"] >= 0, row
        assert row["times"] > row["failed_times"] and row["sampled_ns"] > 1e9 and row["sampler_cpu_ns"] > 0, row
        assert row["held"] > 0 and abs(row["difference"]) < 0.02 and row["noise"] > 0, row


def quality_of(world, session):
    return world.database.rows(f"SELECT * FROM result_quality WHERE session_uid = '{session.get()['metadata']['uid']}' "
                               "AND method = 'sampling'")


def check_kernels(world, session):
    """Kernels of the training run one after the other, and all have one name: a layer's time of them is its busy time."""
    rows = world.database.rows(
        "SELECT DISTINCT layer, phase, k.kernel, k.calls_per_step, k.ms_per_step, k.share, d.busy_ms_per_step FROM result_kernel k "
        "JOIN result_detail d USING (session_uid, layer, phase) WHERE d.kind = 'layer' "
        f"AND session_uid = '{session.get()['metadata']['uid']}'")
    assert len(rows) > 4, rows
    for row in rows:
        assert (row["kernel"], row["share"]) == ("gemm", 1) and row["calls_per_step"] == round(row["calls_per_step"]), row
        assert row["ms_per_step"] == pytest.approx(row["busy_ms_per_step"], rel=0.001), row


def test_values_are_the_truth(trainings):
    """Method Auto takes them, where the configuration lets it ask."""
    begun = time.monotonic()
    seed = random.SystemRandom().randrange(1 << 30)
    print("seed", seed)
    session, output, rows = profile(trainings, "Auto", "sampling", "random", seed, 60, "40s")
    truth, values = driver.truth_of(output), {}
    for row in rows:
        if row["metric"] in COLUMNS:
            place = (row["layer"], row["phase"]) if row["kind"] == "layer" else ("", row["kind"])
            values.setdefault(place, {})[COLUMNS[row["metric"]]] = (row["mean"], row["stderr"])
    print(driver.compare(truth, values))
    assert driver.agrees(truth, values)
    assert not driver.agrees(driver.exchanged(truth), values)
    assert {(row["method"], row["reason"]) for row in of_layers(rows)} == {("sampling", None)}
    check_clocks(rows)
    condition = session.condition("Sampled")
    assert (condition["status"], condition["reason"]) == ("True", "Sampled")
    quality = quality_of(trainings, session)
    print(quality)
    check_quality(quality, time.monotonic() - begun)
    check_kernels(trainings, session)


def test_a_driver_that_lets_nobody_sample(trainings):
    """The training goes on, the session says so, and no other method's value stands in place of a layer's."""
    why = "the driver lets only root or CAP_SYS_ADMIN read the GPU's counters (RmProfilingAdminOnly)"
    session, output, rows = profile(trainings, "Sampling", "denied", "long", 1, 40, "15s", **driver.DENIED)
    condition = session.condition("Sampled")
    assert (condition["status"], condition["reason"]) == ("False", "NotSampled")
    assert condition["message"].startswith("1 of 1 pods are not sampled; kernels-") and why in condition["message"]
    said = wait_until("an Event", lambda: dict(trainings.events(session.namespace, "denied")).get("NotSampled"), 20)
    assert why in said
    layers = of_layers(rows)
    assert len(layers) == 4 * 2 * len(COLUMNS) and driver.truth_of(output)["steps"] > 100
    assert {(row["mean"], row["reason"]) for row in layers} == {(None, "the GPU was not sampled: " + why)}
    assert quality_of(trainings, session) == []
