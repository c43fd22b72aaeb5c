#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/linalg.h"
#include "estimate/regression/own_window.h"

#define LAGS 6         /* starts in the shorter one of both windows */
#define HALVINGS 5     /* of the steps around the best start */
#define CLEARLY 0.5    /* of -2 log likelihood by window */
#define LEAST_SE 1.0   /* ns: of a length that is told */
#define LEAST_SD2 1e-8 /* scaled; less is not told apart */

/* Of the exporter's window. */
static const double lengths[] = {0.125, 1.0 / 6, 0.25,     1.0 / 3, 0.5, 2.0 / 3, 0.75,
                                 1,     4.0 / 3, 1.5,      5.0 / 3, 2,   2.5,     3,
                                 4,     5,       20.0 / 3, 8,       10};

typedef struct place {
    double window, lag;
    double value; /* -2 log likelihood by window */
} place;

typedef struct search {
    pp_reg_solver *s;
    const pp_reg_rows *rows;
    pp_reg_design d;
    double *gram;
    double *c;
} search;

/** Values whose windows were observed, with `before` more before them, and `after` more behind. */
static int rows_within(const pp_reg_solver *s, size_t metric, double before, double after,
                       size_t most, pp_reg_rows *u, pp_error *err)
{
    const pp_reg_windows *w = &s->windows;
    const double lag = s->own[metric].lag;
    /* Where the metric's windows are not the exporter's, each is a value of one of its own. */
    const double longer = s->own[metric].window - w->window;
    u->ends = malloc((3 * w->n + 1) * sizeof *u->ends);
    if (!u->ends)
        return pp_error_nomem(err);
    u->y = u->ends + w->n;
    u->lengths = u->y + w->n;
    u->n = 0;
    u->mean = 0;
    size_t skip = w->n > most ? w->n - most : 0;
    for (size_t i = skip; i < w->n; i++) {
        double y = w->values[metric * w->n + i], end = w->ends[i] - lag;
        double length = w->lengths[i] + longer;
        if (isnan(y) || !pp_reg_observed(&s->timeline, end - length - before, end + after))
            continue;
        u->ends[u->n] = w->ends[i];
        u->lengths[u->n] = length;
        u->y[u->n++] = y / s->scale[metric];
        u->mean += y / s->scale[metric];
    }
    u->mean = u->n ? u->mean / (double)u->n : 0;
    return 0;
}

int pp_reg_rows_take(const pp_reg_solver *s, size_t metric, pp_reg_rows *u, pp_error *err)
{
    return rows_within(s, metric, 0, 0, PP_REG_MAX_FIT_WINDOWS, u, err);
}

/** Least squares at one place. */
static int place_try(search *o, place *at, pp_error *err)
{
    const pp_reg_rows *u = o->rows;
    double rest = 0;
    const pp_reg_window_set windows =
        pp_reg_windows_of(o->s, u->ends, u->lengths, u->n, at->window);
    if (pp_reg_design_set(&o->d, &o->s->timeline, &o->s->columns, &windows, at->lag, false, err) <
        0)
        return -1;
    size_t p = o->d.p;
    memset(o->gram, 0, p * p * sizeof(double));
    memset(o->c, 0, p * sizeof(double));
    for (size_t i = 0; i < u->n; i++) {
        const double *x = o->d.x + i * p;
        double r = u->y[i] - u->mean;
        rest += r * r;
        for (size_t a = 0; a < p; a++) {
            if (x[a] == 0)
                continue;
            o->c[a] += x[a] * r;
            for (size_t b = 0; b <= a; b++)
                o->gram[a * p + b] += x[a] * x[b];
        }
    }
    for (size_t a = 0; a < p; a++)
        o->gram[a * p + a] += PP_REG_ROUGH_RIDGE;
    if (!pp_reg_chol(o->gram, p))
        return pp_error_set(err, PP_ERR_INTERNAL, "least squares lost its rank");
    for (size_t a = 0; a < p; a++) {
        o->c[a] = (o->c[a] - pp_dot(o->gram + a * p, o->c, a)) / o->gram[a * p + a];
        rest -= o->c[a] * o->c[a];
    }
    at->value = log(fmax(rest, 0) / (double)u->n + LEAST_SD2);
    return 0;
}

