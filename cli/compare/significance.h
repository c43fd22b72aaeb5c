/* Which of many differences are more than noise. */
#ifndef PP_CLI_COMPARE_SIGNIFICANCE_H
#define PP_CLI_COMPARE_SIGNIFICANCE_H

#include <stdbool.h>
#include <stddef.h>

/** Among comparisons of what does not differ at all, the share in which a whole step is marked. */
#define PP_SIGNIFICANCE_STEPS 0.01

/** The share in which a row's value is. */
#define PP_SIGNIFICANCE_ROWS 0.04

/** The most in which anything is. */
#define PP_SIGNIFICANCE_LEVEL (PP_SIGNIFICANCE_STEPS + PP_SIGNIFICANCE_ROWS)

/**
 * Marks those of n differences that are more than noise, by Holm's step-down procedure
 * (Scandinavian Journal of Statistics 6, 1979, 65-70): the smallest p is held against level / n,
 * the next against level / (n - 1), and so on until one is above. With a likelihood of 1 - level no
 * mark is wrong, however the differences depend on each other. Returns 0, -1 where memory is out.
 */
int pp_significance_holm(const double *p, size_t n, double level, bool *ret_marked);

#endif
