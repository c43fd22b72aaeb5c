/* What a share of a peak is in bytes or FLOP per second. */
#ifndef PP_ESTIMATE_ITEMS_ACHIEVED_H
#define PP_ESTIMATE_ITEMS_ACHIEVED_H

#include "estimate/activity/activity.h"
#include "estimate/items/estimates.h"

/** What 1, all of a metric's peak, is per second while an item's kernels run. */
typedef struct pp_rate {
    double peak;  /**< at the highest clock; NaN: not known, or the metric has none */
    double value; /**< at the clock that the SMs had; NaN: not known */
    double error; /**< standard error of `value`, by the clock's; NaN: not known */
    bool of_job;  /**< the clock is the job's: `error` is one for all such items */
} pp_rate;

/** Fills `ret` of n_items. `gpu` as the estimates have it. */
void pp_achieved_rates(const pp_activity *activity, const pp_estimates *estimates, pp_metric metric,
                       pp_rate *ret);

/**
 * Fills `peak` and `achieved` of the estimates from what the GPU's processes say of its chip, with
 * the SMs' clock that the job's SMClock tells. NaN where a metric is of no peak, or one of these is
 * not known. Call it when all estimates stand.
 */
void pp_achieved_fill(const pp_activity *activity, const char *gpu, pp_estimates *estimates);

#endif
