/* How residuals are spread, by quantiles: most are small, some are many times as large. */
#ifndef PP_ESTIMATE_REGRESSION_RESIDUALS_H
#define PP_ESTIMATE_REGRESSION_RESIDUALS_H

#include <stddef.h>

/** Student's t about 0. */
typedef struct pp_reg_student {
    double scale;
    double freedom; /* degrees of it, 1 to 8 */
} pp_reg_student;

/**
 * Student's t of these residuals, whose order changes: its freedom by how far the ninth decile of
 * their sizes lies beyond the median, its scale by the median, at least `least`. None: of infinite
 * scale. A tenth of gross errors and more does it no harm: these are what it is to find.
 */
pp_reg_student pp_reg_student_of(double *rest, size_t n, double least);

/** -log likelihood of one residual, less that of 0. It grows with the logarithm of large ones, so
 * that one does not outweigh all others, and of two large ones the smaller is the likelier still.
 */
double pp_reg_student_cost(pp_reg_student t, double e);

#endif
