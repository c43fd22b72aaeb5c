/* Standard errors of times, against what is known of steps that are made up. */
#include "common/student.h"
#include "common/tests/near.h"
#include "estimate/times/spread.h"

#include <math.h>

enum { RUNS = 400, STEPS = 200 };

/* xorshift64*; each test has its own seed. */
static double uniform(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)((*state * 2685821657736338717ULL) >> 11) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
    const double u = fmax(uniform(state), 1e-300), v = uniform(state);
    return sqrt(-2 * log(u)) * cos(2 * 3.141592653589793 * v);
}

static size_t add_step(pp_spread *s, int64_t capture, double ns)
{
    size_t step;
    pp_error err;
    assert_int_equal(pp_spread_step(s, 0, capture, llround(ns), &step, &err), 0);
    return step;
}

static void add_piece(pp_spread *s, size_t step, uint32_t item, int64_t ns, int64_t busy)
{
    pp_error err;
    const pp_spread_piece p = {.step = step, .item = item, .ns = ns, .busy_ns = busy};
    assert_int_equal(pp_spread_add(s, &p, &err), 0);
}

static void settle(pp_spread *s)
{
    pp_error err;
    assert_int_equal(pp_spread_settle(s, &err), 0);
}

typedef struct judged {
    double z, beyond; /* root mean square of error over standard error; runs beyond 3 */
} judged;

/* Steps of 1 ms whose deviations remember that much of the one before, in captures of 20 steps. An
 * item takes a part of each that varies for itself, and its kernels a part of that. */
static judged judge(double memory, int what, uint64_t seed)
{
    double squares = 0, beyond = 0;
    const double truth[] = {1e6, 4e5, 0.75};
    for (int run = 0; run < RUNS; run++) {
        pp_spread *s = pp_spread_new();
        double off = normal(&seed);
        for (int i = 0; i < STEPS; i++) {
            off = memory * off + sqrt(1 - memory * memory) * normal(&seed);
            const size_t step = add_step(s, i / 20, 1e6 + 3e4 * off);
            const double ns = 4e5 + 2e4 * off;
            add_piece(s, step, 3, llround(ns), llround(0.75 * ns + 5e3 * normal(&seed)));
        }
        settle(s);
        const pp_spread_times t = pp_spread_item(s, 3);
        const pp_spread_mean told[] = {pp_spread_marked(s), t.total, t.busy_share};
        const double z = (told[what].mean - truth[what]) / told[what].standard_error;
        squares += z * z;
        beyond += fabs(z) > 3;
        pp_spread_free(s);
    }
    return (judged){sqrt(squares / RUNS), beyond / RUNS};
}

static void check(double memory, int what, uint64_t seed)
{
    const judged j = judge(memory, what, seed);
    if (!(j.z > 0.8 && j.z < 1.25 && j.beyond < 0.03))
        fail_msg("memory %g, value %d: z %.2f, %.1f %% beyond 3", memory, what, j.z,
                 100 * j.beyond);
}

static void test_errors_are_as_large_as_said(void **state)
{
    (void)state;
    const double memories[] = {0, 0.5, 0.8};
    for (int what = 0; what < 3; what++)
        for (size_t m = 0; m < sizeof memories / sizeof *memories; m++)
            check(memories[m], what, 0x9E3779B97F4A7C15ULL + m);
}

/* How often a mean is called off by more than chance, at 5 %, where captures differ by so much. */
static double false_alarms(int captures, double differ, uint64_t seed)
{
    int alarms = 0;
    for (int run = 0; run < RUNS; run++) {
        pp_spread *s = pp_spread_new();
        double off = 0;
        for (int i = 0; i < STEPS; i++) {
            if (i % (STEPS / captures) == 0)
                off = differ * normal(&seed);
            const size_t step = add_step(s, i / (STEPS / captures), 1e6 * (1 + off));
            add_piece(s, step, 0, llround(4e5 * (1 + off) + 1e4 * normal(&seed)), -1);
        }
        settle(s);
        const pp_spread_mean t = pp_spread_item(s, 0).total;
        alarms += pp_student_p((t.mean - 4e5) / t.standard_error, t.freedom) < 0.05;
        pp_spread_free(s);
    }
    return (double)alarms / RUNS;
}

/* As a GPU's clock does, by up to 2 % on an H200. */
static void test_captures_that_differ(void **state)
{
    (void)state;
    static const int captures[] = {2, 4, 10};
    static const double differ[] = {0, 0.005, 0.03};
    for (size_t c = 0; c < sizeof captures / sizeof *captures; c++)
        for (size_t d = 0; d < sizeof differ / sizeof *differ; d++) {
            const double alarms = false_alarms(captures[c], differ[d], 0x2545F4914F6CDD1DULL + d);
            if (alarms > 0.08 || (d == 2 && alarms < 0.01))
                fail_msg("%d captures that differ by %g: %.1f %% are off", captures[c], differ[d],
                         100 * alarms);
        }
}

