/* The processes of a run side by side, below its tables. */
#ifndef PP_CLI_TABLES_TABLE_RANKS_H
#define PP_CLI_TABLES_TABLE_RANKS_H

#include <jansson.h>
#include <stdio.h>

/** Prints what run/run_ranks.h added to results; nothing where it added nothing. */
void pp_table_ranks_print(FILE *to, const json_t *results);

#endif
