/* A comparison for somebody to read. */
#ifndef PP_CLI_COMPARE_COMPARE_TABLE_H
#define PP_CLI_COMPARE_COMPARE_TABLE_H

#include "cli/compare/compare.h"

#include <stdio.h>

/** Prints, in 80 columns but for names, the rows in which something is marked, or with `all` each
 * that both trainings have; what only one has; what was not compared, and why; last what changed in
 * the whole step, a line of each GPU. Names are printed as they are. */
void pp_compare_table_print(FILE *to, const pp_comparison *comparison, bool all);

#endif
