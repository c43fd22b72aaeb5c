/* The prior: what is held of columns' values before samples are looked at, term by term. */
#include "common/array.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Widths, as shares of a metric's range; a gap is short up to 3.5 us. */
#define LEVEL 0.4
#define NEXT_PART 0.2
#define COURSE 0.3 /* the same of kernels whose mean others tell: it rises, and runs out */
#define SHORT_GAP 0.01
#define SHORT_GAP_NS 3500.0
/* A gap in which something without a record ran is as samples say. They say so surely where what
 * they alone hold it for lies so many of its standard errors above what gaps are. */
#define WORKED 0.5
#define WORKED_SURELY 4.0
#define LOOKED_AT 0.2 /* widths: a gap nearer to what gaps are is not looked at */
/* Kernels that are alike differ by so much at first: what samples tell takes its place. */
#define ALIKE 0.02

/* ... of the widths, by what samples decide. */
#define LEAST_SCALE 0.1
#define MOST_SCALE 1.0
#define LEAST_ALIKE 0.1
#define MOST_ALIKE 20.0
/* The width before it is scaled counts as so many values that samples decide: few tell little. */
#define BELIEVED 3.0

/* Kernels of a name and shape are alike as long as the longest takes so many times the shortest's
 * time: of a network's layers they differ by 1 point then, by 3 and more without
 * (docs/sampling.md). */
#define LENGTHS 1.15

enum {
    PARTS_MAX = 16, /* longer kernels are told by their own samples ... */
    TOLD = 50,      /* ... and those that so many samples' worth fell on */
    /* Each group takes a solution for all columns: so many columns' worth. */
    COLUMNS_MAX = 1 << 20,
    FACTORS_MAX = PARTS_MAX + 1,
};

/* What a term says. */
typedef enum saying {
    LONG_GAP, /* is as the metric's gaps are */
    OF_SHORT_GAP,
    OF_LEVEL,  /* a part is like the overlap-weighted mean of itself */
    OF_NEXT,   /* and like the one before it ... */
    OF_COURSE, /* ... or, of kernels that are alike, as far from it as a course goes */
    OF_ALIKE,  /* a kernel's mean is that of those alike */
    OF_GROUP,  /* which is like the overlap-weighted mean of all of these */
} saying;

/* The sum of factors times values is `mean` within `width`, by what the class is scaled. */
typedef struct term {
    double width, mean;
    uint32_t first, n; /* of the factors */
    uint8_t kind, class;
} term;

typedef struct factor {
    uint32_t column;
    float times;
} factor;

/* A kernel: its columns by their keys, from `from` on. */
typedef struct kernel {
    uint64_t like;
    double length; /* ns, mean */
    double time;   /* ns, of all of these */
    double told;   /* samples' worth that fell on them */
    uint64_t count;
    uint32_t from, to;
    uint32_t group; /* from 1; 0: none */
} kernel;

struct pp_sampling_prior {
    size_t n, n_columns; /* with the groups, which come behind the columns */
    term *terms;
    size_t n_terms, terms_max;
    factor *factors;
    size_t n_factors, factors_max;
    double free[PP_PRIOR_CLASSES];  /* of how many values the class tells */
    double scale[PP_PRIOR_CLASSES]; /* of its widths */
};

/* ---- terms ---- */

static int add_term(pp_sampling_prior *p, saying kind, pp_prior_class class, const factor *factors,
                    size_t n, pp_error *err)
{
    if (pp_array_reserve(&p->terms, &p->terms_max, p->n_terms + 1, sizeof *p->terms, err) < 0 ||
        pp_array_reserve(&p->factors, &p->factors_max, p->n_factors + n, sizeof *p->factors, err) <
            0)
        return -1;
    p->terms[p->n_terms++] = (term){.first = (uint32_t)p->n_factors,
                                    .n = (uint32_t)n,
                                    .kind = (uint8_t)kind,
                                    .class = (uint8_t) class};
    memcpy(p->factors + p->n_factors, factors, n * sizeof *factors);
    p->n_factors += n;
    return 0;
}

