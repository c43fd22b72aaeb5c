#include "estimate/items/item_bounds.h"

#include "common/cleanup.h"

#include <math.h>
#include <stdlib.h>

enum { UNITS = PP_BOUND_UNITS };

#define NEVER 1e-6 /* less likely than errors of values are known to be normal */

/* A mean over elapsed time is one over busy time where it is known how long nothing ran. */
static double over_time_of(bool busy, const pp_estimates_item *item, pp_basis basis, double value)
{
    if (!busy)
        return basis == PP_BASIS_ELAPSED ? value : (double)NAN;
    if (basis == PP_BASIS_BUSY)
        return value;
    return item->idle_share < 1 ? value / (1 - item->idle_share) : (double)NAN;
}

void pp_item_values(const pp_estimates *estimates, bool busy, pp_metric metric, double *value,
                    double *error, const char **group)
{
    for (size_t i = 0; i < estimates->n_items; i++) {
        value[i] = error[i] = (double)NAN;
        if (group)
            group[i] = NULL;
    }
    for (size_t i = 0; i < estimates->n_estimates; i++) {
        const pp_estimate *e = &estimates->estimates[i];
        const pp_estimates_item *item = &estimates->items[e->item];
        if (e->metric != metric || item->kind == PP_ITEM_JOB || item->kind == PP_ITEM_IDLE)
            continue;
        const bool own = isfinite(e->mean);
        value[e->item] = over_time_of(busy, item, e->basis, own ? e->mean : e->group_mean);
        error[e->item] =
            over_time_of(busy, item, e->basis, own ? e->standard_error : e->group_standard_error);
        if (group)
            group[e->item] = own ? NULL : e->group_name;
    }
}

/* Time that waits, not work: what it is bound by is told by its kind. */
static pp_bound bound_of_kind(pp_item_kind kind)
{
    return kind == PP_ITEM_DATA            ? PP_BOUND_DATA
           : kind == PP_ITEM_COMMUNICATION ? PP_BOUND_COMMUNICATION
                                           : PP_BOUND_COUNT;
}

/* A group's mean says nothing of one in it. */
static const pp_bound_unit not_told = {(double)NAN, (double)NAN};

int pp_item_bounds(const pp_estimates *estimates, bool busy, double *likely, pp_error *err)
{
    const size_t n = estimates->n_items;
    PP_CLEANUP_FREE double *value = calloc(UNITS * n + 1, sizeof *value);
    PP_CLEANUP_FREE double *error = calloc(UNITS * n + 1, sizeof *error);
    PP_CLEANUP_FREE const char **group = calloc(UNITS * n + 1, sizeof *group);
    if (!value || !error || !group)
        return pp_error_nomem(err);
    for (size_t k = 0; k < UNITS; k++)
        pp_item_values(estimates, busy, pp_bound_metric((pp_bound)k), &value[k * n], &error[k * n],
                       &group[k * n]);
    for (size_t i = 0; i < n; i++) {
        double *of = &likely[i * PP_BOUND_COUNT];
        const pp_bound kind = bound_of_kind(estimates->items[i].kind);
        pp_bound_unit told[UNITS];
        for (size_t k = 0; k < UNITS; k++)
            told[k] =
                group[k * n + i] ? not_told : (pp_bound_unit){value[k * n + i], error[k * n + i]};
        if (kind == PP_BOUND_COUNT)
            pp_bound_of_units(told, !busy, of);
        else
            of[kind] = 1;
        for (int k = 0; k < PP_BOUND_COUNT; k++)
            of[k] = of[k] < NEVER ? 0 : of[k];
    }
    return 0;
}

int pp_item_bounds_fill(pp_estimates *estimates, pp_error *err)
{
    PP_CLEANUP_FREE double *likely =
        calloc(estimates->n_items * PP_BOUND_COUNT + 1, sizeof *likely);
    if (!likely)
        return pp_error_nomem(err);
    if (pp_item_bounds(estimates, estimates->gap_ns >= 0, likely, err) < 0)
        return -1;
    for (size_t i = 0; i < estimates->n_items; i++) {
        pp_estimates_item *item = &estimates->items[i];
        const double *of = &likely[i * PP_BOUND_COUNT];
        const bool has = item->kind != PP_ITEM_JOB && item->kind != PP_ITEM_IDLE;
        item->bound = PP_BOUND_UNKNOWN;
        for (int k = 0; k < PP_BOUND_COUNT && has; k++)
            if (of[k] > of[item->bound])
                item->bound = (pp_bound)k;
        item->bound_likely = has ? of[item->bound] : (double)NAN;
    }
    return 0;
}
