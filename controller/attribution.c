/* Attribution: checks the input, runs the parts in order, fills the result. */
#include "controller/attribution.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "controller/attribution_internal.h"

#define DEFAULT_MAX_SE 0.05
#define DEFAULT_MAX_GROUP_SHARE 0.25
#define DEFAULT_LAG_WINDOWS 2.5
#define MAX_HINT_NS 1000000000000000LL /* eleven days */
/* Where in the feasible arc collections are published, when scrapes alone do not tell. */
#define PHASE_STARTS 12
#define PHASE_ROUNDS 3
#define MATCH_ROUNDS 2
/* Share of the observed time that windows must cover for their plain mean to stand. */
#define COVERED 0.95

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
        if ((unsigned)v->phase > PP_PHASE_OPTIMIZER)
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

static pp_attribution_estimate unknown(void)
{
    return (pp_attribution_estimate){PP_ATTR_NAN, PP_ATTR_NAN, 0, PP_METHOD_NONE, false, -1};
}

static pp_attribution_result *result_new(const pp_attribution_input *in)
{
    pp_attribution_result *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->n_items = in->n_items;
    r->n_rows = in->n_items + 2;
    r->n_metrics = in->n_metrics;
    r->lag_ns = r->lag_se_ns = r->publish_lag_ns = r->publish_lag_half_ns = PP_ATTR_NAN;
    r->rows = calloc(r->n_rows, sizeof *r->rows);
    r->estimates = calloc(r->n_rows * r->n_metrics + 1, sizeof *r->estimates);
    r->fits = calloc(r->n_metrics + 1, sizeof *r->fits);
    if (!r->rows || !r->estimates || !r->fits)
        return pp_attribution_result_free(r);
    for (size_t i = 0; i < r->n_rows * r->n_metrics; i++)
        r->estimates[i] = unknown();
    for (size_t m = 0; m < r->n_metrics; m++) {
        pp_attribution_metric_fit *f = &r->fits[m];
        f->job = unknown();
        f->r2 = f->noise = f->step_variation = f->closure = PP_ATTR_NAN;
    }
    return r;
}

pp_attribution_result *pp_attribution_result_free(pp_attribution_result *r)
{
    if (!r)
        return NULL;
    for (size_t g = 0; g < r->n_groups; g++) {
        free(r->groups[g].name);
        free(r->groups[g].members);
    }
    free(r->groups);
    free(r->rows);
    free(r->estimates);
    free(r->fits);
    free(r->windows);
    free(r);
    return NULL;
}

const char *pp_attribution_method_name(pp_attribution_method method)
{
    static const char *const names[] = {"none", "job", "direct"};
    return (unsigned)method < 3 ? names[method] : "none";
}

/** Everything that one solution holds on its way. */
typedef struct solver {
    const pp_attribution_input *in;
    pp_attribution_result *ret;
    uint32_t *order; /* canonical metric -> the caller's index */
    double *scale;   /* [canonical metric] */
    pp_attr_timeline timeline;
    pp_attr_columns columns;
    pp_attr_scrapes scrapes;
    pp_attr_windows windows;
    pp_attr_problem problem;
    pp_attr_fit *fits; /* [canonical metric] */
    size_t n_fits;
    pp_attr_lag lag;
    double phase;
    pp_attr_work work;
    pp_attr_design design;
    size_t cap_groups;
} solver;

static void solver_done(solver *s)
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

static int metrics_order(solver *s, pp_error *err)
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

static void scales_find(solver *s)
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

static int fits_new(solver *s, pp_error *err)
{
    s->fits = calloc(s->in->n_metrics + 1, sizeof *s->fits);
    if (!s->fits)
        return pp_error_nomem(err);
    for (size_t m = 0; m < s->in->n_metrics; m++, s->n_fits++)
        if (pp_attr_fit_init(&s->fits[m], s->columns.n, err) < 0)
            return -1;
    return 0;
}