bool pp_prior_is_gap(const pp_sampling_column *c)
{
    return c->key.gap && pp_sampling_copy_of(&c->key) == 0;
}

/* Whether two columns, next to each other by their keys, are parts of one kernel, or of copies of a
 * kind behind one: they touch then. */
static bool touch(const pp_sampling_key *a, const pp_sampling_key *b)
{
    return a->gap == b->gap && (!a->gap || pp_sampling_copy_of(a)) &&
           pp_sampling_copy_of(a) == pp_sampling_copy_of(b) && a->layer == b->layer &&
           a->phase == b->phase && a->kernel == b->kernel;
}

static int add_gap(pp_sampling_prior *p, const pp_sampling_column *c, uint32_t column,
                   pp_error *err)
{
    const bool is_short = c->time < SHORT_GAP_NS * (double)c->count;
    return add_term(p, is_short ? OF_SHORT_GAP : LONG_GAP, PP_PRIOR_FIXED, &(factor){column, 1}, 1,
                    err);
}

static int add_level(pp_sampling_prior *p, uint32_t column, pp_error *err)
{
    p->free[PP_PRIOR_KERNELS]++;
    return add_term(p, OF_LEVEL, PP_PRIOR_KERNELS, &(factor){column, 1}, 1, err);
}

/* Where others tell of a kernel's mean its course is its own: how far parts of one kernel differ
 * says little of another's. */
static int add_link(pp_sampling_prior *p, uint32_t a, uint32_t b, bool alike, pp_error *err)
{
    return add_term(p, alike ? OF_COURSE : OF_NEXT, alike ? PP_PRIOR_FIXED : PP_PRIOR_KERNELS,
                    (factor[]){{a, 1}, {b, -1}}, 2, err);
}

/* A kernel's mean over its time is its group's. */
static int add_alike(pp_sampling_prior *p, const pp_sampling_whole *w, const kernel *k,
                     pp_error *err)
{
    factor factors[FACTORS_MAX];
    size_t n = 0;
    for (uint32_t i = k->from; i < k->to; i++) {
        const uint32_t column = w->by_key[i];
        factors[n++] = (factor){column, (float)(w->columns[column].time / k->time)};
    }
    factors[n++] = (factor){(uint32_t)p->n_columns + k->group - 1, -1};
    p->free[PP_PRIOR_ALIKE]++;
    return add_term(p, OF_ALIKE, PP_PRIOR_ALIKE, factors, n, err);
}

/* ---- kernels that are alike ---- */

typedef struct member {
    kernel *of;
} member;

static int compare_likes(const void *a, const void *b)
{
    const kernel *x = ((const member *)a)->of;
    const kernel *y = ((const member *)b)->of;
    if (x->like != y->like)
        return x->like < y->like ? -1 : 1;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Kernels of a group, of which there are two at least, in order; `time` and `told` are of all. */
typedef struct group {
    member *first;
    size_t n;
    double time, told;
} group;

static int compare_groups(const void *a, const void *b)
{
    const group *x = a;
    const group *y = b;
    if (x->time != y->time)
        return x->time > y->time ? -1 : 1;
    return x->first->of->from < y->first->of->from ? -1 : x->first->of->from > y->first->of->from;
}

static size_t split(member *likes, size_t n, group *ret)
{
    size_t groups = 0;
    for (size_t i = 0, to; i < n; i = to) {
        group g = {.first = &likes[i]};
        for (to = i; to < n && likes[to].of->like == likes[i].of->like &&
                     likes[to].of->length <= LENGTHS * likes[i].of->length;
             to++) {
            g.time += likes[to].of->time;
            g.told += likes[to].of->told;
        }
        g.n = to - i;
        if (g.n > 1 && g.told < TOLD * (double)g.n)
            ret[groups++] = g;
    }
    return groups;
}

/* As many groups as there is room for, those that take most time first. */
static int find_groups(kernel *kernels, size_t n, size_t columns, size_t *ret, pp_error *err)
{
    member *likes = calloc(n + 1, sizeof *likes);
    group *groups = calloc(n / 2 + 1, sizeof *groups);
    size_t alike = 0, found = 0;
    if (likes && groups) {
        for (size_t i = 0; i < n; i++)
            if (kernels[i].like && kernels[i].to - kernels[i].from <= PARTS_MAX)
                likes[alike++].of = &kernels[i];
        qsort(likes, alike, sizeof *likes, compare_likes);
        found = split(likes, alike, groups);
        qsort(groups, found, sizeof *groups, compare_groups);
        found = found * columns > COLUMNS_MAX ? COLUMNS_MAX / columns : found;
        for (size_t g = 0; g < found; g++)
            for (size_t i = 0; i < groups[g].n; i++)
                groups[g].first[i].of->group = (uint32_t)g + 1;
    }
    const bool whole = likes && groups;
    free(likes);
    free(groups);
    *ret = found;
    return whole ? 0 : pp_error_nomem(err);
}

/* Of columns of kernels; gaps, and what runs in them, are none. */
static size_t list_kernels(const pp_sampling_whole *w, kernel *ret)
{
    size_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const pp_sampling_column *c = &w->columns[w->by_key[i]];
        if (c->key.gap)
            continue;
        if (n == 0 || !touch(&w->columns[w->by_key[ret[n - 1].from]].key, &c->key))
            ret[n++] = (kernel){.from = i, .like = c->like};
        kernel *k = &ret[n - 1];
        k->to = i + 1;
        k->time += c->time;
        k->told += c->share;
        k->count = c->count > k->count ? c->count : k->count;
        k->length = k->time / fmax((double)k->count, 1);
        k->like = k->like == c->like ? k->like : 0;
    }
    return n;
}

