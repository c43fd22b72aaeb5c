#include "estimate/solve.h"

#include "estimate/items/achieved.h"
#include "estimate/items/item_bounds.h"
#include "estimate/items/item_memory.h"
#include "estimate/items/item_whole.h"
#include "estimate/problem/problem.h"
#include "estimate/replay/boundary_search.h"
#include "estimate/replay/replay.h"
#include "estimate/sample_rows.h"
#include "estimate/sampled_values.h"
#include "estimate/times/item_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of elapsed times without marks: so many steps without say how long one takes; counted ones that
 * take that much longer are another part of the training; waits of such a share of steps may hide
 * what marks add. */
#define LEAST_COUNTED 16
#define ALIKE 1.02
#define NOTICEABLE 0.01
#define ALL_OBSERVED 1e-9 /* of the steps, that rounding leaves out */

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

static pp_item_kind kind_of(pp_phase phase)
{
    switch (phase) {
    case PP_PHASE_OPTIMIZER:
        return PP_ITEM_OPTIMIZER;
    case PP_PHASE_ZERO_GRAD:
        return PP_ITEM_ZERO_GRAD;
    case PP_PHASE_DATA:
        return PP_ITEM_DATA;
    case PP_PHASE_COMMUNICATION:
        return PP_ITEM_COMMUNICATION;
    case PP_PHASE_OTHER:
        return PP_ITEM_OTHER;
    case PP_PHASE_IDLE:
        return PP_ITEM_IDLE;
    default:
        return PP_ITEM_LAYER;
    }
}

/* Why there is no busy time, in the words of docs/results.md. */
static const char *why_not_busy(const pp_estimates *s, const pp_estimates_item *i)
{
    if (i->busy_ns >= 0)
        return NULL;
    if (i->kind == PP_ITEM_JOB)
        return "known of the steps: gap_ns";
    if (i->kind == PP_ITEM_IDLE)
        return "not measured outside of steps";
    if (*s->kernels)
        return s->kernels;
    return *s->gpu ? "no kernels were recorded" : "no GPU";
}

/* `other` is what no item takes of the steps, and has the kernels of its own pieces. */
static void set_busy(const pp_problem *p, size_t row, const pp_estimates *s, pp_estimates_item *to)
{
    const bool other = to->kind == PP_ITEM_OTHER;
    const pp_problem_item *item = p->items && row < p->n_items ? &p->items[row] : NULL;
    const pp_problem_time *t = item ? &item->time : &p->other_time;
    to->busy_ns = -1;
    to->idle_share = (double)NAN;
    if (item || other)
        to->busy_ns = pp_problem_part(t, other ? &p->piece_time : t);
    if (other && to->busy_ns >= 0 && to->total_ns > 0)
        to->idle_share = fmax(1 - (double)to->busy_ns / (double)to->total_ns, 0);
    else if (!other && to->busy_ns >= 0 && t->known_ns > 0)
        to->idle_share = fmax(1 - (double)t->part_ns / (double)t->known_ns, 0);
    to->busy_reason = why_not_busy(s, to);
}

/* ns by which a marked step takes longer than a counted one. NaN where that cannot be told: too few
 * are counted, or these take longer, so that something else decides how long steps take. */
static double longer_step(const pp_problem *p, const pp_estimates *s)
{
    const double counted = pp_counted_step_ns(&p->counted);
    if (s->counted_steps < LEAST_COUNTED || !(counted > 0) || !(s->step_mean_ns > 0))
        return (double)NAN;
    return counted > ALIKE * s->step_mean_ns ? (double)NAN : fmax(s->step_mean_ns - counted, 0);
}

static bool is_wait(const pp_estimates_item *i)
{
    return i->kind == PP_ITEM_DATA || i->kind == PP_ITEM_COMMUNICATION;
}

/* Whether steps wait noticeably for data or for other processes: such a wait takes in what marks
 * add elsewhere, and the step does not show it. */
static bool waits(const pp_estimates *s)
{
    double waited = 0;
    for (size_t i = 0; i < s->n_items; i++)
        if (is_wait(&s->items[i]))
            waited += (double)s->items[i].total_ns;
    return waited > NOTICEABLE * (double)s->step_ns;
}

/* Marks lengthen gaps between kernels, and no item's by more than they lengthen the step: where it
 * is not known by how much, all of its gaps may be theirs. */
