#include "estimate/sampling/solve.h"

#include "common/draw.h"
#include "common/vector.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Entries of the matrix, 8 bytes each. */
#define ENTRIES_MAX ((size_t)16 << 20)

/* Widths of the prior of long gaps, as shares of a metric's range: at most, and at least. */
#define LONG_GAP 0.2
#define LEAST_GAP 0.01
#define WRITTEN_GAP 0.05 /* of memory, to which caches are written back */

/* ns: how far off the lag may be beyond what the captures say. A kernel's record is 0.9 to 1.4 us
 * longer than its blocks run, and where in it they do no sample tells; with kernels of known
 * activity the lag was off by 0.1 to 0.8 us (docs/sampling.md). */
#define LAG_STDERR 250.0

/* What speaks against values: where no kernel runs a metric of the SMs is not 0, in so many gaps at
 * least; captures before explain less of the samples' variance, or items' means worse than is said.
 */
#define LEAST_GAPS 10
#define MAX_GAP 0.01
#define GAP_STDERRS 3
#define LEAST_EXPLAINED 0.8
#define MAX_ITEMS_Z 3.0

enum { ROUNDS = 8, GAP_ROUNDS = 6, PROBES = 8 };
/* Widths and noise that change by less are found. */
#define SETTLED 0.02

typedef struct solving {
    unsigned without; /* pp_sampling_solution_part */
    pp_sampling_whole whole;
    pp_sampling_prior *prior;
    pp_arrow matrix; /* of columns and, behind them, parts of groups of kernels that are alike */
    double *clock;   /* of each column over PP_SAMPLING_RATED_GHZ ... */
    bool clocked;    /* ... where it is known: what is told of cycles is a rate */
    double idle_clock, mean_clock; /* GHz: of gaps, and of all samples */
    double *share;                 /* of each column, of the captures that know the metric ... */
    double *held;                  /* ... and the same of their windows that are held out */
    double *theta;                 /* the metric's estimates, as many as the matrix has rows */
    double *rest;                  /* n for each capture: X' (y - X theta) of its windows */
    double *shift;                 /* as many: what samples that lie 1 ns later do to X'y */
    double *clock_moves;           /* of each item n_captures: GHz for each ns of a lag */
    double *clock_variance;        /* of each item's clock, but what its lag does */
    double *z, *signs;             /* scratch, as many */
    double *times;                 /* n for each capture: ns of its kernels' parts */
    pp_sampling_causes *causes;    /* of each item */
    double *errors;
    double noise; /* variance of what is left of a sample */
    pp_sampling_result *result;
} solving;

static bool has(const solving *s, pp_sampling_solution_part part)
{
    return !(s->without & (unsigned)part);
}

/* In the order of keys. */
static const pp_sampling_key *key_of(const solving *s, size_t i)
{
    return &s->whole.columns[s->whole.by_key[i]].key;
}

/* ---- the matrix ---- */

static void widen(uint32_t *first, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b;
    uint32_t high = a < b ? b : a;
    if (low < first[high])
        first[high] = low;
}

static int shape_matrix(solving *s, pp_error *err)
{
    const pp_sampling_whole *w = &s->whole;
    uint32_t *first = malloc((w->n + 1) * sizeof *first);
    pp_arrow_span *spans = calloc(w->n + 1, sizeof *spans);
    if (!first || !spans) {
        free(first);
        free(spans);
        return pp_error_nomem(err);
    }
    for (size_t i = 0; i < w->n; i++)
        first[i] = (uint32_t)i;
    for (size_t g = 0; g < w->n_captures; g++)
        for (size_t p = 0; p < w->captures[g]->n_pairs; p++)
            widen(first, w->index[g][w->captures[g]->pairs[p].a],
                  w->index[g][w->captures[g]->pairs[p].b]);
    pp_prior_widen(s->prior, first, spans);
    return pp_arrow_init(&s->matrix, w->n, pp_prior_size(s->prior) - w->n, first, spans,
                         ENTRIES_MAX, err);
}

/* Samples of one gap go along: its sum counts once. */
static double gap_squares(const pp_sampling_predicted *p, double mean)
{
    return fmax(p->gap_yy - 2 * mean * p->gap_yn + mean * mean * p->gap_nn, 0);
}

