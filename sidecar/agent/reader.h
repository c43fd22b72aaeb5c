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

/** Up to where a ring's marks have been put into batches, and what these have told of it. */
typedef struct pp_place {
    const char *ring; /**< the ring's file name */
    uint64_t tail;    /**< marks before this one need not be read again */
    pp_ring_told told;
} pp_place;

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
 * Copies up to max marks that have not been taken yet; returns how many, or -1. The header must
 * have been refreshed: only marks that it counts are taken. They keep their room in the ring until
 * pp_reader_release, so that an agent that comes after this one finds them.
 */
long pp_reader_take(pp_reader *reader, pp_mark *marks, size_t max, pp_error *err);

/** Marks taken so far, since the ring was made: the position of the next one. */
uint64_t pp_reader_taken(const pp_reader *reader);

/**
 * Gives the hook the room of the marks before `tail`, and tells the next agent to begin there, and
 * what was told. Nothing happens where `tail` was given before, or was not taken yet.
 */
int pp_reader_release(pp_reader *reader, uint64_t tail, const pp_ring_told *told, pp_error *err);

/** What agents so far have told of it. */
const pp_ring_told *pp_reader_told(const pp_reader *reader);

/** Releases a ring that nobody has open up to `place`, where it is possible and further than now,
 * or tells more. */
int pp_reader_resume(const char *directory, const pp_place *place, pp_error *err);

/** The same for kernels, which leave the ring at once. */
long pp_reader_take_kernels(pp_reader *reader, pp_kernel *kernels, size_t max, pp_error *err);

/**
 * Copies names of kernels that are written by now, from byte `from` of them on, `max` bytes at
 * most. Returns how many, or -1. A name that a kernel has is there once the kernel was taken.
 */
long pp_reader_names(pp_reader *reader, uint32_t from, char *out, size_t max, pp_error *err);

/** Kernels ever taken, by agents before this one too. */
uint64_t pp_reader_kernels_taken(const pp_reader *reader);

/** Reads one layer (id from 1 to the header's layer_count); its texts are NUL-terminated. */
int pp_reader_layer(pp_reader *reader, uint32_t id, pp_ring_layer *ret, pp_error *err);

/** Reads one line of the program (from 1 on) that marks name; its file is NUL-terminated. */
int pp_reader_site(const pp_reader *reader, uint32_t number, pp_ring_site *ret, pp_error *err);

/** Reads a compiled graph (from 0 on, below the header's graph_count), and its launches, which are
 * in the table then: PP_RING_LAUNCHES at most. */
int pp_reader_graph(const pp_reader *reader, uint32_t at, pp_ring_graph *ret, pp_error *err);
int pp_reader_launches(const pp_reader *reader, const pp_ring_graph *graph, pp_ring_launch *ret,
                       pp_error *err);

/** Tells the hook the mode and wakes its thread; nothing is done where it has it already. */
int pp_reader_set_mode(pp_reader *reader, pp_ring_mode mode, pp_error *err);

/** Tells the hook which session the control file is of; the mode says when to act on it. */
int pp_reader_set_session(const pp_reader *reader, uint32_t session, pp_error *err);

/** Tells the hook that the agent is there; to be said once a second. */
int pp_reader_beat(pp_reader *reader, pp_error *err);

/** Whether the process that made the ring is gone. */
bool pp_reader_gone(const pp_reader *reader);

#endif
