"""What samples read beyond Nsight Compute's kernels, told apart by which kernels and gaps around some rows it is in.

accuracy.py's folder (`--keep`) of MODEL has all: no estimate is made of a kernel. A sample less what ncu's kernels predict of it
is put, by least squares, on the time in each kernel of the rows and of their neighbours, and in the gap before each. What ncu
does to kernels that it runs alone shows in a kernel's own time; what runs without a record, in a gap's.

A gap's value is what it reads; a kernel's, by how many points more than ncu says.
"""
import argparse
import bisect
import collections
import json
import pathlib
import re

import accuracy
import lab
import numpy
import whole_samples
import windows

BESIDE = 3  # kernels before and behind, each by itself
FEW = 30  # samples of a column: fewer say nothing


def groups(rows, pattern, phase):
    """[(first, last)] of kernels in a step's order: rows of that name and phase, each stretch of them."""
    found = []
    for i, (_, _, layer, of) in enumerate(rows):
        if of == phase and re.fullmatch(pattern, layer):
            if found and found[-1][1] == i - 1 and rows[i - 1][2] == layer:
                found[-1][1] = i
            else:
                found.append([i, i])
    return found


def column(i, first, last):
    """How a kernel is called by its place beside a group: those of the group in order from 0."""
    if i < first:
        return i - first if i >= first - BESIDE else None
    return f"own {i - first}" if i <= last else f"+{i - last}" if i <= last + BESIDE else None


def parts_of(sample, kernels, begins, first, last):
    """[(column, kernel's place, or None in the gap before it, share)]; None: it meets what has no column."""
    parts, length = [], sample.end - sample.start
    at = max(1, bisect.bisect_left(begins, sample.start) - 2)
    while at < len(kernels) and kernels[at - 1].end < sample.end:
        spans = ((None, kernels[at - 1].end, kernels[at].start), (at, kernels[at].start, kernels[at].end))
        for place, start, end in spans:
            share = (min(end, sample.end) - max(start, sample.start)) / length
            if share > 0:
                name = column(at, first, last)
                if name is None:
                    return None
                parts.append((name, place, share))
        at += 1
    return parts


def collect(kept, rows, ncu, name, chosen):
    """[({(column, whether in its kernel): share}, points read beyond ncu's)] of samples about the chosen rows, in the time in
    which clocks go together."""
    found, index = [], windows.METRICS.index(name)
    for window in kept:
        for kernels in whole_samples.steps_of(window, rows):
            if kernels[-1].end > window.samples[0].start + whole_samples.EXACT:
                break
            begins = [k.start for k in kernels]
            for first, last in chosen:
                begin, end = kernels[max(0, first - BESIDE)].start, kernels[min(len(kernels) - 1, last + BESIDE)].end
                for sample in window.samples[bisect.bisect_left(window.samples, (begin,)):bisect.bisect_left(window.samples, (end,))]:
                    parts = parts_of(sample, kernels, begins, first, last)
                    predicted = parts and whole_samples.predicted([part[1:] for part in parts if part[1] is not None], ncu, name)
                    if predicted is None or not parts:
                        continue
                    shares = collections.Counter()
                    for column_of, place, share in parts:
                        shares[column_of, place is not None] += share
                    found.append((shares, 100 * sample.values[index] - predicted))
    return found


def solve(found):
    """{column: (points, standard error, samples)} by least squares; columns that few samples have go with none."""
    counts = collections.Counter(key for shares, _ in found for key in shares)
    keys = [key for key in counts if counts[key] >= FEW]
    kept = [(shares, beyond) for shares, beyond in found if all(key in keys for key in shares)]
    matrix = numpy.array([[shares[key] for key in keys] for shares, _ in kept])
    beyond = numpy.array([value for _, value in kept])
    inverse = numpy.linalg.pinv(matrix.T @ matrix)
    values = inverse @ matrix.T @ beyond
    left = beyond - matrix @ values
    errors = numpy.sqrt(numpy.diag(inverse) * (left @ left) / max(1, len(kept) - len(keys)))
    return {key: (value, error, counts[key]) for key, value, error in zip(keys, values, errors)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path, help="of accuracy.py --keep")
    parser.add_argument("rows", help="regular expression that layers' names match")
    parser.add_argument("phase", nargs="?", default="forward")
    parser.add_argument("--metric", default="SMActive", choices=tuple(accuracy.METRICS))
    args = parser.parse_args()
    rows = json.loads((args.folder / "rows.json").read_text(encoding="utf-8"))
    number = next(i for i, names in enumerate(accuracy.PASSES) if args.metric in names)
    runs = accuracy.match(rows, [accuracy.table(args.folder / f"ncu{number}.csv")], args.model)
    ncu = accuracy.by_kernel(rows, runs, accuracy.PASSES[number:number + 1])
    chosen = groups(rows, args.rows, args.phase)
    for (name, own), (value, error, samples) in solve(collect(windows.of_run(args.folder / "results"), rows, ncu, args.metric, chosen)).items():
        lab.figure(f"{args.metric} beyond ncu's", value, "points", model=args.model, column=name, place="kernel" if own else "gap before it",
                   standardError=error, samples=samples, rows=len(chosen))


if __name__ == "__main__":
    main()
