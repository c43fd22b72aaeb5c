/* All values together, against windows that were held out of them. */
#ifndef PP_ESTIMATE_REPLAY_HOLD_OUT_H
#define PP_ESTIMATE_REPLAY_HOLD_OUT_H

#include "estimate/problem/problem.h"

/** Holds each metric's values of replays, and one of all that is left, against windows of the
 * training that were held out. */
int pp_hold_out_compare(const pp_problem *p, pp_estimates *s, pp_error *err);

#endif
