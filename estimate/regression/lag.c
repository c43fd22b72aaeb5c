/*
 * The one continuous unknown of the samples: how long before publication a window ended. A grid
 * of starts with least squares, each local minimum refined, the best few held against each other
 * by the mixed model's evidence over all metrics together, the winner polished to below 0.1 ms.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/regression/design.h"
#include "estimate/regression/lag.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/linalg.h"
#include "estimate/regression/model.h"
#include "estimate/regression/parts.h"
#include "estimate/regression/regression.h"
#include "estimate/regression/time_line.h"
#include "estimate/regression/windows.h"

#define STARTS_PER_WINDOW 32
#define MAX_STARTS 512
#define MAX_MINIMA 6
#define MAX_RIVALS 3
#define FLOOR_NOISE 1e-4 /* less residual than this tells no more */
#define UNAMBIGUOUS 12.0 /* in -2 log evidence, against the next minimum */
#define SHOULDER 30.0    /* and against the typical lag */

/** The windows and metrics that the search uses: complete ones, observed at every lag. */
typedef struct sample_set {
    size_t n;
    double *ends;
    double *lengths;
    size_t n_metrics;
    size_t *metrics; /* canonical */
    double *y;       /* [k * n + w], scaled */
    double *mean;    /* [k] */
    double low, high;
} sample_set;

static void set_done(sample_set *s)
{
    free(s->ends);
    free(s->lengths);
    free(s->metrics);
    free(s->y);
    free(s->mean);
}

static pp_reg_window_set set_windows(const sample_set *s)
{
    return (pp_reg_window_set){.ends = s->ends, .lengths = s->lengths, .n = s->n};
}

static bool complete(const pp_reg_windows *w, const sample_set *s, size_t i)
{
    for (size_t k = 0; k < s->n_metrics; k++)
        if (isnan(w->values[s->metrics[k] * w->n + i]))
            return false;
    return true;
}

static double moments(const double *v, size_t n, double *mean)
{
    double sum = 0, square = 0;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(v[i]))
            continue;
        sum += v[i];
        k++;
    }
    *mean = k ? sum / (double)k : 0;
    for (size_t i = 0; i < n; i++)
        square += isnan(v[i]) ? 0 : (v[i] - *mean) * (v[i] - *mean);
    return k > 1 ? sqrt(square / (double)(k - 1)) : 0;
}

/** Whether a metric varies by more than nothing where items were observed: what changes before or
 * behind that, such as memory that a process has freed, tells nothing of when they ran. `v` is
 * scratch. */
static bool varies(const pp_reg_problem *q, const pp_reg_windows *w, size_t metric, double *v)
{
    size_t n = 0;
    double mean;
    for (size_t i = 0; i < w->n; i++)
        if (pp_reg_observed(q->timeline, w->stamps[i] - w->window, w->stamps[i]))
            v[n++] = w->values[metric * w->n + i];
    return moments(v, n, &mean) >= PP_REG_CONSTANT_SD * q->scale[metric];
}

/** Metrics that vary and are nearly always there. `v` is scratch. */
static void metrics_pick(const pp_reg_problem *q, const pp_reg_windows *w, sample_set *s, double *v)
{
    size_t most = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t m = 0; m < w->n_metrics; m++) {
            size_t present = 0;
            for (size_t i = 0; i < w->n; i++)
                present += !isnan(w->values[m * w->n + i]);
            if (q->in->metrics[q->order[m]].job_only || !varies(q, w, m, v))
                continue;
            if (pass == 0 && present > most)
                most = present;
            if (pass == 1 && present * 5 >= most * 4 && present > 0)
                s->metrics[s->n_metrics++] = m;
        }
    }
}

