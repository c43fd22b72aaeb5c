/*
 * Attribution: which (layer, phase) has which value of a GPU metric, and how sure are we.
 *
 * Pure arithmetic: no I/O, no threads, no global state, no clock; libm and common/ only. Used by
 * the operator, on its thread pool, again and again as data comes in. The model and its limits are
 * in docs/attribution.md.
 *
 * In: exact activity of one pod on one GPU (intervals, or sums on a grid of at most 10 ms) and the
 * raw samples of its metrics with Prometheus' own stamps. Out: per item and metric a mean, its
 * standard error and whether it is identifiable at all; groups of items that only together are;
 * the job's averages; the exporter's lag.
 *
 * All times are nanoseconds of one clock (Unix time). The same data in any order gives the same
 * bits. A value that is not known is NaN and its method is PP_METHOD_NONE: never a guess.
 */
#ifndef PP_ESTIMATE_REGRESSION_REGRESSION_H
#define PP_ESTIMATE_REGRESSION_REGRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/method.h"

/* Limits on one problem; more is refused with PP_ERR_TOO_LARGE and the field's name. */
#define PP_REGRESSION_MAX_ITEMS 16384 /* a process names 4096 layers at most, each in 4 phases */
#define PP_REGRESSION_MAX_METRICS 32
#define PP_REGRESSION_MAX_INTERVALS 4000000
#define PP_REGRESSION_MAX_CELLS 4000000
#define PP_REGRESSION_MAX_STEPS 1000000
#define PP_REGRESSION_MAX_OBSERVED 65536
#define PP_REGRESSION_MAX_SAMPLES 200000     /* per metric */
#define PP_REGRESSION_MAX_CELL_NS 10000000LL /* coarser sums cannot carry a continuous lag */
#define PP_REGRESSION_MAX_NAME 512           /* bytes of an item's name */

/** docs/timing.md, by its numbers; idle beside. */
typedef enum pp_phase {
    PP_PHASE_FORWARD = 0,
    PP_PHASE_BACKWARD,
    PP_PHASE_OPTIMIZER,
    PP_PHASE_RECOMPUTE,
    PP_PHASE_ZERO_GRAD,
    PP_PHASE_DATA,
    PP_PHASE_COMMUNICATION,
    PP_PHASE_OTHER, /**< in a step, in no item; results only */
    PP_PHASE_INFERENCE,
    PP_PHASE_IDLE, /**< observed, outside of any step; results only */
} pp_phase;

/** Whether items have it: not other, and not idle. */
static inline bool pp_phase_of_item(unsigned phase)
{
    return phase < PP_PHASE_OTHER || phase == PP_PHASE_INFERENCE;
}

/** What was timed: one leaf layer in one phase, or one of the step's own phases. */
typedef struct pp_regression_item {
    const char *layer; /**< qualified module name, or ""; borrowed; not NULL */
    pp_phase phase;
} pp_regression_item;

/** One exact run of an item: [start_ns, end_ns). */
typedef struct pp_regression_interval {
    int64_t start_ns;
    int64_t end_ns;
    uint32_t item;      /**< index into items; n_items: other, read where kernels are known */
    int64_t kernels_ns; /**< of it, in which a kernel of it ran; read where kernels are known */
} pp_regression_interval;

/** Time of one item inside one cell [start_ns, start_ns + width_ns) of a grid. */
typedef struct pp_regression_cell {
    int64_t start_ns;
    int64_t width_ns; /**< above 0, at most PP_REGRESSION_MAX_CELL_NS */
    int64_t busy_ns;  /**< 0 to width_ns */
    uint32_t item;    /**< as in an interval, and so */
    int64_t kernels_ns;
} pp_regression_cell;

/** A training step, or a span of time in which everything was observed: [start_ns, end_ns). */
typedef struct pp_time_range {
    int64_t start_ns;
    int64_t end_ns;
} pp_time_range;

/** One value as Prometheus holds it: stamp of the scrape, not of the measurement. */
typedef struct pp_regression_sample {
    int64_t stamp_ns;
    double value;
} pp_regression_sample;

typedef struct pp_regression_metric {
    const char *name; /**< borrowed; for error messages and the order of work; unique */
    double min;       /**< lowest possible value, e.g. 0 */
    double max;       /**< highest, e.g. 1 or 100; both NaN: unbounded (GPUMem in MiB) */
    double
        max_standard_error; /**< absolute, in the metric's unit; 0: options' share of the range */
    bool job_only;          /**< says nothing of when windows lie: its own may be others */
    bool idle_is_zero;      /**< where no kernel runs on the GPU, whoever's, it is 0 */
    bool of_cycles;         /**< a share of the SMs' cycles in a window, not of its time */
    const pp_regression_sample *samples; /**< borrowed; any order; exact repeats are folded */
    size_t n_samples;
} pp_regression_metric;

/** Parts of the estimator, as bits: what each is worth shows where it is left out (program
 * regression-ablation). */
