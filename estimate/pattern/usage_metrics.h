/* Each metric over a step: of its layers' values, or else of the windows of the whole GPU. */
#ifndef PP_ESTIMATE_PATTERN_USAGE_METRICS_H
#define PP_ESTIMATE_PATTERN_USAGE_METRICS_H

#include "estimate/pattern/usage_time.h"

/** Fills usage->metrics. */
int pp_usage_metrics_find(const pp_activity *activity, const pp_estimates *estimates,
                          const pp_usage_time *time, pp_usage *usage, pp_error *err);

#endif
