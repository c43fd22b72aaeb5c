/* Activity and samples to estimates, on the thread pool. */
#ifndef PP_OPERATOR_SAMPLES_SOLVE_H
#define PP_OPERATOR_SAMPLES_SOLVE_H

#include "estimate/items/estimates.h"
#include "operator/cache/session_runtime.h"

int pp_solve_start(pp_operator *op, pp_error *err);
/** Those that wait are not made any more; those under way end by themselves. */
void pp_solve_stop(pp_operator *op);
/** When all have. */
void pp_solve_done(pp_operator *op);

/** Begins a solution where one is due, as soon as it has a place. */
void pp_solve_tick(pp_runtime *runtime);

#endif
