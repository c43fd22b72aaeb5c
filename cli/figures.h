/* `precisionprobe figures`: results as drawings (docs/files.md). */
#ifndef PP_CLI_FIGURES_H
#define PP_CLI_FIGURES_H

#include "common/error.h"

#include <argp.h>

typedef struct pp_figures_options {
    char **paths; /**< folders or files of results, or of layers as the API has them; argv's */
    int n_paths;
    const char *output; /**< the folder that is made */
    int layers;         /**< that a figure shows at most */
} pp_figures_options;

/** From argv, whose first word is the verb. */
int pp_figures_options_parse(int argc, char **argv, pp_figures_options *ret, pp_error *err);

/** The table that is parsed by. */
const struct argp_option *pp_figures_options_known(void);

/** Reads the results, writes the files and prints their names. */
int pp_figures(const pp_figures_options *options, pp_error *err);

#endif
