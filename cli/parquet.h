/* Rows as Parquet, written by the machine's python3 with pyarrow: there is no Arrow for C here. */
#ifndef PP_CLI_PARQUET_H
#define PP_CLI_PARQUET_H

#include "cli/formats/training.h"
#include "common/error.h"

/** Writes the file to standard output, with formats/parquet.py, which is at `program` (NULL: it is
 * not where it is installed). Fails with what is missing where that is python3 or pyarrow. */
int pp_parquet_write(const pp_training *trainings, size_t n, const char *program, pp_error *err);

#endif
