/*
 * Sample rows: for each reconstructed metric window, what each item took of it and what the
 * metrics read, folded where it repeats. For people and plots; estimates do not come from here.
 */
#include "estimate/sample_rows.h"
#include "estimate/spans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 500000 };

/* Sorted, disjoint spans with the time before each, to measure overlaps by two searches. */
typedef struct cover {
    pp_time_range *spans;
    int64_t *before;
    size_t n;
} cover;

static void cover_done(cover *c)
{
    free(c->spans);
    free(c->before);
}

/* Sorts and joins c->spans[0..n). */
static int cover_finish(cover *c, pp_error *err)
{
    int64_t sum = 0;
    c->before = calloc(c->n + 1, sizeof(*c->before));
    if (!c->before)
        return pp_error_nomem(err);
    c->n = pp_spans_join(c->spans, c->n);
    for (size_t i = 0; i < c->n; i++) {
        c->before[i] = sum;
        sum += c->spans[i].end_ns - c->spans[i].start_ns;
    }
    return 0;
}

/* Covered time before t. */
static int64_t covered_until(const cover *c, int64_t t)
{
    size_t low = 0;
    size_t high = c->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c->spans[middle].start_ns < t)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    const pp_time_range *s = &c->spans[low - 1];
    return c->before[low - 1] + (t < s->end_ns ? t : s->end_ns) - s->start_ns;
}

static int64_t covered(const cover *c, const pp_regression_window *w)
{
    return covered_until(c, w->end_ns) - covered_until(c, w->start_ns);
}

/* One cover per item, all items together, steps, captures. */
typedef struct covers {
    cover *items;
    size_t n_items;
    cover any;
    cover steps;
    cover captures;
} covers;

static void covers_done(covers *c)
{
    for (size_t i = 0; c->items && i < c->n_items; i++)
        cover_done(&c->items[i]);
    free(c->items);
    cover_done(&c->any);
    cover_done(&c->steps);
    cover_done(&c->captures);
}

static int cover_alloc(cover *c, size_t n, pp_error *err)
{
    c->spans = calloc(n + 1, sizeof(*c->spans));
    return c->spans ? 0 : pp_error_nomem(err);
}

static int cover_copy(cover *c, const pp_time_range *spans, size_t n, pp_error *err)
{
    if (cover_alloc(c, n, err) < 0)
        return -1;
    if (n)
        memcpy(c->spans, spans, n * sizeof(*spans));
    c->n = n;
    return cover_finish(c, err);
}

/* What no item has is what is left: phase other. */
static void add(covers *c, uint32_t item, int64_t start, int64_t end)
{
    if (end <= start || item >= c->n_items)
        return;
    const pp_time_range span = {start, end};
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): allocated for all pieces */
    c->items[item].spans[c->items[item].n++] = span;
    c->any.spans[c->any.n++] = span;
}

static int count_spans(const pp_problem *p, size_t **ret, pp_error *err)
{
    *ret = calloc(p->n_items + 1, sizeof(**ret));
    if (!*ret)
        return pp_error_nomem(err);
    for (size_t i = 0; i < p->n_intervals; i++)
        (*ret)[p->intervals[i].item]++;
    for (size_t i = 0; i < p->n_cells; i++)
        (*ret)[p->cells[i].item]++;
    return 0;
}

static int cover_items(const pp_problem *p, covers *c, pp_error *err)
{
    size_t *counts = NULL;
    int rc = count_spans(p, &counts, err);
    for (size_t i = 0; rc == 0 && i < p->n_items; i++)
        rc = cover_alloc(&c->items[i], counts[i], err);
    free(counts);
    if (rc < 0)
        return -1;
    for (size_t i = 0; i < p->n_intervals; i++)
        add(c, p->intervals[i].item, p->intervals[i].start_ns, p->intervals[i].end_ns);
    /* Where in its cell the work lay is not known; a cell is short against a window. */
    for (size_t i = 0; i < p->n_cells; i++)
        add(c, p->cells[i].item, p->cells[i].start_ns, p->cells[i].start_ns + p->cells[i].busy_ns);
    for (size_t i = 0; rc == 0 && i < p->n_items; i++)
        rc = cover_finish(&c->items[i], err);
    return rc < 0 ? -1 : cover_finish(&c->any, err);
}

static int covers_make(const pp_problem *p, covers *c, pp_error *err)
{
    c->n_items = p->n_items;
    c->items = calloc(p->n_items + 1, sizeof(*c->items));
    if (!c->items)
        return pp_error_nomem(err);
    if (cover_alloc(&c->any, p->n_intervals + p->n_cells, err) < 0 || cover_items(p, c, err) < 0 ||
        cover_copy(&c->steps, p->steps, p->n_steps, err) < 0)
        return -1;
    return cover_copy(&c->captures, p->observed, p->n_observed, err);
}