typedef enum pp_regression_part {
    PP_REGRESSION_PERIOD = 1 << 0,       /**< of collections, found from the data */
    PP_REGRESSION_RESTARTS = 1 << 1,     /**< scrapes of an exporter's other grids are dropped */
    PP_REGRESSION_MATCHING = 1 << 2,     /**< values say which collection was read */
    PP_REGRESSION_RIVALS = 1 << 3,       /**< lags held against each other by likelihood */
    PP_REGRESSION_OWN_WINDOWS = 1 << 4,  /**< a metric's own windows */
    PP_REGRESSION_DRAWS = 1 << 5,        /**< values differ from step to step */
    PP_REGRESSION_COMMON = 1 << 6,       /**< in what a step's items have in common */
    PP_REGRESSION_REALISED = 1 << 7,     /**< values are of the steps that were */
    PP_REGRESSION_PRIOR = 1 << 8,        /**< of values; without: ten times as wide */
    PP_REGRESSION_BOUNDS = 1 << 9,       /**< of values, by the metric's range */
    PP_REGRESSION_SANDWICH = 1 << 10,    /**< standard errors by residuals */
    PP_REGRESSION_LAG_ERROR = 1 << 11,   /**< in standard errors; and of windows' length */
    PP_REGRESSION_FEW_WINDOWS = 1 << 12, /**< Student's widening */
    PP_REGRESSION_GROUPS = 1 << 13,      /**< of items that are not told alone */
    PP_REGRESSION_JOB = 1 << 14,         /**< its mean of all observed time, by the fit */
    PP_REGRESSION_DOUBTS = 1 << 15,      /**< values are withheld where something speaks against */
    PP_REGRESSION_CLOCKS = 1 << 16,      /**< that differ, in standard errors */
    PP_REGRESSION_PARTS = 1 << 17,       /**< the next bit after the last */
} pp_regression_part;

/** Zero means the default everywhere. */
typedef struct pp_regression_options {
    int64_t window_ns;  /**< W, the exporter's collection interval; 0: estimated from samples */
    int64_t scrape_ns;  /**< S, Prometheus' scrape interval; 0: estimated from samples */
    int64_t max_lag_ns; /**< window end to publication, at most; default pp_regression_max_lag() */
    bool since_before;  /**< a value is of all windows since the one before it was read, else of the
                             newest alone */
    double max_standard_error; /**< share of the metric's range to report a value; default 0.05 */
    double max_group_share;    /**< of the steps' time that one group may hold; default 0.25 */
    unsigned without;          /**< of studies: bits of pp_regression_part that are left out */
    int64_t lag_error_ns;      /**< of studies: the lag that is used is by so much too long */
} pp_regression_options;

typedef struct pp_regression_input {
    const pp_regression_item *items;
    size_t n_items;
    const pp_regression_interval
        *intervals; /**< any order; where two overlap they share the time */
    size_t n_intervals;
    const pp_regression_cell *cells; /**< may be used together with intervals */
    size_t n_cells;
    bool kernels_known; /**< of all intervals and cells: values are then means over the time in
                             which an item's kernels ran, else over its elapsed time */
    const pp_time_range *steps;
    size_t n_steps;
    const pp_time_range *observed; /**< outside of these nothing is known */
    size_t n_observed;
    const pp_regression_metric *metrics; /**< of one GPU: they share one collection grid and lag */
    size_t n_metrics;
    pp_regression_options options;
} pp_regression_input;

typedef struct pp_regression_estimate {
    double mean;           /**< in the metric's unit; NaN: not known */
    double standard_error; /**< of mean; NaN: not known */
    double windows;        /**< worth of information, in windows filled by this item alone */
    pp_method method;
    bool identifiable; /**< mean is this item's own, with a standard error within the limit */
    int32_t group;     /**< not identifiable, but in groups[group], which is; else -1 */
} pp_regression_estimate;

/** Items of one phase, next to each other in the step, whose common mean is known. */
typedef struct pp_regression_group {
    char *name;        /**< members' layers joined by '+', in the order of the step */
    uint32_t *members; /**< indices into items */
    size_t n_members;
    size_t metric; /**< groups are formed per metric */
    pp_phase phase;
    int64_t time_ns;                 /**< of all members */
    pp_regression_estimate estimate; /**< time-weighted mean of the members */
} pp_regression_group;

/** Per item; the two last rows of a result are `other` and `idle`. */
typedef struct pp_regression_row {
    pp_phase phase;
    int64_t time_ns;    /**< in the observed time */
    double share;       /**< of the steps' time (idle: of the observed time) */
    size_t occurrences; /**< steps in which it ran */
} pp_regression_row;

/** Why a metric's windows tell nothing of layers, though they were fitted. */
typedef enum pp_regression_doubt {
    PP_REGRESSION_FITS = 0,
    PP_REGRESSION_UNEXPLAINED, /**< windows differ by more than the layers in them say */
    PP_REGRESSION_TENANT,      /**< it is not 0 where no kernel of ours runs: others use the GPU */
} pp_regression_doubt;

/** A metric's windows, in blocks of some steps, in two halves drawn at random: each half's are
 * predicted by what the other half alone says. */
