/*
 * Values of layers that were replayed by themselves (docs/replay.md): windows that lie within a
 * dwell, less what the background has in the same number of replays, by the layer's busy time.
 */
#include "estimate/replay/replay.h"
#include "estimate/replay/hold_out.h"

#include "common/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_WINDOWS = 2, LEAST_FREEDOM = 4 };

/* Windows that what is seen of all dwells counts for beside a dwell's own. */
#define SHARED 4.0

/* Of the value: the same kernel differs so much from run to run (docs/sampling.md). */
#define REPEATABLE 0.01
/* What replays' traffic of memory differs by from the step's, whose caches are never quite the
 * same: of the value, less where there is nothing more to move, and of the range
 * (docs/accuracy.md). */
#define TRAFFIC 0.15
#define TRAFFIC_LEAST 0.01
/* Standard deviations, of the whole: of what lies anywhere between nothing and that, and of how
 * long warps of the background are there (docs/replay.md). */
#define UNIFORM_OFF 0.29
#define THERE_OFF 0.5
/* Of the value, for each part by which its kernels take longer or shorter there than in steps. */
#define LONGER_OFF 0.5
#define SOURCE "replays"

static const char not_replayed[] = "it was not replayed";

/* ---- windows ---- */

/* Of one metric: the windows of each dwell, and by how much of a dwell's mean they differ from what
 * the replays in them say: by the driver's clock, of which all dwells' have the same share. */
typedef struct table {
    const pp_problem *p;
    const pp_replay_runs *dwells;
    pp_windows *of; /* parallel to the dwells */
    double relative;
    size_t freedom;
} table;

static int make_table(const pp_problem *p, const pp_regression_metric *m, table *ret, pp_error *err)
{
    const pp_replay_runs *d = &p->dwells;
    *ret = (table){.p = p, .dwells = d, .of = calloc(d->count + 1, sizeof *ret->of)};
    if (!ret->of)
        return pp_error_nomem(err);
    double squares = 0;
    double whole = 0;
    for (size_t i = 0; i < d->count; i++) {
        const pp_windows w = ret->of[i] = pp_coverage_windows(d, m, &d->items[i], &p->reading);
        const size_t free = w.n ? w.n - 1 : 0;
        squares += w.squares;
        whole += (double)free * w.value * w.value;
        ret->freedom += free;
    }
    ret->relative = whole > 0 ? squares / whole : 0;
    return 0;
}

/* Of one window in a dwell: its own, or with all dwells', where that is more. */
static double variance_of(const table *t, const pp_windows *w)
{
    const double free = (double)(w->n - 1);
    const double shared = t->relative * w->value * w->value;
    const double both = (w->squares + SHARED * shared) / (free + SHARED);
    return free > 0 ? fmax(w->squares / free, both) : both;
}

/* A mean with its variance, both of as many windows. */
typedef struct figure {
    double mean;
    double variance;
    size_t windows;
    double rest; /* ns of a replay in which kernels ran that go with it */
    double busy; /* ns in which the layer's did */
    bool known;
} figure;

/* What the windows say of one replay: its level times its time (ns). The same of several dwells are
 * taken together by their windows. */
static void add_figure(figure *f, const table *t, size_t i)
{
    const pp_replay_run *w = &t->dwells->items[i];
    const pp_windows *of = &t->of[i];
    f->known = f->known && w->known;
    if (of->n == 0 || w->calls == 0)
        return;
    const double n = (double)of->n;
    const double own = variance_of(t, of) / (n * of->rate * of->rate);
    const size_t all = f->windows + of->n;
    const double part = n / (double)all;
    f->mean += (of->each - f->mean) * part;
    f->variance = f->variance * (1 - part) * (1 - part) + part * part * own;
    f->rest += ((double)w->rest_ns / (double)w->calls - f->rest) * part;
    f->busy += ((double)w->busy_ns / (double)w->calls - f->busy) * part;
    f->windows = all;
}

static figure background_of(const table *t, const pp_replay_run *like)
{
    figure f = {.known = true};
    for (size_t i = 0; i < t->dwells->count; i++) {
        const pp_replay_run *w = &t->dwells->items[i];
        if (w->background && w->process == like->process && w->number == like->number)
            add_figure(&f, t, i);
    }
    return f;
}