static void set_least(const pp_problem *p, pp_estimates *s)
{
    const double added = longer_step(p, s) * (double)s->step_ns / s->step_mean_ns;
    const bool told = isfinite(added) && !waits(s);
    for (size_t i = 0; i < s->n_items; i++) {
        pp_estimates_item *to = &s->items[i];
        const bool in_steps = to->kind != PP_ITEM_IDLE && to->kind != PP_ITEM_JOB;
        const double gaps = (double)(to->total_ns - (to->busy_ns > 0 ? to->busy_ns : 0));
        const bool bounded = (told || to->busy_ns >= 0) && in_steps && !is_wait(to);
        const double most = told ? fmin(added, fmax(gaps, 0)) : fmax(gaps, 0);
        to->least_ns = bounded ? to->total_ns - llround(most) : -1;
    }
}

/* The result's rows (items, other, idle), and the job after them. */
static int make_items(const pp_problem *p, const pp_regression_result *r, pp_estimates *s,
                      pp_error *err)
{
    s->items = calloc(r->n_rows + 1, sizeof(*s->items));
    if (!s->items)
        return pp_error_nomem(err);
    for (size_t i = 0; i < r->n_rows; i++) {
        const pp_problem_item *from = p->items && i < p->n_items ? &p->items[i] : NULL;
        pp_estimates_item *to = &s->items[s->n_items++];
        const pp_item_kind kind = kind_of(r->rows[i].phase);
        const pp_problem_item *layer = kind == PP_ITEM_LAYER ? from : NULL;
        *to = (pp_estimates_item){
            .kind = kind,
            .phase = r->rows[i].phase,
            .layer = copy(layer ? layer->layer : ""),
            .type = copy(layer ? layer->type : ""),
            .parameters = layer ? layer->parameters : -1,
            .calls = from ? from->calls : 0,
            .total_ns = r->rows[i].time_ns,
            .share = r->rows[i].share,
        };
        set_busy(p, i, s, to);
        if (!to->layer || !to->type)
            return pp_error_nomem(err);
    }
    pp_estimates_item *job = &s->items[s->n_items++];
    *job = (pp_estimates_item){.kind = PP_ITEM_JOB,
                               .phase = PP_PHASE_IDLE,
                               .layer = copy(""),
                               .type = copy(""),
                               .parameters = -1,
                               .total_ns = s->observed_ns,
                               .least_ns = -1,
                               .share = (double)NAN};
    set_busy(p, r->n_rows, s, job);
    set_least(p, s);
    return job->layer && job->type ? 0 : pp_error_nomem(err);
}

/* What speaks against all that windows say of layers; NULL: nothing. */
static const char *doubt_of(const pp_regression_metric_fit *f)
{
    if (f->doubt == PP_REGRESSION_TENANT)
        return pp_doubt_tenant;
    if (f->doubt == PP_REGRESSION_UNEXPLAINED)
        return "metric windows differ by more than the layers in them explain";
    return NULL;
}

/* Why windows say nothing of layers, though nothing speaks against them; NULL: they do. */
static const char *untold(const pp_regression_result *r, size_t metric)
{
    const pp_regression_metric_fit *f = &r->fits[metric];
    if (!r->lag_known && f->constant)
        return "its values did not vary";
    if (!r->lag_known)
        return "the exporter's lag could not be told from the data";
    if (f->fitted_windows == 0)
        return "no metric window lies within the observed time";
    return f->told ? NULL : "there are too few metric windows for as many layers";
}

/* Why there is no value, in the words of docs/results.md. */
static const char *why(const pp_regression_result *r, size_t metric, bool job, bool in_group,
                       bool ran, const pp_estimates_options *options, const char *isolated)
{
    if (!job && options->method == PP_METHOD_SAMPLING)
        return pp_sampled_values_none;
    if (!job && options->method == PP_METHOD_REPLAY)
        return *isolated ? isolated : "only layers are replayed, forward and backward";
    if (r->fits[metric].job.method == PP_METHOD_NONE)
        return r->fits[metric].outside ? "no samples within the observed time"
                                       : "no samples of this metric";
    if (!job && options->method == PP_METHOD_JOB)
        return "only job averages were asked for";
    if (!ran)
        return "took no time while observed";
    if (in_group)
        return "known only together with its group";
    const char *all = untold(r, metric);
    all = all ? all : doubt_of(&r->fits[metric]);
    if (all)
        return all;
    return "its standard error is above the limit";
}

static int set_group(const pp_regression_result *r, const pp_regression_estimate *from,
                     pp_estimate *to, pp_error *err)
{
    to->group_mean = (double)NAN;
    to->group_standard_error = (double)NAN;
    if (!from || from->group < 0 || (size_t)from->group >= r->n_groups)
        return 0;
    const pp_regression_group *g = &r->groups[from->group];
    to->group_name = copy(g->name);
    to->group_mean = g->estimate.mean;
    to->group_standard_error = g->estimate.standard_error;
    return to->group_name ? 0 : pp_error_nomem(err);
}

