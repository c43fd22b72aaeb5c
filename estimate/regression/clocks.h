/*
 * How far clocks differ between the items of a training. What is counted in the SMs is told as a
 * share of their cycles in a window, in which what runs at a lower clock has a smaller part than
 * its time is. Windows do not tell clocks, and values are solved as if there were one; how far
 * clocks differ shows in what is left of windows, and widens standard errors.
 */
#ifndef PP_ESTIMATE_REGRESSION_CLOCKS_H
#define PP_ESTIMATE_REGRESSION_CLOCKS_H

#include "estimate/regression/solver.h"

/** How one metric's windows go with the logarithms of its columns' clocks: ret_scores receives
 * n x p doubles, whitened and less what values take of it; NULL for a metric that is no share of
 * cycles. After pp_reg_estimate and before pp_reg_realise, with the solver's work and design.
 * Keeps what is left of windows along them. The caller frees ret_scores. */
int pp_reg_clocks_score(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, double **ret_scores,
                        pp_error *err);
/** How values go with clocks, [value * p + clock], to be filled by pp_reg_realise; NULL for a
 * metric that is no share of cycles. */
double *pp_reg_clocks_move(const pp_reg_solver *s, size_t metric);
/** The job's mean takes these shares of the values' errors, [p]. */
void pp_reg_clocks_job(pp_reg_solver *s, size_t metric, const double *shares);
/** After all metrics were fitted: the variance of the logarithms of clocks between items, 0 unless
 * windows say clearly that they differ. */
int pp_reg_clocks_find(pp_reg_solver *s, pp_error *err);
/** Adds what clocks may do to a metric's values, and to its job's mean, to what these are uncertain
 * by. Returns whether there is anything. */
bool pp_reg_clocks_widen(pp_reg_solver *s, size_t metric);
void pp_reg_clocks_done(pp_reg_solver *s);

#endif
