/*
 * How PM sampling went in a run (docs/sampling.md): kept while it runs, and told beside the
 * results. Its estimates come with the batches.
 */
#ifndef PP_CLI_RUN_SAMPLING_H
#define PP_CLI_RUN_SAMPLING_H

#include "sidecar/agent/process.h"

typedef struct pp_cli_sampling pp_cli_sampling;

/** NULL where memory is out. */
pp_cli_sampling *pp_cli_sampling_new(void);
/** NULL is allowed. */
void pp_cli_sampling_free(pp_cli_sampling *sampling);

/** As pp_agent_pod's take_pm has them: a report replaces the one before of its process. */
int pp_cli_sampling_take(pp_cli_sampling *sampling, const pp_sampling_report *report,
                         const char *why, pp_error *err);

/** Adds to a GPU's results (results/results.h) how its sampling went, as `fine`, one object for
 * each process; nothing where it was not sampled. */
int pp_cli_sampling_describe(const pp_cli_sampling *sampling, json_t *gpu, pp_error *err);

/** Why there is none (any more); "" where nothing is wrong. */
const char *pp_cli_sampling_why(const pp_cli_sampling *sampling);

#endif
