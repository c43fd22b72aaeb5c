/* Attribution: checks the input and runs the parts in order. */
#include "controller/attribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "controller/attribution_internal.h"

#define MAX_HINT_NS 1000000000000000LL /* eleven days */
#define LEAST_MAX_LAG_NS 1500000000LL
/* Where in the feasible arc collections are published, when scrapes alone do not tell. */
#define PHASE_STARTS 12
#define PHASE_ROUNDS 3
#define MATCH_ROUNDS 2

static int too_large(pp_error *err, const char *field, size_t n, size_t max)
{
    pp_error_field(err, field, "%zu are given, at most %zu are allowed", n, max);
    if (err)
        err->code = PP_ERR_TOO_LARGE;
    return -1;
}

static int check_counts(const pp_attribution_input *in, pp_error *err)
{
    const struct {
        const char *field;
        const void *data;
        size_t n, max;
    } lists[] = {
        {"items", in->items, in->n_items, PP_ATTRIBUTION_MAX_ITEMS},
        {"intervals", in->intervals, in->n_intervals, PP_ATTRIBUTION_MAX_INTERVALS},
        {"cells", in->cells, in->n_cells, PP_ATTRIBUTION_MAX_CELLS},
        {"steps", in->steps, in->n_steps, PP_ATTRIBUTION_MAX_STEPS},
        {"stretches", in->stretches, in->n_stretches, PP_ATTRIBUTION_MAX_STRETCHES},
        {"metrics", in->metrics, in->n_metrics, PP_ATTRIBUTION_MAX_METRICS},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i].n > lists[i].max)
            return too_large(err, lists[i].field, lists[i].n, lists[i].max);
        if (lists[i].n > 0 && !lists[i].data)
            return pp_error_field(err, lists[i].field, "is missing");
    }
    return 0;
}

static int check_items(const pp_attribution_input *in, pp_error *err)
{
    for (size_t i = 0; i < in->n_items; i++) {
        const pp_attribution_item *v = &in->items[i];
        if (!v->layer)
            return pp_error_field(err, "items", "item %zu has no layer", i);
        if (strnlen(v->layer, PP_ATTRIBUTION_MAX_NAME + 1) > PP_ATTRIBUTION_MAX_NAME)
            return too_large(err, "items", strlen(v->layer), PP_ATTRIBUTION_MAX_NAME);
        if ((unsigned)v->phase >= PP_PHASE_OTHER)
            return pp_error_field(err, "items", "item %zu has no phase that can be timed", i);
    }
    return 0;
}

static int check_metrics(const pp_attribution_input *in, pp_error *err)
{
    for (size_t i = 0; i < in->n_metrics; i++) {
        const pp_attribution_metric *m = &in->metrics[i];
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
        if (m->n_samples > PP_ATTRIBUTION_MAX_SAMPLES)
            return too_large(err, "samples", m->n_samples, PP_ATTRIBUTION_MAX_SAMPLES);
        if (m->n_samples > 0 && !m->samples)
            return pp_error_field(err, "samples", "is missing");
    }
    return 0;
}

static int check_options(const pp_attribution_options *o, pp_error *err)
{
    if (o->window_ns < 0 || o->window_ns > MAX_HINT_NS)
        return pp_error_field(err, "options.window", "is out of range");
    if (o->scrape_ns < 0 || o->scrape_ns > MAX_HINT_NS)
        return pp_error_field(err, "options.scrape", "is out of range");
    if (o->max_lag_ns < 0 || o->max_lag_ns > MAX_HINT_NS)
        return pp_error_field(err, "options.max_lag", "is out of range");
    if (!isfinite(o->max_standard_error) || o->max_standard_error < 0)
        return pp_error_field(err, "options.max_standard_error", "is out of range");
    if (!(o->max_group_share >= 0 && o->max_group_share <= 1))
        return pp_error_field(err, "options.max_group_share", "is out of range");
    return 0;
}

static void solver_done(pp_attr_solver *s)
{
    pp_attr_timeline_done(&s->timeline);
    pp_attr_columns_done(&s->columns);
    pp_attr_scrapes_done(&s->scrapes);
    pp_attr_windows_done(&s->windows);
    for (size_t m = 0; m < s->n_fits; m++)
        pp_attr_fit_done(&s->fits[m]);
    free(s->fits);
    free(s->order);
    free(s->scale);
    pp_attr_work_done(&s->work);
    pp_attr_design_done(&s->design);
    pp_attribution_result_free(s->ret);
}

static int metrics_order(pp_attr_solver *s, pp_error *err)
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

