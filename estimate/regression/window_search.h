/* Windows where scrapes alone do not tell them. */
#ifndef PP_ESTIMATE_REGRESSION_WINDOW_SEARCH_H
#define PP_ESTIMATE_REGRESSION_WINDOW_SEARCH_H

#include "estimate/regression/solver.h"

/** Phase and windows of the solver's scrapes. */
int pp_reg_windows_make(pp_reg_solver *s, pp_error *err);

#endif
