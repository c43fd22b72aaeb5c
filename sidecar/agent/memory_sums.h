/*
 * What torch's CUDA allocator had allocated in single steps: of each layer and phase the most bytes
 * while it ran, and what it left. No I/O, no clock.
 */
#ifndef PP_AGENT_MEMORY_SUMS_H
#define PP_AGENT_MEMORY_SUMS_H

#include "common/error.h"
#include "common/wire.h"
#include "sidecar/agent/pairing.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_memory_sums pp_memory_sums;

/** Rows that are told apart by layer and phase; with more, new ones are of none. */
#define PP_MEMORY_SUMS_MAX 8192

/** NULL where memory is out. */
pp_memory_sums *pp_memory_sums_new(void);
void pp_memory_sums_free(pp_memory_sums *sums);

/**
 * Takes a step with its levels, none: it is not known. What lies between two of them is of the
 * piece that is open there, the one that began last where several threads have one; between two of
 * the same time, of the backward that ends there.
 */
int pp_memory_sums_add(pp_memory_sums *sums, const pp_step *step, pp_error *err);

/** Whether there is something to tell. */
bool pp_memory_sums_due(const pp_memory_sums *sums);

/** As pp_copy_sums_copy; rows are in order of layer and phase. */
int pp_memory_sums_copy(pp_memory_sums *sums, size_t room, size_t *at, pp_wire_memory *ret,
                        pp_error *err);

/** It was told, or the session is another: sums begin anew. */
void pp_memory_sums_clear(pp_memory_sums *sums);

#endif
