#include "estimate/times/spread.h"

#include "common/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCKS = 24,     /* of all steps: few enough to be long, many enough to have a spread */
    LEAST_UNITS = 8, /* whose spread says anything */
    LEAST_IN_BLOCK = 2,
};

/* More would leave next to nothing of any number of steps. */
#define MOST_MEMORY 0.95

/* Of the median step: runs whose steps take longer have a pause in them. */
#define PAUSED 2

typedef struct step {
    int64_t process, capture;
    double ns;
    double pieces; /* ns of its pieces together */
    uint32_t block;
} step;

typedef struct piece {
    uint32_t item, step;
    double ns, busy; /* busy NaN: not known */
} piece;

typedef struct run {
    double steps, ns;
} run;

/* An item's values of each step. */
typedef struct series {
    double *ns, *busy, *known; /* known: of ns, in pieces whose busy time is */
} series;

struct pp_spread {
    bool coarse; /* single steps' times are not known */
    step *steps;
    size_t n_steps, room_steps;
    piece *pieces; /* once settled by item; those of none are last */
    size_t n_pieces, room_pieces;
    size_t *first; /* of each item's pieces, and of those after the last item's */
    uint32_t n_items;
    run *runs;
    size_t n_runs, room_runs;
    size_t n_blocks;
    double *values[3]; /* of each step: room of a series */
};

pp_spread *pp_spread_new(void)
{
    return calloc(1, sizeof(pp_spread));
}

void pp_spread_free(pp_spread *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < sizeof s->values / sizeof *s->values; i++)
        free(s->values[i]);
    free(s->first);
    free(s->steps);
    free(s->pieces);
    free(s->runs);
    free(s);
}

int pp_spread_step(pp_spread *s, int64_t process, int64_t capture, int64_t ns, size_t *ret,
                   pp_error *err)
{
    if (s->n_steps == UINT32_MAX)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "there are too many steps");
    if (pp_array_reserve(&s->steps, &s->room_steps, s->n_steps + 1, sizeof *s->steps, err) < 0)
        return -1;
    s->steps[s->n_steps] = (step){.process = process, .capture = capture, .ns = (double)ns};
    *ret = s->n_steps++;
    return 0;
}

int pp_spread_add(pp_spread *s, const pp_spread_piece *p, pp_error *err)
{
    if (p->step >= s->n_steps)
        return pp_error_set(err, PP_ERR_INVALID, "a piece is of no step");
    if (pp_array_reserve(&s->pieces, &s->room_pieces, s->n_pieces + 1, sizeof *s->pieces, err) < 0)
        return -1;
    s->pieces[s->n_pieces++] = (piece){p->item, (uint32_t)p->step, (double)p->ns,
                                       p->busy_ns < 0 ? (double)NAN : (double)p->busy_ns};
    if (p->item != PP_SPREAD_REST) {
        s->steps[p->step].pieces += (double)p->ns;
        s->n_items = p->item >= s->n_items ? p->item + 1 : s->n_items;
    }
    s->coarse |= p->coarse;
    return 0;
}

int pp_spread_count(pp_spread *s, int64_t steps, int64_t ns, pp_error *err)
{
    if (pp_array_reserve(&s->runs, &s->room_runs, s->n_runs + 1, sizeof *s->runs, err) < 0)
        return -1;
    s->runs[s->n_runs++] = (run){(double)steps, (double)ns};
    return 0;
}

/* ---- means and their standard errors ---- */

/* Of means over units of so many steps each. */
typedef struct units {
    double n, weight, sum;        /* sum: of weight times value */
    double squares, cross, whole; /* of weight^2: times value^2, times value, by itself */
} units;

static void add_unit(units *u, double weight, double sum)
{
    if (!(weight > 0))
        return;
    const double value = sum / weight;
    u->n++;
    u->weight += weight;
    u->sum += sum;
    u->squares += weight * weight * value * value;
    u->cross += weight * weight * value;
    u->whole += weight * weight;
}

/* Of a ratio of sums (Cochran: Sampling Techniques, 1977, 6.3). */
static pp_spread_mean tell(const units *u)
{
    if (u->n < LEAST_UNITS)
        return (pp_spread_mean){(double)NAN, (double)NAN, (double)NAN};
    const double mean = u->sum / u->weight;
    const double squares = u->squares - 2 * mean * u->cross + mean * mean * u->whole;
    return (pp_spread_mean){mean, sqrt(fmax(squares, 0) * u->n / (u->n - 1)) / u->weight, u->n - 1};
}