/* One item's dwells: those of its layer and phase, in the one process. */
typedef struct item {
    uint32_t process;
    int32_t layer;
    uint8_t phase;
} item;

static bool is_of(const pp_replay_run *w, const item *x)
{
    return !w->background && w->process == x->process && w->layer == x->layer &&
           w->phase == x->phase && w->calls > 0;
}

/* What a replay has of the background: the same kernels take longer or shorter there than in the
 * background's own dwell, by what the layer leaves in the cache and by clocks that change. Warps
 * are there as much longer. Memory moves by something between nothing and all that it can, which
 * is the same for all that lies between: its mean, give or take 0.29 of it. Of instructions there
 * are as many, in as many cycles as before or in more. */
static figure goes_along(const figure *all, const figure *behind, pp_metric metric)
{
    figure f = *behind;
    if (behind->rest <= 0 || all->rest <= 0)
        return f;
    const double longer = all->rest - behind->rest;
    const double as_long = longer / behind->rest * behind->mean;
    const bool memory = metric == PP_METRIC_DRAM_ACTIVE;
    const pp_metric_info *info = pp_metric_get(metric);
    const double most = memory ? longer * (info->max - info->min) : as_long;
    const bool there = metric == PP_METRIC_SM_ACTIVE || metric == PP_METRIC_SM_OCCUPANCY;
    const double more = there ? most : most / 2;
    const double off = (there ? THERE_OFF : UNIFORM_OFF) * most;
    f.mean = fmax(0, f.mean + more);
    f.variance += off * off;
    return f;
}

/* The variance that a value has whatever its windows say; `in_steps`: ns in which the layer's
 * kernels ran in a call of the training. */
static double bias_of(pp_metric metric, const figure *f, double in_steps)
{
    const pp_metric_info *info = pp_metric_get(metric);
    const double repeated = REPEATABLE * f->mean;
    const double longer =
        in_steps > 0 ? LONGER_OFF * fabs(f->busy - in_steps) / fmax(f->busy, in_steps) : 0;
    const double range = info->max - info->min;
    const double part = TRAFFIC * f->mean * fmax(0, 1 - f->mean / range);
    const double least = TRAFFIC_LEAST * range;
    return repeated * repeated + longer * longer * f->mean * f->mean +
           (metric == PP_METRIC_DRAM_ACTIVE ? part * part + least * least : 0);
}

/* NULL and a value, or why there is none. */
static const char *estimate(const table *t, const item *x, pp_metric metric, double in_steps,
                            figure *ret)
{
    figure all = {.known = true};
    const pp_replay_run *first = NULL;
    double busy = 0;
    for (size_t i = 0; i < t->dwells->count; i++) {
        const pp_replay_run *w = &t->dwells->items[i];
        if (!is_of(w, x) || (first && w->number != first->number))
            continue;
        first = w;
        busy += (double)w->busy_ns;
        add_figure(&all, t, i);
    }
    if (!first)
        return not_replayed;
    const figure behind = background_of(t, first);
    if (!all.known || !behind.known)
        return "its kernels were not recorded while it was replayed";
    if (busy <= 0)
        return "no kernel of it ran while it was replayed";
    if (all.windows < LEAST_WINDOWS || behind.windows < LEAST_WINDOWS ||
        t->freedom < LEAST_FREEDOM || all.busy <= 0)
        return "too few metric windows lie within its replays";
    const figure along = goes_along(&all, &behind, metric);
    *ret = all;
    ret->mean = (all.mean - along.mean) / all.busy;
    ret->variance =
        (all.variance + along.variance) / (all.busy * all.busy) + bias_of(metric, ret, in_steps);
    return NULL;
}

/* ---- into the solution ---- */

static const char *const skip_reason[] = {
    NULL,
    "its forward is not torch's own: replaying it might change the training",
    "replaying it would change its weights, or wait for other processes",
    "an input of it could not be kept",
    "there is too little memory to replay it",
    "replaying it raised an exception",
    "the limit of pauses was reached before its turn",
    "it was not called in the steps in which inputs were kept",
    "it has no backward",
    "it calls other layers: what it does itself cannot be replayed without them",
    "it is no module that could be called again",
};

