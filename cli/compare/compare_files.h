/* A comparison for programs. */
#ifndef PP_CLI_COMPARE_COMPARE_FILES_H
#define PP_CLI_COMPARE_COMPARE_FILES_H

#include "cli/compare/compare.h"

#include <stdio.h>

/** A row of each value that both trainings have, as docs/files.md lists its columns; of a layer
 * that only one has a row with that one's times alone. Numbers have all their digits. */
int pp_compare_csv(FILE *to, const pp_comparison *comparison, pp_error *err);

/** The same rows as `items`, with the rule, the number of values and of marks. */
int pp_compare_json(FILE *to, const pp_comparison *comparison, pp_error *err);

#endif
