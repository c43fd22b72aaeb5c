#include "estimate/pattern/sum_error.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const pp_sum_part *x = a, *y = b;
    return strcmp(x->group ? x->group : "", y->group ? y->group : "");
}

double pp_sum_variance(pp_sum_part *parts, size_t n)
{
    double variance = 0, common = 0;
    if (n > 1)
        qsort(parts, n, sizeof *parts, compare);
    for (size_t i = 0; i < n; i++) {
        const bool last = i + 1 == n || !parts[i].group || compare(&parts[i], &parts[i + 1]) != 0;
        common += parts[i].error;
        if (last) {
            variance += common * common;
            common = 0;
        }
    }
    return variance;
}

static int compare_chances(const void *a, const void *b)
{
    const pp_sum_chance *x = a, *y = b;
    return (x->likely > y->likely) - (x->likely < y->likely);
}

/* Of two that are so dependent the covariance is min(p, q) - p q. */
double pp_sum_of_chances_variance(pp_sum_chance *parts, size_t n)
{
    double variance = 0, mean = 0, above = 0;
    if (n > 1)
        qsort(parts, n, sizeof *parts, compare_chances);
    for (size_t i = n; i-- > 0;) {
        const double expected = parts[i].part * parts[i].likely;
        variance += expected * (parts[i].part + 2 * above);
        above += parts[i].part;
        mean += expected;
    }
    return fmax(variance - mean * mean, 0);
}
