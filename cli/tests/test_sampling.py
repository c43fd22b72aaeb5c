"""`precisionprobe run --method Sampling` of trainings on the virtual GPU, held against what really ran there.

PP_CLI           the program precisionprobe
PP_HOOK          the folder with the built hook's Python; the virtual GPU's driver is in the same build
PP_TORCH_PYTHON  pythons that have torch, separated by colons: the first and the last are tested
"""
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TRAIN = str(ROOT / "e2e/training/kernels.py")
sys.path.insert(0, str(ROOT / "e2e"))
from harness import driver  # noqa: E402

BUILT = pathlib.Path(os.environ["PP_HOOK"]).parents[2] / "e2e/gpu/driver"
SMS = 132  # of the chip that the driver tells (sidecar/hook/tests/cuda.c)
PYTHONS = os.environ["PP_TORCH_PYTHON"].split(":")


def run(folder, python, model, seed, seconds, *options, sampled=0, **settings):
    """A run of kernels.py with results in `folder`/out: (what the training printed, what the program said, results). It
    trains for `seconds`, and on until the agent has told of `sampled` samplings that did not fail."""
    timeline = str(folder / "timeline")
    laid = driver.lay_out(BUILT, str(folder / "driver"), timeline, **settings)
    command = [os.environ["PP_CLI"], "run", "--sampling-period", "100us", "--budget", "0.3", "--capture", "2s", *options,
               "-o", str(folder / "out"), "--", python, TRAIN, laid, timeline, model, str(seed), str(seconds), str(folder / "enough")]
    end = time.monotonic() + 700
    with open(folder / "stdout", "w+") as output, open(folder / "stderr", "w+") as said:
        program = subprocess.Popen(command, stdout=output, stderr=said, env={
            **os.environ, "LD_LIBRARY_PATH": laid, "PRECISIONPROBE_HOOK": os.environ["PP_HOOK"],
            "NVIDIA_VISIBLE_DEVICES": driver.GPU, "OMP_NUM_THREADS": "1"})
        try:
            while program.poll() is None and count_sampled(folder) < sampled and time.monotonic() < end:
                time.sleep(0.5)
            (folder / "enough").touch()
            status = program.wait(timeout=max(end - time.monotonic(), 60))
        finally:
            program.kill()
            program.wait()
    assert status == 0, (folder / "stderr").read_text()
    return (folder / "stdout").read_text(), (folder / "stderr").read_text(), json.loads((folder / "out/results.json").read_text())


def fine_batches(folder):
    """What batches so far hold of fine values. The last line may still be written."""
    path = folder / "out/batches.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [batch["fine"] for batch in map(json.loads, lines) if "fine" in batch]


def count_sampled(folder):
    """How often the agent has sampled so far, but where that failed."""
    return max((fine["sampling"]["times"] - fine["sampling"]["failed"] for fine in fine_batches(folder)), default=0)


def told(folder):
    """What the latest batch with fine values holds beside them: (how sampling went, {metric: its closure})."""
    fine = fine_batches(folder)[-1]
    names = list(fine["closure"])
    rows = [dict(zip(names, row)) for row in zip(*fine["closure"].values())]
    return fine["sampling"], {driver.METRICS[row["metric"]]: row for row in rows}


def layers_of(results):
    """Items of modules. Those of what runs outside of modules launch no kernel here, so nothing is told of them."""
    gpu, = results["gpus"]
    layers = [item for item in gpu["items"] if item["kind"] == "layer"]
    outside = [item for item in layers if item["type"] == "(outside of modules)"]
    assert {(item["layer"], item["phase"], item["busyMillisecondsPerStep"]) for item in outside} == {
        ("loss", "forward", 0), ("loss", "backward", 0), ("gradients", "backward", 0)}
    assert not [item for item in outside if item.get("kernels") or item["metrics"]["SMActive"]["mean"] is not None]
    return [item for item in layers if item not in outside]


def values_of(results):
    gpu, = results["gpus"]
    return {(item["layer"] if item["kind"] == "layer" else "", item["phase"]):
            {name: (value["mean"], value["standardError"]) for name, value in item["metrics"].items()}
            for item in gpu["items"]}


def check_orion(folder, gpu):
    """Orion's file has a line for each kernel of a step, in the order in which they run: forwards in the order of the model,
    backwards the other way round, and then the optimizer's. Each has its time, and the SMs of its layer."""
    lines = subprocess.run([os.environ["PP_CLI"], "report", "--format=orion", folder / "out"], capture_output=True, text=True,
                           check=True).stdout.splitlines()[1:]
    forward, backward = ([item for item in gpu["items"] if item["kind"] == "layer" and item["phase"] == phase]
                         for phase in ("forward", "backward"))
    expected = [(int(kernel["millisecondsPerStep"] / kernel["callsPerStep"] * 1e6 + 0.5),
                 math.ceil(item["metrics"]["SMActive"]["mean"] * SMS - 1e-9))
                for item in forward + backward[::-1] for kernel in item.get("kernels", ()) for _ in range(round(kernel["callsPerStep"]))]
    told = [(int(line.split(",")[4]), int(line.split(",")[3])) for line in lines]
    assert told[:len(expected)] == expected and len(told) > len(expected)


