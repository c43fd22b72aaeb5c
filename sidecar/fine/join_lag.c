/* How far the samples' clock is from the kernels'. */
#include "common/cleanup.h"
#include "sidecar/fine/join_internal.h"

#include <math.h>

enum {
    LEAST = 1000, /* samples of a piece: with fewer, edges of kernels are too few */
    PIECES_MAX = 64,
    COARSE_SAMPLES = 8000,
    TOPS = 8,     /* of the coarse scan that are looked at again */
    HALVINGS = 5, /* from a 16th of the period to a 500th: 50 ns of 25 us */
};

/* ns: a piece is this long; at 7 parts per million the clocks drift by 0.7 us meanwhile. */
#define PIECE INT64_C(100000000)
#define NARROW 20000.0 /* ns: how far the lag of a piece may be from that of the one before */
#define LEAST_CORRELATION 0.3
#define NEAR_BEST 0.8 /* of the coarse scan's best correlation: what may be the true one */
#define UNSURE 1000.0 /* ns: the lag's standard error where there are too few pieces to tell */

/* Time with a kernel, as it grows along the kernels' clock: a corner at each begin and end. */
typedef struct busy {
    int64_t *at;
    int64_t *sum;
    size_t n;
} busy;

static int make_busy(const pp_fine *f, busy *b, pp_error *err)
{
    *b = (busy){.at = calloc(2 * f->n_kernels, sizeof *b->at),
                .sum = calloc(2 * f->n_kernels, sizeof *b->sum)};
    if (!b->at || !b->sum) {
        free(b->at);
        free(b->sum);
        return pp_error_nomem(err);
    }
    int64_t total = 0;
    int64_t covered = INT64_MIN;
    for (size_t i = 0; i < f->n_kernels; i++) {
        const pp_fine_kernel *k = &f->kernels[i];
        if (k->end <= covered)
            continue;
        int64_t from = k->start > covered ? k->start : covered;
        b->at[b->n] = from;
        b->sum[b->n++] = total;
        total += k->end - from;
        b->at[b->n] = k->end;
        b->sum[b->n++] = total;
        covered = k->end;
    }
    return 0;
}

/* Time with a kernel up to `t`; *hint: where the one before, earlier, was found. */
static double busy_until(const busy *b, double t, size_t *hint)
{
    size_t i = *hint;
    while (i + 1 < b->n && (double)b->at[i + 1] <= t)
        i++;
    *hint = i;
    if (t <= (double)b->at[i])
        return (double)b->sum[i];
    if (i + 1 == b->n)
        return (double)b->sum[i];
    double slope = (double)(b->sum[i + 1] - b->sum[i]) / (double)(b->at[i + 1] - b->at[i]);
    return (double)b->sum[i] + slope * (t - (double)b->at[i]);
}

/* A run of samples, of which one metric is looked at. */
typedef struct piece {
    const pp_fine_sample *samples;
    size_t n;
    int metric;
} piece;

