/* What speaks against values is found where something does, and not where nothing does. */
#include "common/tests/cmocka_all.h"
#include "estimate/regression/tests/conditions.h"

#include <math.h>

/* Shares and GPU_UTIL; memory is no share. */
#define JUDGED 5

static pp_regression_result *solved(const sim_config *c, unsigned without, double lag_error)
{
    sim *s = sim_new(c);
    pp_regression_result *r = NULL;
    pp_error err = {0};
    s->in.options.without = without;
    s->in.options.lag_error_ns = (int64_t)(lag_error * 1e9);
    if (pp_regression_solve(&s->in, &r, &err) < 0)
        fail_msg("%s", err.message);
    sim_free(s);
    assert_true(r->lag_known);
    return r;
}

static void check_doubts(pp_regression_result *r, pp_regression_doubt expected)
{
    for (size_t m = 0; m < JUDGED; m++)
        assert_int_equal(r->fits[m].doubt, expected);
    pp_regression_result_free(r);
}

/* Halves predict each other as well as they say, neither better nor worse. */
static void test_nothing_is_wrong(void **state)
{
    (void)state;
    const sim_config c = sim_defaults(5);
    pp_regression_result *r = solved(&c, 0, 0);
    for (size_t m = 0; m < JUDGED; m++) {
        const pp_regression_metric_fit *f = &r->fits[m];
        const pp_regression_prediction *p = &f->prediction;
        print_message("explained %.3f, miss %.2f of what is expected, %zu items, z %.2f; shift "
                      "%.2f +- %.2f ms\n",
                      p->explained, p->miss / p->expected, p->items, p->items_z, f->shift_ns / 1e6,
                      f->shift_se_ns / 1e6);
        assert_true(p->explained > 0.93 && p->explained < f->r2);
        assert_true(p->miss > 0.7 * p->expected && p->miss < 1.4 * p->expected);
        assert_true(p->items > 10 && p->items_z > 0.4 && p->items_z < 1.8);
        assert_true(fabs(f->shift_ns) < 3.5 * f->shift_se_ns);
        assert_true(p->windows == f->fitted_windows);
    }
    check_doubts(r, PP_REGRESSION_FITS);
}

/* A shift is told as what it is, and found; where other windows may be taken it is mended. */
static void test_windows_elsewhere(void **state)
{
    (void)state;
    const sim_config c = sim_defaults(6);
    const double error = 0.02;
    pp_regression_result *r = solved(&c, PP_REGRESSION_OWN_WINDOWS, error);
    for (size_t m = 0; m < JUDGED; m++) {
        const pp_regression_metric_fit *f = &r->fits[m];
        assert_true(fabs(f->shift_ns - error * 1e9) < 0.4 * error * 1e9);
        assert_true(f->shift_ns > 4 * f->shift_se_ns);
        assert_true(f->shift_moves > 0.5 * (m == 4 ? 1 : 0.01));
    }
    check_doubts(r, PP_REGRESSION_UNEXPLAINED);
    r = solved(&c, 0, 0.5 * c.window);
    check_doubts(r, PP_REGRESSION_FITS);
}

static void test_somebody_else(void **state)
{
    (void)state;
    sim_config c = sim_defaults(7);
    c.kernels = true;
    c.tenant = 0.05;
    check_doubts(solved(&c, 0, 0), PP_REGRESSION_TENANT);
}

/* Some windows only: nothing is held out. */
static void test_too_little(void **state)
{
    (void)state;
    sim_config c = sim_defaults(8);
    c.duration = 20;
    pp_regression_result *r = solved(&c, 0, 0);
    for (size_t m = 0; m < JUDGED; m++)
        assert_true(isnan(r->fits[m].prediction.explained) && r->fits[m].prediction.windows == 0);
    pp_regression_result_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_wrong),
        cmocka_unit_test(test_windows_elsewhere),
        cmocka_unit_test(test_somebody_else),
        cmocka_unit_test(test_too_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
