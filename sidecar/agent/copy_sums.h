/*
 * Copies and fills: of each type, layer and phase how many, of how many bytes and for how long,
 * over the steps since that was told last. No I/O, no clock.
 */
#ifndef PP_AGENT_COPY_SUMS_H
#define PP_AGENT_COPY_SUMS_H

#include "common/error.h"
#include "common/wire.h"
#include "sidecar/agent/kernels.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_copy_sums pp_copy_sums;

/** Rows that are told apart by layer and phase; with more, new ones are of none. */
#define PP_COPY_SUMS_MAX 8192

/** NULL where memory is out. */
pp_copy_sums *pp_copy_sums_new(void);
void pp_copy_sums_free(pp_copy_sums *sums);

/** Takes a copy of the step that comes next. */
void pp_copy_sums_add(pp_copy_sums *sums, const pp_kernels_placed *copy);

/** The step came: its copies count, or are forgotten. */
void pp_copy_sums_step(pp_copy_sums *sums, bool counts);

/** Whether there is something to tell. */
bool pp_copy_sums_due(const pp_copy_sums *sums);

/**
 * Copies what was counted since pp_copy_sums_clear, from row *at on, 0 at first, as far as it has
 * room in so many bytes of text, with the layers that it names; *ret then owns it. *at becomes the
 * place of the next row, SIZE_MAX where that was all. The first part has the steps; nothing where
 * no copy was ever counted. Rows are in order of layer, phase, type, memory.
 */
int pp_copy_sums_copy(pp_copy_sums *sums, size_t room, size_t *at, pp_wire_copies *ret,
                      pp_error *err);

/** It was told: sums begin at 0 again. */
void pp_copy_sums_clear(pp_copy_sums *sums);

/** Another session: as if nothing had been counted. */
void pp_copy_sums_forget(pp_copy_sums *sums);

#endif
