/* How well windows are told by what others say. */
#ifndef PP_ESTIMATE_REGRESSION_PREDICTION_H
#define PP_ESTIMATE_REGRESSION_PREDICTION_H

#include "estimate/regression/solver.h"

/** Fills the metric's prediction, with the solver's design of all of its windows and the fit's
 * variances; s->work is anew then. */
int pp_reg_predict(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err);

#endif
