"""Samples that lie in kernels, as they were read, against what Nsight Compute says of these kernels.

No estimate is made of them: a sample is the mean of its time, and what ncu says of a kernel predicts it by how much of it
the kernel fills. That tells what is ncu's, which runs each kernel alone, from what is ours. Samples with longer gaps say
nothing of it: copies and fills without a record run there.
"""
import bisect
import collections
import math
import statistics

import lab
import windows

FEW = 20  # samples of a row: fewer say nothing
EXACT = 800_000_000  # ns of a capture in which the samples' clock, which is up to 4 ppm faster or slower, goes off by 3 us at most
GAP = 3_500  # ns between kernels: in a longer time something without a record may have run
OVERLAP = 0.01  # of a sample in which two kernels run: it says nothing of either


def steps_of(window, rows):
    """Its steps that have as many kernels as the recorded one, each in order of their starts."""
    steps = collections.defaultdict(list)
    for kernel in sorted(window.kernels):
        steps[kernel.step].append(kernel)
    return [kernels for kernels in steps.values() if len(kernels) == len(rows) and are_those(kernels, rows)]


def are_those(kernels, rows):
    """Whether they last as long as those of the recorded step do."""
    return statistics.correlation([k.end - k.start for k in kernels], [us for _, us, *_ in rows]) > 0.95


def within(kernels, samples):
    """[(sample, [(place of a kernel, its share of the sample)])] of samples between a step's first kernel and its last."""
    begins, found = [k.start for k in kernels], []
    first = bisect.bisect_left(samples, (kernels[0].start,))
    for sample in samples[first:]:
        if sample.end > kernels[-1].end:
            break
        length, parts = sample.end - sample.start, []
        for i in range(bisect.bisect_left(begins, sample.end) - 1, -1, -1):
            share = (min(kernels[i].end, sample.end) - max(kernels[i].start, sample.start)) / length
            if share <= 0:
                break
            parts.append((i, share))
        if parts and sum(share for _, share in parts) < 1 + OVERLAP and is_filled(sample, kernels, parts):
            found.append((sample, parts))
    return found


def is_filled(sample, kernels, parts):
    """Whether kernels leave no long time of it."""
    at = sample.start
    for i, _ in reversed(parts):
        if kernels[i].start > at + GAP:
            return False
        at = max(at, kernels[i].end)
    return at > sample.end - GAP


def predicted(parts, ncu, name):
    """A sample's value by ncu's kernels, percent; None where it has not seen one of them."""
    values = [(ncu(i, name), share) for i, share in parts]
    return None if any(value is None for value, _ in values) else sum(value * share for value, share in values)


def sums(kept, metrics, rows, ncu):
    """{metric: {row: [(read, ncu's)]}}: samples by the row that fills most of each."""
    found = {name: collections.defaultdict(list) for name in metrics}
    for window in kept:
        for kernels in steps_of(window, rows):
            if kernels[-1].end > window.samples[0].start + EXACT:
                break
            for sample, parts in within(kernels, window.samples):
                filled = collections.Counter()
                for i, share in parts:
                    filled[tuple(rows[i][2:4])] += share
                row = filled.most_common(1)[0][0]
                for name in metrics:
                    read, ncus = 100 * sample.values[windows.METRICS.index(name)], predicted(parts, ncu, name)
                    if ncus is not None and math.isfinite(read):
                        found[name][row].append((read, ncus))
    return found


def print_figures(kept, metrics, rows, ncu, model):
    """A figure for each metric: by how much ncu's kernels miss what was read, row by row."""
    for name, of_rows in sums(kept, metrics, rows, ncu).items():
        found = [(len(pairs), *(statistics.fmean(column) for column in zip(*pairs)))
                 for pairs in of_rows.values() if len(pairs) >= FEW]
        samples = sum(count for count, *_ in found)
        if samples:
            lab.figure(f"{name} of whole samples by ncu's kernels", sum(n * abs(ncus - read) for n, read, ncus in found) / samples,
                       "points off", read=sum(n * read for n, read, _ in found) / samples,
                       ncus=sum(n * ncus for n, _, ncus in found) / samples, samples=samples, rows=len(found), model=model)
