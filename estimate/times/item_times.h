/* How sure the times of items are: by how far the steps that were marked are apart. */
#ifndef PP_ESTIMATE_TIMES_ITEM_TIMES_H
#define PP_ESTIMATE_TIMES_ITEM_TIMES_H

#include "estimate/items/estimates.h"

/**
 * Sets the standard errors of an estimate's steps and of its items' times, and with them that of
 * GPUUtil where it is known of records of kernels. What items share, where they overlap, is as sure
 * as their whole times.
 */
int pp_item_times_fill(const pp_activity *activity, pp_estimates *s, pp_error *err);

#endif