/*
 * Memory in use is a level of the whole GPU, not something a layer has a share of: a layer's row
 * holds the job's average (method job) wherever the windows' place in time is known.
 */
static bool takes_the_jobs(const pp_problem *p, const pp_regression_result *r, size_t row,
                           size_t metric)
{
    return pp_metric_get(p->metric_ids[metric])->kind == PP_METRIC_LEVEL && r->lag_known &&
           r->rows[row].time_ns > 0;
}

/* Whether layers are not to get values from windows that they share with others. */
static bool is_without_regression(pp_method asked)
{
    return asked == PP_METHOD_JOB || asked == PP_METHOD_SAMPLING || asked == PP_METHOD_REPLAY;
}

/* Steps that nobody marked tell best what one takes; where there is none, the sampled ones do. */
static double amount_per_step(const pp_problem *p, size_t metric, double mean)
{
    if (pp_metric_get(p->metric_ids[metric])->kind != PP_METRIC_RATE)
        return (double)NAN;
    if (p->counted.steps > 0)
        return pp_counted_steps_amount(&p->counted, &p->reading, &p->metrics[metric], mean);
    return p->observed_steps > 0 ? mean * (double)p->step_time.total_ns / 1e9 / p->observed_steps
                                 : (double)NAN;
}

/* The share of an item's time in which a kernel ran is what records of kernels say. How sure it is
 * as one of the training's, steps tell (times/item_times.h). */
static bool is_recorded(const pp_problem *p, size_t metric, const pp_estimates_item *item)
{
    return pp_metric_get(p->metric_ids[metric])->time_of_kernels && isfinite(item->idle_share);
}

static void take_record(const pp_estimates_item *item, pp_estimate *to)
{
    to->mean = 100 * (1 - item->idle_share);
    to->standard_error = (double)NAN;
    to->windows = (double)item->calls;
    to->method = PP_METHOD_RECORDS;
    to->basis = PP_BASIS_ELAPSED;
}

static int make_estimate(const pp_problem *p, const pp_regression_result *r, size_t row,
                         size_t metric, const pp_estimates_options *options, pp_estimates *s,
                         pp_error *err)
{
    const bool job_only = is_without_regression(options->method);
    const bool job = row == r->n_rows;
    const bool level = !job && takes_the_jobs(p, r, row, metric);
    const bool rate = !job && pp_metric_get(p->metric_ids[metric])->kind == PP_METRIC_RATE;
    const pp_regression_estimate *from =
        job || level ? &r->fits[metric].job : pp_regression_get(r, row, metric);
    const bool known = from->method != PP_METHOD_NONE && isfinite(from->mean) &&
                       (job || ((level || from->identifiable) && !job_only && !rate));
    pp_estimate *to = &s->estimates[s->n_estimates++];
    *to = (pp_estimate){
        .item = (uint32_t)row,
        .metric = p->metric_ids[metric],
        .mean = known ? from->mean : (double)NAN,
        .standard_error = known ? from->standard_error : (double)NAN,
        .windows = from->windows,
        .method = known ? from->method : PP_METHOD_NONE,
        .amount_per_step = known && job ? amount_per_step(p, metric, from->mean) : (double)NAN,
    };
    if (!job && is_recorded(p, metric, &s->items[row])) {
        take_record(&s->items[row], to);
        return set_group(r, NULL, to, err);
    }
    if (set_group(r, job_only || level || rate ? NULL : from, to, err) < 0)
        return -1;
    /* What a group says was solved as well; only its members' own share of it is unknown. */
    if (to->group_name)
        to->method = r->groups[from->group].estimate.method;
    if (to->method != PP_METHOD_NONE)
        to->basis = to->method == PP_METHOD_REGRESSION && p->kernels_known ? PP_BASIS_BUSY
                                                                           : PP_BASIS_ELAPSED;
    if (!known && rate)
        to->reason = "it is told of the job alone";
    else if (!known)
        to->reason = why(r, metric, job, to->group_name != NULL, job || r->rows[row].time_ns > 0,
                         options, s->isolated);
    return 0;
}

