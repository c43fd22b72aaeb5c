/* The processes of a run side by side, as part of its results. */
#ifndef PP_CLI_RUN_RUN_RANKS_H
#define PP_CLI_RUN_RUN_RANKS_H

#include "estimate/times/ranks.h"

#include <jansson.h>

/**
 * Adds `ranks`, one object for each process, and `slowest`, where one is that the others wait for
 * (estimate/times/ranks.h). Nothing where a single process had marked steps.
 */
int pp_run_ranks_describe(const pp_ranks *ranks, json_t *results, pp_error *err);

#endif
