/* Results: made, filled from the solution in the metrics' own units, and freed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/regression/clocks.h"
#include "estimate/regression/design.h"
#include "estimate/regression/groups.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/model.h"
#include "estimate/regression/parts.h"
#include "estimate/regression/regression.h"
#include "estimate/regression/result.h"
#include "estimate/regression/solver.h"
#include "estimate/regression/time_line.h"
#include "estimate/regression/windows.h"

#define DEFAULT_MAX_SE 0.05
/* Of the range: what windows differ by, beside what the layers in them say. An exporter's own noise
 * is some tenths of a point. Edges that jitter by 4 % of a window leave 4 % of what layers differ
 * by, 3 to 5 points, of which standard errors know. A wrong lag, a wrong period or shuffled labels
 * leave as much, but then layers say less of what windows differ by. */
#define SUSPECT_NOISE 0.01
#define NOISE 0.02
#define LEAST_R2 0.9
#define MUCH_NOISE 0.05
#define LEAST_R2_MUCH 0.95
/* Noise as a share of the standard deviation of windows: edges and stamps that jitter leave up to
 * 0.15, windows that lie elsewhere 0.2 to 0.7. A metric's own windows may be others that happen to
 * go with the values. */
#define NOISE_SHARE 0.2
#define OWN_NOISE_SHARE 0.1
/* What is left of windows is left of each for itself, unless these are longer than is thought.
 * Where edges jitter, what one misses the next one has: that is no harm. */
#define MAX_CORRELATION 0.2
#define MAX_CORRELATION_SE 3 /* of as many windows without any */
#define REST 0.005           /* of the range; less does no harm, whatever it goes with */
/* Whatever windows differ by, the items in them say half of it, unless it is next to nothing: else
 * they are longer than is thought, or it is how long a stalled GPU waited in each. */
#define LEAST_R2_EVER 0.5
/* By how many standard errors windows may lie elsewhere than the lag says, where values would move
 * by more than so much of the range with it. */
#define MAX_SHIFT 4.0
#define MOVES 0.005
/* Of the range, where nothing of ours runs. */
#define MAX_IDLE 0.01
#define DEFAULT_MAX_GROUP_SHARE 0.25
/* Share of the observed time that windows must cover for their plain mean to stand. */
#define COVERED 0.95

static pp_regression_estimate unknown(void)
{
    return (pp_regression_estimate){PP_REG_NAN, PP_REG_NAN, 0, PP_METHOD_NONE, false, -1};
}

pp_regression_result *pp_reg_result_new(const pp_regression_input *in)
{
    pp_regression_result *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->n_items = in->n_items;
    r->n_rows = in->n_items + 2;
    r->n_metrics = in->n_metrics;
    r->lag_ns = r->lag_se_ns = r->publish_lag_ns = r->publish_lag_half_ns = PP_REG_NAN;
    r->rows = calloc(r->n_rows, sizeof *r->rows);
    r->estimates = calloc(r->n_rows * r->n_metrics + 1, sizeof *r->estimates);
    r->fits = calloc(r->n_metrics + 1, sizeof *r->fits);
    if (!r->rows || !r->estimates || !r->fits)
        return pp_regression_result_free(r);
    for (size_t i = 0; i < r->n_rows * r->n_metrics; i++)
        r->estimates[i] = unknown();
    for (size_t m = 0; m < r->n_metrics; m++) {
        pp_regression_metric_fit *f = &r->fits[m];
        f->job = unknown();
        f->r2 = f->noise = f->step_variation = f->closure = PP_REG_NAN;
        f->rest = f->autocorrelation = f->idle = f->idle_standard_error = PP_REG_NAN;
        f->shift_ns = f->shift_se_ns = f->shift_moves = PP_REG_NAN;
        f->prediction =
            (pp_regression_prediction){PP_REG_NAN, PP_REG_NAN, PP_REG_NAN, PP_REG_NAN, 0, 0};
    }
    return r;
}

pp_regression_result *pp_regression_result_free(pp_regression_result *r)
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

