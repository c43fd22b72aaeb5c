/* Activity and samples to estimates, on the thread pool. */
#ifndef PP_OPERATOR_SOLVE_H
#define PP_OPERATOR_SOLVE_H

#include "estimate/estimates.h"
#include "operator/session_runtime.h"

/** Begins a solution where one is due. */
void pp_solve_tick(pp_runtime *runtime);

#endif
