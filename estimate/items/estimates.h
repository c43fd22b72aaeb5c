/* The rows of one pod and GPU: what each table of the store gets. */
#ifndef PP_ESTIMATE_ITEMS_ESTIMATES_H
#define PP_ESTIMATE_ITEMS_ESTIMATES_H

#include "common/method.h"
#include "common/metric.h"
#include "estimate/activity/activity.h"
#include "estimate/items/bound.h"
#include "estimate/items/dedup.h"
#include "estimate/regression/regression.h"

typedef struct pp_estimates_options {
    pp_regression_options attribution;
    unsigned metrics;         /**< bits of the metrics wanted; 0: all */
    double tolerance_percent; /**< of de-duplication */
    /** Job: no layer's values; Sampling, Replay: of layers only what that method told. */
    pp_method method;
    /** Samples are of an exporter, as Prometheus had them: the newest window that was published by
     * then, which several may have read. Else each is read from the GPU, and says all of the time
     * since the one before it. */
    bool scraped;
} pp_estimates_options;

typedef enum pp_item_kind {
    PP_ITEM_LAYER = 0,
    PP_ITEM_OPTIMIZER,
    PP_ITEM_ZERO_GRAD,
    PP_ITEM_DATA,
    PP_ITEM_COMMUNICATION,
    PP_ITEM_OTHER,
    PP_ITEM_IDLE,
    PP_ITEM_JOB,
} pp_item_kind;

/** "layer", "optimizer", "zero_grad", "data", "communication", "other", "idle", "job". */
const char *pp_item_kind_name(pp_item_kind kind);

/** "forward", "backward", "optimizer", "recompute", ...: as docs/timing.md has them; "idle". */
const char *pp_phase_name(pp_phase phase);

/** Of a mean over steps, and of how many degrees of freedom that is an estimate (times/spread.h);
 * NaN: too few steps tell it, or the mean is not known. */
typedef struct pp_time_error {
    double standard_error;
    double freedom;
} pp_time_error;

typedef struct pp_estimates_item {
    pp_item_kind kind;
    pp_phase phase;     /**< LAYER: forward, backward or recompute */
    char *layer;        /**< never NULL; "" unless LAYER */
    char *type;         /**< never NULL; "" when not known */
    int64_t parameters; /**< -1: not known */
    int64_t calls;
    int64_t total_ns;  /**< in the observed time; what overlaps shares the time */
    int64_t least_ns;  /**< what is left of total_ns without all that marks may have added to it,
                            busy_ns at least; -1: not known. A step in which nothing is marked has
                          something between  the two of it */
    double share;      /**< of the steps' time (idle: of the observed); NaN: not defined */
    int64_t windows;   /**< metric windows in which it ran */
    int64_t busy_ns;   /**< in the observed time, in which a kernel of it ran; -1: not known. Where
                            kernels were recorded in a part of its time, as that part has it */
    double idle_share; /**< of its own time, shared with none, in which none ran; NaN */
    const char *busy_reason; /**< the solution's or static: why busy_ns is -1; NULL: it is not */
    pp_bound bound;      /**< what bounds its kernels, UNKNOWN where too little was measured ... */
    double bound_likely; /**< ... and how likely that is; NaN: of the job, and of idle time */
    pp_time_error step_error; /**< ns, of total_ns a step */
    pp_time_error busy_error; /**< ns, of busy_ns a step */
    pp_time_error idle_error; /**< of idle_share */
    int64_t memory_peak; /**< the most bytes that torch's CUDA allocator had allocated while it ran,
                         of a process; 0: not known */
    int64_t memory_live; /**< bytes that it leaves allocated in a step; negative: it frees them */
    const char *whole_reason; /**< static: why layers in it are not told, or not all of their work;
                                   NULL: no reason is known */
} pp_estimates_item;

typedef struct pp_estimate {
    uint32_t item; /**< index into items */
    pp_metric metric;
    double mean; /**< NaN: not identifiable on its own */
    double standard_error;
    double windows;
    pp_method method;
    pp_basis basis;   /**< of mean, or of group_mean where that alone is known */
    char *source;     /**< of a PM value what it is by its own name, of a replay's "replays" */
    char *group_name; /**< NULL: in no group */
    double group_mean;
    double group_standard_error;
    const char *reason;     /**< the solution's or static; why mean is NaN; NULL where it is not */
    double amount_per_step; /**< of a rate that is known of the job, as pp_metric_info.per_step
                                 has it; NaN: it is none, or is not known */
    double peak;     /**< what its metric is a share of, at the SMs' highest clock, in bytes or
                          FLOP per second; NaN: of nothing, or it is not known */
    double achieved; /**< of that, the mean, at the clock that the SMs had; NaN: not known */
} pp_estimate;