/* Runs of counted steps that remember the one before, as clocks that fall in spells have it. */
static void test_counted_steps_with_memory(void **state)
{
    (void)state;
    static const double memories[] = {0, 0.3, 0.7};
    uint64_t seed = 0xD1342543DE82EF95ULL;
    pp_error err;
    for (size_t m = 0; m < sizeof memories / sizeof *memories; m++) {
        double squares = 0;
        for (int run = 0; run < RUNS; run++) {
            pp_spread *s = pp_spread_new();
            double off = normal(&seed);
            for (int i = 0; i < 60; i++) {
                off = memories[m] * off + sqrt(1 - memories[m] * memories[m]) * normal(&seed);
                const pp_spread_run r = {0, i, 100, llround(1e8 * (1 + 0.01 * off))};
                assert_int_equal(pp_spread_count(s, &r, &err), 0);
            }
            settle(s);
            const pp_spread_mean t = pp_spread_counted(s);
            squares += pow((t.mean - 1e6) / t.standard_error, 2);
            pp_spread_free(s);
        }
        const double z = sqrt(squares / RUNS);
        if (!(z > 0.8 && z < 1.3))
            fail_msg("memory %g: z %.2f", memories[m], z);
    }
}

/* By hand: eight steps, each a capture, so that a block is one step. */
static void test_known_steps(void **state)
{
    (void)state;
    const int64_t ns[] = {100, 110, 90, 100, 120, 80, 105, 95};
    pp_spread *s = pp_spread_new();
    double squares = 0;
    for (int i = 0; i < 8; i++) {
        const size_t step = add_step(s, i, (double)ns[i]);
        add_piece(s, step, 0, ns[i] / 2, ns[i] / 4);
        squares += pow((double)ns[i] - 100, 2);
    }
    settle(s);
    const pp_spread_mean all = pp_spread_marked(s);
    assert_near(all.mean, 100, 1e-9);
    assert_near(all.standard_error, sqrt(squares / 7 / 8), 1e-9);
    assert_near(all.freedom, 7, 1e-9);
    assert_true(isnan(pp_spread_item(s, 1).total.standard_error));
    pp_spread_free(s);
}

static void test_what_no_item_takes(void **state)
{
    (void)state;
    pp_spread *s = pp_spread_new();
    for (int i = 0; i < 10; i++) {
        const size_t step = add_step(s, i, 1000);
        add_piece(s, step, 0, 600 + 10 * i, 300);
        add_piece(s, step, PP_SPREAD_REST, 50, 40);
    }
    settle(s);
    const pp_spread_times rest = pp_spread_rest(s), item = pp_spread_item(s, 0);
    assert_near(rest.total.mean, 355, 1e-9);
    assert_near(rest.total.standard_error, item.total.standard_error, 1e-9);
    assert_near(rest.busy_share.mean, 400.0 / 3550, 1e-12);
    assert_near(item.busy.standard_error, 0, 1e-12);
    pp_spread_free(s);
}

static void test_kernels_that_are_not_known(void **state)
{
    (void)state;
    pp_spread *s = pp_spread_new();
    for (int i = 0; i < 20; i++) {
        const size_t step = add_step(s, i, 1000);
        add_piece(s, step, 0, 500, i % 2 ? 200 + i : -1);
        add_piece(s, step, 1, 400, -1);
    }
    settle(s);
    const pp_spread_times part = pp_spread_item(s, 0), none = pp_spread_item(s, 1);
    assert_true(isnan(part.busy.standard_error) && part.busy_share.standard_error > 0);
    assert_near(part.busy_share.mean, 210 / 500.0, 1e-12);
    assert_true(isnan(none.busy.standard_error) && isnan(none.busy_share.standard_error));
    assert_true(none.total.standard_error >= 0);
    pp_spread_free(s);
}

static void test_too_few_steps(void **state)
{
    (void)state;
    pp_spread *s = pp_spread_new();
    settle(s);
    assert_true(isnan(pp_spread_marked(s).standard_error));
    assert_true(isnan(pp_spread_rest(s).total.standard_error));
    pp_spread_free(s);
    s = pp_spread_new();
    for (int i = 0; i < 7; i++)
        add_step(s, i, 1000 + i);
    settle(s);
    assert_true(isnan(pp_spread_marked(s).standard_error));
    pp_spread_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_are_as_large_as_said),
        cmocka_unit_test(test_captures_that_differ),
        cmocka_unit_test(test_counted_steps_with_memory),
        cmocka_unit_test(test_known_steps),
        cmocka_unit_test(test_what_no_item_takes),
        cmocka_unit_test(test_kernels_that_are_not_known),
        cmocka_unit_test(test_too_few_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
