/*
 * PM sampling of one training process (docs/sampling.md): the GPU's performance monitors are
 * sampled during a part of each capture by the sampler beside the training (sidecar/samples.h), its
 * samples are brought together with the capture's kernels, and all windows so far are solved.
 * Joining and solving take up to a second of a processor, in a thread that goes after everything
 * else.
 *
 * Files and a thread, but no loop and no clock. A sampler that does not come, or gives up, ends
 * PM sampling and nothing else: `pp_monitor_why` says so.
 */
#ifndef PP_AGENT_MONITOR_H
#define PP_AGENT_MONITOR_H

#include "estimate/sampling/solve.h"
#include "sidecar/agent/kernels.h"
#include "sidecar/samples.h"

typedef struct pp_monitor pp_monitor;

/** `ring`: path of the process's ring, beside which the sampler's file will be; `period`: ns
 * between samples that were asked for; the sampler may choose a longer one. `keep`: the folder that
 * each window's samples and kernels are kept in (window_file.h), borrowed; NULL: nowhere. */
int pp_monitor_new(const char *ring, int64_t period, const char *keep, pp_monitor **ret,
                   pp_error *err);
/** It is one of several GPUs of the process that have a sampler each: the one of this number in
 * CUDA. Before any sampler was found. */
void pp_monitor_aim(pp_monitor *monitor, const char *ring, int device);
/** Waits for its thread. The sampler leaves, or rests until an agent after this one asks it. NULL
 * is allowed. */
void pp_monitor_free(pp_monitor *monitor, bool leave);

typedef struct pp_monitor_input {
    int64_t now;      /**< ns, monotonic */
    int64_t realtime; /**< ns: CLOCK_REALTIME less that */
    unsigned parts;   /**< GPUs of the process that are sampled: they share what it may take */
    bool wanted;      /**< a capture is about to begin, or runs; not one without kernels */
    bool running;     /**< it runs: kernels are recorded */
    bool over;        /**< no capture will come any more: the sampler may leave */
    const char *hook; /**< what the ring says of the sampler: "", "started", or why there is none */
} pp_monitor_input;

typedef enum pp_monitor_advice {
    PP_MONITOR_GO,   /**< a capture may begin */
    PP_MONITOR_WAIT, /**< one that has not begun should wait, for 25 s at most: samples are about to
                        come */
    PP_MONITOR_STOP, /**< nor should one go on: the sampler was started within the last 6 s, and the
                        capture would be paid for without samples */
} pp_monitor_advice;

/** Reads samples and tells the sampler what is wanted. */
pp_monitor_advice pp_monitor_poll(pp_monitor *monitor, const pp_monitor_input *input);

/** A kernel, copy or fill of a whole step; pp_kernels_watch calls it. */
void pp_monitor_kernel(void *monitor, const pp_kernels_placed *kernel);

/** All kernels of the capture were told. */
void pp_monitor_end(pp_monitor *monitor);

/** No more will come: waits until all that there is was joined and solved. */
void pp_monitor_finish(pp_monitor *monitor);

/** What is known of all windows so far. */
typedef struct pp_monitor_estimates {
    const pp_sampling_result *result;
    const pp_samples_header
        *sampler;        /**< the chip, CUPTI's names of the metrics, its processor time */
    uint64_t windows;    /**< times that were sampled */
    uint64_t failed;     /**< of these, times of which nothing could be told */
    const char *failure; /**< why not of the latest of these; "" */
    int64_t sampled;     /**< ns of samples that were joined */
    int64_t lag_guess;   /**< ns: of the latest, the lag that was looked about: the samples' clock
                            less the kernels', the host's CLOCK_MONOTONIC */
    int64_t lag;         /**< ns: and of the latest of which something could be told the one that
                            was found */
    int64_t lag_stderr;  /**< ns */
} pp_monitor_estimates;

/** True where there is something new since the last time; it is valid until the next call of any
 * function here. */
bool pp_monitor_take(pp_monitor *monitor, pp_monitor_estimates *ret);

/** Why there are no (more) estimates: there is no sampler any more, or nothing could be told of the
 * first windows; "" where nothing is wrong. */
const char *pp_monitor_why(const pp_monitor *monitor);

#endif
