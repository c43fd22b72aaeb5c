/* The kernels of a row of the table (table.h), below it. */
#ifndef PP_CLI_TABLE_KERNELS_H
#define PP_CLI_TABLE_KERNELS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    PP_TABLE_KERNELS = 3,       /**< of a row, unless another number is asked for */
    PP_TABLE_MOST_KERNELS = 20, /**< as many as results name */
};

/** Whether an item of a GPU's results has any. */
bool pp_table_kernels_known(const json_t *gpu);

/** What their columns are. */
void pp_table_kernels_heading(FILE *to);

/** Prints an item's first `most` kernels, one in a line; nothing where it has none. `columns` as in
 * pp_table_print. */
void pp_table_kernels_print(FILE *to, const json_t *item, int most, int columns);

#endif