typedef struct pp_regression_prediction {
    double explained; /**< share of the windows' variance that is predicted; NaN: too few windows,
                           so below */
    double miss;      /**< root mean square of prediction less value, metric's unit */
    double expected;  /**< what that is to be by the predictions' own standard errors */
    double items_z;   /**< root mean square of the halves' differences over their standard errors,
                           by item */
    size_t items;     /**< that both halves tell: of items fitted together one */
    size_t windows;
} pp_regression_prediction;

typedef struct pp_regression_metric_fit {
    pp_regression_estimate job; /**< PP_METHOD_JOB, or NONE without any window
                                      from the first observed time to the last */
    double r2;                  /**< of the fit over its windows; NaN: no fit */
    double noise;               /**< sd of a window's value around the model, metric's unit */
    double step_variation;      /**< cv of an item's value from step to step */
    double closure;             /**< time-weighted estimates less the mean of the same windows */
    double rest;                /**< sd of a window's value around its items', metric's unit */
    double autocorrelation;     /**< of what is left of a window with what is left of the next */
    double idle;                /**< where no kernel of ours runs, and its standard error; NaN: */
    double idle_standard_error; /**< not known */
    double shift_ns;            /**< by how much later its windows ended than the lag says, by */
    double shift_se_ns;         /**< what is left of them, and its standard error; NaN */
    double shift_moves;         /**< by how much values would move with that, their mean */
    pp_regression_prediction prediction;
    int64_t window_ns; /**< that its values are of; the exporter's where nothing else is
                            clearly better */
    pp_regression_doubt doubt;
    size_t fitted_windows;   /**< distinct windows that lie in the observed time */
    size_t dropped_samples;  /**< NaN, infinite, blank or out of range */
    size_t repeated_samples; /**< the same collection read again */
    bool told;               /**< windows are enough to tell layers by, but for doubts */
    bool outside;   /**< it has samples, none of them from the first observed time to the last */
    bool elsewhere; /**< other windows would explain its values clearly better */
    bool constant;  /**< its samples, two at least, all have one value */
} pp_regression_metric_fit;

/** One distinct collection, as reconstructed. */
typedef struct pp_regression_window {
    int64_t stamp_ns; /**< first scrape that read it */
    int64_t start_ns;
    int64_t end_ns;
    bool usable; /**< lies in the observed time */
} pp_regression_window;

typedef struct pp_regression_result {
    size_t n_items;   /**< as in the input */
    size_t n_rows;    /**< n_items + 2: then other, then idle */
    size_t n_metrics; /**< as in the input */
    size_t n_groups;
    size_t n_windows;
    pp_regression_row *rows;
    pp_regression_estimate *estimates; /**< [row * n_metrics + metric] */
    pp_regression_metric_fit *fits;    /**< [metric] */
    pp_regression_group *groups;
    pp_regression_window *windows; /**< in order of time */

    int64_t window_ns;          /**< W as used */
    int64_t scrape_ns;          /**< S as used */
    bool grid;                  /**< windows lie on a reconstructed collection grid */
    bool lag_known;             /**< the data decided the lag; else no layer is reported */
    double lag_ns;              /**< mean of (first scrape that read a window - the window's end) */
    double lag_se_ns;           /**< standard error of the windows' position */
    double publish_lag_ns;      /**< window's end to publication; NaN without a grid, and
                                    where it drifts */
    double publish_lag_half_ns; /**< publication is known to within plus or minus this */
    double clock_spread;        /**< sd of the logarithms of items' clocks, as it is in standard
                                    errors; 0: they do not clearly differ */
    size_t dropped_intervals;   /**< intervals, cells, steps and spans that made no sense */
} pp_regression_result;

/**
 * How late a window of so many ns is published at most, where nobody says: 2.5 windows, but at
 * least 1.5 s, since an exporter takes its time however short its windows are.
 */
int64_t pp_regression_max_lag(int64_t window_ns);

/**
 * The intervals that a solution of these metrics would use: fills window_ns and scrape_ns where
 * they are 0, from the samples, and leaves them 0 where these do not tell. Errors: as
 * pp_regression_solve.
 */
int pp_regression_intervals(const pp_regression_metric *metrics, size_t n,
                            pp_regression_options *options, pp_error *err);

/** Solves from scratch. `in` is borrowed during the call. On success *ret is owned by the caller;
 *  an empty input is no error (nothing identifiable). Errors: PP_ERR_INVALID with the field,
 *  PP_ERR_TOO_LARGE, PP_ERR_NOMEM; *ret is then untouched. */
int pp_regression_solve(const pp_regression_input *in, pp_regression_result **ret, pp_error *err);

/** Accepts NULL; returns NULL. */
pp_regression_result *pp_regression_result_free(pp_regression_result *r);

/** The estimate of one row (item index, n_items for other, n_items + 1 for idle). */
static inline const pp_regression_estimate *pp_regression_get(const pp_regression_result *r,
                                                              size_t row, size_t metric)
{
    return &r->estimates[row * r->n_metrics + metric];
}

#endif
