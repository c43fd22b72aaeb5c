#include "common/vector.h"

#include <stdlib.h>

double pp_dot(const double *a, const double *b, size_t n)
{
    /* Four sums in a fixed order: fast without leave to reorder, and the same bits every time. */
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += a[i] * b[i];
        s1 += a[i + 1] * b[i + 1];
        s2 += a[i + 2] * b[i + 2];
        s3 += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++)
        s0 += a[i] * b[i];
    return (s0 + s1) + (s2 + s3);
}

void pp_add_scaled(double *restrict to, const double *restrict from, double by, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += by * from[i];
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void pp_sort_doubles(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
}
