/*
 * How well each scrape's values fit each collection that it may have read: the values themselves
 * decide where publication jitters around the moments of the scrapes.
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
#include "estimate/regression/match.h"
#include "estimate/regression/residuals.h"
#include "estimate/regression/scrapes.h"
#include "estimate/regression/time_line.h"
#include "estimate/regression/windows.h"

#define CHUNK 256           /* scrapes of a design at once */
#define CANDIDATE_WINDOWS 3 /* of a value that is of several, at most */
#define NOTHING 1.0         /* ns: of no window */
#define LEAST_SD 1e-3       /* scaled; better fits than this prove nothing more */
#define OF_NOTHING 1e3      /* misfit of what cannot be */

/** Metrics' values by least squares, and how windows are spread around them. */
typedef struct rough {
    double *b; /* [metric * p] */
    pp_reg_student *spread;
    double *mean;
} rough;

/** Whether two metrics have a value of the same windows. */
static bool is_alike(const double *y, const double *other, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(y[i]) != isnan(other[i]))
            return false;
    return true;
}

/** Least squares' matrix of the windows of which y has a value, factored. */
static int rough_gram(const pp_reg_design *d, const double *y, size_t n, double *gram,
                      pp_error *err)
{
    const size_t p = d->p;
    memset(gram, 0, p * p * sizeof *gram);
    for (size_t i = 0; i < n; i++) {
        if (!isnan(y[i]))
            pp_reg_add_square(gram, d->x + i * p, p);
    }
    for (size_t a = 0; a < p; a++)
        gram[a * p + a] += PP_REG_ROUGH_RIDGE;
    if (!pp_reg_chol(gram, p))
        return pp_error_set(err, PP_ERR_INTERNAL, "least squares lost its rank");
    return 0;
}

static int rough_metric(const pp_reg_design *d, const double *y, size_t n, const double *gram,
                        size_t metric, const rough *r, pp_error *err)
{
    size_t p = d->p, k = 0;
    PP_CLEANUP_FREE double *rest = malloc((n + 1) * sizeof *rest);
    double *b = r->b + metric * p, sum = 0;
    if (!rest)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++) {
        sum += isnan(y[i]) ? 0 : y[i];
        k += !isnan(y[i]);
    }
    r->mean[metric] = k ? sum / (double)k : 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(y[i]))
            pp_add_scaled(b, d->x + i * p, y[i] - r->mean[metric], p);
    pp_reg_chol_solve(gram, p, b);
    k = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(y[i]))
            rest[k++] = y[i] - r->mean[metric] - pp_dot(d->x + i * p, b, p);
    r->spread[metric] = pp_reg_student_of(rest, k, LEAST_SD);
    return 0;
}

/** All metrics, each beginning at a multiple of `cap` in y. */
static int rough_metrics(const pp_reg_design *d, const double *y, size_t cap, size_t n,
                         size_t n_metrics, const rough *r, pp_error *err)
{
    PP_CLEANUP_FREE double *gram = malloc((d->p * d->p + 1) * sizeof *gram);
    const double *of = NULL; /* whose windows the matrix has */
    if (!gram)
        return pp_error_nomem(err);
    for (size_t m = 0; m < n_metrics; m++) {
        const double *at = y + m * cap;
        if ((!of || !is_alike(at, of, n)) && rough_gram(d, at, n, gram, err) < 0)
            return -1;
        of = at;
        if (rough_metric(d, at, n, gram, m, r, err) < 0)
            return -1;
    }
    return 0;
}

/** Fits all metrics on the windows of w that were observed at this lag, the newest ones. */
static int rough_fit(const pp_reg_problem *q, const pp_reg_windows *w, double lag, const rough *r,
                     pp_error *err)
{
    size_t n = 0, cap = PP_REG_MAX_SEARCH_WINDOWS;
    PP_CLEANUP_FREE double *ends = malloc((2 * cap + 1) * sizeof *ends);
    PP_CLEANUP_FREE double *y = malloc((cap * w->n_metrics + 1) * sizeof *y);
    pp_reg_design d = {0};
    if (!ends || !y)
        return pp_error_nomem(err);
    double *lengths = ends + cap;
    for (size_t i = w->n; i-- > 0 && n < cap;) {
        double end = w->ends[i] - lag;
        if (!pp_reg_observed(q->timeline, end - w->lengths[i], end))
            continue;
        for (size_t m = 0; m < w->n_metrics; m++)
            y[m * cap + n] = w->values[m * w->n + i] / q->scale[m];
        lengths[n] = w->lengths[i];
        ends[n++] = w->ends[i];
    }
    const pp_reg_window_set windows = {.ends = ends, .lengths = lengths, .n = n};
    int rc = pp_reg_design_set(&d, q->timeline, q->columns, &windows, lag, false, err);
    if (rc == 0)
        rc = rough_metrics(&d, y, cap, n, w->n_metrics, r, err);
    pp_reg_design_done(&d);
    return rc;
}