static pp_spread_mean larger(pp_spread_mean a, pp_spread_mean b)
{
    if (isnan(a.standard_error) || isnan(b.standard_error))
        return isnan(a.standard_error) ? b : a;
    return b.standard_error > a.standard_error ? b : a;
}

static bool follows(const step *now)
{
    return now->process == now[-1].process && now->capture == now[-1].capture;
}

/* Blocks are within a capture of a process, and about as long as each other. */
static void deal_blocks(pp_spread *s)
{
    const size_t ideal = s->n_steps / BLOCKS;
    const size_t length = ideal > LEAST_IN_BLOCK ? ideal : LEAST_IN_BLOCK;
    size_t in_block = 0;
    s->n_blocks = 0;
    for (size_t i = 0; i < s->n_steps; i++) {
        step *now = &s->steps[i];
        if (i == 0 || !follows(now) || in_block == length) {
            s->n_blocks++;
            in_block = 0;
        }
        in_block++;
        now->block = (uint32_t)(s->n_blocks - 1);
    }
}

/* A mean over all steps: of `values`, or of their ratio to `weights`, which is the same with
 * weights of 1 (NULL). */
typedef struct ratio {
    const double *values, *weights;
} ratio;

static double weight_of(const ratio *r, size_t at)
{
    return r->weights ? r->weights[at] : 1;
}

/* How much of what a step is off by the next one is off by, too: the autocorrelation at a lag of
 * one, less what it is too low by in so few steps (Kendall: Biometrika 41, 1954, 403-404). */
static double memory_of(const pp_spread *s, const ratio *r, double mean)
{
    double cross = 0, squares = 0, n = 0;
    for (size_t i = 1; i < s->n_steps; i++) {
        if (!follows(&s->steps[i]))
            continue;
        const double now = r->values[i] - mean * weight_of(r, i);
        const double before = r->values[i - 1] - mean * weight_of(r, i - 1);
        cross += now * before;
        squares += pow(now, 2) / 2 + pow(before, 2) / 2;
        n++;
    }
    const double c = squares > 0 ? cross / squares : 0;
    return n > 0 ? fmin(fmax(c + (1 + 3 * c) / n, 0), MOST_MEMORY) : 0;
}

/* Steps that remember the one before are worth fewer (Bence: Ecology 76, 1995, 628-639). */
static pp_spread_mean tell_of_singles(const pp_spread *s, const ratio *r)
{
    units single = {0};
    for (size_t i = 0; i < s->n_steps; i++)
        add_unit(&single, weight_of(r, i), r->values[i]);
    pp_spread_mean t = tell(&single);
    const double memory = isnan(t.standard_error) ? 0 : memory_of(s, r, t.mean);
    const double lost = (1 + memory) / (1 - memory);
    t.standard_error *= sqrt(lost);
    t.freedom = isnan(t.standard_error) ? t.freedom : fmax(single.n / lost - 1, 1);
    return t;
}

static pp_spread_mean tell_of_blocks(const pp_spread *s, const ratio *r)
{
    units blocks = {0};
    double weight = 0, sum = 0;
    for (size_t i = 0; i < s->n_steps; i++) {
        if (i > 0 && s->steps[i].block != s->steps[i - 1].block) {
            add_unit(&blocks, weight, sum);
            weight = sum = 0;
        }
        weight += weight_of(r, i);
        sum += r->values[i];
    }
    add_unit(&blocks, weight, sum);
    return tell(&blocks);
}

static pp_spread_mean tell_of_steps(const pp_spread *s, const double *values, const double *weights)
{
    const ratio r = {values, weights};
    const pp_spread_mean blocks = tell_of_blocks(s, &r);
    return s->coarse ? blocks : larger(tell_of_singles(s, &r), blocks);
}

static int compare_runs(const void *a, const void *b)
{
    const run *x = a, *y = b;
    const double left = x->ns / x->steps, right = y->ns / y->steps;
    return (left > right) - (left < right);
}

/* Of the sorted runs: how long a step took that half of all took longer than. */
static double median_step(const pp_spread *s)
{
    double all = 0, steps = 0;
    for (size_t i = 0; i < s->n_runs; i++)
        all += s->runs[i].steps;
    for (size_t i = 0; i < s->n_runs; i++) {
        steps += s->runs[i].steps;
        if (2 * steps >= all)
            return s->runs[i].ns / s->runs[i].steps;
    }
    return (double)NAN;
}

/* ---- what is asked ---- */

static size_t place_of(const pp_spread *s, const piece *p)
{
    return p->item < s->n_items ? p->item : s->n_items;
}

/* By item, in the order in which they came: those of one are then a stretch of the array. `next`
 * has room as `first` has. */
