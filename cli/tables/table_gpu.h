/* What is known of a GPU of the results as a whole: its steps, its power, what it took and did. */
#ifndef PP_CLI_TABLES_TABLE_GPU_H
#define PP_CLI_TABLES_TABLE_GPU_H

#include <jansson.h>
#include <stdio.h>

/** A line without its end about one of results.json's gpus. */
void pp_table_gpu_print(FILE *to, const json_t *gpu);

#endif