/* ---- the whole ---- */

static int add_kernel(pp_sampling_prior *p, const pp_sampling_whole *w, const kernel *k, bool links,
                      pp_error *err)
{
    for (uint32_t i = k->from + 1; i < k->to && links; i++)
        if (add_link(p, w->by_key[i - 1], w->by_key[i], k->group, err) < 0)
            return -1;
    if (k->group)
        return add_alike(p, w, k, err);
    for (uint32_t i = k->from; i < k->to; i++)
        if (add_level(p, w->by_key[i], err) < 0)
            return -1;
    return 0;
}

static int add_kernels(pp_sampling_prior *p, const pp_sampling_whole *w, bool links, bool alike,
                       pp_error *err)
{
    kernel *kernels = calloc(w->n + 1, sizeof *kernels);
    if (!kernels)
        return pp_error_nomem(err);
    const size_t n = list_kernels(w, kernels);
    size_t groups = 0;
    int rc = alike ? find_groups(kernels, n, w->n, &groups, err) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_kernel(p, w, &kernels[i], links, err);
    p->n += groups;
    free(kernels);
    for (uint32_t g = 0; rc == 0 && g < groups; g++)
        rc =
            add_term(p, OF_GROUP, PP_PRIOR_FIXED, &(factor){(uint32_t)p->n_columns + g, 1}, 1, err);
    return rc;
}

static int add_gaps(pp_sampling_prior *p, const pp_sampling_whole *w, bool links, pp_error *err)
{
    for (size_t i = 0; i < w->n; i++) {
        const uint32_t at = w->by_key[i];
        const pp_sampling_column *c = &w->columns[at];
        if (!c->key.gap)
            continue;
        if ((pp_prior_is_gap(c) ? add_gap(p, c, at, err) : add_level(p, at, err)) < 0)
            return -1;
        if (links && i > 0 && touch(&w->columns[w->by_key[i - 1]].key, &c->key) &&
            add_link(p, w->by_key[i - 1], at, false, err) < 0)
            return -1;
    }
    return 0;
}

int pp_prior_new(const pp_sampling_whole *w, bool links, bool alike, pp_sampling_prior **ret,
                 pp_error *err)
{
    pp_sampling_prior *p = calloc(1, sizeof *p);
    if (!p)
        return pp_error_nomem(err);
    p->n = p->n_columns = w->n;
    if (add_gaps(p, w, links, err) < 0 || add_kernels(p, w, links, links && alike, err) < 0) {
        pp_prior_free(p);
        return -1;
    }
    *ret = p;
    return 0;
}

