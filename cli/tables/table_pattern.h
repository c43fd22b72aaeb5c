/* What bounds a run's steps, below its tables. */
#ifndef PP_CLI_TABLES_TABLE_PATTERN_H
#define PP_CLI_TABLES_TABLE_PATTERN_H

#include <jansson.h>
#include <stdio.h>

/** Prints it where a GPU was used and something is known of it. */
void pp_table_pattern_print(FILE *to, const json_t *results);

#endif
