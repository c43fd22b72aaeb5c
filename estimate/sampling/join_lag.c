/* How far the samples' clock is from the kernels'. */
#include "common/cleanup.h"
#include "estimate/sampling/join_internal.h"

#include <math.h>

enum {
    LEAST = 1000, /* samples of a piece: with fewer, edges of kernels are too few */
    PIECES_MAX = 64,
    TOPS = 8,     /* of the coarse scan that are looked at again */
    CLOSELY = 3,  /* of these, that lags of pieces are found for; and the likely one */
    ROUNDS = 2,   /* levels are known better at the lag that those before lead to */
    CHECKED = 40, /* quarters of a sample on either side of the lag that is used */
    HALVINGS = 5, /* from a 16th of the period to a 500th: 50 ns of 25 us */
};

/* ns: a piece is this long; at 7 parts per million the clocks drift by 0.7 us meanwhile. */
#define PIECE INT64_C(100000000)
#define NARROW 20000.0 /* ns: how far the lag of a piece may be from that of the one before */
#define LEAST_CORRELATION 0.3
#define LEAST_EXPLAINED 0.3
#define NEAR_BEST 0.8  /* of what the best of the coarse scan explains: what may be the true one */
#define NOTHING (-1e9) /* less than anything explains */
#define AS_GOOD 0.01   /* of the samples' variance: a lag a step off may explain so little less */
#define CLEARLY_MORE 0.05 /* a lag that is 30 us off explains 0.09 less and more, simulated */
#define NO_WORSE 0.0005   /* of it: levels that were learned at a lag explain more there */
#define LIKELY 100000.0   /* ns: how far the lag may be from the likely one and be it */
#define SURE 10000.0      /* ns: as near it is on every GPU that was looked at */
#define NEARLY 0.02       /* of the variance: an alias of the sure lag may explain so much more */
#define STAYS 0.02        /* and the data's, in a capture after others that went by stamps */
#define CHANCE 2.0        /* standard deviations of what levels learned from noise explain ... */
#define MOST_CHANCE 0.005 /* ... at most */
#define UNSURE 1000.0     /* ns: the lag's standard error where there are too few pieces to tell */
#define RUNS_OUT 0.03     /* of kernels' length: by so much the data's lag was too small on H200s */
#define DRIFTS 2e-6       /* from the ticks' drift: as a clock that nothing sets does, by ... */
#define DRIFTS_SURELY 4.0 /* ... so many of the drift's standard errors, of ... */
#define DRIFTS_PIECES 8   /* ... so many pieces */
#define MOST_DRIFT 12e-6  /* of the stamps': 8e-6 was seen */

/* What kernels add up to of a metric, as it grows along their clock: a corner at each begin and
 * end. */
typedef struct activity {
    int64_t *at;
    double *sum;
    size_t n;
} activity;

static void free_activity(activity *a)
{
    free(a->at);
    free(a->sum);
}

/* `levels`: of a metric, by kind. Where two kernels run side by side the first one counts. */
static int make_activity(const pp_sampling *f, const pp_sampling_kinds *kinds, const double *levels,
                         activity *a, pp_error *err)
{
    *a = (activity){.at = calloc(2 * f->n_kernels, sizeof *a->at),
                    .sum = calloc(2 * f->n_kernels, sizeof *a->sum)};
    if (!a->at || !a->sum) {
        free_activity(a);
        return pp_error_nomem(err);
    }
    double total = 0;
    int64_t covered = INT64_MIN;
    for (size_t i = 0; i < f->n_kernels; i++) {
        const pp_sampling_kernel *k = &f->kernels[i];
        if (k->end <= covered)
            continue;
        int64_t from = k->start > covered ? k->start : covered;
        a->at[a->n] = from;
        a->sum[a->n++] = total;
        total += levels[pp_sampling_kind(kinds, i)] * (double)(k->end - from);
        a->at[a->n] = k->end;
        a->sum[a->n++] = total;
        covered = k->end;
    }
    return 0;
}

