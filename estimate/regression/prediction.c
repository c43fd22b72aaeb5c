/*
 * How well windows are told by what others say (two-fold cross-validation). Blocks of windows come
 * in pairs; which one of a pair belongs to which half is drawn, so that no rhythm of the training's
 * falls into step with it. Variances are those of all windows: it is values that are held out.
 */
#include <math.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/draw.h"
#include "common/vector.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/prediction.h"

/* A block has so many windows, and so many steps: within a step windows share their draws. */
#define BLOCK_WINDOWS 8
#define BLOCK_STEPS 2
#define LEAST_PAIRS 4
#define SPARE 10 /* windows of a half, beyond the unknowns that all data decide */
/* Of the prior's variance, what is left where both halves tell an item. */
#define TOLD 0.25

/* The windows of one half, and what they say. */
typedef struct half {
    double *ends, *lengths, *y;
    size_t n;
    pp_reg_design design;
    pp_reg_fit fit;
} half;

static int half_init(half *h, size_t n, const pp_reg_fit *f, pp_error *err)
{
    *h = (half){.ends = malloc((3 * n + 1) * sizeof *h->ends)};
    if (!h->ends)
        return pp_error_nomem(err);
    h->lengths = h->ends + n;
    h->y = h->lengths + n;
    if (pp_reg_fit_init(&h->fit, f->p, err) < 0)
        return -1;
    pp_reg_fit_copy(&h->fit, f);
    return 0;
}

static void half_done(half *h)
{
    free(h->ends);
    pp_reg_design_done(&h->design);
    pp_reg_fit_done(&h->fit);
}

/** Which half each window belongs to. Returns how many pairs have windows in both blocks. What is
 * drawn differs from one set of windows to another: no rhythm falls into step with all of them. */
static size_t split(const pp_reg_solver *s, const pp_reg_rows *u, double window, unsigned *of)
{
    const double block = fmax(BLOCK_WINDOWS * window, BLOCK_STEPS * s->timeline.step_mean);
    const uint64_t salt = pp_draw((uint64_t)fabs(u->ends[0]));
    uint64_t last = 0;
    size_t pairs = 0;
    unsigned seen = 0; /* bits of the last pair's blocks */
    for (size_t i = 0; i < u->n; i++) {
        const uint64_t at = (uint64_t)fmax((u->ends[i] - u->ends[0]) / block, 0);
        if (i == 0 || at / 2 != last)
            seen = 0;
        last = at / 2;
        const unsigned before = seen;
        seen |= 1U << (at & 1);
        pairs += before != 3 && seen == 3;
        of[i] = (unsigned)(pp_draw(last + salt) & 1) ^ (unsigned)(at & 1);
    }
    return pairs;
}

/** Whether a half tells enough to predict the other. */
static bool is_enough(const pp_reg_fit *f, const pp_reg_rows *u, const unsigned *of)
{
    size_t n[2] = {0};
    for (size_t i = 0; i < u->n; i++)
        n[of[i]]++;
    return (double)(n[0] < n[1] ? n[0] : n[1]) >= f->effective + SPARE;
}

static int half_fit(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, const unsigned *of,
                    unsigned which, half *h, pp_error *err)
{
    const pp_reg_fit *f = &s->fits[metric];
    const pp_reg_own_window *at = &s->own[metric];
    if (half_init(h, u->n, f, err) < 0)
        return -1;
    for (size_t i = 0; i < u->n; i++) {
        if (of[i] != which)
            continue;
        h->ends[h->n] = u->ends[i];
        h->lengths[h->n] = u->lengths[i];
        h->y[h->n++] = u->y[i];
    }
    const pp_reg_window_set windows = pp_reg_windows_of(s, h->ends, h->lengths, h->n, at->window);
    if (pp_reg_design_set(&h->design, &s->timeline, &s->columns, &windows, at->lag, true, err) <
            0 ||
        (f->common > 0 && pp_reg_design_common(&h->design, f->b, err) < 0))
        return -1;
    return pp_reg_estimate(&s->work, &h->design, h->y, &h->fit, err);
}