/* First corner that may matter to times from `t` on. */
static size_t corner_before(const busy *b, double t)
{
    size_t low = 0, high = b->n;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if ((double)b->at[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Correlation of a metric with the share of its windows in which a kernel ran, at a lag. */
static double correlation(const busy *b, const piece *p, double lag)
{
    size_t hint = corner_before(b, (double)p->samples[0].start - lag);
    double n = 0, sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
    for (size_t i = 0; i < p->n; i++) {
        const pp_fine_sample *s = &p->samples[i];
        if (!isfinite(s->values[p->metric]))
            continue;
        double start = (double)s->start - lag;
        double end = (double)s->end - lag;
        double from = busy_until(b, start, &hint);
        size_t then = hint;
        double x = (busy_until(b, end, &then) - from) / (end - start);
        double y = (double)s->values[p->metric];
        sx += x;
        sy += y;
        sxx += x * x;
        syy += y * y;
        sxy += x * y;
        n++;
    }
    if (n < 2)
        return 0;
    double vx = sxx - sx * sx / n;
    double vy = syy - sy * sy / n;
    return vx > 0 && vy > 0 ? (sxy - sx * sy / n) / sqrt(vx * vy) : 0;
}

/* The best lag on a grid about a middle. */
static double scan(const busy *b, const piece *p, double middle, double range, double grid,
                   double *ret_best)
{
    double at = middle;
    double best = -1;
    const int steps = (int)(range / grid);
    for (int i = -steps; i <= steps; i++) {
        double lag = middle + i * grid;
        double c = correlation(b, p, lag);
        if (c > best) {
            best = c;
            at = lag;
        }
    }
    *ret_best = best;
    return at;
}

/* The top of the parabola through three lags `step` apart, which is halved so many times. */
static double polish(const busy *b, const piece *p, double lag, double step, int halvings)
{
    for (int i = 0; i <= halvings; i++, step /= 2) {
        double before = correlation(b, p, lag - step);
        double here = correlation(b, p, lag);
        double after = correlation(b, p, lag + step);
        double curve = before - 2 * here + after;
        double move = curve < 0 ? (before - after) / (2 * curve) : 0;
        lag += step * fmax(-1, fmin(1, move));
    }
    return lag;
}

/* Lags at which the two go together better than beside them, best first. */
typedef struct tops {
    double lag[TOPS], value[TOPS];
    size_t n;
} tops;

/* Of tops nearer to each other than pieces' lags may be the best: the others are the same one. */
static void add_top(tops *t, double lag, double value)
{
    for (size_t i = 0; i < t->n; i++) {
        if (fabs(t->lag[i] - lag) > NARROW)
            continue;
        if (t->value[i] >= value)
            return;
        t->n--;
        for (; i < t->n; i++) {
            t->lag[i] = t->lag[i + 1];
            t->value[i] = t->value[i + 1];
        }
    }
    size_t at = t->n;
    while (at > 0 && t->value[at - 1] < value)
        at--;
    if (at == TOPS)
        return;
    t->n += t->n < TOPS;
    for (size_t i = t->n - 1; i > at; i--) {
        t->lag[i] = t->lag[i - 1];
        t->value[i] = t->value[i - 1];
    }
    t->lag[at] = lag;
    t->value[at] = value;
}

/* Over samples of some steps, on a grid that hits every top. */
static void find_tops(const busy *b, const piece *all, const pp_fine_clock *clock, double grid,
                      tops *ret)
{
    piece some = *all;
    if (all->n > COARSE_SAMPLES) {
        some.samples += (all->n - COARSE_SAMPLES) / 2;
        some.n = COARSE_SAMPLES;
    }
    const int steps = (int)((double)clock->range / grid);
    double before = -1;
    double here = correlation(b, &some, (double)clock->lag - steps * grid);
    ret->n = 0;
    for (int i = -steps; i <= steps; i++) {
        double after = i < steps ? correlation(b, &some, (double)clock->lag + (i + 1) * grid) : -1;
        if (here >= before && here > after)
            add_top(ret, (double)clock->lag + i * grid, here);
        before = here;
        here = after;
    }
}

/* A line through the pieces' lags. */
static void fit_line(const double *at, const double *lag, size_t n, pp_fine_line *ret)
{
    double st = 0, sl = 0;
    for (size_t i = 0; i < n; i++) {
        st += at[i];
        sl += lag[i];
    }
    double mt = st / (double)n;
    double ml = sl / (double)n;
    double stt = 0, stl = 0, rest = 0;
    for (size_t i = 0; i < n; i++) {
        stt += (at[i] - mt) * (at[i] - mt);
        stl += (at[i] - mt) * (lag[i] - ml);
    }
    ret->middle = (int64_t)mt;
    ret->lag = ml;
    ret->drift = n > 2 && stt > 0 ? stl / stt : 0;
    for (size_t i = 0; i < n; i++) {
        double d = lag[i] - ml - ret->drift * (at[i] - mt);
        rest += d * d;
    }
    ret->stderr_ns = n > 2 ? sqrt(rest / (double)(n - 2) / (double)n) : UNSURE;
}

/* ns that a piece takes: samples enough, and not more pieces than are kept. */
static int64_t piece_of(const pp_fine *f)
{
    int64_t all = f->samples[f->n_samples - 1].end - f->samples[0].start;
    int64_t length = 2 * LEAST * f->sampled > PIECE ? 2 * LEAST * f->sampled : PIECE;
    return length > all / PIECES_MAX ? length : all / PIECES_MAX + 1;
}

/* The lags of pieces that tell theirs, of none where the stretch is shorter than a piece; and how
 * well they go together on average, those with them that tell nothing; below 0 where there are no
 * pieces. */
static size_t find_pieces(const pp_fine *f, const busy *b, int metric, double lag, double *at,
                          double *found, double *ret_mean)
{
    size_t n = 0, looked = 0;
    double sum = 0;
    int64_t length = piece_of(f);
    for (size_t i = 0, j = 0; i < f->n_samples && n < PIECES_MAX; i = j) {
        while (j < f->n_samples && f->samples[j].start < f->samples[i].start + length)
            j++;
        piece p = {&f->samples[i], j - i, metric};
        double best = 0;
        if (p.n < LEAST)
            continue; /* a hole, or the rest at the end */
        double near = scan(b, &p, lag, NARROW, (double)f->sampled / 8, &best);
        sum += best;
        looked++;
        if (best < LEAST_CORRELATION)
            continue; /* nothing ran, or all the time */
        lag = polish(b, &p, near, (double)f->sampled / 16, HALVINGS);
        at[n] =
            (double)f->samples[i].start + (double)(f->samples[j - 1].end - f->samples[i].start) / 2;
        found[n++] = lag;
    }
    *ret_mean = looked ? sum / (double)looked : -1;
    return n;
}

static void find_line(const pp_fine *f, const busy *b, int metric, double lag, pp_fine_line *ret)
{
    double at[PIECES_MAX], found[PIECES_MAX], mean;
    size_t n = find_pieces(f, b, metric, lag, at, found, &mean);
    if (n == 0) {
        piece all = {f->samples, f->n_samples, metric};
        at[0] = (double)f->samples[0].start / 2 + (double)f->samples[f->n_samples - 1].end / 2;
        found[0] = polish(b, &all, lag, (double)f->sampled / 16, HALVINGS);
        n = 1;
    }
    fit_line(at, found, n, ret);
}

/*
 * Where kernels follow each other in a steady rhythm the lag of a step before or after comes close:
 * over some steps it may even be better. Over all of the stretch steps are not alike, so that is
 * what decides among the tops, each followed through it.
 */
static double find_first(const pp_fine *f, const busy *b, const pp_fine_clock *clock,
                         double *ret_best)
{
    double at[PIECES_MAX], found[PIECES_MAX];
    const piece all = {f->samples, f->n_samples, clock->metric};
    const double grid = (double)f->sampled / 2;
    double lag = (double)clock->lag, best = -1;
    tops t;
    find_tops(b, &all, clock, grid, &t);
    *ret_best = t.n ? t.value[0] : 0;
    for (size_t i = 0; i < t.n && t.value[i] >= NEAR_BEST * t.value[0]; i++) {
        double mean, fine;
        double near = scan(b, &all, t.lag[i], grid, grid / 8, &fine);
        (void)find_pieces(f, b, clock->metric, near, at, found, &mean);
        double value = mean >= 0 ? mean : fine;
        if (value > best) {
            best = value;
            lag = near;
        }
    }
    return lag;
}

int pp_fine_find_lag(const pp_fine *f, const pp_fine_clock *clock, pp_fine_line *ret, pp_error *err)
{
    busy b;
    double best = 0;
    if (f->n_samples < LEAST || f->n_kernels == 0)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "%zu samples and %zu kernels are too few",
                            f->n_samples, f->n_kernels);
    if (make_busy(f, &b, err) < 0)
        return -1;
    double lag = find_first(f, &b, clock, &best);
    if (best >= LEAST_CORRELATION)
        find_line(f, &b, clock->metric, lag, ret);
    free(b.at);
    free(b.sum);
    if (best < LEAST_CORRELATION)
        return pp_error_set(err, PP_ERR_NOT_FOUND,
                            "samples and kernels go together at no lag (%.2f at best)", best);
    return 0;
}
