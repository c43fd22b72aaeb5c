#include "estimate/sampling/solve.h"

#include "common/draw.h"
#include "common/vector.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Entries of the matrix, 8 bytes each. */
#define ENTRIES_MAX ((size_t)16 << 20)

/* Widths of the prior, as shares of a metric's range; a gap is short up to 3.5 us. */
#define LEVEL 0.4
#define NEXT_PART 0.2
#define SHORT_GAP 0.01
#define LONG_GAP 0.2
#define WRITTEN_GAP 0.05 /* of memory, to which caches are written back */
#define SHORT_GAP_NS 3500.0

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

/* ... of the kernels' widths, by what samples decide. */
#define LEAST_SCALE 0.1
#define MOST_SCALE 1.0

enum { ROUNDS = 8, PROBES = 8 };

/* A column by its key. */
typedef struct named {
    pp_sampling_key key;
    uint32_t column;
} named;

typedef struct solving {
    unsigned without; /* pp_sampling_solution_part */
    pp_sampling_whole whole;
    named *named; /* in order of keys */
    pp_skyline matrix;
    double *share;              /* of each column, of the captures that know the metric ... */
    double *held;               /* ... and the same of their windows that are held out */
    double *theta;              /* the metric's estimates */
    double *rest;               /* n for each capture: X' (y - X theta) of its windows */
    double *z;                  /* scratch, n */
    double *times;              /* n for each capture: ns of its kernels' parts */
    pp_sampling_causes *causes; /* of each item */
    double *errors;
    double noise;    /* variance of what is left of a sample */
    double gap_mean; /* the prior of the metric's long gaps ... */
    double gap_width;
    double scale; /* of the widths of kernels' prior */
    double lag_stderr;
    pp_sampling_result *result;
} solving;

static bool has(const solving *s, pp_sampling_solution_part part)
{
    return !(s->without & (unsigned)part);
}

/* ---- the matrix ---- */

static int compare_named(const void *a, const void *b)
{
    return pp_sampling_key_compare(&((const named *)a)->key, &((const named *)b)->key);
}

/* Whether two columns, next to each other by their keys, are parts of one kernel, or of copies of a
 * kind behind one: they touch then.
 */
static bool touch(const solving *s, const named *a, const named *b)
{
    return has(s, PP_SAMPLING_LINKS) && a->key.gap == b->key.gap &&
           (!a->key.gap || pp_sampling_copy_of(&a->key)) &&
           pp_sampling_copy_of(&a->key) == pp_sampling_copy_of(&b->key) &&
           a->key.layer == b->key.layer && a->key.phase == b->key.phase &&
           a->key.kernel == b->key.kernel;
}

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
    if (!first)
        return pp_error_nomem(err);
    for (size_t i = 0; i < w->n; i++)
        first[i] = (uint32_t)i;
    for (size_t g = 0; g < w->n_captures; g++)
        for (size_t p = 0; p < w->captures[g]->n_pairs; p++)
            widen(first, w->index[g][w->captures[g]->pairs[p].a],
                  w->index[g][w->captures[g]->pairs[p].b]);
    for (size_t i = 0; i + 1 < w->n; i++)
        if (touch(s, &s->named[i], &s->named[i + 1]))
            widen(first, s->named[i].column, s->named[i + 1].column);
    return pp_skyline_init(&s->matrix, w->n, first, ENTRIES_MAX, err);
}

static void add_entry(const pp_skyline *m, uint32_t a, uint32_t b, double value)
{
    *pp_skyline_entry(m, a > b ? a : b, a > b ? b : a) += value;
}

static bool is_short(const pp_sampling_column *c)
{
    return c->time < SHORT_GAP_NS * (double)c->count;
}

/* Of a copy or a fill as little is known before as of a kernel. */
static bool is_gap(const pp_sampling_column *c)
{
    return c->key.gap && pp_sampling_copy_of(&c->key) == 0;
}

