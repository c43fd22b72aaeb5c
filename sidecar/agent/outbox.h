/*
 * Batches that are not acknowledged yet, in order, bounded: in memory, or in the spool, of which
 * only what there is is kept here. A batch is sent once per connection and kept, unchanged, until
 * the operator has taken or refused it. No I/O.
 */
#ifndef PP_AGENT_OUTBOX_H
#define PP_AGENT_OUTBOX_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PP_OUTBOX_BYTES = 16 << 20,   /**< in memory */
    PP_OUTBOX_SPOOLED = 64 << 20, /**< on the disk */
    PP_OUTBOX_IN_FLIGHT = 32,     /**< half of what the operator allows */
};

typedef struct pp_outbox pp_outbox;

typedef struct pp_outbox_item {
    int64_t seq;
    int64_t events;
    const char *text; /**< NULL: it is in the spool */
    size_t length;    /**< bytes that it takes, in memory or on the disk */
    bool first;       /**< it is sent for the first time */
} pp_outbox_item;

/** Told of each spooled batch that leaves, acknowledged, refused or for want of room. */
typedef void (*pp_outbox_gone)(void *user, int64_t seq);

/** An outbox for so many bytes in memory and so many in the spool; NULL where memory is out. */
pp_outbox *pp_outbox_new(size_t max_bytes, size_t max_spooled, pp_outbox_gone gone, void *user);
void pp_outbox_free(pp_outbox *outbox);

/**
 * Adds a batch and takes over its text (from malloc), also on failure; NULL: it is in the spool,
 * and leaves it on failure. Where there is no room the oldest of its kind go; their events are
 * counted (pp_outbox_take_dropped).
 */
int pp_outbox_add(pp_outbox *outbox, int64_t seq, int64_t events, char *text, size_t length,
                  pp_error *err);

/** The next batch to send on this connection, marked as sent; false: none, or enough in flight. */
bool pp_outbox_next(pp_outbox *outbox, pp_outbox_item *ret);

/** Forgets an acknowledged or refused batch; false where it is not here (any more). */
bool pp_outbox_remove(pp_outbox *outbox, int64_t seq);

/** A new connection: everything is to be sent again. */
void pp_outbox_rewind(pp_outbox *outbox);

/** Batches that wait for their acknowledgement. */
size_t pp_outbox_count(const pp_outbox *outbox);

/** Events dropped for want of room since this was asked last. */
int64_t pp_outbox_take_dropped(pp_outbox *outbox);

#endif
