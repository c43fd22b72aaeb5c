/*
 * Scrapes: the samples of all metrics on common stamps, which of them read a new collection, and
 * the phase at which collections are published.
 *
 * The exporter publishes at phase + k W. Two scrapes less than W apart that read the same floats
 * saw no publication between them; two that differ saw one. Each such pair admits an arc of phases
 * (modulo W); the phase that most pairs admit is taken, with the width of its arc as uncertainty.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/regression.h"
#include "estimate/regression/scrapes.h"

/* DCGM's blank values: int64 0x7ffffffffffffff0 and above, fp64 0x1p47 and above. */
#define BLANK_FROM 140737488355328.0
/* How long an exporter that was started reads 0: so many windows, and at least so many ns. */
#define START_WINDOWS 10
#define START_LEAST 3e9
/* Of what was read against what repeats and changes say, in log likelihood. */
#define CONTRADICTION 6.0

typedef struct point {
    double stamp;
    double value;
} point;

static int order_point(const void *pa, const void *pb)
{
    const point *a = pa, *b = pb;
    if (a->stamp != b->stamp)
        return a->stamp < b->stamp ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

static int order_double(const void *pa, const void *pb)
{
    const double *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

/** Measured averages carry noise: a little outside of the range is clamped, more is dropped. */
static bool value_take(const pp_regression_metric *m, double *value)
{
    double v = *value;
    if (!isfinite(v) || fabs(v) >= BLANK_FROM)
        return false;
    if (isnan(m->min))
        return true;
    double slack = 0.02 * (m->max - m->min);
    if (v < m->min - slack || v > m->max + slack)
        return false;
    *value = v < m->min ? m->min : v > m->max ? m->max : v;
    return true;
}

/** Valid points of one metric in order of time, one per stamp; returns how many. */
static size_t points_take(const pp_regression_metric *m, int64_t base_ns, point *out,
                          size_t *dropped)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_samples; i++) {
        point p = {0, m->samples[i].value};
        int64_t stamp = m->samples[i].stamp_ns;
        if (stamp < 0 || stamp > PP_REG_MAX_TIME_NS || !value_take(m, &p.value)) {
            (*dropped)++;
            continue;
        }
        p.stamp = (double)(stamp - base_ns);
        out[n++] = p;
    }
    qsort(out, n, sizeof *out, order_point);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (k > 0 && out[i].stamp == out[k - 1].stamp) {
            *dropped += out[i].value != out[k - 1].value;
            continue;
        }
        out[k++] = out[i];
    }
    return k;
}

static size_t stamps_unique(double *stamps, size_t n)
{
    qsort(stamps, n, sizeof *stamps, order_double);
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (k == 0 || stamps[i] != stamps[k - 1])
            stamps[k++] = stamps[i];
    return k;
}

/** Lays the points of all metrics (points[first[m]] ..) on the union of their stamps. */
static int scrapes_align(pp_reg_scrapes *s, const point *points, const size_t *first, pp_error *err)
{
    size_t total = first[s->n_metrics];
    s->stamps = malloc((total + 1) * sizeof *s->stamps);
    if (!s->stamps)
        return pp_error_nomem(err);
    for (size_t i = 0; i < total; i++)
        s->stamps[i] = points[i].stamp;
    s->n = stamps_unique(s->stamps, total);
    s->values = malloc((s->n * s->n_metrics + 1) * sizeof *s->values);
    s->change = calloc(s->n + 1, sizeof *s->change);
    if (!s->values || !s->change)
        return pp_error_nomem(err);
    for (size_t m = 0; m < s->n_metrics; m++) {
        size_t k = first[m];
        for (size_t j = 0; j < s->n; j++) {
            bool here = k < first[m + 1] && points[k].stamp == s->stamps[j];
            s->values[m * s->n + j] = here ? points[k].value : (double)NAN;
            k += here;
        }
    }
    return 0;
}

static int scrapes_read(pp_reg_scrapes *s, const pp_regression_input *in, const uint32_t *order,
                        int64_t base_ns, pp_error *err)
{
    size_t total = 0, n = 0;
    for (size_t m = 0; m < in->n_metrics; m++)
        total += in->metrics[m].n_samples;
    PP_CLEANUP_FREE point *points = malloc((total + 1) * sizeof *points);
    PP_CLEANUP_FREE size_t *first = calloc(in->n_metrics + 1, sizeof *first);
    s->dropped = calloc(in->n_metrics + 1, sizeof *s->dropped);
    s->kept = calloc(in->n_metrics + 1, sizeof *s->kept);
    if (!points || !first || !s->dropped || !s->kept)
        return pp_error_nomem(err);
    for (size_t m = 0; m < in->n_metrics; m++) {
        s->kept[m] = points_take(&in->metrics[order[m]], base_ns, points + n, &s->dropped[m]);
        n += s->kept[m];
        first[m + 1] = n;
    }
    s->n_metrics = in->n_metrics;
    return scrapes_align(s, points, first, err);
}

