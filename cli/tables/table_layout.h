/* Which columns a table has, and how wide those of names are, by what there is to show and by the
 * terminal. */
#ifndef PP_CLI_TABLES_TABLE_LAYOUT_H
#define PP_CLI_TABLES_TABLE_LAYOUT_H

#include "cli/tables/table.h"
#include "cli/terminal/names.h"
#include "common/metric.h"

#include <stdbool.h>

enum {
    PP_TABLE_METRIC_PLACES = 11,
    PP_TABLE_BOUND_PLACES = 8,
    PP_TABLE_MEMORY_PLACES = 9,
    PP_TABLE_LEFT_OUT = 200, /**< bytes of the names of columns that a terminal has no place for */
};

typedef struct pp_table_layout {
    pp_name_cut layer, type;
    bool own_lines; /**< names that the first column has no place for stand in a line before their
                       row's, since no shortening leaves them apart */
    bool types, calls, busy, idle;
    bool metrics[PP_METRIC_COUNT];    /**< by number; those of which the table has any value */
    bool bounds;                      /**< whether anything is known to be bound by something */
    bool memory;                      /**< whether it is known what anything has allocated */
    char left_out[PP_TABLE_LEFT_OUT]; /**< "type, calls", or "" */
} pp_table_layout;

/** Of one of results.json's gpus. In so many columns (0: any number) as many of the table's are
 * kept as there is place for: time and share always. */
pp_table_layout pp_table_lay_out(const json_t *gpu, int columns);

/** The line of the columns' names. */
void pp_table_layout_heading(FILE *to, const pp_table_layout *layout);

#endif
