/*
 * From stored activity and samples to estimates: builds the problem of one pod and GPU, solves it,
 * and says what each table of the store gets. No I/O; may run on any thread, on data of its own.
 * The same data gives the same rows, in the same order.
 */
#ifndef PP_ESTIMATE_SOLVE_H
#define PP_ESTIMATE_SOLVE_H

#include "estimate/items/estimates.h"

/**
 * Solves one GPU. Where PM sampling told of a layer (docs/sampling.md) that is its value, whatever
 * the windows tell: its error is known to be smaller. Not where several processes were sampled on
 * the GPU, since each has seen the others' work too. Else what replays of it told
 * (docs/replay.md) is its value, where there are any; their time is none of the training's.
 * `gpu`: a UUID that a process of the activity names; "": the processes that named none. An
 * activity without samples gives times and no values. Errors: as pp_regression_solve;
 * PP_ERR_NOT_FOUND for an unknown GPU.
 */
int pp_estimates_solve(const pp_activity *activity, const char *gpu,
                       const pp_estimates_options *options, pp_estimates **ret, pp_error *err);

#endif
