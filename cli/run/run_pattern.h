/*
 * How the training of a run used its GPUs, as part of its results: the usage of each GPU, merged
 * into one as a session's are (docs/patterns.md).
 */
#ifndef PP_CLI_RUN_RUN_PATTERN_H
#define PP_CLI_RUN_RUN_PATTERN_H

#include "estimate/activity/activity.h"
#include "estimate/items/estimates.h"
#include "estimate/pattern/workloads.h"
#include "estimate/times/ranks.h"

#include <jansson.h>

/** Usages of GPUs, gathered one by one; begins as zeros. */
typedef struct pp_run_pattern {
    pp_workload_usages usages;
} pp_run_pattern;

/** Adds how the solution's GPU was used. `ranks` may be NULL. */
int pp_run_pattern_add(pp_run_pattern *pattern, const pp_activity *activity,
                       const pp_estimates *solution, const pp_ranks *ranks, pp_error *err);

/** Adds `pattern` to the results; nothing where no step was sampled. */
int pp_run_pattern_describe(const pp_run_pattern *pattern, json_t *results, pp_error *err);

void pp_run_pattern_done(pp_run_pattern *pattern);

#endif