/**
 * Marks the values of one metric that a new collection would hardly repeat: measured fractions
 * that occur in one run only. Integers (MiB, percent) and the bounds repeat by themselves.
 */
static int distinctive(const pp_reg_scrapes *s, const pp_regression_metric *spec, size_t metric,
                       bool *ret, pp_error *err)
{
    const double *v = s->values + metric * s->n;
    PP_CLEANUP_FREE double *runs = malloc((s->n + 1) * sizeof *runs);
    if (!runs)
        return pp_error_nomem(err);
    size_t n = 0;
    double last = (double)NAN;
    for (size_t j = 0; j < s->n; j++) {
        if (isnan(v[j]) || v[j] == last)
            continue;
        last = runs[n++] = v[j];
    }
    qsort(runs, n, sizeof *runs, order_double);
    for (size_t j = 0; j < s->n; j++) {
        ret[j] = false;
        if (isnan(v[j]) || v[j] == floor(v[j]) || v[j] == spec->min || v[j] == spec->max)
            continue;
        const double *hit = bsearch(&v[j], runs, n, sizeof *runs, order_double);
        bool twice = (hit > runs && hit[-1] == v[j]) || (hit + 1 < runs + n && hit[1] == v[j]);
        ret[j] = !twice;
    }
    return 0;
}

/** Compares each scrape with the one before. */
static int changes_find(pp_reg_scrapes *s, const pp_regression_input *in, const uint32_t *order,
                        pp_error *err)
{
    PP_CLEANUP_FREE bool *mark = malloc(s->n + 1);
    PP_CLEANUP_FREE bool *equal = calloc(s->n + 1, 1);
    if (!mark || !equal)
        return pp_error_nomem(err);
    for (size_t m = 0; m < s->n_metrics; m++) {
        const double *v = s->values + m * s->n;
        if (distinctive(s, &in->metrics[order[m]], m, mark, err) < 0)
            return -1;
        for (size_t j = 1; j < s->n; j++) {
            if (isnan(v[j]) || isnan(v[j - 1]))
                continue;
            if (v[j] != v[j - 1])
                s->change[j] = PP_REG_CHANGED;
            /* distinctive() sets all of it */
            /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch) */
            else if (mark[j])
                equal[j] = true;
        }
    }
    for (size_t j = 1; j < s->n; j++)
        if (s->change[j] != PP_REG_CHANGED && equal[j])
            s->change[j] = PP_REG_SAME;
    return 0;
}

static int scrape_interval(pp_reg_scrapes *s, int64_t hint, pp_error *err)
{
    s->scrape = (double)hint;
    if (hint > 0 || s->n < 2)
        return 0;
    PP_CLEANUP_FREE double *gaps = malloc(s->n * sizeof *gaps);
    if (!gaps)
        return pp_error_nomem(err);
    for (size_t j = 1; j < s->n; j++)
        gaps[j - 1] = s->stamps[j] - s->stamps[j - 1];
    qsort(gaps, s->n - 1, sizeof *gaps, order_double);
    s->scrape = gaps[(s->n - 1) / 2];
    return 0;
}

/** Without a hint: scrapes that repeat tell W above S; else W is taken to be S. */
static double window_guess(const pp_reg_scrapes *s)
{
    double changed = 0, same = 0;
    for (size_t j = 1; j < s->n; j++) {
        changed += s->change[j] == PP_REG_CHANGED;
        same += s->change[j] == PP_REG_SAME;
    }
    if (changed < 1 || changed / (changed + same) > 0.9)
        return s->scrape;
    double guess = s->scrape * (changed + same) / changed;
    static const double common[] = {1e8, 2e8, 2.5e8, 5e8, 1e9, 2e9, 5e9, 1e10, 1.5e10, 3e10, 6e10};
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        if (fabs(guess / common[i] - 1) < 0.07)
            return common[i];
    return guess;
}

/** Equal for longer than one collection lasts: the exporter stands still. */
static void stale_mark(pp_reg_scrapes *s)
{
    double since = s->n ? s->stamps[0] : 0;
    for (size_t j = 1; j < s->n; j++) {
        if (s->change[j] != PP_REG_SAME)
            since = s->stamps[j];
        else if (s->stamps[j] - since > 1.5 * s->window + s->scrape)
            s->change[j] = PP_REG_STALE;
    }
}