/** Variance of each window about X b: noise, and draws. */
static void variances_fill(const pp_reg_design *d, const pp_reg_fit *f, double *variance)
{
    for (size_t i = 0; i < d->n; i++)
        variance[i] = f->noise2;
    for (size_t i = 0; i < d->n_entries; i++) {
        const pp_reg_entry *e = &d->entries[i];
        variance[e->window] +=
            f->noise2 * f->ratio * (1 - f->common) * f->drawn[e->column] * e->x * e->x;
    }
    for (size_t i = 0; i < d->n_common; i++)
        variance[d->common[i].window] +=
            f->noise2 * f->ratio * f->common * d->common[i].x * d->common[i].x;
}

/** x' cov x. */
static double spread_of(const pp_reg_fit *f, const double *x)
{
    double sum = 0;
    for (size_t k = 0; k < f->p; k++)
        if (x[k] != 0)
            sum += x[k] * pp_dot(f->cov + k * f->p, x, f->p);
    return sum;
}

static void windows_compare(const pp_reg_solver *s, size_t metric, const pp_reg_rows *u,
                            const unsigned *of, const half halves[2], const double *variance,
                            pp_regression_prediction *ret)
{
    double miss = 0, expected = 0, total = 0;
    for (size_t i = 0; i < u->n; i++) {
        const pp_reg_fit *f = &halves[1 - of[i]].fit;
        const double *x = s->design.x + i * f->p;
        const double e = u->y[i] - pp_dot(x, f->b, f->p);
        miss += e * e;
        expected += variance[i] + spread_of(f, x);
        total += (u->y[i] - u->mean) * (u->y[i] - u->mean);
    }
    ret->windows = u->n;
    ret->explained = total > 0 ? 1 - miss / total : PP_REG_NAN;
    ret->miss = sqrt(miss / (double)u->n) * s->scale[metric];
    ret->expected = sqrt(expected / (double)u->n) * s->scale[metric];
}

static bool is_told(const pp_reg_fit *f, size_t k)
{
    return f->cov[k * f->p + k] * f->prior_precision[k] < TOLD;
}

static void items_compare(const half halves[2], pp_regression_prediction *ret)
{
    const pp_reg_fit *a = &halves[0].fit, *b = &halves[1].fit;
    double sum = 0;
    for (size_t k = 0; k < a->p; k++) {
        if (!is_told(a, k) || !is_told(b, k))
            continue;
        const double d = a->b[k] - b->b[k];
        sum += d * d / (a->cov[k * a->p + k] + b->cov[k * b->p + k]);
        ret->items++;
    }
    ret->items_z = ret->items ? sqrt(sum / (double)ret->items) : PP_REG_NAN;
}

int pp_reg_predict(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err)
{
    pp_regression_prediction *ret = &s->ret->fits[s->order[metric]].prediction;
    const pp_reg_fit *f = &s->fits[metric];
    half halves[2] = {{0}, {0}};
    PP_CLEANUP_FREE unsigned *of = malloc((u->n + 1) * sizeof *of);
    PP_CLEANUP_FREE double *variance = malloc((u->n + 1) * sizeof *variance);
    if (!of || !variance)
        return pp_error_nomem(err);
    if (split(s, u, s->own[metric].window, of) < LEAST_PAIRS || !is_enough(f, u, of))
        return 0;
    int rc = 0;
    for (unsigned h = 0; rc == 0 && h < 2; h++)
        rc = half_fit(s, metric, u, of, h, &halves[h], err);
    if (rc == 0 && f->common > 0)
        rc = pp_reg_design_common(&s->design, f->b, err);
    if (rc == 0) {
        variances_fill(&s->design, f, variance);
        windows_compare(s, metric, u, of, halves, variance, ret);
        items_compare(halves, ret);
    }
    half_done(&halves[0]);
    half_done(&halves[1]);
    return rc;
}
