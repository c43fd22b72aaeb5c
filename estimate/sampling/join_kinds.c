/*
 * How much of what the samples tell is explained by which kernel ran when. Steps repeat: at the
 * right lag the samples that fall into one kernel of each step are alike, and kernels differ. The
 * GPU need not stand still now and then for that.
 */
#include "common/cleanup.h"
#include "estimate/sampling/join_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    GAP = 0,             /* the group of samples that no kernel covers */
    SAMPLES_MOST = 8000, /* by which lags are compared at first, evenly over the capture */
};

/* Samples of one kind of kernel. */
typedef struct group {
    double sum[PP_SAMPLING_METRICS];
    double n;
} group;

struct pp_sampling_kinds {
    const pp_sampling *sampling;
    uint32_t *longest; /* of the kernels up to each one, the one that ends last */
    uint32_t *of;      /* of each kernel, from 1 on */
    group *groups;     /* all empty between two calls */
    uint32_t *touched;
    size_t n, n_touched; /* kinds but GAP; groups that are not empty */
    bool known[PP_SAMPLING_METRICS];
};

static void find_longest(const pp_sampling *f, uint32_t *ret)
{
    for (size_t i = 0; i < f->n_kernels; i++)
        ret[i] =
            i > 0 && f->kernels[ret[i - 1]].end >= f->kernels[i].end ? ret[i - 1] : (uint32_t)i;
}

static int make_kinds(pp_sampling_kinds *k, pp_error *err)
{
    const pp_sampling *f = k->sampling;
    PP_CLEANUP_FREE uint32_t *numbers = calloc(f->n_kernels + 1, sizeof *numbers);
    k->of = calloc(f->n_kernels + 1, sizeof *k->of);
    k->longest = calloc(f->n_kernels + 1, sizeof *k->longest);
    if (!numbers || !k->of || !k->longest)
        return pp_error_nomem(err);
    if (pp_sampling_number(f, numbers, k->of, &k->n, err) < 0)
        return -1;
    k->groups = calloc(k->n + 1, sizeof *k->groups);
    k->touched = calloc(k->n + 1, sizeof *k->touched);
    if (!k->groups || !k->touched)
        return pp_error_nomem(err);
    find_longest(f, k->longest);
    pp_sampling_find_known(f, k->known);
    k->known[PP_SAMPLING_CLOCK] = false; /* it does not tell when a kernel runs: it is in rates */
    return 0;
}

pp_sampling_kinds *pp_sampling_kinds_new(const pp_sampling *f, pp_error *err)
{
    pp_sampling_kinds *k = calloc(1, sizeof *k);
    if (!k) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    k->sampling = f;
    if (make_kinds(k, err) == 0)
        return k;
    pp_sampling_kinds_free(k);
    return NULL;
}

void pp_sampling_kinds_free(pp_sampling_kinds *k)
{
    if (!k)
        return;
    free(k->of);
    free(k->longest);
    free(k->groups);
    free(k->touched);
    free(k);
}

size_t pp_sampling_kinds_count(const pp_sampling_kinds *k)
{
    return k->n + 1;
}

const bool *pp_sampling_kinds_known(const pp_sampling_kinds *k)
{
    return k->known;
}

uint32_t pp_sampling_kind(const pp_sampling_kinds *k, size_t kernel)
{
    return k->of[kernel];
}

/* The last kernel that had begun at `t`, looked for from one that had on, ever further: most often
 * it is near. The first one where none had. */
static size_t last_before(const pp_sampling *f, size_t from, double t)
{
    size_t step = 1;
    while (from + step < f->n_kernels && (double)f->kernels[from + step].start <= t) {
        from += step;
        step *= 2;
    }
    for (; step > 0; step /= 2)
        if (from + step < f->n_kernels && (double)f->kernels[from + step].start <= t)
            from += step;
    return from;
}

/* The kind that runs at `t`, of kernels side by side that of the one that ends last; *hint: where
 * the one before, earlier, was found. False outside of all kernels, and where steps are missing. */
