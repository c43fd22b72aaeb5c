/*
 * Values of layers that were replayed by themselves (docs/isolated.md): windows that lie within a
 * dwell, less what the background has in the same number of replays, by the layer's busy time.
 */
#include "controller/solution_internal.h"

#include "common/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_WINDOWS = 2, LEAST_FREEDOM = 4 };

/* Of the value: the same kernel differs so much from run to run (docs/fine.md). */
#define REPEATABLE 0.01
#define SOURCE "replays"

static const char not_replayed[] = "it was not replayed";

static const pp_metric metrics[] = {PP_METRIC_SM_ACTIVE, PP_METRIC_SM_OCCUPANCY,
                                    PP_METRIC_DRAM_ACTIVE, PP_METRIC_FP32_ACTIVE};

/* ---- the dwells of a GPU ---- */

static int compare_dwells(const void *left, const void *right)
{
    const pp_dwell *a = left;
    const pp_dwell *b = right;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    if (a->stretch != b->stretch)
        return a->stretch < b->stretch ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

static bool uses(const pp_activity *a, uint32_t process, const char *gpu)
{
    const pp_strings *gpus = &a->processes[process].gpus;
    return *gpu ? pp_strings_contain(gpus, gpu) : gpus->count == 0;
}

static void list_batches(const pp_activity *a, const char *gpu, pp_dwells *d)
{
    for (size_t i = 0; i < a->n_batches; i++) {
        const pp_activity_batch *b = &a->batches[i];
        if (b->dwell && uses(a, b->process, gpu))
            d->items[d->count++] = (pp_dwell){.process = b->process,
                                              .stretch = b->stretch,
                                              .number = b->dwell,
                                              .background = b->background,
                                              .start_ns = b->start_ns,
                                              .end_ns = b->end_ns,
                                              .known = true};
    }
    qsort(d->items, d->count, sizeof *d->items, compare_dwells);
}

/* Batches of one stretch are back to back. */
static void join_batches(pp_dwells *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->count; i++) {
        pp_dwell *last = kept ? &d->items[kept - 1] : NULL;
        const pp_dwell *now = &d->items[i];
        if (last && last->process == now->process && last->stretch == now->stretch &&
            last->end_ns == now->start_ns)
            last->end_ns = now->end_ns;
        else
            d->items[kept++] = *now;
    }
    d->count = kept;
}

static int list_spans(pp_dwells *d, pp_error *err)
{
    d->spans = calloc(d->count + 1, sizeof *d->spans);
    if (!d->spans)
        return pp_error_nomem(err);
    for (size_t i = 0; i < d->count; i++)
        d->spans[i] = (pp_attribution_span){d->items[i].start_ns, d->items[i].end_ns};
    d->n_spans = pp_spans_join(d->spans, d->count);
    return 0;
}

/* The dwell that a batch is of: of its stretch's the last that begins no later. As many as there
 * are: none. */
