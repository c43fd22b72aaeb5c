/* Where the host waited, below the tables of a run. */
#ifndef PP_CLI_TABLES_TABLE_WAITS_H
#define PP_CLI_TABLES_TABLE_WAITS_H

#include <jansson.h>
#include <stdio.h>

enum { PP_TABLE_WAITS = 8 }; /**< that are listed */

/** Prints what run/run_waits.h added to results; nothing where it added nothing. */
void pp_table_waits_print(FILE *to, const json_t *results);

#endif