static bool kind_at(const pp_sampling_kinds *k, double t, size_t *hint, uint32_t *ret)
{
    const pp_sampling *f = k->sampling;
    const size_t i = last_before(f, *hint, t);
    const size_t longest = k->longest[i];
    *hint = i;
    *ret = k->of[longest];
    if (t < (double)f->kernels[i].start)
        return false;
    if (t < (double)f->kernels[longest].end)
        return true;
    *ret = GAP;
    return i + 1 < f->n_kernels && f->kernels[i + 1].step <= f->kernels[i].step + 1;
}

bool pp_sampling_told(const pp_sampling_kinds *k, double t, size_t *hint)
{
    uint32_t kind;
    return kind_at(k, t, hint, &kind);
}

static void add(pp_sampling_kinds *k, uint32_t kind, const pp_sampling_sample *s, group *all,
                double *squares)
{
    group *g = &k->groups[kind];
    if (g->n == 0)
        k->touched[k->n_touched++] = kind;
    g->n++;
    all->n++;
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        double y = k->known[m] ? (double)s->values[m] : 0;
        g->sum[m] += y;
        all->sum[m] += y;
        squares[m] += y * y;
    }
}

/* Sums of samples by kind, of every so many-th. */
static void group_samples(pp_sampling_kinds *k, const pp_sampling_line *line, size_t every,
                          group *all, double *squares)
{
    const pp_sampling *f = k->sampling;
    size_t hint = 0;
    uint32_t kind;
    for (size_t i = 0; i < f->n_samples; i += every) {
        const pp_sampling_sample *s = &f->samples[i];
        double middle = (double)s->start + (double)(s->end - s->start) / 2;
        double at = middle - line->lag - line->drift * (middle - (double)line->middle);
        if (kind_at(k, at, &hint, &kind) && pp_sampling_has_known(k->known, s))
            add(k, kind, s, all, squares);
    }
}

double pp_sampling_explained(pp_sampling_kinds *k, double lag)
{
    const pp_sampling_line line = {.lag = lag};
    group all = {0};
    double squares[PP_SAMPLING_METRICS] = {0}, within[PP_SAMPLING_METRICS];
    group_samples(k, &line, k->sampling->n_samples / SAMPLES_MOST + 1, &all, squares);
    memcpy(within, squares, sizeof within);
    for (size_t i = 0; i < k->n_touched; i++) {
        group *g = &k->groups[k->touched[i]];
        for (int m = 0; m < PP_SAMPLING_METRICS; m++)
            within[m] -= g->sum[m] * g->sum[m] / g->n;
        *g = (group){0};
    }
    /* By degrees of freedom: kernels that hardly a sample falls into explain theirs anyway. */
    const double left = all.n - (double)k->n_touched;
    k->n_touched = 0;
    double sum = 0;
    int metrics = 0;
    for (int m = 0; m < PP_SAMPLING_METRICS && left > 0; m++) {
        double total = squares[m] - all.sum[m] * all.sum[m] / all.n;
        if (total <= PP_SAMPLING_VARIES * all.n)
            continue;
        sum += 1 - within[m] / left / (total / (all.n - 1));
        metrics++;
    }
    return metrics ? sum / metrics : 0;
}

void pp_sampling_levels(pp_sampling_kinds *k, int metric, const pp_sampling_line *line, double *ret)
{
    group all = {0};
    double squares[PP_SAMPLING_METRICS] = {0};
    group_samples(k, line, 1, &all, squares);
    for (size_t kind = 0; kind <= k->n; kind++)
        ret[kind] = all.n > 0 ? all.sum[metric] / all.n : 0;
    for (size_t i = 0; i < k->n_touched; i++) {
        group *g = &k->groups[k->touched[i]];
        ret[k->touched[i]] = g->sum[metric] / g->n;
        *g = (group){0};
    }
    ret[GAP] = 0;
    k->n_touched = 0;
}