/** An exporter that was just started reads 0 before it has measured. What is 0 for longer is so. */
static void start_mark(pp_reg_scrapes *s, const pp_regression_input *in, const uint32_t *order)
{
    double limit = fmax(START_WINDOWS * s->window, START_LEAST);
    double since = -PP_REG_INF; /* the latest long pause */
    bool starting = false;
    for (size_t j = 1; j < s->n; j++) {
        bool pause = s->stamps[j] - s->stamps[j - 1] > pp_reg_pause(s);
        bool least = false, more = false;
        for (size_t m = 0; m < s->n_metrics; m++) {
            double v = s->values[m * s->n + j], min = in->metrics[order[m]].min;
            least |= v == min;
            more |= v > min;
        }
        since = pause ? s->stamps[j] : since;
        starting = (starting || pause) && least && !more && s->stamps[j] - since <= limit;
        if (starting)
            s->change[j] = PP_REG_STALE;
    }
}

typedef struct turn {
    double at; /* on the circle of length W */
    int step;
} turn;

static int order_turn(const void *pa, const void *pb)
{
    const turn *a = pa, *b = pb;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->step > b->step) - (a->step < b->step);
}

static double wrap(double t, double w)
{
    double r = fmod(t, w);
    return r < 0 ? r + w : r;
}

/** Turning points of the number of pairs that admit a phase; *score begins as that at 0. */
static size_t turns_collect(const pp_reg_scrapes *s, turn *turns, int *score, int *changed)
{
    size_t n = 0;
    double jitter = s->jitter;
    *score = *changed = 0;
    for (size_t j = 1; j < s->n; j++) {
        int sign = s->change[j] == PP_REG_CHANGED ? 1 : s->change[j] == PP_REG_SAME ? -1 : 0;
        /* Publications jitter: a change admits a little more, a repeat excludes a little less. */
        double start = s->stamps[j - 1] - sign * jitter, end = s->stamps[j] + sign * jitter;
        if (sign == 0 || end - start >= s->window || end <= start)
            continue;
        double from = wrap(start, s->window), to = wrap(end, s->window);
        turns[n++] = (turn){from, sign};
        turns[n++] = (turn){to, -sign};
        *score += from > to ? sign : 0;
        *changed += sign > 0;
    }
    return n;
}

