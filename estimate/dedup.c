#include "estimate/dedup.h"

#include <math.h>

static bool value_same(pp_metric metric, double a, double b, double tolerance_percent)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    const pp_metric_info *info = pp_metric_get(metric);
    double range = isnan(info->max) ? fabs(a) : info->max - info->min;
    return fabs(a - b) <= range * tolerance_percent / 100;
}

bool pp_dedup_same(const pp_sample_row *a, const pp_sample_row *b, double tolerance_percent)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (!value_same((pp_metric)m, a->values[m], b->values[m], tolerance_percent))
            return false;
    }
    return true;
}

bool pp_dedup_fold(pp_sample_row *last, const pp_sample_row *first, const pp_sample_row *next,
                   double tolerance_percent)
{
    if (next->first_ns >= last->first_ns && next->last_ns <= last->last_ns)
        return true;
    if (next->first_ns <= last->last_ns || !pp_dedup_same(first, next, tolerance_percent))
        return false;
    double before = (double)last->windows, more = (double)next->windows;
    last->share = (last->share * before + next->share * more) / (before + more);
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        last->values[m] = (last->values[m] * before + next->values[m] * more) / (before + more);
    last->windows += next->windows;
    last->last_ns = next->last_ns;
    return true;
}
