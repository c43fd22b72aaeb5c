/* Windows of a driver that measures by one clock and takes over by another. */
#ifndef PP_ESTIMATE_REGRESSION_DRIFT_SEARCH_H
#define PP_ESTIMATE_REGRESSION_DRIFT_SEARCH_H

#include "estimate/regression/solver.h"

/** Phase and windows of the solver's scrapes, whose values are of all windows since the scrape
 * before and which lie on a grid. Errors: PP_ERR_NOMEM, PP_ERR_INTERNAL. */
int pp_reg_drift_search(pp_reg_solver *s, pp_error *err);

#endif
