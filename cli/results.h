/*
 * The results of a run as files and as a table. results.json is the whole; the CSV and the table
 * are made from it. Unknown is null in JSON, empty in CSV and a dash in the table.
 */
#ifndef PP_CLI_RESULTS_H
#define PP_CLI_RESULTS_H

#include "estimate/estimates.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/** One solution (of one GPU) as an object; a new reference, NULL where memory is out. */
json_t *pp_results_of_solution(const pp_estimates *solution);

/** Writes results.json and layers.csv into the folder, which is made where it is missing. */
int pp_results_write(const json_t *results, const char *folder, pp_error *err);

/** Reads a folder's results.json; a new reference in *ret. */
int pp_results_read(const char *folder, json_t **ret, pp_error *err);

/** Whether steps were sampled and no layer in them. */
bool pp_results_lack_layers(const json_t *results);

/** Prints a table per GPU, layers in the order of the model; without any, that no step was sampled.
 */
void pp_results_print(const json_t *results, FILE *to);

/** Why no layer has a value of its replays, by the first that has none; NULL where one has.
 * Borrowed from the results. */
const char *pp_results_why_not_replayed(const json_t *results);

#endif
