/* The plain overlap-weighted mean: what attribution by timestamp amounts to at its best. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/design.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/regression.h"
#include "estimate/regression/tests/sim.h"
#include "estimate/regression/time_line.h"

typedef struct sums {
    const pp_regression_input *in;
    const pp_regression_result *solved;
    pp_reg_timeline timeline;
    pp_reg_columns columns;
    pp_reg_design design;
    double *weight;
    double *value;
} sums;

static int order_sample(const void *pa, const void *pb)
{
    const pp_regression_sample *a = pa, *b = pb;
    return (a->stamp_ns > b->stamp_ns) - (a->stamp_ns < b->stamp_ns);
}

/** Adds one metric: each window counts by the time that a column took in it. */
static int metric_add(sums *s, size_t metric, pp_error *err)
{
    const pp_regression_metric *spec = &s->in->metrics[metric];
    const pp_regression_result *r = s->solved;
    PP_CLEANUP_FREE pp_regression_sample *v = malloc((spec->n_samples + 1) * sizeof *v);
    if (!v)
        return pp_error_nomem(err);
    if (spec->n_samples > 0)
        memcpy(v, spec->samples, spec->n_samples * sizeof *v);
    qsort(v, spec->n_samples, sizeof *v, order_sample);
    size_t p = s->columns.n, n = r->n_metrics;
    for (size_t i = 0; i < r->n_windows; i++) {
        pp_regression_sample key = {r->windows[i].stamp_ns, 0};
        const pp_regression_sample *hit =
            bsearch(&key, v, spec->n_samples, sizeof *v, order_sample);
        if (!r->windows[i].usable || !hit || !isfinite(hit->value))
            continue;
        for (size_t k = 0; k < p; k++) {
            s->weight[k * n + metric] += s->design.x[i * p + k];
            s->value[k * n + metric] += s->design.x[i * p + k] * hit->value;
        }
    }
    return 0;
}

static int sums_run(sums *s, pp_error *err)
{
    const pp_regression_result *r = s->solved;
    int64_t base = r->n_windows ? r->windows[0].stamp_ns : 0;
    if (pp_reg_timeline_init(&s->timeline, s->in, base, false, err) < 0 ||
        pp_reg_columns_init(&s->columns, &s->timeline, s->in, err) < 0)
        return -1;
    PP_CLEANUP_FREE double *ends = malloc((r->n_windows + 1) * sizeof *ends);
    s->weight = calloc(s->columns.n * r->n_metrics + 1, sizeof(double));
    s->value = calloc(s->columns.n * r->n_metrics + 1, sizeof(double));
    if (!ends || !s->weight || !s->value)
        return pp_error_nomem(err);
    for (size_t i = 0; i < r->n_windows; i++)
        ends[i] = (double)(r->windows[i].end_ns - base);
    const pp_reg_window_set windows = {
        .ends = ends, .n = r->n_windows, .window = (double)r->window_ns};
    if (s->columns.n > 0 &&
        pp_reg_design_set(&s->design, &s->timeline, &s->columns, &windows, 0, false, err) < 0)
        return -1;
    for (size_t m = 0; m < r->n_metrics; m++)
        if (s->columns.n > 0 && metric_add(s, m, err) < 0)
            return -1;
    return 0;
}

int sim_overlap_mean(const pp_regression_input *in, const pp_regression_result *solved,
                     double **ret, pp_error *err)
{
    sums s = {.in = in, .solved = solved};
    size_t n = solved->n_metrics;
    double *out = malloc((solved->n_rows * n + 1) * sizeof *out);
    int rc = out ? sums_run(&s, err) : pp_error_nomem(err);
    for (size_t row = 0; row < solved->n_rows && rc == 0; row++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): sums_run() has made it */
        uint32_t column = s.columns.column[row];
        for (size_t m = 0; m < n; m++) {
            double w = column == UINT32_MAX ? 0 : s.weight[column * n + m];
            out[s.timeline.original[row] * n + m] =
                w > 0 ? s.value[column * n + m] / w : PP_REG_NAN;
        }
    }
    if (rc == 0)
        *ret = out;
    else
        free(out);
    free(s.weight);
    free(s.value);
    pp_reg_timeline_done(&s.timeline);
    pp_reg_columns_done(&s.columns);
    pp_reg_design_done(&s.design);
    return rc;
}