static double width_of(const solving *s, const pp_sampling_column *c)
{
    if (!is_gap(c))
        return s->scale * LEVEL;
    return is_short(c) ? SHORT_GAP : s->gap_width;
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

/* Samples that lie in gaps tell what gaps are like: where no kernel runs no SM is active, unless
 * others use the GPU. Less is known of the time right behind a kernel, in which what it leaves may
 * be written to memory. */
static void find_gap_prior(solving *s, int m)
{
    const pp_sampling_predicted p = predicted(s, m);
    s->gap_mean = 0;
    s->gap_width = LONG_GAP;
    if (p.gaps < LEAST_GAPS || !has(s, PP_SAMPLING_GAPS))
        return;
    const double least = pp_metric_get((pp_metric)m)->within_sms ? SHORT_GAP : WRITTEN_GAP;
    s->gap_mean = p.gap_y / p.gap_samples;
    const double differ = sqrt(gap_squares(&p, s->gap_mean) * p.gaps) / p.gap_samples;
    s->gap_width = fmin(fmax(differ, least), LONG_GAP);
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
    memset(s->matrix.values, 0, s->matrix.count * sizeof *s->matrix.values);
    for (size_t g = 0; g < w->n_captures; g++)
        for (size_t p = 0; w->captures[g]->known[m] && p < w->captures[g]->n_pairs; p++) {
            const pp_sampling_pair *pair = &w->captures[g]->pairs[p];
            add_entry(&s->matrix, w->index[g][pair->a], w->index[g][pair->b], pair->sum);
        }
    for (size_t i = 0; i < w->n; i++) {
        double width = width_of(s, &w->columns[i]);
        *pp_skyline_entry(&s->matrix, i, i) += s->noise / (width * width);
    }
    double link = s->noise * pow(s->scale * NEXT_PART, -2);
    for (size_t i = 0; i + 1 < w->n; i++)
        if (touch(s, &s->named[i], &s->named[i + 1])) {
            uint32_t a = s->named[i].column;
            uint32_t b = s->named[i + 1].column;
            add_entry(&s->matrix, a, a, link);
            add_entry(&s->matrix, b, b, link);
            add_entry(&s->matrix, a, b, -link);
        }
    return pp_skyline_factor(&s->matrix);
}

/* ---- one metric ---- */

static double prior_mean(const solving *s, size_t i, int m)
{
    const pp_sampling_column *c = &s->whole.columns[i];
    if (is_gap(c))
        return is_short(c) ? 0 : s->gap_mean;
    return s->share[i] > 0 ? c->rhs[m] / s->share[i] : 0;
}

static void solve_theta(solving *s, int m)
{
    for (size_t i = 0; i < s->whole.n; i++) {
        const pp_sampling_column *c = &s->whole.columns[i];
        double width = width_of(s, c);
        s->theta[i] = c->rhs[m] + s->noise / (width * width) * prior_mean(s, i, m);
    }
    pp_skyline_solve(&s->matrix, s->theta);
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
            rest[index[i]] += f->columns[i].rhs[m];
            left -= f->columns[i].rhs[m] * s->theta[index[i]];
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

/* z = the prior's precision, by the variance of a sample, times what is drawn. */
static void weigh_signs(solving *s, int probe)
{
    const pp_sampling_whole *w = &s->whole;
    for (size_t i = 0; i < w->n; i++) {
        const double width = width_of(s, &w->columns[i]);
        s->z[i] = s->noise / (width * width) * sign_of(i, probe);
    }
    for (size_t i = 0; i + 1 < w->n; i++) {
        const uint32_t a = s->named[i].column, b = s->named[i + 1].column;
        if (!touch(s, &s->named[i], &s->named[i + 1]))
            continue;
        const double apart =
            s->noise * pow(s->scale * NEXT_PART, -2) * (sign_of(a, probe) - sign_of(b, probe));
        s->z[a] += apart;
        s->z[b] -= apart;
    }
}

/* How many columns the samples decide, and not the prior: the trace of (X'X + P)^-1 X'X, which is
 * what n less that of (X'X + P)^-1 P is (MacKay 1992, doi:10.1162/neco.1992.4.3.415), by random
 * signs (Hutchinson 1989, doi:10.1080/03610918908812806). Of all columns, and of kernels' parts
 * alone. */
static double decided(solving *s, double *of_kernels)
{
    double n[2] = {0}, trace[2] = {0};
    for (int probe = 0; probe < PROBES; probe++) {
        weigh_signs(s, probe);
        pp_skyline_solve(&s->matrix, s->z);
        for (size_t i = 0; i < s->whole.n; i++)
            trace[is_gap(&s->whole.columns[i])] += sign_of(i, probe) * s->z[i] / PROBES;
    }
    for (size_t i = 0; i < s->whole.n; i++)
        n[is_gap(&s->whole.columns[i])]++;
    *of_kernels = n[false] - trace[false];
    return *of_kernels + n[true] - trace[true];
}

/* Squares of what kernels' parts are off by from their prior, each by its width before it is
 * scaled. */
static double off_prior(const solving *s, int m)
{
    double sum = 0;
    for (size_t i = 0; i < s->whole.n; i++)
        if (!is_gap(&s->whole.columns[i]))
            sum += pow((s->theta[i] - prior_mean(s, i, m)) / LEVEL, 2);
    for (size_t i = 0; i + 1 < s->whole.n; i++)
        if (touch(s, &s->named[i], &s->named[i + 1]))
            sum += pow(
                (s->theta[s->named[i].column] - s->theta[s->named[i + 1].column]) / NEXT_PART, 2);
    return sum;
}

static int fit(solving *s, int m, pp_error *err)
{
    const pp_sampling_whole *w = &s->whole;
    const double windows = w->with[m];
    double mean = w->y[m] / windows;
    s->noise = fmax(1e-8, (w->yy[m] / windows - mean * mean) / 10);
    find_shares(s, m);
    find_gap_prior(s, m);
    s->scale = 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (!fill_and_factor(s, m))
            return pp_error_set(err, PP_ERR_INTERNAL, "sums that no samples have");
        solve_theta(s, m);
        double left = find_rest(s, m), of_kernels;
        const double all = decided(s, &of_kernels);
        const double free = has(s, PP_SAMPLING_DECIDED) ? windows - all : windows;
        s->noise = fmax(1e-8, left / fmax(windows / 10, free));
        if (has(s, PP_SAMPLING_SCALE))
            s->scale =
                fmax(LEAST_SCALE, fmin(sqrt(off_prior(s, m) / fmax(of_kernels, 1)), MOST_SCALE));
    }
    return 0;
}

/* ---- items ---- */

static void add_item_times(solving *s, pp_sampling_item *item, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const pp_sampling_column *c = &s->whole.columns[s->named[i].column];
        if (c->key.gap)
            continue;
        item->time += c->time;
        item->kernels += c->key.part == 0 ? c->count : 0;
    }
}

