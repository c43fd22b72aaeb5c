/* Which of many differences are more than noise. */
#ifndef PP_CLI_COMPARE_SIGNIFICANCE_H
#define PP_CLI_COMPARE_SIGNIFICANCE_H

#include <stdbool.h>
#include <stddef.h>

/** Among comparisons of what does not differ at all, the share in which anything is marked. */
#define PP_SIGNIFICANCE_LEVEL 0.05

/** How likely a value as far from 0 as z is by chance, on either side: of Student's t with so many
 * degrees of freedom, of the normal distribution where they are infinite or NaN. */
double pp_significance_p(double z, double freedom);

/** Degrees of freedom of the sum of two squared standard errors, by Welch and Satterthwaite
 * (Welch: Biometrika 34, 1947, 28-35). NaN or infinite: the error is known exactly. */
double pp_significance_freedom(double error, double freedom, double other_error,
                               double other_freedom);

/**
 * Marks those of n differences that are more than noise, by Holm's step-down procedure
 * (Scandinavian Journal of Statistics 6, 1979, 65-70): the smallest p is held against level / n,
 * the next against level / (n - 1), and so on until one is above. With a likelihood of 1 - level no
 * mark is wrong, however the differences depend on each other. Returns 0, -1 where memory is out.
 */
int pp_significance_holm(const double *p, size_t n, double level, bool *ret_marked);

#endif
