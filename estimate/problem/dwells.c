/*
 * The captures in which layers are replayed (docs/replay.md): which they are, when in them
 * replays were, and how long their kernels ran.
 */
#include "estimate/problem/dwells.h"
#include "estimate/activity/spans.h"

#include "common/wire.h"

#include <stdlib.h>
#include <string.h>

static int compare_dwells(const void *left, const void *right)
{
    const pp_replay_run *a = left;
    const pp_replay_run *b = right;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    if (a->capture != b->capture)
        return a->capture < b->capture ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

static void list_batches(const pp_activity *a, const char *gpu, pp_replay_runs *d)
{
    for (size_t i = 0; i < a->n_batches; i++) {
        const pp_activity_batch *b = &a->batches[i];
        if (b->dwell && pp_activity_uses(a, b->process, gpu))
            d->items[d->count++] = (pp_replay_run){.process = b->process,
                                                   .capture = b->capture,
                                                   .number = b->dwell,
                                                   .background = b->background,
                                                   .start_ns = b->start_ns,
                                                   .end_ns = b->end_ns,
                                                   .known = true};
    }
    qsort(d->items, d->count, sizeof *d->items, compare_dwells);
}

/* Batches of one capture are back to back. */
static void join_batches(pp_replay_runs *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->count; i++) {
        pp_replay_run *last = kept ? &d->items[kept - 1] : NULL;
        const pp_replay_run *now = &d->items[i];
        if (last && last->process == now->process && last->capture == now->capture &&
            last->end_ns == now->start_ns)
            last->end_ns = now->end_ns;
        else
            d->items[kept++] = *now;
    }
    d->count = kept;
}

static int list_spans(pp_replay_runs *d, pp_error *err)
{
    d->spans = calloc(d->count + 1, sizeof *d->spans);
    if (!d->spans)
        return pp_error_nomem(err);
    for (size_t i = 0; i < d->count; i++)
        d->spans[i] = (pp_time_range){d->items[i].start_ns, d->items[i].end_ns};
    d->n_spans = pp_spans_join(d->spans, d->count);
    return 0;
}

/* The dwell that a batch is of: of its capture's the last that begins no later. As many as there
 * are: none. */
static size_t find_dwell(const pp_replay_runs *d, const pp_activity_batch *b)
{
    const pp_replay_run key = {
        .process = b->process, .capture = b->capture, .start_ns = b->start_ns};
    size_t low = 0;
    size_t high = b->dwell ? d->count : 0;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_dwells(&d->items[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const pp_replay_run *w = low ? &d->items[low - 1] : NULL;
    return w && w->process == b->process && w->capture == b->capture && b->end_ns <= w->end_ns
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
static void add_piece(pp_replay_runs *d, size_t of, const piece *v)
{
    if (of == d->count)
        return;
    pp_replay_run *w = &d->items[of];
    w->known = w->known && v->busy_ns >= 0;
    if (!pp_wire_phase_has_layer((pp_wire_phase)v->phase)) {
        add_up(&w->rest_ns, v->busy_ns);
        return;
    }
    w->layer = v->layer;
    w->phase = v->phase;
    add_up(&w->calls, v->calls);
    add_up(&w->busy_ns, v->busy_ns);
    d->points[d->n_points++] = (pp_replay_run_point){of, v->start_ns, (double)v->calls};
}

static int compare_points(const void *left, const void *right)
{
    const pp_replay_run_point *a = left;
    const pp_replay_run_point *b = right;
    if (a->dwell != b->dwell)
        return a->dwell < b->dwell ? -1 : 1;
    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Those of one time are one. */
static void join_points(pp_replay_runs *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->n_points; i++) {
        const pp_replay_run_point *now = &d->points[i];
        pp_replay_run_point *last = kept ? &d->points[kept - 1] : NULL;
        if (last && last->dwell == now->dwell && last->at_ns == now->at_ns)
            last->calls += now->calls;
        else
            d->points[kept++] = *now;
    }
    d->n_points = kept;
}

/* What each began with, as what had been before it. */
static void add_up_points(pp_replay_runs *d)
{
    qsort(d->points, d->n_points, sizeof *d->points, compare_points);
    join_points(d);
    double sum = 0;
    for (size_t i = 0; i < d->n_points; i++) {
        pp_replay_run *w = &d->items[d->points[i].dwell];
        if (w->n_points++ == 0) {
            w->first_point = i;
            sum = 0;
        }
        const double more = d->points[i].calls;
        d->points[i].calls = sum;
        sum += more;
    }
}

static int add_pieces(const pp_activity *a, pp_replay_runs *d, pp_error *err)
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
static double calls_until(const pp_replay_runs *d, const pp_replay_run *w, double at)
{
    const pp_replay_run_point *points = d->points + w->first_point;
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
    const pp_replay_run_point *before = &points[low - 1];
    const bool last = low == w->n_points;
    const double end = (double)(last ? w->end_ns : points[low].at_ns);
    const double all = last ? (double)w->calls : points[low].calls;
    const double begun = (double)before->at_ns;
    return at >= end || end <= begun
               ? all
               : before->calls + (all - before->calls) * (at - begun) / (end - begun);
}

double pp_replay_run_calls(const pp_replay_runs *d, const pp_replay_run *w, double from, double to)
{
    return calls_until(d, w, to) - calls_until(d, w, from);
}

int pp_replay_runs_make(const pp_activity *a, const char *gpu, pp_replay_runs *ret, pp_error *err)
{
    *ret = (pp_replay_runs){.items = calloc(a->n_batches + 1, sizeof *ret->items)};
    if (!ret->items)
        return pp_error_nomem(err);
    list_batches(a, gpu, ret);
    join_batches(ret);
    if (list_spans(ret, err) == 0 && (ret->count == 0 || add_pieces(a, ret, err) == 0))
        return 0;
    pp_replay_runs_done(ret);
    return -1;
}

void pp_replay_runs_done(pp_replay_runs *d)
{
    free(d->items);
    free(d->points);
    free(d->spans);
    *d = (pp_replay_runs){0};
}

bool pp_replay_runs_touch(const pp_replay_runs *d, pp_time_range time)
{
    const size_t at = pp_spans_find(d->spans, d->n_spans, time.start_ns);
    return at < d->n_spans && d->spans[at].start_ns < time.end_ns;
}