static pp_sampling_predicted predicted(const solving *s, int m)
{
    pp_sampling_predicted p = {0};
    for (size_t g = 0; g < s->whole.n_captures; g++)
        if (s->whole.captures[g]->known[m])
            pp_sampling_predicted_add(&p, &s->whole.captures[g]->predicted[m]);
    return p;
}

/* Whether samples of a metric are a share times the clock. */
static bool is_rate(const solving *s, int m)
{
    return s->clocked && pp_sampling_is_of_cycles(m);
}

/* What samples of a metric are over the shares that they tell: where they are rates, their clock.
 */
static double rate_of_all(const solving *s, int m)
{
    return is_rate(s, m) ? s->mean_clock / PP_SAMPLING_RATED_GHZ : 1;
}

/* Samples that lie in gaps tell what gaps are like: where no kernel runs no SM is active, unless
 * others use the GPU. Less is known of the time right behind a kernel, in which what it leaves may
 * be written to memory. */
static void begin_prior(solving *s, int m)
{
    const pp_sampling_predicted p = predicted(s, m);
    double mean = 0, width = LONG_GAP;
    if (m != PP_SAMPLING_CLOCK && p.gaps >= LEAST_GAPS && has(s, PP_SAMPLING_GAPS)) {
        const double least = pp_metric_get((pp_metric)m)->within_sms ? LEAST_GAP : WRITTEN_GAP;
        mean = p.gap_y / p.gap_samples;
        const double differ = sqrt(gap_squares(&p, mean) * p.gaps) / p.gap_samples;
        width = fmin(fmax(differ, least), LONG_GAP);
    }
    pp_prior_begin(s->prior, &s->whole, s->share, m, mean, width);
}

/* What the captures that know a metric have of each column. */
static void find_shares(solving *s, int m)
{
    const pp_sampling_whole *w = &s->whole;
    memset(s->share, 0, w->n * sizeof *s->share);
    memset(s->held, 0, w->n * sizeof *s->held);
    for (size_t g = 0; g < w->n_captures; g++) {
        const pp_sampling_sums *f = w->captures[g];
        for (size_t i = 0; f->known[m] && i < f->n; i++) {
            s->share[w->index[g][i]] += f->columns[i].share;
            s->held[w->index[g][i]] += f->columns[i].held;
        }
    }
}

/* X'X plus the prior, by the variance of a sample. */
static bool fill_and_factor(solving *s, int m)
{
    const pp_sampling_whole *w = &s->whole;
    pp_arrow_clear(&s->matrix);
    for (size_t g = 0; g < w->n_captures; g++)
        for (size_t p = 0; w->captures[g]->known[m] && p < w->captures[g]->n_pairs; p++) {
            const pp_sampling_pair *pair = &w->captures[g]->pairs[p];
            pp_arrow_add(&s->matrix, w->index[g][pair->a], w->index[g][pair->b], pair->sum);
        }
    pp_prior_add(s->prior, s->noise, &s->matrix);
    return pp_arrow_factor(&s->matrix);
}

/* ---- one metric ---- */

static void solve_theta(solving *s, int m)
{
    for (size_t i = 0; i < pp_prior_size(s->prior); i++)
        s->theta[i] = i < s->whole.n ? s->whole.columns[i].rhs[m] : 0;
    pp_prior_add_means(s->prior, s->noise, s->theta);
    pp_arrow_solve(&s->matrix, s->theta);
}

/* X' (y - X theta) of each capture; returns the sum of all squares that are left. */
static double find_rest(solving *s, int m)
{
    const pp_sampling_whole *w = &s->whole;
    double left = w->yy[m];
    memset(s->rest, 0, w->n * w->n_captures * sizeof *s->rest);
    for (size_t g = 0; g < w->n_captures; g++) {
        const pp_sampling_sums *f = w->captures[g];
        const uint32_t *index = w->index[g];
        double *rest = s->rest + g * w->n;
        if (!f->known[m])
            continue;
        for (size_t i = 0; i < f->n; i++) {
            const pp_sampling_column *c = &f->columns[i];
            const double rhs =
                m == PP_SAMPLING_CLOCK ? pp_clock_slower(c, c->share, s->idle_clock) : c->rhs[m];
            rest[index[i]] += rhs;
            left -= rhs * s->theta[index[i]];
        }
        for (size_t p = 0; p < f->n_pairs; p++) {
            uint32_t a = index[f->pairs[p].a];
            uint32_t b = index[f->pairs[p].b];
            rest[a] -= f->pairs[p].sum * s->theta[b];
            if (a != b)
                rest[b] -= f->pairs[p].sum * s->theta[a];
        }
        for (size_t i = 0; i < f->n; i++)
            left -= rest[index[i]] * s->theta[index[i]];
    }
    return left;
}

