/*
 * Whether replayed layers and what is left explain the training's windows (docs/replay.md). What
 * is left (the optimizer, other code, layers without a value) gets one value for all of it from
 * every other window; the windows between are held out, and what all together say of them is held
 * against their mean. A training that waits for its host makes now more steps, now fewer: what a
 * window should have is as much as the steps in it.
 */
#include "estimate/replay/hold_out.h"

#include "common/buf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_WINDOWS = 2, NAME_MAX = 512 };

/* Windows with so many times as many steps as usual, or as few, are of something else. */
#define FASTER_MOST 5.0

/* Of steps' begins, or of their ends, in the order of time: a step of length d counts 1/d. */
typedef struct edge {
    double at;     /* ns after the base */
    double weight; /* of it and of all before it */
    double moment; /* the same of its weight times its time */
} edge;

/* How far the training's steps have come at any time. */
typedef struct progress {
    int64_t base_ns;
    edge *begins;
    edge *ends;
    size_t n;
    double rate; /* steps in a ns of the observed time */
} progress;

static int compare_edges(const void *left, const void *right)
{
    const edge *a = left;
    const edge *b = right;
    return a->at < b->at ? -1 : a->at > b->at;
}

static void sort_edges(edge *edges, size_t n)
{
    qsort(edges, n, sizeof *edges, compare_edges);
    for (size_t i = 0; i < n; i++) {
        edges[i].moment = edges[i].weight * edges[i].at + (i ? edges[i - 1].moment : 0);
        edges[i].weight += i ? edges[i - 1].weight : 0;
    }
}