static pp_estimates_fit make_fit(const pp_problem *p, const pp_regression_result *r, size_t metric,
                                 const pp_estimates_options *options)
{
    const pp_regression_metric_fit *f = &r->fits[metric];
    const pp_metric id = p->metric_ids[metric];
    const pp_metric_info *info = pp_metric_get(id);
    const bool judged = !is_without_regression(options->method) &&
                        f->job.method != PP_METHOD_NONE && info->kind == PP_METRIC_SHARE &&
                        !(info->time_of_kernels && p->kernels_known);
    return (pp_estimates_fit){
        .metric = id,
        .r2 = f->r2,
        .noise = f->noise,
        .step_variation = f->step_variation,
        .closure = f->closure,
        .judged = judged,
        .doubt = judged ? doubt_of(f) : NULL,
        .untold = judged ? untold(r, metric) : NULL,
        .explained = f->prediction.explained,
        .miss = f->prediction.miss,
        .expected_miss = f->prediction.expected,
        .items_z = f->prediction.items_z,
        .items = (int64_t)f->prediction.items,
        .idle = f->idle,
        .idle_stderr = f->idle_standard_error,
        .shift_ns = f->shift_ns,
        .shift_stderr_ns = f->shift_se_ns,
        .windows = (int64_t)f->fitted_windows,
        .dropped_samples = (int64_t)f->dropped_samples,
        .repeated_samples = (int64_t)f->repeated_samples,
    };
}

static int make_estimates(const pp_problem *p, const pp_regression_result *r,
                          const pp_estimates_options *options, pp_estimates *s, pp_error *err)
{
    s->estimates = calloc((r->n_rows + 1) * r->n_metrics + 1, sizeof(*s->estimates));
    s->fits = calloc(r->n_metrics + 1, sizeof(*s->fits));
    if (!s->estimates || !s->fits)
        return pp_error_nomem(err);
    for (size_t row = 0; row <= r->n_rows; row++) {
        for (size_t m = 0; m < r->n_metrics; m++) {
            if (make_estimate(p, r, row, m, options, s, err) < 0)
                return -1;
        }
    }
    for (size_t m = 0; m < r->n_metrics; m++)
        s->fits[s->n_fits++] = make_fit(p, r, m, options);
    return 0;
}

static int64_t span_sum(const pp_time_range *spans, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += spans[i].end_ns - spans[i].start_ns;
    return sum;
}

static double counted_idle(const pp_estimates *s)
{
    if (s->counted_steps <= 0 || s->counted_ns <= 0 || s->step_count <= 0 || s->gap_ns < 0)
        return (double)NAN;
    const double busy = (double)(s->step_ns - s->gap_ns) / (double)s->step_count;
    return fmax(1 - busy * (double)s->counted_steps / (double)s->counted_ns, 0);
}

static void make_summary(const pp_problem *p, const pp_regression_result *r, pp_estimates *s)
{
    s->lag_ns = r->lag_known ? r->lag_ns : (double)NAN;
    s->lag_stderr_ns = r->lag_known ? r->lag_se_ns : (double)NAN;
    s->window_ns = r->window_ns;
    s->observed_ns = span_sum(p->observed, p->n_observed);
    s->step_count = (int64_t)p->n_steps;
    s->step_mean_ns =
        p->n_steps ? (double)span_sum(p->steps, p->n_steps) / (double)p->n_steps : (double)NAN;
    s->step_ns = p->step_time.total_ns;
    s->gap_ns = pp_problem_part(&p->step_time, &p->step_time);
    s->captures = p->captures;
    s->first_step_ns = p->captured.start_ns;
    s->last_step_ns = p->captured.end_ns;
    s->counted_steps = p->counted.steps;
    s->counted_ns = p->counted.ns;
    s->counted_idle = counted_idle(s);
    for (size_t i = 0; i < r->n_windows; i++)
        s->windows += r->windows[i].usable;
    for (size_t m = 0; m < p->n_metrics; m++)
        s->samples += (int64_t)p->metrics[m].n_samples;
    s->truncated = p->truncated;
    for (size_t m = 0; m < r->n_metrics; m++)
        s->shared |= r->fits[m].doubt == PP_REGRESSION_TENANT;
}

static int64_t scaled(int64_t ns, double by)
{
    return ns > 0 ? llround((double)ns * by) : ns;
}

/* Times are of the observed time: of several processes on one GPU that in which all of them are
 * captured, and in it are parts of their steps. So they become those of as many steps as there are.
 */
static void scale_to_steps(const pp_problem *p, pp_estimates *s)
{
    const double steps = (double)p->n_steps;
    if (!(p->observed_steps > 0) || p->observed_steps > (1 - ALL_OBSERVED) * steps)
        return;
    const double by = steps / p->observed_steps;
    for (size_t i = 0; i < s->n_items; i++) {
        pp_estimates_item *to = &s->items[i];
        if (to->kind == PP_ITEM_IDLE || to->kind == PP_ITEM_JOB)
            continue;
        to->total_ns = scaled(to->total_ns, by);
        to->busy_ns = scaled(to->busy_ns, by);
        to->least_ns = scaled(to->least_ns, by);
    }
    s->step_ns = scaled(s->step_ns, by);
    s->gap_ns = scaled(s->gap_ns, by);
    s->counted_idle = counted_idle(s);
}

