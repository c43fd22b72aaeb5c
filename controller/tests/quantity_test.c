#include "controller/injection/quantity.h"
#include "controller/tests/fixtures.h"

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t thousandths;
    } cases[] = {
        {"0", 0},
        {"1", 1000},
        {"+2", 2000},
        {"250m", 250},
        {"0.1", 100},
        {".5", 500},
        {"2.", 2000},
        {"1.5", 1500},
        {"100u", 1}, /* rounded up, as the API server does */
        {"1n", 1},
        {"0.0000000001", 1},
        {"1.0000000000", 1000},
        {"64Mi", INT64_C(67108864000)},
        {"1.5Gi", INT64_C(1610612736000)},
        {"1k", 1000000},
        {"2e3", 2000000},
        {"2E-1", 200},
        {"1E", INT64_MAX},
        {"8Ei", INT64_MAX},
        {"99999999999999999999999999999999999999999999", INT64_MAX},
        {"9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t got = -1;
        if (!pp_quantity_parse(cases[i].text, &got) || got != cases[i].thousandths)
            fail_msg("%s is %lld", cases[i].text, (long long)got);
    }
}

static void test_no_quantities(void **state)
{
    (void)state;
    static const char *const cases[] = {"",   "m",  "-1",  "1.2.3", "1 Gi", "1GB", "1mi",
                                        "Mi", "1e", "1e+", "1e99",  ".",    "0x1", "1Mi "};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t got = -7;
        if (pp_quantity_parse(cases[i], &got))
            fail_msg("'%s' is taken for %lld", cases[i], (long long)got);
        assert_int_equal(got, -7);
    }
}

static void test_json(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *values = fixture_json("[4, 0.25, '100m', true, null, -1]");
    static const int64_t want[] = {4000, 250, 100, -1, -1, -1};
    for (size_t i = 0; i < 6; i++) {
        int64_t got = -1;
        assert_int_equal(pp_quantity_of(json_array_get(values, i), &got), want[i] >= 0);
        assert_int_equal(got, want[i]);
    }
    assert_false(pp_quantity_of(NULL, &(int64_t){0}));
}

static void test_sums(void **state)
{
    (void)state;
    assert_int_equal(pp_quantity_add(2, 3), 5);
    assert_int_equal(pp_quantity_add(INT64_MAX, 1), INT64_MAX);
    assert_int_equal(pp_quantity_add(INT64_MAX - 1, 1), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_no_quantities),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests_name("quantity", tests, NULL, NULL);
}
