/*
 * Whether replayed layers and what is left explain the training's windows (docs/isolated.md). What
 * is left (the optimizer, other code, layers without a value) gets one value for all of it from
 * every other window; the windows between are held out, and what all together say of them is held
 * against their mean. A training that waits for its host makes now more steps, now fewer: what a
 * window should have is as much as the steps in it.
 */
#include "controller/solution_internal.h"

#include "common/buf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_WINDOWS = 2, NAME_MAX = 512 };

/* The training's steps in the order of their begins. */
typedef struct ordered_steps {
    pp_attribution_span *spans;
    size_t n;
    int64_t longest;
} ordered_steps;

static int compare_spans(const void *left, const void *right)
{
    const pp_attribution_span *a = left;
    const pp_attribution_span *b = right;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

static int sort_steps(const pp_problem *p, ordered_steps *ret, pp_error *err)
{
    *ret = (ordered_steps){.spans = calloc(p->n_steps + 1, sizeof *ret->spans), .n = p->n_steps};
    if (!ret->spans)
        return pp_error_nomem(err);
    for (size_t i = 0; i < ret->n; i++) {
        const pp_attribution_span v = ret->spans[i] = p->steps[i];
        if (v.end_ns - v.start_ns > ret->longest)
            ret->longest = v.end_ns - v.start_ns;
    }
    qsort(ret->spans, ret->n, sizeof *ret->spans, compare_spans);
    return 0;
}

/* How many there are in some time, by their parts in it. */
static double steps_in(const ordered_steps *all, pp_attribution_span time)
{
    size_t low = 0;
    size_t high = all->n;
    double sum = 0;
    while (low < high) { /* the first that may not have ended before */
        const size_t middle = low + (high - low) / 2;
        if (all->spans[middle].start_ns < time.start_ns - all->longest)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < all->n && all->spans[low].start_ns < time.end_ns; low++) {
        const pp_attribution_span v = all->spans[low];
        const int64_t from = v.start_ns > time.start_ns ? v.start_ns : time.start_ns;
        const int64_t to = v.end_ns < time.end_ns ? v.end_ns : time.end_ns;
        if (to > from)
            sum += (double)(to - from) / (double)(v.end_ns - v.start_ns);
    }
    return sum;
}

/* Windows of the training: every other one is held out. */
typedef struct half {
    size_t n;
    double mean;
    double squares;
    double rate; /* mean of the steps in a ns */
} half;

static void add(half *h, double value, double rate)
{
    const double off = value - h->mean;
    h->n++;
    h->mean += off / (double)h->n;
    h->squares += off * (value - h->mean);
    h->rate += (rate - h->rate) / (double)h->n;
}

static bool is_observed(const pp_problem *p, pp_attribution_span time)
{
    for (size_t i = 0; i < p->n_stretches; i++)
        if (p->stretches[i].start_ns <= time.start_ns && time.end_ns <= p->stretches[i].end_ns)
            return true;
    return false;
}

static void split(const pp_problem *p, const pp_attribution_metric *m, const ordered_steps *all,
                  half ret[2])
{
    size_t n = 0;
    size_t last = 0;
    ret[0] = ret[1] = (half){0};
    for (size_t i = 1; i < m->n_samples; i++) {
        if (!is_observed(p, pp_reading_time(&p->reading, m, i)) ||
            pp_reading_again(&p->reading, m, last, i))
            continue;
        last = i;
        const pp_attribution_span time = pp_reading_window(&p->reading, m, i);
        add(&ret[n++ % 2], m->samples[i].value,
            steps_in(all, time) / (double)(time.end_ns - time.start_ns));
    }
}

/* What is known, as parts of a window's value, and the share of the time of what is not. */
typedef struct parts {
    double known;
    double variance;
    double left; /* busy time of the rest, of all observed time */
} parts;

static bool runs(const pp_solution_item *i)
{
    return i->kind != PP_SOLUTION_IDLE && i->kind != PP_SOLUTION_JOB;
}

/* False where the busy time of something is not known. */
static bool add_up(const pp_solution *s, pp_metric metric, parts *ret)
{
    *ret = (parts){0};
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_solution_estimate *e = &s->estimates[i];
        const pp_solution_item *item = &s->items[e->item];
        if (e->metric != metric || !runs(item))
            continue;
        if (item->busy_ns < 0)
            return false;
        const double share = (double)item->busy_ns / (double)s->observed_ns;
        if (e->method == PP_METHOD_ISOLATED) {
            ret->known += share * e->mean;
            ret->variance += share * share * e->standard_error * e->standard_error;
        } else {
            ret->left += share;
        }
    }
    return true;
}

