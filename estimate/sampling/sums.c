#include "estimate/sampling/sums.h"

#include <stdlib.h>

void pp_sampling_sums_free(pp_sampling_sums *sums)
{
    if (!sums)
        return;
    free(sums->columns);
    free(sums->pairs);
    free(sums);
}

static int compare(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

int pp_sampling_key_compare(const pp_sampling_key *a, const pp_sampling_key *b)
{
    int by = compare(a->layer, b->layer);
    by = by ? by : compare(a->phase, b->phase);
    by = by ? by : compare(a->kernel, b->kernel);
    by = by ? by : compare(a->gap, b->gap);
    return by ? by : compare(a->part, b->part);
}

int pp_sampling_pair_compare(const void *a, const void *b)
{
    const pp_sampling_pair *x = a;
    const pp_sampling_pair *y = b;
    int by = compare(x->a, y->a);
    return by ? by : compare(x->b, y->b);
}

void pp_sampling_pair_add(pp_sampling_pair *to, const pp_sampling_pair *from)
{
    to->sum += from->sum;
    to->shift_a += from->shift_a;
    to->shift_b += from->shift_b;
}

void pp_sampling_column_add(pp_sampling_column *to, const pp_sampling_column *from)
{
    to->like = to->count == 0 || to->like == from->like ? from->like : 0;
    to->count += from->count;
    to->time += from->time;
    to->place += from->place;
    to->share += from->share;
    to->held += from->held;
    for (int m = 0; m < PP_SAMPLING_METRICS; m++)
        to->rhs[m] += from->rhs[m];
}

/* ---- merging ---- */

typedef struct named {
    pp_sampling_key key;
    uint32_t column;
} named;

static int compare_named(const void *a, const void *b)
{
    return pp_sampling_key_compare(&((const named *)a)->key, &((const named *)b)->key);
}

/* What a merge needs room for, all of it before anything is changed. */
typedef struct merging {
    named *named;    /* of `into`, in order */
    uint32_t *index; /* of each column of `from`: which it is now */
    pp_sampling_column *columns;
    pp_sampling_pair *pairs;
} merging;

static bool reserve(merging *g, const pp_sampling_sums *into, const pp_sampling_sums *from)
{
    g->named = malloc((into->n + 1) * sizeof *g->named);
    g->index = malloc((from->n + 1) * sizeof *g->index);
    g->columns = malloc((into->n + from->n + 1) * sizeof *g->columns);
    g->pairs = malloc((into->n_pairs + from->n_pairs + 1) * sizeof *g->pairs);
    return g->named && g->index && g->columns && g->pairs;
}

static size_t merge_columns(merging *g, const pp_sampling_sums *into, const pp_sampling_sums *from)
{
    size_t n = into->n;
    for (size_t i = 0; i < n; i++) {
        g->named[i] = (named){into->columns[i].key, (uint32_t)i};
        g->columns[i] = into->columns[i];
    }
    if (n > 1)
        qsort(g->named, n, sizeof *g->named, compare_named);
    for (size_t i = 0; i < from->n; i++) {
        named wanted = {.key = from->columns[i].key};
        const named *there = bsearch(&wanted, g->named, into->n, sizeof *g->named, compare_named);
        g->index[i] = there ? there->column : (uint32_t)n;
        if (there)
            pp_sampling_column_add(&g->columns[there->column], &from->columns[i]);
        else
            g->columns[n++] = from->columns[i];
    }
    return n;
}

static size_t merge_pairs(merging *g, const pp_sampling_sums *into, const pp_sampling_sums *from)
{
    size_t n = into->n_pairs + from->n_pairs, kept = 0;
    for (size_t i = 0; i < into->n_pairs; i++)
        g->pairs[i] = into->pairs[i];
    for (size_t i = 0; i < from->n_pairs; i++) {
        uint32_t a = g->index[from->pairs[i].a], b = g->index[from->pairs[i].b];
        const pp_sampling_pair *p = &from->pairs[i];
        g->pairs[into->n_pairs + i] =
            a <= b ? (pp_sampling_pair){a, b, p->sum, p->shift_a, p->shift_b}
                   : (pp_sampling_pair){b, a, p->sum, p->shift_b, p->shift_a};
    }
    if (n > 1)
        qsort(g->pairs, n, sizeof *g->pairs, pp_sampling_pair_compare);
    for (size_t i = 0; i < n; i++) {
        pp_sampling_pair *last = kept > 0 ? &g->pairs[kept - 1] : NULL;
        if (last && pp_sampling_pair_compare(last, &g->pairs[i]) == 0)
            pp_sampling_pair_add(last, &g->pairs[i]);
        else
            g->pairs[kept++] = g->pairs[i];
    }
    return kept;
}

/* What one of two does not know the sum of both does not tell: its products are of all windows. */
static void forget(pp_sampling_sums *sums, int m)
{
    sums->known[m] = false;
    sums->y[m] = sums->yy[m] = sums->held_y[m] = 0;
    for (size_t i = 0; i < sums->n; i++)
        sums->columns[i].rhs[m] = 0;
}

void pp_sampling_predicted_add(pp_sampling_predicted *to, const pp_sampling_predicted *from)
{
    to->n += from->n;
    to->y += from->y;
    to->yy += from->yy;
    to->rest += from->rest;
    to->items += from->items;
    to->z2 += from->z2;
    to->squares += from->squares;
    to->gaps += from->gaps;
    to->gap_y += from->gap_y;
    to->gap_samples += from->gap_samples;
    to->gap_yy += from->gap_yy;
    to->gap_yn += from->gap_yn;
    to->gap_nn += from->gap_nn;
}

static void merge_totals(pp_sampling_sums *into, const pp_sampling_sums *from)
{
    double mine = (double)into->windows, other = (double)from->windows;
    if (other > 0) {
        double share = other / (mine + other);
        into->lag += (int64_t)(share * (double)(from->lag - into->lag));
    }
    if (from->lag_stderr > into->lag_stderr)
        into->lag_stderr = from->lag_stderr; /* the worse of both */
    if (from->lag_common > into->lag_common)
        into->lag_common = from->lag_common;
    into->stamped = into->stamped || from->stamped;
    into->captures += from->captures;
    into->windows += from->windows;
    into->held_windows += from->held_windows;
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        into->y[m] += from->y[m];
        into->yy[m] += from->yy[m];
        into->held_y[m] += from->held_y[m];
        pp_sampling_predicted_add(&into->predicted[m], &from->predicted[m]);
        if (!into->known[m] || !from->known[m])
            forget(into, m);
    }
}

bool pp_sampling_is_of_cycles(int metric)
{
    return pp_metric_get((pp_metric)metric)->within_sms;
}

int pp_sampling_sums_merge(pp_sampling_sums *into, const pp_sampling_sums *from, pp_error *err)
{
    merging g = {0};
    bool room = reserve(&g, into, from);
    if (room) {
        into->n = merge_columns(&g, into, from);
        into->n_pairs = merge_pairs(&g, into, from);
        free(into->columns);
        free(into->pairs);
        into->columns = g.columns;
        into->pairs = g.pairs;
        merge_totals(into, from);
    } else {
        free(g.columns);
        free(g.pairs);
    }
    free(g.named);
    free(g.index);
    return room ? 0 : pp_error_nomem(err);
}
