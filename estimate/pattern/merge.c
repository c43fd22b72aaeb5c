#include "estimate/pattern/merge.h"

#include "common/cleanup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a figure ---- */

/* Two figures of one thing are known no better than to this part of it, so that one of which next
 * to nothing is said to be unsure does not outweigh all others. */
#define LEAST_ERROR 1e-6

static double variance_of(const pp_figure *f, double unsaid)
{
    const double least = LEAST_ERROR * fabs(f->value);
    const double error = isfinite(f->standard_error) ? f->standard_error : unsaid;
    return fmax(error * error, least * least) + 1e-300;
}

/* The error of a figure that says none: the largest of the others', so that it does not outweigh
 * them. */
static double unsaid_of(const pp_figure *figures, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(figures[i].value) && isfinite(figures[i].standard_error))
            most = fmax(most, figures[i].standard_error);
    return most;
}

static double weight_at(const double *weights, size_t i)
{
    return weights ? weights[i] : 1;
}

typedef struct sums {
    double weight, weight2, value, square;
    size_t n;
} sums;

/* With `between` as the variance between them. */
static sums sum_up(const pp_figure *figures, const double *weights, size_t n, double between)
{
    sums s = {0};
    const double unsaid = unsaid_of(figures, n);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(figures[i].value))
            continue;
        const double w = weight_at(weights, i) / (variance_of(&figures[i], unsaid) + between);
        s.weight += w;
        s.weight2 += w * w;
        s.value += w * figures[i].value;
        s.n++;
    }
    s.value /= s.weight;
    for (size_t i = 0; i < n; i++)
        if (isfinite(figures[i].value))
            s.square += weight_at(weights, i) / (variance_of(&figures[i], unsaid) + between) *
                        pow(figures[i].value - s.value, 2);
    return s;
}

/* Of the mean by what the figures say of themselves. */
static double own_variance(const pp_figure *figures, const double *weights, size_t n,
                           double between, double weight)
{
    double sum = 0;
    const double unsaid = unsaid_of(figures, n);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(figures[i].value))
            continue;
        const double variance = variance_of(&figures[i], unsaid);
        sum += pow(weight_at(weights, i) / (variance + between) / weight, 2) * variance;
    }
    return sum;
}

pp_figure pp_figure_merge(const pp_figure *figures, const double *weights, size_t n)
{
    const sums fixed = sum_up(figures, weights, n, 0);
    if (fixed.n == 0)
        return PP_UNKNOWN;
    if (fixed.n == 1) {
        size_t i = 0;
        while (!isfinite(figures[i].value))
            i++;
        return figures[i];
    }
    const double excess = fixed.square - (double)(fixed.n - 1);
    const double between = fmax(excess / (fixed.weight - fixed.weight2 / fixed.weight), 0);
    const sums s = sum_up(figures, weights, n, between);
    const double seen = s.square / (double)(s.n - 1) / s.weight;
    const double own = own_variance(figures, weights, n, between, s.weight);
    return (pp_figure){s.value, sqrt(fmax(seen, own))};
}

/* ---- a usage ---- */

typedef struct build {
    const pp_usage *const *usages;
    const double *weights;
    size_t n;
    pp_figure *figures; /* room for n */
    pp_usage *to;
} build;

typedef pp_figure (*get_fn)(const pp_usage *usage, size_t k);

static pp_figure merge_one(const build *b, get_fn get, size_t k)
{
    for (size_t i = 0; i < b->n; i++)
        b->figures[i] = get(b->usages[i], k);
    return pp_figure_merge(b->figures, b->weights, b->n);
}

static pp_figure get_step(const pp_usage *u, size_t k)
{
    (void)k;
    return u->step_ns;
}

static pp_figure get_idle(const pp_usage *u, size_t k)
{
    (void)k;
    return u->idle;
}

static pp_figure get_bound(const pp_usage *u, size_t k)
{
    return u->bounds[k];
}

static void merge_sd(build *b)
{
    double sum = 0, weight = 0;
    for (size_t i = 0; i < b->n; i++)
        if (isfinite(b->usages[i]->step_sd_ns)) {
            sum += b->weights[i] * pow(b->usages[i]->step_sd_ns, 2);
            weight += b->weights[i];
        }
    b->to->step_sd_ns = weight > 0 ? sqrt(sum / weight) : (double)NAN;
}

/* Shares of a whole: their sum stays 1. */
static void merge_bounds(build *b)
{
    double sum = 0;
    for (size_t k = 0; k < PP_BOUND_COUNT; k++) {
        b->to->bounds[k] = merge_one(b, get_bound, k);
        sum += b->to->bounds[k].value;
    }
    for (size_t k = 0; sum > 0 && k < PP_BOUND_COUNT; k++) {
        b->to->bounds[k].value /= sum;
        b->to->bounds[k].standard_error /= sum;
    }
}

