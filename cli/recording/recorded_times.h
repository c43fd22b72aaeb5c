/* How sure the times of results are whose file does not say it: from the batches beside it. */
#ifndef PP_CLI_RECORDING_RECORDED_TIMES_H
#define PP_CLI_RECORDING_RECORDED_TIMES_H

#include "common/error.h"

#include <jansson.h>

/** Adds what results/item_spread.h and chip.h tell to each of the results' gpus, whose rows are put
 * together to `depth` (0: they are not). Nothing where the folder has no batches, or the results
 * tell it themselves. */
int pp_recorded_times(const char *folder, int depth, json_t *results, pp_error *err);

#endif
