/*
 * What no module of a step does, but its loss and autograd's engine: pure policy of pairing.c.
 *
 * Of the loss, forward is what a thread does outside of all pieces between the return of the last
 * model's forward and backward's begin; and backward is what the engine does before the first
 * layer's backward. `gradients` is what the engine does outside of pieces from there to its end:
 * nodes run the last made first, so what is left there is no node's, but sums of gradients where
 * branches meet, and what adds them to parameters.
 *
 * The hook says at backward's begin which of these can be told (PP_MARK_LOSS; the layer of
 * gradients, or none). What a forward does that is run again outside of a checkpoint's own layer is
 * told by nobody, nor what a backward within backward does: that is in none of these.
 *
 * What a range of the program's does is the range's, forward and backward: it is cut out of a loss.
 */
#ifndef PP_AGENT_OUTSIDE_H
#define PP_AGENT_OUTSIDE_H

#include "sidecar/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PP_OUTSIDE_THREADS = 256,
    PP_OUTSIDE_KEPT = 16, /* parts of one loss; of one with more nothing is told */
};

typedef struct pp_outside_part {
    int64_t start, end;
    uint32_t layer;
    uint8_t phase;
    bool goes_on;
} pp_outside_part;

/** Parts that are told only once it is known whose they are. */
typedef struct pp_outside_kept {
    struct {
        int64_t start, end;
    } parts[PP_OUTSIDE_KEPT];
    size_t count;
    bool too_many;
} pp_outside_kept;

typedef enum pp_outside_open {
    PP_OUTSIDE_NONE,
    PP_OUTSIDE_RANGE, /**< ranges that the program marks alone: a loss may begin in them */
    PP_OUTSIDE_PIECE,
} pp_outside_open;

typedef struct pp_outside {
    bool open[PP_OUTSIDE_THREADS]; /* the thread is within a piece */
    unsigned busy;                 /* threads that are */

    /* Behind the last model's forward, in its thread. */
    bool returned;
    uint8_t thread;
    int64_t forward_since; /* -1: a piece is open in that thread */
    pp_outside_kept forward;

    /* While the engine runs. */
    unsigned engines; /* that have begun and not ended: a backward within a backward */
    bool tells_loss;
    bool begun; /* a layer's backward has */
    bool held;  /* what runs until a backward within this one has ended is not known */
    bool any;   /* gradients were told */
    uint32_t loss, gradients; /* their layers; 0: not told */
    int64_t since;            /* -1: a piece is open, or it is not known what runs */
    pp_outside_kept backward;

    /* What the last call told, for the caller to take. */
    pp_outside_part told[PP_OUTSIDE_KEPT + 1];
    size_t told_count;
} pp_outside;

/** A step or a capture begins; no piece is open in any thread. */
void pp_outside_clear(pp_outside *o);

/** The engine begins or ends: a mark with PP_MARK_ENGINE. No piece of backward is open then. */
void pp_outside_engine(pp_outside *o, const pp_mark *mark, int64_t time);

/** Any other begin or end; `open`: what is open in its thread behind it. `prolonged`: it made the
 * thread's last piece longer. */
void pp_outside_mark(pp_outside *o, const pp_mark *mark, int64_t time, pp_outside_open open,
                     bool prolonged);

/** No piece is open in this thread any more, without a mark. */
void pp_outside_left(pp_outside *o, uint8_t thread);

#endif