static int prepare(solver *s, pp_error *err)
{
    int64_t base = base_find(s->in);
    if (metrics_order(s, err) < 0 || pp_attr_timeline_init(&s->timeline, s->in, base, err) < 0 ||
        pp_attr_columns_init(&s->columns, &s->timeline, s->in, err) < 0 ||
        pp_attr_scrapes_init(&s->scrapes, s->in, s->order, base, err) < 0 || fits_new(s, err) < 0)
        return -1;
    scales_find(s);
    double max_lag = s->in->options.max_lag_ns > 0 ? (double)s->in->options.max_lag_ns
                                                   : DEFAULT_LAG_WINDOWS * s->scrapes.window;
    s->problem = (pp_attr_problem){s->in, s->order, &s->timeline, &s->columns, s->scale, max_lag};
    s->phase = s->scrapes.phase;
    return 0;
}

/** Tries one publication phase; keeps it when the coarse fit is better than *best. */
static int phase_try(solver *s, double phase, double *best, pp_error *err)
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
static int phase_search(solver *s, pp_error *err)
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
static int windows_match(solver *s, pp_error *err)
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

static int windows_find(solver *s, pp_error *err)
{
    if (s->scrapes.window <= 0)
        return 0;
    if (s->scrapes.grid && s->scrapes.searched && s->columns.n > 0 && phase_search(s, err) < 0)
        return -1;
    if (pp_attr_windows_init(&s->windows, &s->scrapes, s->phase, NULL, true, err) < 0)
        return -1;
    if (s->columns.n == 0)
        return 0;
    for (int round = 0; round < MATCH_ROUNDS && s->scrapes.grid; round++)
        if (windows_match(s, err) < 0)
            return -1;
    return pp_attr_lag_find(&s->problem, &s->windows, s->fits, &s->lag, err);
}

static int windows_report(solver *s, pp_error *err)
{
    pp_attribution_result *r = s->ret;
    const pp_attr_windows *w = &s->windows;
    double lag = s->lag.known ? s->lag.lag : 0, age = 0;
    r->windows = calloc(w->n + 1, sizeof *r->windows);
    if (!r->windows)
        return pp_error_nomem(err);
    r->n_windows = w->n;
    for (size_t i = 0; i < w->n; i++) {
        double end = w->ends[i] - lag;
        r->windows[i].stamp_ns = s->timeline.base_ns + llround(w->stamps[i]);
        r->windows[i].end_ns = s->timeline.base_ns + llround(end);
        r->windows[i].start_ns = s->timeline.base_ns + llround(end - w->window);
        r->windows[i].usable = s->lag.known && pp_attr_observed(&s->timeline, end - w->window, end);
        age += w->stamps[i] - end;
    }
    r->window_ns = llround(s->scrapes.window);
    r->scrape_ns = llround(s->scrapes.scrape);
    r->grid = s->scrapes.grid;
    r->lag_known = s->lag.known;
    if (s->lag.known) {
        r->lag_ns = age / (double)w->n;
        r->lag_se_ns = s->lag.se;
        r->publish_lag_ns = w->grid ? s->lag.lag : PP_ATTR_NAN;
        r->publish_lag_half_ns = w->grid ? w->half : PP_ATTR_NAN;
    }
    return 0;
}

static void rows_report(solver *s)
{
    pp_attribution_result *r = s->ret;
    double all = 0;
    for (size_t i = 0; i < r->n_rows; i++)
        all += s->timeline.time[i];
    for (size_t i = 0; i < r->n_rows; i++) {
        pp_attribution_row *row = &r->rows[s->timeline.original[i]];
        double of = i == r->n_items + 1 ? all : s->timeline.step_time;
        row->phase = i < r->n_items    ? s->in->items[s->timeline.original[i]].phase
                     : i == r->n_items ? PP_PHASE_OTHER
                                       : PP_PHASE_IDLE;
        row->time_ns = llround(s->timeline.time[i]);
        row->share = of > 0 ? s->timeline.time[i] / of : 0;
        row->occurrences = s->timeline.occurrences[i];
    }
    r->dropped_intervals = s->timeline.dropped;
}

/** Variance of a mean of correlated windows: Bartlett's weights over a few steps' length. */
static double mean_variance(const double *v, size_t n, double mean, size_t reach)
{
    double sum = 0;
    for (size_t lag = 0; lag <= reach && lag < n; lag++) {
        double c = 0, weight = 1 - (double)lag / (double)(reach + 1);
        for (size_t i = lag; i < n; i++)
            c += (v[i] - mean) * (v[i - lag] - mean);
        sum += (lag ? 2 : 1) * weight * c;
    }
    return fmax(sum, 0) / ((double)n * (double)n);
}

