/* One solution on its way. */
#ifndef PP_ESTIMATE_REGRESSION_SOLVER_H
#define PP_ESTIMATE_REGRESSION_SOLVER_H

#include "estimate/regression/lag.h"

/** Everything that one solution holds on its way. */
typedef struct pp_reg_solver {
    const pp_regression_input *in;
    pp_regression_result *ret;
    uint32_t *order; /* canonical metric -> the caller's index */
    double *scale;   /* [canonical metric] */
    pp_reg_timeline timeline;
    pp_reg_columns columns;
    pp_reg_scrapes scrapes;
    pp_reg_windows windows;
    pp_reg_problem problem;
    pp_reg_fit *fits; /* [canonical metric] */
    size_t n_fits;
    pp_reg_lag lag;
    double phase;
    pp_reg_work work;
    pp_reg_design design;
    size_t cap_groups;
} pp_reg_solver;

/** Scaled values of one metric and its windows' nominal ends, observed at the lag found. */
typedef struct pp_reg_rows {
    size_t n;
    double *ends;
    double *y;
    double mean;
} pp_reg_rows;

#endif
