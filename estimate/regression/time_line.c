/*
 * Activity as a timeline: observed time cut into pieces in which nothing changes, each with the
 * share that every item has of it. Intervals count fully, cells of a grid by busy / width; what
 * overlaps shares the time, what is left of a step is `other`, outside of steps it is `idle`. As a
 * time line of kernels both count by the kernels' share of them, and what is left is `idle`.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/regression.h"
#include "estimate/regression/time_line.h"

/* Deeper overlap than this is no activity of one GPU; it would make the sweep quadratic. */
#define MAX_ACTIVE 256
#define MAX_SHARES 16000000

typedef struct source {
    int64_t start;
    int64_t end;
    uint32_t item;
    float rate;
} source;

typedef struct sweep {
    source *sources;
    size_t n_sources;
    pp_time_range *steps;
    size_t n_steps;
    pp_time_range *observed;
    size_t n_observed;
    int64_t *bounds;
    size_t n_bounds;
    source active[MAX_ACTIVE];
    size_t n_active;
    bool kernels;
} sweep;

static void sweep_done(sweep *s)
{
    free(s->sources);
    free(s->steps);
    free(s->observed);
    free(s->bounds);
}

static bool sane(int64_t start, int64_t end)
{
    return start >= 0 && end <= PP_REG_MAX_TIME_NS && end >= start;
}

static int order_source(const void *pa, const void *pb)
{
    const source *a = pa, *b = pb;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    if (a->item != b->item)
        return a->item < b->item ? -1 : 1;
    return (a->rate > b->rate) - (a->rate < b->rate);
}

static int order_span(const void *pa, const void *pb)
{
    const pp_time_range *a = pa, *b = pb;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return (a->end_ns > b->end_ns) - (a->end_ns < b->end_ns);
}

static int order_time(const void *pa, const void *pb)
{
    const int64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

/** Sorted copy without overlap; spans that touch stay apart unless `join`. */
static int spans_copy(const pp_time_range *in, size_t n, bool join, pp_time_range **ret,
                      size_t *ret_n, size_t *dropped, pp_error *err)
{
    pp_time_range *out = malloc((n + 1) * sizeof *out);
    if (!out)
        return pp_error_nomem(err);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (!sane(in[i].start_ns, in[i].end_ns))
            (*dropped)++;
        else if (in[i].end_ns > in[i].start_ns)
            out[m++] = in[i];
    }
    qsort(out, m, sizeof *out, order_span);
    size_t k = 0;
    for (size_t i = 0; i < m; i++) {
        pp_time_range s = out[i];
        if (join && k > 0 && s.start_ns <= out[k - 1].end_ns) {
            if (s.end_ns > out[k - 1].end_ns)
                out[k - 1].end_ns = s.end_ns;
            continue;
        }
        if (k > 0 && s.start_ns < out[k - 1].end_ns)
            s.start_ns = out[k - 1].end_ns;
        if (s.end_ns > s.start_ns)
            out[k++] = s;
    }
    *ret = out;
    *ret_n = k;
    return 0;
}

static bool sane_interval(const pp_regression_interval *v, size_t n_items)
{
    return v->item < n_items && sane(v->start_ns, v->end_ns);
}

static bool sane_cell(const pp_regression_cell *v, size_t n_items)
{
    return v->item < n_items && v->width_ns > 0 && v->width_ns <= PP_REGRESSION_MAX_CELL_NS &&
           v->busy_ns >= 0 && v->busy_ns <= v->width_ns && v->start_ns >= 0 &&
           v->start_ns <= PP_REG_MAX_TIME_NS - v->width_ns;
}

static void source_add(sweep *s, int64_t start, int64_t end, uint32_t item, int64_t of_it)
{
    const double rate = fmin((double)of_it / (double)(end - start), 1);
    s->sources[s->n_sources++] = (source){start, end, item, (float)rate};
}

