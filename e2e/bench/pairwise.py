"""Do ways to tell a layer's activity agree? The same rows of the same training, by each two of some runs of it.

usage: pairwise.py [--least-us US] FOLDER FOLDER ...

FOLDER is what `precisionprobe run -o` wrote, or what `accuracy.py --keep` kept (then `results` in it). One line for each metric
and pair of runs: `value` is the median difference of a row in points of 100, with `p95`; `rms_z` the root mean square of
differences over their standard errors, `within_3_se_percent` how many are within three of these. Nothing is held for true: what
both get wrong alike is not seen. Counters of different sources do not count alike (docs/accuracy.md); `sources` says which.
Needs no GPU, no torch.
"""
import argparse
import itertools
import json
import math
import pathlib
import statistics

import errors
import lab


def read(folder):
    """(name, {(layer, phase): us}, {(layer, phase): {metric: (percent, standard error)}}, {metric: source}) of a run."""
    path = pathlib.Path(folder)
    results = json.loads((path / "results" if (path / "results").is_dir() else path).joinpath("results.json").read_text())
    method = results["method"]
    items = [item for item in results["gpus"][0]["items"] if item["kind"] == "layer"]
    busy = {(item["layer"], item["phase"]): 1000 * (item["busyMillisecondsPerStep"] or 0) for item in items}
    sources = {name: value.get("source") or "exporter" for item in items for name, value in item["metrics"].items()
               if value.get("method") == method.lower()}
    return method, busy, errors.estimates(results, method), sources


def differences(one, other, metric, rows):
    """[(points, their standard error)] of the rows that both tell."""
    found = []
    for row in rows:
        a, b = one.get(row, {}).get(metric), other.get(row, {}).get(metric)
        if a and b:
            found.append((a[0] - b[0], math.hypot(a[1], b[1])))
    return found


def z(difference, error):
    return difference / error if error > 0 else 0.0 if difference == 0 else math.inf


def print_pair(one, other, least_us):
    (name, busy, told, sources), (other_name, other_busy, other_told, other_sources) = one, other
    rows = [row for row in busy if min(busy[row], other_busy.get(row, 0)) >= least_us]
    for metric in errors.METRICS:
        found = differences(told, other_told, metric, rows)
        if not found:
            continue
        sizes, zs = [abs(points) for points, _ in found], [z(*each) for each in found]
        lab.figure(f"{metric}, {name} less {other_name}", statistics.median(sizes), "points", rows=len(found),
                   of=len(rows), p95=errors.weighted([(size, 1) for size in sizes], 0.95),
                   mean_difference=statistics.mean(points for points, _ in found),
                   rms_z=math.sqrt(statistics.mean(each * each for each in zs)),
                   within_3_se_percent=100 * statistics.mean(abs(each) <= 3 for each in zs),
                   sources=[sources.get(metric), other_sources.get(metric)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--least-us", type=float, default=50, help="rows whose kernels take so long in a step (50)")
    options = parser.parse_args()
    if len(options.folders) < 2:
        parser.error("there are no two runs to compare")
    for one, other in itertools.combinations([read(folder) for folder in options.folders], 2):
        print_pair(one, other, options.least_us)


if __name__ == "__main__":
    main()
