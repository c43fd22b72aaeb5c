/* Shared by the files of estimate/sampling/solve.h. */
#ifndef PP_ESTIMATE_SAMPLING_SOLVE_INTERNAL_H
#define PP_ESTIMATE_SAMPLING_SOLVE_INTERNAL_H

#include "estimate/sampling/solve.h"

/**
 * A symmetric matrix by the rows of its lower triangle, each from its first entry that is not 0 on.
 * Its Cholesky factor has its entries within the same places.
 */
typedef struct pp_skyline {
    size_t n;
    uint32_t *first; /* column of a row's first entry */
    size_t *at;      /* where row i's entry of column 0 would be: row i, column j is at[i] + j */
    double *values;
    size_t count;
} pp_skyline;

/** `first` is taken over. PP_ERR_TOO_LARGE past `limit` entries. All entries are 0. */
int pp_skyline_init(pp_skyline *s, size_t n, uint32_t *first, size_t limit, pp_error *err);
void pp_skyline_free(pp_skyline *s);

static inline double *pp_skyline_entry(const pp_skyline *s, size_t i, size_t j)
{
    return &s->values[s->at[i] + j];
}

/** In its place; false where it is not positive definite. */
bool pp_skyline_factor(pp_skyline *s);
/** Solves with the factor, in the place of b. */
void pp_skyline_solve(const pp_skyline *s, double *b);

/** The same of PP_SKYLINE_AT_ONCE right sides, each row's beside each other. */
enum { PP_SKYLINE_AT_ONCE = 8 };
void pp_skyline_solve_some(const pp_skyline *s, double *b);

/**
 * A symmetric matrix: a skyline of `n`, and `groups` more rows below it, of which each has entries
 * on its diagonal and in columns that no other one has entries in.
 */
typedef struct pp_arrow {
    pp_skyline band;
    size_t groups;
    uint32_t *group; /* of a column of the band: which one has an entry there ... */
    double *border;  /* ... and that one; 0: none has */
    double *corner;  /* groups by groups */
    double *scratch;
} pp_arrow;

/** As pp_skyline_init(). */
int pp_arrow_init(pp_arrow *a, size_t n, size_t groups, uint32_t *first, size_t limit,
                  pp_error *err);
void pp_arrow_free(pp_arrow *a);
/** All entries are 0 then. */
void pp_arrow_clear(pp_arrow *a);
/** To one entry: (i, j), which is (j, i). */
void pp_arrow_add(pp_arrow *a, size_t i, size_t j, double value);
/** In its place; false where it is not positive definite. */
bool pp_arrow_factor(pp_arrow *a);
/** Solves with the factor, in the place of b, of n and groups; not by two threads at once. */
void pp_arrow_solve(const pp_arrow *a, double *b);

/** The sums of all captures over one list of columns, in order of their places in a step. */
typedef struct pp_sampling_whole {
    pp_sampling_column *columns;
    size_t n;
    uint32_t *by_key; /* columns in order of their keys */
    uint32_t **index; /* of each capture: which column its columns are */
    const pp_sampling_sums *const *captures;
    size_t n_captures;
    double windows; /* of all captures; the rest is of those that know the metric */
    double with[PP_SAMPLING_METRICS]; /* their windows */
    double y[PP_SAMPLING_METRICS], yy[PP_SAMPLING_METRICS];
    double held_with[PP_SAMPLING_METRICS], held_y[PP_SAMPLING_METRICS];
} pp_sampling_whole;

int pp_sampling_whole_make(pp_sampling_whole *whole, const pp_sampling_sums *const *captures,
                           size_t n, pp_error *err);
void pp_sampling_whole_free(pp_sampling_whole *whole);

/* ---- the clock ---- */

/** The sum of x y of a column as it is solved for: y is by how much the clock is slower than
 * `idle`. `share`: sum of x. */
double pp_clock_slower(const pp_sampling_column *column, double share, double idle);
/** Makes the clock's sums such sums. `share`: of each column, of captures that know the clock. */
void pp_clock_slow_down(pp_sampling_whole *whole, const double *share, double idle);

