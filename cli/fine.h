/*
 * What fine sampling tells of a run (docs/fine.md): kept while it runs, laid over its results at
 * the end, where it says more than windows of 100 ms do.
 */
#ifndef PP_CLI_FINE_H
#define PP_CLI_FINE_H

#include "sidecar/agent/process.h"

typedef struct pp_cli_fine pp_cli_fine;

/** NULL where memory is out. */
pp_cli_fine *pp_cli_fine_new(void);
/** NULL is allowed. */
void pp_cli_fine_free(pp_cli_fine *fine);

/** As pp_agent_pod's take_fine has them: a report replaces the one before of its process. */
void pp_cli_fine_take(pp_cli_fine *fine, const pp_fine_report *report, const char *why);

/**
 * Puts the estimates of a GPU into its results (results.h): each names its method and its source,
 * and `fine` says how the sampling went. Where several processes share a GPU none is laid over:
 * each has seen the others' work too. `wanted`: bits of the metrics; 0: all.
 */
int pp_cli_fine_lay_over(const pp_cli_fine *fine, json_t *gpu, unsigned wanted, pp_error *err);

/** Why there is none (any more); "" where nothing is wrong. */
const char *pp_cli_fine_why(const pp_cli_fine *fine);

#endif
