#include <math.h>
#include <stdlib.h>

#include "estimate/regression/limits.h"
#include "estimate/regression/residuals.h"

/* Quantiles of |t|: the median, and the ninth decile over it. */
static const struct {
    double freedom, median, ratio;
} table[] = {
    {1, 1.0000, 6.314},
    {2, 0.8165, 3.576},
    {4, 0.7407, 2.878},
    {8, 0.7064, 2.633},
};

enum { ROWS = sizeof table / sizeof table[0] };

static int order_double(const void *pa, const void *pb)
{
    const double *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

pp_reg_student pp_reg_student_of(double *rest, size_t n, double least)
{
    if (n == 0)
        return (pp_reg_student){PP_REG_INF, 1};
    for (size_t i = 0; i < n; i++)
        rest[i] = fabs(rest[i]);
    qsort(rest, n, sizeof *rest, order_double);
    const double median = rest[n / 2], ratio = rest[n * 9 / 10] / fmax(median, least);
    size_t row = 0;
    while (row + 1 < ROWS && ratio < sqrt(table[row].ratio * table[row + 1].ratio))
        row++;
    return (pp_reg_student){fmax(median / table[row].median, least), table[row].freedom};
}

double pp_reg_student_cost(pp_reg_student t, double e)
{
    const double u = e / t.scale;
    return 0.5 * (t.freedom + 1) * log1p(u * u / t.freedom);
}
