/*
 * Gathers whole steps of one capture into self-contained batches of the wire format. No I/O.
 * Times come in as the marks' and leave as ns since 1970, by the offset of their capture.
 */
#ifndef PP_AGENT_BATCH_H
#define PP_AGENT_BATCH_H

#include "common/error.h"
#include "common/wire.h"
#include "sidecar/agent/pairing.h"

#include <stdbool.h>

enum {
    PP_BATCH_INTERVALS = 12000, /**< more steps are not added past it: well below 1 MiB of text */
    PP_BATCH_STEPS = 5000,
    PP_BATCH_RATE = 2000,   /**< intervals per second of capture above which a grid is sent */
    PP_BATCH_CELLS = 25000, /**< with their kernels' times still below 1 MiB */
};

typedef struct pp_batcher pp_batcher;

pp_batcher *pp_batcher_new(void);
void pp_batcher_free(pp_batcher *batcher);

/** Starts a capture at `start` (marks' clock); `offset` turns it into ns since 1970. */
void pp_batcher_start(pp_batcher *batcher, int64_t id, int64_t start, int64_t offset);

/** In each capture the first so many steps go as intervals, whatever their rate: a timeline. */
void pp_batcher_timeline(pp_batcher *batcher, int64_t steps);

/** The capture is a dwell, where the number is not 0: it has no timeline. */
void pp_batcher_dwell(pp_batcher *batcher, int64_t number, bool background);

/** Goes on as another capture from the last cut on: what was in between is lost. */
void pp_batcher_renumber(pp_batcher *batcher, int64_t id);

/** Whether a step of so many pieces still fits, and is not the first after the timeline; where not,
 * cut first. */
bool pp_batcher_fits(const pp_batcher *batcher, size_t pieces);

/** Adds a step. */
int pp_batcher_add(pp_batcher *batcher, const pp_step *step, pp_error *err);

/** Steps gathered since the last cut. */
size_t pp_batcher_steps(const pp_batcher *batcher);

/** Finds a layer by id; fills in name, type and parameters (texts owned by the callee). */
typedef int (*pp_batcher_layer)(void *user, uint32_t id, pp_wire_layer *ret, pp_error *err);

/**
 * Fills the batch's capture, layers, steps, and intervals or grid, which it then owns, and begins
 * the next batch where this one ends. `last`: the capture ends here. *ret_events: pieces in it but
 * those that go on. Where it fails with PP_ERR_TOO_LARGE what was gathered is gone and the capture
 * goes on.
 */
int pp_batcher_cut(pp_batcher *batcher, bool last, pp_batcher_layer layer, void *user,
                   pp_wire_batch *batch, int64_t *ret_events, pp_error *err);

#endif