static int sources_copy(sweep *s, const pp_regression_input *in, const uint32_t *canonical,
                        size_t *dropped, pp_error *err)
{
    const size_t items = in->n_items + s->kernels; /* `other` has kernels, but no elapsed time */
    s->sources = malloc((in->n_intervals + in->n_cells + 1) * sizeof *s->sources);
    if (!s->sources)
        return pp_error_nomem(err);
    for (size_t i = 0; i < in->n_intervals; i++) {
        const pp_regression_interval *v = &in->intervals[i];
        const bool whole = sane_interval(v, items) && v->end_ns > v->start_ns;
        const int64_t of_it = !whole ? 0 : s->kernels ? v->kernels_ns : v->end_ns - v->start_ns;
        if (of_it > 0)
            source_add(s, v->start_ns, v->end_ns, canonical[v->item], of_it);
        *dropped += !sane_interval(v, in->n_items + in->kernels_known);
    }
    for (size_t i = 0; i < in->n_cells; i++) {
        const pp_regression_cell *v = &in->cells[i];
        const int64_t of_it = s->kernels ? v->kernels_ns : v->busy_ns;
        if (sane_cell(v, items) && of_it > 0)
            source_add(s, v->start_ns, v->start_ns + v->width_ns, canonical[v->item], of_it);
        *dropped += !sane_cell(v, in->n_items + in->kernels_known);
    }
    qsort(s->sources, s->n_sources, sizeof *s->sources, order_source);
    return 0;
}

static int bounds_collect(sweep *s, pp_error *err)
{
    size_t n = 2 * (s->n_sources + s->n_steps + s->n_observed);
    s->bounds = malloc((n + 1) * sizeof *s->bounds);
    if (!s->bounds)
        return pp_error_nomem(err);
    size_t m = 0;
    for (size_t i = 0; i < s->n_sources; i++) {
        s->bounds[m++] = s->sources[i].start;
        s->bounds[m++] = s->sources[i].end;
    }
    for (size_t i = 0; i < s->n_steps; i++) {
        s->bounds[m++] = s->steps[i].start_ns;
        s->bounds[m++] = s->steps[i].end_ns;
    }
    for (size_t i = 0; i < s->n_observed; i++) {
        s->bounds[m++] = s->observed[i].start_ns;
        s->bounds[m++] = s->observed[i].end_ns;
    }
    qsort(s->bounds, m, sizeof *s->bounds, order_time);
    size_t k = 0;
    for (size_t i = 0; i < m; i++)
        if (k == 0 || s->bounds[i] != s->bounds[k - 1])
            s->bounds[k++] = s->bounds[i];
    s->n_bounds = k;
    return 0;
}

/** Brings the set of running items to time `now`; *next is the first source not begun. */
static void activate(sweep *s, int64_t now, size_t *next, size_t *dropped)
{
    size_t k = 0;
    for (size_t i = 0; i < s->n_active; i++)
        if (s->active[i].end > now)
            s->active[k++] = s->active[i];
    for (; *next < s->n_sources && s->sources[*next].start <= now; (*next)++) {
        if (k < MAX_ACTIVE)
            s->active[k++] = s->sources[*next];
        else
            (*dropped)++;
    }
    s->n_active = k;
}

static int shares_reserve(pp_reg_timeline *t, size_t more, size_t *cap, pp_error *err)
{
    if (t->n_shares + more <= *cap)
        return 0;
    size_t want = *cap ? *cap * 2 : 4096;
    if (want < t->n_shares + more)
        want = t->n_shares + more;
    if (want > MAX_SHARES) {
        pp_error_field(err, "intervals", "too much overlapping activity");
        if (err)
            err->code = PP_ERR_TOO_LARGE;
        return -1;
    }
    pp_reg_share *grown = realloc(t->shares, want * sizeof *grown);
    if (!grown)
        return pp_error_nomem(err);
    t->shares = grown;
    *cap = want;
    return 0;
}

/** Adds the shares of the running items, the rest to `rest` (other or idle). */
static void shares_add(pp_reg_timeline *t, const sweep *s, uint32_t rest)
{
    double sum = 0;
    for (size_t i = 0; i < s->n_active; i++)
        sum += (double)s->active[i].rate;
    double scale = sum > 1 ? 1 / sum : 1;
    for (size_t i = 0; i < s->n_active; i++)
        t->shares[t->n_shares++] =
            (pp_reg_share){s->active[i].item, (float)((double)s->active[i].rate * scale)};
    if (sum < 1 - 1e-6)
        t->shares[t->n_shares++] = (pp_reg_share){rest, (float)(1 - sum)};
}

