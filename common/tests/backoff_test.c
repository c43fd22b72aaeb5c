#include "common/backoff.h"
#include "common/tests/cmocka_all.h"

static void test_doubles_up_to_the_maximum(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 200; seed++) {
        pp_backoff b;
        pp_backoff_init(&b, 800, 30000, seed);
        int64_t step = 800;
        for (int i = 0; i < 12; i++) {
            assert_in_range(pp_backoff_next(&b), step, 2 * step - 1);
            step = 2 * step < 15000 ? 2 * step : 15000;
        }
        pp_backoff_reset(&b);
        assert_in_range(pp_backoff_next(&b), 800, 1599);
    }
}

static void test_seeds_itself(void **state)
{
    (void)state;
    pp_backoff a, b;
    pp_backoff_init(&a, 1, 2, 0);
    pp_backoff_init(&b, 1, 2, 0);
    assert_true(pp_backoff_random(&a, 0, INT64_MAX) != pp_backoff_random(&b, 0, INT64_MAX));
    assert_int_equal(pp_backoff_random(&a, 7, 7), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doubles_up_to_the_maximum),
        cmocka_unit_test(test_seeds_itself),
    };
    return cmocka_run_group_tests_name("backoff", tests, NULL, NULL);
}