/* The sum up to `t`; *hint: where the one before, earlier, was found. */
static double sum_until(const activity *a, double t, size_t *hint)
{
    size_t i = *hint;
    while (i + 1 < a->n && (double)a->at[i + 1] <= t)
        i++;
    *hint = i;
    if (t <= (double)a->at[i] || i + 1 == a->n)
        return a->sum[i];
    double slope = (a->sum[i + 1] - a->sum[i]) / (double)(a->at[i + 1] - a->at[i]);
    return a->sum[i] + slope * (t - (double)a->at[i]);
}

/* A run of samples, of which one metric is looked at. */
typedef struct piece {
    const pp_sampling_sample *samples;
    size_t n;
    int metric;
} piece;

/* First corner that may matter to times from `t` on. */
static size_t corner_before(const activity *b, double t)
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

/* What kernels lead to, and what was sampled. */
typedef struct pairs {
    double n, sx, sy, sxx, syy, sxy;
} pairs;

static void add_pair(pairs *p, double x, double y)
{
    p->n++;
    p->sx += x;
    p->sy += y;
    p->sxx += x * x;
    p->syy += y * y;
    p->sxy += x * y;
}

/* 0 where one of the two does not vary. */
static double correlation_of(const pairs *p)
{
    if (p->n < 2)
        return 0;
    double vx = p->sxx - p->sx * p->sx / p->n;
    double vy = p->syy - p->sy * p->sy / p->n;
    return vx > 0 && vy > 0 ? (p->sxy - p->sx * p->sy / p->n) / sqrt(vx * vy) : 0;
}

/* The mean of a window, from where the one before, earlier, was found. */
static double mean_of(const activity *a, double start, double end, size_t *hint)
{
    double from = sum_until(a, start, hint);
    size_t then = *hint;
    return (sum_until(a, end, &then) - from) / (end - start);
}

/* Correlation of a metric with what its kernels lead to, at a lag. */
static double correlation(const activity *b, const piece *p, double lag)
{
    size_t hint = corner_before(b, (double)p->samples[0].start - lag);
    pairs all = {0};
    for (size_t i = 0; i < p->n; i++) {
        const pp_sampling_sample *s = &p->samples[i];
        if (isfinite(s->values[p->metric]))
            add_pair(&all, mean_of(b, (double)s->start - lag, (double)s->end - lag, &hint),
                     (double)s->values[p->metric]);
    }
    return correlation_of(&all);
}

/* The best lag on a grid about a middle. */
static double scan(const activity *b, const piece *p, double middle, double range, double grid,
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
static double polish(const activity *b, const piece *p, double lag, double step, int halvings)
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

/* A line through the pieces' lags. */
static void fit_line(const double *at, const double *lag, size_t n, pp_sampling_line *ret)
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
    ret->drift_stderr = n > 2 && stt > 0 ? sqrt(rest / (double)(n - 2) / stt) : 0;
    ret->pieces = n;
}

/* ns that a piece takes: samples enough, and not more pieces than are kept. */
static int64_t piece_of(const pp_sampling *f)
{
    int64_t all = f->samples[f->n_samples - 1].end - f->samples[0].start;
    int64_t length = 2 * LEAST * f->sampled > PIECE ? 2 * LEAST * f->sampled : PIECE;
    return length > all / PIECES_MAX ? length : all / PIECES_MAX + 1;
}

/* The lags of pieces that tell theirs, of none where the capture is shorter than a piece. *ret_all:
 * how many there are, with those that do not. */
static size_t find_pieces(const pp_sampling *f, const activity *b, int metric, double lag,
                          double *at, double *found, size_t *ret_all)
{
    size_t n = 0;
    *ret_all = 0;
    int64_t length = piece_of(f);
    for (size_t i = 0, j = 0; i < f->n_samples && n < PIECES_MAX; i = j) {
        while (j < f->n_samples && f->samples[j].start < f->samples[i].start + length)
            j++;
        piece p = {&f->samples[i], j - i, metric};
        double best = 0;
        if (p.n < LEAST)
            continue; /* a hole, or the rest at the end */
        ++*ret_all;
        double near = scan(b, &p, lag, NARROW, (double)f->sampled / 8, &best);
        if (best < LEAST_CORRELATION)
            continue; /* nothing ran, or nothing changed */
        lag = polish(b, &p, near, (double)f->sampled / 16, HALVINGS);
        at[n] =
            (double)f->samples[i].start + (double)(f->samples[j - 1].end - f->samples[i].start) / 2;
        found[n++] = lag;
    }
    return n;
}

