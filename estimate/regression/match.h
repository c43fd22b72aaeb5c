/* How badly each scrape's values fit the collections that it may have read. */
#ifndef PP_ESTIMATE_REGRESSION_MATCH_H
#define PP_ESTIMATE_REGRESSION_MATCH_H

#include "estimate/regression/lag.h"

/** misfit for pp_reg_windows_init, by least squares over the windows w at this lag. */
int pp_reg_misfit(const pp_reg_problem *q, const pp_reg_scrapes *s, const pp_reg_windows *w,
                  double lag, double phase, double *misfit, pp_error *err);

#endif
