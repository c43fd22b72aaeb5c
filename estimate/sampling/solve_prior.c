/* The prior: what is held of columns' values before samples are looked at, term by term. */
#include "common/array.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Widths, as shares of a metric's range; a gap is short up to 3.5 us. */
#define LEVEL 0.4
#define NEXT_PART 0.2
#define COURSE 0.3 /* the same of what kernels that are alike have in common */
#define OWN_COURSE 0.1
#define SHORT_GAP 0.01
#define GROUPS_DIFFER 0.25 /* of what gaps do, groups of gaps */
/* A gap in which something without a record ran is as samples say. They say so surely where what
 * they alone hold it for lies so many of its standard errors above what gaps are. */
#define WORKED 0.5
#define WORKED_SURELY 4.0
#define LOOKED_AT 0.2 /* widths: a gap nearer to what gaps are is not looked at */
/* Means of kernels that are alike differ by so much at first: what samples tell takes its place. */
#define ALIKE 0.02

/* ... of the widths, by what samples decide. */
#define LEAST_SCALE 0.1
#define MOST_SCALE 1.0
#define LEAST_ALIKE 0.1
#define MOST_ALIKE 20.0
#define LEAST_COURSE 0.05
#define MOST_COURSE 3.0
/* The width before it is scaled counts as so many values that samples decide: few tell little. */
#define BELIEVED 3.0

enum {
    FACTORS_MAX = 2 * PP_ALIKE_PARTS_MAX,
};

/* What a term says. */
typedef enum saying {
    LONG_GAP, /* is as the metric's gaps are */
    OF_SHORT_GAP,
    OF_GAPS,       /* or as those of its group are, which are as the metric's are */
    OF_LEVEL,      /* a part is like the overlap-weighted mean of itself */
    OF_NEXT,       /* and like the one before it */
    OF_ALIKE,      /* a kernel's mean is that of those alike, */
    OF_OWN_COURSE, /* its parts differ as their parts do, */
    OF_COURSE,     /* of which one is like the one before it, too, */
    OF_GROUP,      /* and like the overlap-weighted mean of all of these */
} saying;

/* The sum of factors times values is `mean` within `width`, by what the class is scaled. */
typedef struct term {
    double width, mean;
    uint32_t first, n; /* of the factors */
    uint8_t kind, class;
    bool worked; /* something ran in it */
} term;

typedef struct factor {
    uint32_t column;
    float times;
} factor;

