/* A skyline matrix with a border: what groups of kernels that are alike have in common, joined with
 * their own columns alone. By its Schur complement, so that the border costs no long rows. */
#include "common/vector.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = PP_SKYLINE_AT_ONCE };

int pp_arrow_init(pp_arrow *a, size_t n, size_t rows, uint32_t *first, pp_arrow_span *spans,
                  size_t limit, pp_error *err)
{
    a->spans = spans;
    if (pp_skyline_init(&a->band, n, first, limit, err) < 0)
        return -1;
    a->rows = rows;
    a->at = calloc(n + 1, sizeof *a->at);
    a->corner = calloc(rows * rows + 1, sizeof *a->corner);
    a->scratch = malloc((n + 1) * AT_ONCE * sizeof *a->scratch);
    if (!a->at || !a->corner || !a->scratch)
        return pp_error_nomem(err);
    a->count = 0;
    for (size_t i = 0; i < n; i++) {
        a->at[i] = a->count;
        a->count += spans[i].n;
    }
    a->border = calloc(a->count + 1, sizeof *a->border);
    return a->border ? 0 : pp_error_nomem(err);
}

void pp_arrow_free(pp_arrow *a)
{
    pp_skyline_free(&a->band);
    free(a->spans);
    free(a->at);
    free(a->border);
    free(a->corner);
    free(a->scratch);
    *a = (pp_arrow){0};
}

void pp_arrow_clear(pp_arrow *a)
{
    memset(a->band.values, 0, a->band.count * sizeof *a->band.values);
    memset(a->border, 0, a->count * sizeof *a->border);
    memset(a->corner, 0, a->rows * a->rows * sizeof *a->corner);
}

void pp_arrow_add(pp_arrow *a, size_t i, size_t j, double value)
{
    const size_t n = a->band.n, high = i > j ? i : j, low = i > j ? j : i;
    if (high < n)
        *pp_skyline_entry(&a->band, high, low) += value;
    else if (low < n)
        a->border[a->at[low] + high - n - a->spans[low].first] += value;
    else
        a->corner[(high - n) * a->rows + low - n] += value;
}

/* Some rows of the border, from `from` on, as columns beside each other. */
static void lay_out(const pp_arrow *a, size_t from, double *x)
{
    const size_t n = a->band.n;
    memset(x, 0, n * AT_ONCE * sizeof *x);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < a->spans[i].n; k++) {
            const size_t row = a->spans[i].first + k;
            if (row >= from && row < from + AT_ONCE)
                x[i * AT_ONCE + row - from] = a->border[a->at[i] + k];
        }
}

/* Takes what the band tells of some rows, from `from` on, from the corner's columns. */
static void take_from_corner(pp_arrow *a, size_t from)
{
    double *x = a->scratch;
    lay_out(a, from, x);
    pp_skyline_solve_some(&a->band, x);
    for (size_t i = 0; i < a->band.n; i++)
        for (size_t k = 0; k < a->spans[i].n; k++) {
            const size_t row = a->spans[i].first + k;
            const double border = a->border[a->at[i] + k];
            for (size_t r = from; r < from + AT_ONCE && r <= row; r++)
                a->corner[row * a->rows + r] -= border * x[i * AT_ONCE + r - from];
        }
}

/* The lower triangle, in its place. */
static bool factor_corner(pp_arrow *a)
{
    const size_t n = a->rows;
    for (size_t i = 0; i < n; i++) {
        double *row = a->corner + i * n;
        for (size_t j = 0; j < i; j++)
            row[j] = (row[j] - pp_dot(row, a->corner + j * n, j)) / a->corner[j * n + j];
        const double d = row[i] - pp_dot(row, row, i);
        if (!(d > 0) || !isfinite(d))
            return false;
        row[i] = sqrt(d);
    }
    return true;
}

bool pp_arrow_factor(pp_arrow *a)
{
    if (!pp_skyline_factor(&a->band))
        return false;
    for (size_t row = 0; row < a->rows; row += AT_ONCE)
        take_from_corner(a, row);
    return factor_corner(a);
}

static void solve_corner(const pp_arrow *a, double *b)
{
    const size_t n = a->rows;
    for (size_t i = 0; i < n; i++)
        b[i] = (b[i] - pp_dot(a->corner + i * n, b, i)) / a->corner[i * n + i];
    for (size_t i = n; i-- > 0;) {
        b[i] /= a->corner[i * n + i];
        for (size_t j = 0; j < i; j++)
            b[j] -= a->corner[i * n + j] * b[i];
    }
}

void pp_arrow_solve(const pp_arrow *a, double *b)
{
    const size_t n = a->band.n;
    double *alone = a->scratch; /* as if there were no border */
    if (a->rows == 0) {
        pp_skyline_solve(&a->band, b);
        return;
    }
    memcpy(alone, b, n * sizeof *alone);
    pp_skyline_solve(&a->band, alone);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < a->spans[i].n; k++)
            b[n + a->spans[i].first + k] -= a->border[a->at[i] + k] * alone[i];
    solve_corner(a, b + n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < a->spans[i].n; k++)
            b[i] -= a->border[a->at[i] + k] * b[n + a->spans[i].first + k];
    pp_skyline_solve(&a->band, b);
}
