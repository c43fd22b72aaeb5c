/* A training's layers by time, again and again while it runs. */
#ifndef PP_CLI_TOP_H
#define PP_CLI_TOP_H

#include "common/error.h"

#include <argp.h>
#include <jansson.h>

typedef struct pp_top_options {
    const char *what; /**< whose results are read */
    const char *sort; /**< as in results/sort.h */
    double seconds;   /**< between two looks */
    long times;       /**< how often it looks; 0: until it is told to end */
} pp_top_options;

/** From argv, whose first word is the verb; `children` are further options, whose input is
 * `child_input`. Fails, with the option's name in err->field, on a wrong value. */
int pp_top_options_parse(int argc, char **argv, const struct argp_child *children,
                         void *child_input, pp_top_options *ret, pp_error *err);

/** The table that is parsed by. */
const struct argp_option *pp_top_options_known(void);

/** Reads results as results.json holds them; a new reference in *ret. */
typedef int (*pp_top_read)(void *user, json_t **ret, pp_error *err);

/**
 * Shows what `read` brings: on a terminal on its alternate screen, as many rows as there is place
 * for, until q, Ctrl-C or another signal ends it, which all leave the terminal as it was; elsewhere
 * as lines, one table after the other. What cannot be read is told, and asked for again; at the
 * first time it ends the command. Returns 0, or the signal's number and 128.
 */
int pp_top(const pp_top_options *options, pp_top_read read, void *user, pp_error *err);

/** Reads the folder of a run that still writes its batches, or has ended: a pp_top_read whose user
 * is the folder's name. Times alone are known before the run's end. */
int pp_top_read_folder(void *folder, json_t **ret, pp_error *err);

#endif