/* Where its kernels begin and end, a lag that is wrong takes a piece of what is beside them for
 * theirs, and loses one of their own: for each ns. */
static double edge_error(const solving *s, size_t from, size_t to, double time)
{
    double early = 0, late = 0;
    for (size_t i = from; i < to; i++) {
        uint32_t at = s->named[i].column;
        const pp_sampling_column *c = &s->whole.columns[at];
        if (c->key.gap)
            continue;
        double count = (double)c->count;
        double before = at > 0 ? s->theta[at - 1] : 0;
        double behind = at + 1 < s->whole.n ? s->theta[at + 1] : 0;
        early += count * (before - s->theta[at]);
        late += count * (behind - s->theta[at]);
    }
    return fmax(fabs(early), fabs(late)) / time;
}

/* Of the variance of z' X' y: what the prior's width is, and not the samples' noise. */
static double prior_variance(const solving *s)
{
    const pp_sampling_whole *w = &s->whole;
    double sum = 0;
    for (size_t i = 0; i < w->n; i++) {
        const double width = width_of(s, &w->columns[i]);
        sum += s->z[i] * s->z[i] / (width * width);
    }
    for (size_t i = 0; i + 1 < w->n; i++) {
        const double apart = s->z[s->named[i].column] - s->z[s->named[i + 1].column];
        if (touch(s, &s->named[i], &s->named[i + 1]))
            sum += apart * apart * pow(s->scale * NEXT_PART, -2);
    }
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
            time += s->times[g * w->n + s->named[i].column];
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
    memset(s->z, 0, w->n * sizeof *s->z);
    for (size_t i = from; i < to; i++) {
        uint32_t at = s->named[i].column;
        if (w->columns[at].key.gap)
            continue;
        s->z[at] = w->columns[at].time / item->time;
        c.mean += s->z[at] * s->theta[at];
    }
    pp_skyline_solve(&s->matrix, s->z);
    for (size_t i = from; i < to; i++) {
        uint32_t at = s->named[i].column;
        if (!w->columns[at].key.gap)
            c.samples += s->noise * w->columns[at].time / item->time * s->z[at];
    }
    c.prior = fmin(prior_variance(s), c.samples);
    c.samples -= c.prior;
    for (size_t g = 0; g < w->n_captures && c.count > 1 && has(s, PP_SAMPLING_BETWEEN); g++) {
        const double moved = pp_dot(s->z, s->rest + g * w->n, w->n);
        c.captures += moved * moved * c.count / (c.count - 1);
    }
    item->per_ns[m] = edge_error(s, from, to, item->time);
    c.edges = has(s, PP_SAMPLING_EDGES) ? pow(item->per_ns[m] * s->lag_stderr, 2) : 0;
    return c;
}

