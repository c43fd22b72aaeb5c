/* What many simulated runs come to. */
#ifndef PP_ESTIMATE_REGRESSION_TESTS_TOTALS_H
#define PP_ESTIMATE_REGRESSION_TESTS_TOTALS_H

#include "estimate/regression/tests/sim.h"

typedef struct sim_totals {
    int runs;
    double reported, grouped; /* sums over runs: share of the steps' time; groups */
    double error, z2;         /* sums over values: points; error over standard error, squared */
    double worst, job;        /* points; relative error of a job mean */
    double seconds;           /* of processor */
    size_t n, within3, beyond5;
    size_t windows, misread; /* where a lag is known */
    size_t silent;           /* runs that tell no layer */
    size_t clocks;           /* runs in which clocks are found to differ */
} sim_totals;

/** Simulates, solves and adds one run; the configuration's options are as they are, but for the
 * parts that are left out. PP_ERR_* as pp_regression_solve. */
int sim_totals_run(sim_totals *t, const sim_config *c, unsigned without, pp_error *err);

void sim_totals_add(sim_totals *to, const sim_totals *from);

/** "withheld" (nothing is told), "right" (1.5 points, 97 % within 3 standard errors, fewer than 1 %
 * beyond 5), "not right" or "confident and wrong" (1 % beyond 5). */
const char *sim_totals_verdict(const sim_totals *t);

#endif
