/*
 * What a run measured, beside its results: batches.jsonl has the agent's batches as they are on the
 * wire (docs/wire.md), one in a line, and samples.jsonl the GPUs' samples. Both are enough to solve
 * the run again; a file may have been written by anybody, and is believed nothing.
 */
#ifndef PP_CLI_RECORDING_RECORDING_H
#define PP_CLI_RECORDING_RECORDING_H

#include "common/wire.h"
#include "estimate/activity/activity_builder.h"

typedef struct pp_recording pp_recording;

/**
 * Opens batches.jsonl, and makes the folder where it is missing. What lies in it stays as it is: a
 * run may still not start. Refuses one whose results.json is no run's.
 */
int pp_recording_open(const char *folder, pp_recording **ret, pp_error *err);

/** The run has started: results of an earlier one go. A failure is kept for the end. */
void pp_recording_begin(pp_recording *recording);

/** Adds a batch; sets its texts and number where it has none. A failure is kept for the end. */
void pp_recording_add(pp_recording *recording, pp_wire_batch *batch);

/** Writes the samples, ends the files and frees the recording. NULL is allowed. One that has not
 * begun leaves the folder as it was, and needs no activity. */
int pp_recording_end(pp_recording *recording, const pp_activity *activity, pp_error *err);

/** Borrows the batch for the call. */
typedef int (*pp_recording_batch_fn)(void *user, const pp_wire_batch *batch, pp_error *err);

/**
 * Hands on each batch of the folder, checked. Errors name file, line and field. Where there is no
 * results.json yet, the run may still write: a last line that has no end is left out.
 */
int pp_recording_batches(const char *folder, pp_recording_batch_fn each, void *user, pp_error *err);

/** Adds the folder's samples to the builder. */
int pp_recording_samples(const char *folder, pp_activity_builder *to, pp_error *err);

/** A UUID made from what the folder's files hold (results.json too): 36 characters and a NUL. */
int pp_recording_uid(const char *folder, char ret[37], pp_error *err);

#endif