/* Of all steps that began (or ended) before that time, what has passed of them since. */
static double passed(const edge *edges, size_t n, double at)
{
    size_t low = 0;
    size_t high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (edges[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? edges[low - 1].weight * at - edges[low - 1].moment : 0;
}

/* How many steps there are in some time, by their parts in it. */
static double steps_in(const progress *g, pp_time_range time)
{
    const double from = (double)(time.start_ns - g->base_ns);
    const double to = (double)(time.end_ns - g->base_ns);
    return passed(g->begins, g->n, to) - passed(g->ends, g->n, to) - passed(g->begins, g->n, from) +
           passed(g->ends, g->n, from);
}

static void find_rate(const pp_problem *p, progress *g)
{
    double steps = 0;
    double length = 0;
    for (size_t i = 0; i < p->n_observed; i++) {
        steps += steps_in(g, p->observed[i]);
        length += (double)(p->observed[i].end_ns - p->observed[i].start_ns);
    }
    g->rate = length > 0 ? steps / length : 0;
}

static int make_progress(const pp_problem *p, progress *ret, pp_error *err)
{
    *ret = (progress){.base_ns = p->n_observed ? p->observed[0].start_ns : 0,
                      .begins = calloc(p->n_steps + 1, sizeof *ret->begins),
                      .ends = calloc(p->n_steps + 1, sizeof *ret->ends)};
    if (!ret->begins || !ret->ends)
        return pp_error_nomem(err);
    for (size_t i = 0; i < p->n_steps; i++) {
        const pp_time_range v = p->steps[i];
        const double weight = 1 / (double)(v.end_ns - v.start_ns);
        if (v.end_ns <= v.start_ns)
            continue;
        ret->begins[ret->n] = (edge){.at = (double)(v.start_ns - ret->base_ns), .weight = weight};
        ret->ends[ret->n++] = (edge){.at = (double)(v.end_ns - ret->base_ns), .weight = weight};
    }
    sort_edges(ret->begins, ret->n);
    sort_edges(ret->ends, ret->n);
    find_rate(p, ret);
    return 0;
}

static void free_progress(progress *g)
{
    free(g->begins);
    free(g->ends);
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

static bool is_observed(const pp_problem *p, pp_time_range time)
{
    for (size_t i = 0; i < p->n_observed; i++)
        if (p->observed[i].start_ns <= time.start_ns && time.end_ns <= p->observed[i].end_ns)
            return true;
    return false;
}

static void split(const pp_problem *p, const pp_regression_metric *m, const progress *all,
                  half ret[2])
{
    size_t n = 0;
    size_t last = 0;
    ret[0] = ret[1] = (half){0};
    for (size_t i = 1; i < m->n_samples; i++) {
        if (!is_observed(p, pp_coverage_time(&p->reading, m, i)) ||
            pp_coverage_again(&p->reading, m, last, i))
            continue;
        last = i;
        const pp_time_range time = pp_coverage_window(&p->reading, m, i);
        add(&ret[n++ % 2], m->samples[i].value,
            steps_in(all, time) / (double)(time.end_ns - time.start_ns));
    }
}

/* What is known, as parts of a window's value, and the share of the time of what is not. */
typedef struct parts {
    double known;
    double error; /* of that: their values are wrong together, by what goes with their replays */
    double left;  /* busy time of the rest, of all observed time */
} parts;

static bool runs(const pp_estimates_item *i)
{
    return i->kind != PP_ITEM_IDLE && i->kind != PP_ITEM_JOB;
}

/* False where the busy time of something is not known. */
static bool add_up(const pp_estimates *s, pp_metric metric, parts *ret)
{
    *ret = (parts){0};
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_estimate *e = &s->estimates[i];
        const pp_estimates_item *item = &s->items[e->item];
        if (e->metric != metric || !runs(item))
            continue;
        if (item->busy_ns < 0)
            return false;
        const double share = (double)item->busy_ns / (double)s->observed_ns;
        if (e->method == PP_METHOD_REPLAY) {
            ret->known += share * e->mean;
            ret->error += share * e->standard_error;
        } else {
            ret->left += share;
        }
    }
    return true;
}

static bool is_left(const pp_estimates *s, const pp_estimate *e, pp_metric metric)
{
    const pp_estimates_item *item = &s->items[e->item];
    return e->metric == metric && runs(item) && item->busy_ns > 0 && e->method != PP_METHOD_REPLAY;
}

/* Their names joined by `+`, as groups are called; a long list is cut. */
static char *name_rest(const pp_estimates *s, pp_metric metric)
{
    char name[NAME_MAX] = "";
    size_t n = 0;
    for (size_t i = 0; i < s->n_estimates && n < sizeof name; i++) {
        const pp_estimates_item *item = &s->items[s->estimates[i].item];
        if (is_left(s, &s->estimates[i], metric))
            n += (size_t)snprintf(name + n, sizeof name - n, "%s%s", n ? "+" : "",
                                  item->kind == PP_ITEM_LAYER ? item->layer
                                                              : pp_item_kind_name(item->kind));
    }
    return strdup(name);
}

/* A layer keeps its own reason: why it was not replayed. */
static int set_group(const pp_estimates *s, pp_estimate *e, const char *name, double mean,
                     double error)
{
    free(e->group_name);
    e->group_name = strdup(name);
    e->group_mean = mean;
    e->group_standard_error = error;
    e->method = PP_METHOD_REPLAY;
    e->basis = PP_BASIS_BUSY;
    if (s->items[e->item].kind != PP_ITEM_LAYER)
        e->reason = "known only together with its group";
    return e->group_name ? 0 : -1;
}

static int tell_rest(pp_estimates *s, pp_metric metric, double mean, double error, pp_error *err)
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

/* How many steps a half's windows have to as many as all of the observed time has; 0: they say
 * nothing of the training as a whole. */
static double speed_of(const half *h, const progress *g)
{
    const double speed = g->rate > 0 ? h->rate / g->rate : 1;
    return speed >= 1 / FASTER_MOST && speed <= FASTER_MOST ? speed : 0;
}

static int close_halves(const half halves[2], const double speed[2], const parts *all,
                        pp_metric metric, pp_estimates *s, pp_error *err)
{
    const half *taken = &halves[0];
    double rest = 0;
    double variance = 0;
    if (all->left > 0) {
        const double of_mean =
            taken->squares / (double)(taken->n - 1) / (double)taken->n / (speed[0] * speed[0]);
        variance = (of_mean + all->error * all->error) / (all->left * all->left);
        rest = pp_metric_bound(pp_metric_get(metric),
                               (taken->mean / speed[0] - all->known) / all->left, &variance);
    }
    const double told = speed[1] * (all->known + rest * all->left);
    s->closures[s->n_closures++] = (pp_hold_out){.metric = metric,
                                                 .held = halves[1].mean,
                                                 .difference = told - halves[1].mean,
                                                 .windows = (int64_t)halves[1].n};
    return all->left <= 0 ? 0 : tell_rest(s, metric, rest, sqrt(variance), err);
}

static int close_metric(const pp_problem *p, const pp_regression_metric *m, pp_metric metric,
                        const progress *g, pp_estimates *s, pp_error *err)
{
    half halves[2];
    parts all;
    split(p, m, g, halves);
    const double speed[2] = {speed_of(&halves[0], g), speed_of(&halves[1], g)};
    if (halves[0].n < LEAST_WINDOWS || halves[1].n < LEAST_WINDOWS || s->observed_ns <= 0 ||
        speed[0] <= 0 || speed[1] <= 0 || !add_up(s, metric, &all))
        return 0;
    return close_halves(halves, speed, &all, metric, s, err);
}

int pp_hold_out_compare(const pp_problem *p, pp_estimates *s, pp_error *err)
{
    progress g;
    int rc = make_progress(p, &g, err);
    for (size_t i = 0; rc == 0 && i < p->n_metrics; i++)
        if (pp_metric_is_replayed(p->metric_ids[i]))
            rc = close_metric(p, &p->all[i], p->metric_ids[i], &g, s, err);
    free_progress(&g);
    return rc;
}
