/* Attribution: checks the input and runs the parts in order. */
#include "estimate/regression/regression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/clocks.h"
#include "estimate/regression/design.h"
#include "estimate/regression/exporter_restarts.h"
#include "estimate/regression/lag.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/model.h"
#include "estimate/regression/own_window.h"
#include "estimate/regression/parts.h"
#include "estimate/regression/period.h"
#include "estimate/regression/prediction.h"
#include "estimate/regression/realise.h"
#include "estimate/regression/result.h"
#include "estimate/regression/scrapes.h"
#include "estimate/regression/shift.h"
#include "estimate/regression/solver.h"
#include "estimate/regression/time_line.h"
#include "estimate/regression/window_search.h"
#include "estimate/regression/windows.h"

#define MAX_HINT_NS 1000000000000000LL /* eleven days */
#define LEAST_MAX_LAG_NS 1500000000LL

static int too_large(pp_error *err, const char *field, size_t n, size_t max)
{
    pp_error_field(err, field, "%zu are given, at most %zu are allowed", n, max);
    if (err)
        err->code = PP_ERR_TOO_LARGE;
    return -1;
}

static int check_counts(const pp_regression_input *in, pp_error *err)
{
    const struct {
        const char *field;
        const void *data;
        size_t n, max;
    } lists[] = {
        {"items", in->items, in->n_items, PP_REGRESSION_MAX_ITEMS},
        {"intervals", in->intervals, in->n_intervals, PP_REGRESSION_MAX_INTERVALS},
        {"cells", in->cells, in->n_cells, PP_REGRESSION_MAX_CELLS},
        {"steps", in->steps, in->n_steps, PP_REGRESSION_MAX_STEPS},
        {"observed", in->observed, in->n_observed, PP_REGRESSION_MAX_OBSERVED},
        {"metrics", in->metrics, in->n_metrics, PP_REGRESSION_MAX_METRICS},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i].n > lists[i].max)
            return too_large(err, lists[i].field, lists[i].n, lists[i].max);
        if (lists[i].n > 0 && !lists[i].data)
            return pp_error_field(err, lists[i].field, "is missing");
    }
    return 0;
}

static int check_items(const pp_regression_input *in, pp_error *err)
{
    for (size_t i = 0; i < in->n_items; i++) {
        const pp_regression_item *v = &in->items[i];
        if (!v->layer)
            return pp_error_field(err, "items", "item %zu has no layer", i);
        if (strnlen(v->layer, PP_REGRESSION_MAX_NAME + 1) > PP_REGRESSION_MAX_NAME)
            return too_large(err, "items", strlen(v->layer), PP_REGRESSION_MAX_NAME);
        if (!pp_phase_of_item((unsigned)v->phase))
            return pp_error_field(err, "items", "item %zu has no phase that can be timed", i);
    }
    return 0;
}

static int check_metrics(const pp_regression_input *in, pp_error *err)
{
    for (size_t i = 0; i < in->n_metrics; i++) {
        const pp_regression_metric *m = &in->metrics[i];
        if (!m->name)
            return pp_error_field(err, "metrics", "metric %zu has no name", i);
        for (size_t j = 0; j < i; j++)
            if (strcmp(m->name, in->metrics[j].name) == 0)
                return pp_error_field(err, "metrics", "\"%.100s\" is given twice", m->name);
        bool open = isnan(m->min) && isnan(m->max);
        if (!open && (!isfinite(m->min) || !isfinite(m->max) || !(m->min < m->max)))
            return pp_error_field(err, "metrics", "\"%.100s\" has no valid range", m->name);
        if (!isfinite(m->max_standard_error) || m->max_standard_error < 0)
            return pp_error_field(err, "metrics", "\"%.100s\" has no valid limit", m->name);
        if (m->n_samples > PP_REGRESSION_MAX_SAMPLES)
            return too_large(err, "samples", m->n_samples, PP_REGRESSION_MAX_SAMPLES);
        if (m->n_samples > 0 && !m->samples)
            return pp_error_field(err, "samples", "is missing");
    }
    return 0;
}