static const char *why_skipped(const pp_activity *a, const item *x)
{
    for (size_t i = 0; i < a->n_layers && x->phase <= PP_WIRE_BACKWARD; i++) {
        const pp_activity_layer *l = &a->layers[i];
        if (l->process != x->process || l->id != x->layer)
            continue;
        const unsigned reason = l->skip_reason[x->phase];
        return reason < sizeof skip_reason / sizeof *skip_reason ? skip_reason[reason] : NULL;
    }
    return NULL;
}

/* Of the processes that use the GPU the first that has the layer. */
static bool find_item(const pp_activity *a, const pp_estimates *s, const pp_estimates_item *of,
                      item *ret)
{
    for (size_t i = 0; i < a->n_layers; i++) {
        const pp_activity_layer *l = &a->layers[i];
        if (pp_activity_uses(a, l->process, s->gpu) && strcmp(l->name, of->layer) == 0) {
            *ret = (item){.process = l->process, .layer = l->id, .phase = (uint8_t)of->phase};
            return true;
        }
    }
    return false;
}

static void forget_group(pp_estimate *to)
{
    free(to->group_name);
    to->group_name = NULL;
    to->group_mean = to->group_standard_error = (double)NAN;
}

static int set_value(pp_estimate *to, const figure *f, pp_error *err)
{
    char *source = strdup(SOURCE);
    if (!source)
        return pp_error_nomem(err);
    forget_group(to);
    free(to->source);
    to->source = source;
    to->mean = f->mean;
    to->standard_error = sqrt(f->variance);
    to->windows = (double)f->windows;
    to->method = PP_METHOD_REPLAY;
    to->basis = PP_BASIS_BUSY;
    to->reason = NULL;
    return 0;
}

static int take(const pp_activity *a, const table *t, double limit, bool only, pp_estimates *s,
                pp_estimate *to, pp_error *err)
{
    const pp_estimates_item *of = &s->items[to->item];
    const pp_metric_info *info = pp_metric_get(to->metric);
    item x;
    figure f = {0};
    if (of->kind != PP_ITEM_LAYER || !find_item(a, s, of, &x))
        return 0;
    const double in_steps = pp_problem_busy_of_call(t->p, of->layer, of->phase);
    const char *why = estimate(t, &x, to->metric, in_steps, &f);
    if (!why && isfinite(f.mean))
        f.mean = pp_metric_bound(info, f.mean, &f.variance);
    if (!why && !(isfinite(f.mean) && sqrt(f.variance) <= limit * (info->max - info->min)))
        why = "its standard error is above the limit";
    if (!why)
        return set_value(to, &f, err);
    const char *before = why_skipped(a, &x);
    if (only)
        to->reason = before ? before : why == not_replayed && *s->isolated ? s->isolated : why;
    return 0;
}

static int take_metric(const pp_activity *a, const pp_problem *p, const pp_regression_metric *m,
                       pp_metric metric, const pp_estimates_options *options, pp_estimates *s,
                       pp_error *err)
{
    table t;
    if (make_table(p, m, &t, err) < 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_estimates; i++)
        if (s->estimates[i].metric == metric)
            rc = take(a, &t, options->attribution.max_standard_error,
                      options->method == PP_METHOD_REPLAY, s, &s->estimates[i], err);
    free(t.of);
    return rc;
}

int pp_replay_estimate(const pp_activity *a, const pp_problem *p,
                       const pp_estimates_options *options, pp_estimates *s, pp_error *err)
{
    int rc = 0;
    const bool only = options->method == PP_METHOD_REPLAY;
    if (p->dwells.count == 0 && !only)
        return 0;
    for (size_t m = 0; rc == 0 && m < p->n_metrics; m++)
        if (pp_metric_is_replayed(p->metric_ids[m]))
            rc = take_metric(a, p, &p->all[m], p->metric_ids[m], options, s, err);
    if (rc == 0 && only && p->dwells.count > 0)
        rc = pp_hold_out_compare(p, s, err);
    for (size_t i = 0; i < s->n_estimates && only; i++)
        if (!pp_metric_is_replayed(s->estimates[i].metric) &&
            s->items[s->estimates[i].item].kind != PP_ITEM_JOB)
            s->estimates[i].reason = "replays do not tell this metric";
    return rc;
}
