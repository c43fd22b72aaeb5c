"""Samples that lie in rows' kernels, as they were read: neither ours nor ncu's say of them what they hold.

No estimate is made of them: a sample is the mean of its time, and what a row is told at, or a kernel by ncu, predicts it by
how much of it each fills. Where ncu's kernels are other runs than the training's, ncu's prediction misses and ours does not.
"""
import bisect
import collections
import statistics

import lab
import windows

FEW = 20  # samples of a row: fewer say nothing
EXACT = 800_000_000  # ns of a capture in which the samples' clock, which is up to 4 ppm faster or slower, goes off by 3 us at most
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
        if parts and sum(share for _, share in parts) < 1 + OVERLAP:
            found.append((sample, parts))
    return found


def predicted(sample, parts, rows, told, ncu, place, name):
    """(the sample's value, by ours, by ncu's), in percent; None where a kernel in it has no value."""
    ours = [(told.get(tuple(rows[i][2:4]), {}).get(name), share) for i, share in parts]
    theirs = [(ncu(i, name), share) for i, share in parts]
    if any(value is None for value, _ in (*ours, *theirs)):
        return None
    return (100 * sample.values[place], sum(value[0] * share for value, share in ours),
            sum(value * share for value, share in theirs))


def sums(kept, metrics, rows, told, ncu):
    """{metric: {row: [(read, ours, ncu's)]}}: samples by the row that fills most of each."""
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
                    three = predicted(sample, parts, rows, told, ncu, windows.METRICS.index(name), name)
                    if three and three[0] == three[0]:
                        found[name][row].append(three)
    return found


def print_figures(kept, metrics, rows, told, ncu, model):
    """A figure for each metric: by how much ncu's kernels miss what was read, row by row, and by how much what was told."""
    for name, of_rows in sums(kept, metrics, rows, told, ncu).items():
        found = [(len(threes), *(statistics.fmean(column) for column in zip(*threes)))
                 for threes in of_rows.values() if len(threes) >= FEW]
        samples = sum(count for count, *_ in found)
        if not samples:
            continue
        lab.figure(f"{name} of whole samples by ncu's kernels", sum(n * abs(ncus - read) for n, read, _, ncus in found) / samples,
                   "points off", peer=sum(n * abs(ours - read) for n, read, ours, _ in found) / samples,
                   read=sum(n * read for n, read, *_ in found) / samples, told=sum(n * ours for n, _, ours, _ in found) / samples,
                   ncus=sum(n * ncus for n, *_, ncus in found) / samples, samples=samples, rows=len(found), model=model)
