/* What a GPU is, by its driver's word, for people. */
#ifndef PP_CLI_RECORDING_CHIP_H
#define PP_CLI_RECORDING_CHIP_H

#include "common/error.h"
#include "estimate/activity/activity.h"

#include <jansson.h>

/** Adds to one of results.json's gpus what it is, where a process that used it says so: `gpuModel`,
 * as its driver calls it, and `chip`. */
int pp_chip_describe(const pp_activity *activity, json_t *gpu, pp_error *err);

#endif