static int try_better(search *o, double window, double lag, place *best, pp_error *err)
{
    place at = {window, lag, 0};
    if (window < 0.5 * lengths[0] * o->s->windows.window)
        return 0;
    if (place_try(o, &at, err) < 0)
        return -1;
    if (at.value < best->value)
        *best = at;
    return 0;
}

/** One length, at lags `step` apart from `first` to `last` of them after `lag`. */
static int lags_try(search *o, double length, double lag, double step, int first, int last,
                    place *best, pp_error *err)
{
    for (int i = first; i <= last; i++)
        if (try_better(o, length, lag + i * step, best, err) < 0)
            return -1;
    return 0;
}

/** The exporter's length within one of it; others wherever their windows may end: within the
 * exporter's where they are shorter, else up to their own length before. Values of all windows
 * since the one before have no other length. */
static int starts_try(search *o, double window, double lag, place *best, pp_error *err)
{
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        const double length = window * lengths[k], step = fmin(length, window) / LAGS;
        const bool same = lengths[k] == 1;
        const int last = same ? LAGS : (int)(fabs(window - length) / step) + 1;
        if (!same && o->s->windows.since_before)
            continue;
        if (lags_try(o, length, lag, step, same ? -LAGS : -1, last, best, err) < 0)
            return -1;
    }
    return 0;
}

static int refine(search *o, double step, place *best, pp_error *err)
{
    for (int i = 0; i < HALVINGS; i++, step *= 0.5)
        for (int side = -1; side <= 1; side += 2) {
            place from = *best;
            if (try_better(o, from.window, from.lag + side * step, best, err) < 0)
                return -1;
            if (o->s->windows.since_before)
                continue;
            if (try_better(o, from.window + side * step, from.lag, best, err) < 0 ||
                /* its beginning alone, and its end alone, are as likely off */
                try_better(o, from.window + side * step, from.lag - side * step, best, err) < 0)
                return -1;
        }
    return 0;
}

/** Standard error by the curvature along one of both. */
static int curvature(search *o, const place *best, double window, double lag, double *ret,
                     pp_error *err)
{
    place left = {best->window - window, best->lag - lag, 0};
    place right = {best->window + window, best->lag + lag, 0};
    if (place_try(o, &left, err) < 0 || place_try(o, &right, err) < 0)
        return -1;
    double bend = (left.value + right.value - 2 * best->value) * (double)o->rows->n;
    *ret = bend > 0.02 ? (window + lag) * sqrt(2 / bend) : window + lag;
    return 0;
}

static int find(search *o, size_t metric, pp_error *err)
{
    pp_reg_own_window *own = &o->s->own[metric];
    place same = {own->window, own->lag, 0}, best;
    if (place_try(o, &same, err) < 0)
        return -1;
    best = same;
    if (starts_try(o, own->window, own->lag, &best, err) < 0 ||
        refine(o, own->window / LAGS / 2, &best, err) < 0)
        return -1;
    if (same.value - best.value < CLEARLY)
        return 0;
    double delta = own->window / 50;
    *own = (pp_reg_own_window){best.window, best.lag, LEAST_SE, 0};
    if (curvature(o, &best, 0, delta, &own->lag_se, err) < 0)
        return -1;
    return o->s->windows.since_before ? 0 : curvature(o, &best, delta, 0, &own->window_se, err);
}

int pp_reg_own_window_find(pp_reg_solver *s, size_t metric, pp_error *err)
{
    const double window = s->own[metric].window;
    const double most = lengths[sizeof lengths / sizeof lengths[0] - 1] * window;
    size_t p = s->columns.n;
    pp_reg_rows u = {0};
    search o = {.s = s, .rows = &u};
    int rc = rows_within(s, metric, 2 * most, window, PP_REG_MAX_SEARCH_WINDOWS, &u, err);
    o.gram = malloc((p * p + 1) * sizeof(double));
    o.c = malloc((p + 1) * sizeof(double));
    if (rc == 0 && (!o.gram || !o.c))
        rc = pp_error_nomem(err);
    if (rc == 0 && u.n >= 2 * p + 10)
        rc = find(&o, metric, err);
    pp_reg_design_done(&o.d);
    free(o.gram);
    free(o.c);
    free(u.ends);
    return rc;
}