/** The job's average over all distinct windows from the first stretch to the last. */
static int job_report(solver *s, size_t metric, pp_error *err)
{
    const pp_attr_windows *w = &s->windows;
    const pp_attr_timeline *t = &s->timeline;
    double lag = s->lag.known ? s->lag.lag : 0, sum = 0;
    double from = t->n_stretches ? t->stretch[0] : -PP_ATTR_INF;
    double to = t->n_stretches ? t->stretch[2 * t->n_stretches - 1] : PP_ATTR_INF;
    PP_CLEANUP_FREE double *v = malloc((w->n + 1) * sizeof *v);
    if (!v)
        return pp_error_nomem(err);
    size_t n = 0;
    for (int pass = 0; pass < 2 && n == 0; pass++) {
        for (size_t i = 0; i < w->n; i++) {
            double end = w->ends[i] - lag, y = w->values[metric * w->n + i];
            if (isnan(y) || (pass == 0 && (end - w->window < from || end > to)))
                continue;
            v[n++] = y;
            sum += y;
        }
    }
    if (n == 0)
        return 0;
    double mean = sum / (double)n;
    size_t reach = w->window > 0 ? (size_t)fmin(ceil(2 * t->step_mean / w->window), 512) : 0;
    reach = reach > n / 3 ? n / 3 : reach;
    double se =
        n > 1 ? sqrt(mean_variance(v, n, mean, reach) * (double)n / (double)(n - 1)) : PP_ATTR_NAN;
    s->ret->fits[s->order[metric]].job =
        (pp_attribution_estimate){mean, se, (double)n, PP_METHOD_JOB, false, -1};
    return 0;
}

/** Scaled values of one metric and its windows' nominal ends, observed at the lag found. */
typedef struct rows_used {
    size_t n;
    double *ends;
    double *y;
    double mean;
} rows_used;

static int rows_take(const solver *s, size_t metric, rows_used *u, pp_error *err)
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

static int design_at(solver *s, const rows_used *u, size_t skip, double lag, pp_error *err)
{
    return pp_attr_design_set(&s->design, &s->timeline, &s->columns, u->ends + skip, u->n - skip,
                              s->windows.window, lag, true, err);
}

/** cov += the lag's own uncertainty, by how the estimates move with it. */
static int lag_uncertainty(solver *s, const rows_used *u, pp_attr_fit *f, pp_error *err)
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

static int metric_fit(solver *s, size_t metric, const rows_used *u, pp_error *err)
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

/** Fit figures that people read. */
static void fit_report(const solver *s, size_t metric, const rows_used *u)
{
    const pp_attr_fit *f = &s->fits[metric];
    pp_attribution_metric_fit *r = &s->ret->fits[s->order[metric]];
    double rest = 0, total = 0, fitted = 0;
    for (size_t i = 0; i < u->n; i++) {
        double model = pp_attr_dot(s->design.x + i * f->p, f->b, f->p);
        rest += (u->y[i] - model) * (u->y[i] - model);
        total += (u->y[i] - u->mean) * (u->y[i] - u->mean);
        fitted += model;
    }
    r->r2 = total > 0 ? 1 - rest / total : PP_ATTR_NAN;
    r->noise = sqrt(f->noise2) * s->scale[metric];
    r->step_variation = sqrt(f->noise2 * f->ratio);
    r->closure = (fitted / (double)u->n - u->mean) * s->scale[metric];
}

/**
 * Where scrapes missed many windows, those that were read may hold a mix of layers unlike the
 * job's: the fit moves their mean to the mix of all observed time.
 */