static double misfit_of(const pp_reg_problem *q, const pp_reg_scrapes *s, size_t j, const double *x,
                        size_t p, const rough *r)
{
    double sum = 0;
    for (size_t m = 0; m < s->n_metrics; m++) {
        double y = s->values[m * s->n + j];
        if (isnan(y) || q->in->metrics[q->order[m]].job_only)
            continue;
        double e = y / q->scale[m] - r->mean[m] - pp_dot(x, r->b + m * p, p);
        sum += pp_reg_student_cost(r->spread[m], e);
    }
    return sum;
}

/** What scrape j may have read: where it ends, and how long that is. */
static void candidate(const pp_reg_scrapes *s, double phase, size_t j, size_t state, size_t before,
                      double *end, double *length)
{
    const double number = floor((s->stamps[j] - phase) / s->window) + (double)state - 1;
    *end = phase + number * s->window;
    *length = s->window;
    if (s->since_before && j > 0) {
        const double last = floor((s->stamps[j - 1] - phase) / s->window) + (double)before - 1;
        *length = fmax(fmin(number - last, CANDIDATE_WINDOWS) * s->window, NOTHING);
    }
}

/** Of scrape j the candidates of rows from `first` on: by what it read, and where that matters by
 * what the one before it read. */
static void misfit_fill(const pp_reg_problem *q, const pp_reg_scrapes *s, size_t j, size_t first,
                        const pp_reg_design *d, const double *lengths, const rough *r,
                        double *misfit)
{
    const size_t befores = s->since_before ? PP_REG_STATES : 1, p = d->p;
    for (size_t a = 0; a < PP_REG_STATES; a++)
        for (size_t b = 0; b < PP_REG_STATES; b++) {
            const size_t row = first + a * befores + (befores > 1 ? b : 0);
            misfit[j * PP_REG_PAIRS + a * PP_REG_STATES + b] =
                b > 0 && befores == 1    ? misfit[j * PP_REG_PAIRS + a * PP_REG_STATES]
                : lengths[row] > NOTHING ? misfit_of(q, s, j, d->x + row * p, p, r)
                                         : OF_NOTHING;
        }
}

/** Scrapes from .. to - 1; those whose candidates were not all observed stay undecided. */
static int misfit_chunk(const pp_reg_problem *q, const pp_reg_scrapes *s, size_t from, size_t to,
                        double lag, double phase, const rough *r, double *misfit, pp_error *err)
{
    double ends[CHUNK * PP_REG_PAIRS] = {0}, lengths[CHUNK * PP_REG_PAIRS] = {0};
    const size_t befores = s->since_before ? PP_REG_STATES : 1, each = PP_REG_STATES * befores;
    const double longest = (s->since_before ? CANDIDATE_WINDOWS : 1) * s->window;
    pp_reg_design d = {0};
    size_t n = 0;
    for (size_t j = from; j < to; j++)
        for (size_t a = 0; a < each; a++, n++)
            candidate(s, phase, j, a / befores, a % befores, &ends[n], &lengths[n]);
    const pp_reg_window_set windows = {.ends = ends, .lengths = lengths, .n = n};
    if (pp_reg_design_set(&d, q->timeline, q->columns, &windows, lag, false, err) < 0)
        return -1;
    for (size_t j = from; j < to; j++) {
        const size_t first = (j - from) * each;
        if (pp_reg_observed(q->timeline, ends[first] - lag - longest, ends[first + each - 1] - lag))
            misfit_fill(q, s, j, first, &d, lengths, r, misfit);
    }
    pp_reg_design_done(&d);
    return 0;
}

/** misfit for pp_reg_windows_init, by least squares over the windows w at this lag. */
static int misfit_find(const pp_reg_problem *q, const pp_reg_scrapes *s, const pp_reg_windows *w,
                       double lag, double phase, double *misfit, pp_error *err)
{
    size_t p = q->columns->n;
    PP_CLEANUP_FREE double *b = calloc(p * w->n_metrics + 1, sizeof *b);
    PP_CLEANUP_FREE pp_reg_student *spread = calloc(w->n_metrics + 1, sizeof *spread);
    PP_CLEANUP_FREE double *mean = calloc(w->n_metrics + 1, sizeof *mean);
    if (!b || !spread || !mean)
        return pp_error_nomem(err);
    rough r = {b, spread, mean};
    if (rough_fit(q, w, lag, &r, err) < 0)
        return -1;
    for (size_t j = 0; j < s->n; j += CHUNK) {
        size_t to = j + CHUNK < s->n ? j + CHUNK : s->n;
        if (misfit_chunk(q, s, j, to, lag, phase, &r, misfit, err) < 0)
            return -1;
    }
    return 0;
}

int pp_reg_match(const pp_reg_problem *q, const pp_reg_scrapes *s, double phase,
                 const pp_reg_lag_search *search, pp_reg_windows *w, pp_reg_lag *ret, pp_error *err)
{
    PP_CLEANUP_FREE double *misfit = calloc(s->n * PP_REG_PAIRS + 1, sizeof *misfit);
    if (!misfit)
        return pp_error_nomem(err);
    if (pp_reg_lag_coarse(q, w, search, ret, err) < 0)
        return -1;
    if (ret->known && misfit_find(q, s, w, ret->lag, phase, misfit, err) < 0)
        return -1;
    pp_reg_windows_done(w);
    return pp_reg_windows_init(w, s, phase, misfit, false, err);
}