static int set_fill(const pp_reg_problem *q, const pp_reg_windows *w,
                    const pp_reg_lag_search *search, sample_set *s, pp_error *err)
{
    PP_CLEANUP_FREE size_t *pick = malloc((w->n + 1) * sizeof *pick);
    s->metrics = malloc((w->n_metrics + 1) * sizeof *s->metrics);
    s->mean = malloc((w->n_metrics + 1) * sizeof *s->mean);
    PP_CLEANUP_FREE double *scratch = malloc((w->n + 1) * sizeof *scratch);
    if (!pick || !scratch || !s->metrics || !s->mean)
        return pp_error_nomem(err);
    metrics_pick(q, w, s, scratch);
    s->low = w->min_lag;
    s->high = q->max_lag + (w->grid ? w->half : 0.5 * w->window);
    size_t most = search->windows > 0 ? search->windows : PP_REG_MAX_SEARCH_WINDOWS;
    for (size_t i = w->n; i-- > 0 && s->n < most && s->n_metrics > 0;)
        if (complete(w, s, i) &&
            pp_reg_observed(q->timeline, w->ends[i] - s->high - w->lengths[i], w->ends[i] - s->low))
            pick[s->n++] = i;
    s->ends = malloc((s->n + 1) * sizeof *s->ends);
    s->lengths = malloc((s->n + 1) * sizeof *s->lengths);
    s->y = malloc((s->n * s->n_metrics + 1) * sizeof *s->y);
    if (!s->ends || !s->lengths || !s->y)
        return pp_error_nomem(err);
    for (size_t i = 0; i < s->n; i++) {
        s->ends[i] = w->ends[pick[s->n - 1 - i]];
        s->lengths[i] = w->lengths[pick[s->n - 1 - i]];
    }
    for (size_t k = 0; k < s->n_metrics; k++) {
        size_t m = s->metrics[k];
        for (size_t i = 0; i < s->n; i++)
            /* pick holds s->n indices */
            /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
            s->y[k * s->n + i] = w->values[m * w->n + pick[s->n - 1 - i]] / q->scale[m];
        (void)moments(s->y + k * s->n, s->n, &s->mean[k]);
    }
    return 0;
}

typedef struct coarse {
    const pp_reg_problem *q;
    const pp_reg_windows *w;
    const sample_set *s;
    pp_reg_design d;
    double *gram;
    double *c;
} coarse;

/** Columns that take part in row i; they are few beside all. */
static size_t row_columns(const pp_reg_design *d, size_t i, uint32_t *ret)
{
    const double *x = d->x + i * d->p;
    size_t n = 0;
    for (size_t a = 0; a < d->p; a++)
        if (x[a] != 0)
            ret[n++] = (uint32_t)a;
    return n;
}

/** Sums the normal equations of all metrics; rest[k] := sum of squares about the mean. */
static void coarse_sums(coarse *o, double *rest)
{
    const sample_set *s = o->s;
    size_t p = o->d.p;
    uint32_t column[PP_REG_MAX_COLUMNS];
    memset(o->gram, 0, p * p * sizeof(double));
    memset(o->c, 0, s->n_metrics * p * sizeof(double));
    memset(rest, 0, s->n_metrics * sizeof(double));
    for (size_t i = 0; i < s->n; i++) {
        const double *x = o->d.x + i * p;
        size_t n = row_columns(&o->d, i, column);
        pp_reg_add_square(o->gram, x, p);
        for (size_t k = 0; k < s->n_metrics; k++) {
            double r = s->y[k * s->n + i] - s->mean[k];
            rest[k] += r * r;
            for (size_t a = 0; a < n; a++)
                o->c[k * p + column[a]] += x[column[a]] * r;
        }
    }
    for (size_t a = 0; a < p; a++)
        o->gram[a * p + a] += PP_REG_ROUGH_RIDGE;
}

/** Penalised residuals of least squares at one lag, as -2 log likelihood over all metrics. */
static int coarse_at(coarse *o, double lag, double *ret, pp_error *err)
{
    const sample_set *s = o->s;
    const pp_reg_window_set windows = set_windows(s);
    double rest[PP_REGRESSION_MAX_METRICS];
    if (pp_reg_design_set(&o->d, o->q->timeline, o->q->columns, &windows, lag, false, err) < 0)
        return -1;
    size_t p = o->d.p;
    coarse_sums(o, rest);
    if (!pp_reg_chol(o->gram, p))
        return pp_error_set(err, PP_ERR_INTERNAL, "least squares lost its rank");
    *ret = 0;
    for (size_t k = 0; k < s->n_metrics; k++) {
        double *c = o->c + k * p;
        for (size_t a = 0; a < p; a++) {
            c[a] = (c[a] - pp_dot(o->gram + a * p, c, a)) / o->gram[a * p + a];
            rest[k] -= c[a] * c[a];
        }
        *ret += (double)s->n * log(fmax(rest[k], 0) / (double)s->n + FLOOR_NOISE * FLOOR_NOISE);
    }
    return 0;
}

