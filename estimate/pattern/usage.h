/*
 * How a training used one GPU in one session, in a few figures: what its steps take and how they
 * differ, how long the GPU has nothing to do in one, each metric over a step, what bounds it, and
 * which types of layers its time goes to. All of the undisturbed training's step where steps were
 * counted between captures (counted_steps.h); docs/patterns.md has the formulas.
 *
 * Every figure has its standard error. NaN: it is not known, and no figure is made up for it.
 */
#ifndef PP_ESTIMATE_PATTERN_USAGE_H
#define PP_ESTIMATE_PATTERN_USAGE_H

#include "estimate/activity/activity.h"
#include "estimate/items/bound.h"
#include "estimate/items/estimates.h"
#include "estimate/pattern/model.h"
#include "estimate/times/ranks.h"

enum {
    PP_USAGE_BINS = 20,  /**< of a step, in a profile */
    PP_USAGE_TYPES = 24, /**< types of layers told apart; the rest is one */
};

typedef struct pp_figure {
    double value;
    double standard_error; /**< NaN: too little was seen to say */
} pp_figure;

/** Nothing is known. */
#define PP_UNKNOWN ((pp_figure){(double)NAN, (double)NAN})

/** What a metric's figures are of. Values of the two are never averaged. */
typedef enum pp_usage_source {
    PP_USAGE_LAYERS,  /**< the layers' values by the time that they take of a step */
    PP_USAGE_WINDOWS, /**< the metric's windows of the whole GPU, in the observed time */
} pp_usage_source;

/** "layers", "windows". */
const char *pp_usage_source_name(pp_usage_source source);

/** What a GPU is. Those that differ are never averaged: shares of unlike peaks, and steps on unlike
 * GPUs, are no sample of one thing. */
typedef struct pp_usage_gpu {
    char model[PP_WIRE_MAX_VERSION + 1]; /**< "NVIDIA H200"; "": not known */
    pp_chip chip;                        /**< zeros: not known */
} pp_usage_gpu;

/** In the metric's unit, but for what it is of its peak. */
typedef struct pp_usage_metric {
    pp_metric metric;
    pp_usage_source source;
    pp_figure mean;
    pp_figure p50, p95; /**< of the time of a step; of windows, of these */
    pp_figure most;     /**< of windows the highest; a level's alone (memory). Its error is 0 */
    pp_figure achieved; /**< of the metric's peak per second (pp_peak_unit()), over a step */
    double peak;        /**< that the GPU has at its highest clock; NaN: not known, or none */
    bool has_profile;
    double profile[PP_USAGE_BINS]; /**< means over the step's parts, of equal length */
} pp_usage_metric;

/** A part of a step's time. */
typedef struct pp_usage_type {
    const char *name; /**< the usage's own; "": all that are not told apart. Of what is no layer
                           the kind: "optimizer", "data", "other", ... */
    bool layer;
    pp_figure share;
} pp_usage_type;

typedef struct pp_usage {
    int64_t steps;    /**< that its step is the mean of */
    bool undisturbed; /**< nothing was marked in these */
    bool busy;        /**< shares are of time in which kernels ran; else of elapsed time */
    pp_figure step_ns;
    double step_sd_ns;                /**< from step to step, of the marked ones; NaN */
    pp_figure idle;                   /**< share of a step in which no kernel ran */
    pp_figure bounds[PP_BOUND_COUNT]; /**< shares of a step; their sum is 1 */
    bool merged;                      /**< of several, by pp_usage_merge() */
    double lead_error; /**< of these: of how much the largest share leads the next one; NaN */
    pp_figure rates[PP_BOUND_UNITS]; /**< of time so bound, by TENSOR, FP32, MEMORY: what its unit
                                          does per second; its peak is the metric's */
    pp_usage_gpu gpu;
    pp_usage_metric *metrics; /**< by metric; those of which something is known */
    size_t n_metrics;
    pp_usage_type types[PP_USAGE_TYPES + 1]; /**< most first */
    size_t n_types;
    pp_strings names; /**< of the types */
    pp_models models; /**< that were trained */
} pp_usage;

/** What estimates do not have. */
typedef struct pp_usage_input {
    const pp_activity *activity;
    const pp_estimates *estimates; /**< of `gpu`, of the same activity */
    const pp_ranks *ranks;         /**< NULL: a single process, or nothing is known of them */
} pp_usage_input;

/** PP_ERR_NOMEM alone. A usage of no step has steps 0. */
int pp_usage_find(const pp_usage_input *in, pp_usage **ret, pp_error *err);

/** Adds a type that is none of the usage's yet; its name is copied. There has to be room. */
int pp_usage_add_type(pp_usage *usage, const char *name, bool layer, pp_figure share,
                      pp_error *err);

/** Whether two GPUs have the same peaks, as far as it is known, and no other model. */
bool pp_usage_gpu_alike(const pp_usage_gpu *a, const pp_usage_gpu *b);

/** What of a unit's metric is known; NULL: nothing. */
const pp_usage_metric *pp_usage_metric_find(const pp_usage *usage, pp_metric metric);

/** The two bounds with the largest shares; of equal ones the first. */
void pp_usage_leaders(const pp_usage *usage, pp_bound *ret_first, pp_bound *ret_second);

/** The bound with the largest share, and by how much that is larger than the next one's: where that
 * is not more than its error a few times over, both may be. Shares are of one whole: what one has
 * too much another may lack, so that of one usage the error is at most the sum of both shares'.
 * UNKNOWN where nothing has a share. */
pp_bound pp_usage_bound(const pp_usage *usage, pp_figure *ret_lead);

/** NULL is allowed. */
void pp_usage_free(pp_usage *usage);

#endif
