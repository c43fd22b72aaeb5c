/* Values of layers that were replayed by themselves. */
#ifndef PP_ESTIMATE_REPLAY_REPLAY_H
#define PP_ESTIMATE_REPLAY_REPLAY_H

#include "estimate/problem/problem.h"

/** Puts values of replays in the place of those that windows of the training tell. */
int pp_replay_estimate(const pp_activity *activity, const pp_problem *p,
                       const pp_estimates_options *options, pp_estimates *s, pp_error *err);

#endif