/* ---- metrics ---- */

static const pp_usage_metric *metric_of(const pp_usage *u, pp_metric metric)
{
    for (size_t i = 0; i < u->n_metrics; i++)
        if (u->metrics[i].metric == metric)
            return &u->metrics[i];
    return NULL;
}

typedef enum part { MEAN, P50, P95 } part;

static pp_figure merge_part(const build *b, const pp_usage_metric *like, part of)
{
    for (size_t i = 0; i < b->n; i++) {
        const pp_usage_metric *m = metric_of(b->usages[i], like->metric);
        b->figures[i] = !m || m->source != like->source ? PP_UNKNOWN
                        : of == MEAN                    ? m->mean
                        : of == P50                     ? m->p50
                                                        : m->p95;
    }
    return pp_figure_merge(b->figures, b->weights, b->n);
}

static void merge_profile(const build *b, const pp_usage_metric *like, pp_usage_metric *to)
{
    double weight = 0, profile[PP_USAGE_BINS] = {0};
    for (size_t i = 0; i < b->n; i++) {
        const pp_usage_metric *m = metric_of(b->usages[i], like->metric);
        if (!m || m->source != like->source || !m->has_profile)
            continue;
        weight += b->weights[i];
        for (size_t k = 0; k < PP_USAGE_BINS; k++)
            profile[k] += b->weights[i] * m->profile[k];
    }
    to->has_profile = weight > 0;
    for (size_t k = 0; to->has_profile && k < PP_USAGE_BINS; k++)
        to->profile[k] = profile[k] / weight;
}

static double most_of(const build *b, pp_metric metric)
{
    double most = (double)NAN;
    for (size_t i = 0; i < b->n; i++) {
        const pp_usage_metric *m = metric_of(b->usages[i], metric);
        most = m ? fmax(most, m->most.value) : most; /* which NaN is no part of */
    }
    return most;
}

static int merge_metrics(build *b, pp_error *err)
{
    b->to->metrics = calloc(PP_METRIC_COUNT, sizeof *b->to->metrics);
    if (!b->to->metrics)
        return pp_error_nomem(err);
    for (int metric = 0; metric < PP_METRIC_COUNT; metric++) {
        const pp_usage_metric *like = NULL;
        for (size_t i = b->n; i-- > 0 && !like;)
            like = metric_of(b->usages[i], (pp_metric)metric);
        if (!like)
            continue;
        const double most = most_of(b, like->metric);
        pp_usage_metric *to = &b->to->metrics[b->to->n_metrics++];
        *to = (pp_usage_metric){.metric = like->metric,
                                .source = like->source,
                                .mean = merge_part(b, like, MEAN),
                                .p50 = merge_part(b, like, P50),
                                .p95 = merge_part(b, like, P95),
                                .most = {most, isfinite(most) ? 0 : (double)NAN}};
        merge_profile(b, like, to);
    }
    return 0;
}

/* ---- types ---- */

static const pp_usage_type *type_of(const pp_usage *u, const pp_usage_type *like)
{
    for (size_t i = 0; i < u->n_types; i++)
        if (u->types[i].layer == like->layer && strcmp(u->types[i].name, like->name) == 0)
            return &u->types[i];
    return NULL;
}

/* One that a usage does not have took no time in it. */
static pp_figure merge_type(const build *b, const pp_usage_type *like)
{
    for (size_t i = 0; i < b->n; i++) {
        const pp_usage_type *type = type_of(b->usages[i], like);
        b->figures[i] = type ? type->share : (pp_figure){0, (double)NAN};
    }
    return pp_figure_merge(b->figures, b->weights, b->n);
}

static int compare_types(const void *a, const void *b)
{
    const pp_usage_type *x = a, *y = b;
    if (x->share.value != y->share.value)
        return x->share.value > y->share.value ? -1 : 1;
    const int by = strcmp(x->name, y->name);
    return by ? by : (int)x->layer - (int)y->layer;
}

/* Those of the newest usage first, then others', as many as there is room for. */
static int merge_types(build *b, pp_error *err)
{
    pp_usage *to = b->to;
    for (size_t i = b->n; i-- > 0;)
        for (size_t k = 0; k < b->usages[i]->n_types; k++) {
            const pp_usage_type *like = &b->usages[i]->types[k];
            if (!type_of(to, like) && to->n_types <= PP_USAGE_TYPES &&
                pp_usage_add_type(to, like->name, like->layer, merge_type(b, like), err) < 0)
                return -1;
        }
    qsort(to->types, to->n_types, sizeof *to->types, compare_types);
    return 0;
}

