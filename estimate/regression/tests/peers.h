/*
 * What others would make of the same windows: the overlap-weighted mean, which is what attribution
 * by timestamp amounts to at its best, and least squares with no value below 0. Both are told where
 * each window begins and ends; neither tells how sure it is.
 */
#ifndef PP_ESTIMATE_REGRESSION_TESTS_PEERS_H
#define PP_ESTIMATE_REGRESSION_TESTS_PEERS_H

#include "estimate/regression/regression.h"

typedef struct pp_peers {
    size_t n_rows; /* n_items + 2, as in a result */
    size_t n_metrics;
    double *overlap; /* [row * n_metrics + metric]; NaN: nothing overlaps */
    double *squares;
} pp_peers;

/** Solves by these windows, those that are usable, each with the samples of its stamp. PP_ERR_* as
 * pp_regression_solve. */
int pp_peers_solve(const pp_regression_input *in, const pp_regression_window *windows, size_t n,
                   pp_peers *ret, pp_error *err);
void pp_peers_done(pp_peers *p);

#endif