static int check_options(const pp_regression_options *o, pp_error *err)
{
    if (o->window_ns < 0 || o->window_ns > MAX_HINT_NS)
        return pp_error_field(err, "options.window", "is out of range");
    if (o->scrape_ns < 0 || o->scrape_ns > MAX_HINT_NS)
        return pp_error_field(err, "options.scrape", "is out of range");
    if (o->max_lag_ns < 0 || o->max_lag_ns > MAX_HINT_NS)
        return pp_error_field(err, "options.max_lag", "is out of range");
    if (!isfinite(o->max_standard_error) || o->max_standard_error < 0)
        return pp_error_field(err, "options.max_standard_error", "is out of range");
    if (o->without >= PP_REGRESSION_PARTS)
        return pp_error_field(err, "options.without", "names a part that there is not");
    if (!(o->max_group_share >= 0 && o->max_group_share <= 1))
        return pp_error_field(err, "options.max_group_share", "is out of range");
    return 0;
}

static void solver_done(pp_reg_solver *s)
{
    pp_reg_timeline_done(&s->timeline);
    pp_reg_timeline_done(&s->elapsed);
    pp_reg_columns_done(&s->columns);
    pp_reg_durations_done(&s->durations);
    pp_reg_scrapes_done(&s->scrapes);
    pp_reg_windows_done(&s->windows);
    for (size_t m = 0; m < s->n_fits; m++)
        pp_reg_fit_done(&s->fits[m]);
    free(s->fits);
    free(s->own);
    free(s->order);
    free(s->scale);
    pp_reg_clocks_done(s);
    pp_reg_work_done(&s->work);
    pp_reg_design_done(&s->design);
    pp_regression_result_free(s->ret);
}

static int metrics_order(pp_reg_solver *s, pp_error *err)
{
    size_t n = s->in->n_metrics;
    s->order = calloc(n + 1, sizeof *s->order);
    s->scale = calloc(n + 1, sizeof *s->scale);
    if (!s->order || !s->scale)
        return pp_error_nomem(err);
    for (size_t m = 0; m < n; m++) {
        size_t k = m;
        for (; k > 0 && strcmp(s->in->metrics[s->order[k - 1]].name, s->in->metrics[m].name) > 0;
             k--)
            s->order[k] = s->order[k - 1];
        s->order[k] = (uint32_t)m;
    }
    return 0;
}

/** Times are kept as doubles from here: the earliest observed time, else the earliest sample. */
static int64_t base_find(const pp_regression_input *in)
{
    int64_t base = INT64_MAX;
    for (size_t i = 0; i < in->n_observed; i++)
        if (in->observed[i].start_ns >= 0 && in->observed[i].start_ns < base)
            base = in->observed[i].start_ns;
    for (size_t m = 0; base == INT64_MAX && m < in->n_metrics; m++)
        for (size_t i = 0; i < in->metrics[m].n_samples; i++)
            if (in->metrics[m].samples[i].stamp_ns >= 0 &&
                in->metrics[m].samples[i].stamp_ns < base)
                base = in->metrics[m].samples[i].stamp_ns;
    return base == INT64_MAX ? 0 : base;
}

static void scales_find(pp_reg_solver *s)
{
    for (size_t m = 0; m < s->in->n_metrics; m++) {
        const pp_regression_metric *spec = &s->in->metrics[s->order[m]];
        double most = 0;
        for (size_t j = 0; j < s->scrapes.n; j++) {
            double v = fabs(s->scrapes.values[m * s->scrapes.n + j]);
            most = v > most ? v : most;
        }
        s->scale[m] = !isnan(spec->min) ? spec->max - spec->min : most > 0 ? most : 1;
    }
}

static int fits_new(pp_reg_solver *s, pp_error *err)
{
    s->fits = calloc(s->in->n_metrics + 1, sizeof *s->fits);
    s->own = calloc(s->in->n_metrics + 1, sizeof *s->own);
    if (!s->fits || !s->own)
        return pp_error_nomem(err);
    for (size_t m = 0; m < s->in->n_metrics; m++, s->n_fits++)
        if (pp_reg_fit_init(&s->fits[m], s->columns.n, err) < 0)
            return -1;
    return 0;
}

int64_t pp_regression_max_lag(int64_t window_ns)
{
    int64_t windows = (int64_t)(PP_REG_USUAL_WINDOWS * (double)window_ns);
    return windows > LEAST_MAX_LAG_NS ? windows : LEAST_MAX_LAG_NS;
}

