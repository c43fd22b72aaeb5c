/* Items of results in another order than the model's. */
#ifndef PP_CLI_RESULTS_SORT_H
#define PP_CLI_RESULTS_SORT_H

#include "common/error.h"

#include <jansson.h>

/**
 * Orders the items of each GPU in place: `by` is "layer" (names, ascending), one of "ms_per_step",
 * "busy_ms_per_step", "idle_share", "calls" and "parameters", or a metric (its mean), all of them
 * the largest first. What is not known comes behind the others, and what is no layer and no phase
 * of a step (idle, job) last; what is alike stays as it was.
 */
int pp_results_sort(json_t *results, const char *by, pp_error *err);

#endif
