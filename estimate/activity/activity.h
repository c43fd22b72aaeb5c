/*
 * What is known of one pod before anything is solved: its activity as the store keeps it, and the
 * raw samples of the GPUs that it used. Plain data between the store (which fills it), Prometheus
 * (which brings the samples) and estimate/items/estimates.h (which solves it).
 *
 * Times are ns since 1970. Rows refer to each other by index.
 */
#ifndef PP_ESTIMATE_ACTIVITY_ACTIVITY_H
#define PP_ESTIMATE_ACTIVITY_ACTIVITY_H

#include "common/json.h"
#include "common/metric.h"
#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A training process, as one agent saw it. */
typedef struct pp_activity_process {
    char *instance;  /**< the agent process */
    int32_t process; /**< the process' number in the pod */
    pp_strings gpus;
    char *kernels;  /**< why busy times are not known; NULL or "" where they are */
    char *isolated; /**< why layers are not replayed; NULL or "": they are, or need not be */
    char *pm; /**< why its GPU was not sampled (any more); NULL or "": nothing is known of that */
    char *gpu_model; /**< what its one GPU is, "NVIDIA H200"; NULL or "": not known */
    pp_chip chip;    /**< what that can do; zeros: not known */
    uint8_t pm_doubt[PP_METRIC_SAMPLED_COUNT]; /**< of each metric, as wire.h has it; 0: none */
    bool pm_saw_gaps;   /**< its GPU was sampled where no kernel of it ran: nobody else's did there
                             unless a doubt says so */
    int32_t rank;       /**< of its job's processes, from 0 */
    int32_t world_size; /**< how many these are; 1: it is alone */
    int64_t memory_steps; /**< that `memory` is of */
    int64_t waited_ns;    /**< of its marked steps, in which the host waited by its own will */
    /** What it trains, as wire.h has it: the latest that it said; NULL or "": not known. */
    char *model, *digest, *batch;
} pp_activity_process;

typedef struct pp_activity_layer {
    uint32_t process; /**< index into processes */
    int32_t id;
    int64_t parameters;
    char *name;
    char *type;
    uint8_t skip_reason[2]; /**< why it is not replayed forward, and backward, by wire.h's number */
    uint8_t whole_reason;   /**< why layers in it are not told, by wire.h's number; 0: no reason */
} pp_activity_layer;

/** The time that one batch says everything about. */
typedef struct pp_activity_batch {
    uint32_t process; /**< index into processes */
    bool last;        /**< its capture ends with it */
    int64_t capture;
    int64_t start_ns;
    int64_t end_ns;
    int64_t dwell;   /**< not 0: layers replayed, no training (docs/replay.md) */
    bool background; /**< of a dwell: without the layer */
} pp_activity_batch;

typedef struct pp_activity_step {
    uint32_t batch; /**< index into batches */
    int64_t number;
    int64_t start_ns;
    int64_t duration_ns;
    int64_t gap_ns; /**< of it, in which no kernel ran; -1: not known */
} pp_activity_step;

/** Counted steps, one after the other (docs/wire.md). */
typedef struct pp_activity_run {
    uint32_t process; /**< index into processes */
    int64_t start_ns;
    int64_t duration_ns;
    int64_t steps;
} pp_activity_run;

typedef struct pp_activity_interval {
    uint32_t batch;
    int32_t layer; /**< a layer's id; 0: the step's own phases */
    uint8_t phase; /**< pp_wire_phase */
    int64_t start_ns;
    int64_t duration_ns;
    int64_t kernels_ns; /**< of it, in which a kernel of it ran; -1: not known */
    bool goes_on;       /**< the same call goes on in a later one */
} pp_activity_interval;

typedef struct pp_activity_cell {
    uint32_t batch;
    int32_t layer;
    uint8_t phase;
    int64_t start_ns;
    int64_t width_ns;
    int64_t busy_ns;
    int64_t calls;
    int64_t kernels_ns; /**< as in an interval */
} pp_activity_cell;

/** One raw sample with the stamp that Prometheus gave it, in the metric's unit; never NaN. */
typedef struct pp_activity_sample {
    uint32_t gpu; /**< index into the UUIDs beside it */
    pp_metric metric;
    int64_t stamp_ns;
    double value;
} pp_activity_sample;