/* +1 or -1, drawn by where it stands. */
static double sign_of(size_t i, int probe)
{
    return pp_draw((uint64_t)i * PROBES + (uint64_t)probe) & 1 ? 1 : -1;
}

/* How many values the samples decide, and not the prior: the trace of (X'X + P)^-1 X'X, which is
 * what n less that of (X'X + P)^-1 P is (MacKay 1992, doi:10.1162/neco.1992.4.3.415), by random
 * signs (Hutchinson 1989, doi:10.1080/03610918908812806). Of all values, and of each class. */
static double decided(solving *s, double of[PP_PRIOR_CLASSES])
{
    const size_t n = pp_prior_size(s->prior);
    double all = (double)n;
    for (int c = 0; c < PP_PRIOR_CLASSES; c++)
        of[c] = pp_prior_free_values(s->prior, (pp_prior_class)c);
    for (int probe = 0; probe < PROBES; probe++) {
        double trace[PP_PRIOR_CLASSES];
        for (size_t i = 0; i < n; i++)
            s->z[i] = s->signs[i] = sign_of(i, probe);
        pp_arrow_solve(&s->matrix, s->z);
        pp_prior_product(s->prior, s->signs, s->z, trace);
        for (int c = 0; c < PP_PRIOR_CLASSES; c++) {
            of[c] -= s->noise * trace[c] / PROBES;
            all -= s->noise * trace[c] / PROBES;
        }
    }
    return all;
}

static int factor_and_solve(solving *s, int m, pp_error *err)
{
    if (!fill_and_factor(s, m))
        return pp_error_set(err, PP_ERR_INTERNAL, "sums that no samples have");
    solve_theta(s, m);
    return 0;
}

/* Noise and the prior's widths by what was solved, and that by them, in turn. */
static int settle(solving *s, int m, pp_error *err)
{
    const double windows = s->whole.with[m];
    double change = 1;
    for (int round = 0; round < ROUNDS && change > SETTLED; round++) {
        const double before = s->noise;
        double of[PP_PRIOR_CLASSES];
        const double left = find_rest(s, m), all = decided(s, of);
        const double free = has(s, PP_SAMPLING_DECIDED) ? windows - all : windows;
        s->noise = fmax(1e-8, left / fmax(windows / 10, free));
        change = fabs(s->noise / before - 1);
        if (has(s, PP_SAMPLING_SCALE))
            change = fmax(change, pp_prior_rescale(s->prior, s->theta, of));
        if (factor_and_solve(s, m, err) < 0)
            return -1;
    }
    return 0;
}

/* A gap in which something ran takes what it has from its neighbours, and may show others. */
static int find_work(solving *s, int m, pp_error *err)
{
    const bool for_all = pp_metric_get((pp_metric)m)->within_sms;
    int round = 0;
    while (round < GAP_ROUNDS &&
           pp_prior_find_work(s->prior, &s->matrix, s->noise, s->theta, s->z, for_all)) {
        round++;
        if (factor_and_solve(s, m, err) < 0)
            return -1;
    }
    return round > 0 ? settle(s, m, err) : 0;
}

static int fit(solving *s, int m, pp_error *err)
{
    const pp_sampling_whole *w = &s->whole;
    const double mean = w->y[m] / w->with[m];
    s->noise = fmax(1e-8, (w->yy[m] / w->with[m] - mean * mean) / 10);
    find_shares(s, m);
    begin_prior(s, m);
    if (factor_and_solve(s, m, err) < 0 || settle(s, m, err) < 0)
        return -1;
    if (m != PP_SAMPLING_CLOCK && has(s, PP_SAMPLING_WORK) && find_work(s, m, err) < 0)
        return -1;
    (void)find_rest(s, m);
    return 0;
}

/* ---- items ---- */

static void add_item_times(solving *s, pp_sampling_item *item, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const pp_sampling_column *c = &s->whole.columns[s->whole.by_key[i]];
        if (c->key.gap)
            continue;
        item->time += c->time;
        item->kernels += c->key.part == 0 ? c->count : 0;
    }
}

/* By how much a column's value counts in its item's mean, which is over time. */
static double weight_of(const solving *s, const pp_sampling_item *item, uint32_t column, int m)
{
    const double share = s->whole.columns[column].time / item->time;
    return is_rate(s, m) ? share / s->clock[column] : share;
}

