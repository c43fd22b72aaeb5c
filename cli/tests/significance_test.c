/* Tails of t against published tables, and Holm's procedure against its own example. */
#include "cli/compare/significance.h"
#include "common/tests/cmocka_all.h"

#include <math.h>

static void near(double value, double expected, double within)
{
    if (!(fabs(value - expected) <= within))
        fail_msg("%.12g, not %.12g", value, expected);
}

/* Two-sided 5 % and 0.1 % points (NIST/SEMATECH e-Handbook, 1.3.6.7.2). */
static void tails_are_those_of_tables(void **state)
{
    (void)state;
    static const struct {
        double freedom, five, tenth;
    } points[] = {{1, 12.706, 636.619},
                  {2, 4.303, 31.599},
                  {5, 2.571, 6.869},
                  {10, 2.228, 4.587},
                  {30, 2.042, 3.646},
                  {100, 1.984, 3.3905},
                  {(double)INFINITY, 1.959964, 3.290527}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        near(pp_significance_p(points[i].five, points[i].freedom), 0.05, 5e-5);
        near(pp_significance_p(-points[i].tenth, points[i].freedom), 0.001, 1e-6);
    }
    near(pp_significance_p(0, 7), 1, 1e-12);
    near(pp_significance_p(0, (double)NAN), 1, 1e-12);
    near(pp_significance_p(3, 1e9), pp_significance_p(3, (double)INFINITY), 1e-7);
    assert_true(pp_significance_p(60, 40) >= 0 && pp_significance_p(60, 40) < 1e-30);
}

/* Equal errors of equal freedom add theirs; one that is known exactly leaves the other's. */
static void freedom_is_welchs(void **state)
{
    (void)state;
    near(pp_significance_freedom(1, 10, 1, 10), 20, 1e-9);
    near(pp_significance_freedom(1, 10, 0, 10), 10, 1e-9);
    near(pp_significance_freedom(2, 10, 1, (double)INFINITY), 10 * 25.0 / 16, 1e-9);
    assert_true(isinf(pp_significance_freedom(1, (double)NAN, 1, (double)INFINITY)));
}

static void marks(const double *p, size_t n, const bool *expected)
{
    bool marked[8];
    assert_int_equal(pp_significance_holm(p, n, 0.05, marked), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(marked[i], expected[i]);
}

/* It stops at the first that is above: what comes behind is not marked, however small. */
static void holm_steps_down(void **state)
{
    (void)state;
    marks((const double[]){0.01, 0.04, 0.03, 0.005}, 4, (const bool[]){true, false, false, true});
    marks((const double[]){0.04, 0.025, 0.0166}, 3, (const bool[]){true, true, true});
    marks((const double[]){0.04, 0.0251, 0.0166}, 3, (const bool[]){false, false, true});
    marks((const double[]){0.05}, 1, (const bool[]){true});
    marks((const double[]){0.051}, 1, (const bool[]){false});
    marks(NULL, 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_are_those_of_tables),
        cmocka_unit_test(freedom_is_welchs),
        cmocka_unit_test(holm_steps_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
