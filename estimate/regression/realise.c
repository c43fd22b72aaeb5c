#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/linalg.h"
#include "estimate/regression/realise.h"

static int order_duration(const void *pa, const void *pb)
{
    const pp_reg_duration *a = pa, *b = pb;
    if (a->column != b->column)
        return a->column < b->column ? -1 : 1;
    return (a->occurrence > b->occurrence) - (a->occurrence < b->occurrence);
}

static int order_step(const void *pa, const void *pb)
{
    const pp_reg_duration *a = pa, *b = pb;
    if (a->occurrence != b->occurrence)
        return a->occurrence < b->occurrence ? -1 : 1;
    return (a->column > b->column) - (a->column < b->column);
}

static int duration_add(pp_reg_durations *s, size_t *cap, pp_reg_duration d, pp_error *err)
{
    if (s->n == *cap) {
        size_t want = *cap ? 2 * *cap : 4096;
        pp_reg_duration *grown = realloc(s->at, want * sizeof *grown);
        if (!grown)
            return pp_error_nomem(err);
        s->at = grown;
        *cap = want;
    }
    s->at[s->n++] = d;
    return 0;
}

/** Moves the sums of one occurrence to the list. */
static int durations_flush(pp_reg_durations *s, size_t *cap, double *sums, size_t p,
                           uint32_t occurrence, pp_error *err)
{
    for (size_t k = 0; k < p; k++) {
        if (sums[k] > 0 &&
            duration_add(s, cap, (pp_reg_duration){(uint32_t)k, occurrence, sums[k]}, err) < 0)
            return -1;
        sums[k] = 0;
    }
    return 0;
}

int pp_reg_durations_init(pp_reg_durations *s, const pp_reg_timeline *t, const pp_reg_columns *c,
                          pp_error *err)
{
    PP_CLEANUP_FREE double *sums = calloc(c->n + 1, sizeof *sums);
    size_t cap = 0;
    int rc = 0;
    *s = (pp_reg_durations){0};
    if (!sums)
        return pp_error_nomem(err);
    for (size_t i = 0; rc == 0 && i < t->n_pieces; i++) {
        const pp_reg_piece *v = &t->pieces[i];
        for (uint32_t k = v->first; k < v[1].first; k++) {
            uint32_t column = c->column[t->shares[k].item];
            if (c->phase[column] != PP_PHASE_IDLE)
                sums[column] += (double)t->shares[k].rate * (v->end - v->start);
        }
        if (i + 1 == t->n_pieces || v[1].occurrence != v->occurrence)
            rc = durations_flush(s, &cap, sums, c->n, v->occurrence, err);
    }
    s->by_step = malloc((s->n + 1) * sizeof *s->by_step);
    if (!s->by_step)
        rc = pp_error_nomem(err);
    if (rc == 0 && s->by_step && s->at) {
        memcpy(s->by_step, s->at, s->n * sizeof *s->at);
        qsort(s->at, s->n, sizeof *s->at, order_duration);
        qsort(s->by_step, s->n, sizeof *s->by_step, order_step);
    }
    if (rc < 0)
        pp_reg_durations_done(s);
    return rc;
}

void pp_reg_durations_done(pp_reg_durations *s)
{
    free(s->at);
    free(s->by_step);
    *s = (pp_reg_durations){0};
}

/** What realising takes: n x p and p x p matrices. */
typedef struct scratch {
    double *reach; /* n x p: how each column's mean draw goes with each window; then whitened */
    double *drawn; /* p x p: covariance of the columns' mean draws */
    double *left;  /* p x p: what is left of an error in b */
    double *cov;   /* p x p */
    double *rest;  /* [n] whitened residuals */
    double *pull;  /* [n] V^-1 of residuals, in units of the noise */
    double *seen;  /* [p] sum of the squares of each column's own draws, as they are predicted */
    double *meant; /* [p] and of their variances in the model */
} scratch;

static void scratch_done(scratch *s)
{
    free(s->reach);
    free(s->drawn);
    free(s->left);
    free(s->cov);
    free(s->rest);
    free(s->pull);
    free(s->seen);
    free(s->meant);
}

static int scratch_init(scratch *s, size_t n, size_t p, pp_error *err)
{
    s->reach = calloc(n * p + 1, sizeof(double));
    s->drawn = calloc(p * p + 1, sizeof(double));
    s->left = calloc(p * p + 1, sizeof(double));
    s->cov = calloc(p * p + 1, sizeof(double));
    s->rest = calloc(n + 1, sizeof(double));
    s->pull = calloc(n + 1, sizeof(double));
    s->seen = calloc(p + 1, sizeof(double));
    s->meant = calloc(p + 1, sizeof(double));
    return s->reach && s->drawn && s->left && s->cov && s->rest && s->pull && s->seen && s->meant
               ? 0
               : pp_error_nomem(err);
}

static double own_variance(const pp_reg_fit *f, uint32_t column)
{
    return f->noise2 * f->ratio * (1 - f->common) * f->drawn[column];
}

