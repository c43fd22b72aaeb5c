/*
 * A training's results as rows of the view result_detail (docs/results.md), under its names and in
 * its units: one row of each GPU, item and metric; one without a metric where an item has none.
 */
#ifndef PP_CLI_FORMATS_ROWS_H
#define PP_CLI_FORMATS_ROWS_H

#include "cli/formats/training.h"
#include "common/error.h"

#include <stdio.h>

/** A line of names, then one of each row: for spreadsheets and databases (csv.h). */
int pp_rows_csv(const pp_training *trainings, size_t n, FILE *to, pp_error *err);

/** {"items": [...]}: as the HTTP API answers (docs/api.md), one object of each item, its metrics by
 * name in `metrics`. */
int pp_rows_json(const pp_training *trainings, size_t n, FILE *to, pp_error *err);

/** Lines of JSON for parquet.py: [[name, type], ...], where a type is text, integer, real or time
 * (ns since 1970); then an array of each row. */
int pp_rows_lines(const pp_training *trainings, size_t n, FILE *to, pp_error *err);

#endif
