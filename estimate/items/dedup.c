#include "estimate/items/dedup.h"

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

static bool measured_same(const pp_sample_row *a, const pp_sample_row *b)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (isnan(a->values[m]) != isnan(b->values[m]))
            return false;
    }
    return true;
}

static bool is_within(const pp_sample_row *row, const pp_sample_row *other)
{
    return row->first_ns >= other->first_ns && row->last_ns <= other->last_ns;
}

static double mean_of(double a, double weight_a, double b, double weight_b)
{
    return (a * weight_a + b * weight_b) / (weight_a + weight_b);
}

bool pp_dedup_join(pp_sample_row *last, const pp_sample_row *next)
{
    if (is_within(next, last))
        return true;
    if (next->first_ns <= last->last_ns || !measured_same(last, next))
        return false;
    const double before = (double)last->windows, more = (double)next->windows;
    const double taken = before * last->share, more_taken = more * next->share;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        last->values[m] = mean_of(last->values[m], before, next->values[m], more);
        last->by_share[m] = mean_of(last->by_share[m], taken, next->by_share[m], more_taken);
    }
    last->share = mean_of(last->share, before, next->share, more);
    last->windows += next->windows;
    last->last_ns = next->last_ns;
    return true;
}

bool pp_dedup_fold(pp_sample_row *last, const pp_sample_row *first, const pp_sample_row *next,
                   double tolerance_percent)
{
    return (is_within(next, last) || pp_dedup_same(first, next, tolerance_percent)) &&
           pp_dedup_join(last, next);
}