int pp_reg_report_windows(pp_reg_solver *s, pp_error *err)
{
    pp_regression_result *r = s->ret;
    const pp_reg_windows *w = &s->windows;
    double lag = s->lag.known ? s->lag.lag : 0, age = 0;
    r->windows = calloc(w->n + 1, sizeof *r->windows);
    if (!r->windows)
        return pp_error_nomem(err);
    r->n_windows = w->n;
    for (size_t i = 0; i < w->n; i++) {
        double end = w->ends[i] - lag;
        r->windows[i].stamp_ns = s->timeline.base_ns + llround(w->stamps[i]);
        r->windows[i].end_ns = s->timeline.base_ns + llround(end);
        r->windows[i].start_ns = s->timeline.base_ns + llround(end - w->lengths[i]);
        r->windows[i].usable =
            s->lag.known && pp_reg_observed(&s->timeline, end - w->lengths[i], end);
        age += w->stamps[i] - end;
    }
    r->window_ns = llround(s->scrapes.window);
    r->scrape_ns = llround(s->scrapes.scrape);
    r->grid = s->scrapes.grid;
    r->lag_known = s->lag.known;
    if (s->lag.known) {
        r->lag_ns = age / (double)w->n;
        r->lag_se_ns = s->lag.se;
        const bool one = w->grid && !s->scrapes.drifts;
        r->publish_lag_ns = one ? s->lag.lag : PP_REG_NAN;
        r->publish_lag_half_ns = one ? w->half : PP_REG_NAN;
    }
    return 0;
}

void pp_reg_report_rows(pp_reg_solver *s)
{
    pp_regression_result *r = s->ret;
    const pp_reg_timeline *t = s->in->kernels_known ? &s->elapsed : &s->timeline;
    double all = 0;
    for (size_t i = 0; i < r->n_rows; i++)
        all += t->time[i];
    for (size_t i = 0; i < r->n_rows; i++) {
        pp_regression_row *row = &r->rows[t->original[i]];
        double of = i == r->n_items + 1 ? all : t->step_time;
        row->phase = i < r->n_items    ? s->in->items[t->original[i]].phase
                     : i == r->n_items ? PP_PHASE_OTHER
                                       : PP_PHASE_IDLE;
        row->time_ns = llround(t->time[i]);
        row->share = of > 0 ? t->time[i] / of : 0;
        row->occurrences = t->occurrences[i];
    }
    r->dropped_intervals = t->dropped;
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

static double autocovariance(const double *v, size_t n, double mean, size_t lag)
{
    double sum = 0;
    for (size_t i = lag; i < n; i++)
        sum += (v[i] - mean) * (v[i - lag] - mean);
    return sum / (double)n;
}

/** Of values one after the other, by autocovariances until they are no more than chance: Geyer's
 * initial monotone sequence (Statistical Science 7, 1992). */
static double spell_variance(const double *v, size_t n, double mean)
{
    const double alone = autocovariance(v, n, mean, 0);
    double sum = -alone, before = PP_REG_INF;
    for (size_t lag = 0; lag + 1 < n / 3; lag += 2) {
        const double pair =
            fmin(autocovariance(v, n, mean, lag) + autocovariance(v, n, mean, lag + 1), before);
        if (pair <= 0)
            break;
        sum += 2 * pair;
        before = pair;
    }
    return fmax(sum, alone) / (double)n;
}

/** The same of a level, which stays for as long as it likes. Of many values, by means of blocks:
 * lags take the square of their number. */
static double level_variance(const double *v, size_t n, double mean)
{
    enum { BLOCKS = 2048 };
    double blocks[BLOCKS];
    const size_t size = (n + BLOCKS - 1) / BLOCKS;
    if (size <= 1)
        return spell_variance(v, n, mean);
    const size_t count = n / size;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (size_t k = 0; k < size; k++)
            sum += v[i * size + k];
        blocks[i] = sum / (double)size;
    }
    return spell_variance(blocks, count, mean);
}

/** Of a metric, the values of windows from one moment to another; returns how many. */
static size_t windows_within(const pp_reg_solver *s, size_t metric, double from, double to,
                             double *v)
{
    const pp_reg_windows *w = &s->windows;
    const double lag = s->lag.known ? s->lag.lag : 0;
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        const double end = w->ends[i] - lag, y = w->values[metric * w->n + i];
        if (!isnan(y) && end - w->lengths[i] >= from && end <= to)
            v[n++] = y;
    }
    return n;
}

/** The values that were read from one moment to another, what repeats once: of windows that are
 * longer than what was observed, or of a metric that never varies. */
