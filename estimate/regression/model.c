/*
 * The mixed model of one metric: window value = shares of time times item values + for each item
 * and step a draw of sd cv * value + noise. Values have a wide prior, so that what the data do not
 * tell keeps the prior's uncertainty. Variances by the largest marginal likelihood.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/regression/design.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/linalg.h"
#include "estimate/regression/model.h"

/* Scaled by the range: noise is never taken below this, constants would divide by zero. */
#define MIN_NOISE2 1e-10
#define MAX_NOISE2 1.0
#define GOLDEN 0.6180339887498949
/* Logarithm of a ratio at which draws are nothing beside the noise. */
#define LOG_NO_DRAWS (-25.0)
/* In -2 log evidence, against draws that are each item's own. */
#define COMMON_CLEARLY 12.0

int pp_reg_fit_init(pp_reg_fit *f, size_t p, pp_error *err)
{
    memset(f, 0, sizeof *f);
    f->p = p;
    f->prior_mean = calloc(p + 1, sizeof(double));
    f->prior_precision = calloc(p + 1, sizeof(double));
    f->square = calloc(p + 1, sizeof(double));
    f->drawn = calloc(p + 1, sizeof(double));
    f->b = calloc(p + 1, sizeof(double));
    f->value = calloc(p + 1, sizeof(double));
    f->cov = calloc(p * p + 1, sizeof(double));
    if (!f->prior_mean || !f->prior_precision || !f->square || !f->drawn || !f->b || !f->value ||
        !f->cov) {
        pp_reg_fit_done(f);
        return pp_error_nomem(err);
    }
    return 0;
}

void pp_reg_fit_done(pp_reg_fit *f)
{
    free(f->prior_mean);
    free(f->prior_precision);
    free(f->square);
    free(f->drawn);
    free(f->b);
    free(f->value);
    free(f->cov);
    memset(f, 0, sizeof *f);
}

void pp_reg_fit_copy(pp_reg_fit *to, const pp_reg_fit *from)
{
    pp_reg_fit keep = *to;
    *to = *from;
    to->prior_mean = keep.prior_mean;
    to->prior_precision = keep.prior_precision;
    to->square = keep.square;
    to->drawn = keep.drawn;
    to->b = keep.b;
    to->value = keep.value;
    to->cov = keep.cov;
    memcpy(to->prior_mean, from->prior_mean, from->p * sizeof(double));
    memcpy(to->prior_precision, from->prior_precision, from->p * sizeof(double));
    memcpy(to->square, from->square, from->p * sizeof(double));
    memcpy(to->drawn, from->drawn, from->p * sizeof(double));
    memcpy(to->b, from->b, from->p * sizeof(double));
    memcpy(to->value, from->value, from->p * sizeof(double));
    memcpy(to->cov, from->cov, from->p * from->p * sizeof(double));
}

static int grow(double **p, size_t *cap, size_t want, pp_error *err)
{
    if (*p && *cap >= want)
        return 0;
    free(*p);
    *p = malloc((want + 1) * sizeof **p);
    *cap = *p ? want : 0;
    return *p ? 0 : pp_error_nomem(err);
}

static int work_reserve(pp_reg_work *w, const pp_reg_design *d, pp_error *err)
{
    if (grow(&w->band, &w->cap_band, d->n * (d->band + 1), err) < 0 ||
        grow(&w->wx, &w->cap_wx, d->n * d->p, err) < 0 || grow(&w->wr, &w->cap_wr, d->n, err) < 0)
        return -1;
    if (w->gram && w->cap_p >= d->p)
        return 0;
    size_t cap = 0;
    free(w->c);
    free(w->tmp);
    free(w->chol);
    w->c = w->tmp = w->chol = NULL;
    w->cap_p = 0;
    if (grow(&w->gram, &cap, d->p * d->p, err) < 0)
        return -1;
    w->chol = malloc((d->p * d->p + 1) * sizeof(double));
    w->c = calloc(d->p + 1, sizeof(double));
    w->tmp = malloc((d->p + 1) * sizeof(double));
    if (!w->chol || !w->c || !w->tmp)
        return pp_error_nomem(err);
    w->cap_p = d->p;
    return 0;
}

void pp_reg_work_done(pp_reg_work *w)
{
    free(w->band);
    free(w->wx);
    free(w->wr);
    free(w->gram);
    free(w->chol);
    free(w->c);
    free(w->tmp);
    memset(w, 0, sizeof *w);
}