struct pp_sampling_prior {
    size_t n, n_columns; /* with the groups', which come behind the columns: */
    size_t n_parts;      /* of kernels', first */
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

/* A long gap is like those between kernels that are alike, where there are such. */
static int add_gap(pp_sampling_prior *p, const pp_sampling_column *c, uint32_t column,
                   const pp_alike *alike, pp_error *err)
{
    const uint32_t row = alike->gap_row[column];
    const factor factors[] = {{column, 1}, {row, -1}};
    const saying kind = pp_alike_is_long_gap(c) ? LONG_GAP : OF_SHORT_GAP;
    return add_term(p, kind, PP_PRIOR_FIXED, factors, row ? 2 : 1, err);
}

static int add_level(pp_sampling_prior *p, uint32_t column, pp_error *err)
{
    p->free[PP_PRIOR_KERNELS]++;
    return add_term(p, OF_LEVEL, PP_PRIOR_KERNELS, &(factor){column, 1}, 1, err);
}

static int add_link(pp_sampling_prior *p, uint32_t a, uint32_t b, pp_error *err)
{
    return add_term(p, OF_NEXT, PP_PRIOR_KERNELS, (factor[]){{a, 1}, {b, -1}}, 2, err);
}

/* ---- the whole ---- */

/* A kernel's mean over its time is its group's over the same parts. */
static int add_mean(pp_sampling_prior *p, const pp_sampling_whole *w, const pp_alike_kernel *k,
                    pp_error *err)
{
    factor factors[FACTORS_MAX];
    size_t n = 0;
    for (uint32_t i = k->from; i < k->to; i++) {
        const uint32_t at = w->by_key[i];
        const float times = (float)(w->columns[at].time / k->time);
        factors[n++] = (factor){at, times};
        factors[n++] = (factor){pp_alike_row(k, &w->columns[at]), -times};
    }
    p->free[PP_PRIOR_ALIKE]++;
    return add_term(p, OF_ALIKE, PP_PRIOR_ALIKE, factors, n, err);
}

/* Two parts differ as its group's do. */
static int add_course(pp_sampling_prior *p, const pp_sampling_whole *w, const pp_alike_kernel *k,
                      uint32_t a, uint32_t b, pp_error *err)
{
    const factor factors[] = {{a, 1},
                              {pp_alike_row(k, &w->columns[a]), -1},
                              {b, -1},
                              {pp_alike_row(k, &w->columns[b]), 1}};
    p->free[PP_PRIOR_COURSE]++;
    return add_term(p, OF_OWN_COURSE, PP_PRIOR_COURSE, factors, 4, err);
}

static int add_kernel(pp_sampling_prior *p, const pp_sampling_whole *w, const pp_alike_kernel *k,
                      bool links, pp_error *err)
{
    for (uint32_t i = k->from; i < k->to; i++) {
        const uint32_t at = w->by_key[i], before = i > k->from ? w->by_key[i - 1] : at;
        if (!k->group && add_level(p, at, err) < 0)
            return -1;
        if (!links || i == k->from)
            continue;
        if ((k->group ? add_course(p, w, k, before, at, err) : add_link(p, before, at, err)) < 0)
            return -1;
    }
    return k->group ? add_mean(p, w, k, err) : 0;
}

/* What stands behind the columns: what groups of gaps are, then parts of groups of kernels. Levels
 * of these come last. */
static int add_groups(pp_sampling_prior *p, const pp_alike *alike, pp_error *err)
{
    const size_t parts = alike->rows - alike->gap_rows;
    p->n += alike->rows;
    p->n_parts = parts;
    for (size_t i = parts; i < alike->rows; i++)
        if (add_term(p, OF_GAPS, PP_PRIOR_FIXED, &(factor){(uint32_t)(p->n_columns + i), 1}, 1,
                     err) < 0)
            return -1;
    for (size_t g = 0; g < alike->n_groups; g++)
        for (uint32_t row = alike->groups[g].row + 1;
             row < alike->groups[g].row + alike->groups[g].n; row++)
            if (add_term(p, OF_COURSE, PP_PRIOR_FIXED, (factor[]){{row - 1, 1}, {row, -1}}, 2,
                         err) < 0)
                return -1;
    for (size_t i = 0; i < parts; i++)
        if (add_term(p, OF_GROUP, PP_PRIOR_FIXED, &(factor){(uint32_t)(p->n_columns + i), 1}, 1,
                     err) < 0)
            return -1;
    return 0;
}

/* In order of their places in a step. */
static int add_gaps(pp_sampling_prior *p, const pp_sampling_whole *w, const pp_alike *alike,
                    pp_error *err)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (pp_alike_is_gap(&w->columns[i]) && add_gap(p, &w->columns[i], i, alike, err) < 0)
            return -1;
    return 0;
}

/* What runs in gaps, and is told. */
static int add_copies(pp_sampling_prior *p, const pp_sampling_whole *w, bool links, pp_error *err)
{
    for (size_t i = 0; i < w->n; i++) {
        const uint32_t at = w->by_key[i];
        const pp_sampling_key *key = &w->columns[at].key;
        if (!pp_sampling_copy_of(key))
            continue;
        if (add_level(p, at, err) < 0)
            return -1;
        if (links && i > 0 && pp_alike_touch(&w->columns[w->by_key[i - 1]].key, key) &&
            add_link(p, w->by_key[i - 1], at, err) < 0)
            return -1;
    }
    return 0;
}

static int add_all(pp_sampling_prior *p, const pp_sampling_whole *w, const pp_alike *alike,
                   bool links, pp_error *err)
{
    if (add_gaps(p, w, alike, err) < 0 || add_copies(p, w, links, err) < 0)
        return -1;
    for (size_t i = 0; i < alike->n; i++)
        if (add_kernel(p, w, &alike->kernels[i], links, err) < 0)
            return -1;
    return add_groups(p, alike, err);
}

int pp_prior_new(const pp_sampling_whole *w, bool links, bool alike, pp_sampling_prior **ret,
                 pp_error *err)
{
    pp_alike groups = {0};
    pp_sampling_prior *p = calloc(1, sizeof *p);
    if (!p)
        return pp_error_nomem(err);
    p->n = p->n_columns = w->n;
    int rc = pp_alike_find(w, links && alike, &groups, err);
    if (rc == 0)
        rc = add_all(p, w, &groups, links, err);
    pp_alike_free(&groups);
    if (rc == 0)
        *ret = p;
    else
        pp_prior_free(p);
    return rc;
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
    const size_t parts = p->n_parts;
    term *of_parts = p->terms + p->n_terms - parts;
    for (size_t i = 0; i < parts; i++)
        of_parts[i].mean = of_parts[i].width = 0;
    for (const term *t = p->terms; t < of_parts; t++) {
        const factor *f = p->factors + t->first;
        for (uint32_t i = 0; i < t->n && t->kind == OF_ALIKE; i += 2) {
            term *of = &of_parts[f[i + 1].column - p->n_columns];
            of->mean += w->columns[f[i].column].rhs[m];
            of->width += share[f[i].column];
        }
    }
    for (size_t i = 0; i < parts; i++) {
        of_parts[i].mean = of_parts[i].width > 0 ? of_parts[i].mean / of_parts[i].width : 0;
        of_parts[i].width = LEVEL;
    }
}