/** Times are kept as doubles from here: the earliest stretch, else the earliest sample. */
static int64_t base_find(const pp_attribution_input *in)
{
    int64_t base = INT64_MAX;
    for (size_t i = 0; i < in->n_stretches; i++)
        if (in->stretches[i].start_ns >= 0 && in->stretches[i].start_ns < base)
            base = in->stretches[i].start_ns;
    for (size_t m = 0; base == INT64_MAX && m < in->n_metrics; m++)
        for (size_t i = 0; i < in->metrics[m].n_samples; i++)
            if (in->metrics[m].samples[i].stamp_ns >= 0 &&
                in->metrics[m].samples[i].stamp_ns < base)
                base = in->metrics[m].samples[i].stamp_ns;
    return base == INT64_MAX ? 0 : base;
}

static void scales_find(pp_attr_solver *s)
{
    for (size_t m = 0; m < s->in->n_metrics; m++) {
        const pp_attribution_metric *spec = &s->in->metrics[s->order[m]];
        double most = 0;
        for (size_t j = 0; j < s->scrapes.n; j++) {
            double v = fabs(s->scrapes.values[m * s->scrapes.n + j]);
            most = v > most ? v : most;
        }
        s->scale[m] = !isnan(spec->min) ? spec->max - spec->min : most > 0 ? most : 1;
    }
}

static int fits_new(pp_attr_solver *s, pp_error *err)
{
    s->fits = calloc(s->in->n_metrics + 1, sizeof *s->fits);
    if (!s->fits)
        return pp_error_nomem(err);
    for (size_t m = 0; m < s->in->n_metrics; m++, s->n_fits++)
        if (pp_attr_fit_init(&s->fits[m], s->columns.n, err) < 0)
            return -1;
    return 0;
}

int64_t pp_attribution_max_lag(int64_t window_ns)
{
    int64_t windows = (int64_t)(PP_ATTR_USUAL_WINDOWS * (double)window_ns);
    return windows > LEAST_MAX_LAG_NS ? windows : LEAST_MAX_LAG_NS;
}

static int prepare(pp_attr_solver *s, pp_error *err)
{
    int64_t base = base_find(s->in);
    if (metrics_order(s, err) < 0 || pp_attr_timeline_init(&s->timeline, s->in, base, err) < 0 ||
        pp_attr_columns_init(&s->columns, &s->timeline, s->in, err) < 0 ||
        pp_attr_scrapes_init(&s->scrapes, s->in, s->order, base, err) < 0 || fits_new(s, err) < 0)
        return -1;
    scales_find(s);
    double max_lag = (double)s->in->options.max_lag_ns;
    if (max_lag <= 0)
        max_lag = (double)pp_attribution_max_lag((int64_t)s->scrapes.window);
    s->problem = (pp_attr_problem){s->in, s->order, &s->timeline, &s->columns, s->scale, max_lag};
    return 0;
}

/** Tries one publication phase; keeps it when the coarse fit is better than *best. */
static int phase_try(pp_attr_solver *s, double phase, double *best, pp_error *err)
{
    pp_attr_windows w;
    pp_attr_lag lag;
    if (pp_attr_windows_init(&w, &s->scrapes, phase, NULL, false, err) < 0)
        return -1;
    int rc = pp_attr_lag_coarse(&s->problem, &w, false, &lag, err);
    pp_attr_windows_done(&w);
    if (rc == 0 && lag.known && lag.evidence < *best) {
        *best = lag.evidence;
        s->phase = phase;
    }
    return rc;
}

/** Scrapes slower than collections do not tell when these are published: the fit does. */
static int phase_search(pp_attr_solver *s, pp_error *err)
{
    double best = PP_ATTR_INF, from = s->scrapes.phase - s->scrapes.half;
    double step = 2 * s->scrapes.half / PHASE_STARTS;
    for (size_t i = 0; i < PHASE_STARTS; i++)
        if (phase_try(s, from + step * ((double)i + 0.5), &best, err) < 0)
            return -1;
    for (int round = 0; round < PHASE_ROUNDS; round++) {
        double at = s->phase;
        step *= 0.5;
        if (phase_try(s, at - step, &best, err) < 0 || phase_try(s, at + step, &best, err) < 0)
            return -1;
    }
    return 0;
}

/** Decides by the values which collection each scrape read, where the clock leaves it open. */
static int windows_match(pp_attr_solver *s, pp_error *err)
{
    PP_CLEANUP_FREE double *misfit = calloc(s->scrapes.n * PP_ATTR_STATES + 1, sizeof *misfit);
    pp_attr_lag lag;
    if (!misfit)
        return pp_error_nomem(err);
    if (pp_attr_lag_coarse(&s->problem, &s->windows, true, &lag, err) < 0)
        return -1;
    if (lag.known &&
        pp_attr_misfit(&s->problem, &s->scrapes, &s->windows, lag.lag, s->phase, misfit, err) < 0)
        return -1;
    pp_attr_windows_done(&s->windows);
    return pp_attr_windows_init(&s->windows, &s->scrapes, s->phase, misfit, false, err);
}

