/* A skyline matrix with a border: the groups of kernels that are alike, each joined with its own
 * columns alone. By its Schur complement, so that the border costs no long rows. */
#include "common/vector.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = PP_SKYLINE_AT_ONCE };

int pp_arrow_init(pp_arrow *a, size_t n, size_t groups, uint32_t *first, size_t limit,
                  pp_error *err)
{
    if (pp_skyline_init(&a->band, n, first, limit, err) < 0)
        return -1;
    a->groups = groups;
    a->group = calloc(n + 1, sizeof *a->group);
    a->border = calloc(n + 1, sizeof *a->border);
    a->corner = calloc(groups * groups + 1, sizeof *a->corner);
    a->scratch = malloc((n + 1) * AT_ONCE * sizeof *a->scratch);
    return a->group && a->border && a->corner && a->scratch ? 0 : pp_error_nomem(err);
}

void pp_arrow_free(pp_arrow *a)
{
    pp_skyline_free(&a->band);
    free(a->group);
    free(a->border);
    free(a->corner);
    free(a->scratch);
    *a = (pp_arrow){0};
}

void pp_arrow_clear(pp_arrow *a)
{
    memset(a->band.values, 0, a->band.count * sizeof *a->band.values);
    memset(a->border, 0, a->band.n * sizeof *a->border);
    memset(a->corner, 0, a->groups * a->groups * sizeof *a->corner);
}

void pp_arrow_add(pp_arrow *a, size_t i, size_t j, double value)
{
    const size_t n = a->band.n, high = i > j ? i : j, low = i > j ? j : i;
    if (high < n) {
        *pp_skyline_entry(&a->band, high, low) += value;
    } else if (low < n) {
        a->group[low] = (uint32_t)(high - n);
        a->border[low] += value;
    } else {
        a->corner[(high - n) * a->groups + low - n] += value;
    }
}

/* Takes what the band tells of some groups, from `from` on, from the corner's columns. */
static void take_from_corner(pp_arrow *a, size_t from)
{
    const size_t n = a->band.n;
    double *x = a->scratch;
    memset(x, 0, n * AT_ONCE * sizeof *x);
    for (size_t i = 0; i < n; i++)
        if (a->border[i] != 0 && a->group[i] >= from && a->group[i] < from + AT_ONCE)
            x[i * AT_ONCE + a->group[i] - from] = a->border[i];
    pp_skyline_solve_some(&a->band, x);
    for (size_t i = 0; i < n; i++)
        for (size_t g = from; g < from + AT_ONCE && g <= a->group[i]; g++)
            a->corner[a->group[i] * a->groups + g] -= a->border[i] * x[i * AT_ONCE + g - from];
}

/* The lower triangle, in its place. */
static bool factor_corner(pp_arrow *a)
{
    const size_t n = a->groups;
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
    for (size_t g = 0; g < a->groups; g += AT_ONCE)
        take_from_corner(a, g);
    return factor_corner(a);
}

static void solve_corner(const pp_arrow *a, double *b)
{
    const size_t n = a->groups;
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
    double *alone = a->scratch; /* as if there were no groups */
    if (a->groups == 0) {
        pp_skyline_solve(&a->band, b);
        return;
    }
    memcpy(alone, b, n * sizeof *alone);
    pp_skyline_solve(&a->band, alone);
    for (size_t i = 0; i < n; i++)
        b[n + a->group[i]] -= a->border[i] * alone[i];
    solve_corner(a, b + n);
    for (size_t i = 0; i < n; i++)
        b[i] -= a->border[i] * b[n + a->group[i]];
    pp_skyline_solve(&a->band, b);
}