static void find_line(const pp_sampling *f, const activity *b, int metric, double lag,
                      pp_sampling_line *ret)
{
    double at[PIECES_MAX], found[PIECES_MAX];
    size_t pieces, n = find_pieces(f, b, metric, lag, at, found, &pieces);
    if (n == 0) {
        piece all = {f->samples, f->n_samples, metric};
        at[0] = (double)f->samples[0].start / 2 + (double)f->samples[f->n_samples - 1].end / 2;
        found[0] = polish(b, &all, lag, (double)f->sampled / 16, HALVINGS);
        n = 1;
    }
    fit_line(at, found, n, ret);
}

/* From a lag that is right to some us. */
static int refine(const pp_sampling *f, pp_sampling_kinds *kinds, int metric,
                  pp_sampling_line *line, pp_error *err)
{
    PP_CLEANUP_FREE double *levels = calloc(pp_sampling_kinds_count(kinds), sizeof *levels);
    if (!levels)
        return pp_error_nomem(err);
    for (int round = 0; round < ROUNDS; round++) {
        activity a;
        pp_sampling_levels(kinds, metric, line, levels);
        if (make_activity(f, kinds, levels, &a, err) < 0)
            return -1;
        find_line(f, &a, metric, line->lag, line);
        free_activity(&a);
    }
    return 0;
}

/* Lags at which kernels explain more than at those beside them, best first. */
typedef struct tops {
    double lag[TOPS], value[TOPS];
    size_t n;
    double mean; /* of all lags of the scan */
} tops;

static void add_top(tops *t, double lag, double value)
{
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

static void find_tops(pp_sampling_kinds *kinds, double middle, double range, double grid, tops *ret)
{
    const int steps = (int)(range / grid);
    double before = NOTHING;
    double here = pp_sampling_explained(kinds, middle - steps * grid);
    ret->n = 0;
    ret->mean = 0;
    for (int i = -steps; i <= steps; i++) {
        ret->mean += here / (2 * steps + 1);
        double after = i < steps ? pp_sampling_explained(kinds, middle + (i + 1) * grid) : NOTHING;
        if (here >= before && here > after)
            add_top(ret, middle + i * grid, here);
        before = here;
        here = after;
    }
}

static bool is_held(const tops *t, double lag)
{
    for (size_t i = 0; i < t->n; i++)
        if (fabs(t->lag[i] - lag) <= NARROW)
            return true;
    return false;
}

static void add_best(pp_sampling_kinds *kinds, double middle, double range, double grid, tops *t)
{
    tops near;
    find_tops(kinds, middle, range, grid, &near);
    if (near.n > 0)
        add_top(t, near.lag[0], near.value[0]);
}

/* The tops of a coarse scan, each looked at again; and the best ones near the likely lag and next
 * to it, if that may be it. At most CLOSELY + 2. */
static void find_near_tops(pp_sampling_kinds *kinds, const pp_sampling_clock *clock, double sampled,
                           tops *ret)
{
    const double grid = sampled / 2;
    tops coarse, near;
    find_tops(kinds, (double)clock->lag, (double)clock->range, grid, &coarse);
    ret->n = 0;
    ret->mean = coarse.mean;
    for (size_t i = 0; i < coarse.n && coarse.value[i] >= NEAR_BEST * coarse.value[0]; i++) {
        find_tops(kinds, coarse.lag[i], grid, grid / 8, &near);
        if (near.n > 0 && !is_held(ret, near.lag[0]))
            add_top(ret, near.lag[0], near.value[0]);
    }
    ret->n = ret->n < CLOSELY ? ret->n : CLOSELY;
    const int64_t off = clock->likely - clock->lag;
    if (off < -clock->range || off > clock->range)
        return;
    add_best(kinds, (double)clock->likely, LIKELY, grid / 4, ret);
    add_best(kinds, (double)clock->likely, SURE, SURE / 4, ret);
}

typedef struct candidate {
    pp_sampling_line line;
    double value; /* what is explained there, of the samples' variance */
} candidate;

/* A metric against what levels of kernels, and nothing between them, lead to: the square of their
 * correlation, 0 where they do not go along. False where the metric does not vary. */
static bool compare(const pp_sampling *f, const pp_sampling_kinds *kinds, const activity *a,
                    int metric, const pp_sampling_line *line, double *ret)
{
    size_t corner = 0, hint = 0;
    pairs all = {0};
    for (size_t i = 0; i < f->n_samples; i++) {
        const pp_sampling_sample *s = &f->samples[i];
        const double off = line->lag + line->drift * (double)(s->start - line->middle);
        const double start = (double)s->start - off, end = (double)s->end - off;
        const double y = (double)s->values[metric];
        if (isfinite(y) && pp_sampling_told(kinds, (start + end) / 2, &hint))
            add_pair(&all, mean_of(a, start, end, &corner), y);
    }
    const double r = fmax(correlation_of(&all), 0);
    *ret = r * r;
    return all.n > 1 && all.syy - all.sy * all.sy / all.n > PP_SAMPLING_VARIES * all.n;
}

/* How much of what samples tell is explained by levels of kernels that are learned there: the mean
 * over the metrics that vary. A kernel that is shorter than a sample has its level diluted, alike
 * for all: so it is the correlation that counts. */
static int evaluate(const pp_sampling *f, pp_sampling_kinds *kinds, candidate *c, pp_error *err)
{
    PP_CLEANUP_FREE double *levels = calloc(pp_sampling_kinds_count(kinds), sizeof *levels);
    const bool *known = pp_sampling_kinds_known(kinds);
    double sum = 0;
    int metrics = 0;
    if (!levels)
        return pp_error_nomem(err);
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        activity a;
        double one = 0;
        if (!known[m])
            continue;
        pp_sampling_levels(kinds, m, &c->line, levels);
        if (make_activity(f, kinds, levels, &a, err) < 0)
            return -1;
        const bool varies = compare(f, kinds, &a, m, &c->line, &one);
        free_activity(&a);
        sum += varies ? one : 0;
        metrics += varies;
    }
    c->value = metrics ? sum / metrics : 0;
    return 0;
}

