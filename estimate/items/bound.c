#include "estimate/items/bound.h"

#include <math.h>

/* Of a unit's limit, from where on it is the bound. */
#define LINE 0.6
/* A value is known no better than this, whatever its standard error (docs/accuracy.md). */
#define LEAST_ERROR 0.01

const char *pp_bound_name(pp_bound bound)
{
    static const char *const names[PP_BOUND_COUNT] = {
        "Tensor",          "FP32",   "Memory", "Latency", "Communication", "Data",
        "Synchronization", "Launch", "Unknown"};
    return names[bound];
}

const char *pp_bound_told(pp_bound bound, double likely)
{
    return bound != PP_BOUND_UNKNOWN && likely > 0 ? pp_bound_name(bound) : NULL;
}

pp_bound pp_bound_of_metric(pp_metric metric)
{
    switch (metric) {
    case PP_METRIC_TENSOR_ACTIVE:
        return PP_BOUND_TENSOR;
    case PP_METRIC_FP32_ACTIVE:
        return PP_BOUND_FP32;
    case PP_METRIC_DRAM_ACTIVE:
        return PP_BOUND_MEMORY;
    default:
        return PP_BOUND_COUNT;
    }
}

pp_metric pp_bound_metric(pp_bound unit)
{
    static const pp_metric metrics[PP_BOUND_UNITS] = {PP_METRIC_TENSOR_ACTIVE,
                                                      PP_METRIC_FP32_ACTIVE, PP_METRIC_DRAM_ACTIVE};
    return metrics[unit];
}

/* Of a normal distribution, what lies below z. */
static double below(double z)
{
    return 0.5 * erfc(-z * M_SQRT1_2);
}

static double error_of(const pp_bound_unit *u)
{
    return u->standard_error > LEAST_ERROR ? u->standard_error : LEAST_ERROR;
}

void pp_bound_of_units(const pp_bound_unit units[3], bool least, double ret[PP_BOUND_COUNT])
{
    int first = -1, second = -1, known = 0;
    double none = 1; /* that none of them is over the line */
    for (int i = 0; i < PP_BOUND_COUNT; i++)
        ret[i] = 0;
    for (int i = 0; i < 3; i++) {
        if (!isfinite(units[i].value))
            continue;
        known++;
        none *= below((LINE - units[i].value) / error_of(&units[i]));
        if (first < 0 || units[i].value > units[first].value) {
            second = first;
            first = i;
        } else if (second < 0 || units[i].value > units[second].value) {
            second = i;
        }
    }
    ret[known == 3 && !least ? PP_BOUND_LATENCY : PP_BOUND_UNKNOWN] = none;
    if (first < 0)
        return;
    const double leads = second < 0
                             ? 1
                             : below((units[first].value - units[second].value) /
                                     hypot(error_of(&units[first]), error_of(&units[second])));
    ret[first] += (1 - none) * leads;
    if (second >= 0)
        ret[second] += (1 - none) * (1 - leads);
}
