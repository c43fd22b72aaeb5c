/* Copies and fills on the GPU, below the tables of a run. */
#ifndef PP_CLI_TABLES_TABLE_COPIES_H
#define PP_CLI_TABLES_TABLE_COPIES_H

#include <jansson.h>
#include <stdio.h>

enum { PP_TABLE_COPIES = 6 }; /**< that are listed */

/** Prints what run/run_copies.h added to results; nothing where it added nothing. */
void pp_table_copies_print(FILE *to, const json_t *results);

#endif