static bool is_near(const candidate *f, const pp_sampling_clock *clock, double range)
{
    return fabs(f->line.lag - (double)clock->likely) <= range;
}

static bool is_likely(const candidate *f, const pp_sampling_clock *clock)
{
    return is_near(f, clock, LIKELY);
}

/* The best of those that explain nearly as much as the best of all; NULL: none is as near. */
static const candidate *best_near(const candidate *all, size_t n, const candidate *best,
                                  const pp_sampling_clock *clock, double range, double less)
{
    const candidate *found = NULL;
    for (size_t i = 0; i < n; i++)
        if (all[i].value >= best->value - less && is_near(&all[i], clock, range) &&
            (!found || all[i].value > found->value))
            found = &all[i];
    return found;
}

/* Whether all of those that are as good as the best one, of the likely ones only or of all, are one
 * lag. */
static bool is_one(const candidate *all, size_t n, const candidate *best,
                   const pp_sampling_clock *clock, bool likely)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].value >= best->value - AS_GOOD && (!likely || is_likely(&all[i], clock)) &&
            fabs(all[i].line.lag - best->line.lag) > NARROW)
            return false;
    return true;
}

/*
 * Where kernels follow each other in a steady rhythm the lag of a step before or after, of layers
 * that are alike that of a layer, explains nearly as much, or by chance more. NULL where that
 * cannot be told apart.
 */
static const candidate *choose(const candidate *all, size_t n, const pp_sampling_clock *clock)
{
    const candidate *best = &all[0];
    for (size_t i = 1; i < n; i++)
        best = all[i].value > best->value ? &all[i] : best;
    const candidate *sure = best_near(all, n, best, clock, SURE, NEARLY);
    if (sure)
        return sure;
    const candidate *likely = best_near(all, n, best, clock, LIKELY, AS_GOOD);
    if (likely && is_one(all, n, likely, clock, true))
        return likely;
    return is_one(all, n, best, clock, false) ? best : NULL;
}

