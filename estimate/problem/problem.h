/* What all methods share: one GPU's items, the time they took, and the samples of each metric. */
#ifndef PP_ESTIMATE_PROBLEM_PROBLEM_H
#define PP_ESTIMATE_PROBLEM_PROBLEM_H

#include "estimate/items/estimates.h"
#include "estimate/problem/counted_steps.h"
#include "estimate/problem/dwells.h"
#include "estimate/problem/sample_coverage.h"

/** Observed time of pieces, each in full where they overlap, and a part of it: the time in which
 * kernels ran, or none did. */
typedef struct pp_problem_time {
    int64_t total_ns;
    int64_t known_ns; /**< of the pieces whose part is known */
    int64_t part_ns;
    double calls; /**< of the pieces whose part is known; one that is observed in part is a part */
    bool known;   /**< of any piece */
} pp_problem_time;

/** One (layer, phase); texts are borrowed from the activity. */
typedef struct pp_problem_item {
    const char *layer; /**< "" for the step's own phases */
    pp_phase phase;
    const char *type;
    int64_t parameters; /**< -1: not known */
    int64_t calls;
    int64_t pieces;       /**< that were seen; of one that goes on the call may not have been */
    pp_problem_time time; /**< and the time of its kernels */
} pp_problem_item;

/** What the solver gets; everything is owned but the texts. */
typedef struct pp_problem {
    pp_problem_item *items; /**< sorted by layer and phase; parallel to names */
    pp_regression_item *names;
    size_t n_items;
    pp_regression_interval *intervals;
    size_t n_intervals;
    pp_regression_cell *cells;
    size_t n_cells;
    bool kernels_known; /**< of every item: intervals and cells then have them, those of phase other
                             are among them (item n_items) */
    pp_time_range *steps;
    size_t n_steps;
    double observed_steps; /**< of these, how many lie in the observed time; parts count as such */
    pp_time_range *observed; /**< sorted, apart from each other */
    size_t n_observed;
    pp_problem_time step_time;  /**< and the time in which no kernel ran */
    pp_problem_time other_time; /**< pieces of phase other, and the time of their kernels */
    pp_problem_time piece_time; /**< all pieces */
    int64_t captures;           /**< of the process that has most */
    pp_time_range captured;     /**< from the first marked step's begin to the last one's end */
    pp_counted_steps counted;   /**< the steps between captures */
    const char *kernels;  /**< why busy times are not known; borrowed; "": no process says so */
    const char *isolated; /**< why layers were not replayed; the same */
    pp_replay_runs dwells;
    pp_coverage reading;
    pp_regression_metric metrics[PP_METRIC_COUNT];
    pp_metric metric_ids[PP_METRIC_COUNT];
    size_t n_metrics;
    pp_regression_sample *samples; /**< of all metrics, each metric's in the order of time */
    pp_regression_metric all[PP_METRIC_COUNT]; /**< metrics with the samples of dwells too */
    pp_regression_sample *all_samples;
    bool truncated;
} pp_problem;

int pp_problem_build(const pp_activity *activity, const char *gpu,
                     const pp_estimates_options *options, pp_problem *ret, pp_error *err);
void pp_problem_done(pp_problem *p);

/** What Regression is asked of a problem, as `options` say; all in it stays the problem's. */
pp_regression_input pp_problem_regression(const pp_problem *p, const pp_estimates_options *options);

/** The part of all of the time, by the pieces that tell; -1 where none does. */
int64_t pp_problem_part(const pp_problem_time *time, const pp_problem_time *by);

/** ns that kernels of a layer ran in a call of it, in the observed time; 0: not known. */
double pp_problem_busy_of_call(const pp_problem *p, const char *layer, pp_phase phase);

#endif