def check_pattern(truth, pattern, said):
    """Metrics over a step, and what bounds it, from the truth of each kernel. Its time is the training's own."""
    assert pattern["shares"] == "busy" and pattern["step"]["undisturbed"]
    assert sum(bound["share"]["value"] for bound in pattern["bounds"]) == pytest.approx(1)
    assert "\nbound by, of a step: " in said
    busy = 1 - pattern["step"]["idleShare"]["value"]
    ns = sum(row["ns"] for row in truth["truth"])
    means = {metric["name"]: metric for metric in pattern["metrics"]}
    for name in driver.METRICS:
        metric = means[name]
        assert metric["source"] == "layers"
        known = busy * sum(row[name] * row["ns"] for row in truth["truth"]) / ns
        error = metric["mean"].get("standardError")
        if error is None:  # on a busy machine so few steps may be counted that it is not known how sure their length is
            assert "standardError" not in pattern["step"]["milliseconds"]
            error = 0.01
        assert abs(metric["mean"]["value"] - known) < 0.01 + 3 * error, (name, metric, known)
    dram, bandwidth = means["DRAMActive"], 2 * 3201e6 * 6144 / 8
    assert pattern["gpuModel"] == "NVIDIA H200" and (dram["peak"], dram["peakUnit"]) == (pytest.approx(bandwidth), "bytes per second")
    assert dram["achieved"]["value"] == pytest.approx(dram["mean"]["value"] * bandwidth)
    assert "achieved" not in means["SMActive"] and "peak" not in means["SMActive"]
    for bound in pattern["bounds"]:
        if bound["by"] == "Memory":  # kernels are so bound from 60 % on, and some nearer to it
            assert 0.5 * bandwidth < bound["achieved"]["value"] <= bandwidth and bound["peak"] == dram["peak"]
            if bound["share"]["value"] >= 0.005:  # the table leaves out what is less of a step
                assert f"({bound['achieved']['value'] / 1e12:.4g} TB/s of 4.917 TB/s)" in said


def check_windows(folder, results):
    """Each window that was sampled is kept, and leads to the run's own values when it is evaluated again."""
    gpu, = results["gpus"]
    fine, = gpu["fine"]
    windows = sorted((folder / "out/windows").glob("*.window"))
    assert fine["times"] - fine["failedTimes"] <= len(windows) <= fine["times"]
    *looked, last = map(json.loads, subprocess.run([BUILT.parents[2] / "sidecar/agent/tests/sample_again", *windows],
                                                   capture_output=True, text=True, check=True).stdout.splitlines())
    assert sum("lag" in window for window in looked) == fine["times"] - fine["failedTimes"]
    own = list(values_of(results).values())
    assert last["items"]
    for item in last["items"]:
        off = [max(abs(item[name][i] - values[name][i]) for name in driver.METRICS for i in (0, 1))
               for values in own if None not in [values[name][0] for name in driver.METRICS]]
        assert min(off) < 2e-6, item


@pytest.mark.parametrize("python, model", [(PYTHONS[0], "long"), (PYTHONS[-1], "random")], ids=["long", "random"])
def test_values_are_the_truth(tmp_path, python, model):
    seed = random.SystemRandom().randrange(1 << 30)
    print("seed", seed)
    begun = time.monotonic()
    output, said, results = run(tmp_path, python, model, seed, 20, "--method", "Sampling", "--budget", "1", "--keep-windows", sampled=2)
    truth, (gpu,) = driver.truth_of(output), results["gpus"]
    fine, = gpu["fine"]
    print(driver.compare(truth, values_of(results)), fine)
    check_pattern(truth, results["pattern"], said)
    assert gpu["kernelSteps"] == gpu["steps"]
    layers = layers_of(results)
    for item in layers:  # its kernels run one after the other, and all have one name
        kernel, = item["kernels"]
        assert (kernel["name"], kernel["callsPerStep"]) == ("gemm", round(kernel["callsPerStep"]))
        assert kernel["millisecondsPerStep"] == pytest.approx(item["busyMillisecondsPerStep"], rel=1e-6)
    assert fine["times"] - fine["failedTimes"] >= 2 and "not sampled" not in said
    sampling, closures = told(tmp_path)
    assert driver.is_plausible(sampling["period"], sampling["lag"], 100000, time.monotonic() - begun)
    assert [sampling[name] for name in ("chip", "period", "times", "failed", "samples", "lag", "lagError")] == [
        fine[name] for name in ("chip", "periodNs", "times", "failedTimes", "samples", "lagNs", "lagStandardErrorNs")]
    assert sampling["samples"] > 10000 and sampling["sampled"] > 1e9 and sampling["samplerCpu"] > 0
    assert set(closures) == set(driver.METRICS)
    for name, closure in closures.items():
        assert closure["held"] > 0 and abs(closure["difference"]) < 20000, (name, closure)
        assert abs(fine["closure"][name]["difference"] * 1e6 - closure["difference"]) <= 1
    check_windows(tmp_path, results)
    assert driver.agrees(truth, values_of(results))
    assert not driver.agrees(driver.exchanged(truth), values_of(results))
    assert {value["method"] for item in layers for name, value in item["metrics"].items()
            if name in driver.METRICS} == {"sampling"}