/* Where the GPU stands still now and then, when it does may tell the lag better: levels are known
 * from the same samples, by the lag before. It is taken where it explains no less. Copies and fills
 * keep SMs as busy as they do. */
static int settle(const pp_sampling *f, pp_sampling_kinds *kinds, int metric, candidate *c,
                  pp_error *err)
{
    const size_t n = pp_sampling_kinds_count(kinds);
    PP_CLEANUP_FREE double *levels = calloc(n, sizeof *levels);
    activity a;
    double at[PIECES_MAX], lags[PIECES_MAX];
    candidate other = *c;
    if (!levels)
        return pp_error_nomem(err);
    pp_sampling_levels(kinds, metric, &c->line, levels);
    for (size_t i = 0; i < f->n_kernels; i++)
        if (f->kernels[i].work == PP_SAMPLING_KERNEL)
            levels[pp_sampling_kind(kinds, i)] = 1;
    if (make_activity(f, kinds, levels, &a, err) < 0)
        return -1;
    size_t all, pieces = find_pieces(f, &a, metric, c->line.lag, at, lags, &all);
    free_activity(&a);
    if (pieces == 0 || 2 * pieces < all)
        return 0;
    fit_line(at, lags, pieces, &other.line);
    if (evaluate(f, kinds, &other, err) < 0)
        return -1;
    *c = other.value > c->value - NO_WORSE ? other : *c;
    return 0;
}

static int look_closely(const pp_sampling *f, pp_sampling_kinds *kinds,
                        const pp_sampling_clock *clock, const tops *t, candidate *ret,
                        pp_error *err)
{
    for (size_t i = 0; i < t->n; i++) {
        ret[i].line = (pp_sampling_line){.lag = t->lag[i]};
        if (refine(f, kinds, clock->metric, &ret[i].line, err) < 0 ||
            evaluate(f, kinds, &ret[i], err) < 0 ||
            settle(f, kinds, clock->metric, &ret[i], err) < 0)
            return -1;
    }
    return 0;
}

/* Whether kernels explain no more of the samples' variance at another lag near the one that is
 * used.
 */
static int check_lag(const pp_sampling *f, pp_sampling_kinds *kinds, int metric,
                     const pp_sampling_line *line, pp_error *err)
{
    const double grid = (double)f->sampled / 4, is = pp_sampling_explained(kinds, line->lag);
    candidate here = {.line = *line}, other = {.line.lag = line->lag};
    double best = is;
    for (int i = -CHECKED; i <= CHECKED; i++) {
        const double value = pp_sampling_explained(kinds, line->lag + i * grid);
        other.line.lag = value > best ? line->lag + i * grid : other.line.lag;
        best = fmax(best, value);
    }
    if (best - is <= CLEARLY_MORE)
        return 0;
    if (evaluate(f, kinds, &here, err) < 0 || refine(f, kinds, metric, &other.line, err) < 0 ||
        evaluate(f, kinds, &other, err) < 0)
        return -1;
    return other.value - here.value > NEARLY
               ? pp_error_set(err, PP_ERR_NOT_FOUND,
                              "kernels explain samples better at another lag (%.2f, and %.2f)",
                              other.value, here.value)
               : 0;
}

/* ns: the length of a kernel, by what each takes of the time. */
static double usual_length(const pp_sampling *f)
{
    double time = 0, squares = 0;
    for (size_t i = 0; i < f->n_kernels; i++) {
        const pp_sampling_kernel *k = &f->kernels[i];
        const double length = k->work == PP_SAMPLING_KERNEL ? (double)(k->end - k->start) : 0;
        time += length;
        squares += length * length;
    }
    return time > 0 ? squares / time : 0;
}

/* Whether it is another clock, which passes the stamps' lag by on its way. */
static bool is_drifting(const pp_sampling_line *line, const pp_sampling_line *stamps)
{
    const double by = fabs(line->drift - stamps->drift);
    return fabs(stamps->drift) > MOST_DRIFT || (line->pieces >= DRIFTS_PIECES && by > DRIFTS &&
                                                by > DRIFTS_SURELY * line->drift_stderr);
}

