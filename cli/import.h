/* Writes a results folder of `precisionprobe run` into the database that the operator uses. */
#ifndef PP_CLI_IMPORT_H
#define PP_CLI_IMPORT_H

#include "common/error.h"

#include <argp.h>
#include <stdbool.h>

typedef struct pp_import_options {
    const char *folder;
    const char *database; /**< libpq connection string or URI; "": libpq's environment */
    const char *name;     /**< of session, pod and workload; NULL: the folder's */
} pp_import_options;

/** From `import`'s arguments; prints help or a wrong usage and ends the process, as argp does. */
int pp_import_options_parse(int argc, char **argv, pp_import_options *ret, pp_error *err);

/** The table that is parsed by. */
const struct argp_option *pp_import_options_known(void);

/**
 * Solves the folder's batches and samples again and writes all in one transaction; migrates the
 * schema where it is older. *ret_inserted is false where the folder was imported before: then
 * nothing changed. *ret_uid: the session's.
 */
int pp_import(const pp_import_options *options, bool *ret_inserted, char ret_uid[37],
              pp_error *err);

#endif
