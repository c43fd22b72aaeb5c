/* What each item's values are over the time in which its kernels ran, and what bounds it by these.
 */
#ifndef PP_ESTIMATE_ITEMS_ITEM_BOUNDS_H
#define PP_ESTIMATE_ITEMS_ITEM_BOUNDS_H

#include "estimate/items/estimates.h"

/** Of one metric the value of each item, and its error, as means over busy time (`busy`: it is
 * known when kernels ran) or else over elapsed time; NaN where that is not known. `group`, unless
 * NULL: the group whose value and error it is, borrowed; NULL where it is the item's own. All
 * arrays are of n_items; the job and idle time have none. */
void pp_item_values(const pp_estimates *estimates, bool busy, pp_metric metric, double *value,
                    double *error, const char **group);

/** How likely each bound is, of each item's time: n_items times PP_BOUND_COUNT. Waits for data and
 * for other ranks are bound by what they are. PP_ERR_NOMEM. */
int pp_item_bounds(const pp_estimates *estimates, bool busy, double *likely, pp_error *err);

/** Sets each item's `bound` and `bound_likely`. PP_ERR_NOMEM. */
int pp_item_bounds_fill(pp_estimates *estimates, pp_error *err);

#endif