static int coarse_refine(coarse *o, double low, double high, double tolerance, double *lag,
                         double *value, pp_error *err)
{
    const double golden = 0.6180339887498949;
    double x1 = high - golden * (high - low), x2 = low + golden * (high - low), f1, f2;
    if (coarse_at(o, x1, &f1, err) < 0 || coarse_at(o, x2, &f2, err) < 0)
        return -1;
    while (high - low > tolerance) {
        bool left = f1 <= f2;
        if (left) {
            high = x2;
            x2 = x1;
            f2 = f1;
            x1 = high - golden * (high - low);
        } else {
            low = x1;
            x1 = x2;
            f1 = f2;
            x2 = low + golden * (high - low);
        }
        if (coarse_at(o, left ? x1 : x2, left ? &f1 : &f2, err) < 0)
            return -1;
    }
    *lag = f1 <= f2 ? x1 : x2;
    *value = f1 <= f2 ? f1 : f2;
    return 0;
}

typedef struct minimum {
    double lag;
    double value;
} minimum;

typedef struct minima {
    minimum at[MAX_MINIMA];
    size_t n;
    double typical; /* median over the grid */
} minima;

static int order_minimum(const void *pa, const void *pb)
{
    const minimum *a = pa, *b = pb;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->lag > b->lag) - (a->lag < b->lag);
}

/** Local minima of the grid, the best MAX_MINIMA of them. */
static void minima_pick(const minimum *grid, size_t n, minima *ret)
{
    minimum all[MAX_STARTS];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        bool left = i == 0 || grid[i].value <= grid[i - 1].value;
        bool right = i + 1 == n || grid[i].value < grid[i + 1].value;
        if (left && right)
            all[k++] = grid[i];
    }
    qsort(all, k, sizeof *all, order_minimum);
    ret->n = k < MAX_MINIMA ? k : MAX_MINIMA;
    memcpy(ret->at, all, ret->n * sizeof *all);
}

static int minima_find(coarse *o, int starts, size_t refine, minima *ret, pp_error *err)
{
    minimum grid[MAX_STARTS];
    double range = o->s->high - o->s->low;
    size_t n = (size_t)ceil(range / o->w->window * starts) + 1;
    n = n < 3 ? 3 : n > MAX_STARTS ? MAX_STARTS : n;
    double step = range / (double)(n - 1);
    for (size_t i = 0; i < n; i++) {
        grid[i].lag = o->s->low + step * (double)i;
        if (coarse_at(o, grid[i].lag, &grid[i].value, err) < 0)
            return -1;
    }
    minima_pick(grid, n, ret);
    qsort(grid, n, sizeof *grid, order_minimum);
    ret->typical = grid[n / 2].value;
    for (size_t i = 0; i < ret->n && i < refine; i++) {
        double low = fmax(ret->at[i].lag - step, o->s->low);
        double high = fmin(ret->at[i].lag + step, o->s->high);
        if (coarse_refine(o, low, high, step / 20, &ret->at[i].lag, &ret->at[i].value, err) < 0)
            return -1;
    }
    qsort(ret->at, ret->n, sizeof *ret->at, order_minimum);
    return 0;
}

static int coarse_init(coarse *o, const pp_reg_problem *q, const pp_reg_windows *w,
                       const sample_set *s, pp_error *err)
{
    size_t p = q->columns->n;
    *o = (coarse){.q = q, .w = w, .s = s};
    o->gram = malloc((p * p + 1) * sizeof(double));
    o->c = malloc((s->n_metrics * p + 1) * sizeof(double));
    return o->gram && o->c ? 0 : pp_error_nomem(err);
}

static void coarse_done(coarse *o)
{
    pp_reg_design_done(&o->d);
    free(o->gram);
    free(o->c);
}

