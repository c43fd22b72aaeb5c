/* Results in the metrics' own units. */
#ifndef PP_ESTIMATE_REGRESSION_RESULT_H
#define PP_ESTIMATE_REGRESSION_RESULT_H

#include "estimate/regression/solver.h"

pp_regression_result *pp_reg_result_new(const pp_regression_input *in);
int pp_reg_report_windows(pp_reg_solver *s, pp_error *err);
void pp_reg_report_rows(pp_reg_solver *s);
int pp_reg_report_job(pp_reg_solver *s, size_t metric, pp_error *err);
int pp_reg_adjust_job(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err);
void pp_reg_report_fit(const pp_reg_solver *s, size_t metric, const pp_reg_rows *u);
int pp_reg_report_estimates(pp_reg_solver *s, size_t metric, pp_error *err);

#endif