int pp_attr_windows_make(pp_attr_solver *s, pp_error *err)
{
    s->phase = s->scrapes.phase;
    if (s->scrapes.grid && s->scrapes.searched && s->columns.n > 0 && phase_search(s, err) < 0)
        return -1;
    if (pp_attr_windows_init(&s->windows, &s->scrapes, s->phase, NULL, true, err) < 0)
        return -1;
    for (int round = 0; round < MATCH_ROUNDS && s->scrapes.grid && s->columns.n > 0; round++)
        if (windows_match(s, err) < 0)
            return -1;
    return 0;
}

static int windows_find(pp_attr_solver *s, pp_error *err)
{
    if (s->scrapes.window <= 0)
        return 0;
    if (s->columns.n == 0)
        return pp_attr_windows_make(s, err);
    if (pp_attr_parts_keep(s, err) < 0 || pp_attr_windows_make(s, err) < 0)
        return -1;
    return pp_attr_lag_find(&s->problem, &s->windows, s->fits, &s->lag, err);
}

static int rows_take(const pp_attr_solver *s, size_t metric, pp_attr_rows *u, pp_error *err)
{
    const pp_attr_windows *w = &s->windows;
    u->ends = malloc((2 * w->n + 1) * sizeof *u->ends);
    if (!u->ends)
        return pp_error_nomem(err);
    u->y = u->ends + w->n;
    u->n = 0;
    u->mean = 0;
    size_t skip = w->n > PP_ATTR_MAX_FIT_WINDOWS ? w->n - PP_ATTR_MAX_FIT_WINDOWS : 0;
    for (size_t i = skip; i < w->n; i++) {
        double end = w->ends[i] - s->lag.lag, y = w->values[metric * w->n + i];
        if (isnan(y) || !pp_attr_observed(&s->timeline, end - w->window, end))
            continue;
        u->ends[u->n] = w->ends[i];
        u->y[u->n++] = y / s->scale[metric];
        u->mean += y / s->scale[metric];
    }
    u->mean = u->n ? u->mean / (double)u->n : 0;
    return 0;
}

static int design_at(pp_attr_solver *s, const pp_attr_rows *u, size_t skip, double lag,
                     pp_error *err)
{
    return pp_attr_design_set(&s->design, &s->timeline, &s->columns, u->ends + skip, u->n - skip,
                              s->windows.window, lag, true, err);
}

/** cov += the lag's own uncertainty, by how the estimates move with it. */
static int lag_uncertainty(pp_attr_solver *s, const pp_attr_rows *u, pp_attr_fit *f, pp_error *err)
{
    double delta = fmax(s->lag.se, 5e4), best = s->lag.lag;
    pp_attr_fit side[2] = {{0}, {0}};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = pp_attr_fit_init(&side[i], f->p, err);
        if (rc == 0) {
            pp_attr_fit_copy(&side[i], f);
            rc = design_at(s, u, 0, best + (i ? delta : -delta), err);
        }
        if (rc == 0)
            rc = pp_attr_estimate(&s->work, &s->design, u->y, &side[i], err);
    }
    for (size_t i = 0; i < f->p && rc == 0; i++)
        for (size_t j = 0; j < f->p; j++) {
            double a = (side[1].b[i] - side[0].b[i]) / (2 * delta) * s->lag.se;
            double b = (side[1].b[j] - side[0].b[j]) / (2 * delta) * s->lag.se;
            f->cov[i * f->p + j] += a * b;
        }
    pp_attr_fit_done(&side[0]);
    pp_attr_fit_done(&side[1]);
    return rc;
}

/** Few windows: the noise itself is uncertain, as in Student's t. */
static void few_windows(pp_attr_fit *f, size_t n)
{
    double free_windows = (double)n - f->effective;
    double widen = free_windows > 4 ? free_windows / (free_windows - 2) : 3;
    for (size_t i = 0; i < f->p * f->p; i++)
        f->cov[i] *= widen;
}

