/* The samples themselves, each with the item that ran. */
#ifndef PP_ESTIMATE_SAMPLE_ROWS_H
#define PP_ESTIMATE_SAMPLE_ROWS_H

#include "estimate/problem/problem.h"

/** Sample rows of every item and its count of windows, from the reconstructed windows. */
int pp_sample_rows_make(const pp_problem *p, const pp_regression_result *r,
                        double tolerance_percent, pp_estimates *s, pp_error *err);

#endif
