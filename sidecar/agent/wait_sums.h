/*
 * Where the host waits: of each call, line, layer and phase how often and for how long, over the
 * steps since that was told last. No I/O, no clock.
 */
#ifndef PP_AGENT_WAIT_SUMS_H
#define PP_AGENT_WAIT_SUMS_H

#include "common/error.h"
#include "common/wire.h"
#include "sidecar/agent/pairing.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_wait_sums pp_wait_sums;

/** Rows that are told apart by their lines; with more, and twice as many at most, new ones are of
 * no line. */
#define PP_WAIT_SUMS_MAX 4096

/** NULL where memory is out. */
pp_wait_sums *pp_wait_sums_new(void);
void pp_wait_sums_free(pp_wait_sums *sums);

/** Takes a step with its waits. */
void pp_wait_sums_add(pp_wait_sums *sums, const pp_step *step);

/** What is at a site of the ring; -1 with an error. */
typedef int (*pp_wait_site_fn)(void *user, uint32_t site, pp_ring_site *ret, pp_error *err);

/**
 * Copies what was counted since pp_wait_sums_clear, from row *at on, 0 at first, as far as it has
 * room in so many bytes of text, with the layers that it names; *ret then owns it. *at becomes the
 * place of the next row, SIZE_MAX where that was all. The first part has the steps; nothing where
 * no wait was ever counted. Rows are in order of layer, phase, call, site.
 */
int pp_wait_sums_copy(pp_wait_sums *sums, size_t room, size_t *at, pp_wait_site_fn site, void *user,
                      pp_wire_waits *ret, pp_error *err);

/** Whether there is something to tell. */
bool pp_wait_sums_due(const pp_wait_sums *sums);

/** Waits that are in no row: there were too many of these, or no memory. */
int64_t pp_wait_sums_untold(const pp_wait_sums *sums);

/** It was told: sums begin at 0 again. */
void pp_wait_sums_clear(pp_wait_sums *sums);

/** Another session: as if nothing had been counted. */
void pp_wait_sums_forget(pp_wait_sums *sums);

#endif
