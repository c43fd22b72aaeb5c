/*
 * The agent's side of one ring (sidecar/ring.h). Everything in the file may have been written by a
 * hostile or broken process: it is read by copies, checked, and never mapped for reading.
 */
#ifndef PP_AGENT_READER_H
#define PP_AGENT_READER_H

#include "common/error.h"
#include "sidecar/ring.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_reader pp_reader;

/** Opens and checks a ring. Fails where it is not one, or of another build. */
int pp_reader_open(const char *path, pp_reader **ret, pp_error *err);

/** Closes it; NULL is allowed. */
void pp_reader_free(pp_reader *reader);

/** Reads the header anew. Fails where the file is damaged; then only freeing makes sense. */
int pp_reader_refresh(pp_reader *reader, pp_error *err);

/** The header as last read: texts are NUL-terminated, counts within bounds, `cost` from 0 to 2^53
 * and never less than before. */
const pp_ring_header *pp_reader_header(const pp_reader *reader);

/**
 * Takes up to max marks out of the ring; returns how many, or -1. The header must have been
 * refreshed: only marks that it counts are taken.
 */
long pp_reader_take(pp_reader *reader, pp_mark *marks, size_t max, pp_error *err);

/** Reads one layer (id from 1 to the header's layer_count); its texts are NUL-terminated. */
int pp_reader_layer(pp_reader *reader, uint32_t id, pp_ring_layer *ret, pp_error *err);

/** Tells the hook the mode and wakes its thread; nothing is done where it has it already. */
int pp_reader_set_mode(pp_reader *reader, pp_ring_mode mode, pp_error *err);

/** Tells the hook that the agent is there; to be said once a second. */
int pp_reader_beat(pp_reader *reader, pp_error *err);

/** Whether the process that made the ring is gone. */
bool pp_reader_gone(const pp_reader *reader);

#endif