/* What X'y of each capture changes by where its samples lie 1 ns later: by what runs at their ends
 * less what runs at their begins. Left by an item's z it is what the item's mean is off by for each
 * ns that the capture's lag is too long. */
static void find_shift(solving *s, int m)
{
    const pp_sampling_whole *w = &s->whole;
    memset(s->shift, 0, w->n * w->n_captures * sizeof *s->shift);
    for (size_t g = 0; g < w->n_captures; g++) {
        const pp_sampling_sums *f = w->captures[g];
        double *to = s->shift + g * w->n;
        for (size_t p = 0; f->known[m] && p < f->n_pairs; p++) {
            const pp_sampling_pair *pair = &f->pairs[p];
            const uint32_t i = w->index[g][pair->a], j = w->index[g][pair->b];
            to[i] += pair->shift_a * s->theta[j];
            to[j] += pair->shift_b * s->theta[i];
        }
        if (f->known[m])
            pp_prior_add_shift(s->prior, s->noise, s->share, to);
    }
}

/* The variance that comes of the lags' errors, and what the item's mean is off by for each ns of
 * all. A rate's clock is off with it: of a share it takes its part away again. */
static double lag_variance(solving *s, size_t item, int m, double mean, double *ret_per_ns)
{
    const pp_sampling_whole *w = &s->whole;
    double *clock = s->clock_moves + item * w->n_captures;
    double all = 0, common = 0, own = 0;
    for (size_t g = 0; g < w->n_captures; g++) {
        const pp_sampling_sums *f = w->captures[g];
        double moves = pp_dot(s->z, s->shift + g * w->n, w->n);
        if (m == PP_SAMPLING_CLOCK)
            clock[g] = moves = -moves; /* it is solved as what it is slower by */
        else if (is_rate(s, m))
            moves -= mean * clock[g] / s->result->items[item].mean[PP_SAMPLING_CLOCK];
        all += moves;
        common += moves * (double)f->lag_common;
        own += pow(moves * (double)f->lag_stderr, 2);
    }
    *ret_per_ns = all;
    return pow(LAG_STDERR * all, 2) + common * common + own;
}

/* Of the variance of z' X' y: what the prior's width is, and not the samples' noise. */
static double prior_variance(const solving *s)
{
    double of[PP_PRIOR_CLASSES], sum = 0;
    pp_prior_product(s->prior, s->z, s->z, of);
    for (int c = 0; c < PP_PRIOR_CLASSES; c++)
        sum += of[c];
    return s->noise * s->noise * sum;
}

/* How many captures an item is in, as many as would be with as much time of it each. */
static double count_captures(const solving *s, size_t from, size_t to, int m)
{
    const pp_sampling_whole *w = &s->whole;
    double sum = 0, squares = 0;
    for (size_t g = 0; g < w->n_captures; g++) {
        double time = 0;
        for (size_t i = from; i < to && w->captures[g]->known[m]; i++)
            time += s->times[g * w->n + s->whole.by_key[i]];
        sum += time;
        squares += time * time;
    }
    return squares > 0 ? sum * sum / squares : 1;
}

static pp_sampling_causes estimate_item(solving *s, pp_sampling_item *item, size_t from, size_t to,
                                        int m)
{
    const pp_sampling_whole *w = &s->whole;
    pp_sampling_causes c = {.count = count_captures(s, from, to, m)};
    memset(s->z, 0, pp_prior_size(s->prior) * sizeof *s->z);
    for (size_t i = from; i < to; i++) {
        uint32_t at = s->whole.by_key[i];
        if (w->columns[at].key.gap)
            continue;
        s->z[at] = weight_of(s, item, at, m);
        c.mean += s->z[at] * s->theta[at];
    }
    pp_arrow_solve(&s->matrix, s->z);
    for (size_t i = from; i < to; i++) {
        uint32_t at = s->whole.by_key[i];
        if (!w->columns[at].key.gap)
            c.samples += s->noise * weight_of(s, item, at, m) * s->z[at];
    }
    c.prior = fmin(prior_variance(s), c.samples);
    c.samples -= c.prior;
    for (size_t g = 0; g < w->n_captures && c.count > 1 && has(s, PP_SAMPLING_BETWEEN); g++) {
        const double moved = pp_dot(s->z, s->rest + g * w->n, w->n);
        c.captures += moved * moved * c.count / (c.count - 1);
    }
    const size_t at_item = (size_t)(item - s->result->items);
    const double lag = lag_variance(s, at_item, m, c.mean, &item->per_ns[m]);
    c.lag = has(s, PP_SAMPLING_LAG) ? lag : 0;
    if (is_rate(s, m))
        c.clock = s->clock_variance[at_item] * pow(c.mean / item->mean[PP_SAMPLING_CLOCK], 2);
    return c;
}

