/* Tails of t against published tables. */
#include "common/student.h"

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
        near(pp_student_p(points[i].five, points[i].freedom), 0.05, 5e-5);
        near(pp_student_p(-points[i].tenth, points[i].freedom), 0.001, 1e-6);
    }
    near(pp_student_p(0, 7), 1, 1e-12);
    near(pp_student_p(0, (double)NAN), 1, 1e-12);
    near(pp_student_p(3, 1e9), pp_student_p(3, (double)INFINITY), 1e-7);
    assert_true(pp_student_p(60, 40) >= 0 && pp_student_p(60, 40) < 1e-30);
}

/* Equal errors of equal freedom add theirs; one that is known exactly leaves the other's. */
static void freedom_is_welchs(void **state)
{
    (void)state;
    near(pp_student_freedom(1, 10, 1, 10), 20, 1e-9);
    near(pp_student_freedom(1, 10, 0, 10), 10, 1e-9);
    near(pp_student_freedom(2, 10, 1, (double)INFINITY), 10 * 25.0 / 16, 1e-9);
    assert_true(isinf(pp_student_freedom(1, (double)NAN, 1, (double)INFINITY)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_are_those_of_tables),
        cmocka_unit_test(freedom_is_welchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