/* ---- several ---- */

/* Of usages that are alike, the newest last. `busy`: of all of them. */
static int merge_alike(const pp_usage *const *usages, const double *weights, size_t n, bool busy,
                       pp_usage **ret, pp_error *err)
{
    PP_CLEANUP_FREE pp_figure *figures = calloc(n + 1, sizeof *figures);
    build b = {usages, weights, n, figures, calloc(1, sizeof *b.to)};
    if (!figures || !b.to) {
        free(b.to);
        return pp_error_nomem(err);
    }
    b.to->undisturbed = true;
    b.to->busy = busy;
    for (size_t i = 0; i < n; i++) {
        b.to->steps += usages[i]->steps;
        b.to->undisturbed = b.to->undisturbed && usages[i]->undisturbed;
    }
    b.to->step_ns = merge_one(&b, get_step, 0);
    b.to->idle = merge_one(&b, get_idle, 0);
    merge_sd(&b);
    merge_bounds(&b);
    if (merge_types(&b, err) < 0 || merge_metrics(&b, err) < 0) {
        pp_usage_free(b.to);
        return -1;
    }
    *ret = b.to;
    return 0;
}

typedef struct session {
    int64_t finished_ns;
    const char *uid;
    pp_usage *usage;
} session;

static int compare_sessions(const void *a, const void *b)
{
    const session *x = a, *y = b;
    if (x->finished_ns != y->finished_ns)
        return x->finished_ns < y->finished_ns ? -1 : 1;
    return strcmp(x->uid, y->uid);
}

/* The GPUs of one session that are like the last of them. */
static int merge_gpus(const pp_merge_input *in, size_t n, pp_usage **ret, pp_error *err)
{
    PP_CLEANUP_FREE const pp_usage **usages = calloc(n + 1, sizeof(const pp_usage *));
    PP_CLEANUP_FREE double *weights = calloc(n + 1, sizeof *weights);
    *ret = NULL;
    if (!usages || !weights)
        return pp_error_nomem(err);
    size_t found = 0;
    bool busy = false;
    for (size_t i = 0; i < n; i++)
        busy = busy || (in[i].usage->steps > 0 && in[i].usage->busy);
    for (size_t i = 0; i < n; i++)
        if (in[i].usage->steps > 0 && in[i].usage->busy == busy) {
            weights[found] = 1;
            usages[found++] = in[i].usage;
        }
    return found ? merge_alike(usages, weights, found, busy, ret, err) : 0;
}

static size_t end_of_session(const pp_merge_input *in, size_t n, size_t from)
{
    size_t end = from + 1;
    while (end < n && strcmp(in[end].session, in[from].session) == 0)
        end++;
    return end;
}

static int find_sessions(const pp_merge_input *in, size_t n, session *ret, size_t *ret_n,
                         pp_error *err)
{
    for (size_t i = 0, end; i < n; i = end) {
        end = end_of_session(in, n, i);
        session *s = &ret[*ret_n];
        *s = (session){.finished_ns = in[i].finished_ns, .uid = in[i].session};
        if (merge_gpus(&in[i], end - i, &s->usage, err) < 0)
            return -1;
        *ret_n += s->usage != NULL;
    }
    qsort(ret, *ret_n, sizeof *ret, compare_sessions);
    return *ret_n ? 0 : pp_error_field(err, "usages", "none has a step");
}

static void add_error(pp_figure *to, double error)
{
    to->standard_error = hypot(to->standard_error, error);
}

/* The time in which no kernel runs, or a part of it: a step that is longer is so by that. */
static bool is_idle(pp_bound bound)
{
    return bound == PP_BOUND_DATA || bound == PP_BOUND_SYNCHRONIZATION || bound == PP_BOUND_LAUNCH;
}

/* Of one session alone: where the next one's steps are longer, their kernels take as long. */
static void expect_others(pp_usage *u)
{
    const double by = PP_MERGE_STEPS_DIFFER, idle = u->idle.value;
    const double of_idle = idle > 0 ? by * (1 - idle) / idle : 0;
    add_error(&u->step_ns, by * u->step_ns.value);
    add_error(&u->idle, by * (1 - idle));
    for (int k = 0; k < PP_BOUND_COUNT; k++)
        add_error(&u->bounds[k], (is_idle((pp_bound)k) ? of_idle : by) * u->bounds[k].value);
    for (size_t i = 0; i < u->n_types; i++)
        add_error(&u->types[i].share, by * u->types[i].share.value);
    for (size_t i = 0; i < u->n_metrics; i++)
        if (pp_metric_get(u->metrics[i].metric)->kind != PP_METRIC_LEVEL)
            add_error(&u->metrics[i].mean, by * u->metrics[i].mean.value);
}

