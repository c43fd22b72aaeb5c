/* What a folder's batches say that its results do not: formats/training.h. */
#ifndef PP_CLI_RECORDING_RECORDED_H
#define PP_CLI_RECORDING_RECORDED_H

#include "cli/formats/training.h"
#include "common/error.h"

/** Reads batches.jsonl. The order is of the first steps of the first process that were kept one by
 * one. On success *ret is to be freed by pp_recorded_done. */
int pp_recorded_read(const char *folder, pp_training_recorded *ret, pp_error *err);

/** Frees what it owns; a zeroed one too. */
void pp_recorded_done(pp_training_recorded *recorded);

#endif