/** Covariance of the windows in units of the noise: 1 + ratio * (what shares a step's draw). */
static void band_fill(pp_reg_work *w, const pp_reg_design *d, const pp_reg_fit *f)
{
    const size_t bw = d->band, width = bw + 1;
    memset(w->band, 0, d->n * width * sizeof(double));
    for (size_t i = 0; i < d->n; i++)
        w->band[i * width + bw] = 1;
    size_t start = 0;
    for (size_t i = 0; i < d->n_entries; i++) {
        const pp_reg_entry *e = &d->entries[i], *s = &d->entries[start];
        /* A draw that covers more windows than the band holds is cut into independent ones. */
        if (e->column != s->column || e->occurrence != s->occurrence || e->window - s->window > bw)
            start = i;
        double v = f->ratio * (1 - f->common) * f->square[e->column] * e->x;
        for (size_t k = start; k <= i; k++)
            w->band[e->window * width + (d->entries[k].window + bw - e->window)] +=
                v * d->entries[k].x;
    }
    start = 0;
    for (size_t i = 0; i < d->n_common; i++) {
        const pp_reg_common *e = &d->common[i], *s = &d->common[start];
        if (e->occurrence != s->occurrence || e->window - s->window > bw)
            start = i;
        double v = f->ratio * f->common * e->x;
        for (size_t k = start; k <= i; k++)
            w->band[e->window * width + (d->common[k].window + bw - e->window)] +=
                v * d->common[k].x;
    }
}

static void gram_fill(pp_reg_work *w, size_t n, size_t p)
{
    memset(w->gram, 0, p * p * sizeof(double));
    memset(w->c, 0, p * sizeof(double));
    for (size_t i = 0; i < n; i++) {
        const double *x = w->wx + i * p;
        for (size_t a = 0; a < p; a++) {
            double v = x[a];
            if (v == 0)
                continue;
            double *row = w->gram + a * p;
            for (size_t b = 0; b <= a; b++)
                row[b] += v * x[b];
            w->c[a] += v * w->wr[i];
        }
    }
    w->rr = pp_dot(w->wr, w->wr, n);
}

/** Whitens design and values at the fit's ratio and sums them up: gram, c, rr, logdet. */
static int whiten(pp_reg_work *w, const pp_reg_design *d, const double *y, const pp_reg_fit *f,
                  pp_error *err)
{
    if (work_reserve(w, d, err) < 0)
        return -1;
    band_fill(w, d, f);
    if (!pp_reg_band_chol(w->band, d->n, d->band))
        return pp_error_set(err, PP_ERR_INTERNAL, "covariance of windows is not positive");
    w->logdet = 0;
    for (size_t i = 0; i < d->n; i++)
        w->logdet += 2 * log(w->band[i * (d->band + 1) + d->band]);
    memcpy(w->wx, d->x, d->n * d->p * sizeof(double));
    for (size_t i = 0; i < d->n; i++)
        w->wr[i] = y[i] - pp_dot(d->x + i * d->p, f->prior_mean, d->p);
    pp_reg_band_forward(w->band, d->n, d->band, w->wx, d->p);
    pp_reg_band_forward(w->band, d->n, d->band, w->wr, 1);
    gram_fill(w, d->n, d->p);
    return 0;
}

/** w->chol := Cholesky of the posterior precision at this noise. */
static bool posterior(pp_reg_work *w, const pp_reg_fit *f, double noise2)
{
    size_t p = f->p;
    for (size_t i = 0; i < p; i++) {
        for (size_t j = 0; j <= i; j++)
            w->chol[i * p + j] = w->gram[i * p + j] / noise2;
        w->chol[i * p + i] += f->prior_precision[i];
    }
    return pp_reg_chol(w->chol, p);
}

static double evidence_at(pp_reg_work *w, const pp_reg_fit *f, size_t n, double noise2)
{
    size_t p = f->p;
    if (!posterior(w, f, noise2))
        return PP_REG_INF;
    double logprior = 0, quad = w->rr / noise2;
    for (size_t i = 0; i < p; i++) {
        logprior += log(f->prior_precision[i]);
        w->tmp[i] = w->c[i] / noise2;
    }
    for (size_t i = 0; i < p; i++) {
        w->tmp[i] = (w->tmp[i] - pp_dot(w->chol + i * p, w->tmp, i)) / w->chol[i * p + i];
        quad -= w->tmp[i] * w->tmp[i];
    }
    return (double)n * log(noise2) + w->logdet + pp_reg_chol_logdet(w->chol, p) - logprior + quad;
}

int pp_reg_evidence(pp_reg_work *w, const pp_reg_design *d, const double *y, pp_reg_fit *f,
                    pp_error *err)
{
    if (whiten(w, d, y, f, err) < 0)
        return -1;
    f->evidence = evidence_at(w, f, d->n, f->noise2);
    return 0;
}

