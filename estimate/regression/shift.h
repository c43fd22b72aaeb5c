/* Whether a metric's windows lie where the lag says. */
#ifndef PP_ESTIMATE_REGRESSION_SHIFT_H
#define PP_ESTIMATE_REGRESSION_SHIFT_H

#include "estimate/regression/solver.h"

/** After pp_reg_estimate with the solver's work and design: fills the metric's shift. */
int pp_reg_shift_find(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err);

#endif