static int prepare(pp_reg_solver *s, pp_error *err)
{
    int64_t base = base_find(s->in);
    const bool kernels = s->in->kernels_known;
    if (metrics_order(s, err) < 0 ||
        pp_reg_timeline_init(&s->timeline, s->in, base, kernels, err) < 0 ||
        (kernels && pp_reg_timeline_init(&s->elapsed, s->in, base, false, err) < 0) ||
        pp_reg_columns_init(&s->columns, &s->timeline, s->in, err) < 0 ||
        pp_reg_durations_init(&s->durations, &s->timeline, &s->columns, err) < 0 ||
        pp_reg_scrapes_init(&s->scrapes, s->in, s->order, base, err) < 0 || fits_new(s, err) < 0)
        return -1;
    scales_find(s);
    double max_lag = (double)s->in->options.max_lag_ns;
    if (max_lag <= 0)
        max_lag = (double)pp_regression_max_lag((int64_t)s->scrapes.window);
    s->problem = (pp_reg_problem){s->in, s->order, &s->timeline, &s->columns, s->scale, max_lag};
    return 0;
}

static int windows_find(pp_reg_solver *s, pp_error *err)
{
    if (s->scrapes.window <= 0)
        return 0;
    if (s->columns.n == 0)
        return pp_reg_windows_make(s, err);
    if ((pp_reg_has(s->in, PP_REGRESSION_PERIOD) && pp_reg_period_find(s, err) < 0) ||
        (pp_reg_has(s->in, PP_REGRESSION_RESTARTS) && pp_reg_parts_keep(s, err) < 0) ||
        pp_reg_windows_make(s, err) < 0 ||
        pp_reg_lag_find(&s->problem, &s->windows, s->fits, &s->lag, err) < 0)
        return -1;
    s->lag.lag += (double)s->in->options.lag_error_ns;
    return 0;
}

static int design_at(pp_reg_solver *s, const pp_reg_rows *u, size_t skip,
                     const pp_reg_own_window *at, pp_error *err)
{
    const pp_reg_window_set windows =
        pp_reg_windows_of(s, u->ends + skip, u->lengths + skip, u->n - skip, at->window);
    return pp_reg_design_set(&s->design, &s->timeline, &s->columns, &windows, at->lag, true, err);
}

/** cov += what the windows' place or length is uncertain by: how the estimates move with it, on
 * either side of what was found. */
static int add_uncertainty(pp_reg_solver *s, const pp_reg_rows *u, pp_reg_fit *f,
                           const pp_reg_own_window side[2], double share, pp_error *err)
{
    pp_reg_fit fit[2] = {{0}, {0}};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = pp_reg_fit_init(&fit[i], f->p, err);
        if (rc == 0) {
            pp_reg_fit_copy(&fit[i], f);
            rc = design_at(s, u, 0, &side[i], err);
        }
        if (rc == 0 && f->common > 0)
            rc = pp_reg_design_common(&s->design, f->b, err);
        if (rc == 0)
            rc = pp_reg_estimate(&s->work, &s->design, u->y, &fit[i], err);
    }
    for (size_t i = 0; i < f->p && rc == 0; i++)
        for (size_t j = 0; j < f->p; j++) {
            double a = 0.5 * share * (fit[1].b[i] - fit[0].b[i]);
            double b = 0.5 * share * (fit[1].b[j] - fit[0].b[j]);
            f->cov[i * f->p + j] += a * b;
        }
    pp_reg_fit_done(&fit[0]);
    pp_reg_fit_done(&fit[1]);
    return rc;
}

static int window_uncertainty(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_reg_fit *f,
                              pp_error *err)
{
    const pp_reg_own_window at = s->own[metric];
    const double lag = fmax(at.lag_se, 5e4), length = fmax(at.window_se, 5e4);
    pp_reg_own_window side[2] = {at, at};
    side[0].lag -= lag;
    side[1].lag += lag;
    if (add_uncertainty(s, u, f, side, at.lag_se / lag, err) < 0)
        return -1;
    if (at.window_se <= 0)
        return 0;
    side[0] = side[1] = at;
    side[0].window -= length;
    side[1].window += length;
    return add_uncertainty(s, u, f, side, at.window_se / length, err);
}

/** Few windows: the noise itself is uncertain, as in Student's t. */
static void few_windows(pp_reg_fit *f, size_t n)
{
    double free_windows = (double)n - f->effective;
    double widen = free_windows > 4 ? free_windows / (free_windows - 2) : 3;
    for (size_t i = 0; i < f->p * f->p; i++)
        f->cov[i] *= widen;
}