/** Widest arc around the best score whose score is nearly as good. */
static void arc_best(pp_reg_scrapes *s, const turn *turns, const int *score, size_t n, int slack)
{
    size_t best = 0;
    double best_width = -1;
    for (size_t i = 0; i < n; i++) {
        double width =
            i + 1 < n ? turns[i + 1].at - turns[i].at : turns[0].at + s->window - turns[i].at;
        if (score[i] > score[best] || (score[i] == score[best] && width > best_width)) {
            best = i;
            best_width = width;
        }
    }
    size_t low = best, high = best, steps = 0;
    while (steps < n && score[(low + n - 1) % n] >= score[best] - slack) {
        low = (low + n - 1) % n;
        steps++;
    }
    while (steps < n && score[(high + 1) % n] >= score[best] - slack) {
        high = (high + 1) % n;
        steps++;
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there is a turn, so n is not 0 */
    double from = turns[low].at, to = turns[(high + 1) % n].at;
    double width = steps >= n - 1 ? s->window : wrap(to - from, s->window);
    s->half = 0.5 * width;
    s->phase = wrap(from + s->half, s->window);
}

/** Phase opposite to where the scrapes fall; *concentration is 1 where all fall on one point. */
static double opposite(const pp_reg_scrapes *s, double *concentration)
{
    const double turn_rad = 2 * 3.14159265358979323846;
    double c = 0, d = 0;
    for (size_t j = 0; j < s->n; j++) {
        double a = wrap(s->stamps[j], s->window) / s->window * turn_rad;
        c += cos(a);
        d += sin(a);
    }
    *concentration = s->n ? sqrt(c * c + d * d) / (double)s->n : 1;
    return wrap((atan2(d, c) / turn_rad + 0.5) * s->window, s->window);
}

/** Scrapes strictly inside the arc: they read one window or the next, depending on the phase. */
static double inside(const pp_reg_scrapes *s)
{
    size_t n = 0;
    for (size_t j = 0; j < s->n; j++) {
        double off = wrap(s->stamps[j] - s->phase + s->half, s->window);
        n += off > 0.02 * s->window && off < 2 * s->half - 0.02 * s->window;
    }
    return s->n ? (double)n / (double)s->n : 0;
}

/** Phase, half width and how many pairs contradict it, at the present jitter. */
static size_t phase_at(pp_reg_scrapes *s, turn *turns, int *score, size_t *ret_against)
{
    int at, changed;
    size_t n = turns_collect(s, turns, &at, &changed);
    *ret_against = 0;
    if (n < 8)
        return n;
    qsort(turns, n, sizeof *turns, order_turn);
    int best = at;
    for (size_t i = 0; i < n; i++) {
        at += turns[i].step;
        score[i] = at;
        best = at > best ? at : best;
    }
    arc_best(s, turns, score, n, 1 + (int)(n / 400));
    *ret_against = (size_t)(changed - best);
    return n;
}

/** The least jitter at which nearly all pairs agree on a phase. */
static int phase_find(pp_reg_scrapes *s, pp_error *err)
{
    PP_CLEANUP_FREE turn *turns = malloc((2 * s->n + 1) * sizeof *turns);
    PP_CLEANUP_FREE int *score = malloc((2 * s->n + 1) * sizeof *score);
    if (!turns || !score)
        return pp_error_nomem(err);
    size_t n = 0, against = 0;
    double least = fmin(fmax(0.02 * s->window, 2e6), 0.1 * s->window);
    for (s->jitter = least; s->jitter <= 0.25 * s->window; s->jitter *= 1.6) {
        n = phase_at(s, turns, score, &against);
        if (against * 200 <= n)
            break;
    }
    s->grid = against * 8 <= n;
    if (n >= 8) {
        s->searched = s->half > 0.1 * s->window && inside(s) > 0.05;
        return 0;
    }
    double concentration;
    s->half = 0.5 * s->window;
    s->phase = opposite(s, &concentration);
    s->searched = concentration < 0.9 || (s->scrape > 1.2 * s->window && concentration < 0.999);
    return 0;
}

double pp_reg_change_cost(int8_t change, double step)
{
    if (step < 0)
        return PP_REG_INF;
    if (change == PP_REG_SAME || change == PP_REG_STALE)
        return step > 0 ? CONTRADICTION : 0;
    if (change == PP_REG_CHANGED)
        return step > 0 ? 0 : CONTRADICTION;
    return 0;
}

int pp_reg_scrapes_set_window(pp_reg_scrapes *s, double window, pp_error *err)
{
    s->window = window;
    return phase_find(s, err);
}

int pp_reg_scrapes_init(pp_reg_scrapes *s, const pp_regression_input *in, const uint32_t *order,
                        int64_t base_ns, pp_error *err)
{
    memset(s, 0, sizeof *s);
    s->since_before = in->options.since_before;
    if (scrapes_read(s, in, order, base_ns, err) < 0 || changes_find(s, in, order, err) < 0 ||
        scrape_interval(s, in->options.scrape_ns, err) < 0)
        goto fail;
    s->window = in->options.window_ns > 0 ? (double)in->options.window_ns : window_guess(s);
    if (s->window > 0) {
        stale_mark(s);
        start_mark(s, in, order);
        if (phase_find(s, err) < 0)
            goto fail;
    }
    return 0;
fail:
    pp_reg_scrapes_done(s);
    return -1;
}

static int scrapes_alloc(pp_reg_scrapes *s, pp_error *err)
{
    s->stamps = calloc(s->n + 1, sizeof *s->stamps);
    s->values = calloc(s->n * s->n_metrics + 1, sizeof *s->values);
    s->change = calloc(s->n + 1, sizeof *s->change);
    s->dropped = calloc(s->n_metrics + 1, sizeof *s->dropped);
    s->kept = calloc(s->n_metrics + 1, sizeof *s->kept);
    return s->stamps && s->values && s->change && s->dropped && s->kept ? 0 : pp_error_nomem(err);
}

static void scrapes_copy(const pp_reg_scrapes *from, const bool *pick, pp_reg_scrapes *to)
{
    size_t n = 0;
    for (size_t j = 0; j < from->n; j++) {
        if (!pick[j])
            continue;
        if ((j > 0 && pick[j - 1]) || from->change[j] == PP_REG_STALE)
            to->change[n] = from->change[j]; /* else it is not known */
        to->stamps[n++] = from->stamps[j];
    }
    n = 0;
    for (size_t m = 0; m < from->n_metrics; m++) {
        to->dropped[m] = from->dropped[m];
        for (size_t j = 0; j < from->n; j++) {
            double v = from->values[m * from->n + j];
            if (pick[j])
                to->values[n++] = v;
            to->kept[m] += pick[j] && !isnan(v);
            to->dropped[m] += !pick[j] && !isnan(v);
        }
    }
}

int pp_reg_scrapes_pick(const pp_reg_scrapes *from, const bool *pick, pp_reg_scrapes *to,
                        pp_error *err)
{
    memset(to, 0, sizeof *to);
    for (size_t j = 0; j < from->n; j++)
        to->n += pick[j];
    to->n_metrics = from->n_metrics;
    to->scrape = from->scrape;
    to->window = from->window;
    to->since_before = from->since_before;
    if (scrapes_alloc(to, err) == 0) {
        scrapes_copy(from, pick, to);
        if (phase_find(to, err) == 0)
            return 0;
    }
    pp_reg_scrapes_done(to);
    return -1;
}

void pp_reg_scrapes_done(pp_reg_scrapes *s)
{
    free(s->stamps);
    free(s->values);
    free(s->change);
    free(s->dropped);
    free(s->kept);
    memset(s, 0, sizeof *s);
}
