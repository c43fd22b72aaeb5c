/* Results in the metrics' own units. */
#ifndef PP_ESTIMATE_REGRESSION_RESULT_H
#define PP_ESTIMATE_REGRESSION_RESULT_H

#include "estimate/regression/solver.h"

pp_regression_result *pp_reg_result_new(const pp_regression_input *in);
int pp_reg_report_windows(pp_reg_solver *s, pp_error *err);
void pp_reg_report_rows(pp_reg_solver *s);
int pp_reg_report_job(pp_reg_solver *s, size_t metric, pp_error *err);
int pp_reg_adjust_job(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err);
/** After pp_reg_estimate with the solver's work and design. */
void pp_reg_report_fit(const pp_reg_solver *s, size_t metric, const pp_reg_rows *u);
/** Whether windows differ from the model by more than an exporter's noise. */
bool pp_reg_is_suspect(const pp_reg_solver *s, size_t metric);
/** Whether what is left of windows goes on in the next ones. */
bool pp_reg_is_correlated(const pp_reg_solver *s, size_t metric);
/** What speaks against the metric's values. */
void pp_reg_report_doubt(pp_reg_solver *s, size_t metric);
/** Takes back what is in doubt. */
void pp_reg_withhold(pp_regression_result *r);
int pp_reg_report_estimates(pp_reg_solver *s, size_t metric, pp_error *err);

#endif
