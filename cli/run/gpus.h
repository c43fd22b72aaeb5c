/* The counters of the GPUs that a training uses, read while it runs. */
#ifndef PP_CLI_RUN_GPUS_H
#define PP_CLI_RUN_GPUS_H

#include "estimate/activity/activity_builder.h"
#include "sidecar/gpu/nvml.h"

#include <jansson.h>
#include <sys/types.h>

typedef struct pp_gpus pp_gpus;

/** Never fails but for memory: without NVML there are no counters, and `why` says so. */
pp_gpus *pp_gpus_new(void);
/** NULL is allowed. */
void pp_gpus_free(pp_gpus *gpus);

/** The training, by its first process: what else uses the GPUs is told then. */
void pp_gpus_watch(pp_gpus *gpus, pid_t training);

/** Begins to read a GPU, unless it is read already. */
void pp_gpus_use(pp_gpus *gpus, const char *uuid);

/** Reads all of them; to be called every PP_NVML_WINDOW_NS. */
int pp_gpus_read(pp_gpus *gpus, pp_activity_builder *to, pp_error *err);

/** What is known of a GPU besides its metrics, as the member `device` of `gpu`, whose member `gpu`
 * is its UUID: mean power, energy, clock of its SMs and how often that was seen to change; and
 * processes that are not the training's and had a context on it. */
int pp_gpus_describe(const pp_gpus *gpus, json_t *gpu, pp_error *err);

/** Why counters are missing; "" where none is. */
const char *pp_gpus_why(const pp_gpus *gpus);

#endif