/** Best noise at the present ratio, by golden section in its logarithm. */
static double noise_search(pp_reg_work *w, pp_reg_fit *f, size_t n, double low, double high)
{
    double a = log(low), b = log(high);
    double x1 = b - GOLDEN * (b - a), x2 = a + GOLDEN * (b - a);
    double f1 = evidence_at(w, f, n, exp(x1)), f2 = evidence_at(w, f, n, exp(x2));
    while (b - a > 0.03) {
        if (f1 <= f2) {
            b = x2;
            x2 = x1;
            f2 = f1;
            x1 = b - GOLDEN * (b - a);
            f1 = evidence_at(w, f, n, exp(x1));
        } else {
            a = x1;
            x1 = x2;
            f1 = f2;
            x2 = a + GOLDEN * (b - a);
            f2 = evidence_at(w, f, n, exp(x2));
        }
    }
    f->noise2 = exp(0.5 * (a + b));
    return f1 < f2 ? f1 : f2;
}

typedef struct search {
    pp_reg_work *w;
    const pp_reg_design *d;
    const double *y;
    pp_reg_fit *f;
    double noise_low, noise_high;
    double best, best_log, best_noise;
} search;

static int try_ratio(search *s, double log_ratio, double *ret, pp_error *err)
{
    s->f->ratio = exp(log_ratio);
    if (whiten(s->w, s->d, s->y, s->f, err) < 0)
        return -1;
    *ret = noise_search(s->w, s->f, s->d->n, s->noise_low, s->noise_high);
    if (*ret < s->best) {
        s->best = *ret;
        s->best_log = log_ratio;
        s->best_noise = s->f->noise2;
    }
    return 0;
}

/** Golden section over log ratio in [a, b]; leaves the best pair in the fit. */
static int ratio_search(search *s, double a, double b, double tolerance, pp_error *err)
{
    double x1 = b - GOLDEN * (b - a), x2 = a + GOLDEN * (b - a), f1, f2;
    s->best = PP_REG_INF;
    s->best_log = 0.5 * (a + b);
    s->best_noise = s->f->noise2;
    if (try_ratio(s, x1, &f1, err) < 0 || try_ratio(s, x2, &f2, err) < 0)
        return -1;
    while (b - a > tolerance) {
        bool left = f1 <= f2;
        if (left) {
            b = x2;
            x2 = x1;
            f2 = f1;
            x1 = b - GOLDEN * (b - a);
        } else {
            a = x1;
            x1 = x2;
            f1 = f2;
            x2 = a + GOLDEN * (b - a);
        }
        if (try_ratio(s, left ? x1 : x2, left ? &f1 : &f2, err) < 0)
            return -1;
    }
    s->f->ratio = exp(s->best_log);
    s->f->noise2 = s->best_noise;
    return 0;
}

int pp_reg_variances(pp_reg_work *w, const pp_reg_design *d, const double *y, pp_reg_fit *f,
                     pp_error *err)
{
    search s = {w, d, y, f, MIN_NOISE2, MAX_NOISE2, 0, 0, 0};
    bool first = f->noise2 <= 0;
    if (f->alike) {
        double evidence;
        return try_ratio(&s, LOG_NO_DRAWS, &evidence, err) < 0 ? -1
                                                               : pp_reg_estimate(w, d, y, f, err);
    }
    if (first) {
        for (size_t i = 0; i < f->p; i++)
            f->square[i] = f->prior_mean[i] * f->prior_mean[i] + 1 / f->prior_precision[i];
        /* cv from .3 % of a noise of 5 points to 10 times a noise of .1 point. */
        if (ratio_search(&s, log(1e-2), log(1e5), 1.0, err) < 0 ||
            pp_reg_estimate(w, d, y, f, err) < 0)
            return -1;
    }
    double at = log(f->ratio), reach = first ? 2.5 : 1.2;
    s.noise_low = fmax(MIN_NOISE2, f->noise2 / 30);
    s.noise_high = fmin(MAX_NOISE2, f->noise2 * 30);
    if (ratio_search(&s, at - reach, at + reach, 0.4, err) < 0)
        return -1;
    return pp_reg_estimate(w, d, y, f, err);
}

