#include "estimate/counted_steps.h"

#include "common/cleanup.h"
#include "estimate/spans.h"

#include <math.h>
#include <stdlib.h>

/* NVML's and DCGM's power is the mean of the last second (nvmlDeviceGetPowerUsage). */
#define AVERAGED_NS INT64_C(1000000000)
/* Samples below which all of them say more of a rate than those between captures alone. */
#define LEAST_SAMPLES 5

typedef struct step_place {
    uint32_t process;
    const pp_activity_step *step;
} step_place;

static int compare_places(const void *a, const void *b)
{
    const step_place *x = a;
    const step_place *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return x->step->number < y->step->number ? -1 : x->step->number > y->step->number;
}

static size_t collect_places(const pp_activity *a, const bool *uses, step_place *to)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_steps; i++) {
        const pp_activity_batch *b = &a->batches[a->steps[i].batch];
        if (uses[b->process] && b->dwell == 0)
            to[n++] = (step_place){b->process, &a->steps[i]};
    }
    qsort(to, n, sizeof *to, compare_places);
    return n;
}

static void add_between(const step_place *left, const step_place *right,
                        const pp_replay_runs *dwells, pp_counted_steps *to)
{
    const pp_time_range range = {left->step->start_ns + left->step->duration_ns,
                                 right->step->start_ns};
    const int64_t steps = right->step->number - left->step->number - 1;
    if (left->process != right->process || steps <= 0 || range.end_ns <= range.start_ns ||
        pp_replay_runs_touch(dwells, range))
        return;
    const int64_t ns = range.end_ns - range.start_ns;
    if (ns > INT64_MAX - to->ns || steps > INT64_MAX - to->steps)
        return;
    to->steps += steps;
    to->ns += ns;
    to->between[to->count++] = range;
}

int pp_counted_steps_find(const pp_activity *activity, const bool *uses,
                          const pp_replay_runs *dwells, pp_counted_steps *ret, pp_error *err)
{
    PP_CLEANUP_FREE step_place *places = calloc(activity->n_steps + 1, sizeof *places);
    *ret = (pp_counted_steps){.between = calloc(activity->n_steps + 1, sizeof *ret->between)};
    if (!places || !ret->between)
        return pp_error_nomem(err);
    const size_t n = collect_places(activity, uses, places);
    for (size_t i = 1; i < n; i++)
        add_between(&places[i - 1], &places[i], dwells, ret);
    ret->count = pp_spans_join(ret->between, ret->count);
    return 0;
}

void pp_counted_steps_done(pp_counted_steps *counted)
{
    free(counted->between);
    *counted = (pp_counted_steps){0};
}

double pp_counted_step_ns(const pp_counted_steps *counted)
{
    return counted->steps > 0 ? (double)counted->ns / (double)counted->steps : (double)NAN;
}

static int compare_starts(const void *key, const void *range)
{
    const int64_t at = *(const int64_t *)key;
    const pp_time_range *r = range;
    return at < r->start_ns ? -1 : at >= r->end_ns;
}

static bool holds(const pp_counted_steps *counted, int64_t from, int64_t to)
{
    const pp_time_range *range =
        bsearch(&from, counted->between, counted->count, sizeof *range, compare_starts);
    return range && to <= range->end_ns;
}

double pp_counted_steps_amount(const pp_counted_steps *counted, const pp_coverage *reading,
                               const pp_regression_metric *metric, double mean)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < metric->n_samples; i++) {
        const pp_time_range told = pp_coverage_time(reading, metric, i);
        if (!holds(counted, told.start_ns - AVERAGED_NS, told.end_ns))
            continue;
        sum += metric->samples[i].value;
        n++;
    }
    return (n >= LEAST_SAMPLES ? sum / (double)n : mean) * pp_counted_step_ns(counted) / 1e9;
}
