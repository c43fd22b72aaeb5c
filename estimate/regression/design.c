/* Columns (which items share an unknown) and the design: shares of time per window and column. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/design.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/regression.h"
#include "estimate/regression/time_line.h"

/* Share of a bundle's time that another item may add without mattering. */
#define SLIGHT 0.05

typedef struct place {
    uint32_t row;
    pp_phase phase;
    double offset;
    double time;
} place;

static int order_place(const void *pa, const void *pb)
{
    const place *a = pa, *b = pb;
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static pp_phase phase_of(const pp_reg_timeline *t, const pp_regression_input *in, size_t row)
{
    if (row < t->n_items)
        return in->items[t->original[row]].phase;
    return row == t->n_items ? PP_PHASE_OTHER : PP_PHASE_IDLE;
}

/**
 * Bundles neighbours of one phase until a bundle has `least` time; what is slight beside a full
 * bundle still joins it, so that a large layer takes its activation along rather than another
 * large one. Returns how many bundles there are; first (may be NULL) receives where each begins.
 */
static size_t bundle(const place *places, size_t n, double least, size_t *first)
{
    size_t k = 0;
    double sum = 0, extra = 0;
    for (size_t i = 0; i < n; i++) {
        double time = places[i].time;
        bool near = i > 0 && least > 0 && places[i].phase == places[i - 1].phase;
        bool slight = time < SLIGHT * sum && extra + time < 2 * SLIGHT * sum;
        if (near && sum < least) {
            sum += time;
        } else if (near && slight) {
            extra += time;
        } else {
            if (first)
                first[k] = i;
            k++;
            sum = time;
            extra = 0;
        }
    }
    if (first)
        first[k] = n;
    return k;
}

/** Least time per bundle, so that no more than PP_REG_MAX_COLUMNS come out. */
static double bundle_least(const place *places, size_t n)
{
    double least = 0, total = 0;
    for (size_t i = 0; i < n; i++)
        total += places[i].time;
    double step = total / 65536;
    while (bundle(places, n, least, NULL) > PP_REG_MAX_COLUMNS && least < total) {
        least = least > 0 ? least * 1.25 : step;
    }
    return least;
}

static size_t places_collect(place *places, const pp_reg_timeline *t, const pp_regression_input *in)
{
    size_t n = 0;
    for (size_t r = 0; r < t->n_items + 2; r++)
        if (t->time[r] > 0)
            places[n++] = (place){(uint32_t)r, phase_of(t, in, r), t->offset[r], t->time[r]};
    qsort(places, n, sizeof *places, order_place);
    return n;
}

int pp_reg_columns_init(pp_reg_columns *c, const pp_reg_timeline *t, const pp_regression_input *in,
                        pp_error *err)
{
    size_t rows = t->n_items + 2;
    memset(c, 0, sizeof *c);
    PP_CLEANUP_FREE place *places = malloc(rows * sizeof *places);
    c->column = malloc(rows * sizeof *c->column);
    c->members = malloc(rows * sizeof *c->members);
    c->first = calloc(rows + 1, sizeof *c->first);
    c->time = calloc(rows, sizeof *c->time);
    c->phase = calloc(rows, sizeof *c->phase);
    if (!places || !c->column || !c->members || !c->first || !c->time || !c->phase) {
        pp_reg_columns_done(c);
        return pp_error_nomem(err);
    }
    size_t n = places_collect(places, t, in);
    c->n = bundle(places, n, bundle_least(places, n), c->first);
    memset(c->column, 0xff, rows * sizeof *c->column);
    for (size_t k = 0; k < c->n; k++) {
        c->phase[k] = places[c->first[k]].phase;
        for (size_t i = c->first[k]; i < c->first[k + 1]; i++) {
            c->members[i] = places[i].row;
            c->column[places[i].row] = (uint32_t)k;
            c->time[k] += places[i].time;
        }
    }
    return 0;
}

void pp_reg_columns_done(pp_reg_columns *c)
{
    free(c->column);
    free(c->members);
    free(c->first);
    free(c->time);
    free(c->phase);
    memset(c, 0, sizeof *c);
}

static int entry_add(pp_reg_design *d, pp_reg_entry e, pp_error *err)
{
    if (d->n_entries == d->cap_entries) {
        size_t want = d->cap_entries ? d->cap_entries * 2 : 4096;
        pp_reg_entry *grown = realloc(d->entries, want * sizeof *grown);
        if (!grown)
            return pp_error_nomem(err);
        d->entries = grown;
        d->cap_entries = want;
    }
    d->entries[d->n_entries++] = e;
    return 0;
}

static size_t piece_at(const pp_reg_timeline *t, double time)
{
    size_t low = 0, high = t->n_pieces;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->pieces[mid].end <= time)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/** Entries of one window are few columns, but maybe many pieces: fold equal (column, step). */
static int entry_fold(pp_reg_design *d, size_t from, pp_reg_entry e, pp_error *err)
{
    for (size_t i = d->n_entries; i-- > from;) {
        if (d->entries[i].occurrence != e.occurrence)
            break;
        if (d->entries[i].column == e.column) {
            d->entries[i].x += e.x;
            return 0;
        }
    }
    return entry_add(d, e, err);
}

static int window_shares(pp_reg_design *d, const pp_reg_timeline *t, const pp_reg_columns *c,
                         size_t w, double start, double end, bool effects, pp_error *err)
{
    double *x = d->x + w * d->p, scale = 1 / (end - start);
    size_t from = d->n_entries;
    for (size_t i = piece_at(t, start); i < t->n_pieces && t->pieces[i].start < end; i++) {
        const pp_reg_piece *v = &t->pieces[i];
        double a = v->start > start ? v->start : start, b = v->end < end ? v->end : end;
        double part = (b - a) * scale;
        for (uint32_t k = v->first; k < v[1].first; k++) {
            uint32_t column = c->column[t->shares[k].item];
            double share = part * (double)t->shares[k].rate;
            x[column] += share;
            if (effects && c->phase[column] != PP_PHASE_IDLE &&
                entry_fold(d, from, (pp_reg_entry){(uint32_t)w, column, v->occurrence, share},
                           err) < 0)
                return -1;
        }
    }
    return 0;
}

static int order_entry(const void *pa, const void *pb)
{
    const pp_reg_entry *a = pa, *b = pb;
    if (a->column != b->column)
        return a->column < b->column ? -1 : 1;
    if (a->occurrence != b->occurrence)
        return a->occurrence < b->occurrence ? -1 : 1;
    return (a->window > b->window) - (a->window < b->window);
}

static void band_measure(pp_reg_design *d)
{
    d->band = 0;
    if (d->n_entries == 0)
        return;
    qsort(d->entries, d->n_entries, sizeof *d->entries, order_entry);
    size_t start = 0;
    for (size_t i = 0; i < d->n_entries; i++) {
        const pp_reg_entry *e = &d->entries[i], *s = &d->entries[start];
        if (e->column != s->column || e->occurrence != s->occurrence)
            start = i;
        size_t width = e->window - d->entries[start].window;
        if (width > d->band)
            d->band = width;
    }
    if (d->band > PP_REG_MAX_BAND)
        d->band = PP_REG_MAX_BAND;
}

int pp_reg_design_set(pp_reg_design *d, const pp_reg_timeline *t, const pp_reg_columns *c,
                      const pp_reg_window_set *windows, double lag, bool effects, pp_error *err)
{
    const size_t n = windows->n;
    if (n * c->n > d->n * d->p || !d->x) {
        free(d->x);
        d->x = malloc((n * c->n + 1) * sizeof *d->x);
        if (!d->x)
            return pp_error_nomem(err);
    }
    d->n = n;
    d->p = c->n;
    d->n_entries = 0;
    d->n_common = 0;
    memset(d->x, 0, n * c->n * sizeof *d->x);
    for (size_t w = 0; w < n; w++) {
        const double end = windows->ends[w] - lag;
        const double length = windows->lengths ? windows->lengths[w] : windows->window;
        if (window_shares(d, t, c, w, end - length, end, effects, err) < 0)
            return -1;
    }
    if (effects)
        band_measure(d);
    return 0;
}

/** Deals a piece's idle time, `part` of a window, to the columns that run in it. */
static void gap_deal(const pp_reg_timeline *t, const pp_reg_columns *c, const pp_reg_piece *v,
                     double part, double *gaps)
{
    double idle = 0, busy = 0;
    for (uint32_t k = v->first; k < v[1].first; k++) {
        const bool is_idle = c->phase[c->column[t->shares[k].item]] == PP_PHASE_IDLE;
        *(is_idle ? &idle : &busy) += (double)t->shares[k].rate;
    }
    for (uint32_t k = v->first; idle > 0 && k < v[1].first; k++) {
        const uint32_t column = c->column[t->shares[k].item];
        if ((c->phase[column] == PP_PHASE_IDLE) == (busy > 0))
            continue;
        gaps[column] += part * (busy > 0 ? idle * (double)t->shares[k].rate / busy : idle);
    }
}

void pp_reg_design_gaps(const pp_reg_design *d, const pp_reg_timeline *t, const pp_reg_columns *c,
                        const pp_reg_window_set *windows, double lag, double *gaps)
{
    memset(gaps, 0, d->n * d->p * sizeof *gaps);
    for (size_t w = 0; w < d->n; w++) {
        const double end = windows->ends[w] - lag;
        const double length = windows->lengths ? windows->lengths[w] : windows->window;
        for (size_t i = piece_at(t, end - length); i < t->n_pieces && t->pieces[i].start < end;
             i++) {
            const pp_reg_piece *v = &t->pieces[i];
            const double a = fmax(v->start, end - length), b = fmin(v->end, end);
            gap_deal(t, c, v, (b - a) / length, gaps + w * d->p);
        }
    }
}

static int order_common(const void *pa, const void *pb)
{
    const pp_reg_common *a = pa, *b = pb;
    if (a->occurrence != b->occurrence)
        return a->occurrence < b->occurrence ? -1 : 1;
    return (a->window > b->window) - (a->window < b->window);
}

int pp_reg_design_common(pp_reg_design *d, const double *b, pp_error *err)
{
    double *values = malloc((d->p + 1) * sizeof *values);
    free(d->common);
    d->n_common = 0;
    d->common = malloc((d->n_entries + 1) * sizeof *d->common);
    if (!d->common || !values) {
        free(values);
        return pp_error_nomem(err);
    }
    memcpy(values, b, d->p * sizeof *values);
    free(d->common_b);
    d->common_b = values;
    for (size_t i = 0; i < d->n_entries; i++) {
        const pp_reg_entry *e = &d->entries[i];
        d->common[i] = (pp_reg_common){e->window, e->occurrence, e->x * b[e->column]};
    }
    qsort(d->common, d->n_entries, sizeof *d->common, order_common);
    size_t start = 0;
    for (size_t i = 0; i < d->n_entries; i++) {
        const pp_reg_common *e = &d->common[i];
        pp_reg_common *last = d->n_common ? &d->common[d->n_common - 1] : NULL;
        if (last && order_common(last, e) == 0) {
            last->x += e->x;
            continue;
        }
        if (last && last->occurrence != e->occurrence)
            start = d->n_common;
        d->common[d->n_common++] = *e;
        size_t width = e->window - d->common[start].window;
        d->band = width > d->band ? width : d->band;
    }
    d->band = d->band > PP_REG_MAX_BAND ? PP_REG_MAX_BAND : d->band;
    return 0;
}

void pp_reg_design_done(pp_reg_design *d)
{
    free(d->x);
    free(d->entries);
    free(d->common);
    free(d->common_b);
    memset(d, 0, sizeof *d);
}
