"""The virtual GPU's driver (e2e/gpu/driver) laid out in a folder, and its truth held against results, for tests."""
import json
import os
import shutil

GPU = "GPU-00112233-4455-6677-8899-aabbccddeeff"
METRICS = ("SMActive", "SMOccupancy", "DRAMActive", "FP32Active")
# As seen on an H200 (docs/sampling.md): a clock that is off and drifts, samples that are told late and begin late.
REAL = {"offset_ns": -1400000, "ppm": 3, "late_ns": 3000000, "start_ns": 170000000, "noise": 200, "skip": 4001,
        "blank": 701}
DENIED = {"fault": "cuptiPmSamplingEnable 35"}


# What moves the lag from REAL's offset beside its drift: its own error where ends run out, and two clocks read one after
# the other.
LAG_WITHIN = 300000


def is_plausible(period, lag, asked, seconds):
    """Whether samples were `asked` ns apart or, on a slow machine, more, and the GPU's clock is off as REAL says, and as it
    drifts in the seconds that all of it took."""
    drifted = REAL["ppm"] * 1000 * seconds
    return asked <= period <= 10 * asked and -LAG_WITHIN < lag - REAL["offset_ns"] < drifted + LAG_WITHIN


def lay_out(built, folder, timeline, **settings):
    """The libraries and what they are to do; returns the folder."""
    os.makedirs(folder, exist_ok=True)
    for name in ("libcuda.so.1", "libcupti.so.13", "libnvidia-ml.so.1"):
        shutil.copy(os.path.join(built, name), folder)
    with open(os.path.join(folder, "nvml-table"), "w", encoding="utf-8") as file:
        file.write("timeline %s\n" % timeline)
    with open(os.path.join(folder, "pm-table"), "w", encoding="utf-8") as file:
        file.write("timeline %s\n" % timeline)
        file.writelines("%s %s\n" % setting for setting in {**REAL, **settings}.items())
    return folder


def truth_of(output):
    """What kernels.py has printed last."""
    return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])


def compare(truth, values):
    """(errors, share): of each metric the mean error in points, weighted by time; and of all values the share that is
    within 3 standard errors. `values`: {(layer, phase): {metric: (mean, standard error)}}, shares of 1."""
    errors, within, count = {}, 0, 0
    for metric in METRICS:
        total = weight = 0
        for row in truth["truth"]:
            mean, error = values[row["layer"], row["phase"]][metric]
            total += abs(mean - row[metric]) * row["ns"]
            weight += row["ns"]
            within += abs(mean - row[metric]) <= 3 * error
            count += 1
        errors[metric] = 100 * total / weight
    return errors, within / count


def agrees(truth, values):
    """Whether they agree as values of samples 100 us apart do. Eight runs of trainings drawn at random, of two windows or
    more, erred by 0.06 to 0.26 points, with all values within 3 standard errors."""
    errors, share = compare(truth, values)
    return max(errors.values()) < 1 and share >= 0.9


def exchanged(truth):
    """The truth of two layers in each other's place, which nothing may agree with."""
    rows = truth["truth"]
    layers = sorted({row["layer"] for row in rows} - {""})
    other = {layers[0]: layers[-1], layers[-1]: layers[0]}
    return {"truth": [{**row, "layer": other.get(row["layer"], row["layer"])} for row in rows]}
