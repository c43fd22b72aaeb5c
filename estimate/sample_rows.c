/*
 * Sample rows: for each reconstructed metric window, what each item took of it and what the
 * metrics read. Most windows are folded: of a training whose steps take longer than a window, each
 * differs from the one before by what ran in it, and hardly one repeats. So runs of RUN windows are
 * made first, and runs that repeat are folded. For people and plots; estimates do not come from
 * here.
 */
#include "estimate/sample_rows.h"
#include "common/cleanup.h"
#include "estimate/activity/spans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ROWS = 500000,
    RUN = 24, /* at least, of 20 that would do for 95 %: items of few windows have a row, too */
};

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
    memcpy(ret->by_share, ret->values, sizeof(ret->by_share));
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

/* Sums over windows or rows of one item, whose means these are. */
typedef struct sums {
    double windows[PP_METRIC_COUNT];
    double values[PP_METRIC_COUNT];
    double by_share[PP_METRIC_COUNT];
    double squares[PP_METRIC_COUNT];
} sums;

static void add_up(sums *s, const pp_sample_row *row)
{
    const double n = (double)row->windows;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (isnan(row->values[m]))
            continue;
        s->windows[m] += n;
        s->values[m] += n * row->values[m];
        s->by_share[m] += n * row->share * row->by_share[m];
        s->squares[m] += n * row->values[m] * row->values[m];
    }
}

static double difference(double is, double was)
{
    return was != 0 ? fabs(is / was - 1) : 0;
}

/* What rows cost that stand for these windows: by how much their means are off, which are of the
 * same weights, and how far a window is from its row, where the metric's range says what is far. */
static void tell_cost(const sums *windows, const sums *rows, pp_estimates *s)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        if (windows->windows[m] <= 0)
            continue;
        s->samples_error =
            fmax(s->samples_error, fmax(difference(rows->values[m], windows->values[m]),
                                        difference(rows->by_share[m], windows->by_share[m])));
        if (isnan(info->min) || isnan(info->max))
            continue;
        /* Of a row's windows: their squares' sum less that of their mean's. */
        const double left = fmax(windows->squares[m] - rows->squares[m], 0);
        s->samples_spread =
            fmax(s->samples_spread, sqrt(left / windows->windows[m]) / (info->max - info->min));
    }
}

/* Rows of one item in the making, in the order of time. */
typedef struct maker {
    pp_estimates *s;
    size_t *room;
    size_t item;
    double tolerance; /* per cent; 0: a row for each window */
    size_t from;      /* the item's first row */
    int64_t runs;     /* to be made of ... */
    int64_t windows;  /* ... this many windows */
    int64_t taken;    /* of these */
    int64_t at;       /* the run that is being made */
    pp_sample_row run;
    pp_sample_row first; /* run that the last row began as */
} maker;

static bool is_full(const maker *k)
{
    return k->s->n_sample_rows >= MAX_ROWS;
}

/* The run becomes a row, or part of the last one. */
static int end_run(maker *k, pp_error *err)
{
    if (k->run.windows == 0)
        return 0;
    pp_sample_row *last =
        k->s->n_sample_rows > k->from ? &k->s->sample_rows[k->s->n_sample_rows - 1].row : NULL;
    if (last && k->tolerance > 0 && pp_dedup_fold(last, &k->first, &k->run, k->tolerance))
        return 0;
    k->first = k->run;
    if (!is_full(k))
        return push(k->s, k->room, k->item, &k->run, err);
    k->s->truncated = true;
    return 0;
}

static int take_window(maker *k, const pp_sample_row *row, pp_error *err)
{
    const int64_t at = k->taken++ * k->runs / k->windows;
    if (at == k->at && k->run.windows > 0 && pp_dedup_join(&k->run, row))
        return 0;
    const int rc = end_run(k, err);
    k->at = at;
    k->run = *row;
    return rc;
}

/* Shares of the windows that the item took, 0 where no row stands for one; how many are not. Each
 * end of windows counts once, for it is what names a row. */
static int64_t find_shares(const pp_regression_result *r, const covers *c, size_t item,
                           double *shares)
{
    int64_t n = 0;
    for (size_t i = 0; i < r->n_windows; i++) {
        const pp_regression_window *w = &r->windows[i];
        const bool again = i > 0 && w->end_ns <= r->windows[i - 1].end_ns;
        shares[i] = w->usable && w->end_ns > w->start_ns && !again ? share_of(c, item, w) : 0;
        n += shares[i] > 0;
    }
    return n;
}

/* One item's rows, in the order of time. */
static int make_item(const pp_problem *p, const pp_regression_result *r, const double *shares,
                     maker *k, pp_error *err)
{
    sums windows = {0}, rows = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->n_windows && !is_full(k); i++) {
        pp_sample_row row;
        if (shares[i] <= 0)
            continue;
        read_window(p, &r->windows[i], &row);
        row.share = shares[i];
        add_up(&windows, &row);
        rc = take_window(k, &row, err);
    }
    if (rc < 0 || end_run(k, err) < 0)
        return -1;
    for (size_t i = k->from; i < k->s->n_sample_rows; i++)
        add_up(&rows, &k->s->sample_rows[i].row);
    if (is_full(k))
        k->s->truncated = k->s->truncated || k->taken < k->windows;
    else
        tell_cost(&windows, &rows, k->s);
    return 0;
}

/* Windows are dealt to runs evenly, so that each has RUN at least, where there are as many. */
static int64_t count_runs(int64_t windows, double tolerance_percent)
{
    if (tolerance_percent <= 0)
        return windows;
    return windows < RUN ? 1 : windows / RUN;
}

static int make_items(const pp_problem *p, const pp_regression_result *r, const covers *c,
                      double tolerance_percent, pp_estimates *s, pp_error *err)
{
    PP_CLEANUP_FREE double *shares = calloc(r->n_windows + 1, sizeof(*shares));
    size_t room = 0;
    int rc = 0;
    if (!shares)
        return pp_error_nomem(err);
    for (size_t item = 0; rc == 0 && item < r->n_rows; item++) {
        const int64_t windows = find_shares(r, c, item, shares);
        maker k = {.s = s,
                   .room = &room,
                   .item = item,
                   .tolerance = tolerance_percent,
                   .from = s->n_sample_rows,
                   .windows = windows,
                   .runs = count_runs(windows, tolerance_percent)};
        s->items[item].windows = windows;
        rc = make_item(p, r, shares, &k, err);
    }
    return rc;
}

int pp_sample_rows_make(const pp_problem *p, const pp_regression_result *r,
                        double tolerance_percent, pp_estimates *s, pp_error *err)
{
    covers c = {0};
    int rc = covers_make(p, &c, err);
    rc = rc < 0 ? rc : make_items(p, r, &c, tolerance_percent, s, err);
    covers_done(&c);
    s->items[r->n_rows].windows = s->windows;
    return rc;
}