def test_a_run_of_one_capture(tmp_path):
    """The sampler opens within the run's first capture, which is begun anew once samples come: it may be the only one."""
    output, said, results = run(tmp_path, PYTHONS[-1], "long", 5, 9, "--method", "Sampling", "--budget", "0.05",
                                enable_ns=1500000000)
    gpu, = results["gpus"]
    fine, = gpu["fine"]
    assert fine["times"] == 1 and fine["failedTimes"] == 0 and "not sampled" not in said
    print(driver.compare(driver.truth_of(output), values_of(results)), fine)
    assert driver.agrees(driver.truth_of(output), values_of(results))
    assert fine["sampledSeconds"] > 0.6 * gpu["observedNs"] / 1e9 > 1, "what was paid for was sampled"
    check_orion(tmp_path, gpu)


def test_a_run_that_is_over_too_soon(tmp_path):
    """It says why its results have no fine values."""
    _, said, results = run(tmp_path, PYTHONS[-1], "long", 6, 2, "--method", "Sampling", enable_ns=6000000000)
    assert "monitors were not sampled: none of its captures was before the end" in said
    gpu, = results["gpus"]
    assert "fine" not in gpu and {
        item["metrics"][name]["reason"] for item in gpu["items"] if item["kind"] == "layer" for name in driver.METRICS
    } == {"PM sampling told nothing of it"}


def test_the_bench_holds_them_against_the_truth():
    """e2e/bench/accuracy_virtual.py: errors in classes, coverage and closure within its limits."""
    done = subprocess.run([sys.executable, str(ROOT / "e2e/bench/accuracy_virtual.py"), "short", "--seconds", "30", "--times", "4"],
                          capture_output=True, text=True, timeout=400, env={
                              **os.environ, "PRECISIONPROBE_HOOK": os.environ["PP_HOOK"], "PP_VGPU": str(BUILT),
                              "PP_PYTHON": PYTHONS[-1]})
    figures = {line["figure"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stdout + done.stderr
    assert figures["coverage"]["value"] == 100 and figures["error of SMActive, rows of 200 us and more"]["rows"] == 19
    assert len([figure for figure in figures.values() if figure.get("holds")]) == 9


def test_averages_are_the_truth(tmp_path):
    """NVML's counters, of which Auto takes the job's averages, are of the same kernels."""
    output, _, results = run(tmp_path, PYTHONS[-1], "long", 3, 12, "--method", "Auto", "--budget", "50")
    truth, (gpu,) = driver.truth_of(output), results["gpus"]
    job, = [item["metrics"] for item in gpu["items"] if item["kind"] == "job"]
    for name in driver.METRICS:
        mean = sum(row[name] * row["ns"] for row in truth["truth"]) / (truth["seconds"] * 1e9)
        assert abs(job[name]["mean"] - mean) < 0.02, name
    # Whole percents of the last 100 ms, read about as often: on a busy machine some of the time is read twice and some
    # never, which the error tells.
    busy = sum(row["ns"] for row in truth["truth"]) / (truth["seconds"] * 1e7)
    assert abs(job["GPUUtil"]["mean"] + 0.5 - busy) < 1 + 4 * job["GPUUtil"]["standardError"] < 10
    # Averages of windows are told in millionths.
    assert abs(job["GPUMem"]["mean"] - 4096) < 1e-5
    assert {item["metrics"]["SMActive"]["method"] for item in layers_of(results)} == {"sampling"}


def test_a_driver_that_lets_nobody_sample(tmp_path):
    """No value of another method stands in their place, and why is told."""
    _, said, results = run(tmp_path, PYTHONS[-1], "long", 1, 8, "--method", "Sampling", **driver.DENIED)
    why = "the driver lets only root or CAP_SYS_ADMIN read the GPU's counters (RmProfilingAdminOnly)"
    assert why in said
    gpu, = results["gpus"]
    layers = layers_of(results)
    assert len(layers) == 8 and gpu["steps"] > 10
    for item in layers:
        for name in driver.METRICS:
            assert item["metrics"][name]["mean"] is None
            assert item["metrics"][name]["reason"] == "the GPU was not sampled: " + why