static size_t readings_within(const pp_reg_solver *s, size_t metric, double from, double to,
                              double *v)
{
    const pp_reg_scrapes *r = &s->scrapes;
    size_t n = 0;
    for (size_t j = 0; j < r->n; j++) {
        const double y = r->values[metric * r->n + j];
        if (!isnan(y) && r->stamps[j] >= from && r->stamps[j] <= to && (n == 0 || y != v[n - 1]))
            v[n++] = y;
    }
    return n;
}

static pp_regression_estimate job_estimate(const pp_reg_solver *s, size_t metric, const double *v,
                                           size_t n)
{
    const bool level = isnan(s->in->metrics[s->order[metric]].min);
    const double window = s->windows.window;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    const double mean = sum / (double)n;
    size_t reach = window > 0 ? (size_t)fmin(ceil(2 * s->timeline.step_mean / window), 512) : 0;
    reach = reach > n / 3 ? n / 3 : reach;
    const double variance =
        fmax(mean_variance(v, n, mean, reach), level ? level_variance(v, n, mean) : 0);
    const double se = n > 1 ? sqrt(variance * (double)n / (double)(n - 1)) : PP_REG_NAN;
    return (pp_regression_estimate){mean, se, (double)n, PP_METHOD_JOB, false, -1};
}

/** The job's average over all distinct windows from the first observed moment to the last; of all
 * where nothing was observed. What was read before or behind is not of this session. */
int pp_reg_report_job(pp_reg_solver *s, size_t metric, pp_error *err)
{
    const pp_reg_timeline *t = &s->timeline;
    const double from = t->n_observed ? t->observed[0] : -PP_REG_INF;
    const double to = t->n_observed ? t->observed[2 * t->n_observed - 1] : PP_REG_INF;
    pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    PP_CLEANUP_FREE double *v = malloc((s->windows.n + s->scrapes.n + 1) * sizeof *v);
    if (!v)
        return pp_error_nomem(err);
    size_t n = windows_within(s, metric, from, to, v);
    if (n == 0)
        n = readings_within(s, metric, from, to, v);
    if (n > 0)
        r->job = job_estimate(s, metric, v, n);
    r->outside = n == 0 && s->scrapes.kept[metric] > 0;
    return 0;
}

/** Of whitened residuals: 0 where the model has all that windows share. */
static double autocorrelation(const pp_reg_solver *s, const pp_reg_fit *f, const pp_reg_rows *u)
{
    double all = 0, next = 0, before = 0;
    for (size_t i = 0; i < u->n; i++) {
        double e = pp_reg_residual(&s->work, f, i);
        all += e * e;
        next += i > 0 ? e * before : 0;
        before = e;
    }
    return all > 0 ? next / all : 0;
}

/** Fit figures that people read. */
void pp_reg_report_fit(const pp_reg_solver *s, size_t metric, const pp_reg_rows *u)
{
    const pp_reg_fit *f = &s->fits[metric];
    pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    double rest = 0, total = 0, fitted = 0;
    for (size_t i = 0; i < u->n; i++) {
        double model = pp_dot(s->design.x + i * f->p, f->b, f->p);
        rest += (u->y[i] - model) * (u->y[i] - model);
        total += (u->y[i] - u->mean) * (u->y[i] - u->mean);
        fitted += model;
    }
    r->r2 = total > 0 ? 1 - rest / total : PP_REG_NAN;
    r->noise = sqrt(f->noise2) * s->scale[metric];
    r->step_variation = sqrt(f->noise2 * f->ratio);
    r->closure = (fitted / (double)u->n - u->mean) * s->scale[metric];
    r->rest = sqrt(rest / (double)u->n) * s->scale[metric];
    r->autocorrelation = autocorrelation(s, f, u);
}

bool pp_reg_is_correlated(const pp_reg_solver *s, size_t metric)
{
    const pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    const double chance = MAX_CORRELATION_SE / sqrt(fmax((double)r->fitted_windows, 1));
    return r->rest > REST * s->scale[metric] && r->autocorrelation > fmax(MAX_CORRELATION, chance);
}

static bool says_little(const pp_reg_solver *s, size_t metric, double r2)
{
    const pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    return r->rest > REST * s->scale[metric] && r2 < LEAST_R2_EVER;
}