static void deal_pieces(const pp_spread *s, piece *sorted, size_t *first, size_t *next)
{
    for (size_t i = 0; i < s->n_pieces; i++)
        first[place_of(s, &s->pieces[i]) + 1]++;
    for (size_t i = 0; i <= s->n_items; i++) {
        first[i + 1] += first[i];
        next[i] = first[i];
    }
    for (size_t i = 0; i < s->n_pieces; i++)
        sorted[next[place_of(s, &s->pieces[i])]++] = s->pieces[i];
}

static int sort_pieces(pp_spread *s, pp_error *err)
{
    piece *sorted = malloc((s->n_pieces + 1) * sizeof *sorted);
    size_t *first = calloc((size_t)s->n_items + 2, sizeof *first);
    size_t *next = calloc((size_t)s->n_items + 2, sizeof *next);
    if (!sorted || !first || !next) {
        free(sorted);
        free(first);
        free(next);
        return pp_error_nomem(err);
    }
    deal_pieces(s, sorted, first, next);
    free(next);
    free(s->pieces);
    free(s->first);
    s->pieces = sorted;
    s->room_pieces = s->n_pieces + 1;
    s->first = first;
    return 0;
}

int pp_spread_settle(pp_spread *s, pp_error *err)
{
    for (size_t i = 0; i < sizeof s->values / sizeof *s->values; i++) {
        free(s->values[i]);
        s->values[i] = calloc(s->n_steps + 1, sizeof **s->values);
        if (!s->values[i])
            return pp_error_nomem(err);
    }
    deal_blocks(s);
    if (s->n_runs > 0)
        qsort(s->runs, s->n_runs, sizeof *s->runs, compare_runs);
    return sort_pieces(s, err);
}

/* An item's values of all steps; whether all its busy times are known. */
static bool take_values(pp_spread *s, uint32_t item, series *to)
{
    bool all = true;
    *to = (series){s->values[0], s->values[1], s->values[2]};
    for (size_t i = 0; i < sizeof s->values / sizeof *s->values; i++)
        memset(s->values[i], 0, s->n_steps * sizeof *s->values[i]);
    for (size_t i = s->first[item]; i < s->first[item + 1]; i++) {
        const piece *p = &s->pieces[i];
        to->ns[p->step] += p->ns;
        all &= !isnan(p->busy);
        if (isnan(p->busy))
            continue;
        to->known[p->step] += p->ns;
        to->busy[p->step] += p->busy;
    }
    return all && s->first[item] < s->first[item + 1];
}

static const pp_spread_mean unknown = {(double)NAN, (double)NAN, (double)NAN};

pp_spread_times pp_spread_item(pp_spread *s, uint32_t item)
{
    series v;
    if (item >= s->n_items || s->first[item] == s->first[item + 1])
        return (pp_spread_times){unknown, unknown, unknown};
    const bool all = take_values(s, item, &v);
    return (pp_spread_times){.total = tell_of_steps(s, v.ns, NULL),
                             .busy = all ? tell_of_steps(s, v.busy, NULL) : unknown,
                             .busy_share = tell_of_steps(s, v.busy, v.known)};
}

pp_spread_times pp_spread_rest(pp_spread *s)
{
    series v;
    const bool all = take_values(s, s->n_items, &v);
    for (size_t i = 0; i < s->n_steps; i++)
        v.ns[i] = s->steps[i].ns - s->steps[i].pieces;
    return (pp_spread_times){.total = tell_of_steps(s, v.ns, NULL),
                             .busy = all ? tell_of_steps(s, v.busy, NULL) : unknown,
                             .busy_share = all ? tell_of_steps(s, v.busy, v.ns) : unknown};
}

pp_spread_mean pp_spread_marked(pp_spread *s)
{
    for (size_t i = 0; i < s->n_steps; i++)
        s->values[0][i] = s->steps[i].ns;
    return tell_of_steps(s, s->values[0], NULL);
}

pp_spread_mean pp_spread_shared(pp_spread_mean whole, double told)
{
    if (!(whole.mean > 0) || !(told >= 0))
        return unknown;
    return (pp_spread_mean){told, told / whole.mean * whole.standard_error, whole.freedom};
}

pp_spread_mean pp_spread_counted(pp_spread *s)
{
    units u = {0};
    const double median = median_step(s);
    for (size_t i = 0; i < s->n_runs; i++) {
        if (s->runs[i].ns <= PAUSED * median * s->runs[i].steps)
            add_unit(&u, s->runs[i].steps, s->runs[i].ns);
    }
    return tell(&u);
}