/* The columns of an item, by their keys: from `from` to before what is returned. */
static size_t end_of_item(const solving *s, size_t from)
{
    size_t to = from + 1;
    while (to < s->whole.n && key_of(s, to)->layer == key_of(s, from)->layer &&
           key_of(s, to)->phase == key_of(s, from)->phase)
        to++;
    return to;
}

/* Sums may be of several captures. */
static double captures_of(const pp_sampling_whole *w)
{
    double n = 0;
    for (size_t g = 0; g < w->n_captures; g++)
        n += w->captures[g]->captures;
    return n;
}

static void estimate_metric(solving *s, int m)
{
    const pp_sampling_whole *w = &s->whole;
    pp_sampling_result *r = s->result;
    size_t n = 0;
    find_shift(s, m);
    for (size_t from = 0, to; from < w->n; from = to) {
        to = end_of_item(s, from);
        s->causes[n] = estimate_item(s, &r->items[n], from, to, m);
        n++;
    }
    r->between[m] =
        pp_sampling_errors(s->causes, n, s->errors) * sqrt(captures_of(w) / (double)w->n_captures);
    for (size_t i = 0; i < n; i++) {
        r->items[i].mean[m] = fmax(0, fmin(1, s->causes[i].mean));
        r->items[i].stderr_of[m] = s->errors[i];
        if (m == PP_SAMPLING_CLOCK) /* without the lag, which moves it and a share's rate at once */
            s->clock_variance[i] = s->errors[i] * s->errors[i] - s->causes[i].lag;
    }
    double sum = 0;
    for (size_t i = 0; i < w->n; i++)
        sum += s->held[i] * s->theta[i];
    const double rate = rate_of_all(s, m);
    r->noise[m] = sqrt(s->noise) / rate;
    r->held[m] = w->held_y[m] / w->held_with[m] / rate; /* NaN where there are none */
    r->closure[m] = sum / w->held_with[m] / rate - r->held[m];
}

/* What slows the clock down becomes a clock; nothing runs at none, or at a multiple of all's. */
static void keep_clock(solving *s)
{
    const int m = PP_SAMPLING_CLOCK;
    const double least = s->mean_clock / 4, most = s->mean_clock * 4;
    pp_sampling_result *r = s->result;
    for (size_t i = 0; i < s->whole.n; i++) {
        s->theta[i] = fmax(least, fmin(s->idle_clock - s->theta[i], most));
        s->clock[i] = s->theta[i] / PP_SAMPLING_RATED_GHZ;
    }
    for (size_t i = 0; i < r->n; i++)
        r->items[i].mean[m] = fmax(least, fmin(s->idle_clock - s->causes[i].mean, most));
    r->noise[m] = r->between[m] = r->held[m] = r->closure[m] = (double)NAN;
    s->clocked = true;
}

/* By their keys. */
static void keep_values(solving *s, int m)
{
    pp_sampling_result *r = s->result;
    for (size_t i = 0; i < s->whole.n; i++)
        r->values[m][i] = s->theta[s->whole.by_key[i]];
}

static pp_sampling_doubt doubt_of(const pp_sampling_quality *q, bool idle_is_zero)
{
    if (idle_is_zero && q->gap - GAP_STDERRS * q->gap_stderr > MAX_GAP)
        return PP_SAMPLING_TENANT;
    return q->explained < LEAST_EXPLAINED || q->items_z > MAX_ITEMS_Z ? PP_SAMPLING_UNEXPLAINED
                                                                      : PP_SAMPLING_FITS;
}

static double gap_error(const pp_sampling_predicted *p, double mean)
{
    return sqrt(gap_squares(p, mean) * p->gaps / (p->gaps - 1)) / p->gap_samples;
}