/** How one metric's fit stands. */
typedef struct pp_estimates_fit {
    pp_metric metric;
    double r2; /**< NaN: no fit; so below */
    double noise;
    double step_variation;
    double closure;
    bool judged;          /**< layers were asked of its windows: what follows means something */
    const char *untold;   /**< static: why windows say nothing of layers; NULL: they do */
    const char *doubt;    /**< static: what speaks against its values; NULL: nothing */
    double explained;     /**< of windows that were held out, the share of their variance that the
                               others predict; NaN: too few windows, so below */
    double miss;          /**< root mean square of these predictions less the values */
    double expected_miss; /**< what that is to be by the predictions' standard errors */
    double items_z;       /**< root mean square, over items, of two halves' differences over
                               their standard errors */
    int64_t items;        /**< that both halves tell */
    double idle;          /**< where no kernel of the training ran; NaN */
    double idle_stderr;
    double shift_ns; /**< by how much later its windows ended than the lag says; NaN */
    double shift_stderr_ns;
    int64_t windows;
    int64_t dropped_samples;
    int64_t repeated_samples;
} pp_estimates_fit;

/** Whether replayed layers and what is left reproduce windows that were held out
 * (docs/replay.md). */
typedef struct pp_hold_out {
    pp_metric metric;
    double held;       /**< their mean */
    double difference; /**< what the estimates say, less that */
    int64_t windows;   /**< held out */
} pp_hold_out;

typedef struct pp_estimates_sample {
    uint32_t item;
    pp_sample_row row;
} pp_estimates_sample;

typedef struct pp_estimates {
    char *gpu;
    int64_t windows;      /**< metric windows used */
    int64_t samples;      /**< raw samples that they come from */
    double lag_ns;        /**< NaN: not known */
    double lag_stderr_ns; /**< NaN: not known */
    int64_t window_ns;    /**< the exporter's collection interval; 0: not known */
    int64_t observed_ns;
    int64_t step_count;
    double step_mean_ns;         /**< NaN: no step */
    pp_time_error step_error;    /**< ns, of step_mean_ns */
    pp_time_error counted_error; /**< ns, of counted_ns a step; runs in which the training paused
                                      are left out */
    int64_t step_ns;             /**< of the steps, in the observed time */
    int64_t gap_ns;        /**< of that, in which no kernel of their process ran; -1: not known */
    int64_t captures;      /**< in which the steps of step_count were marked ... */
    int64_t first_step_ns; /**< ... from the first one's begin (CLOCK_REALTIME) ... */
    int64_t last_step_ns;  /**< ... to the last one's end; both 0: no step */
    int64_t counted_steps; /**< in which nothing was marked */
    int64_t counted_ns;    /**< that they took */
    double counted_idle;   /**< of such a step, the share in which no kernel ran: a marked one's
                                kernels take as long; NaN: not known */
    char *kernels;         /**< why busy times are not known; "" where no process says so */
    char *isolated;        /**< why layers were not replayed; "" where no process says so */
    char *pm;              /**< method Sampling: why the GPU was not sampled, as a reason; NULL */
    pp_estimates_item *items;
    size_t n_items;
    pp_estimate *estimates;
    size_t n_estimates;
    pp_estimates_fit *fits;
    size_t n_fits;
    pp_hold_out closures[PP_METRIC_COUNT];
    size_t n_closures;
    pp_estimates_sample *sample_rows; /**< de-duplicated */
    size_t n_sample_rows;
    double samples_error;  /**< largest relative error of a mean of an item's, over windows or by
                                its share of them, from these rows */
    double samples_spread; /**< how far windows are from their rows, of the item and metric where it
                                is most: root mean square, as a share of the metric's range */
    bool truncated;        /**< more data than one solution may hold: the earliest were taken */
    bool shared; /**< others are known to have used the GPU meanwhile: by its metrics where no
                      kernel of ours ran; who knows it otherwise adds it */
} pp_estimates;

/** An item's estimate of a metric, the solution's; NULL: it has none. They are by item, as many of
 * each. */
pp_estimate *pp_estimates_find(const pp_estimates *estimates, size_t item, pp_metric metric);

/** Accepts NULL; returns NULL. */
pp_estimates *pp_estimates_free(pp_estimates *solution);

#endif