void pp_prior_free(pp_sampling_prior *p)
{
    if (!p)
        return;
    free(p->terms);
    free(p->factors);
    free(p);
}

size_t pp_prior_size(const pp_sampling_prior *p)
{
    return p->n;
}

double pp_prior_free_values(const pp_sampling_prior *p, pp_prior_class class)
{
    return p->free[class];
}

/* ---- of a metric ---- */

/* The overlap-weighted mean of what a term is about: its own, or a group's. */
static double mean_of(const pp_sampling_whole *w, const double *share, int m, uint32_t column)
{
    return share[column] > 0 ? w->columns[column].rhs[m] / share[column] : 0;
}

/* In one pass: mean and width hold the sums of x y and x until both are there. */
static void set_groups(pp_sampling_prior *p, const pp_sampling_whole *w, const double *share, int m)
{
    const size_t groups = p->n - p->n_columns;
    term *of_groups = p->terms + p->n_terms - groups;
    for (size_t g = 0; g < groups; g++)
        of_groups[g].mean = of_groups[g].width = 0;
    for (const term *t = p->terms; t < of_groups; t++) {
        const factor *f = p->factors + t->first;
        if (t->kind != OF_ALIKE)
            continue;
        term *of = &of_groups[f[t->n - 1].column - p->n_columns];
        for (uint32_t i = 0; i + 1 < t->n; i++) {
            of->mean += w->columns[f[i].column].rhs[m];
            of->width += share[f[i].column];
        }
    }
    for (size_t g = 0; g < groups; g++) {
        of_groups[g].mean = of_groups[g].width > 0 ? of_groups[g].mean / of_groups[g].width : 0;
        of_groups[g].width = LEVEL;
    }
}

void pp_prior_begin(pp_sampling_prior *p, const pp_sampling_whole *w, const double *share,
                    int metric, double gap_mean, double gap_width)
{
    static const double widths[] = {[OF_SHORT_GAP] = SHORT_GAP,
                                    [OF_NEXT] = NEXT_PART,
                                    [OF_COURSE] = COURSE,
                                    [OF_ALIKE] = ALIKE};
    for (size_t i = 0; i < p->n_terms; i++) {
        term *t = &p->terms[i];
        if (t->kind == LONG_GAP || (t->kind == OF_SHORT_GAP && metric == PP_SAMPLING_CLOCK)) {
            t->mean = gap_mean;
            t->width = gap_width;
        } else if (t->kind == OF_LEVEL) {
            t->mean = mean_of(w, share, metric, p->factors[t->first].column);
            t->width = LEVEL;
        } else if (t->kind != OF_GROUP) {
            t->mean = 0;
            t->width = widths[t->kind];
        }
    }
    set_groups(p, w, share, metric);
    for (int c = 0; c < PP_PRIOR_CLASSES; c++)
        p->scale[c] = 1;
}

static double precision_of(const pp_sampling_prior *p, const term *t)
{
    const double width = t->width * p->scale[t->class];
    return 1 / (width * width);
}

/* The sum of factors times values. */
static double value_of(const pp_sampling_prior *p, const term *t, const double *x)
{
    const factor *f = p->factors + t->first;
    double sum = 0;
    for (uint32_t i = 0; i < t->n; i++)
        sum += (double)f[i].times * x[f[i].column];
    return sum;
}

void pp_prior_widen(const pp_sampling_prior *p, uint32_t *first)
{
    for (size_t t = 0; t < p->n_terms; t++) {
        const factor *f = p->factors + p->terms[t].first;
        uint32_t low = UINT32_MAX;
        for (uint32_t i = 0; i < p->terms[t].n; i++)
            low = f[i].column < low ? f[i].column : low;
        for (uint32_t i = 0; i < p->terms[t].n; i++)
            if (f[i].column < p->n_columns && low < first[f[i].column])
                first[f[i].column] = low;
    }
}

