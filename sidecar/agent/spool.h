/*
 * Batches that are not acknowledged yet, as files in a folder that outlives the agent's process:
 * one agent that is killed leaves them to the next, which sends them unchanged. A file is written
 * under another name and renamed, so that it is whole or not there; nothing is synchronised to the
 * disk, since the node does not go down with a process, and where it goes down the training is over
 * too.
 *
 * A file is one line of JSON, what the batch is and up to where its marks reach in their ring, and
 * the batch as it goes over the wire. Only agents write here; what is read is checked all the same.
 */
#ifndef PP_AGENT_SPOOL_H
#define PP_AGENT_SPOOL_H

#include "common/error.h"
#include "sidecar/agent/reader.h"

#include <stddef.h>
#include <stdint.h>

#define PP_SPOOL_DIRECTORY "/var/spool/precisionprobe"

/** A file of that name stays where it is found: this agent, or one before it, has left its last
 * words. */
#define PP_SPOOL_SAID "clock-said"

typedef struct pp_spool pp_spool;

typedef struct pp_spool_batch {
    int64_t seq;
    int64_t events;
    const char *instance; /**< of the agent that made it */
    pp_place place;
    const char *text;
    size_t length;
} pp_spool_batch;

/** `directory` is copied; nothing is looked at yet. NULL where memory is out. */
pp_spool *pp_spool_new(const char *directory);
/** NULL is allowed. The files stay. */
void pp_spool_free(pp_spool *spool);

/** Called with each batch that was found; `size` as of pp_spool_put. Borrowed until it returns. */
typedef void (*pp_spool_found)(void *user, const pp_spool_batch *batch, size_t size);

/**
 * Finds the batches that agents before this one have left, oldest first, by their files' first
 * lines. What is no such file is removed and named in the log. Fails where the folder cannot be
 * read.
 */
int pp_spool_load(pp_spool *spool, pp_spool_found found, void *user, pp_error *err);

/** Writes a batch; *ret_size: bytes that it takes on the disk, in whole blocks. */
int pp_spool_put(pp_spool *spool, const pp_spool_batch *batch, size_t *ret_size, pp_error *err);

/** Reads a batch; what *ret points to is valid until the next call on this spool. */
int pp_spool_get(pp_spool *spool, int64_t seq, pp_spool_batch *ret, pp_error *err);

/** Whether it is a batch as the operator will have it: to be asked before one is sent that was
 * found, since it takes some ms. */
int pp_spool_check(const pp_spool_batch *batch, pp_error *err);

/** Removes a batch; one that is not there is no matter. */
void pp_spool_remove(pp_spool *spool, int64_t seq);

#endif
