/* When a session is solved again. */
#include "controller/samples/solve_due.h"

#include "common/tests/cmocka_all.h"

#define SECOND INT64_C(1000000000)
#define NOW (1000 * SECOND)

static bool due(pp_solve_state s, int64_t interval_s)
{
    return pp_solve_is_due(&s, interval_s * SECOND, NOW);
}

static void test_only_where_there_is_something_new(void **state)
{
    (void)state;
    assert_true(due((pp_solve_state){.unsolved = true}, 10));
    assert_false(due((pp_solve_state){0}, 10));
    assert_false(due((pp_solve_state){.finalise = true}, 10));
    assert_false(due((pp_solve_state){.unsolved = true, .solving = true}, 10));
    assert_false(due((pp_solve_state){.unsolved = true, .solving = true, .finalise = true}, 10));
}

static void test_not_too_often(void **state)
{
    (void)state;
    assert_false(due((pp_solve_state){.unsolved = true, .ended_ns = NOW - 9 * SECOND}, 10));
    assert_true(due((pp_solve_state){.unsolved = true, .ended_ns = NOW - 10 * SECOND}, 10));
    const pp_solve_state slow = {
        .unsolved = true, .took_ns = 2 * SECOND, .ended_ns = NOW - 19 * SECOND};
    assert_false(due(slow, 10));
    assert_true(pp_solve_is_due(&slow, 10 * SECOND, NOW + SECOND));
}

/* 1,000 sessions whose solutions take 50 ms each: one of them in a quarter of the time. */
static void test_with_many_others(void **state)
{
    (void)state;
    pp_solve_state s = {.unsolved = true,
                        .took_ns = SECOND / 20,
                        .all_took_ns = 50 * SECOND,
                        .ended_ns = NOW - 200 * SECOND + 1};
    assert_false(due(s, 30));
    s.ended_ns--;
    assert_true(due(s, 30));
    s.ended_ns = NOW - 2 * SECOND;
    s.finalise = true;
    assert_true(due(s, 30));
}

static void test_the_first_one(void **state)
{
    (void)state;
    pp_solve_state s = {.unsolved = true, .all_took_ns = 50 * SECOND, .known_ns = NOW};
    assert_false(due(s, 10));
    s.known_ns = NOW - 50 * SECOND + 1;
    assert_false(due(s, 10));
    s.known_ns--;
    assert_true(due(s, 10));
    s.known_ns = NOW;
    s.finalise = true;
    assert_true(due(s, 10));
    assert_true(due((pp_solve_state){.unsolved = true, .known_ns = NOW}, 10));
}

static void test_the_last_one(void **state)
{
    (void)state;
    static const int64_t waits[] = {2, 4, 8, 16, 32, 64, 128, 128};
    for (unsigned i = 0; i < sizeof waits / sizeof *waits; i++) {
        pp_solve_state s = {.unsolved = true,
                            .finalise = true,
                            .failures = i,
                            .took_ns = 100 * SECOND,
                            .ended_ns = NOW - waits[i] * SECOND + 1};
        assert_false(due(s, 600));
        s.ended_ns--;
        assert_true(due(s, 600));
    }
    assert_true(due((pp_solve_state){.unsolved = true,
                                     .finalise = true,
                                     .failures = UINT32_MAX,
                                     .ended_ns = NOW - 128 * SECOND},
                    600));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_where_there_is_something_new),
        cmocka_unit_test(test_not_too_often),
        cmocka_unit_test(test_with_many_others),
        cmocka_unit_test(test_the_first_one),
        cmocka_unit_test(test_the_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