static int job_adjust(solver *s, size_t metric, const rows_used *u, pp_error *err)
{
    const pp_attr_fit *f = &s->fits[metric];
    const pp_attr_timeline *t = &s->timeline;
    pp_attribution_estimate *job = &s->ret->fits[s->order[metric]].job;
    double hull = t->stretch[2 * t->n_stretches - 1] - t->stretch[0], all = 0, sum = 0, rest = 0;
    PP_CLEANUP_FREE double *miss = calloc(f->p + 1, sizeof *miss);
    if (!miss)
        return pp_error_nomem(err);
    for (size_t k = 0; k < f->p; k++)
        all += s->columns.time[k];
    if (job->windows * s->windows.window > COVERED * hull || all < 0.5 * hull)
        return 0;
    for (size_t k = 0; k < f->p; k++)
        miss[k] = s->columns.time[k] / all;
    for (size_t i = 0; i < u->n; i++) {
        const double *x = s->design.x + i * f->p;
        double e = u->y[i] - pp_attr_dot(x, f->b, f->p);
        rest += e * e;
        sum += u->y[i] / (double)u->n;
        for (size_t k = 0; k < f->p; k++)
            miss[k] -= x[k] / (double)u->n;
    }
    double var = rest / ((double)u->n * (double)u->n);
    for (size_t i = 0; i < f->p; i++)
        var += miss[i] * pp_attr_dot(miss, f->cov + i * f->p, f->p);
    job->mean = (sum + pp_attr_dot(miss, f->b, f->p)) * s->scale[metric];
    job->standard_error = sqrt(fmax(var, 0)) * s->scale[metric];
    return 0;
}

/** Estimate of columns from .. to - 1 in the metric's unit; `missing` as in pp_attr_determined. */
static pp_attribution_estimate range_estimate(const solver *s, size_t metric, size_t from,
                                              size_t to, double missing, double max_se)
{
    const pp_attr_fit *f = &s->fits[metric];
    pp_attribution_estimate e = unknown();
    double se, sum = 0, time = 0, spread = 0;
    e.identifiable = pp_attr_determined(f, &s->columns, from, to, missing, max_se, &se);
    for (size_t i = from; i < to; i++) {
        time += s->columns.time[i];
        sum += s->columns.time[i] * f->b[i];
        spread += s->columns.time[i] * s->columns.time[i] * f->b[i] * f->b[i];
    }
    double alone = f->noise2 * (1 + f->ratio * spread / (time * time));
    e.windows = se > 0 ? alone / (se * se) : 0;
    if (e.identifiable) {
        e.mean = sum / time * s->scale[metric];
        e.standard_error = se * s->scale[metric];
        e.method = PP_METHOD_DIRECT;
    }
    return e;
}

static int group_name(const solver *s, pp_attribution_group *g, pp_error *err)
{
    size_t need = 1;
    for (size_t i = 0; i < g->n_members; i++)
        need += strlen(s->in->items[g->members[i]].layer) + 1;
    char *at = g->name = malloc(need);
    if (!at)
        return pp_error_nomem(err);
    for (size_t i = 0; i < g->n_members; i++)
        at += snprintf(at, need - (size_t)(at - g->name), "%s%s", i ? "+" : "",
                       s->in->items[g->members[i]].layer);
    return 0;
}

static int group_add(solver *s, size_t metric, pp_attr_range range, double max_se, pp_error *err)
{
    pp_attribution_result *r = s->ret;
    const pp_attr_columns *c = &s->columns;
    if (r->n_groups == s->cap_groups) {
        size_t want = s->cap_groups ? 2 * s->cap_groups : 16;
        pp_attribution_group *grown = realloc(r->groups, want * sizeof *grown);
        if (!grown)
            return pp_error_nomem(err);
        r->groups = grown;
        s->cap_groups = want;
    }
    pp_attribution_group *g = &r->groups[r->n_groups];
    *g = (pp_attribution_group){.metric = s->order[metric], .phase = c->phase[range.from]};
    g->n_members = c->first[range.to] - c->first[range.from];
    g->members = malloc(g->n_members * sizeof *g->members);
    if (!g->members)
        return pp_error_nomem(err);
    r->n_groups++;
    double time = 0;
    for (size_t i = 0; i < g->n_members; i++) {
        g->members[i] = s->timeline.original[c->members[c->first[range.from] + i]];
        time += s->timeline.time[c->members[c->first[range.from] + i]];
    }
    g->time_ns = llround(time);
    g->estimate = range_estimate(s, metric, range.from, range.to, 0, max_se);
    return group_name(s, g, err);
}