int pp_reg_lag_coarse(const pp_reg_problem *q, const pp_reg_windows *w,
                      const pp_reg_lag_search *search, pp_reg_lag *ret, pp_error *err)
{
    sample_set s = {0};
    coarse o = {0};
    minima m = {0};
    const bool refine = search->refine;
    int rc = -1;
    *ret = (pp_reg_lag){0};
    if (set_fill(q, w, search, &s, err) == 0 && coarse_init(&o, q, w, &s, err) == 0) {
        rc = 0;
        if (search->reach > 0) {
            s.low = fmax(s.low, search->near - search->reach);
            s.high = fmin(s.high, search->near + search->reach);
        }
        if (s.n >= 8 && s.n_metrics > 0 && q->columns->n > 0)
            rc = minima_find(&o, refine ? STARTS_PER_WINDOW : STARTS_PER_WINDOW / 2, refine ? 1 : 0,
                             &m, err);
        if (rc == 0 && m.n > 0)
            *ret = (pp_reg_lag){true, m.at[0].lag, 0, m.at[0].value / (double)s.n,
                                m.typical - m.at[0].value};
    }
    coarse_done(&o);
    set_done(&s);
    return rc;
}

void pp_reg_fit_prior(const pp_reg_problem *q, size_t metric, double mean, pp_reg_fit *f)
{
    const pp_regression_metric *spec = &q->in->metrics[q->order[metric]];
    bool limited = !isnan(spec->min);
    bool bounded = limited && pp_reg_has(q->in, PP_REGRESSION_BOUNDS);
    const double widen = pp_reg_has(q->in, PP_REGRESSION_PRIOR) ? 1 : 10;
    f->min = bounded ? spec->min / q->scale[metric] : -PP_REG_INF;
    f->max = bounded ? spec->max / q->scale[metric] : PP_REG_INF;
    f->alike = !pp_reg_has(q->in, PP_REGRESSION_DRAWS);
    for (size_t i = 0; i < f->p; i++) {
        bool idle = limited && q->columns->phase[i] == PP_PHASE_IDLE;
        double sd = widen * (idle ? PP_REG_IDLE_PRIOR_SD : PP_REG_PRIOR_SD);
        f->prior_mean[i] = idle ? spec->min / q->scale[metric] : mean;
        f->prior_precision[i] = 1 / (sd * sd);
    }
}

typedef struct polish {
    const pp_reg_problem *q;
    const pp_reg_windows *w;
    const sample_set *s;
    pp_reg_fit *fits; /* [canonical metric] */
    pp_reg_design d;
    pp_reg_work work;
} polish;

/** Evidence of all metrics at one lag, their variances fitted (`search`) or as they are. */
static int evidence_total(polish *o, double lag, bool search, double *ret, pp_error *err)
{
    const sample_set *s = o->s;
    const pp_reg_window_set windows = set_windows(s);
    if (pp_reg_design_set(&o->d, o->q->timeline, o->q->columns, &windows, lag, true, err) < 0)
        return -1;
    *ret = 0;
    for (size_t k = 0; k < s->n_metrics; k++) {
        pp_reg_fit *f = &o->fits[s->metrics[k]];
        const double *y = s->y + k * s->n;
        if ((search ? pp_reg_variances(&o->work, &o->d, y, f, err)
                    : pp_reg_evidence(&o->work, &o->d, y, f, err)) < 0)
            return -1;
        *ret += f->evidence;
    }
    return 0;
}

/** Newton by parabolas on the evidence; the curvature is the lag's standard error. */
static int parabolas(polish *o, pp_reg_lag *at, pp_error *err)
{
    double window = o->w->window, delta = window / 200, f0, fm, fp;
    at->se = PP_REG_INF;
    for (int round = 0; round < 8; round++) {
        if (evidence_total(o, at->lag, false, &f0, err) < 0 ||
            evidence_total(o, at->lag - delta, false, &fm, err) < 0 ||
            evidence_total(o, at->lag + delta, false, &fp, err) < 0)
            return -1;
        at->evidence = f0;
        double bend = fm + fp - 2 * f0, shift;
        if (bend > 0.02) {
            at->se = delta / sqrt(0.5 * bend);
            shift = fmax(-2 * delta, fmin(2 * delta, 0.5 * delta * (fm - fp) / bend));
        } else {
            at->se = PP_REG_INF;
            shift = fm < fp ? -delta : delta;
        }
        if (isfinite(at->se) && fabs(shift) < fmax(0.1 * at->se, 2e4) && delta < 3 * at->se)
            return 0;
        at->lag = fmax(o->s->low, fmin(o->s->high, at->lag + shift));
        delta =
            isfinite(at->se) ? fmax(5e4, fmin(at->se, window / 50)) : fmin(2 * delta, window / 20);
    }
    return 0;
}