/** Variances at the metric's windows: anew where they are not those of the lag's search. */
static int metric_variances(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err)
{
    pp_reg_fit *f = &s->fits[metric];
    size_t skip = u->n > PP_REG_MAX_SEARCH_WINDOWS ? u->n - PP_REG_MAX_SEARCH_WINDOWS : 0;
    pp_reg_fit_prior(&s->problem, metric, u->mean, f);
    f->noise2 = f->common = 0;
    if (design_at(s, u, skip, &s->own[metric], err) < 0)
        return -1;
    return pp_reg_variances(&s->work, &s->design, u->y + skip, f, err);
}

/** What is left of windows, after pp_reg_estimate. */
static int rest_report(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err)
{
    pp_reg_report_fit(s, metric, u);
    return pp_reg_shift_find(s, metric, u, err);
}

static int metric_fit(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err)
{
    pp_reg_fit *f = &s->fits[metric];
    /* Metrics that the lag's search left out (constant, sparse) have no variances yet. */
    if ((f->noise2 <= 0 || s->own[metric].window_se > 0 || s->in->options.lag_error_ns != 0) &&
        metric_variances(s, metric, u, err) < 0)
        return -1;
    if (design_at(s, u, 0, &s->own[metric], err) < 0 ||
        pp_reg_estimate(&s->work, &s->design, u->y, f, err) < 0 ||
        rest_report(s, metric, u, err) < 0)
        return -1;
    if (!pp_reg_is_correlated(s, metric) || !pp_reg_has(s->in, PP_REGRESSION_COMMON))
        return 0;
    if (pp_reg_find_common(&s->work, &s->design, u->y, f, err) < 0)
        return -1;
    return rest_report(s, metric, u, err);
}

/** Fits at the exporter's windows; where these do not explain the values, at the best others. */
static int metric_fit_best(pp_reg_solver *s, size_t metric, pp_reg_rows *u, pp_error *err)
{
    pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    const pp_reg_own_window exporters = s->own[metric];
    if (metric_fit(s, metric, u, err) < 0)
        return -1;
    if (!pp_reg_is_suspect(s, metric) || isnan(s->in->metrics[s->order[metric]].min))
        return 0;
    if (pp_reg_own_window_find(s, metric, err) < 0)
        return -1;
    if (s->own[metric].window_se <= 0)
        return 0;
    if (!pp_reg_has(s->in, PP_REGRESSION_OWN_WINDOWS)) {
        s->own[metric] = exporters;
        r->elsewhere = true;
        return 0;
    }
    free(u->ends);
    *u = (pp_reg_rows){0};
    if (pp_reg_rows_take(s, metric, u, err) < 0)
        return -1;
    r->window_ns = llround(s->own[metric].window);
    return metric_fit(s, metric, u, err);
}

static int metric_values(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err)
{
    pp_reg_fit *f = &s->fits[metric];
    PP_CLEANUP_FREE double *scores = NULL;
    if (pp_reg_clocks_score(s, metric, u, &scores, err) < 0 ||
        pp_reg_realise(&s->work, &s->design, &s->durations, f,
                       pp_reg_has(s->in, PP_REGRESSION_SANDWICH), scores, s->clocks.n,
                       pp_reg_clocks_move(s, metric), err) < 0)
        return -1;
    if (!pp_reg_has(s->in, PP_REGRESSION_REALISED))
        memcpy(f->value, f->b, f->p * sizeof *f->value);
    if ((pp_reg_has(s->in, PP_REGRESSION_LAG_ERROR) &&
         window_uncertainty(s, metric, u, f, err) < 0) ||
        design_at(s, u, 0, &s->own[metric], err) < 0)
        return -1;
    if (pp_reg_has(s->in, PP_REGRESSION_FEW_WINDOWS))
        few_windows(f, u->n);
    if (pp_reg_predict(s, metric, u, err) < 0)
        return -1;
    pp_reg_report_doubt(s, metric);
    return pp_reg_has(s->in, PP_REGRESSION_JOB) ? pp_reg_adjust_job(s, metric, u, err) : 0;
}

