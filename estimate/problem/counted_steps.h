/*
 * Steps that were counted and not sampled. They are the training's own: nothing is marked in them.
 * The hook tells runs of them; of an agent of an earlier release, those between two captures of a
 * process are taken, with what marking takes at both ends.
 */
#ifndef PP_ESTIMATE_PROBLEM_COUNTED_STEPS_H
#define PP_ESTIMATE_PROBLEM_COUNTED_STEPS_H

#include "estimate/activity/marked_steps.h"
#include "estimate/problem/dwells.h"
#include "estimate/problem/sample_coverage.h"
#include "estimate/regression/regression.h"

typedef struct pp_counted_steps {
    int64_t steps;
    int64_t ns;             /**< that they took, each process' own */
    int64_t paused;         /**< steps beside them, of runs in which the training paused */
    pp_time_range *between; /**< in which they ran; sorted, apart from each other; owned */
    size_t count;
} pp_counted_steps;

/**
 * Those of the processes with uses[process], without runs that hold a pause
 * (estimate/activity/pauses.h). The n marked steps are as pp_marked_steps_collect() gives them.
 * Time in which layers were replayed is no step's: where some lies between two captures, what they
 * enclose is left out.
 */
int pp_counted_steps_find(const pp_activity *activity, const bool *uses,
                          const pp_marked_step *marked, size_t n, const pp_replay_runs *dwells,
                          pp_counted_steps *ret, pp_error *err);
void pp_counted_steps_done(pp_counted_steps *counted);

/** What such a step took on average, ns; NaN where there is none. */
double pp_counted_step_ns(const pp_counted_steps *counted);

/**
 * What such a step takes of a rate: the mean of the samples that say nothing of captures, times
 * its length in seconds; of all samples, `mean`, where too few do. NaN where no step was counted.
 */
double pp_counted_steps_amount(const pp_counted_steps *counted, const pp_coverage *reading,
                               const pp_regression_metric *metric, double mean);

#endif