static void fits_start(polish *o)
{
    for (size_t k = 0; k < o->s->n_metrics; k++) {
        size_t m = o->s->metrics[k];
        pp_reg_fit_prior(o->q, m, o->s->mean[k], &o->fits[m]);
        o->fits[m].noise2 = 0;
    }
}

/** Adds one window's pull on the lag, metric by metric: see lag_widen. */
static void pull_add(const polish *o, const pp_reg_design *left, const pp_reg_design *right,
                     const double *variance, size_t i, double *pull, double *information)
{
    const sample_set *s = o->s;
    size_t p = o->d.p;
    *pull = 0;
    for (size_t k = 0; k < s->n_metrics; k++) {
        const double *b = o->fits[s->metrics[k]].b;
        double e = s->y[k * s->n + i] - pp_dot(o->d.x + i * p, b, p);
        double slope = pp_dot(right->x + i * p, b, p) - pp_dot(left->x + i * p, b, p);
        *pull += e * slope / variance[k];
        *information += slope * slope / variance[k];
    }
}

static void variances_of(const polish *o, double *variance)
{
    const sample_set *s = o->s;
    for (size_t k = 0; k < s->n_metrics; k++) {
        const double *b = o->fits[s->metrics[k]].b;
        variance[k] = FLOOR_NOISE * FLOOR_NOISE;
        for (size_t i = 0; i < s->n; i++) {
            double e = s->y[k * s->n + i] - pp_dot(o->d.x + i * o->d.p, b, o->d.p);
            variance[k] += e * e / (double)s->n;
        }
    }
}

/**
 * Errors of the windows' edges or of the activity's stamps pull on all metrics alike, while the
 * evidence takes metrics for independent: widens the lag's error by what the windows show.
 */
static int lag_widen(polish *o, pp_reg_lag *at, pp_error *err)
{
    const sample_set *s = o->s;
    const pp_reg_window_set windows = set_windows(s);
    double delta = fmax(at->se, 5e4), meat = 0, information = 0, pull;
    double variance[PP_REGRESSION_MAX_METRICS];
    pp_reg_design side[2] = {{0}, {0}};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = pp_reg_design_set(&side[i], o->q->timeline, o->q->columns, &windows,
                               at->lag + (i ? delta : -delta), false, err);
    if (rc == 0) {
        variances_of(o, variance);
        for (size_t i = 0; i < s->n; i++) {
            pull_add(o, &side[0], &side[1], variance, i, &pull, &information);
            meat += pull * pull;
        }
        if (information > 0)
            at->se *= sqrt(fmax(1, meat / information));
    }
    pp_reg_design_done(&side[0]);
    pp_reg_design_done(&side[1]);
    return rc;
}

static int fits_alloc(pp_reg_fit **ret, size_t n, size_t p, pp_error *err)
{
    pp_reg_fit *fits = calloc(n + 1, sizeof *fits);
    if (!fits)
        return pp_error_nomem(err);
    for (size_t m = 0; m < n; m++) {
        if (pp_reg_fit_init(&fits[m], p, err) < 0) {
            while (m-- > 0)
                pp_reg_fit_done(&fits[m]);
            free(fits);
            return -1;
        }
    }
    *ret = fits;
    return 0;
}

