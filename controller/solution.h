/*
 * From stored activity and samples to the rows of a solution: builds the attribution problem of
 * one pod and GPU, solves it, and says what each table of the store gets. No I/O; may run on any
 * thread, on data of its own. The same data gives the same rows, in the same order.
 */
#ifndef PP_CONTROLLER_SOLUTION_H
#define PP_CONTROLLER_SOLUTION_H

#include "controller/activity.h"
#include "controller/attribution.h"
#include "controller/dedup.h"
#include "controller/metric.h"

typedef struct pp_solution_options {
    pp_attribution_options attribution;
    unsigned metrics;         /**< bits of the metrics wanted; 0: all */
    double tolerance_percent; /**< of de-duplication */
    bool job_only;            /**< method Job: times and job averages, no layer's values */
    bool fine_only;           /**< method Fine: of layers only what fine sampling told */
    bool isolated_only;       /**< method Isolated: of layers only what their replays told */
    /** Samples are of an exporter, as Prometheus had them: the newest window that was published by
     * then, which several may have read. Else each is read from the GPU, and says all of the time
     * since the one before it. */
    bool scraped;
} pp_solution_options;

typedef enum pp_solution_kind {
    PP_SOLUTION_LAYER = 0,
    PP_SOLUTION_OPTIMIZER,
    PP_SOLUTION_ZERO_GRAD,
    PP_SOLUTION_DATA,
    PP_SOLUTION_COMMUNICATION,
    PP_SOLUTION_OTHER,
    PP_SOLUTION_IDLE,
    PP_SOLUTION_JOB,
} pp_solution_kind;

/** "layer", "optimizer", "zero_grad", "data", "communication", "other", "idle", "job". */
const char *pp_solution_kind_name(pp_solution_kind kind);

/** "forward", "backward", "optimizer", "recompute", ...: as docs/timing.md has them; "idle". */
const char *pp_solution_phase_name(pp_attribution_phase phase);

typedef struct pp_solution_item {
    pp_solution_kind kind;
    pp_attribution_phase phase; /**< LAYER: forward, backward or recompute */
    char *layer;                /**< never NULL; "" unless LAYER */
    char *type;                 /**< never NULL; "" when not known */
    int64_t parameters;         /**< -1: not known */
    int64_t calls;
    int64_t total_ns;  /**< in the observed time; what overlaps shares the time */
    double share;      /**< of the steps' time (idle: of the observed); NaN: not defined */
    int64_t windows;   /**< metric windows in which it ran */
    int64_t busy_ns;   /**< in the observed time, in which a kernel of it ran; -1: not known. Where
                            kernels were recorded in a part of its time, as that part has it */
    double idle_share; /**< of its own time, shared with none, in which none ran; NaN */
    const char *busy_reason; /**< the solution's or static: why busy_ns is -1; NULL: it is not */
} pp_solution_item;

typedef struct pp_solution_estimate {
    uint32_t item; /**< index into items */
    pp_metric metric;
    double mean; /**< NaN: not identifiable on its own */
    double standard_error;
    double windows;
    pp_attribution_method method;
    char *source; /**< of a fine value what it is by its own name, of an isolated one "replays" */
    char *group_name; /**< NULL: in no group */
    double group_mean;
    double group_standard_error;
    const char *reason; /**< the solution's or static; why mean is NaN; NULL where it is not */
} pp_solution_estimate;

/** How one metric's fit stands. */
typedef struct pp_solution_fit {
    pp_metric metric;
    double r2; /**< NaN: no fit; so below */
    double noise;
    double step_variation;
    double closure;
    int64_t windows;
    int64_t dropped_samples;
    int64_t repeated_samples;
} pp_solution_fit;

/** Whether replayed layers and what is left reproduce windows that were held out
 * (docs/isolated.md). */
typedef struct pp_solution_closure {
    pp_metric metric;
    double held;       /**< their mean */
    double difference; /**< what the estimates say, less that */
    int64_t windows;   /**< held out */
} pp_solution_closure;

typedef struct pp_solution_sample {
    uint32_t item;
    pp_sample_row row;
} pp_solution_sample;

typedef struct pp_solution {
    char *gpu;
    int64_t windows;      /**< metric windows used */
    int64_t samples;      /**< raw samples that they come from */
    double lag_ns;        /**< NaN: not known */
    double lag_stderr_ns; /**< NaN: not known */
    int64_t window_ns;    /**< the exporter's collection interval; 0: not known */
    int64_t observed_ns;
    int64_t step_count;
    double step_mean_ns; /**< NaN: no step */
    int64_t step_ns;     /**< of the steps, in the observed time */
    int64_t gap_ns;      /**< of that, in which no kernel of their process ran; -1: not known */
    char *kernels;       /**< why busy times are not known; "" where no process says so */
    char *isolated;      /**< why layers were not replayed; "" where no process says so */
    char *fine;          /**< method Fine: why the GPU was not sampled, as a reason; NULL */
    pp_solution_item *items;
    size_t n_items;
    pp_solution_estimate *estimates;
    size_t n_estimates;
    pp_solution_fit *fits;
    size_t n_fits;
    pp_solution_closure closures[PP_METRIC_COUNT];
    size_t n_closures;
    pp_solution_sample *sample_rows; /**< de-duplicated */
    size_t n_sample_rows;
    bool truncated; /**< more data than one solution may hold: the earliest were taken */
    bool shared;    /**< others are known to have used the GPU meanwhile; false after solving,
                         which does not see them: the caller may know */
} pp_solution;

/**
 * Solves one GPU. Where fine sampling told of a layer (docs/fine.md) that is its value, whatever
 * the windows tell: its error is known to be smaller. Not where several processes were sampled on
 * the GPU, since each has seen the others' work too. Else what replays of it told
 * (docs/isolated.md) is its value, where there are any; their time is none of the training's.
 * `gpu`: a UUID that a process of the activity names; "": the processes that named none. An
 * activity without samples gives times and no values. Errors: as pp_attribution_solve;
 * PP_ERR_NOT_FOUND for an unknown GPU.
 */
int pp_solution_solve(const pp_activity *activity, const char *gpu,
                      const pp_solution_options *options, pp_solution **ret, pp_error *err);

/**
 * How long a dwell of a session should be where nobody says: as long as six windows of an exporter
 * take that are read from Prometheus, with the time before the first of which it is not known
 * whether it lies in the dwell. 10 s where the exporter's interval is not known.
 */
int64_t pp_solution_dwell(const pp_attribution_options *options);

/** The shortest dwell in which two windows may lie, as which a value takes: if they are published
 * at once, or (`sure`) however late. 0 where the exporter's interval is not known. */
int64_t pp_solution_dwell_least(const pp_attribution_options *options, bool sure);

/** Accepts NULL; returns NULL. */
pp_solution *pp_solution_free(pp_solution *solution);

#endif
