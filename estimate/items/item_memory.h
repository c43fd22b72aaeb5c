/* What each item had allocated on the GPU (docs/timing.md). */
#ifndef PP_ESTIMATE_ITEMS_ITEM_MEMORY_H
#define PP_ESTIMATE_ITEMS_ITEM_MEMORY_H

#include "estimate/items/estimates.h"

/** Sets each item's `memory_peak` and `memory_live` by what processes of its GPU told; the job has
 * the most of all, and what steps leave. PP_ERR_NOMEM. */
int pp_item_memory_fill(const pp_activity *activity, pp_estimates *estimates, pp_error *err);

#endif
