/* Sums of squares and their Cholesky factors, dense and banded. */
#ifndef PP_ESTIMATE_REGRESSION_LINALG_H
#define PP_ESTIMATE_REGRESSION_LINALG_H

#include <stdbool.h>
#include <stddef.h>

/** In place lower Cholesky of a symmetric n x n row-major matrix; false: not positive definite. */
bool pp_reg_chol(double *a, size_t n);
/** Adds x x' to the lower triangle of a symmetric n x n row-major matrix. */
void pp_reg_add_square(double *a, const double *x, size_t n);
/** Solves L L' x = b in place. */
void pp_reg_chol_solve(const double *l, size_t n, double *b);
/** Inverse of L L' into inv (n x n, symmetric). */
void pp_reg_chol_inverse(const double *l, size_t n, double *inv);
double pp_reg_chol_logdet(const double *l, size_t n);
/** In place lower Cholesky of a band: row i holds columns i - bw .. i at a[i * (bw + 1)]. */
bool pp_reg_band_chol(double *a, size_t n, size_t bw);
/** x := L^-1 x for n rows of p values each. */
void pp_reg_band_forward(const double *l, size_t n, size_t bw, double *x, size_t p);
/** x := L'^-1 x. */
void pp_reg_band_backward(const double *l, size_t n, size_t bw, double *x);

#endif
