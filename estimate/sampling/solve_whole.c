/* Captures name their columns each for itself: here they become one list. */
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct named {
    pp_sampling_column column;
    uint32_t capture, local; /* where it came from */
} named;

static int compare_named(const void *a, const void *b)
{
    const named *x = a;
    const named *y = b;
    int by = pp_sampling_key_compare(&x->column.key, &y->column.key);
    if (by)
        return by;
    return x->capture < y->capture ? -1 : x->capture > y->capture;
}

static double place_of(const pp_sampling_column *c)
{
    return c->count ? c->place / (double)c->count : 0;
}

typedef struct placed {
    double at;
    uint32_t column;
} placed;

static int compare_placed(const void *a, const void *b)
{
    const placed *x = a;
    const placed *y = b;
    if (x->at < y->at || x->at > y->at)
        return x->at < y->at ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

/* Columns that share windows lie side by side then, which keeps the matrix narrow. */
static int order_by_place(pp_sampling_whole *w, pp_error *err)
{
    placed *order = calloc(w->n + 1, sizeof *order);
    uint32_t *now = calloc(w->n + 1, sizeof *now);
    pp_sampling_column *sorted = calloc(w->n + 1, sizeof *sorted);
    const bool whole = order && now && sorted;
    if (whole) {
        for (size_t i = 0; i < w->n; i++)
            order[i] = (placed){place_of(&w->columns[i]), (uint32_t)i};
        qsort(order, w->n, sizeof *order, compare_placed);
        for (size_t i = 0; i < w->n; i++) {
            sorted[i] = w->columns[order[i].column];
            now[order[i].column] = (uint32_t)i;
        }
        memcpy(w->columns, sorted, w->n * sizeof *sorted);
        for (size_t s = 0; s < w->n_captures; s++)
            for (size_t i = 0; i < w->captures[s]->n; i++)
                w->index[s][i] = now[w->index[s][i]];
    }
    free(order);
    free(sorted);
    w->by_key = now; /* they were in order of their keys */
    return whole ? 0 : pp_error_nomem(err);
}

static int merge(pp_sampling_whole *w, named *all, size_t total, pp_error *err)
{
    qsort(all, total, sizeof *all, compare_named);
    w->columns = calloc(total + 1, sizeof *w->columns);
    if (!w->columns)
        return pp_error_nomem(err);
    for (size_t i = 0; i < total; i++) {
        const named *c = &all[i];
        if (w->n == 0 || pp_sampling_key_compare(&w->columns[w->n - 1].key, &c->column.key) != 0)
            w->columns[w->n++] = (pp_sampling_column){.key = c->column.key};
        pp_sampling_column_add(&w->columns[w->n - 1], &c->column);
        w->index[c->capture][c->local] = (uint32_t)(w->n - 1);
    }
    return order_by_place(w, err);
}

static int gather(pp_sampling_whole *w, pp_error *err)
{
    size_t total = 0;
    for (size_t s = 0; s < w->n_captures; s++)
        total += w->captures[s]->n;
    named *all = calloc(total + 1, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    size_t n = 0;
    for (size_t s = 0; s < w->n_captures; s++)
        for (size_t i = 0; i < w->captures[s]->n; i++)
            all[n++] = (named){w->captures[s]->columns[i], (uint32_t)s, (uint32_t)i};
    int rc = merge(w, all, total, err);
    free(all);
    return rc;
}

int pp_sampling_whole_make(pp_sampling_whole *w, const pp_sampling_sums *const *captures, size_t n,
                           pp_error *err)
{
    *w = (pp_sampling_whole){
        .captures = captures, .n_captures = n, .index = calloc(n + 1, sizeof *w->index)};
    if (!w->index)
        return pp_error_nomem(err);
    for (size_t s = 0; s < n; s++) {
        const pp_sampling_sums *f = captures[s];
        w->index[s] = calloc(f->n + 1, sizeof **w->index);
        if (!w->index[s])
            return pp_error_nomem(err);
        w->windows += (double)f->windows;
        for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
            if (!f->known[m])
                continue;
            w->with[m] += (double)f->windows;
            w->held_with[m] += (double)f->held_windows;
            w->y[m] += f->y[m];
            w->yy[m] += f->yy[m];
            w->held_y[m] += f->held_y[m];
        }
    }
    return gather(w, err);
}

void pp_sampling_whole_free(pp_sampling_whole *w)
{
    for (size_t s = 0; w->index && s < w->n_captures; s++)
        free(w->index[s]);
    free(w->index);
    free(w->by_key);
    free(w->columns);
    *w = (pp_sampling_whole){0};
}