static void judge(const solving *s, int m, pp_sampling_quality *ret)
{
    const pp_sampling_predicted p = predicted(s, m);
    const double rate = rate_of_all(s, m);
    const double total = p.yy - p.y * p.y / fmax(p.n, 1);
    *ret = (pp_sampling_quality){
        .explained = total > PP_SAMPLING_VARIES * p.n ? 1 - p.rest / total : (double)NAN,
        .miss = sqrt(p.rest / p.n) / rate,
        .items = p.items,
        .items_z =
            sqrt(p.z2 / (p.items + s->result->between[m] * s->result->between[m] * p.squares)),
        .gap = p.gaps >= LEAST_GAPS ? p.gap_y / p.gap_samples / rate : (double)NAN,
    };
    ret->gap_stderr = gap_error(&p, ret->gap * rate) / rate;
    ret->doubt = doubt_of(ret, pp_metric_get((pp_metric)m)->within_sms);
}

static void unknown_metric(solving *s, int m)
{
    pp_sampling_result *r = s->result;
    for (size_t i = 0; i < r->n; i++)
        r->items[i].mean[m] = r->items[i].stderr_of[m] = r->items[i].per_ns[m] = (double)NAN;
    for (size_t i = 0; i < s->whole.n; i++)
        r->values[m][i] = (double)NAN;
    r->noise[m] = r->between[m] = r->held[m] = r->closure[m] = (double)NAN;
}

/* ---- all ---- */

static int list_items(solving *s, pp_error *err)
{
    const pp_sampling_whole *w = &s->whole;
    s->result = calloc(1, sizeof *s->result);
    if (!s->result)
        return pp_error_nomem(err);
    s->result->items = calloc(w->n + 1, sizeof *s->result->items);
    s->result->keys = calloc(w->n + 1, sizeof *s->result->keys);
    s->result->values[0] = calloc(w->n * PP_SAMPLING_METRICS + 1, sizeof(double));
    if (!s->result->items || !s->result->keys || !s->result->values[0])
        return pp_error_nomem(err);
    for (int m = 1; m < PP_SAMPLING_METRICS; m++)
        s->result->values[m] = s->result->values[0] + (size_t)m * w->n;
    s->result->n_columns = w->n;
    for (size_t i = 0; i < w->n; i++)
        s->result->keys[i] = *key_of(s, i);
    for (size_t from = 0, to; from < w->n; from = to) {
        to = end_of_item(s, from);
        pp_sampling_item *item = &s->result->items[s->result->n++];
        item->layer = key_of(s, from)->layer;
        item->phase = key_of(s, from)->phase;
        add_item_times(s, item, from, to);
    }
    return 0;
}

static void tell_lags(const pp_sampling_sums *const *captures, size_t n, pp_sampling_result *ret)
{
    double windows = 0, stamped = 0, common = 0;
    for (size_t g = 0; g < n; g++) {
        const double of = (double)captures[g]->windows;
        windows += of;
        stamped += captures[g]->stamped ? of : 0;
        common += of * (double)captures[g]->lag_common;
    }
    ret->stamped = 2 * stamped > windows;
    ret->lag_common = windows > 0 ? common / windows : 0;
}

static int prepare(solving *s, const pp_sampling_sums *const *captures, size_t n, pp_error *err)
{
    if (pp_sampling_whole_make(&s->whole, captures, n, err) < 0)
        return -1;
    if (s->whole.windows < 1 || s->whole.n == 0)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "no sample fell on a kernel");
    if (pp_prior_new(&s->whole, has(s, PP_SAMPLING_LINKS), has(s, PP_SAMPLING_ALIKE), &s->prior,
                     err) < 0)
        return -1;
    const size_t size = s->whole.n, rows = pp_prior_size(s->prior);
    s->share = malloc(size * sizeof *s->share);
    s->held = malloc(size * sizeof *s->held);
    s->clock = malloc(size * sizeof *s->clock);
    s->theta = malloc(rows * sizeof *s->theta);
    s->shift = malloc(size * n * sizeof *s->shift);
    s->clock_moves = calloc(size * n, sizeof *s->clock_moves);
    s->clock_variance = calloc(size, sizeof *s->clock_variance);
    s->z = malloc(rows * sizeof *s->z);
    s->signs = malloc(rows * sizeof *s->signs);
    s->rest = malloc(size * n * sizeof *s->rest);
    s->times = calloc(size * n, sizeof *s->times);
    s->causes = malloc(size * sizeof *s->causes);
    s->errors = malloc(size * sizeof *s->errors);
    if (!s->share || !s->held || !s->clock || !s->theta || !s->shift || !s->clock_moves ||
        !s->clock_variance || !s->z || !s->signs || !s->rest || !s->times || !s->causes ||
        !s->errors)
        return pp_error_nomem(err);
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; i < captures[g]->n; i++)
            if (!captures[g]->columns[i].key.gap)
                s->times[g * size + s->whole.index[g][i]] += captures[g]->columns[i].time;
    if (list_items(s, err) < 0)
        return -1;
    tell_lags(captures, n, s->result);
    return shape_matrix(s, err);
}