static int sweep_run(sweep *s, pp_reg_timeline *t, pp_error *err)
{
    size_t cap = 0, next = 0, step = 0, capture = 0;
    t->pieces = malloc((s->n_bounds + 1) * sizeof *t->pieces);
    if (!t->pieces)
        return pp_error_nomem(err);
    for (size_t i = 0; i + 1 < s->n_bounds; i++) {
        int64_t now = s->bounds[i], end = s->bounds[i + 1];
        activate(s, now, &next, &t->dropped);
        while (step < s->n_steps && s->steps[step].end_ns <= now)
            step++;
        while (capture < s->n_observed && s->observed[capture].end_ns <= now)
            capture++;
        if (capture == s->n_observed)
            break;
        if (s->observed[capture].start_ns > now)
            continue;
        bool in_step = step < s->n_steps && s->steps[step].start_ns <= now;
        if (shares_reserve(t, s->n_active + 1, &cap, err) < 0)
            return -1;
        t->pieces[t->n_pieces++] =
            (pp_reg_piece){(double)(now - t->base_ns), (double)(end - t->base_ns),
                           (uint32_t)(2 * step + in_step), (uint32_t)t->n_shares};
        shares_add(t, s, (uint32_t)(t->n_items + (s->kernels || !in_step)));
    }
    /* the pieces before n_pieces are set */
    /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign) */
    double last = t->n_pieces ? t->pieces[t->n_pieces - 1].end : 0;
    t->pieces[t->n_pieces] = (pp_reg_piece){last, last, 0, (uint32_t)t->n_shares};
    return 0;
}

/** Sums per row, and where in the step each row has its place. */
static void rows_sum(pp_reg_timeline *t, const sweep *s)
{
    size_t rows = t->n_items + 2;
    for (size_t i = 0; i < t->n_pieces; i++) {
        const pp_reg_piece *v = &t->pieces[i];
        bool in_step = v->occurrence & 1;
        size_t step = v->occurrence / 2;
        double start = in_step ? (double)(s->steps[step].start_ns - t->base_ns) : 0;
        if (in_step)
            t->step_time += v->end - v->start;
        for (uint32_t k = v->first; k < v[1].first; k++) {
            double time = (double)t->shares[k].rate * (v->end - v->start);
            t->time[t->shares[k].item] += time;
            if (in_step)
                t->offset[t->shares[k].item] += time * (0.5 * (v->start + v->end) - start);
        }
    }
    for (size_t r = 0; r < rows; r++)
        t->offset[r] = t->time[r] > 0 ? t->offset[r] / t->time[r] : 0;
}

static int occurrences_count(pp_reg_timeline *t, pp_error *err)
{
    size_t rows = t->n_items + 2;
    PP_CLEANUP_FREE uint32_t *last = malloc(rows * sizeof *last);
    if (!last)
        return pp_error_nomem(err);
    memset(last, 0xff, rows * sizeof *last);
    for (size_t i = 0; i < t->n_pieces; i++) {
        const pp_reg_piece *v = &t->pieces[i];
        for (uint32_t k = v->first; k < v[1].first; k++) {
            uint32_t item = t->shares[k].item;
            if (last[item] != v->occurrence)
                t->occurrences[item]++;
            last[item] = v->occurrence;
        }
    }
    return 0;
}

typedef struct item_key {
    const pp_regression_item *item;
    uint32_t index;
} item_key;

static int order_item(const void *pa, const void *pb)
{
    const item_key *a = pa, *b = pb;
    if (a->item->phase != b->item->phase)
        return a->item->phase < b->item->phase ? -1 : 1;
    return strcmp(a->item->layer, b->item->layer);
}