/** Entries from .. to - 1 of one draw, which has `weight` of its column's time. */
static void draw_add(scratch *s, const pp_reg_design *d, const pp_reg_fit *f, size_t from,
                     size_t to, double weight)
{
    uint32_t column = d->entries[from].column;
    double variance = own_variance(f, column), draw = 0;
    for (size_t i = from; i < to; i++) {
        s->reach[d->entries[i].window * d->p + column] += variance * weight * d->entries[i].x;
        draw += variance * d->entries[i].x * s->pull[d->entries[i].window] / f->noise2;
    }
    s->seen[column] += draw * draw;
    s->meant[column] += variance;
    s->drawn[column * d->p + column] += variance * weight * weight;
}

/** One column in one step, entries from .. to - 1: as many draws as the band cuts it into. */
static void occurrence_add(scratch *s, const pp_reg_design *d, const pp_reg_fit *f, size_t from,
                           size_t to, double weight)
{
    double all = 0;
    for (size_t i = from; i < to; i++)
        all += d->entries[i].x;
    for (size_t start = from; start < to && all > 0;) {
        size_t end = start;
        double part = 0;
        while (end < to && d->entries[end].window - d->entries[start].window <= d->band)
            part += d->entries[end++].x;
        draw_add(s, d, f, start, end, weight * part / all);
        start = end;
    }
}

static bool same_draw(const pp_reg_entry *e, const pp_reg_duration *v)
{
    return e->column == v->column && e->occurrence == v->occurrence;
}

/** Fills reach and drawn: durations and entries are in the same order. */
static void draws_fill(scratch *s, const pp_reg_design *d, const pp_reg_durations *durations,
                       const pp_reg_fit *f, const double *time)
{
    size_t e = 0;
    for (size_t i = 0; i < durations->n; i++) {
        const pp_reg_duration *v = &durations->at[i];
        double weight = v->time / time[v->column];
        while (e < d->n_entries && !same_draw(&d->entries[e], v) &&
               (d->entries[e].column < v->column ||
                (d->entries[e].column == v->column && d->entries[e].occurrence < v->occurrence)))
            e++;
        size_t from = e;
        while (e < d->n_entries && same_draw(&d->entries[e], v))
            e++;
        if (e > from)
            occurrence_add(s, d, f, from, e, weight);
        else
            s->drawn[v->column * d->p + v->column] += own_variance(f, v->column) * weight * weight;
    }
}

/** One draw that a step's columns have in common: entries from .. to - 1 of the windows, durations
 * of the columns, of which `part` falls into these windows. */
static void common_draw_add(scratch *s, const pp_reg_design *d, const pp_reg_fit *f, size_t from,
                            size_t to, const pp_reg_duration *of, size_t n, const double *time,
                            double part)
{
    double variance = f->noise2 * f->ratio * f->common;
    for (size_t a = 0; a < n; a++) {
        uint32_t k = of[a].column;
        double pull = variance * part * d->common_b[k] * of[a].time / time[k];
        for (size_t i = from; i < to; i++)
            s->reach[d->common[i].window * d->p + k] += pull * d->common[i].x;
        for (size_t b = 0; b < n; b++)
            s->drawn[k * d->p + of[b].column] +=
                pull * part * d->common_b[of[b].column] * of[b].time / time[of[b].column];
    }
}

/** As many draws as the band cuts the step's windows into; one of its own where there is none. */
static void common_step_add(scratch *s, const pp_reg_design *d, const pp_reg_fit *f, size_t from,
                            size_t to, const pp_reg_duration *of, size_t n, const double *time)
{
    double all = 0;
    for (size_t i = from; i < to; i++)
        all += d->common[i].x;
    if (!(all > 0)) {
        common_draw_add(s, d, f, from, from, of, n, time, 1);
        return;
    }
    for (size_t start = from; start < to;) {
        size_t end = start;
        double part = 0;
        while (end < to && d->common[end].window - d->common[start].window <= d->band)
            part += d->common[end++].x;
        common_draw_add(s, d, f, start, end, of, n, time, part / all);
        start = end;
    }
}

static void common_fill(scratch *s, const pp_reg_design *d, const pp_reg_durations *durations,
                        const pp_reg_fit *f, const double *time)
{
    size_t e = 0;
    for (size_t i = 0; i < durations->n && f->common > 0;) {
        const uint32_t occurrence = durations->by_step[i].occurrence;
        size_t last = i;
        while (last < durations->n && durations->by_step[last].occurrence == occurrence)
            last++;
        while (e < d->n_common && d->common[e].occurrence < occurrence)
            e++;
        size_t from = e;
        while (e < d->n_common && d->common[e].occurrence == occurrence)
            e++;
        common_step_add(s, d, f, from, e, &durations->by_step[i], last - i, time);
        i = last;
    }
}

static void rest_fill(scratch *s, const pp_reg_work *w, const pp_reg_design *d, const pp_reg_fit *f)
{
    for (size_t i = 0; i < d->n; i++)
        s->rest[i] = pp_reg_residual(w, f, i);
    memcpy(s->pull, s->rest, d->n * sizeof *s->pull);
    pp_reg_band_backward(w->band, d->n, d->band, s->pull);
}

