/* Rows of layers that lie in one another, put together. */
#ifndef PP_CLI_RESULTS_FOLD_H
#define PP_CLI_RESULTS_FOLD_H

#include "common/error.h"

#include <jansson.h>
#include <string.h>

/** Bytes of a name that are its first `depth` parts, 1 or more, between dots; all of it, where it
 * has no more. */
static inline size_t pp_fold_part(const char *name, int depth)
{
    const char *at = name;
    for (int i = 0; i < depth; i++) {
        at = strchr(at, '.');
        if (!at)
            return strlen(name);
        at++;
    }
    return (size_t)(at - 1 - name);
}

/**
 * Puts the layers of results (results.json) whose names have more than `depth` parts, between dots,
 * together with the one that their first `depth` parts name, phase by phase; `depth` is 1 or more.
 * Times, parameters and live bytes are added up, of peak bytes the highest is kept. A metric has
 * the mean of the layers' values by their time, of one method, source and basis, where these are of
 * 95 % of the time; else it says why not. Its standard error is the most that those of the layers
 * make: what captures, a clock or pooled kernels are off by is off for all of them. `calls` are
 * those of the module itself, null where it has no row.
 */
int pp_results_fold(json_t *results, int depth, pp_error *err);

#endif