/** Items by phase and name, whatever the order of arrival. */
static int items_order(pp_reg_timeline *t, const pp_regression_input *in, uint32_t *canonical,
                       pp_error *err)
{
    PP_CLEANUP_FREE item_key *keys = malloc((in->n_items + 1) * sizeof *keys);
    if (!keys)
        return pp_error_nomem(err);
    for (size_t i = 0; i < in->n_items; i++)
        keys[i] = (item_key){&in->items[i], (uint32_t)i};
    qsort(keys, in->n_items, sizeof *keys, order_item);
    for (size_t i = 0; i < in->n_items; i++) {
        if (i > 0 && order_item(&keys[i - 1], &keys[i]) == 0)
            return pp_error_field(err, "items", "\"%.100s\" is given twice in one phase",
                                  keys[i].item->layer);
        canonical[keys[i].index] = (uint32_t)i;
        t->original[i] = keys[i].index;
    }
    for (size_t i = in->n_items; i < in->n_items + 2; i++)
        canonical[i] = t->original[i] = (uint32_t)i;
    return 0;
}

static int observed_keep(pp_reg_timeline *t, const sweep *s, pp_error *err)
{
    t->observed = malloc((2 * s->n_observed + 1) * sizeof *t->observed);
    if (!t->observed)
        return pp_error_nomem(err);
    t->n_observed = s->n_observed;
    for (size_t i = 0; i < s->n_observed; i++) {
        t->observed[2 * i] = (double)(s->observed[i].start_ns - t->base_ns);
        t->observed[2 * i + 1] = (double)(s->observed[i].end_ns - t->base_ns);
    }
    double sum = 0;
    for (size_t i = 0; i < s->n_steps; i++)
        sum += (double)(s->steps[i].end_ns - s->steps[i].start_ns);
    t->step_mean = s->n_steps ? sum / (double)s->n_steps : 0;
    return 0;
}

static int timeline_build(pp_reg_timeline *t, sweep *s, const pp_regression_input *in,
                          pp_error *err)
{
    PP_CLEANUP_FREE uint32_t *canonical = malloc((in->n_items + 2) * sizeof *canonical);
    if (!canonical)
        return pp_error_nomem(err);
    if (items_order(t, in, canonical, err) < 0 ||
        spans_copy(in->steps, in->n_steps, false, &s->steps, &s->n_steps, &t->dropped, err) < 0 ||
        spans_copy(in->observed, in->n_observed, true, &s->observed, &s->n_observed, &t->dropped,
                   err) < 0 ||
        sources_copy(s, in, canonical, &t->dropped, err) < 0 || bounds_collect(s, err) < 0 ||
        sweep_run(s, t, err) < 0 || observed_keep(t, s, err) < 0)
        return -1;
    rows_sum(t, s);
    return occurrences_count(t, err);
}

int pp_reg_timeline_init(pp_reg_timeline *t, const pp_regression_input *in, int64_t base_ns,
                         bool kernels, pp_error *err)
{
    size_t rows = in->n_items + 2;
    memset(t, 0, sizeof *t);
    t->base_ns = base_ns;
    t->n_items = in->n_items;
    t->original = calloc(rows, sizeof *t->original);
    t->time = calloc(rows, sizeof *t->time);
    t->offset = calloc(rows, sizeof *t->offset);
    t->occurrences = calloc(rows, sizeof *t->occurrences);
    sweep s = {.kernels = kernels};
    int rc = -1;
    if (!t->original || !t->time || !t->offset || !t->occurrences)
        pp_error_nomem(err);
    else
        rc = timeline_build(t, &s, in, err);
    sweep_done(&s);
    if (rc < 0)
        pp_reg_timeline_done(t);
    return rc;
}

void pp_reg_timeline_done(pp_reg_timeline *t)
{
    free(t->original);
    free(t->pieces);
    free(t->shares);
    free(t->observed);
    free(t->time);
    free(t->offset);
    free(t->occurrences);
    memset(t, 0, sizeof *t);
}

bool pp_reg_observed(const pp_reg_timeline *t, double start, double end)
{
    size_t low = 0, high = t->n_observed;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->observed[2 * mid + 1] < end)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->n_observed && t->observed[2 * low] <= start;
}
