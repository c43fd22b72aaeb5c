/* Solves what was gathered, GPU by GPU: the same for a run that ends and for one read again. */
#ifndef PP_CLI_RECORDING_SOLVE_H
#define PP_CLI_RECORDING_SOLVE_H

#include "estimate/items/estimates.h"

/** For counters that are read every 100 ms, with nothing that passes them on; all metrics, method
 * Auto. */
pp_estimates_options pp_solve_defaults(void);

/** Borrows the solution for the call. */
typedef int (*pp_solve_fn)(void *user, const pp_estimates *solution, pp_error *err);

/** Hands on one solution for each GPU that a process named. */
int pp_solve(const pp_activity *activity, const pp_estimates_options *options, pp_solve_fn each,
             void *user, pp_error *err);

#endif