static double max_se_of(const solver *s, size_t metric)
{
    const pp_attribution_metric *spec = &s->in->metrics[s->order[metric]];
    if (spec->max_standard_error > 0)
        return spec->max_standard_error / s->scale[metric];
    double share = s->in->options.max_standard_error;
    return share > 0 ? share : DEFAULT_MAX_SE;
}

static int groups_report(solver *s, size_t metric, double max_se, pp_error *err)
{
    pp_attribution_result *r = s->ret;
    PP_CLEANUP_FREE pp_attr_range *ranges = malloc((s->columns.n + 1) * sizeof *ranges);
    if (!ranges)
        return pp_error_nomem(err);
    double share = s->in->options.max_group_share;
    share = share > 0 ? share : DEFAULT_MAX_GROUP_SHARE;
    int n = pp_attr_group(&s->fits[metric], &s->columns, max_se, share * s->timeline.step_time,
                          ranges, err);
    for (int i = 0; i < n; i++) {
        if (group_add(s, metric, ranges[i], max_se, err) < 0)
            return -1;
        const pp_attribution_group *g = &r->groups[r->n_groups - 1];
        for (size_t k = 0; k < g->n_members; k++) {
            pp_attribution_estimate *e =
                &r->estimates[g->members[k] * r->n_metrics + s->order[metric]];
            if (!e->identifiable)
                e->group = (int32_t)(r->n_groups - 1);
        }
    }
    return n < 0 ? -1 : 0;
}

static int estimates_report(solver *s, size_t metric, pp_error *err)
{
    pp_attribution_result *r = s->ret;
    const pp_attr_columns *c = &s->columns;
    double max_se = max_se_of(s, metric);
    for (size_t k = 0; k < c->n; k++)
        for (size_t i = c->first[k]; i < c->first[k + 1]; i++) {
            double missing = 1 - s->timeline.time[c->members[i]] / c->time[k];
            uint32_t row = s->timeline.original[c->members[i]];
            r->estimates[row * r->n_metrics + s->order[metric]] =
                range_estimate(s, metric, k, k + 1, missing, max_se);
        }
    return groups_report(s, metric, max_se, err);
}

static int metric_report(solver *s, size_t metric, pp_error *err)
{
    pp_attribution_metric_fit *r = &s->ret->fits[s->order[metric]];
    r->dropped_samples = s->scrapes.dropped[metric];
    size_t distinct = 0;
    for (size_t i = 0; i < s->windows.n; i++)
        distinct += !isnan(s->windows.values[metric * s->windows.n + i]);
    r->repeated_samples = s->scrapes.kept[metric] - distinct;
    if (job_report(s, metric, err) < 0)
        return -1;
    if (!s->lag.known)
        return 0;
    rows_used u = {0};
    int rc = rows_take(s, metric, &u, err);
    r->fitted_windows = u.n;
    if (rc == 0 && u.n >= 16) {
        rc = metric_fit(s, metric, &u, err);
        if (rc == 0)
            fit_report(s, metric, &u);
        if (rc == 0 && (double)u.n >= 2 * s->fits[metric].effective + 10) {
            few_windows(&s->fits[metric], u.n);
            rc = job_adjust(s, metric, &u, err);
            if (rc == 0)
                rc = estimates_report(s, metric, err);
        }
    }
    free(u.ends);
    return rc;
}

static int solve(solver *s, pp_error *err)
{
    s->ret = result_new(s->in);
    if (!s->ret)
        return pp_error_nomem(err);
    if (prepare(s, err) < 0 || windows_find(s, err) < 0 || windows_report(s, err) < 0)
        return -1;
    rows_report(s);
    for (size_t m = 0; m < s->in->n_metrics; m++)
        if (metric_report(s, m, err) < 0)
            return -1;
    return 0;
}

int pp_attribution_solve(const pp_attribution_input *in, pp_attribution_result **ret, pp_error *err)
{
    if (check_counts(in, err) < 0 || check_items(in, err) < 0 || check_metrics(in, err) < 0 ||
        check_options(&in->options, err) < 0)
        return -1;
    solver s = {.in = in};
    int rc = solve(&s, err);
    if (rc == 0)
        *ret = PP_TAKE(s.ret);
    else
        pp_error_prefix(err, "attribution");
    solver_done(&s);
    return rc;
}
