#include "common/student.h"

#include <math.h>

enum { TERMS = 500 };

#define TINY 1e-300
#define EXACT 1e-15

/* The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method. */
static double beta_fraction(double x, double a, double b)
{
    double c = 1, d = 1 - (a + b) * x / (a + 1), f;
    d = 1 / (fabs(d) < TINY ? TINY : d);
    f = d;
    for (int m = 1; m < TERMS; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        for (int i = 0; i < 2; i++) {
            const double term = i ? odd : even;
            d = 1 + term * d;
            c = 1 + term / c;
            d = 1 / (fabs(d) < TINY ? TINY : d);
            c = fabs(c) < TINY ? TINY : c;
            f *= c * d;
        }
        if (fabs(c * d - 1) < EXACT)
            break;
    }
    return f;
}

/* lgamma leaves the sign in a variable of all threads. */
static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

/* The regularized incomplete beta function I_x(a, b). */
static double beta_part(double x, double a, double b)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    const double factor =
        exp(a * log(x) + b * log1p(-x) + log_gamma(a + b) - log_gamma(a) - log_gamma(b));
    return x < (a + 1) / (a + b + 2) ? factor * beta_fraction(x, a, b) / a
                                     : 1 - factor * beta_fraction(1 - x, b, a) / b;
}

double pp_student_p(double t, double freedom)
{
    if (!isfinite(freedom))
        return erfc(fabs(t) / sqrt(2));
    return beta_part(freedom / (freedom + t * t), freedom / 2, 0.5);
}

double pp_student_freedom(double error, double freedom, double other_error, double other_freedom)
{
    const double a = isfinite(freedom) ? pow(error, 4) / freedom : 0;
    const double b = isfinite(other_freedom) ? pow(other_error, 4) / other_freedom : 0;
    return a + b > 0 ? pow(error * error + other_error * other_error, 2) / (a + b)
                     : (double)INFINITY;
}