static bool is_left(const pp_solution *s, const pp_solution_estimate *e, pp_metric metric)
{
    const pp_solution_item *item = &s->items[e->item];
    return e->metric == metric && runs(item) && item->busy_ns > 0 &&
           e->method != PP_METHOD_ISOLATED;
}

/* Their names joined by `+`, as groups are called; a long list is cut. */
static char *name_rest(const pp_solution *s, pp_metric metric)
{
    char name[NAME_MAX] = "";
    size_t n = 0;
    for (size_t i = 0; i < s->n_estimates && n < sizeof name; i++) {
        const pp_solution_item *item = &s->items[s->estimates[i].item];
        if (is_left(s, &s->estimates[i], metric))
            n += (size_t)snprintf(
                name + n, sizeof name - n, "%s%s", n ? "+" : "",
                item->kind == PP_SOLUTION_LAYER ? item->layer : pp_solution_kind_name(item->kind));
    }
    return strdup(name);
}

/* A layer keeps its own reason: why it was not replayed. */
static int set_group(const pp_solution *s, pp_solution_estimate *e, const char *name, double mean,
                     double error)
{
    free(e->group_name);
    e->group_name = strdup(name);
    e->group_mean = mean;
    e->group_standard_error = error;
    e->method = PP_METHOD_ISOLATED;
    if (s->items[e->item].kind != PP_SOLUTION_LAYER)
        e->reason = "known only together with its group";
    return e->group_name ? 0 : -1;
}

static int tell_rest(pp_solution *s, pp_metric metric, double mean, double error, pp_error *err)
{
    char *name = name_rest(s, metric);
    int rc = name ? 0 : -1;
    bool *left = calloc(s->n_estimates + 1, sizeof *left);
    for (size_t i = 0; left && i < s->n_estimates; i++)
        left[i] = is_left(s, &s->estimates[i], metric);
    for (size_t i = 0; rc == 0 && left && i < s->n_estimates; i++)
        if (left[i])
            rc = set_group(s, &s->estimates[i], name, mean, error);
    rc = left ? rc : -1;
    free(left);
    free(name);
    return rc < 0 ? pp_error_nomem(err) : 0;
}

/* How many steps a half's windows have to as many as all of the observed time has. */
static double speed_of(const half *h, const ordered_steps *all, int64_t observed_ns)
{
    return all->n && h->rate > 0 ? h->rate * (double)observed_ns / (double)all->n : 1;
}

static int close_halves(const half halves[2], const ordered_steps *steps, const parts *all,
                        pp_metric metric, pp_solution *s, pp_error *err)
{
    const pp_metric_info *info = pp_metric_get(metric);
    const half *taken = &halves[0];
    double rest = 0;
    double variance = 0;
    if (all->left > 0) {
        const double speed = speed_of(taken, steps, s->observed_ns);
        const double of_mean =
            taken->squares / (double)(taken->n - 1) / (double)taken->n / (speed * speed);
        variance = (of_mean + all->variance) / (all->left * all->left);
        rest = pp_solution_bound(info, (taken->mean / speed - all->known) / all->left, &variance);
    }
    const double told =
        speed_of(&halves[1], steps, s->observed_ns) * (all->known + rest * all->left);
    s->closures[s->n_closures++] = (pp_solution_closure){.metric = metric,
                                                         .held = halves[1].mean,
                                                         .difference = told - halves[1].mean,
                                                         .windows = (int64_t)halves[1].n};
    return all->left <= 0 ? 0 : tell_rest(s, metric, rest, sqrt(variance), err);
}

int pp_solution_close(const pp_problem *p, const pp_attribution_metric *m, pp_metric metric,
                      pp_solution *s, pp_error *err)
{
    half halves[2];
    ordered_steps steps;
    parts all;
    if (sort_steps(p, &steps, err) < 0)
        return -1;
    split(p, m, &steps, halves);
    int rc = 0;
    if (halves[0].n >= LEAST_WINDOWS && halves[1].n >= LEAST_WINDOWS && s->observed_ns > 0 &&
        add_up(s, metric, &all))
        rc = close_halves(halves, &steps, &all, metric, s, err);
    free(steps.spans);
    return rc;
}
