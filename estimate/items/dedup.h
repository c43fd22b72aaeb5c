/*
 * De-duplication of sample rows, as in the paper of 2024 (docs/results.md): windows of a layer are
 * folded into rows, which have the means of all: over windows, and by the share that the layer
 * takes of each. So what is folded costs detail in time, no mean. Estimates are solved from the
 * raw samples, never from these rows.
 */
#ifndef PP_ESTIMATE_ITEMS_DEDUP_H
#define PP_ESTIMATE_ITEMS_DEDUP_H

#include "common/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What one or more metric windows held for one layer and phase on one GPU. */
typedef struct pp_sample_row {
    int64_t first_ns;                 /**< end of the first window */
    int64_t last_ns;                  /**< end of the last window; >= first_ns */
    int64_t windows;                  /**< >= 1 */
    double share;                     /**< mean share of the windows that the layer took, 0..1 */
    double values[PP_METRIC_COUNT];   /**< means, in the metrics' units; NaN: not measured */
    double by_share[PP_METRIC_COUNT]; /**< means weighted by each window's share, in the same
                                           units; NaN: not measured. Of one window: its values */
} pp_sample_row;

/**
 * Whether two rows' values agree: each metric within tolerance_percent of its range (GPUMem: of
 * the first row's value), and measured in both or in neither.
 */
bool pp_dedup_same(const pp_sample_row *a, const pp_sample_row *b, double tolerance_percent);

/**
 * Adds the windows of `next` to `last`, whatever their values: windows add up, all means are those
 * over all windows. False, and `last` stays as it is, where a metric is measured in one of them
 * alone or `next` does not lie behind it. A window that `last` stands for already is counted once:
 * true, and nothing changes.
 */
bool pp_dedup_join(pp_sample_row *last, const pp_sample_row *next);

/**
 * Joins `next` to `last` where its values agree with those of `first`, what `last` began as, so
 * that slow drift does not slip through. False: next is a row of its own.
 */
bool pp_dedup_fold(pp_sample_row *last, const pp_sample_row *first, const pp_sample_row *next,
                   double tolerance_percent);

#endif