/** Whether its windows lie elsewhere than the lag says. */
static bool is_shifted(const pp_reg_solver *s, size_t metric)
{
    const pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    return fabs(r->shift_ns) > MAX_SHIFT * r->shift_se_ns &&
           r->shift_moves > MOVES * s->scale[metric];
}

bool pp_reg_is_suspect(const pp_reg_solver *s, size_t metric)
{
    const pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    return r->noise > SUSPECT_NOISE * s->scale[metric] || pp_reg_is_correlated(s, metric) ||
           says_little(s, metric, r->r2) || is_shifted(s, metric);
}

/** Of the windows' standard deviation. */
static double noise_share(const pp_regression_metric_fit *r)
{
    return r->noise * sqrt(fmax(1 - r->r2, 0)) / r->rest;
}

static bool is_noisy(const pp_reg_solver *s, size_t metric, double r2)
{
    const pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    const double noise = r->noise / s->scale[metric];
    const bool own = s->own[metric].window_se > 0;
    return (noise > SUSPECT_NOISE && noise_share(r) > (own ? OWN_NOISE_SHARE : NOISE_SHARE)) ||
           (noise > NOISE && r2 < (noise > MUCH_NOISE ? LEAST_R2_MUCH : LEAST_R2));
}

static bool is_unexplained(const pp_reg_solver *s, size_t metric)
{
    const pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    /* Out of sample, where there are windows enough. */
    const double r2 = isfinite(r->prediction.explained) ? r->prediction.explained : r->r2;
    return r->elsewhere || is_noisy(s, metric, r2) || pp_reg_is_correlated(s, metric) ||
           says_little(s, metric, r2) || is_shifted(s, metric);
}

void pp_reg_report_doubt(pp_reg_solver *s, size_t metric)
{
    const pp_reg_columns *c = &s->columns;
    const pp_reg_fit *f = &s->fits[metric];
    pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    for (size_t k = 0; k < c->n; k++)
        if (c->phase[k] == PP_PHASE_IDLE) {
            r->idle = f->value[k] * s->scale[metric];
            r->idle_standard_error = sqrt(f->cov[k * f->p + k]) * s->scale[metric];
        }
    const pp_regression_metric *spec = &s->in->metrics[s->order[metric]];
    r->doubt = PP_REGRESSION_FITS;
    if (isnan(spec->min))
        return;
    if (is_unexplained(s, metric))
        r->doubt = PP_REGRESSION_UNEXPLAINED;
    if (s->in->kernels_known && spec->idle_is_zero &&
        r->idle - 3 * r->idle_standard_error > MAX_IDLE * s->scale[metric])
        r->doubt = PP_REGRESSION_TENANT;
}

/** Whoever else uses the GPU adds to all of its metrics. */
void pp_reg_withhold(pp_regression_result *r)
{
    bool tenant = false;
    for (size_t m = 0; m < r->n_metrics; m++)
        tenant |= r->fits[m].doubt == PP_REGRESSION_TENANT;
    for (size_t m = 0; m < r->n_metrics; m++) {
        if (tenant)
            r->fits[m].doubt = PP_REGRESSION_TENANT;
        for (size_t i = 0; i < r->n_rows && r->fits[m].doubt != PP_REGRESSION_FITS; i++)
            r->estimates[i * r->n_metrics + m] = unknown();
    }
}

/**
 * Where scrapes missed many windows, those that were read may hold a mix of layers unlike the
 * job's: the fit moves their mean to the mix of all observed time.
 */
int pp_reg_adjust_job(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err)
{
    const pp_reg_fit *f = &s->fits[metric];
    const pp_reg_timeline *t = &s->timeline;
    pp_regression_estimate *job = &s->ret->fits[s->order[metric]].job;
    double hull = t->observed[2 * t->n_observed - 1] - t->observed[0], all = 0, sum = 0, rest = 0;
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
        double e = u->y[i] - pp_dot(x, f->b, f->p);
        rest += e * e;
        sum += u->y[i] / (double)u->n;
        for (size_t k = 0; k < f->p; k++)
            miss[k] -= x[k] / (double)u->n;
    }
    double var = rest / ((double)u->n * (double)u->n);
    for (size_t i = 0; i < f->p; i++)
        var += miss[i] * pp_dot(miss, f->cov + i * f->p, f->p);
    pp_reg_clocks_job(s, metric, miss);
    job->mean = (sum + pp_dot(miss, f->b, f->p)) * s->scale[metric];
    job->standard_error = sqrt(fmax(var, 0)) * s->scale[metric];
    return 0;
}

