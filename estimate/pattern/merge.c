#include "estimate/pattern/merge.h"

#include "common/cleanup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a figure ---- */

/* Two figures of one thing are known no better than to this part of the largest, so that one of
 * which next to nothing is said to be unsure, or nothing, as of a share of 0, does not outweigh all
 * others. */
#define LEAST_ERROR 1e-6

/* What errors are not said, or are too small to be meant. */
typedef struct limits {
    double unsaid; /* the largest of the others', so that a figure without one does not outweigh
                      them */
    double least;
} limits;

static limits limits_of(const pp_figure *figures, size_t n)
{
    double error = 0, value = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(figures[i].value))
            continue;
        value = fmax(value, fabs(figures[i].value));
        if (isfinite(figures[i].standard_error))
            error = fmax(error, figures[i].standard_error);
    }
    return (limits){error, LEAST_ERROR * fmax(value, error)};
}

/* Of a share that there is none of nobody knows how sure that is. */
static double variance_of(const pp_figure *f, const limits *l)
{
    const bool said = isfinite(f->standard_error) && (f->standard_error > 0 || f->value != 0);
    return pow(fmax(said ? f->standard_error : l->unsaid, l->least), 2);
}

static double weight_at(const double *weights, size_t i)
{
    return weights ? weights[i] : 1;
}

/*
 * With w_i = a_i / V_i of ages a_i and variances V_i = v_i + between, W their sum and m the mean:
 * the variance of m is sum w_i^2 V_i / W^2, and sum w_i (x_i - m)^2 is expected to be
 * sum w_i V_i - sum w_i^2 V_i / W. Where all a_i are 1 these are 1 / W and n - 1.
 */
typedef struct sums {
    double weight, weight2, value, square;
    double expected;    /* what square is where variances are V_i */
    double variance;    /* of value, so */
    double own;         /* the same of v_i alone */
    double least, most; /* of the figures */
    double freedom;     /* of square (Satterthwaite): n - 1 where all a_i are 1 */
} sums;

/* With `between` as the variance between them. */
static sums sum_up(const pp_figure *figures, const double *weights, size_t n, double between)
{
    sums s = {.least = INFINITY, .most = -INFINITY};
    double ages2 = 0, weighted2 = 0;
    const limits l = limits_of(figures, n);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(figures[i].value))
            continue;
        const double age = weight_at(weights, i), own = variance_of(&figures[i], &l);
        const double w = age / (own + between);
        s.weight += w;
        s.weight2 += w * w;
        s.value += w * figures[i].value;
        s.expected += age;
        s.least = fmin(s.least, figures[i].value);
        s.most = fmax(s.most, figures[i].value);
        s.variance += w * age;
        s.own += w * w * own;
        ages2 += age * age;
        weighted2 += age * age * w;
    }
    s.value /= s.weight;
    s.expected -= s.variance / s.weight;
    s.freedom = s.expected * s.expected /
                (ages2 - 2 * weighted2 / s.weight + pow(s.variance / s.weight, 2));
    s.variance /= s.weight * s.weight;
    s.own /= s.weight * s.weight;
    for (size_t i = 0; i < n; i++)
        if (isfinite(figures[i].value))
            s.square += weight_at(weights, i) / (variance_of(&figures[i], &l) + between) *
                        pow(figures[i].value - s.value, 2);
    return s;
}

/* The variance between figures by their sums without one (DerSimonian and Laird). Two figures that
 * lie so far apart differ by no more than that, whatever their weights make of it. */
static double between_of(const sums *fixed)
{
    const double excess = fixed->square - fixed->expected;
    const double between = excess / (fixed->weight - fixed->weight2 / fixed->weight);
    const double most = pow(fixed->most - fixed->least, 2);
    return excess > 0 ? fmin(between > 0 ? between : most, most) : 0;
}

/* By what two standard errors, of an estimate with so many degrees of freedom, are too few: JCGM
 * 100:2008 (GUM), table G.2, of 95.45 %; between two of its rows by the inverse. */
static double widening(double freedom)
{
    static const double factors[] = {13.97, 4.53, 3.31, 2.87, 2.65, 2.52, 2.43, 2.37,
                                     2.32,  2.28, 2.25, 2.23, 2.21, 2.20, 2.18};
    const size_t last = sizeof factors / sizeof *factors;
    const double at = freedom > 1 ? fmin(freedom, (double)last) : 1; /* or not a number */
    const size_t below = (size_t)at;
    const double low = factors[below - 1], high = factors[below < last ? below : last - 1];
    const double n = (double)below;
    return (low + (high - low) * (1 / n - 1 / at) * n * (n + 1)) / 2;
}