static int metric_fit(pp_attr_solver *s, size_t metric, const pp_attr_rows *u, pp_error *err)
{
    pp_attr_fit *f = &s->fits[metric];
    /* Metrics that the lag's search left out (constant, sparse) have no variances yet. */
    if (f->noise2 <= 0) {
        size_t skip = u->n > PP_ATTR_MAX_SEARCH_WINDOWS ? u->n - PP_ATTR_MAX_SEARCH_WINDOWS : 0;
        pp_attr_fit_prior(&s->problem, metric, u->mean, f);
        if (design_at(s, u, skip, s->lag.lag, err) < 0 ||
            pp_attr_variances(&s->work, &s->design, u->y + skip, f, err) < 0)
            return -1;
    }
    if (design_at(s, u, 0, s->lag.lag, err) < 0 ||
        pp_attr_estimate(&s->work, &s->design, u->y, f, err) < 0 ||
        pp_attr_robust(&s->work, u->n, f, err) < 0 || lag_uncertainty(s, u, f, err) < 0)
        return -1;
    return design_at(s, u, 0, s->lag.lag, err);
}

/** Whether a metric never varied: then it tells neither the lag nor a layer. */
static bool is_constant(const pp_attr_solver *s, size_t metric)
{
    const double *v = s->scrapes.values + metric * s->scrapes.n;
    double least = PP_ATTR_INF, most = -PP_ATTR_INF;
    size_t n = 0;
    for (size_t i = 0; i < s->scrapes.n; i++) {
        if (isnan(v[i]))
            continue;
        least = fmin(least, v[i]);
        most = fmax(most, v[i]);
        n++;
    }
    return n > 1 && most - least < PP_ATTR_CONSTANT_SD * s->scale[metric];
}

static int metric_report(pp_attr_solver *s, size_t metric, pp_error *err)
{
    pp_attribution_metric_fit *r = &s->ret->fits[s->order[metric]];
    r->dropped_samples = s->scrapes.dropped[metric];
    r->constant = is_constant(s, metric);
    size_t distinct = 0;
    for (size_t i = 0; i < s->windows.n; i++)
        distinct += !isnan(s->windows.values[metric * s->windows.n + i]);
    r->repeated_samples = s->scrapes.kept[metric] - distinct;
    if (pp_attr_report_job(s, metric, err) < 0)
        return -1;
    if (!s->lag.known)
        return 0;
    pp_attr_rows u = {0};
    int rc = rows_take(s, metric, &u, err);
    r->fitted_windows = u.n;
    if (rc == 0 && u.n >= 16) {
        rc = metric_fit(s, metric, &u, err);
        if (rc == 0)
            pp_attr_report_fit(s, metric, &u);
        if (rc == 0 && (double)u.n >= 2 * s->fits[metric].effective + 10) {
            few_windows(&s->fits[metric], u.n);
            rc = pp_attr_adjust_job(s, metric, &u, err);
            if (rc == 0)
                rc = pp_attr_report_estimates(s, metric, err);
        }
    }
    free(u.ends);
    return rc;
}

static int solve(pp_attr_solver *s, pp_error *err)
{
    s->ret = pp_attr_result_new(s->in);
    if (!s->ret)
        return pp_error_nomem(err);
    if (prepare(s, err) < 0 || windows_find(s, err) < 0 || pp_attr_report_windows(s, err) < 0)
        return -1;
    pp_attr_report_rows(s);
    for (size_t m = 0; m < s->in->n_metrics; m++)
        if (metric_report(s, m, err) < 0)
            return -1;
    return 0;
}

int pp_attribution_intervals(const pp_attribution_metric *metrics, size_t n,
                             pp_attribution_options *options, pp_error *err)
{
    const pp_attribution_input in = {.metrics = metrics, .n_metrics = n, .options = *options};
    pp_attr_solver s = {.in = &in};
    if (check_counts(&in, err) < 0 || check_metrics(&in, err) < 0 ||
        check_options(&in.options, err) < 0)
        return -1;
    int rc = metrics_order(&s, err);
    if (rc == 0)
        rc = pp_attr_scrapes_init(&s.scrapes, &in, s.order, base_find(&in), err);
    if (rc == 0) {
        options->window_ns = llround(s.scrapes.window);
        options->scrape_ns = llround(s.scrapes.scrape);
    }
    solver_done(&s);
    return rc;
}

int pp_attribution_solve(const pp_attribution_input *in, pp_attribution_result **ret, pp_error *err)
{
    if (check_counts(in, err) < 0 || check_items(in, err) < 0 || check_metrics(in, err) < 0 ||
        check_options(&in->options, err) < 0)
        return -1;
    pp_attr_solver s = {.in = in};
    int rc = solve(&s, err);
    if (rc == 0)
        *ret = PP_TAKE(s.ret);
    else
        pp_error_prefix(err, "attribution");
    solver_done(&s);
    return rc;
}
