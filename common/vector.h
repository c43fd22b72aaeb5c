/* Arithmetic on arrays of doubles. */
#ifndef PP_COMMON_VECTOR_H
#define PP_COMMON_VECTOR_H

#include <stddef.h>

/** Sum of a[i] b[i]. */
double pp_dot(const double *a, const double *b, size_t n);

/** Adds `by` from[i] to each to[i]; they do not overlap. */
void pp_add_scaled(double *restrict to, const double *restrict from, double by, size_t n);

/** Sorts n values in place, the least first; none is NaN. */
void pp_sort_doubles(double *values, size_t n);

#endif
