/* Windows of one metric that are not the exporter's. */
#ifndef PP_ESTIMATE_REGRESSION_OWN_WINDOW_H
#define PP_ESTIMATE_REGRESSION_OWN_WINDOW_H

#include "estimate/regression/solver.h"

/** Looks for the length and the lag that explain the metric's values best. s->own[metric] is left
 * as it is where none is clearly better. */
int pp_reg_own_window_find(pp_reg_solver *s, size_t metric, pp_error *err);

/** The metric's scaled values, and when their windows end, of windows that were observed. */
int pp_reg_rows_take(const pp_reg_solver *s, size_t metric, pp_reg_rows *u, pp_error *err);

#endif
