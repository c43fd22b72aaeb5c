/*
 * The shared memory between the sampler (beside the training, in its container) and the agent: one
 * file per sampler in the ring directory, with samples of a GPU's performance monitors.
 *
 * - The sampler makes `.new-<id>-samples`, reserves its pages, fills in the header, takes
 * flock(LOCK_EX) on it and renames it to `<id>.samples`. `<id>` is that of the training process's
 * ring; where several of its GPUs are sampled each has a file, `<id>-<number>.samples` by CUDA's
 * number of it. On its way out it removes the file; the lock falls when it is gone, whatever ended
 * it.
 * - The agent reads with pread() and writes with pwrite(), and checks what it reads, as with a ring
 *   (ring.h).
 * - Samples flow through a single-producer single-consumer queue: `head` is the sampler's, `tail`
 *   the agent's. Where the queue is full the sampler drops samples and counts them.
 *
 * Both sides are compiled from it and from the table of metrics, and `PP_SAMPLES_VERSION` guards
 * against two sides of different builds.
 */
#ifndef PP_SIDECAR_SAMPLES_H
#define PP_SIDECAR_SAMPLES_H

#include "common/metric.h"

#include <stddef.h>
#include <stdint.h>

#define PP_SAMPLES_MAGIC UINT64_C(0x314c504d53505000) /* "\0PPSMPL1" */
#define PP_SAMPLES_SUFFIX ".samples"

enum {
    PP_SAMPLES_VERSION = 4,
    PP_SAMPLES_COUNT = 131072,                    /**< a power of two: 3.3 s of 25 us */
    PP_SAMPLES_METRICS = PP_METRIC_SAMPLED_COUNT, /**< by pp_metric */
    PP_SAMPLES_TEXT = 256,
    PP_SAMPLES_NAME = 96,
};

/** What the agent asks of the sampler. */
typedef enum pp_samples_want {
    PP_SAMPLES_REST = 0,   /**< nothing is sampled */
    PP_SAMPLES_SAMPLE = 1, /**< until it says otherwise, or the sampler cannot go on */
    PP_SAMPLES_LEAVE = 2,  /**< the session is over: close all and end */
} pp_samples_want;

/** What the sampler does. */
typedef enum pp_samples_state {
    PP_SAMPLES_OPENING = 0, /**< ... and choosing the period */
    PP_SAMPLES_RESTING = 1,
    PP_SAMPLES_SAMPLING = 2, /**< samples come */
    PP_SAMPLES_ENDING = 3,   /**< those of the capture that are still evaluated come */
    PP_SAMPLES_FAILED = 4,   /**< for good: `why` says it */
} pp_samples_state;

/** One sample, 40 bytes. */
typedef struct pp_samples_one {
    int64_t start; /**< ns of the GPU's own clock */
    int64_t end;
    float values[PP_SAMPLES_METRICS]; /**< shares of 1, of the SMs' clock GHz; NaN: not offered */
} pp_samples_one;

/** The start of the file. Each side writes only its own part. `tail` is believed only where
 * `tail_check` is its complement (ring.h says why). */
typedef struct pp_samples_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_size; /**< sizeof(pp_samples_header) */
    uint32_t sample_size;
    uint32_t sample_count;
    uint32_t
        period; /**< ns; the sampler may make it longer, where its processor does not keep up */
    uint32_t reserved0;
    char gpu[64];                                      /**< UUID */
    char chip[64];                                     /**< "GH100" */
    char sources[PP_SAMPLES_METRICS][PP_SAMPLES_NAME]; /**< CUPTI's names; "": not offered */
    char why[PP_SAMPLES_TEXT];                         /**< of FAILED */

    /* Written by the sampler. */
    _Alignas(64) uint64_t head; /**< samples ever written */
    uint64_t lost;              /**< samples dropped here for want of room */
    uint64_t broken;            /**< captures that CUPTI lost samples of, or that ended early */
    uint64_t capture;           /**< number of the latest capture, from 1; written after ... */
    uint64_t first;             /**< ... the head at which its samples begin */
    int64_t offset; /**< ns: the host's CLOCK_MONOTONIC less the samples' clock, as the least that
                       was seen in this capture: what a sample waited until it was decoded is in it.
                       INT64_MAX: none seen yet */
    int64_t cpu;    /**< ns of processors that the sampler has used */
    uint32_t state; /**< a pp_samples_state */
    uint32_t reserved1;

    /* Written by the agent. */
    _Alignas(64) uint64_t tail; /**< samples ever read, and its complement */
    uint64_t tail_check;
    uint32_t want; /**< a pp_samples_want */
    uint32_t beat; /**< changes once a second while the agent is there */
} pp_samples_header;

_Static_assert(sizeof(pp_samples_one) == 40, "the layout is shared between builds");
_Static_assert(offsetof(pp_samples_header, tail) - offsetof(pp_samples_header, head) == 64,
               "each side writes to lines of its own");
_Static_assert(sizeof(pp_samples_header) % 64 == 0, "samples start on a line of their own");

#define PP_SAMPLES_AT sizeof(pp_samples_header)
#define PP_SAMPLES_SIZE (PP_SAMPLES_AT + PP_SAMPLES_COUNT * sizeof(pp_samples_one))

#endif
