/* The results of a run as a table, for somebody to read. */
#ifndef PP_CLI_TABLE_H
#define PP_CLI_TABLE_H

#include <jansson.h>
#include <stdio.h>

/**
 * Prints a table per GPU, layers in the order of the model; without any GPU, that no step was
 * sampled. `columns`: of the terminal, in which names are shortened to fit; 0: it is none, and all
 * are whole.
 */
void pp_table_print(const json_t *results, FILE *to, int columns);

/** Columns of the terminal that a file is, or 0. */
int pp_table_columns(FILE *file);

#endif
