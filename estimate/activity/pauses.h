/*
 * Which runs of counted steps hold a pause: in them the training has validated or saved, which is
 * no step's time. By their lengths alone, since nothing else is known of them.
 */
#ifndef PP_ESTIMATE_ACTIVITY_PAUSES_H
#define PP_ESTIMATE_ACTIVITY_PAUSES_H

#include "common/error.h"
#include "estimate/activity/activity.h"

#include <stdbool.h>

/** What a step of a run took on average, ns. */
double pp_run_step_ns(const pp_activity_run *run);

/**
 * The longest mean step, ns, of a run without a pause, of the processes with uses[process]:
 * INFINITY where none of their runs has one. A run with a pause took more than twice as long as
 * half of all steps did. Where a run is one step, which may take long by itself, it is so only if
 * it stands apart: it took half as long again as any shorter one, and such are one, or a tenth of
 * the steps, at most. -1 where memory is out.
 */
int pp_pauses_limit(const pp_activity *activity, const bool *uses, double *ret, pp_error *err);

#endif