int pp_reg_find_common(pp_reg_work *w, pp_reg_design *d, const double *y, pp_reg_fit *f,
                       pp_error *err)
{
    static const double shares[] = {0.5, 0.9, 0.98};
    double best = f->evidence - COMMON_CLEARLY, share = 0, noise2 = f->noise2, ratio = f->ratio;
    if (pp_reg_design_common(d, f->b, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        f->common = shares[i];
        if (pp_reg_variances(w, d, y, f, err) < 0)
            return -1;
        if (f->evidence >= best)
            continue;
        best = f->evidence;
        share = f->common;
        noise2 = f->noise2;
        ratio = f->ratio;
    }
    f->common = share;
    f->noise2 = noise2;
    f->ratio = ratio;
    return pp_reg_estimate(w, d, y, f, err);
}

/** b[free] := the minimum of the posterior with the others held; uses f->cov as scratch. */
static bool solve_free(const double *precision, const double *rhs, const int8_t *held, double *dev,
                       double *scratch, double *part, size_t p)
{
    size_t k = 0;
    for (size_t i = 0; i < p; i++) {
        if (held[i])
            continue;
        double r = rhs[i];
        size_t col = 0;
        for (size_t j = 0; j < p; j++) {
            if (held[j])
                r -= precision[i * p + j] * dev[j];
            else
                scratch[k * p + col++] = precision[i * p + j];
        }
        part[k++] = r;
    }
    /* Pack the rows: they were laid out p apart. */
    for (size_t i = 1; i < k; i++)
        memmove(scratch + i * k, scratch + i * p, k * sizeof *scratch);
    if (!pp_reg_chol(scratch, k))
        return false;
    pp_reg_chol_solve(scratch, k, part);
    k = 0;
    for (size_t i = 0; i < p; i++)
        if (!held[i])
            dev[i] = part[k++];
    return true;
}

/** Holds what left the bounds; else releases what would rather return. False: nothing to do. */
static bool bounds_step(const pp_reg_fit *f, const double *precision, const double *rhs,
                        int8_t *held, double *dev)
{
    size_t p = f->p, worst = p;
    bool moved = false;
    double most = 1e-9;
    for (size_t i = 0; i < p; i++) {
        double v = f->prior_mean[i] + dev[i];
        if (held[i] || (v >= f->min - 1e-12 && v <= f->max + 1e-12))
            continue;
        held[i] = v < f->min ? -1 : 1;
        dev[i] = (held[i] < 0 ? f->min : f->max) - f->prior_mean[i];
        moved = true;
    }
    if (moved)
        return true;
    for (size_t i = 0; i < p; i++) {
        if (!held[i])
            continue;
        double pull = (rhs[i] - pp_dot(precision + i * p, dev, p)) * -held[i];
        if (pull > most) {
            most = pull;
            worst = i;
        }
    }
    if (worst == p)
        return false;
    held[worst] = 0;
    return true;
}

/** Bounded least squares by active sets; without a violation it is the plain solution. */
static int bounded(pp_reg_work *w, pp_reg_fit *f, pp_error *err)
{
    size_t p = f->p;
    PP_CLEANUP_FREE double *precision = malloc((2 * p * p + 3 * p + 1) * sizeof(double));
    PP_CLEANUP_FREE int8_t *held = calloc(p + 1, 1);
    if (!precision || !held)
        return pp_error_nomem(err);
    double *scratch = precision + p * p, *rhs = scratch + p * p, *dev = rhs + p, *part = dev + p;
    for (size_t i = 0; i < p; i++) {
        for (size_t j = 0; j <= i; j++)
            precision[i * p + j] = precision[j * p + i] = w->gram[i * p + j] / f->noise2;
        precision[i * p + i] += f->prior_precision[i];
        rhs[i] = w->c[i] / f->noise2;
    }
    for (size_t round = 0; round < 4 * p + 8; round++) {
        if (!solve_free(precision, rhs, held, dev, scratch, part, p))
            return pp_error_set(err, PP_ERR_INTERNAL, "bounded fit lost its rank");
        if (!bounds_step(f, precision, rhs, held, dev))
            break;
    }
    for (size_t i = 0; i < p; i++)
        f->b[i] = fmin(fmax(f->prior_mean[i] + dev[i], f->min), f->max);
    return 0;
}

int pp_reg_estimate(pp_reg_work *w, const pp_reg_design *d, const double *y, pp_reg_fit *f,
                    pp_error *err)
{
    size_t p = f->p;
    memcpy(f->drawn, f->square, p * sizeof *f->drawn);
    if (whiten(w, d, y, f, err) < 0)
        return -1;
    f->evidence = evidence_at(w, f, d->n, f->noise2);
    if (!posterior(w, f, f->noise2))
        return pp_error_set(err, PP_ERR_INTERNAL, "posterior is not positive");
    pp_reg_chol_inverse(w->chol, p, f->cov);
    if (bounded(w, f, err) < 0)
        return -1;
    f->effective = 0;
    for (size_t i = 0; i < p; i++) {
        f->effective += 1 - f->prior_precision[i] * f->cov[i * p + i];
        f->square[i] = f->b[i] * f->b[i] + f->cov[i * p + i];
    }
    f->valid = true;
    return 0;
}

double pp_reg_residual(const pp_reg_work *w, const pp_reg_fit *f, size_t i)
{
    double e = w->wr[i];
    for (size_t k = 0; k < f->p; k++)
        e -= w->wx[i * f->p + k] * (f->b[k] - f->prior_mean[k]);
    return e;
}
