/* What `precisionprobe run` is asked for; its options mirror a ProfileSession's spec. */
#ifndef PP_CLI_RUN_OPTIONS_H
#define PP_CLI_RUN_OPTIONS_H

#include "common/error.h"
#include "estimate/items/estimates.h"
#include "sidecar/agent/settings.h"

#include <argp.h>
#include <stdbool.h>

typedef struct pp_run_options {
    pp_settings settings;
    pp_estimates_options solution;
    const char *output;         /**< folder for the results; NULL: none is written */
    const char *hook;           /**< folder with the hook's sitecustomize.py */
    bool quiet;                 /**< no progress */
    bool keep_windows;          /**< below the output: what PM sampling's estimates come from */
    int kernels;                /**< that the table lists below each row; 0: none */
    int64_t sampling_period_ns; /**< between samples of the GPU, for methods Sampling and Auto */
    char **command;             /**< the training, NULL-terminated; borrowed from argv */
} pp_run_options;

/**
 * From `run`'s arguments (argv[0] is what help calls the program). Prints help or a wrong usage and
 * ends the process, as argp does; fails, with the option's name in err->field, on a wrong value.
 */
int pp_run_options_parse(int argc, char **argv, pp_run_options *ret, pp_error *err);
/** The table that is parsed by. */
const struct argp_option *pp_run_options_known(void);

/** From `--kernels`' argument, which may be NULL: how many are listed below each row. */
int pp_kernels_option_parse(const char *text, int *ret, pp_error *err);

void pp_run_options_free(pp_run_options *options);

#endif
