/* A session's conditions in the HTTP API. No I/O. */
#ifndef PP_OPERATOR_RESULTS_RESULTS_CONDITIONS_H
#define PP_OPERATOR_RESULTS_RESULTS_CONDITIONS_H

#include "common/error.h"

#include <jansson.h>

/**
 * A ProfileSession's `status` as JSON text of what the API tells of its conditions, in their order:
 * type, status, reason, message and last_transition_time, null where one is no text. "[]" where it
 * has none, "null" for a status that is NULL: nobody knows. *ret is the caller's.
 */
int pp_results_conditions(const json_t *status, char **ret, pp_error *err);

/**
 * Why it is where it is: the reason of a status' condition Succeeded, as kubectl shows it. The
 * status' own text; NULL where it has none, also for a status that is NULL.
 */
const char *pp_results_reason(const json_t *status);

#endif
