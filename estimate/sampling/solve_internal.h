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

/** Rows of a border, next to each other. */
typedef struct pp_arrow_span {
    uint32_t first, n;
} pp_arrow_span;

/**
 * A symmetric matrix: a skyline of `n`, and `rows` more rows below it, its border, which has
 * entries in a few rows of each column.
 */
typedef struct pp_arrow {
    pp_skyline band;
    size_t rows;
    pp_arrow_span *spans; /* of each column of the band: which rows have entries there ... */
    size_t *at;           /* ... and where the first of them is */
    double *border;
    size_t count;
    double *corner; /* rows by rows */
    double *scratch;
} pp_arrow;

/** As pp_skyline_init(); `spans`, of each column, is taken over too. */
int pp_arrow_init(pp_arrow *a, size_t n, size_t rows, uint32_t *first, pp_arrow_span *spans,
                  size_t limit, pp_error *err);
void pp_arrow_free(pp_arrow *a);
/** All entries are 0 then. */
void pp_arrow_clear(pp_arrow *a);
/** To one entry: (i, j), which is (j, i). */
void pp_arrow_add(pp_arrow *a, size_t i, size_t j, double value);
/** In its place; false where it is not positive definite. */
bool pp_arrow_factor(pp_arrow *a);
/** Solves with the factor, in the place of b, of n and rows; not by two threads at once. */
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

/* ---- kernels that are alike ---- */

enum { PP_ALIKE_PARTS_MAX = 16 }; /**< longer kernels are told by their own samples */

/** What kernels that are alike have in common has parts as they have: values behind the columns. */
typedef struct pp_alike_group {
    uint16_t parts[PP_ALIKE_PARTS_MAX]; /**< by their keys, in order of time */
    uint32_t n;
    uint32_t row; /**< of the first one */
} pp_alike_group;

/** A kernel: its columns by their keys, from `from` to before `to`. */
typedef struct pp_alike_kernel {
    uint64_t like;
    double length; /**< ns, mean */
    double time;   /**< ns, of all of these */
    double told;   /**< samples' worth that fell on them */
    uint64_t count;
    uint32_t from, to;
    const pp_alike_group *group; /**< NULL: none */
} pp_alike_kernel;

/** Kernels of all columns; a value for each part of a group of kernels, and behind these one for
 * each group of gaps. */
typedef struct pp_alike {
    pp_alike_kernel *kernels;
    size_t n;
    pp_alike_group *groups;
    size_t n_groups;
    uint32_t *gap_row;     /**< of each column the value of its group of gaps; 0: it is in none */
    size_t rows, gap_rows; /**< values; of these, of groups of gaps */
} pp_alike;

/** `grouped` false: no kernels are alike. To be freed where it fails, too. */
int pp_alike_find(const pp_sampling_whole *whole, bool grouped, pp_alike *ret, pp_error *err);
void pp_alike_free(pp_alike *alike);

/** The value that a kernel's column, a part of it, has in common with its group's. */
uint32_t pp_alike_row(const pp_alike_kernel *kernel, const pp_sampling_column *column);

/** Whether two columns, next to each other by their keys, are parts of one kernel, or of copies of
 * a kind behind one: they touch then. */
bool pp_alike_touch(const pp_sampling_key *a, const pp_sampling_key *b);

/** Whether a column is the time behind a kernel in which nothing ran. */
bool pp_alike_is_gap(const pp_sampling_column *column);
/** Such a time of more than 3.5 us on average. */
bool pp_alike_is_long_gap(const pp_sampling_column *column);

/* ---- the prior ---- */

/** By what the widths of its terms are scaled, which samples tell. */
typedef enum pp_prior_class {
    PP_PRIOR_FIXED,   /**< gaps: nothing */
    PP_PRIOR_KERNELS, /**< a kernel's parts */
    PP_PRIOR_ALIKE,   /**< what means of kernels that are alike differ by */
    PP_PRIOR_COURSE,  /**< and how a part's value differs from the next one's */
    PP_PRIOR_CLASSES
} pp_prior_class;

/** Terms over columns, and over the values of groups behind them (pp_alike). */
typedef struct pp_sampling_prior pp_sampling_prior;

/** `links`: a part is like the one before it; `alike`: kernels alike are like each other. */
int pp_prior_new(const pp_sampling_whole *whole, bool links, bool alike, pp_sampling_prior **ret,
                 pp_error *err);
void pp_prior_free(pp_sampling_prior *prior);

/** Of columns, and groups' parts. */
size_t pp_prior_size(const pp_sampling_prior *prior);
/** How many values a class decides where samples say nothing. */
double pp_prior_free_values(const pp_sampling_prior *prior, pp_prior_class of);

/** For a metric; `share`: sums of x of each column; long gaps are gap_mean within gap_width. */
void pp_prior_begin(pp_sampling_prior *prior, const pp_sampling_whole *whole, const double *share,
                    int metric, double gap_mean, double gap_width);

/** Of each column the first one, at most as it is, that terms join it with, and the parts of groups
 * that they do. */
void pp_prior_widen(const pp_sampling_prior *prior, uint32_t *first, pp_arrow_span *spans);
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

/** Gaps, and groups of them, in which samples surely see something, as a copy without a record
 * leaves them, are as samples say from here on; `for_all`: of every metric. `matrix`: factored,
 * with the prior, and `x` its solution; `z`: room for as many values. Returns whether some were
 * found. */
bool pp_prior_find_work(pp_sampling_prior *prior, const pp_arrow *matrix, double noise,
                        const double *x, double *z, bool for_all);
/** How many were found for all metrics: none is taken back. */
size_t pp_prior_worked(const pp_sampling_prior *prior);

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
