/* Values of PM sampling, which agents have sent, in the place of those solved here. */
#ifndef PP_ESTIMATE_SAMPLED_VALUES_H
#define PP_ESTIMATE_SAMPLED_VALUES_H

#include "estimate/items/estimates.h"

/** The reason of a layer without a PM value where there are no others. */
extern const char pp_sampled_values_none[];

/** Puts PM values in the place of those that windows tell; where the GPU was not sampled, why
 * goes in the place of that reason. */
int pp_sampled_values_take(const pp_activity *activity, const char *gpu, pp_estimates *s,
                           pp_error *err);

/** The reason of values that others' work is in. */
extern const char pp_doubt_tenant[];

/** What speaks against a metric's values, by wire.h's number: a static reason; NULL: nothing. */
const char *pp_sampled_values_doubt(int doubt);

#endif
