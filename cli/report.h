/* `precisionprobe report`: results as a table, and as files of every kind (docs/files.md). */
#ifndef PP_CLI_REPORT_H
#define PP_CLI_REPORT_H

#include "common/error.h"

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>

typedef struct pp_report_options {
    char **paths; /**< folders, or files of results; argv's */
    int n_paths;
    const char *format;
    const char **told; /**< "NAME=VALUE" of --set; owned, the texts are argv's */
    int n_told;
    const char *sort;    /**< as in results/sort.h; NULL: by name */
    int kernels;         /**< below each row of the table */
    int depth;           /**< as in results/fold.h; 0: all layers */
    const char *compare; /**< a folder or file to compare the one path with; NULL: none */
    bool all;            /**< also what differs by no more than noise */
    const char *serve;   /**< as in serve/serve.h; NULL: the results are written */
    /** Reads the results of what is no file here, put together to `depth`; returns 1 where it is
     * one. NULL: all are files. */
    int (*fetch)(void *user, const char *name, int depth, json_t **ret, pp_error *err);
    void *user;
} pp_report_options;

/** From argv, whose first word is the verb; `children` are further options, whose input is
 * `child_input`; both may be NULL. Always to be freed by pp_report_options_done. */
int pp_report_options_parse(int argc, char **argv, const struct argp_child *children,
                            void *child_input, pp_report_options *ret, pp_error *err);

/** The table that is parsed by. */
const struct argp_option *pp_report_options_known(void);

void pp_report_options_done(pp_report_options *options);

/** Reads the results and writes to standard output; `parquet` as in parquet.h. */
int pp_report(const pp_report_options *options, const char *parquet, pp_error *err);

#endif