/** Whether a metric never varied: then it tells neither the lag nor a layer. */
static bool is_constant(const pp_reg_solver *s, size_t metric)
{
    const double *v = s->scrapes.values + metric * s->scrapes.n;
    double least = PP_REG_INF, most = -PP_REG_INF;
    size_t n = 0;
    for (size_t i = 0; i < s->scrapes.n; i++) {
        if (isnan(v[i]))
            continue;
        least = fmin(least, v[i]);
        most = fmax(most, v[i]);
        n++;
    }
    return n > 1 && most - least < PP_REG_CONSTANT_SD * s->scale[metric];
}

static int metric_report(pp_reg_solver *s, size_t metric, pp_error *err)
{
    pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    r->dropped_samples = s->scrapes.dropped[metric];
    r->constant = is_constant(s, metric);
    size_t distinct = 0;
    for (size_t i = 0; i < s->windows.n; i++)
        distinct += !isnan(s->windows.values[metric * s->windows.n + i]);
    r->repeated_samples = s->scrapes.kept[metric] - distinct;
    if (pp_reg_report_job(s, metric, err) < 0)
        return -1;
    if (!s->lag.known)
        return 0;
    s->own[metric] = (pp_reg_own_window){s->windows.window, s->lag.lag, 0, s->lag.se};
    r->window_ns = llround(s->windows.window);
    pp_reg_rows u = {0};
    int rc = pp_reg_rows_take(s, metric, &u, err);
    r->fitted_windows = u.n;
    if (rc == 0 && u.n >= 16)
        rc = metric_fit_best(s, metric, &u, err);
    r->fitted_windows = u.n;
    r->told = u.n >= 16 && (double)u.n >= 2 * s->fits[metric].effective + 10;
    if (rc == 0 && r->told)
        rc = metric_values(s, metric, &u, err);
    free(u.ends);
    return rc;
}

/** Estimates of all metrics, once it is known how far clocks differ. */
static int estimates_report(pp_reg_solver *s, pp_error *err)
{
    if (pp_reg_clocks_find(s, err) < 0)
        return -1;
    for (size_t m = 0; m < s->in->n_metrics; m++) {
        if (!s->ret->fits[s->order[m]].told)
            continue;
        if (pp_reg_clocks_widen(s, m))
            pp_reg_report_doubt(s, m);
        if (pp_reg_report_estimates(s, m, err) < 0)
            return -1;
    }
    return 0;
}

static int solve(pp_reg_solver *s, pp_error *err)
{
    s->ret = pp_reg_result_new(s->in);
    if (!s->ret)
        return pp_error_nomem(err);
    if (prepare(s, err) < 0 || windows_find(s, err) < 0 || pp_reg_report_windows(s, err) < 0)
        return -1;
    pp_reg_report_rows(s);
    for (size_t m = 0; m < s->in->n_metrics; m++)
        if (metric_report(s, m, err) < 0)
            return -1;
    if (estimates_report(s, err) < 0)
        return -1;
    if (pp_reg_has(s->in, PP_REGRESSION_DOUBTS))
        pp_reg_withhold(s->ret);
    return 0;
}

int pp_regression_intervals(const pp_regression_metric *metrics, size_t n,
                            pp_regression_options *options, pp_error *err)
{
    const pp_regression_input in = {.metrics = metrics, .n_metrics = n, .options = *options};
    pp_reg_solver s = {.in = &in};
    if (check_counts(&in, err) < 0 || check_metrics(&in, err) < 0 ||
        check_options(&in.options, err) < 0)
        return -1;
    int rc = metrics_order(&s, err);
    if (rc == 0)
        rc = pp_reg_scrapes_init(&s.scrapes, &in, s.order, base_find(&in), err);
    if (rc == 0) {
        options->window_ns = llround(s.scrapes.window);
        options->scrape_ns = llround(s.scrapes.scrape);
    }
    solver_done(&s);
    return rc;
}

int pp_regression_solve(const pp_regression_input *in, pp_regression_result **ret, pp_error *err)
{
    if (check_counts(in, err) < 0 || check_items(in, err) < 0 || check_metrics(in, err) < 0 ||
        check_options(&in->options, err) < 0)
        return -1;
    pp_reg_solver s = {.in = in};
    int rc = solve(&s, err);
    if (rc == 0)
        *ret = PP_TAKE(s.ret);
    else
        pp_error_prefix(err, "attribution");
    solver_done(&s);
    return rc;
}