static void judge_all(solving *s)
{
    pp_sampling_result *r = s->result;
    bool tenant = false;
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        if (m == PP_SAMPLING_CLOCK)
            continue; /* it is what it is, whoever uses the GPU */
        judge(s, m, &r->quality[m]);
        tenant |= r->quality[m].doubt == PP_SAMPLING_TENANT;
    }
    /* Whoever else uses the GPU adds to all of its metrics. */
    for (int m = 0; m < PP_SAMPLING_METRICS && tenant; m++)
        if (m != PP_SAMPLING_CLOCK)
            r->quality[m].doubt = PP_SAMPLING_TENANT;
}

static int solve_metric(solving *s, int m, pp_error *err)
{
    if (s->whole.with[m] < 1) {
        unknown_metric(s, m);
        return 0;
    }
    if (fit(s, m, err) < 0)
        return -1;
    estimate_metric(s, m);
    if (m == PP_SAMPLING_CLOCK)
        keep_clock(s);
    keep_values(s, m);
    return 0;
}

/* First, since others are over it. */
static int solve_clock(solving *s, pp_error *err)
{
    const int m = PP_SAMPLING_CLOCK;
    if (s->whole.with[m] >= 1) {
        const pp_sampling_predicted p = predicted(s, m);
        s->mean_clock = s->whole.y[m] / s->whole.with[m];
        s->idle_clock = p.gaps >= LEAST_GAPS ? p.gap_y / p.gap_samples : s->mean_clock;
        find_shares(s, m);
        pp_clock_slow_down(&s->whole, s->share, s->idle_clock);
    }
    return solve_metric(s, m, err);
}

/* What one metric sees run in a gap is there for all of them: those that were solved before that
 * was known are solved again. */
static int solve_metrics(solving *s, pp_error *err)
{
    size_t known[PP_SAMPLING_METRICS];
    for (int m = 0; m < PP_SAMPLING_METRICS; m++)
        known[m] = SIZE_MAX;
    bool all = false;
    for (int round = 0; round < GAP_ROUNDS && !all; round++) {
        all = true;
        for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
            if (m == PP_SAMPLING_CLOCK || known[m] == pp_prior_worked(s->prior))
                continue;
            if (solve_metric(s, m, err) < 0)
                return -1;
            known[m] = pp_prior_worked(s->prior);
            all = false;
        }
    }
    return 0;
}

static int solve(solving *s, pp_error *err)
{
    if (solve_clock(s, err) < 0)
        return -1;
    if (solve_metrics(s, err) < 0)
        return -1;
    judge_all(s);
    s->result->windows = (uint64_t)s->whole.windows;
    return 0;
}

int pp_sampling_solve(const pp_sampling_sums *const *captures, size_t n, pp_sampling_result **ret,
                      pp_error *err)
{
    return pp_sampling_solve_without(0, captures, n, ret, err);
}

int pp_sampling_solve_without(unsigned parts, const pp_sampling_sums *const *captures, size_t n,
                              pp_sampling_result **ret, pp_error *err)
{
    solving s = {.without = parts};
    int rc = prepare(&s, captures, n, err);
    if (rc == 0)
        rc = solve(&s, err);
    pp_sampling_whole_free(&s.whole);
    pp_arrow_free(&s.matrix);
    pp_prior_free(s.prior);
    free(s.share);
    free(s.held);
    free(s.clock);
    free(s.theta);
    free(s.shift);
    free(s.clock_moves);
    free(s.clock_variance);
    free(s.rest);
    free(s.z);
    free(s.signs);
    free(s.times);
    free(s.causes);
    free(s.errors);
    if (rc < 0)
        pp_sampling_result_free(s.result);
    else
        *ret = s.result;
    return rc;
}

void pp_sampling_result_free(pp_sampling_result *r)
{
    if (!r)
        return;
    free(r->items);
    free(r->keys);
    free(r->values[0]);
    free(r);
}
