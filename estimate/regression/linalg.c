/* Dense and banded Cholesky: all the linear algebra that attribution needs. */
#include <math.h>
#include <string.h>

#include "common/vector.h"
#include "estimate/regression/linalg.h"

bool pp_reg_chol(double *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double *row = a + i * n;
        for (size_t j = 0; j < i; j++)
            row[j] = (row[j] - pp_dot(row, a + j * n, j)) / a[j * n + j];
        double d = row[i] - pp_dot(row, row, i);
        if (!(d > 0) || !isfinite(d))
            return false;
        row[i] = sqrt(d);
    }
    return true;
}

/* All columns up to each that x has: what the others add is 0, and a plain loop is faster. */
void pp_reg_add_square(double *a, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0)
            pp_add_scaled(a + i * n, x, x[i], i + 1);
}

static void lower_solve(const double *l, size_t n, double *b)
{
    for (size_t i = 0; i < n; i++)
        b[i] = (b[i] - pp_dot(l + i * n, b, i)) / l[i * n + i];
}

void pp_reg_chol_solve(const double *l, size_t n, double *b)
{
    lower_solve(l, n, b);
    for (size_t i = n; i-- > 0;) {
        b[i] /= l[i * n + i];
        for (size_t j = 0; j < i; j++)
            b[j] -= l[i * n + j] * b[i];
    }
}

void pp_reg_chol_inverse(const double *l, size_t n, double *inv)
{
    for (size_t j = 0; j < n; j++) {
        double *row = inv + j * n;
        memset(row, 0, n * sizeof *row);
        row[j] = 1;
        pp_reg_chol_solve(l, n, row);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            inv[i * n + j] = inv[j * n + i] = 0.5 * (inv[i * n + j] + inv[j * n + i]);
}

double pp_reg_chol_logdet(const double *l, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += log(l[i * n + i]);
    return 2 * s;
}

bool pp_reg_band_chol(double *a, size_t n, size_t bw)
{
    const size_t w = bw + 1;
    for (size_t i = 0; i < n; i++) {
        double *row = a + i * w;
        size_t from = i > bw ? i - bw : 0;
        for (size_t j = from; j < i; j++) {
            size_t low = j > bw && j - bw > from ? j - bw : from;
            double *rj = a + j * w;
            double s = pp_dot(row + (low + bw - i), rj + (low + bw - j), j - low);
            row[j + bw - i] = (row[j + bw - i] - s) / rj[bw];
        }
        double d = row[bw] - pp_dot(row + (from + bw - i), row + (from + bw - i), i - from);
        if (!(d > 0) || !isfinite(d))
            return false;
        row[bw] = sqrt(d);
    }
    return true;
}

void pp_reg_band_forward(const double *l, size_t n, size_t bw, double *x, size_t p)
{
    const size_t w = bw + 1;
    for (size_t i = 0; i < n; i++) {
        double *xi = x + i * p;
        for (size_t k = i > bw ? i - bw : 0; k < i; k++) {
            double f = l[i * w + (k + bw - i)];
            if (f == 0)
                continue;
            const double *xk = x + k * p;
            for (size_t c = 0; c < p; c++)
                xi[c] -= f * xk[c];
        }
        double inv = 1 / l[i * w + bw];
        for (size_t c = 0; c < p; c++)
            xi[c] *= inv;
    }
}

void pp_reg_band_backward(const double *l, size_t n, size_t bw, double *x)
{
    const size_t width = bw + 1;
    for (size_t i = n; i-- > 0;) {
        const double *row = l + i * width;
        x[i] /= row[bw];
        for (size_t k = i > bw ? i - bw : 0; k < i; k++)
            x[k] -= row[k + bw - i] * x[i];
    }
}
