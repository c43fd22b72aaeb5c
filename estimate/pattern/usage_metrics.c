#include "estimate/pattern/usage_metrics.h"

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/activity/spans.h"
#include "estimate/items/achieved.h"
#include "estimate/items/item_bounds.h"
#include "estimate/pattern/sum_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the time of a step, what has to have a value for figures of a whole step to be made of it. */
#define COVERED 0.95

enum { LEAST_WINDOWS = 5 };

/* ---- of layers ---- */

typedef struct part {
    double value, error, share;
    const char *group; /* that has this value; NULL: the item */
    size_t item;
} part;

typedef struct work {
    const pp_activity *activity;
    const pp_estimates *estimates;
    const pp_usage_time *time;
    double *value, *error; /* of items, of the metric */
    const char **group;    /* likewise */
    double *factor;
    pp_rate *rate;       /* of items, and of the job as the last */
    part *parts;         /* of the step's time, by value */
    pp_sum_part *errors; /* of these, in a sum */
    size_t n_parts;
    double told;     /* what they are of a step */
    double *samples; /* of the metric, sorted */
    size_t n_samples;
    pp_time_range observed; /* which samples may be of ... */
    pp_time_range *dwells;  /* ... but for these, sorted and apart */
    size_t n_dwells;
} work;

static int compare_parts(const void *a, const void *b)
{
    const part *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* Where no kernel runs, nothing within SMs does, and memory is at rest: docs/accuracy.md. */
static bool is_0_in_gaps(pp_metric metric)
{
    return pp_metric_get(metric)->within_sms || metric == PP_METRIC_DRAM_ACTIVE;
}

static void find_parts(work *w, pp_metric metric)
{
    const pp_usage_time *t = w->time;
    w->n_parts = 0;
    w->told = 0;
    for (size_t i = 0; i < t->n; i++)
        if (isfinite(w->value[i]) && t->share[i] > 0)
            w->parts[w->n_parts++] = (part){w->value[i], w->error[i], t->share[i], w->group[i], i};
    if (t->busy && t->idle.value > 0 && is_0_in_gaps(metric))
        w->parts[w->n_parts++] = (part){0, 0, t->idle.value, NULL, t->n};
    for (size_t i = 0; i < w->n_parts; i++)
        w->told += w->parts[i].share;
    qsort(w->parts, w->n_parts, sizeof *w->parts, compare_parts);
}

/* The part in which the cumulated share passes p of all that is told. */
static size_t part_at(const work *w, double p)
{
    double below = 0;
    size_t i = 0;
    while (i + 1 < w->n_parts && (below += w->parts[i].share) < p * w->told)
        i++;
    return i;
}

/* What the share of all time with values up to that part may be off by. */
static double error_of_rank(work *w, size_t last)
{
    for (size_t i = 0; i < w->time->n; i++)
        w->factor[i] = 0;
    for (size_t i = 0; i <= last; i++)
        if (w->parts[i].item < w->time->n)
            w->factor[w->parts[i].item] = 1 / w->told;
    return pp_usage_time_error(w->time, w->factor);
}

/* Woodruff, JASA 47 (1952): where the quantiles lie that the rank may as well be of. */
static pp_figure quantile_of_parts(work *w, double p)
{
    const size_t at = part_at(w, p);
    const double rank = error_of_rank(w, at);
    const double low = w->parts[part_at(w, fmax(p - rank, 0))].value;
    const double high = w->parts[part_at(w, fmin(p + rank, 1))].value;
    return (pp_figure){w->parts[at].value,
                       isfinite(rank) ? hypot(w->parts[at].error, (high - low) / 2) : (double)NAN};
}

static pp_figure mean_of_parts(work *w)
{
    pp_figure mean = {0, 0};
    for (size_t i = 0; i < w->time->n; i++)
        w->factor[i] = 0;
    for (size_t i = 0; i < w->n_parts; i++) {
        const part *p = &w->parts[i];
        mean.value += p->share * p->value / w->told;
        w->errors[i] = (pp_sum_part){p->group, p->share * p->error / w->told};
        if (p->item < w->time->n)
            w->factor[p->item] = p->value / w->told;
    }
    const double of_time = pp_usage_time_error(w->time, w->factor);
    const double of_step = pp_usage_step_error(w->time, mean.value);
    mean.standard_error =
        sqrt(pp_sum_variance(w->errors, w->n_parts) + of_time * of_time + of_step * of_step);
    return mean;
}

/* As the mean, of what each of them is per second. A clock that is the job's is off for all of them
 * alike. */
static pp_figure achieved_of_parts(work *w)
{
    pp_figure achieved = {0, 0};
    double of_clocks = 0, of_job = 0;
    size_t n = 0;
    for (size_t i = 0; i < w->time->n; i++)
        w->factor[i] = 0;
    for (size_t i = 0; i < w->n_parts; i++) {
        const part *p = &w->parts[i];
        if (p->item >= w->time->n) /* idle time */
            continue;
        const pp_rate *r = &w->rate[p->item];
        const double of_clock = p->share * p->value * r->error / w->told;
        achieved.value += p->share * p->value * r->value / w->told;
        w->errors[n++] = (pp_sum_part){p->group, p->share * p->error * r->value / w->told};
        of_clocks += r->of_job ? 0 : of_clock * of_clock;
        of_job += r->of_job ? of_clock : 0;
        w->factor[p->item] = p->value * r->value / w->told;
    }
    const double of_time = pp_usage_time_error(w->time, w->factor);
    const double of_step = pp_usage_step_error(w->time, achieved.value);
    achieved.standard_error = sqrt(pp_sum_variance(w->errors, n) + of_clocks + of_job * of_job +
                                   of_time * of_time + of_step * of_step);
    return achieved;
}

static void find_profile(const work *w, pp_usage_metric *m)
{
    const pp_usage_time *t = w->time;
    m->has_profile = t->has_bins;
    for (size_t k = 0; k < PP_USAGE_BINS; k++) {
        double sum = 0;
        for (size_t i = 0; i < t->n; i++)
            if (isfinite(w->value[i]))
                sum += w->value[i] * t->bins[i * PP_USAGE_BINS + k] * PP_USAGE_BINS;
        m->profile[k] = sum;
    }
}

static bool find_of_layers(work *w, pp_usage_metric *m)
{
    find_parts(w, m->metric);
    if (w->n_parts == 0 || w->told < COVERED)
        return false;
    m->source = PP_USAGE_LAYERS;
    m->mean = mean_of_parts(w);
    m->achieved = achieved_of_parts(w);
    m->p50 = quantile_of_parts(w, 0.5);
    m->p95 = quantile_of_parts(w, 0.95);
    find_profile(w, m);
    return true;
}

/* ---- of windows ---- */

/* Samples that may hold some of a dwell, whose time is none of the training's: up to so long after
 * it, as windows are long and late. */
static int64_t lateness(const pp_estimates *e)
{
    const double lag = isfinite(e->lag_ns) ? e->lag_ns : 0;
    return (int64_t)(2.0 * (double)e->window_ns +
                     fmax(fmax(2.5 * (double)e->window_ns, 1.5e9), lag));
}

static void find_observed(work *w)
{
    const pp_activity *a = w->activity;
    size_t n = 0;
    w->observed = (pp_time_range){INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < a->n_batches; i++) {
        const pp_activity_batch *b = &a->batches[i];
        if (b->start_ns < w->observed.start_ns)
            w->observed.start_ns = b->start_ns;
        if (b->end_ns > w->observed.end_ns)
            w->observed.end_ns = b->end_ns;
        if (b->dwell)
            w->dwells[n++] = (pp_time_range){b->start_ns, b->end_ns + lateness(w->estimates)};
    }
    w->n_dwells = pp_spans_join(w->dwells, n);
}

static bool is_observed(const work *w, int64_t at)
{
    const size_t i = pp_spans_find(w->dwells, w->n_dwells, at);
    return at >= w->observed.start_ns && at <= w->observed.end_ns &&
           (i == w->n_dwells || at < w->dwells[i].start_ns);
}

/* Those of the GPU in the time that batches cover. */
static void find_samples(work *w, pp_metric metric)
{
    const pp_activity *a = w->activity;
    w->n_samples = 0;
    for (size_t i = 0; i < a->n_samples; i++) {
        const pp_activity_sample *s = &a->samples[i];
        if (s->metric == metric && is_observed(w, s->stamp_ns) &&
            strcmp(a->gpus.items[s->gpu], w->estimates->gpu) == 0)
            w->samples[w->n_samples++] = s->value;
    }
    pp_sort_doubles(w->samples, w->n_samples);
}

static double sample_at(const work *w, double p)
{
    const double at = fmin(fmax(p, 0), 1) * (double)(w->n_samples - 1);
    const size_t i = (size_t)at;
    const double next = w->samples[i + 1 < w->n_samples ? i + 1 : i];
    return w->samples[i] + (at - (double)i) * (next - w->samples[i]);
}

static pp_figure quantile_of_samples(const work *w, double p)
{
    if (w->n_samples < LEAST_WINDOWS)
        return PP_UNKNOWN;
    const double rank = sqrt(p * (1 - p) / (double)w->n_samples);
    return (pp_figure){sample_at(w, p), (sample_at(w, p + rank) - sample_at(w, p - rank)) / 2};
}

static const pp_estimate *job_of(const pp_estimates *e, pp_metric metric)
{
    for (size_t i = 0; i < e->n_estimates; i++)
        if (e->estimates[i].metric == metric &&
            e->items[e->estimates[i].item].kind == PP_ITEM_JOB && isfinite(e->estimates[i].mean))
            return &e->estimates[i];
    return NULL;
}

static bool find_of_windows(work *w, pp_usage_metric *m)
{
    const pp_estimate *job = job_of(w->estimates, m->metric);
    if (!job)
        return false;
    m->source = PP_USAGE_WINDOWS;
    m->mean = (pp_figure){job->mean, job->standard_error};
    const pp_rate *r = &w->rate[job->item];
    m->achieved = (pp_figure){job->mean * r->value,
                              hypot(job->standard_error * r->value, job->mean * r->error)};
    m->p50 = quantile_of_samples(w, 0.5);
    m->p95 = quantile_of_samples(w, 0.95);
    return true;
}

/* ---- a metric ---- */

/* Kernel records tell it of the step as a whole. */
static bool find_time_of_kernels(const work *w, pp_usage_metric *m)
{
    const pp_metric_info *info = pp_metric_get(m->metric);
    if (!info->time_of_kernels || !isfinite(w->time->idle.value))
        return false;
    m->source = PP_USAGE_LAYERS;
    m->mean = (pp_figure){info->max * (1 - w->time->idle.value),
                          info->max * w->time->idle.standard_error};
    return true;
}

static bool find_metric(work *w, pp_usage_metric *m)
{
    const pp_metric_info *info = pp_metric_get(m->metric);
    find_samples(w, m->metric);
    pp_achieved_rates(w->activity, w->estimates, m->metric, w->rate);
    m->peak = w->estimates->n_items > 0 ? w->rate[0].peak : (double)NAN;
    if (info->kind == PP_METRIC_LEVEL && w->n_samples > 0)
        m->most = (pp_figure){w->samples[w->n_samples - 1], 0};
    if (find_time_of_kernels(w, m))
        return true;
    pp_item_values(w->estimates, w->time->busy, m->metric, w->value, w->error, w->group);
    return (info->kind == PP_METRIC_SHARE && !info->time_of_kernels && find_of_layers(w, m)) ||
           find_of_windows(w, m);
}

int pp_usage_metrics_find(const pp_activity *activity, const pp_estimates *estimates,
                          const pp_usage_time *time, pp_usage *usage, pp_error *err)
{
    const size_t n = time->n + 1;
    PP_CLEANUP_FREE double *value = calloc(n, sizeof *value);
    PP_CLEANUP_FREE double *error = calloc(n, sizeof *error);
    PP_CLEANUP_FREE const char **group = calloc(n, sizeof(const char *));
    PP_CLEANUP_FREE pp_sum_part *errors = calloc(n, sizeof *errors);
    PP_CLEANUP_FREE double *factor = calloc(n, sizeof *factor);
    PP_CLEANUP_FREE pp_rate *rate = calloc(estimates->n_items + 1, sizeof *rate);
    PP_CLEANUP_FREE part *parts = calloc(n, sizeof *parts);
    PP_CLEANUP_FREE double *samples = calloc(activity->n_samples + 1, sizeof *samples);
    PP_CLEANUP_FREE pp_time_range *dwells = calloc(activity->n_batches + 1, sizeof *dwells);
    usage->metrics = calloc(PP_METRIC_COUNT, sizeof *usage->metrics);
    if (!value || !error || !group || !errors || !factor || !rate || !parts || !samples ||
        !dwells || !usage->metrics)
        return pp_error_nomem(err);
    work w = {.activity = activity,
              .estimates = estimates,
              .time = time,
              .value = value,
              .error = error,
              .group = group,
              .errors = errors,
              .factor = factor,
              .rate = rate,
              .parts = parts,
              .samples = samples,
              .dwells = dwells};
    find_observed(&w);
    static const pp_figure unknown = PP_UNKNOWN;
    for (int metric = 0; metric < PP_METRIC_COUNT; metric++) {
        pp_usage_metric *m = &usage->metrics[usage->n_metrics];
        *m = (pp_usage_metric){.metric = (pp_metric)metric,
                               .mean = unknown,
                               .p50 = unknown,
                               .p95 = unknown,
                               .most = unknown,
                               .achieved = unknown,
                               .peak = (double)NAN};
        usage->n_metrics += find_metric(&w, m);
    }
    return 0;
}