static int make_rows(const pp_problem *p, const pp_regression_result *r,
                     const pp_estimates_options *options, pp_estimates *s, pp_error *err)
{
    make_summary(p, r, s);
    if (make_items(p, r, s, err) < 0 || make_estimates(p, r, options, s, err) < 0)
        return -1;
    scale_to_steps(p, s);
    return pp_sample_rows_make(p, r, options->tolerance_percent, s, err);
}

/* Where something else told all that is told of layers, what windows would have told is of no
 * account. */
static void drop_overruled(pp_estimates *s)
{
    for (size_t m = 0; m < s->n_fits; m++) {
        pp_estimates_fit *f = &s->fits[m];
        bool others = false, regressed = false;
        for (size_t i = 0; i < s->n_estimates; i++) {
            const pp_estimate *e = &s->estimates[i];
            if (e->metric != f->metric)
                continue;
            others |= e->method == PP_METHOD_SAMPLING || e->method == PP_METHOD_REPLAY;
            regressed |= e->method == PP_METHOD_REGRESSION;
        }
        if (!others || regressed)
            continue;
        f->judged = false;
        f->doubt = f->untold = NULL;
    }
}

/* Whoever else uses the GPU adds to all of its counters, whoever reads them. */
static void withhold_all(pp_estimates *s)
{
    for (size_t i = 0; i < s->n_estimates; i++) {
        pp_estimate *e = &s->estimates[i];
        if (e->method != PP_METHOD_REGRESSION && e->method != PP_METHOD_SAMPLING &&
            e->method != PP_METHOD_REPLAY)
            continue;
        free(e->source);
        free(e->group_name);
        e->source = e->group_name = NULL;
        e->mean = e->standard_error = e->group_mean = e->group_standard_error = (double)NAN;
        e->method = PP_METHOD_NONE;
        e->basis = PP_BASIS_NONE;
        e->reason = pp_doubt_tenant;
    }
}

static int attribute(const pp_problem *p, const pp_estimates_options *options,
                     pp_regression_result **ret, pp_error *err)
{
    const pp_regression_input in = pp_problem_regression(p, options);
    return pp_regression_solve(&in, ret, err);
}

static int fill(const pp_activity *activity, const char *gpu, const pp_estimates_options *options,
                pp_problem *p, pp_estimates *s, pp_error *err)
{
    pp_regression_result *result = NULL;
    if (pp_problem_build(activity, gpu, options, p, err) < 0 ||
        attribute(p, options, &result, err) < 0)
        return -1;
    s->gpu = copy(gpu);
    s->kernels = copy(p->kernels);
    s->isolated = copy(p->isolated);
    int rc = s->gpu && s->kernels && s->isolated ? make_rows(p, result, options, s, err)
                                                 : pp_error_nomem(err);
    pp_coverage_narrow(&p->reading, result);
    if (rc == 0)
        rc = pp_boundaries_find(p, err);
    if (rc == 0)
        rc = pp_replay_estimate(activity, p, options, s, err);
    if (rc == 0)
        rc = pp_sampled_values_take(activity, gpu, s, err);
    if (rc == 0 && s->shared)
        withhold_all(s);
    else if (rc == 0)
        drop_overruled(s);
    if (rc == 0)
        pp_achieved_fill(activity, gpu, s);
    if (rc == 0)
        rc = pp_item_bounds_fill(s, err);
    if (rc == 0)
        rc = pp_item_memory_fill(activity, s, err);
    if (rc == 0)
        rc = pp_item_times_fill(activity, s, err);
    if (rc == 0)
        pp_item_whole_fill(activity, s);
    pp_regression_result_free(result);
    return rc;
}

int pp_estimates_solve(const pp_activity *activity, const char *gpu,
                       const pp_estimates_options *options, pp_estimates **ret, pp_error *err)
{
    pp_problem p = {0};
    pp_estimates *s = calloc(1, sizeof(*s));
    if (!s)
        return pp_error_nomem(err);
    int rc = fill(activity, gpu, options, &p, s, err);
    pp_problem_done(&p);
    if (rc < 0) {
        pp_estimates_free(s);
        return -1;
    }
    *ret = s;
    return 0;
}
