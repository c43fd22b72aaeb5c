/* Runs with a pause in them, and steps that take long by themselves. */
#include "estimate/activity/pauses.h"

#include "common/tests/cmocka_all.h"
#include "common/tests/random.h"

#include <math.h>

#define MS INT64_C(1000000)

enum { RUNS = 200 };

static double limit_of(pp_activity_run *runs, size_t n)
{
    static const bool uses[] = {true, false};
    const pp_activity a = {.runs = runs, .n_runs = n};
    double limit;
    assert_int_equal(pp_pauses_limit(&a, uses, &limit, NULL), 0);
    return limit;
}

static size_t left_out(pp_activity_run *runs, size_t n)
{
    const double limit = limit_of(runs, n);
    size_t out = 0;
    for (size_t i = 0; i < n; i++)
        out += pp_run_step_ns(&runs[i]) > limit;
    return out;
}

/* Of many steps each, their means hardly differ: whatever takes twice as long has a pause. */
static void test_runs_of_many_steps(void **state)
{
    (void)state;
    pp_activity_run runs[12];
    for (int i = 0; i < 12; i++)
        runs[i] = (pp_activity_run){.steps = 10, .duration_ns = (i % 3 ? 100 + i : 240) * MS};
    assert_int_equal(left_out(runs, 12), 4);
    for (int i = 0; i < 12; i++)
        runs[i].duration_ns = (100 + 8 * i) * MS;
    assert_int_equal(left_out(runs, 12), 0);
    assert_true(isinf(limit_of(runs, 0)));
}

/* Sequences of unlike lengths, say: none of these steps is a pause, and none is left out. */
static void test_steps_that_vary(void **state)
{
    (void)state;
    pp_activity_run runs[RUNS];
    uint64_t seed = 7;
    for (int i = 0; i < RUNS; i++) {
        const double length = 1e9 * exp(0.5 * sim_normal(&seed));
        runs[i] = (pp_activity_run){.steps = 1, .duration_ns = llround(length)};
    }
    assert_true(left_out(runs, RUNS) <= 1);
    for (int i = 0; i < RUNS; i++)
        runs[i].duration_ns = (i % 10 < 7 ? 2000 : 5000) * MS; /* two kinds */
    assert_int_equal(left_out(runs, RUNS), 0);
}

static void test_long_steps_with_pauses(void **state)
{
    (void)state;
    pp_activity_run runs[RUNS];
    for (int i = 0; i < RUNS; i++)
        runs[i] = (pp_activity_run){.steps = 1,
                                    .duration_ns = (i % 20 == 19 ? 30000 + i : 1000 + 5 * i) * MS};
    assert_int_equal(left_out(runs, RUNS), RUNS / 20);
}

/* A short session of long steps, in one of which a checkpoint was saved. */
static void test_few_long_steps(void **state)
{
    (void)state;
    pp_activity_run runs[9];
    for (int i = 0; i < 9; i++)
        runs[i] = (pp_activity_run){.steps = 1, .duration_ns = (i == 4 ? 45000 : 5000 + i) * MS};
    assert_int_equal(left_out(runs, 9), 1);
    runs[5].duration_ns = 45001 * MS; /* two of nine are steps of another kind */
    assert_int_equal(left_out(runs, 9), 0);
}

static void test_other_processes(void **state)
{
    (void)state;
    pp_activity_run runs[] = {{.steps = 10, .duration_ns = 100 * MS},
                              {.steps = 10, .duration_ns = 110 * MS},
                              {.process = 1, .steps = 10, .duration_ns = 900 * MS}};
    assert_true(isinf(limit_of(runs, 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_of_many_steps),     cmocka_unit_test(test_steps_that_vary),
        cmocka_unit_test(test_long_steps_with_pauses), cmocka_unit_test(test_few_long_steps),
        cmocka_unit_test(test_other_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
