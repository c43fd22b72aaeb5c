/* One solution on its way. */
#ifndef PP_ESTIMATE_REGRESSION_SOLVER_H
#define PP_ESTIMATE_REGRESSION_SOLVER_H

#include "estimate/regression/lag.h"
#include "estimate/regression/realise.h"

/** The windows that one metric is of: a share of the exporter's where counters take turns, or more
 * than one of these where what it reads has a period of its own (NVML's utilisation). */
typedef struct pp_reg_own_window {
    double window; /* ns */
    double lag;
    double window_se; /* 0: it is the exporter's */
    double lag_se;
} pp_reg_own_window;

/** What one metric says of clocks (clocks.h). */
typedef struct pp_reg_metric_clocks {
    double *move;        /* [value * n + clock] how a value goes with the logarithm of a clock */
    double *information; /* n x n, on these logarithms, values free to move */
    double *pull;        /* [block * n + clock] how what is left of windows goes with it */
    double job;          /* variance of the job's mean, scaled, for a variance of 1 */
} pp_reg_metric_clocks;

typedef struct pp_reg_clocks {
    pp_reg_metric_clocks *of; /* [canonical metric]; NULL: none is a share of cycles */
    size_t n;                 /* of columns' kernels, then, where these are known, of gaps beside */
    double block;             /* ns */
    size_t n_blocks;
    double variance; /* of the logarithm of clocks between columns */
} pp_reg_clocks;

/** Everything that one solution holds on its way. */
typedef struct pp_reg_solver {
    const pp_regression_input *in;
    pp_regression_result *ret;
    uint32_t *order;          /* canonical metric -> the caller's index */
    double *scale;            /* [canonical metric] */
    pp_reg_timeline timeline; /* what is fitted: of kernels where they are known */
    pp_reg_timeline elapsed;  /* what the rows say, where that is another one */
    pp_reg_columns columns;
    pp_reg_durations durations;
    pp_reg_scrapes scrapes;
    pp_reg_windows windows;
    pp_reg_problem problem;
    pp_reg_fit *fits; /* [canonical metric] */
    size_t n_fits;
    pp_reg_lag lag;
    pp_reg_own_window *own; /* [canonical metric] */
    double phase;
    pp_reg_clocks clocks;
    pp_reg_work work;
    pp_reg_design design;
    size_t cap_groups;
} pp_reg_solver;

/** Scaled values of one metric and its windows' nominal ends, observed at the lag found. */
typedef struct pp_reg_rows {
    size_t n;
    double *ends;
    double *lengths;
    double *y;
    double mean;
} pp_reg_rows;

/** Windows of one length; those of values of all windows since the one before have their own. */
static inline pp_reg_window_set pp_reg_windows_of(const pp_reg_solver *s, const double *ends,
                                                  const double *lengths, size_t n, double window)
{
    return (pp_reg_window_set){ends, s->windows.since_before ? lengths : NULL, n, window};
}

#endif
