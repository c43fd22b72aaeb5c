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

/** The sums of all captures over one list of columns, in order of their places in a step. */
typedef struct pp_sampling_whole {
    pp_sampling_column *columns;
    size_t n;
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

/** What an item's mean may be off by: variances, each from its cause. */
typedef struct pp_sampling_causes {
    double mean;
    double count;    /* of captures that it is in, 1 at least: as many as would be, each with as
                        much of it */
    double prior;    /* what samples leave open to the prior */
    double samples;  /* their noise */
    double captures; /* a sandwich over captures; 0 where it is in one */
    double edges;    /* kernels that begin and end at other times than they say */
} pp_sampling_causes;

/** ret[i]: standard error of the i-th of `n` items. Values differ from capture to capture by a
 * share that all items tell together, where some are in several; what an item's own captures say of
 * its variance is drawn to what that leads to expect (moderated: Smyth 2004,
 * doi:10.2202/1544-6115.1027). Returns that share, a standard deviation. */
double pp_sampling_errors(const pp_sampling_causes *causes, size_t n, double *ret);

#endif