/* The columns of an item, by their keys: from `from` to before what is returned. */
static size_t end_of_item(const solving *s, size_t from)
{
    size_t to = from + 1;
    while (to < s->whole.n && s->named[to].key.layer == s->named[from].key.layer &&
           s->named[to].key.phase == s->named[from].key.phase)
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
    }
    double sum = 0;
    for (size_t i = 0; i < w->n; i++)
        sum += s->held[i] * s->theta[i];
    r->noise[m] = sqrt(s->noise);
    r->held[m] = w->held_y[m] / w->held_with[m]; /* NaN where there are none */
    r->closure[m] = sum / w->held_with[m] - r->held[m];
}

/* By their keys. */
static void keep_values(solving *s, int m)
{
    pp_sampling_result *r = s->result;
    for (size_t i = 0; i < s->whole.n; i++)
        r->values[m][i] = s->theta[s->named[i].column];
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
    const double total = p.yy - p.y * p.y / fmax(p.n, 1);
    *ret = (pp_sampling_quality){
        .explained = total > PP_SAMPLING_VARIES * p.n ? 1 - p.rest / total : (double)NAN,
        .miss = sqrt(p.rest / p.n),
        .items = p.items,
        .items_z =
            sqrt(p.z2 / (p.items + s->result->between[m] * s->result->between[m] * p.squares)),
        .gap = p.gaps >= LEAST_GAPS ? p.gap_y / p.gap_samples : (double)NAN,
    };
    ret->gap_stderr = gap_error(&p, ret->gap);
    ret->doubt = doubt_of(ret, pp_metric_get((pp_metric)m)->within_sms);
}

static void unknown_metric(solving *s, int m)
{
    pp_sampling_result *r = s->result;
    for (size_t i = 0; i < r->n; i++)
        r->items[i].mean[m] = r->items[i].stderr_of[m] = (double)NAN;
    for (size_t i = 0; i < s->whole.n; i++)
        r->values[m][i] = (double)NAN;
    r->noise[m] = r->between[m] = r->held[m] = r->closure[m] = (double)NAN;
}

/* ---- all ---- */

