/*
 * De-duplication of sample rows, as in the paper of 2024 (docs/results.md): a window's values of a
 * layer that repeat the last stored ones within the tolerance are folded into that row, which then
 * stands for one more window and has the mean of all: what is folded costs detail in time, no mean.
 * Estimates are solved from the raw samples, never from these rows.
 */
#ifndef PP_ESTIMATE_DEDUP_H
#define PP_ESTIMATE_DEDUP_H

#include "common/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What one or more metric windows held for one layer and phase on one GPU. */
typedef struct pp_sample_row {
    int64_t first_ns;               /**< end of the first window */
    int64_t last_ns;                /**< end of the last window; >= first_ns */
    int64_t windows;                /**< >= 1 */
    double share;                   /**< mean share of the windows that the layer took, 0..1 */
    double values[PP_METRIC_COUNT]; /**< means, in the metrics' units; NaN: not measured */
} pp_sample_row;

/**
 * Whether two rows' values agree: each metric within tolerance_percent of its range (GPUMem: of
 * the first row's value), and measured in both or in neither.
 */
bool pp_dedup_same(const pp_sample_row *a, const pp_sample_row *b, double tolerance_percent);

/**
 * Folds `next` into `last` where it agrees with `first`, the first window that `last` stands for,
 * so that slow drift does not slip through, and does not lie before it: windows add up, share and
 * values are the means over all windows. A window that `last` stands for already (next->last_ns <=
 * last->last_ns) is counted once: true, and nothing changes. False: next is a row of its own.
 */
bool pp_dedup_fold(pp_sample_row *last, const pp_sample_row *first, const pp_sample_row *next,
                   double tolerance_percent);

#endif
