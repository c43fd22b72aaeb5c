/* Holm's procedure against its own example. */
#include "cli/compare/significance.h"
#include "common/tests/cmocka_all.h"

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
        cmocka_unit_test(holm_steps_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
