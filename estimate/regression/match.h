/* How badly each scrape's values fit the collections that it may have read. */
#ifndef PP_ESTIMATE_REGRESSION_MATCH_H
#define PP_ESTIMATE_REGRESSION_MATCH_H

#include "estimate/regression/lag.h"

/**
 * Finds the lag of the windows w, and w anew: which collection each scrape read is decided by its
 * values where the clock leaves it open. Without a lag, by the clock. Errors: PP_ERR_NOMEM,
 * PP_ERR_INTERNAL; w is then empty or as it was.
 */
int pp_reg_match(const pp_reg_problem *q, const pp_reg_scrapes *s, double phase,
                 const pp_reg_lag_search *search, pp_reg_windows *w, pp_reg_lag *ret,
                 pp_error *err);

#endif