void pp_prior_begin(pp_sampling_prior *p, const pp_sampling_whole *w, const double *share,
                    int metric, double gap_mean, double gap_width)
{
    static const double widths[] = {[OF_SHORT_GAP] = SHORT_GAP,
                                    [OF_NEXT] = NEXT_PART,
                                    [OF_COURSE] = COURSE,
                                    [OF_ALIKE] = ALIKE,
                                    [OF_OWN_COURSE] = OWN_COURSE};
    for (size_t i = 0; i < p->n_terms; i++) {
        term *t = &p->terms[i];
        if (t->kind == LONG_GAP || (t->kind == OF_SHORT_GAP && metric == PP_SAMPLING_CLOCK)) {
            t->mean = t->n > 1 ? 0 : gap_mean;
            t->width = gap_width;
        } else if (t->kind == OF_GAPS) {
            t->mean = gap_mean;
            t->width = GROUPS_DIFFER * gap_width;
        } else if (t->kind == OF_LEVEL) {
            t->mean = mean_of(w, share, metric, p->factors[t->first].column);
            t->width = LEVEL;
        } else if (t->kind != OF_GROUP) {
            t->mean = 0;
            t->width = widths[t->kind];
        }
        t->width = t->worked ? WORKED : t->width;
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

static void widen_span(pp_arrow_span *span, uint32_t row)
{
    const uint32_t end = span->first + span->n;
    if (span->n == 0)
        *span = (pp_arrow_span){row, 1};
    else if (row < span->first)
        *span = (pp_arrow_span){row, end - row};
    else if (row >= end)
        span->n = row + 1 - span->first;
}

void pp_prior_widen(const pp_sampling_prior *p, uint32_t *first, pp_arrow_span *spans)
{
    for (size_t t = 0; t < p->n_terms; t++) {
        const factor *f = p->factors + p->terms[t].first;
        const uint32_t n = p->terms[t].n;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n && f[i].column < p->n_columns; j++)
                if (f[j].column >= p->n_columns)
                    widen_span(&spans[f[i].column], f[j].column - (uint32_t)p->n_columns);
                else if (f[j].column < first[f[i].column])
                    first[f[i].column] = f[j].column;
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

static bool may_have_worked(const term *t, double off)
{
    return (t->kind == LONG_GAP || t->kind == OF_GAPS) && t->width < WORKED &&
           off > LOOKED_AT * t->width;
}

/* Of what a term is about, by the factored matrix. */
static double variance_of(const pp_sampling_prior *p, const term *t, const pp_arrow *matrix,
                          double noise, double *z)
{
    const factor *f = p->factors + t->first;
    memset(z, 0, pp_prior_size(p) * sizeof *z);
    for (uint32_t i = 0; i < t->n; i++)
        z[f[i].column] = (double)f[i].times;
    pp_arrow_solve(matrix, z);
    return noise * value_of(p, t, z);
}

/* What samples alone say is what all say without the term: both are Gaussian. */
static bool has_worked(const term *t, double off, double variance)
{
    const double theirs = 1 / variance - 1 / (t->width * t->width);
    return theirs > 0 && off / variance > WORKED_SURELY * sqrt(theirs);
}

bool pp_prior_find_work(pp_sampling_prior *p, const pp_arrow *matrix, double noise, const double *x,
                        double *z, bool for_all)
{
    bool found = false;
    for (size_t i = 0; i < p->n_terms; i++) {
        term *t = &p->terms[i];
        const double off = value_of(p, t, x) - t->mean;
        if (!may_have_worked(t, off) || !has_worked(t, off, variance_of(p, t, matrix, noise, z)))
            continue;
        t->width = WORKED;
        t->worked = for_all;
        found = true;
    }
    return found;
}

size_t pp_prior_worked(const pp_sampling_prior *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_terms; i++)
        n += p->terms[i].worked;
    return n;
}

double pp_prior_rescale(pp_sampling_prior *p, const double *x,
                        const double decided[PP_PRIOR_CLASSES])
{
    static const double least[PP_PRIOR_CLASSES] = {[PP_PRIOR_KERNELS] = LEAST_SCALE,
                                                   [PP_PRIOR_ALIKE] = LEAST_ALIKE,
                                                   [PP_PRIOR_COURSE] = LEAST_COURSE};
    static const double most[PP_PRIOR_CLASSES] = {[PP_PRIOR_KERNELS] = MOST_SCALE,
                                                  [PP_PRIOR_ALIKE] = MOST_ALIKE,
                                                  [PP_PRIOR_COURSE] = MOST_COURSE};
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