/** What a GPU's performance monitors told of one layer in one phase (docs/sampling.md): one metric.
 */
typedef struct pp_activity_pm {
    uint32_t process; /**< index into processes */
    uint32_t gpu;     /**< index into the UUIDs */
    uint32_t source;  /**< index into sources */
    int32_t layer;    /**< as in an interval */
    uint8_t phase;
    pp_metric metric;
    double mean; /**< in the metric's unit, as the standard error; neither is NaN */
    double standard_error;
    int64_t kernels; /**< of it that ran while it was sampled */
} pp_activity_pm;

/** What torch's CUDA allocator had allocated while a layer's phase ran, of one batch. */
typedef struct pp_activity_memory {
    uint32_t process; /**< index into processes */
    int32_t layer;    /**< as in an interval */
    uint8_t phase;
    int64_t peak; /**< the most bytes */
    int64_t left; /**< bytes at its ends less those at its begins, of all the batch's steps */
} pp_activity_memory;

/** All of one pod in one session; owned. Layers are sorted by process and id, samples of one GPU
 * and metric by stamp; everything else may be in any order. */
typedef struct pp_activity {
    pp_activity_process *processes;
    size_t n_processes;
    pp_activity_layer *layers;
    size_t n_layers;
    pp_activity_batch *batches;
    size_t n_batches;
    pp_activity_step *steps;
    size_t n_steps;
    pp_activity_run *runs;
    size_t n_runs;
    pp_activity_interval *intervals;
    size_t n_intervals;
    pp_activity_cell *cells;
    size_t n_cells;
    pp_activity_memory *memory;
    size_t n_memory;
    pp_strings gpus; /**< UUIDs that the samples name, and those of the processes */
    pp_activity_sample *samples;
    size_t n_samples;
    pp_activity_pm *pm;
    size_t n_pm;
    pp_strings sources; /**< what the PM values are by their own names */
    bool truncated;     /**< more was stored than one problem may hold: the earliest are here */
} pp_activity;

/** Whether a process used the GPU; `gpu` "": whether it used none. */
bool pp_activity_uses(const pp_activity *activity, uint32_t process, const char *gpu);

/** What the processes on a GPU say of it; zeros: none does. */
const pp_chip *pp_activity_chip(const pp_activity *activity, const char *gpu);
/** What they say that its driver calls it; "": none does. */
const char *pp_activity_gpu_model(const pp_activity *activity, const char *gpu);

/** A process' layer by its id; layers are sorted. NULL: there is none. */
const pp_activity_layer *pp_activity_find_layer(const pp_activity *activity, uint32_t process,
                                                int32_t id);

/** Adds the GPUs that the processes named, each once, and "" where a process named none. */
int pp_activity_list_gpus(const pp_activity *activity, pp_strings *ret, pp_error *err);

/**
 * Makes room for `more` elements of `size` bytes after the first n of an array (a pointer to the
 * pointer to its elements) with room for *room: for those who put an activity together.
 */
int pp_activity_grow(void *array, size_t *room, size_t n, size_t more, size_t size, pp_error *err);

/** Takes what PM sampling told of a process (its index), in place of what it told before. `room`
 * as in pp_activity_grow. Needs as many sources as there are metrics. */
int pp_activity_take_pm(pp_activity *activity, size_t *room, uint32_t process, const pp_wire_pm *pm,
                        pp_error *err);

/** Counts a batch's steps of `memory` of a process (its index) where its rows, which the caller
 * adds then, fit; false: it is left out whole, so that what steps leave on average stays true. */
bool pp_activity_take_memory(pp_activity *activity, uint32_t process, int64_t steps, size_t rows);

/** Bytes of texts of layers, values of PM sampling, and rows of memory, past which what an activity
 * is put together from is left out: a pod may say anything of itself. */
#define PP_ACTIVITY_MAX_TEXT ((size_t)32 << 20)
#define PP_ACTIVITY_MAX_PM ((size_t)1000000)
#define PP_ACTIVITY_MAX_MEMORY ((size_t)1000000)

/** Whether another batch may pass what one problem may hold: from there on it is `truncated`. */
bool pp_activity_is_full(const pp_activity *activity);

/** Accepts NULL; returns NULL. */
pp_activity *pp_activity_free(pp_activity *activity);

#endif
