#include "estimate/regression/tests/peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/design.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/time_line.h"

#define SWEEPS 20000
#define SETTLED 1e-10 /* of a metric's range, by which a sweep still moves a value */

typedef struct problem {
    const pp_regression_input *in;
    const pp_regression_window *windows;
    size_t n;
    pp_reg_timeline timeline;
    pp_reg_columns columns;
    pp_reg_design design;
} problem;

static void problem_done(problem *p)
{
    pp_reg_timeline_done(&p->timeline);
    pp_reg_columns_done(&p->columns);
    pp_reg_design_done(&p->design);
}

static int problem_init(problem *p, pp_error *err)
{
    const int64_t base = p->n ? p->windows[0].stamp_ns : 0;
    if (pp_reg_timeline_init(&p->timeline, p->in, base, p->in->kernels_known, err) < 0 ||
        pp_reg_columns_init(&p->columns, &p->timeline, p->in, err) < 0)
        return -1;
    PP_CLEANUP_FREE double *ends = malloc((2 * p->n + 1) * sizeof *ends);
    if (!ends)
        return pp_error_nomem(err);
    double *lengths = ends + p->n;
    for (size_t i = 0; i < p->n; i++) {
        ends[i] = (double)(p->windows[i].end_ns - base);
        lengths[i] = (double)(p->windows[i].end_ns - p->windows[i].start_ns);
    }
    const pp_reg_window_set windows = {.ends = ends, .lengths = lengths, .n = p->n};
    return p->columns.n == 0
               ? 0
               : pp_reg_design_set(&p->design, &p->timeline, &p->columns, &windows, 0, false, err);
}

static int order_sample(const void *pa, const void *pb)
{
    const pp_regression_sample *a = pa, *b = pb;
    return (a->stamp_ns > b->stamp_ns) - (a->stamp_ns < b->stamp_ns);
}

/** What each window read of a metric; NaN where it has no sample or is not usable. */
static int values_of(const problem *p, size_t metric, double *y, pp_error *err)
{
    const pp_regression_metric *spec = &p->in->metrics[metric];
    PP_CLEANUP_FREE pp_regression_sample *v = malloc((spec->n_samples + 1) * sizeof *v);
    if (!v)
        return pp_error_nomem(err);
    if (spec->n_samples > 0)
        memcpy(v, spec->samples, spec->n_samples * sizeof *v);
    qsort(v, spec->n_samples, sizeof *v, order_sample);
    for (size_t i = 0; i < p->n; i++) {
        const pp_regression_sample key = {p->windows[i].stamp_ns, 0};
        const pp_regression_sample *hit =
            p->windows[i].usable ? bsearch(&key, v, spec->n_samples, sizeof *v, order_sample)
                                 : NULL;
        y[i] = hit && isfinite(hit->value) ? hit->value : PP_REG_NAN;
    }
    return 0;
}

/** Each window counts by the time that a column took in it. */
static void overlap_mean(const problem *p, const double *y, double *b)
{
    const size_t k = p->columns.n;
    for (size_t a = 0; a < k; a++) {
        double weight = 0, sum = 0;
        for (size_t i = 0; i < p->n; i++) {
            const double x = isnan(y[i]) ? 0 : p->design.x[i * k + a];
            weight += x;
            sum += x > 0 ? x * y[i] : 0;
        }
        b[a] = weight > 0 ? sum / weight : PP_REG_NAN;
    }
}

/** By coordinates in turn, until none moves: the sum of squares is convex. */
static void descend(const double *gram, const double *c, size_t k, double settled, double *b)
{
    double moved = PP_REG_INF;
    for (int sweep = 0; sweep < SWEEPS && moved > settled; sweep++) {
        moved = 0;
        for (size_t a = 0; a < k; a++) {
            double rest = c[a];
            for (size_t o = 0; o < k; o++)
                rest -= gram[a * k + o] * b[o];
            const double is = gram[a * k + a] > 0 ? fmax(b[a] + rest / gram[a * k + a], 0) : 0;
            moved = fmax(moved, fabs(is - b[a]));
            b[a] = is;
        }
    }
}

static int least_squares(const problem *p, const double *y, double *b, pp_error *err)
{
    const size_t k = p->columns.n;
    PP_CLEANUP_FREE double *gram = calloc(k * k + 1, sizeof *gram);
    PP_CLEANUP_FREE double *c = calloc(k + 1, sizeof *c);
    double most = 0;
    if (!gram || !c)
        return pp_error_nomem(err);
    for (size_t i = 0; i < p->n; i++) {
        const double *x = p->design.x + i * k;
        most = isnan(y[i]) ? most : fmax(most, fabs(y[i]));
        for (size_t a = 0; a < k && !isnan(y[i]); a++) {
            c[a] += x[a] * y[i];
            for (size_t o = 0; x[a] > 0 && o < k; o++)
                gram[a * k + o] += x[a] * x[o];
        }
    }
    memset(b, 0, k * sizeof *b);
    descend(gram, c, k, SETTLED * most, b);
    for (size_t a = 0; a < k; a++)
        b[a] = gram[a * k + a] > 0 ? b[a] : PP_REG_NAN;
    return 0;
}

/** From columns to rows. */
static void rows_set(const problem *p, size_t metric, const double *b, double *to)
{
    for (size_t row = 0; row < p->in->n_items + 2; row++) {
        const uint32_t column = p->columns.n > 0 ? p->columns.column[row] : UINT32_MAX;
        /* problem_init() has made it */
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
        to[p->timeline.original[row] * p->in->n_metrics + metric] =
            column == UINT32_MAX ? PP_REG_NAN : b[column];
    }
}

static int metric_solve(const problem *p, size_t metric, pp_peers *ret, pp_error *err)
{
    PP_CLEANUP_FREE double *y = calloc(p->n + 1, sizeof *y);
    PP_CLEANUP_FREE double *b = calloc(p->columns.n + 1, sizeof *b);
    if (!y || !b)
        return pp_error_nomem(err);
    if (values_of(p, metric, y, err) < 0)
        return -1;
    if (p->columns.n > 0)
        overlap_mean(p, y, b);
    rows_set(p, metric, b, ret->overlap);
    if (p->columns.n > 0 && least_squares(p, y, b, err) < 0)
        return -1;
    rows_set(p, metric, b, ret->squares);
    return 0;
}

int pp_peers_solve(const pp_regression_input *in, const pp_regression_window *windows, size_t n,
                   pp_peers *ret, pp_error *err)
{
    problem p = {.in = in, .windows = windows, .n = n};
    const size_t cells = (in->n_items + 2) * in->n_metrics + 1;
    *ret = (pp_peers){.n_rows = in->n_items + 2, .n_metrics = in->n_metrics};
    ret->overlap = malloc(cells * sizeof *ret->overlap);
    ret->squares = malloc(cells * sizeof *ret->squares);
    int rc = ret->overlap && ret->squares ? problem_init(&p, err) : pp_error_nomem(err);
    for (size_t m = 0; m < in->n_metrics && rc == 0; m++)
        rc = metric_solve(&p, m, ret, err);
    problem_done(&p);
    if (rc < 0)
        pp_peers_done(ret);
    return rc;
}

void pp_peers_done(pp_peers *p)
{
    free(p->overlap);
    free(p->squares);
    *p = (pp_peers){0};
}
