/* How far collections are apart. */
#ifndef PP_ESTIMATE_REGRESSION_PERIOD_H
#define PP_ESTIMATE_REGRESSION_PERIOD_H

#include "estimate/regression/solver.h"

/**
 * Sets the solver's scrapes to the period that explains their values best, within 0.4 % of what
 * they have: an exporter's timer is off by that (100.02 to 100.25 ms for 100 were seen), and after
 * some hundred windows the grid by a whole one. Left as it is where no other one is clearly better.
 */
int pp_reg_period_find(pp_reg_solver *s, pp_error *err);

#endif