/* `sure`: as many of two such errors hold as of two of a normal distribution's. */
static pp_figure merge(const pp_figure *figures, const double *weights, size_t n, bool sure)
{
    size_t known = 0, last = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(figures[i].value)) {
            known++;
            last = i;
        }
    if (known < 2)
        return known ? figures[last] : PP_UNKNOWN;
    if (!(limits_of(figures, n).least > 0)) /* all of them are 0, without doubt */
        return figures[last];
    const sums fixed = sum_up(figures, weights, n, 0);
    const double between = between_of(&fixed);
    const sums s = sum_up(figures, weights, n, between);
    const double seen = s.expected > 0 ? s.square / s.expected * s.variance : 0;
    const double by = sure ? widening(s.freedom) : 1;
    return (pp_figure){s.value, sqrt(fmax(by * by * seen, s.own))};
}

pp_figure pp_figure_merge(const pp_figure *figures, const double *weights, size_t n)
{
    return merge(figures, weights, n, false);
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

static pp_figure get_rate(const pp_usage *u, size_t k)
{
    return u->rates[k];
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

/* Which share leads by how much is a figure of its own: of each usage, of the two that lead the
 * merged one. Programs act on it, so that few sessions make it less sure. */
static double lead_error_of(const build *b)
{
    pp_bound first, second;
    pp_usage_leaders(b->to, &first, &second);
    for (size_t i = 0; i < b->n; i++) {
        const pp_figure *x = &b->usages[i]->bounds[first], *y = &b->usages[i]->bounds[second];
        b->figures[i] = (pp_figure){x->value - y->value, x->standard_error + y->standard_error};
    }
    return merge(b->figures, b->weights, b->n, true).standard_error;
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
    b->to->lead_error = lead_error_of(b) / (sum > 0 ? sum : 1);
}

/* ---- metrics ---- */

typedef enum part { MEAN, P50, P95, ACHIEVED } part;

static pp_figure merge_part(const build *b, const pp_usage_metric *like, part of)
{
    for (size_t i = 0; i < b->n; i++) {
        const pp_usage_metric *m = pp_usage_metric_find(b->usages[i], like->metric);
        b->figures[i] = !m || m->source != like->source ? PP_UNKNOWN
                        : of == MEAN                    ? m->mean
                        : of == P50                     ? m->p50
                        : of == P95                     ? m->p95
                                                        : m->achieved;
    }
    return pp_figure_merge(b->figures, b->weights, b->n);
}

static void merge_profile(const build *b, const pp_usage_metric *like, pp_usage_metric *to)
{
    double weight = 0, profile[PP_USAGE_BINS] = {0};
    for (size_t i = 0; i < b->n; i++) {
        const pp_usage_metric *m = pp_usage_metric_find(b->usages[i], like->metric);
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
        const pp_usage_metric *m = pp_usage_metric_find(b->usages[i], metric);
        most = m ? fmax(most, m->most.value) : most; /* which NaN is no part of */
    }
    return most;
}

/* Of GPUs that are alike: the newest that knows it. */
static double peak_of(const build *b, pp_metric metric)
{
    for (size_t i = b->n; i-- > 0;) {
        const pp_usage_metric *m = pp_usage_metric_find(b->usages[i], metric);
        if (m && isfinite(m->peak))
            return m->peak;
    }
    return (double)NAN;
}

static int merge_metrics(build *b, pp_error *err)
{
    b->to->metrics = calloc(PP_METRIC_COUNT, sizeof *b->to->metrics);
    if (!b->to->metrics)
        return pp_error_nomem(err);
    for (int metric = 0; metric < PP_METRIC_COUNT; metric++) {
        const pp_usage_metric *like = NULL;
        for (size_t i = b->n; i-- > 0 && !like;)
            like = pp_usage_metric_find(b->usages[i], (pp_metric)metric);
        if (!like)
            continue;
        const double most = most_of(b, like->metric);
        pp_usage_metric *to = &b->to->metrics[b->to->n_metrics++];
        *to = (pp_usage_metric){.metric = like->metric,
                                .source = like->source,
                                .mean = merge_part(b, like, MEAN),
                                .p50 = merge_part(b, like, P50),
                                .p95 = merge_part(b, like, P95),
                                .achieved = merge_part(b, like, ACHIEVED),
                                .peak = peak_of(b, like->metric),
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

static void merge_gpu(build *b)
{
    b->to->gpu = b->usages[b->n - 1]->gpu;
    for (size_t i = b->n; i-- > 0 && !*b->to->gpu.model;)
        b->to->gpu = b->usages[i]->gpu;
}

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
    b.to->merged = true;
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
    for (size_t k = 0; k < PP_BOUND_UNITS; k++)
        b.to->rates[k] = merge_one(&b, get_rate, k);
    merge_gpu(&b);
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

/* Whether it is known of a session when its kernels ran. */
static bool is_busy(const pp_merge_input *in, size_t n)
{
    bool busy = false;
    for (size_t i = 0; i < n; i++)
        busy = busy || (in[i].usage->steps > 0 && in[i].usage->busy);
    return busy;
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
    const bool busy = is_busy(in, n);
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
    double of_bound[PP_BOUND_COUNT];
    pp_bound first, second;
    add_error(&u->step_ns, by * u->step_ns.value);
    add_error(&u->idle, by * (1 - idle));
    for (int k = 0; k < PP_BOUND_COUNT; k++) {
        of_bound[k] = (is_idle((pp_bound)k) ? of_idle : by) * u->bounds[k].value;
        add_error(&u->bounds[k], of_bound[k]);
    }
    pp_usage_leaders(u, &first, &second);
    u->lead_error = hypot(u->lead_error, of_bound[first] + of_bound[second]);
    for (size_t i = 0; i < u->n_types; i++)
        add_error(&u->types[i].share, by * u->types[i].share.value);
    for (size_t i = 0; i < u->n_metrics; i++) {
        pp_usage_metric *m = &u->metrics[i];
        if (pp_metric_get(m->metric)->kind == PP_METRIC_LEVEL)
            continue;
        add_error(&m->mean, by * m->mean.value);
        add_error(&m->achieved, by * m->achieved.value);
        if (m->source == PP_USAGE_LAYERS)
            continue; /* what half of the time is below is so in longer steps, too */
        add_error(&m->p50, by * m->p50.value);
        add_error(&m->p95, by * m->p95.value);
    }
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
static size_t keep_models(pp_merge_input *in, const trained *all, size_t n, const trained *like,
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

/* Of two kinds of GPUs the one that stands for both where there are as many: above 0 for a. */
static int compare_gpus(const pp_usage_gpu *a, const pp_usage_gpu *b)
{
    const int64_t x[] = {a->chip.multiprocessors, a->chip.capability, a->chip.sm_khz,
                         a->chip.memory_khz, a->chip.memory_bits};
    const int64_t y[] = {b->chip.multiprocessors, b->chip.capability, b->chip.sm_khz,
                         b->chip.memory_khz, b->chip.memory_bits};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i])
            return x[i] > y[i] ? 1 : -1;
    return strcmp(a->model, b->model);
}

static size_t count_alike(const pp_merge_input *in, const trained *t, const pp_usage_gpu *gpu)
{
    size_t alike = 0;
    for (size_t i = t->begin; i < t->end; i++)
        alike += in[i].usage->steps > 0 && pp_usage_gpu_alike(&in[i].usage->gpu, gpu);
    return alike;
}

/* What most of a session's GPUs with a step are; NULL: there are none. */
static const pp_usage_gpu *gpu_of_most(const pp_merge_input *in, const trained *t)
{
    const pp_usage_gpu *most = NULL;
    size_t n = 0;
    for (size_t i = t->begin; i < t->end; i++) {
        const pp_usage_gpu *gpu = &in[i].usage->gpu;
        const size_t alike = count_alike(in, t, gpu);
        if (in[i].usage->steps == 0)
            continue;
        if (!most || alike > n || (alike == n && compare_gpus(gpu, most) > 0)) {
            most = gpu;
            n = alike;
        }
    }
    return most;
}

/* Moves those of the GPU's kind to the front; returns how many. */
static size_t keep_gpus(pp_merge_input *in, size_t n, const pp_usage_gpu *like, int *ret_others)
{
    size_t kept = 0;
    for (size_t i = 0, end; i < n; i = end) {
        const size_t before = kept;
        bool any = false;
        end = end_of_session(in, n, i);
        for (size_t k = i; k < end; k++) {
            any = any || in[k].usage->steps > 0;
            if (pp_usage_gpu_alike(&in[k].usage->gpu, like))
                in[kept++] = in[k];
        }
        *ret_others += any && kept == before;
    }
    return kept;
}

/* Moves those to the front whose shares are of what the newest session's are of; returns how
 * many. */
static size_t keep_times(pp_merge_input *in, size_t n, const char *newest)
{
    size_t kept = 0;
    bool busy = false;
    for (size_t i = 0, end; i < n; i = end) {
        end = end_of_session(in, n, i);
        if (strcmp(in[i].session, newest) == 0)
            busy = is_busy(&in[i], end - i);
    }
    for (size_t i = 0; i < n; i++)
        if (in[i].usage->busy == busy)
            in[kept++] = in[i];
    return kept;
}

int pp_merge_select(pp_merge_input *in, size_t *n, pp_merge_left *ret_left, pp_error *err)
{
    *ret_left = (pp_merge_left){0};
    PP_CLEANUP_FREE trained *all = calloc(*n + 1, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    size_t sessions = 0;
    int rc = find_trained(in, *n, all, &sessions, err);
    if (rc == 0) {
        const trained *newest = newest_of(in, all, sessions);
        const pp_usage_gpu *gpu = newest ? gpu_of_most(in, newest) : NULL;
        const char *uid = newest ? in[newest->begin].session : NULL;
        *n = keep_models(in, all, sessions, newest, &ret_left->other_models);
        if (gpu)
            *n = keep_gpus(in, *n, gpu, &ret_left->other_gpus);
        if (uid)
            *n = keep_times(in, *n, uid);
    }
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
