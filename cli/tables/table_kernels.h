/* The kernels of a row of the table (table.h), below it. */
#ifndef PP_CLI_TABLES_TABLE_KERNELS_H
#define PP_CLI_TABLES_TABLE_KERNELS_H

#include "cli/tables/table.h"
#include "cli/terminal/names.h"

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

/** How the names of all kernels that are listed of a GPU's results are cut on a terminal: a kernel
 * looks alike below each row. */
pp_name_cut pp_table_kernels_cut(const json_t *gpu, const pp_table_view *view);

/** Prints an item's kernels, one in a line; nothing where it has none, or none are asked for. Where
 * the cut does not tell them apart they have one of their own. */
void pp_table_kernels_print(FILE *to, const json_t *item, const pp_table_view *view,
                            const pp_name_cut *cut);

#endif
