/*
 * The results of a run as files. results.json is the whole; the CSV and the table (tables/table.h)
 * are made from it. Unknown is null in JSON, empty in CSV and a dash in the table.
 */
#ifndef PP_CLI_RESULTS_RESULTS_H
#define PP_CLI_RESULTS_RESULTS_H

#include "common/json.h"
#include "estimate/items/estimates.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

/** "" where it is not there: a file may have been written by anybody. */
static inline const char *pp_results_text(const json_t *object, const char *key)
{
    const char *text = pp_json_get_string(object, key, NULL);
    return text ? text : "";
}

/** One solution (of one GPU) as an object; a new reference, NULL where memory is out. */
json_t *pp_results_of_solution(const pp_estimates *solution);

/** Writes results.json and layers.csv into the folder, which is made where it is missing. */
int pp_results_write(const json_t *results, const char *folder, pp_error *err);

/** Whether a folder's results.json is a run's, or there is none: another's is not to be replaced.
 */
int pp_results_check_own(const char *folder, pp_error *err);

/** Reads a folder's results.json, that file itself, or a file of rows (row_results.h); a new
 * reference in *ret. */
int pp_results_read(const char *from, json_t **ret, pp_error *err);

/** What a training is called, as import does: by its folder; of a file with a name of its own by
 * that. `folder` gets the folder's whole path. */
int pp_results_name(const char *from, char folder[PATH_MAX], char name[NAME_MAX + 1],
                    pp_error *err);

/** Why no step was sampled, as far as the results tell; NULL where some was. Borrowed from them. */
const char *pp_results_unsampled(const json_t *results);

/** Whether any is of a GPU: a training on the CPU has times alone. */
bool pp_results_have_gpu(const json_t *results);

/** Whether steps were sampled and no layer in them. */
bool pp_results_lack_layers(const json_t *results);

/** Why no layer has a value of its replays, by the first that has none; NULL where one has.
 * Borrowed from the results. */
const char *pp_results_why_not_replayed(const json_t *results);

#endif
