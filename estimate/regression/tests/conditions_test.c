/*
 * A few runs of each condition: what is told is right, and told where it can be. With an argument,
 * 0 or 1, of each second one alone: two processors have a half each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above. */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "estimate/regression/tests/conditions.h"
#include "estimate/regression/tests/totals.h"

/* Sanitizers look for other defects than statistical ones, at a tenth of the speed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#define RUNS 1
#else
#define SANITIZED 0
#define RUNS 2
#endif

static void run_add(const sim_condition *condition, uint64_t seed, sim_totals *t)
{
    sim_config c = sim_defaults(seed);
    pp_error err = {0};
    condition->change(&c);
    if (sim_totals_run(t, &c, 0, &err) < 0)
        fail_msg("%s", err.message);
}

static void condition_is_met(void **state)
{
    const sim_condition *condition = *state;
    sim_totals t = {0};
    if (SANITIZED && !condition->runs_code_of_its_own)
        skip();
    for (uint64_t i = 0; i < RUNS; i++)
        run_add(condition, 700 + i, &t);
    const double n = (double)t.n;
    print_message("%s: reported %.3f, error %.2f, z %.2f of %zu, within 3: %.3f, beyond 5: %zu\n",
                  condition->name, t.reported / RUNS, t.n ? t.error / n : 0,
                  t.n ? sqrt(t.z2 / n) : 0, t.n, t.n ? (double)t.within3 / n : 0, t.beyond5);
    if (condition->expected == SIM_WITHHELD)
        assert_int_equal(t.n, 0);
    if (condition->expected == SIM_RIGHT)
        assert_true(t.reported / RUNS >= 0.8);
    if (t.n == 0)
        return;
    assert_true(t.error / n <= 1.5);
    assert_true((double)t.beyond5 / n <= 0.01);
    assert_true((double)t.within3 / n >= 0.95);
    /* Of several runs: standard errors are neither too small nor too wide. */
    assert_true(SANITIZED || (sqrt(t.z2 / n) > 0.7 && sqrt(t.z2 / n) < 1.4));
}

int main(int argc, char **argv)
{
    struct CMUnitTest *tests = calloc(sim_condition_count, sizeof *tests);
    const size_t step = argc > 1 ? 2 : 1, from = argc > 1 ? (size_t)(argv[1][0] == '1') : 0;
    size_t n = 0;
    if (!tests)
        return 1;
    for (size_t i = from; i < sim_condition_count; i += step)
        tests[n++] = (struct CMUnitTest){.name = sim_conditions[i].name,
                                         .test_func = condition_is_met,
                                         .initial_state = (void *)(uintptr_t)&sim_conditions[i]};
    const int failed = _cmocka_run_group_tests("conditions", tests, n, NULL, NULL);
    free(tests);
    return failed;
}
