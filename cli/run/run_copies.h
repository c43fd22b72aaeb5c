/*
 * Copies and fills on the GPU, summed over a run's batches (docs/wire.md) and told as part of its
 * results.
 */
#ifndef PP_CLI_RUN_RUN_COPIES_H
#define PP_CLI_RUN_RUN_COPIES_H

#include "common/wire.h"

#include <jansson.h>

enum {
    PP_RUN_COPIES_TOLD = 100,         /**< rows that results tell apart */
    PP_RUN_COPIES_MAX_ROWS = 1 << 16, /**< told apart in one run, by layer and phase */
};

typedef struct pp_run_copies pp_run_copies;

/** NULL where memory is out. */
pp_run_copies *pp_run_copies_new(void);
/** NULL is allowed. */
void pp_run_copies_free(pp_run_copies *copies);

/** Adds a batch's copies and the steps that they are of. What passes the limit above is added up
 * without layer and phase. The batch stays the caller's. */
int pp_run_copies_add(pp_run_copies *copies, const pp_wire_batch *batch, pp_error *err);

/**
 * Adds to a run's results `copies`: `steps` that they are of, and `items`, most time first; what is
 * not told apart is the last, with an empty `type`. Nothing where there were none.
 */
int pp_run_copies_describe(const pp_run_copies *copies, json_t *results, pp_error *err);

#endif