/* Share of the window that a row of the result (items, other, idle) took. */
static double share_of(const covers *c, size_t row, const pp_regression_window *w)
{
    const double length = (double)(w->end_ns - w->start_ns);
    int64_t time = 0;
    if (row < c->n_items)
        time = covered(&c->items[row], w);
    else if (row == c->n_items)
        time = covered(&c->steps, w) - covered(&c->any, w);
    else
        time = covered(&c->captures, w) - covered(&c->steps, w);
    return fmin(fmax((double)time / length, 0), 1);
}

/* The value with this stamp, or NaN; samples are in the order of time. */
static double value_at(const pp_regression_metric *m, int64_t stamp)
{
    size_t low = 0;
    size_t high = m->n_samples;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (m->samples[middle].stamp_ns < stamp)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->n_samples && m->samples[low].stamp_ns == stamp ? m->samples[low].value
                                                                   : (double)NAN;
}

static void read_window(const pp_problem *p, const pp_regression_window *w, pp_sample_row *ret)
{
    *ret = (pp_sample_row){.first_ns = w->end_ns, .last_ns = w->end_ns, .windows = 1};
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        ret->values[m] = (double)NAN;
    for (size_t m = 0; m < p->n_metrics; m++)
        ret->values[p->metric_ids[m]] = value_at(&p->metrics[m], w->stamp_ns);
}

static int push(pp_estimates *s, size_t *room, size_t item, const pp_sample_row *row, pp_error *err)
{
    if (s->n_sample_rows == *room) {
        const size_t wanted = *room * 2 + 256;
        pp_estimates_sample *bigger = realloc(s->sample_rows, wanted * sizeof(*bigger));
        if (!bigger)
            return pp_error_nomem(err);
        s->sample_rows = bigger;
        *room = wanted;
    }
    s->sample_rows[s->n_sample_rows++] = (pp_estimates_sample){.item = (uint32_t)item, .row = *row};
    return 0;
}

/* Sums of the metrics' values by the item's share. */
static void add_weighted(const pp_sample_row *row, double sums[PP_METRIC_COUNT])
{
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        if (!isnan(row->values[m]))
            sums[m] += (double)row->windows * row->share * row->values[m];
}

/* By how much the item's rows miss its means, which are of the same weights: a mean over windows is
 * theirs, one by the item's share is not quite, where share and value vary together in a row. */
static double error_of(const double sums[PP_METRIC_COUNT], const pp_estimates *s, size_t from)
{
    double folded[PP_METRIC_COUNT] = {0};
    double worst = 0;
    for (size_t i = from; i < s->n_sample_rows; i++)
        add_weighted(&s->sample_rows[i].row, folded);
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        if (sums[m] != 0)
            worst = fmax(worst, fabs(folded[m] / sums[m] - 1));
    return worst;
}

/* One item's rows, in the order of time. */
static int make_item(const pp_problem *p, const pp_regression_result *r, const covers *c,
                     double tolerance, size_t item, size_t *room, pp_estimates *s, pp_error *err)
{
    const size_t from = s->n_sample_rows;
    double sums[PP_METRIC_COUNT] = {0};
    pp_sample_row *last = NULL;
    pp_sample_row first;
    for (size_t i = 0; i < r->n_windows; i++) {
        const pp_regression_window *w = &r->windows[i];
        const double share = w->usable && w->end_ns > w->start_ns ? share_of(c, item, w) : 0;
        pp_sample_row row;
        if (share <= 0)
            continue;
        s->items[item].windows++;
        read_window(p, w, &row);
        row.share = share;
        add_weighted(&row, sums);
        if (last && pp_dedup_fold(last, &first, &row, tolerance))
            continue;
        if (s->n_sample_rows >= MAX_ROWS) {
            s->truncated = true;
            return 0;
        }
        if (push(s, room, item, &row, err) < 0)
            return -1;
        last = &s->sample_rows[s->n_sample_rows - 1].row;
        first = row;
    }
    s->samples_error = fmax(s->samples_error, error_of(sums, s, from));
    return 0;
}

int pp_sample_rows_make(const pp_problem *p, const pp_regression_result *r,
                        double tolerance_percent, pp_estimates *s, pp_error *err)
{
    covers c = {0};
    size_t room = 0;
    int rc = covers_make(p, &c, err);
    for (size_t item = 0; rc == 0 && item < r->n_rows; item++)
        rc = make_item(p, r, &c, tolerance_percent, item, &room, s, err);
    covers_done(&c);
    s->items[r->n_rows].windows = s->windows;
    return rc;
}
