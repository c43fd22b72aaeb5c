/* Rows of the view result_detail, as the HTTP API answers them and `report --format json` writes
 * them, as results: the other way round (formats/rows.h). */
#ifndef PP_CLI_RESULTS_ROW_RESULTS_H
#define PP_CLI_RESULTS_ROW_RESULTS_H

#include "common/error.h"

#include <jansson.h>

/**
 * An object {"items": [...]} as one that results.json could hold: a GPU for each pod and UUID, in
 * the rows' order, with `pod`, `podUid`, `node`, `workloadKind` and `workloadName`; `namespace` and
 * `session` where the rows have them. What a row lacks is null. A new reference in *ret.
 */
int pp_row_results(const json_t *rows, json_t **ret, pp_error *err);

/** Adds rows of the view result_quality to such results: per GPU what `quality`, `closure` and
 * `fine` tell. */
int pp_row_results_quality(json_t *results, const json_t *rows, pp_error *err);

#endif
