/* Each metric over a step: of its layers' values, or else of the windows of the whole GPU. */
#ifndef PP_ESTIMATE_PATTERN_USAGE_METRICS_H
#define PP_ESTIMATE_PATTERN_USAGE_METRICS_H

#include "estimate/pattern/usage_time.h"

/** The value of each item as the mean over the time that `time` has of it, and its error; NaN where
 * that is not known. For one metric; both arrays are of time->n. */
void pp_usage_values(const pp_estimates *estimates, const pp_usage_time *time, pp_metric metric,
                     double *value, double *error);

/** Fills usage->metrics. */
int pp_usage_metrics_find(const pp_activity *activity, const pp_estimates *estimates,
                          const pp_usage_time *time, pp_usage *usage, pp_error *err);

#endif
