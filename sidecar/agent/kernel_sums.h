/*
 * Which kernels ran: of each name, layer and phase how many and for how long, over the steps since
 * that was told last. No I/O, no clock.
 */
#ifndef PP_AGENT_KERNEL_SUMS_H
#define PP_AGENT_KERNEL_SUMS_H

#include "common/error.h"
#include "common/wire.h"
#include "sidecar/agent/kernels.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_kernel_sums pp_kernel_sums;

/** NULL where memory is out. */
pp_kernel_sums *pp_kernel_sums_new(void);
void pp_kernel_sums_free(pp_kernel_sums *sums);

/** Bytes of the ring's names that it has: the place of the next one. */
uint32_t pp_kernel_sums_named(const pp_kernel_sums *sums);

/** Takes names as the ring has them, from there on; what is of a name that is not whole yet waits
 * for the rest of it. */
int pp_kernel_sums_name(pp_kernel_sums *sums, const char *bytes, size_t n, pp_error *err);

/** Takes a kernel of the step that comes next; for pp_kernels_watch. */
void pp_kernel_sums_add(pp_kernel_sums *sums, const pp_kernels_placed *kernel);

/** The step came: its kernels count, or are forgotten. */
void pp_kernel_sums_step(pp_kernel_sums *sums, bool counts);

/** Rows at most: with more, nothing of a capture is told. */
#define PP_KERNEL_SUMS_MAX 65536

/**
 * Copies what was counted since pp_kernel_sums_clear, from row *at on, 0 at first, as far as it has
 * room in so many bytes of text, with the layers that it names; *ret then owns it. *at becomes the
 * place of the next row, SIZE_MAX where that was all. The first part has the steps. Rows are in
 * order of layer, phase, number of the name.
 */
int pp_kernel_sums_copy(pp_kernel_sums *sums, size_t room, size_t *at, pp_wire_kernels *ret,
                        pp_error *err);

/** Whether there were too many rows to tell any. */
bool pp_kernel_sums_over(const pp_kernel_sums *sums);

/** Steps that were counted since then. */
int64_t pp_kernel_sums_steps(const pp_kernel_sums *sums);

/** It was told: sums begin at 0 again. Names stay. */
void pp_kernel_sums_clear(pp_kernel_sums *sums);

#endif