/* ---- the prior ---- */

/** By what the widths of its terms are scaled, which samples tell. */
typedef enum pp_prior_class {
    PP_PRIOR_FIXED,   /**< gaps: nothing */
    PP_PRIOR_KERNELS, /**< a kernel's parts */
    PP_PRIOR_ALIKE,   /**< what kernels that are alike differ by */
    PP_PRIOR_CLASSES
} pp_prior_class;

/** Terms over columns, and over a value more for each group of kernels that are alike, behind the
 * columns. */
typedef struct pp_sampling_prior pp_sampling_prior;

/** `links`: a part is like the one before it; `alike`: kernels alike are like each other. */
int pp_prior_new(const pp_sampling_whole *whole, bool links, bool alike, pp_sampling_prior **ret,
                 pp_error *err);
void pp_prior_free(pp_sampling_prior *prior);

/** Whether a column is the time behind a kernel in which nothing ran. */
bool pp_prior_is_gap(const pp_sampling_column *column);

/** Of columns and groups. */
size_t pp_prior_size(const pp_sampling_prior *prior);
/** How many values a class decides where samples say nothing. */
double pp_prior_free_values(const pp_sampling_prior *prior, pp_prior_class of);

/** For a metric; `share`: sums of x of each column; long gaps are gap_mean within gap_width. */
void pp_prior_begin(pp_sampling_prior *prior, const pp_sampling_whole *whole, const double *share,
                    int metric, double gap_mean, double gap_width);

/** Of each column the first one, at most as it is, that terms join it with. */
void pp_prior_widen(const pp_sampling_prior *prior, uint32_t *first);
/** The prior's precision times the variance of a sample. */
void pp_prior_add(const pp_sampling_prior *prior, double noise, pp_arrow *matrix);
/** ... times its mean. */
void pp_prior_add_means(const pp_sampling_prior *prior, double noise, double *rhs);
/** What is added to the change of each column's sum of x y, `shift`, since the means that are the
 * samples' own change with it (those of groups left out). `share`: as in pp_prior_begin(). */
void pp_prior_add_shift(const pp_sampling_prior *prior, double noise, const double *share,
                        double *shift);
/** x' P y of each class's precision P. */
void pp_prior_product(const pp_sampling_prior *prior, const double *x, const double *y,
                      double ret[PP_PRIOR_CLASSES]);
/** Widths by what values are off by; `decided`: how many of a class's the samples decide. Returns
 * by which share the width that changes most does. */
double pp_prior_rescale(pp_sampling_prior *prior, const double *x,
                        const double decided[PP_PRIOR_CLASSES]);

/** Gaps in which samples surely see something, as a copy without a record leaves them, are as
 * samples say from here on. `matrix`: factored, with the prior, and `x` its solution; `z`: room for
 * as many values. Returns how many were found. */
size_t pp_prior_find_work(pp_sampling_prior *prior, const pp_arrow *matrix, double noise,
                          const double *x, double *z);

/** What an item's mean may be off by: variances, each from its cause. */
typedef struct pp_sampling_causes {
    double mean;
    double count;    /* of captures that it is in, 1 at least: as many as would be, each with as
                        much of it */
    double prior;    /* what samples leave open to the prior */
    double samples;  /* their noise */
    double captures; /* a sandwich over captures; 0 where it is in one */
    double lag;      /* samples lie elsewhere than it says */
    double clock;    /* what is not known of the clock that a rate is over */
} pp_sampling_causes;

/** ret[i]: standard error of the i-th of `n` items. Values differ from capture to capture by a
 * share that all items tell together, where some are in several; what an item's own captures say of
 * its variance is drawn to what that leads to expect (moderated: Smyth 2004,
 * doi:10.2202/1544-6115.1027). Returns that share, a standard deviation. */
double pp_sampling_errors(const pp_sampling_causes *causes, size_t n, double *ret);

#endif
