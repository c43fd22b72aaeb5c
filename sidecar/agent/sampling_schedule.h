/*
 * When to sample: policy without I/O or a clock of its own.
 *
 * A capture lasts at least `capture` ns, as the metric windows need; where steps are so short that
 * no window tells their layers apart, PP_SCHEDULE_STEPS of them and half a second will do, so that
 * also a short session stays within its budget. Where the hook's cost stays within the budget it
 * goes on; else it ends at that length, and the next one waits until its cost (with what came after
 * the capture's end) is within the budget again: cost / (time since it was armed) <= 0.6 of it,
 * since what the hook knows of its cost has an error too; and up to a quarter of that longer, drawn
 * for each capture. After the first one it waits twice as
 * long, so that every later one is paid for before it begins: wherever a session ends, its average
 * is within the budget, as long as captures cost what the one before them did, and but for
 * sessions that end before they paid for their first.
 */
#ifndef PP_AGENT_SAMPLING_SCHEDULE_H
#define PP_AGENT_SAMPLING_SCHEDULE_H

#include "sidecar/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Steps that make a capture, where they take less time than the policy's. */
#define PP_SCHEDULE_STEPS 64

typedef struct pp_schedule_policy {
    int64_t capture; /**< ns, the least length of a capture */
    int64_t longest; /**< ns, after which a capture is begun anew: layers and clock are looked at */
    double budget;   /**< share of the time that the hook may cost, e.g. 0.01 */
    int64_t duration; /**< ns from the first sampled step, without pauses; 0: no end */
    int64_t skip;     /**< steps before the first sampled one */
    int64_t max;      /**< sampled steps; 0: no end */
} pp_schedule_policy;

/** What has been seen of one process. */
typedef struct pp_schedule_input {
    int64_t now;     /**< ns, monotonic */
    bool allowed;    /**< the operator (or, without it, the settings) wants sampling */
    bool running;    /**< a capture is running: started and not stopped */
    bool isolating;  /**< within it layers are replayed (docs/replay.md), which has a limit of its
                        own: it goes on until that is done */
    int64_t paused;  /**< ns that the training was paused for that, since the process was seen */
    bool events;     /**< the running one has events: its kernels could not be recorded */
    int64_t cost;    /**< ns that the hook has cost so far */
    int64_t steps;   /**< steps that the hook has counted */
    int64_t step;    /**< ns that a marked step takes; 0: not known */
    int64_t sampled; /**< steps taken out of captures */
    int64_t first; /**< when the first sampled step of the pod began, ns, later by the pauses since;
                      0: none yet */
} pp_schedule_input;

/** State of one process; begins as zeros. */
typedef struct pp_schedule {
    bool armed;          /**< SAMPLE is asked for */
    bool stopping;       /**< a capture was asked to end and may still run */
    bool started;        /**< and the capture has been seen running */
    bool finished;       /**< for good: duration or steps reached */
    bool again;          /**< the capture that was armed last is not the first */
    int64_t armed_at;    /**< ns, the last time; 0: never */
    int64_t started_at;  /**< ns */
    int64_t cost_before; /**< the cost when it was armed */
} pp_schedule;

/**
 * Whether an agent that nobody stops should end by itself: some seconds after the last process is
 * gone, where one has trained. Where none has (it failed early, or only asked torch for something)
 * the operator knows when the pod is done; without the operator, after some minutes.
 */
typedef struct pp_idle_exit {
    bool trained;        /**< a process has counted a step */
    int64_t quiet_since; /**< monotonic ns; set to the start before the first call */
} pp_idle_exit;

/** `processes`: those that are there; `connected`: to the operator. True when it is time to end. */
bool pp_idle_exit_is_due(pp_idle_exit *idle_exit, int64_t now, size_t processes, bool connected);

/** The mode to ask of the hook now. */
pp_ring_mode pp_schedule_next(pp_schedule *schedule, const pp_schedule_policy *policy,
                              const pp_schedule_input *input);

/** The capture that runs is stopped by somebody else, to be begun anew: it will last as long as
 * any, and is paid for as one with what it has cost so far. */
void pp_schedule_begin_anew(pp_schedule *schedule);

#endif