/* How much more of the variance another lag than the stamps' may explain. */
static double may_explain(const pp_sampling *f, const pp_sampling_kinds *kinds,
                          const pp_sampling_clock *clock)
{
    const double noise = sqrt(2.0 * (double)pp_sampling_kinds_count(kinds));
    return (clock->stamped ? STAYS : AS_GOOD) +
           fmin(CHANCE * noise / (double)f->n_samples, MOST_CHANCE);
}

/*
 * The likely lag is that of a clock by which the driver stamps samples: data tell that they go by
 * it, and how far it is worse than it does. A kernel is recorded to its last block's end and runs
 * out before, so that its samples seem to be early and the data's lag is too small, in all captures
 * alike. That is taken where it explains clearly more, drifts, or is larger, which does not come of
 * kernels that run out; the stamps' else, where no other lag explains more than that is.
 */
static int use_stamps(const pp_sampling *f, pp_sampling_kinds *kinds,
                      const pp_sampling_clock *clock, const candidate *chosen,
                      const pp_sampling_line *line, pp_sampling_line *ret, pp_error *err)
{
    pp_error why = {0}; /* the stamps' lag is none */
    candidate stamps = {.line = *line};
    *ret = chosen->line;
    ret->common_ns = RUNS_OUT * usual_length(f);
    if (!is_likely(chosen, clock) || chosen->line.lag - stamps.line.lag > SURE ||
        is_drifting(&chosen->line, &stamps.line))
        return 0;
    if (evaluate(f, kinds, &stamps, err) < 0)
        return -1;
    if (chosen->value - stamps.value > may_explain(f, kinds, clock))
        return 0;
    if (check_lag(f, kinds, clock->metric, &stamps.line, &why) == 0)
        *ret = stamps.line;
    else if (why.code != PP_ERR_NOT_FOUND)
        return pp_error_set(err, why.code, "%s", why.message);
    return 0;
}

static int find_lag(const pp_sampling *f, pp_sampling_kinds *kinds, const pp_sampling_clock *told,
                    pp_sampling_line *ret, pp_error *err)
{
    const pp_sampling_line stamps = pp_sampling_line_of_stamps(f, told);
    pp_sampling_clock at_middle = *told;
    const pp_sampling_clock *clock = &at_middle;
    at_middle.likely = (int64_t)stamps.lag;
    candidate all[CLOSELY + 2] = {0};
    tops t;
    find_near_tops(kinds, clock, (double)f->sampled, &t);
    if (t.n == 0 || t.value[0] < LEAST_EXPLAINED)
        return pp_error_set(err, PP_ERR_NOT_FOUND,
                            "samples and kernels go together at no lag (%.2f at best)",
                            t.n ? t.value[0] : 0);
    if (look_closely(f, kinds, clock, &t, all, err) < 0)
        return -1;
    const candidate *chosen = choose(all, t.n, clock);
    if (!chosen || t.value[0] < t.mean + AS_GOOD)
        return pp_error_set(err, PP_ERR_NOT_FOUND,
                            "samples and kernels go together at several lags (%.2f at each)",
                            all[0].value);
    if (chosen->value < LEAST_EXPLAINED ||
        fabs(chosen->line.lag - (double)clock->lag) > (double)clock->range + NARROW)
        return pp_error_set(err, PP_ERR_NOT_FOUND,
                            "samples and kernels go together at no lag (%.2f at best)",
                            chosen->value);
    if (use_stamps(f, kinds, clock, chosen, &stamps, ret, err) < 0)
        return -1;
    ret->lag += (double)clock->error;
    if (ret->stamped && clock->error == 0)
        return 0; /* checked already */
    return check_lag(f, kinds, clock->metric, ret, err);
}

int pp_sampling_find_lag(const pp_sampling *f, const pp_sampling_clock *clock,
                         pp_sampling_line *ret, pp_error *err)
{
    if (f->n_samples < LEAST || f->n_kernels == 0)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "%zu samples and %zu kernels are too few",
                            f->n_samples, f->n_kernels);
    pp_sampling_kinds *kinds = pp_sampling_kinds_new(f, err);
    if (!kinds)
        return -1;
    int rc = find_lag(f, kinds, clock, ret, err);
    pp_sampling_kinds_free(kinds);
    return rc;
}