static size_t find_dwell(const pp_dwells *d, const pp_activity_batch *b)
{
    const pp_dwell key = {.process = b->process, .stretch = b->stretch, .start_ns = b->start_ns};
    size_t low = 0;
    size_t high = b->dwell ? d->count : 0;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_dwells(&d->items[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const pp_dwell *w = low ? &d->items[low - 1] : NULL;
    return w && w->process == b->process && w->stretch == b->stretch && b->end_ns <= w->end_ns
               ? low - 1
               : d->count;
}

/* What the pieces of one batch say of their dwell. */
static void add_piece(pp_dwells *d, size_t of, int32_t layer, uint8_t phase, int64_t calls,
                      int64_t busy)
{
    if (of == d->count)
        return;
    pp_dwell *w = &d->items[of];
    w->known = w->known && busy >= 0;
    if (!pp_wire_phase_has_layer((pp_wire_phase)phase)) {
        w->rest_ns += busy > 0 ? busy : 0;
        return;
    }
    w->layer = layer;
    w->phase = phase;
    w->calls += calls;
    w->busy_ns += busy > 0 ? busy : 0;
}

static int add_pieces(const pp_activity *a, pp_dwells *d, pp_error *err)
{
    size_t *of = calloc(a->n_batches + 1, sizeof *of);
    if (!of)
        return pp_error_nomem(err);
    for (size_t i = 0; i < a->n_batches; i++)
        of[i] = find_dwell(d, &a->batches[i]);
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *v = &a->intervals[i];
        add_piece(d, of[v->batch], v->layer, v->phase, 1, v->kernels_ns);
    }
    for (size_t i = 0; i < a->n_cells; i++) {
        const pp_activity_cell *v = &a->cells[i];
        add_piece(d, of[v->batch], v->layer, v->phase, v->calls, v->kernels_ns);
    }
    free(of);
    return 0;
}

int pp_dwells_make(const pp_activity *a, const char *gpu, pp_dwells *ret, pp_error *err)
{
    *ret = (pp_dwells){.items = calloc(a->n_batches + 1, sizeof *ret->items)};
    if (!ret->items)
        return pp_error_nomem(err);
    list_batches(a, gpu, ret);
    join_batches(ret);
    if (list_spans(ret, err) == 0 && (ret->count == 0 || add_pieces(a, ret, err) == 0))
        return 0;
    pp_dwells_done(ret);
    return -1;
}

void pp_dwells_done(pp_dwells *d)
{
    free(d->items);
    free(d->spans);
    *d = (pp_dwells){0};
}

bool pp_dwells_touch(const pp_dwells *d, pp_attribution_span time)
{
    size_t low = 0;
    size_t high = d->n_spans;
    while (low < high) { /* the first that ends after the time begins */
        const size_t middle = low + (high - low) / 2;
        if (d->spans[middle].end_ns <= time.start_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->n_spans && d->spans[low].start_ns < time.end_ns;
}

/* ---- windows ---- */

/* Of one metric in one dwell. */
typedef struct sums {
    size_t n;
    double mean;
    double squares; /* of the differences from it */
} sums;

/* The first sample that was read at `from` or later, but the very first, which has none before. */
static size_t first_read(const pp_attribution_metric *m, int64_t from)
{
    size_t low = 1;
    size_t high = m->n_samples;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (m->samples[middle].stamp_ns < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Those that lie in it whole, whenever they were read. */
static sums windows_of(const pp_attribution_metric *m, const pp_dwell *w, const pp_reading *reading)
{
    sums s = {0};
    size_t last = 0;
    for (size_t i = first_read(m, w->start_ns); i < m->n_samples; i++) {
        const pp_attribution_span time = pp_reading_time(reading, m, i);
        if (time.end_ns > w->end_ns)
            break;
        if (time.start_ns < w->start_ns ||
            (s.n && pp_reading_again(reading, m->samples[last].stamp_ns, m->samples[i].stamp_ns)))
            continue;
        last = i;
        const double off = m->samples[i].value - s.mean;
        s.n++;
        s.mean += off / (double)s.n;
        s.squares += off * (m->samples[i].value - s.mean);
    }
    return s;
}

/* Of one metric: the windows of each dwell, and what a window's value differs from its neighbours'
 * by, which is the same for all. */
typedef struct table {
    const pp_dwells *dwells;
    sums *of; /* parallel to the dwells */
    double variance;
    size_t freedom;
} table;

static int make_table(const pp_problem *p, const pp_attribution_metric *m, table *ret,
                      pp_error *err)
{
    const pp_dwells *d = &p->dwells;
    *ret = (table){.dwells = d, .of = calloc(d->count + 1, sizeof *ret->of)};
    if (!ret->of)
        return pp_error_nomem(err);
    double squares = 0;
    for (size_t i = 0; i < d->count; i++) {
        ret->of[i] = windows_of(m, &d->items[i], &p->reading);
        squares += ret->of[i].squares;
        ret->freedom += ret->of[i].n ? ret->of[i].n - 1 : 0;
    }
    ret->variance = ret->freedom ? squares / (double)ret->freedom : 0;
    return 0;
}

/* A mean with its variance, both of as many windows. */
typedef struct figure {
    double mean;
    double variance;
    size_t windows;
    double rest; /* ns of a replay in which kernels ran that go with it */
    bool known;
} figure;

/* What the windows say of one replay: their value times its time (ns). The same of several dwells
 * are taken together by their windows. */
static void add_figure(figure *f, const table *t, size_t i)
{
    const pp_dwell *w = &t->dwells->items[i];
    const size_t n = t->of[i].n;
    f->known = f->known && w->known;
    if (n == 0 || w->calls == 0)
        return;
    const double each = (double)(w->end_ns - w->start_ns) / (double)w->calls;
    const size_t all = f->windows + n;
    const double part = (double)n / (double)all;
    f->mean += (each * t->of[i].mean - f->mean) * part;
    f->variance =
        f->variance * (1 - part) * (1 - part) + part * part * each * each * t->variance / (double)n;
    f->rest += ((double)w->rest_ns / (double)w->calls - f->rest) * part;
    f->windows = all;
}

static figure background_of(const table *t, const pp_dwell *like)
{
    figure f = {.known = true};
    for (size_t i = 0; i < t->dwells->count; i++) {
        const pp_dwell *w = &t->dwells->items[i];
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

static bool is_of(const pp_dwell *w, const item *x)
{
    return !w->background && w->process == x->process && w->layer == x->layer &&
           w->phase == x->phase && w->calls > 0;
}

/* What a replay has of the background that the background's own dwell does not tell: the same
 * kernels take longer or shorter there, by clocks that change and by what the layer leaves in the
 * cache. */
static double drift(const figure *all, const figure *behind)
{
    const double longer = fmax(all->rest, behind->rest);
    return longer > 0 ? fabs(all->rest - behind->rest) / longer * behind->mean : 0;
}

/* NULL and a value, or why there is none. */
static const char *estimate(const table *t, const item *x, figure *ret)
{
    figure all = {.known = true};
    const pp_dwell *first = NULL;
    double busy = 0;
    double calls = 0;
    for (size_t i = 0; i < t->dwells->count; i++) {
        const pp_dwell *w = &t->dwells->items[i];
        if (!is_of(w, x) || (first && w->number != first->number))
            continue;
        first = w;
        busy += (double)w->busy_ns;
        calls += (double)w->calls;
        add_figure(&all, t, i);
    }
    if (!first)
        return not_replayed;
    const figure behind = background_of(t, first);
    if (!all.known || !behind.known)
        return "its kernels were not recorded while it was replayed";
    if (busy <= 0)
        return "no kernel of it ran while it was replayed";
    if (all.windows < LEAST_WINDOWS || behind.windows < LEAST_WINDOWS || t->freedom < LEAST_FREEDOM)
        return "too few metric windows lie within its replays";
    const double each = busy / calls;
    const double off = drift(&all, &behind);
    ret->mean = (all.mean - behind.mean) / each;
    ret->variance = (all.variance + behind.variance + off * off) / (each * each) +
                    REPEATABLE * REPEATABLE * ret->mean * ret->mean;
    ret->windows = all.windows;
    return NULL;
}

/* ---- into the solution ---- */

static const char *const left_out[] = {
    NULL,
    "its forward is not torch's own: replaying it might change the training",
    "replaying it would change its weights, or wait for other processes",
    "an input of it could not be kept",
    "there is too little memory to replay it",
    "replaying it raised an exception",
    "the limit of pauses was reached before its turn",
    "it was not called in the steps in which inputs were kept",
    "it has no backward",
};

static const char *why_left_out(const pp_activity *a, const item *x)
{
    for (size_t i = 0; i < a->n_layers && x->phase <= PP_WIRE_BACKWARD; i++) {
        const pp_activity_layer *l = &a->layers[i];
        if (l->process != x->process || l->id != x->layer)
            continue;
        const unsigned reason = l->left_out[x->phase];
        return reason < sizeof left_out / sizeof *left_out ? left_out[reason] : NULL;
    }
    return NULL;
}

/* Of the processes that use the GPU the first that has the layer. */
static bool find_item(const pp_activity *a, const pp_solution *s, const pp_solution_item *of,
                      item *ret)
{
    for (size_t i = 0; i < a->n_layers; i++) {
        const pp_activity_layer *l = &a->layers[i];
        if (uses(a, l->process, s->gpu) && strcmp(l->name, of->layer) == 0) {
            *ret = (item){.process = l->process, .layer = l->id, .phase = (uint8_t)of->phase};
            return true;
        }
    }
    return false;
}

double pp_solution_bound(const pp_metric_info *info, double value, double *variance)
{
    const double bounded = fmin(fmax(value, info->min), info->max);
    *variance = fmax(*variance, (value - bounded) * (value - bounded));
    return bounded;
}

static void forget_group(pp_solution_estimate *to)
{
    free(to->group_name);
    to->group_name = NULL;
    to->group_mean = to->group_standard_error = (double)NAN;
}

static int set_value(pp_solution_estimate *to, const figure *f, pp_error *err)
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
    to->method = PP_METHOD_ISOLATED;
    to->reason = NULL;
    return 0;
}

static int take(const pp_activity *a, const table *t, double limit, bool only, pp_solution *s,
                pp_solution_estimate *to, pp_error *err)
{
    const pp_solution_item *of = &s->items[to->item];
    const pp_metric_info *info = pp_metric_get(to->metric);
    item x;
    figure f = {0};
    if (of->kind != PP_SOLUTION_LAYER || !find_item(a, s, of, &x))
        return 0;
    const char *why = estimate(t, &x, &f);
    if (!why)
        f.mean = pp_solution_bound(info, f.mean, &f.variance);
    if (!why && sqrt(f.variance) > limit * (info->max - info->min))
        why = "its standard error is above the limit";
    if (!why)
        return set_value(to, &f, err);
    const char *before = why_left_out(a, &x);
    if (only)
        to->reason = before ? before : why == not_replayed && *s->isolated ? s->isolated : why;
    return 0;
}

static int take_metric(const pp_activity *a, const pp_problem *p, const pp_attribution_metric *m,
                       pp_metric metric, const pp_solution_options *options, pp_solution *s,
                       pp_error *err)
{
    table t;
    if (make_table(p, m, &t, err) < 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_estimates; i++)
        if (s->estimates[i].metric == metric)
            rc = take(a, &t, options->attribution.max_standard_error, options->isolated_only, s,
                      &s->estimates[i], err);
    free(t.of);
    return rc == 0 && options->isolated_only && p->dwells.count > 0
               ? pp_solution_close(p, m, metric, s, err)
               : rc;
}

static bool is_told(pp_metric metric)
{
    for (size_t k = 0; k < sizeof metrics / sizeof *metrics; k++)
        if (metric == metrics[k])
            return true;
    return false;
}

int pp_solution_take_isolated(const pp_activity *a, const pp_problem *p,
                              const pp_solution_options *options, pp_solution *s, pp_error *err)
{
    int rc = 0;
    if (p->dwells.count == 0 && !options->isolated_only)
        return 0;
    for (size_t m = 0; rc == 0 && m < p->n_metrics; m++)
        if (is_told(p->metric_ids[m]))
            rc = take_metric(a, p, &p->all[m], p->metric_ids[m], options, s, err);
    for (size_t i = 0; i < s->n_estimates && options->isolated_only; i++)
        if (!is_told(s->estimates[i].metric) &&
            s->items[s->estimates[i].item].kind != PP_SOLUTION_JOB)
            s->estimates[i].reason = "replays do not tell this metric";
    return rc;
}
