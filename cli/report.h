/* `precisionprobe report`: results as a table, and as files of every kind (docs/files.md). */
#ifndef PP_CLI_REPORT_H
#define PP_CLI_REPORT_H

#include "common/error.h"

typedef struct pp_report_options {
    char **paths; /**< folders, or files of results; argv's */
    int n_paths;
    const char *format;
    const char **told; /**< "NAME=VALUE" of --set; owned, the texts are argv's */
    int n_told;
    const char *sort; /**< as in sort.h; NULL: the model's order */
    int kernels;      /**< below each row of the table */
} pp_report_options;

/** From argv, whose first word is the verb. Always to be freed by pp_report_options_done. */
int pp_report_options_parse(int argc, char **argv, pp_report_options *ret, pp_error *err);

void pp_report_options_done(pp_report_options *options);

/** Reads the results and writes to standard output; `parquet` as in parquet.h. */
int pp_report(const pp_report_options *options, const char *parquet, pp_error *err);

#endif