/** Holds the best minima against each other; the winner's fits end up in `best`. */
static int rivals_compare(polish *o, const minima *m, pp_reg_fit *best, pp_reg_lag *ret,
                          pp_error *err)
{
    double first = PP_REG_INF, second = PP_REG_INF;
    const size_t rivals = pp_reg_has(o->q->in, PP_REGRESSION_RIVALS) ? MAX_RIVALS : 1;
    for (size_t i = 0; i < m->n && i < rivals; i++) {
        double f;
        /* Squares alone overstate differences, but not tenfold. */
        if (m->at[i].value - m->at[0].value > 0.25 * (double)(o->s->n * o->s->n_metrics))
            break;
        fits_start(o);
        if (evidence_total(o, m->at[i].lag, true, &f, err) < 0)
            return -1;
        bool other = fabs(m->at[i].lag - ret->lag) > o->w->window / 50;
        if (f < first) {
            second = other ? first : second;
            first = f;
            ret->lag = m->at[i].lag;
            for (size_t k = 0; k < o->s->n_metrics; k++)
                pp_reg_fit_copy(&best[o->s->metrics[k]], &o->fits[o->s->metrics[k]]);
        } else if (other && f < second) {
            second = f;
        }
    }
    ret->known = second - first > UNAMBIGUOUS;
    return 0;
}

static bool enough(const polish *o)
{
    double most = 0;
    for (size_t k = 0; k < o->s->n_metrics; k++)
        most = fmax(most, o->fits[o->s->metrics[k]].effective);
    return (double)o->s->n >= 2 * most + 10;
}

/* At an end of the search the best lag lies beyond it. */
static bool inside(const polish *o, double lag)
{
    double margin = o->w->window / 50;
    return lag > o->s->low + margin && lag < o->s->high - margin;
}

static int lag_polish(polish *o, const minima *m, pp_reg_fit *best, pp_reg_lag *ret, pp_error *err)
{
    if (rivals_compare(o, m, best, ret, err) < 0)
        return -1;
    pp_reg_fit *spare = o->fits;
    o->fits = best;
    int rc = 0;
    for (int round = 0; round < 2 && rc == 0; round++) {
        double f;
        rc = parabolas(o, ret, err);
        if (rc == 0)
            rc = evidence_total(o, ret->lag, true, &f, err);
    }
    if (rc == 0 && isfinite(ret->se))
        rc = lag_widen(o, ret, err);
    ret->known = ret->known && m->typical - m->at[0].value > SHOULDER && enough(o) &&
                 ret->se < o->w->window / 4 && inside(o, ret->lag);
    o->fits = spare;
    return rc;
}

static int find_within(const pp_reg_problem *q, const pp_reg_windows *w, pp_reg_fit *fits,
                       pp_reg_lag *ret, bool *ret_few, pp_error *err)
{
    sample_set s = {0};
    coarse c = {0};
    minima m = {0};
    pp_reg_fit *spare = NULL;
    polish o = {.q = q, .w = w, .s = &s};
    int rc = -1;
    *ret = (pp_reg_lag){.se = PP_REG_INF};
    if (set_fill(q, w, &(pp_reg_lag_search){0}, &s, err) < 0 ||
        coarse_init(&c, q, w, &s, err) < 0 ||
        fits_alloc(&spare, w->n_metrics, q->columns->n, err) < 0)
        goto out;
    rc = 0;
    *ret_few = s.n < 16;
    if (*ret_few || s.n_metrics == 0 || q->columns->n == 0)
        goto out;
    o.fits = spare;
    rc = minima_find(&c, STARTS_PER_WINDOW, MAX_MINIMA, &m, err);
    if (rc == 0)
        rc = lag_polish(&o, &m, fits, ret, err);
    o.fits = fits;
    *ret_few = rc == 0 && !enough(&o);
out:
    for (size_t i = 0; spare && i < w->n_metrics; i++)
        pp_reg_fit_done(&spare[i]);
    free(spare);
    pp_reg_design_done(&o.d);
    pp_reg_work_done(&o.work);
    coarse_done(&c);
    set_done(&s);
    return rc;
}

/* A wide search has fewer windows that lie within what was observed at all of its lags: where these
 * are too few, as in a short session, it is the usual lags or none. */
int pp_reg_lag_find(const pp_reg_problem *q, const pp_reg_windows *w, pp_reg_fit *fits,
                    pp_reg_lag *ret, pp_error *err)
{
    bool few = false;
    const pp_reg_problem usual = pp_reg_problem_usual(q, w->window);
    if (find_within(q, w, fits, ret, &few, err) < 0)
        return -1;
    if (ret->known || !few || usual.max_lag >= q->max_lag)
        return 0;
    return find_within(&usual, w, fits, ret, &few, err);
}
