/*
 * The stretches in which layers are replayed (docs/isolated.md): which they are, when in them
 * replays were, and how long their kernels ran.
 */
#include "controller/solution_internal.h"

#include "common/wire.h"

#include <stdlib.h>
#include <string.h>

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

bool pp_solution_uses(const pp_activity *a, uint32_t process, const char *gpu)
{
    const pp_strings *gpus = &a->processes[process].gpus;
    return *gpu ? pp_strings_contain(gpus, gpu) : gpus->count == 0;
}

static void list_batches(const pp_activity *a, const char *gpu, pp_dwells *d)
{
    for (size_t i = 0; i < a->n_batches; i++) {
        const pp_activity_batch *b = &a->batches[i];
        if (b->dwell && pp_solution_uses(a, b->process, gpu))
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

/* A piece of one batch: of a layer's the replays that begin with it, or in it. */
typedef struct piece {
    int32_t layer;
    uint8_t phase;
    int64_t start_ns;
    int64_t calls;
    int64_t busy_ns;
} piece;

/* Sums stop at the type's end. */
static void add_up(int64_t *sum, int64_t more)
{
    if (more > 0 && __builtin_add_overflow(*sum, more, sum))
        *sum = INT64_MAX;
}

/* What it says of its dwell. */
static void add_piece(pp_dwells *d, size_t of, const piece *v)
{
    if (of == d->count)
        return;
    pp_dwell *w = &d->items[of];
    w->known = w->known && v->busy_ns >= 0;
    if (!pp_wire_phase_has_layer((pp_wire_phase)v->phase)) {
        add_up(&w->rest_ns, v->busy_ns);
        return;
    }
    w->layer = v->layer;
    w->phase = v->phase;
    add_up(&w->calls, v->calls);
    add_up(&w->busy_ns, v->busy_ns);
    d->points[d->n_points++] = (pp_dwell_point){of, v->start_ns, (double)v->calls};
}

static int compare_points(const void *left, const void *right)
{
    const pp_dwell_point *a = left;
    const pp_dwell_point *b = right;
    if (a->dwell != b->dwell)
        return a->dwell < b->dwell ? -1 : 1;
    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Those of one time are one. */
static void join_points(pp_dwells *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->n_points; i++) {
        const pp_dwell_point *now = &d->points[i];
        pp_dwell_point *last = kept ? &d->points[kept - 1] : NULL;
        if (last && last->dwell == now->dwell && last->at_ns == now->at_ns)
            last->calls += now->calls;
        else
            d->points[kept++] = *now;
    }
    d->n_points = kept;
}

/* What each began with, as what had been before it. */
static void add_up_points(pp_dwells *d)
{
    qsort(d->points, d->n_points, sizeof *d->points, compare_points);
    join_points(d);
    double sum = 0;
    for (size_t i = 0; i < d->n_points; i++) {
        pp_dwell *w = &d->items[d->points[i].dwell];
        if (w->n_points++ == 0) {
            w->first_point = i;
            sum = 0;
        }
        const double more = d->points[i].calls;
        d->points[i].calls = sum;
        sum += more;
    }
}

static int add_pieces(const pp_activity *a, pp_dwells *d, pp_error *err)
{
    size_t *of = calloc(a->n_batches + 1, sizeof *of);
    d->points = calloc(a->n_intervals + a->n_cells + 1, sizeof *d->points);
    if (!of || !d->points) {
        free(of);
        return pp_error_nomem(err);
    }
    for (size_t i = 0; i < a->n_batches; i++)
        of[i] = find_dwell(d, &a->batches[i]);
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *v = &a->intervals[i];
        add_piece(d, of[v->batch], &(piece){v->layer, v->phase, v->start_ns, 1, v->kernels_ns});
    }
    for (size_t i = 0; i < a->n_cells; i++) {
        const pp_activity_cell *v = &a->cells[i];
        add_piece(d, of[v->batch],
                  &(piece){v->layer, v->phase, v->start_ns, v->calls, v->kernels_ns});
    }
    free(of);
    add_up_points(d);
    return 0;
}

/* Replays that had begun by then. */
static double calls_until(const pp_dwells *d, const pp_dwell *w, double at)
{
    const pp_dwell_point *points = d->points + w->first_point;
    size_t low = 0;
    size_t high = w->n_points;
    while (low < high) { /* the first that is later */
        const size_t middle = low + (high - low) / 2;
        if ((double)points[middle].at_ns <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    const pp_dwell_point *before = &points[low - 1];
    const bool last = low == w->n_points;
    const double end = (double)(last ? w->end_ns : points[low].at_ns);
    const double all = last ? (double)w->calls : points[low].calls;
    const double begun = (double)before->at_ns;
    return at >= end || end <= begun
               ? all
               : before->calls + (all - before->calls) * (at - begun) / (end - begun);
}

double pp_dwell_calls(const pp_dwells *d, const pp_dwell *w, double from, double to)
{
    return calls_until(d, w, to) - calls_until(d, w, from);
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
    free(d->points);
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
