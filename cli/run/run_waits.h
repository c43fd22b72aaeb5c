/*
 * Where the host waited, summed over a run's batches (docs/wire.md) and told as part of its
 * results.
 */
#ifndef PP_CLI_RUN_RUN_WAITS_H
#define PP_CLI_RUN_RUN_WAITS_H

#include "common/wire.h"

#include <jansson.h>

enum {
    PP_RUN_WAITS_TOLD = 100,         /**< rows that results tell apart */
    PP_RUN_WAITS_MAX_ROWS = 1 << 16, /**< told apart in one run, by their lines */
};

typedef struct pp_run_waits pp_run_waits;

/** NULL where memory is out. */
pp_run_waits *pp_run_waits_new(void);
/** NULL is allowed. */
void pp_run_waits_free(pp_run_waits *waits);

/** Adds a batch's waits and the steps that they are of. What passes the limit above is added up
 * without its line. The batch stays the caller's. */
int pp_run_waits_add(pp_run_waits *waits, const pp_wire_batch *batch, pp_error *err);

/**
 * Adds to a run's results `hostWaits`: `steps` that they are of, and `calls`, most time first; what
 * is not told apart is the last, with an empty `call`. Nothing where the host never waited.
 */
int pp_run_waits_describe(const pp_run_waits *waits, json_t *results, pp_error *err);

#endif
