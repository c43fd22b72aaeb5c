/*
 * Which GPU kernels ran in each layer and phase, summed over a run's batches (docs/wire.md) and
 * told as part of its results.
 */
#ifndef PP_CLI_RUN_RUN_KERNELS_H
#define PP_CLI_RUN_RUN_KERNELS_H

#include "common/wire.h"
#include "estimate/activity/activity.h"

#include <jansson.h>

enum {
    PP_RUN_KERNELS_OF_ITEM = 20, /**< that results tell of one item by name */
    PP_RUN_KERNELS_MAX_ROWS =
        1 << 18, /**< told apart in one run: of a process, layer, phase and name */
    PP_RUN_KERNELS_MAX_TEXT = 32 << 20, /**< bytes of their names */
};

typedef struct pp_run_kernels pp_run_kernels;

/** NULL where memory is out. */
pp_run_kernels *pp_run_kernels_new(void);
/** NULL is allowed. */
void pp_run_kernels_free(pp_run_kernels *kernels);

/** Adds a batch's kernels and the steps that they ran in; nothing of replays. What passes the
 * limits above is added up without its name. The batch stays the caller's. */
int pp_run_kernels_add(pp_run_kernels *kernels, const pp_wire_batch *batch, pp_error *err);

/**
 * Adds to a GPU's results (results/results.h) the kernels of the processes that used it:
 * `kernelSteps`, the steps that they are of, and `kernels` of each item but `idle`, most time
 * first. Those that are not told apart have the name "" and come last. Nothing where none are
 * known.
 */
int pp_run_kernels_describe(const pp_run_kernels *kernels, const pp_activity *activity, json_t *gpu,
                            pp_error *err);

#endif
