/* How right values are as a whole, and why there are none: below a table. */
#ifndef PP_CLI_TABLES_TABLE_QUALITY_H
#define PP_CLI_TABLES_TABLE_QUALITY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/** Lines about one of results.json's gpus: how much of what was held out was predicted, what speaks
 * against values, and, where `layers` were asked for, why metrics have none. */
void pp_table_quality_print(FILE *to, const json_t *gpu, bool layers);

#endif
