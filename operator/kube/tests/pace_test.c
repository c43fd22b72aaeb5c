/* When the next request may go. */
#include "common/tests/cmocka_all.h"
#include "operator/kube/pace.h"

static const int64_t SECOND = 1000000000;

static void test_a_burst_and_then_the_rate(void **state)
{
    (void)state;
    pp_pace p;
    const int64_t now = 1000 * SECOND;
    pp_pace_init(&p, 10, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pp_pace_take(&p, now), 0);
    assert_int_equal(pp_pace_take(&p, now), SECOND / 10);
    assert_int_equal(pp_pace_take(&p, now), SECOND / 10); /* asking costs nothing */
    assert_int_equal(pp_pace_take(&p, now + SECOND / 10), 0);
    assert_int_equal(pp_pace_take(&p, now + SECOND / 10), SECOND / 10);
    int taken = 0; /* ten seconds, looked at every millisecond */
    for (int64_t t = now + SECOND; t < now + 11 * SECOND; t += SECOND / 1000)
        taken += pp_pace_take(&p, t) == 0;
    assert_in_range(taken, 100, 104);
    for (int i = 0; i < 4; i++) /* a rest gives back the burst, and no more than that */
        assert_int_equal(pp_pace_take(&p, now + 1000 * SECOND), 0);
    assert_true(pp_pace_take(&p, now + 1000 * SECOND) > 0);
}

static void test_a_pause_ends_without_a_burst(void **state)
{
    (void)state;
    pp_pace p;
    pp_pace_init(&p, 10, 4);
    assert_int_equal(pp_pace_take(&p, SECOND), 0);
    pp_pace_pause(&p, 5 * SECOND);
    pp_pace_pause(&p, 3 * SECOND); /* shorter than what is asked for already */
    assert_int_equal(pp_pace_take(&p, SECOND), 4 * SECOND);
    assert_int_equal(pp_pace_take(&p, 5 * SECOND), 0);
    assert_int_equal(pp_pace_take(&p, 5 * SECOND), SECOND / 10);
}

static void test_no_limit(void **state)
{
    (void)state;
    pp_pace p;
    pp_pace_init(&p, 0, 1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(pp_pace_take(&p, SECOND), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_burst_and_then_the_rate),
        cmocka_unit_test(test_a_pause_ends_without_a_burst),
        cmocka_unit_test(test_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