static int merge_sessions(const session *sessions, size_t n, int64_t now_ns, pp_usage **ret,
                          pp_error *err)
{
    PP_CLEANUP_FREE const pp_usage **usages = calloc(n + 1, sizeof(const pp_usage *));
    PP_CLEANUP_FREE double *weights = calloc(n + 1, sizeof *weights);
    if (!usages || !weights)
        return pp_error_nomem(err);
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if (sessions[i].usage->busy != sessions[n - 1].usage->busy)
            continue;
        const double age = fmax((double)(now_ns - sessions[i].finished_ns), 0);
        weights[found] = exp2(-age / (double)PP_MERGE_HALF_LIFE);
        usages[found++] = sessions[i].usage;
    }
    pp_usage *merged = NULL;
    const int rc = merge_alike(usages, weights, found, sessions[n - 1].usage->busy, &merged, err);
    if (merged && found == 1)
        expect_others(merged);
    *ret = merged;
    return rc;
}

/* ---- which sessions ---- */

/* One session's GPUs, and what they trained. */
typedef struct trained {
    size_t begin, end;
    bool any; /* has a step */
    pp_models models;
} trained;

static int find_trained(const pp_merge_input *in, size_t n, trained *ret, size_t *ret_n,
                        pp_error *err)
{
    for (size_t i = 0; i < n; i = ret[*ret_n - 1].end) {
        trained *t = &ret[(*ret_n)++];
        *t = (trained){.begin = i, .end = end_of_session(in, n, i)};
        for (size_t k = t->begin; k < t->end; k++) {
            if (in[k].usage->steps == 0)
                continue;
            t->any = true;
            if (pp_models_add_all(&t->models, &in[k].usage->models, err) < 0)
                return -1;
        }
    }
    return 0;
}

static const trained *newest_of(const pp_merge_input *in, const trained *all, size_t n)
{
    const trained *newest = NULL;
    for (size_t i = 0; i < n; i++) {
        const pp_merge_input *x = &in[all[i].begin], *y = newest ? &in[newest->begin] : x;
        if (all[i].any &&
            (!newest || x->finished_ns > y->finished_ns ||
             (x->finished_ns == y->finished_ns && strcmp(x->session, y->session) > 0)))
            newest = &all[i];
    }
    return newest;
}

/* Moves those that are kept to the front; returns how many. */
static size_t keep(pp_merge_input *in, const trained *all, size_t n, const trained *like,
                   int *ret_others)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (like && all[i].any && !pp_models_equal(&all[i].models, &like->models)) {
            (*ret_others)++;
            continue;
        }
        for (size_t k = all[i].begin; k < all[i].end; k++)
            in[kept++] = in[k];
    }
    return kept;
}

int pp_merge_select(pp_merge_input *in, size_t *n, int *ret_others, pp_error *err)
{
    *ret_others = 0;
    PP_CLEANUP_FREE trained *all = calloc(*n + 1, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    size_t sessions = 0;
    int rc = find_trained(in, *n, all, &sessions, err);
    if (rc == 0)
        *n = keep(in, all, sessions, newest_of(in, all, sessions), ret_others);
    for (size_t i = 0; i < sessions; i++)
        pp_models_done(&all[i].models);
    return rc;
}

/* ---- in and out ---- */

static int merge_models(const pp_merge_input *in, size_t n, pp_usage *to, pp_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (in[i].usage->steps > 0 && pp_models_add_all(&to->models, &in[i].usage->models, err) < 0)
            return -1;
    return 0;
}

int pp_usage_merge(const pp_merge_input *in, size_t n, int64_t now_ns, pp_usage **ret,
                   pp_error *err)
{
    *ret = NULL;
    PP_CLEANUP_FREE session *sessions = calloc(n + 1, sizeof *sessions);
    if (!sessions)
        return pp_error_nomem(err);
    size_t found = 0;
    int rc = find_sessions(in, n, sessions, &found, err);
    if (rc == 0)
        rc = merge_sessions(sessions, found, now_ns, ret, err);
    if (rc == 0 && merge_models(in, n, *ret, err) < 0) {
        pp_usage_free(*ret);
        *ret = NULL;
        rc = -1;
    }
    for (size_t i = 0; i < found; i++)
        pp_usage_free(sessions[i].usage);
    return rc;
}