/** Estimate of columns from .. to - 1 in the metric's unit; `missing` as in pp_reg_determined. */
static pp_regression_estimate range_estimate(const pp_reg_solver *s, size_t metric, size_t from,
                                             size_t to, double missing, double max_se)
{
    const pp_reg_fit *f = &s->fits[metric];
    pp_regression_estimate e = unknown();
    double se, sum = 0, time = 0, spread = 0;
    e.identifiable = pp_reg_determined(f, &s->columns, from, to, missing, max_se, &se);
    for (size_t i = from; i < to; i++) {
        time += s->columns.time[i];
        sum += s->columns.time[i] * f->value[i];
        spread += s->columns.time[i] * s->columns.time[i] * f->b[i] * f->b[i];
    }
    double alone = f->noise2 * (1 + f->ratio * spread / (time * time));
    e.windows = se > 0 ? alone / (se * se) : 0;
    if (e.identifiable) {
        e.mean = sum / time * s->scale[metric];
        e.standard_error = se * s->scale[metric];
        e.method = PP_METHOD_REGRESSION;
    }
    return e;
}

static int group_name(const pp_reg_solver *s, pp_regression_group *g, pp_error *err)
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

static int group_add(pp_reg_solver *s, size_t metric, pp_reg_range range, double max_se,
                     pp_error *err)
{
    pp_regression_result *r = s->ret;
    const pp_reg_columns *c = &s->columns;
    if (r->n_groups == s->cap_groups) {
        size_t want = s->cap_groups ? 2 * s->cap_groups : 16;
        pp_regression_group *grown = realloc(r->groups, want * sizeof *grown);
        if (!grown)
            return pp_error_nomem(err);
        r->groups = grown;
        s->cap_groups = want;
    }
    pp_regression_group *g = &r->groups[r->n_groups];
    *g = (pp_regression_group){.metric = s->order[metric], .phase = c->phase[range.from]};
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

static double max_se_of(const pp_reg_solver *s, size_t metric)
{
    const pp_regression_metric *spec = &s->in->metrics[s->order[metric]];
    if (spec->max_standard_error > 0)
        return spec->max_standard_error / s->scale[metric];
    double share = s->in->options.max_standard_error;
    return share > 0 ? share : DEFAULT_MAX_SE;
}

static int groups_report(pp_reg_solver *s, size_t metric, double max_se, pp_error *err)
{
    pp_regression_result *r = s->ret;
    PP_CLEANUP_FREE pp_reg_range *ranges = malloc((s->columns.n + 1) * sizeof *ranges);
    if (!ranges)
        return pp_error_nomem(err);
    double share = s->in->options.max_group_share;
    share = share > 0 ? share : DEFAULT_MAX_GROUP_SHARE;
    int n = pp_reg_group(&s->fits[metric], &s->columns, max_se, share * s->timeline.step_time,
                         ranges, err);
    for (int i = 0; i < n; i++) {
        if (group_add(s, metric, ranges[i], max_se, err) < 0)
            return -1;
        const pp_regression_group *g = &r->groups[r->n_groups - 1];
        for (size_t k = 0; k < g->n_members; k++) {
            pp_regression_estimate *e =
                &r->estimates[g->members[k] * r->n_metrics + s->order[metric]];
            if (!e->identifiable)
                e->group = (int32_t)(r->n_groups - 1);
        }
    }
    return n < 0 ? -1 : 0;
}

int pp_reg_report_estimates(pp_reg_solver *s, size_t metric, pp_error *err)
{
    pp_regression_result *r = s->ret;
    const pp_reg_columns *c = &s->columns;
    double max_se = max_se_of(s, metric);
    for (size_t k = 0; k < c->n; k++)
        for (size_t i = c->first[k]; i < c->first[k + 1]; i++) {
            double missing = 1 - s->timeline.time[c->members[i]] / c->time[k];
            uint32_t row = s->timeline.original[c->members[i]];
            r->estimates[row * r->n_metrics + s->order[metric]] =
                range_estimate(s, metric, k, k + 1, missing, max_se);
        }
    return pp_reg_has(s->in, PP_REGRESSION_GROUPS) ? groups_report(s, metric, max_se, err) : 0;
}
