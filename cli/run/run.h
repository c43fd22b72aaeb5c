/* Runs a training with the hook in it, reads what it marks and the GPU's counters, and solves. */
#ifndef PP_CLI_RUN_RUN_H
#define PP_CLI_RUN_RUN_H

#include "cli/run/options.h"

/**
 * Returns the training's exit status (128 and the signal's number where one ended it); -1 where it
 * could not be started. Whatever happens to the profiling, the training runs.
 */
int pp_run(pp_run_options *options, pp_error *err);

#endif
