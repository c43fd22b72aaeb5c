/* What a share of a peak is in bytes or FLOP per second. */
#ifndef PP_ESTIMATE_ACHIEVED_H
#define PP_ESTIMATE_ACHIEVED_H

#include "estimate/activity.h"
#include "estimate/estimates.h"

/**
 * Fills `peak` and `achieved` of the estimates from what the GPU's processes say of its chip, with
 * the SMs' clock that the job's SMClock tells. NaN where a metric is of no peak, or one of these is
 * not known. Call it when all estimates stand.
 */
void pp_achieved_fill(const pp_activity *activity, const char *gpu, pp_estimates *estimates);

#endif
