/* The results of a run as a table, for somebody to read. */
#ifndef PP_CLI_TABLES_TABLE_H
#define PP_CLI_TABLES_TABLE_H

#include <jansson.h>
#include <stdio.h>

typedef struct pp_table_view {
    int columns; /**< of the terminal, in which names are shortened to fit; 0: it is none, and all
                    are whole */
    int kernels; /**< that are listed below each row, at most; 0: none */
} pp_table_view;

/** Prints a table per GPU, layers by name unless they are sorted otherwise; without any GPU, that
 * no step was sampled. */
void pp_table_print(const json_t *results, FILE *to, const pp_table_view *view);

/** Columns of the terminal that a file is, or 0. */
int pp_table_columns(FILE *file);

#endif