static int list_items(solving *s, pp_error *err)
{
    const pp_sampling_whole *w = &s->whole;
    s->named = calloc(w->n + 1, sizeof *s->named);
    s->result = calloc(1, sizeof *s->result);
    if (!s->named || !s->result)
        return pp_error_nomem(err);
    for (size_t i = 0; i < w->n; i++)
        s->named[i] = (named){w->columns[i].key, (uint32_t)i};
    qsort(s->named, w->n, sizeof *s->named, compare_named);
    s->result->items = calloc(w->n + 1, sizeof *s->result->items);
    s->result->keys = calloc(w->n + 1, sizeof *s->result->keys);
    s->result->values[0] = calloc(w->n * PP_SAMPLING_METRICS + 1, sizeof(double));
    if (!s->result->items || !s->result->keys || !s->result->values[0])
        return pp_error_nomem(err);
    for (int m = 1; m < PP_SAMPLING_METRICS; m++)
        s->result->values[m] = s->result->values[0] + (size_t)m * w->n;
    s->result->n_columns = w->n;
    for (size_t i = 0; i < w->n; i++)
        s->result->keys[i] = s->named[i].key;
    for (size_t from = 0, to; from < w->n; from = to) {
        to = end_of_item(s, from);
        pp_sampling_item *item = &s->result->items[s->result->n++];
        item->layer = s->named[from].key.layer;
        item->phase = s->named[from].key.phase;
        add_item_times(s, item, from, to);
    }
    return 0;
}

static int prepare(solving *s, const pp_sampling_sums *const *captures, size_t n, pp_error *err)
{
    if (pp_sampling_whole_make(&s->whole, captures, n, err) < 0)
        return -1;
    if (s->whole.windows < 1 || s->whole.n == 0)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "no sample fell on a kernel");
    size_t size = s->whole.n;
    s->share = malloc(size * sizeof *s->share);
    s->held = malloc(size * sizeof *s->held);
    s->theta = malloc(size * sizeof *s->theta);
    s->z = malloc(size * sizeof *s->z);
    s->rest = malloc(size * n * sizeof *s->rest);
    s->times = calloc(size * n, sizeof *s->times);
    s->causes = malloc(size * sizeof *s->causes);
    s->errors = malloc(size * sizeof *s->errors);
    if (!s->share || !s->held || !s->theta || !s->z || !s->rest || !s->times || !s->causes ||
        !s->errors)
        return pp_error_nomem(err);
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; i < captures[g]->n; i++)
            if (!captures[g]->columns[i].key.gap)
                s->times[g * size + s->whole.index[g][i]] += captures[g]->columns[i].time;
    double squares = 0;
    for (size_t g = 0; g < n; g++)
        squares += (double)captures[g]->lag_stderr * (double)captures[g]->lag_stderr;
    s->lag_stderr = sqrt(LAG_STDERR * LAG_STDERR + squares / ((double)n * (double)n));
    return list_items(s, err) < 0 ? -1 : shape_matrix(s, err);
}

static void judge_all(solving *s)
{
    pp_sampling_result *r = s->result;
    bool tenant = false;
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        judge(s, m, &r->quality[m]);
        tenant |= r->quality[m].doubt == PP_SAMPLING_TENANT;
    }
    /* Whoever else uses the GPU adds to all of its metrics. */
    for (int m = 0; m < PP_SAMPLING_METRICS && tenant; m++)
        r->quality[m].doubt = PP_SAMPLING_TENANT;
}

static int solve(solving *s, pp_error *err)
{
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        if (s->whole.with[m] < 1) {
            unknown_metric(s, m);
            continue;
        }
        if (fit(s, m, err) < 0)
            return -1;
        estimate_metric(s, m);
        keep_values(s, m);
    }
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
    pp_skyline_free(&s.matrix);
    free(s.named);
    free(s.share);
    free(s.held);
    free(s.theta);
    free(s.rest);
    free(s.z);
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