/** value := b and the mean of the draws; left := I - reach' V^-1 X. */
static void values_fill(scratch *s, const pp_reg_work *w, pp_reg_fit *f, size_t n)
{
    size_t p = f->p;
    for (size_t k = 0; k < p; k++)
        f->value[k] = f->b[k];
    for (size_t i = 0; i < n; i++) {
        const double *x = w->wx + i * p, *c = s->reach + i * p;
        double e = s->rest[i];
        for (size_t k = 0; k < p; k++) {
            if (c[k] == 0)
                continue;
            f->value[k] += c[k] * e / f->noise2;
            for (size_t j = 0; j < p; j++)
                s->left[k * p + j] -= c[k] * x[j] / f->noise2;
        }
    }
    for (size_t k = 0; k < p; k++) {
        s->left[k * p + k] += 1;
        f->value[k] = fmin(fmax(f->value[k], f->min), f->max);
    }
}

/** move += what the mean of the draws takes of the scores. */
static void move_fill(const scratch *s, const pp_reg_fit *f, size_t n, const double *scores,
                      size_t q, double *move)
{
    size_t p = f->p;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < p; k++) {
            double c = s->reach[i * p + k] / f->noise2;
            for (size_t j = 0; c != 0 && j < q; j++)
                move[k * q + j] += c * scores[i * q + j];
        }
}

/** s->cov := left cov left' + drawn - reach' V^-1 reach. Returns half of it, left cov, in `half`.
 */
static void covariance_fill(scratch *s, const pp_reg_fit *f, size_t n, double *half)
{
    size_t p = f->p;
    for (size_t a = 0; a < p; a++)
        for (size_t b = 0; b < p; b++)
            half[a * p + b] = pp_dot(s->left + a * p, f->cov + b * p, p);
    for (size_t a = 0; a < p; a++)
        for (size_t b = 0; b <= a; b++)
            s->cov[a * p + b] = pp_dot(half + a * p, s->left + b * p, p) + s->drawn[a * p + b];
    for (size_t i = 0; i < n; i++) {
        const double *c = s->reach + i * p;
        for (size_t a = 0; a < p; a++)
            for (size_t b = 0; c[a] != 0 && b <= a; b++)
                s->cov[a * p + b] -= c[a] * c[b] / f->noise2;
    }
    for (size_t a = 0; a < p; a++) {
        s->cov[a * p + a] = fmax(s->cov[a * p + a], 0);
        for (size_t b = 0; b < a; b++)
            s->cov[b * p + a] = s->cov[a * p + b];
    }
}

/** widen[k]: by how much residuals pull on a value, against what the model's noise would. */
static void widen_fill(const scratch *s, const pp_reg_work *w, const pp_reg_fit *f, size_t n,
                       const double *half, double *widen)
{
    size_t p = f->p;
    for (size_t k = 0; k < p; k++) {
        double pull = 0, expected = 0;
        for (size_t i = 0; i < n; i++) {
            const double *x = w->wx + i * p;
            double g = pp_dot(half + k * p, x, p) + s->reach[i * p + k];
            pull += s->rest[i] * s->rest[i] * g * g;
            expected += f->noise2 * g * g;
        }
        widen[k] = expected > 0 ? sqrt(fmax(1, pull / expected)) : 1;
        /* A column that follows the model shows less than its variance: what is predicted is
         * shrunk. One that does not go along with what its steps have in common shows more. */
        if (s->meant[k] > 0)
            widen[k] *= sqrt(fmax(1, s->seen[k] / s->meant[k]));
    }
}

int pp_reg_realise(pp_reg_work *w, const pp_reg_design *d, const pp_reg_durations *durations,
                   pp_reg_fit *f, bool sandwich, const double *scores, size_t n_scores,
                   double *move, pp_error *err)
{
    size_t n = d->n, p = d->p;
    scratch s = {0};
    PP_CLEANUP_FREE double *time = calloc(p + 1, sizeof *time);
    PP_CLEANUP_FREE double *half = calloc(p * p + p + 1, sizeof *half);
    if (!time || !half || scratch_init(&s, n, p, err) < 0) {
        scratch_done(&s);
        return pp_error_nomem(err);
    }
    double *widen = half + p * p;
    for (size_t i = 0; i < durations->n; i++)
        time[durations->at[i].column] += durations->at[i].time;
    rest_fill(&s, w, d, f);
    draws_fill(&s, d, durations, f, time);
    common_fill(&s, d, durations, f, time);
    pp_reg_band_forward(w->band, n, d->band, s.reach, p);
    values_fill(&s, w, f, n);
    if (scores)
        move_fill(&s, f, n, scores, n_scores, move);
    covariance_fill(&s, f, n, half);
    for (size_t k = 0; k < p; k++)
        widen[k] = 1;
    if (sandwich)
        widen_fill(&s, w, f, n, half, widen);
    for (size_t a = 0; a < p; a++)
        for (size_t b = 0; b < p; b++)
            f->cov[a * p + b] = s.cov[a * p + b] * widen[a] * widen[b];
    scratch_done(&s);
    return 0;
}