void pp_prior_add(const pp_sampling_prior *p, double noise, pp_arrow *matrix)
{
    for (size_t t = 0; t < p->n_terms; t++) {
        const double weight = noise * precision_of(p, &p->terms[t]);
        const factor *f = p->factors + p->terms[t].first;
        for (uint32_t i = 0; i < p->terms[t].n; i++)
            for (uint32_t j = 0; j <= i; j++)
                pp_arrow_add(matrix, f[i].column, f[j].column,
                             weight * (double)f[i].times * (double)f[j].times);
    }
}

void pp_prior_add_means(const pp_sampling_prior *p, double noise, double *rhs)
{
    for (size_t t = 0; t < p->n_terms; t++) {
        const term *of = &p->terms[t];
        const factor *f = p->factors + of->first;
        for (uint32_t i = 0; i < of->n && of->mean != 0; i++)
            rhs[f[i].column] += noise * precision_of(p, of) * of->mean * (double)f[i].times;
    }
}

void pp_prior_add_shift(const pp_sampling_prior *p, double noise, const double *share,
                        double *shift)
{
    for (size_t t = 0; t < p->n_terms; t++) {
        const uint32_t column = p->factors[p->terms[t].first].column;
        if (p->terms[t].kind == OF_LEVEL && share[column] > 0)
            shift[column] *= 1 + noise * precision_of(p, &p->terms[t]) / share[column];
    }
}

void pp_prior_product(const pp_sampling_prior *p, const double *x, const double *y,
                      double ret[PP_PRIOR_CLASSES])
{
    memset(ret, 0, PP_PRIOR_CLASSES * sizeof *ret);
    for (size_t t = 0; t < p->n_terms; t++) {
        const term *of = &p->terms[t];
        ret[of->class] += precision_of(p, of) * value_of(p, of, x) * value_of(p, of, y);
    }
}

static bool may_have_worked(const term *t, double value)
{
    return t->kind == LONG_GAP && t->width < WORKED && value - t->mean > LOOKED_AT * t->width;
}

/* What samples alone say of a column is what all say without its term: both are Gaussian. */
static bool has_worked(const term *t, double value, double variance)
{
    const double own = 1 / (t->width * t->width), theirs = 1 / variance - own;
    if (theirs <= 0)
        return false;
    const double alone = (value / variance - t->mean * own) / theirs;
    return (alone - t->mean) * sqrt(theirs) > WORKED_SURELY;
}

size_t pp_prior_find_work(pp_sampling_prior *p, const pp_arrow *matrix, double noise,
                          const double *x, double *z)
{
    size_t found = 0;
    for (size_t i = 0; i < p->n_terms; i++) {
        term *t = &p->terms[i];
        const uint32_t column = p->factors[t->first].column;
        if (!may_have_worked(t, x[column]))
            continue;
        memset(z, 0, pp_prior_size(p) * sizeof *z);
        z[column] = 1;
        pp_arrow_solve(matrix, z);
        if (has_worked(t, x[column], noise * z[column])) {
            t->width = WORKED;
            found++;
        }
    }
    return found;
}

double pp_prior_rescale(pp_sampling_prior *p, const double *x,
                        const double decided[PP_PRIOR_CLASSES])
{
    static const double least[PP_PRIOR_CLASSES] = {
        [PP_PRIOR_KERNELS] = LEAST_SCALE, [PP_PRIOR_ALIKE] = LEAST_ALIKE};
    static const double most[PP_PRIOR_CLASSES] = {
        [PP_PRIOR_KERNELS] = MOST_SCALE, [PP_PRIOR_ALIKE] = MOST_ALIKE};
    double squares[PP_PRIOR_CLASSES] = {0};
    for (size_t t = 0; t < p->n_terms; t++) {
        const term *of = &p->terms[t];
        squares[of->class] += pow((value_of(p, of, x) - of->mean) / of->width, 2);
    }
    double change = 0;
    for (int c = PP_PRIOR_FIXED + 1; c < PP_PRIOR_CLASSES; c++) {
        const double before = p->scale[c];
        const double width = sqrt((squares[c] + BELIEVED) / (fmax(decided[c], 0) + BELIEVED));
        p->scale[c] = fmax(least[c], fmin(width, most[c]));
        change = fmax(change, fabs(p->scale[c] / before - 1));
    }
    return change;
}
