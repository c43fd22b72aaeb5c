/* Gaps between kernels in which something without a record runs: a copy that nobody tells, say. */
#include "common/tests/cmocka_all.h"
#include "estimate/sampling/join.h"
#include "estimate/sampling/solve.h"

#include <math.h>

enum {
    KERNELS = 12, /* of a step, a layer each */
    STEPS = 150,
    GAP = 18000, /* ns, between two ... */
    WORKED = 5,  /* ... behind this one something runs, as long as the gap or in its last third */
    PAUSE = 400000, /* at a step's end, in which nothing does */
    PERIOD = 100000
};

static const double work = 0.8;

typedef enum working {
    NOWHERE,
    ALL_THE_GAP,
    ITS_LAST_THIRD,
} working;

/* ns, of a step's kernel: in no order that comes again, so that samples show one lag alone. */
static int64_t length_of(int kernel)
{
    static const int64_t lengths[KERNELS] = {14000, 31000, 22000, 17000, 26000, 19000,
                                             35000, 12000, 24000, 29000, 16000, 21000};
    return lengths[kernel];
}

static double level_of(int kernel)
{
    static const double levels[KERNELS] = {0.9, 0.3,  0.6,  0.75, 0.2, 0.5,
                                           0.4, 0.95, 0.35, 0.1,  0.8, 0.55};
    return levels[kernel];
}

static int64_t begin_of(int kernel)
{
    int64_t at = 0;
    for (int i = 0; i < kernel; i++)
        at += length_of(i) + GAP;
    return at;
}

static double step_length(void)
{
    return (double)(begin_of(KERNELS) + PAUSE);
}

/* The time in which something runs up to `t`, ns from a step's begin, by how much of the GPU. */
static double area(double t, working where)
{
    double sum = 0;
    for (int i = 0; i < KERNELS; i++) {
        const double in = t - (double)begin_of(i), length = (double)length_of(i);
        sum += level_of(i) * fmin(fmax(in, 0), length);
        const double begun = where == ITS_LAST_THIRD ? length + GAP * 2 / 3.0 : length;
        if (where != NOWHERE && i == WORKED)
            sum += work * fmin(fmax(in - begun, 0), length + GAP - begun);
    }
    return sum;
}

static double area_until(double t, working where)
{
    const double step = step_length(), steps = floor(t / step);
    return steps * area(step, where) + area(t - steps * step, where);
}

static void add_kernels(pp_sampling *f)
{
    for (int64_t i = 0; i < STEPS; i++)
        for (int j = 0; j < KERNELS; j++) {
            const int64_t at = i * (int64_t)step_length() + begin_of(j);
            const pp_sampling_kernel k = {
                .start = at, .end = at + length_of(j), .step = i, .layer = (uint32_t)j + 1};
            assert_int_equal(pp_sampling_add_kernel(f, &k, NULL), 0);
        }
}

static void add_samples(pp_sampling *f, working where)
{
    for (int64_t at = 0; at + PERIOD < (int64_t)(STEPS * step_length()); at += PERIOD + 37) {
        pp_sampling_sample s = {.start = at, .end = at + PERIOD};
        const double noise = 0.01 * ((double)(at * 7919 % 1000) / 1000 - 0.5);
        const double value =
            (area_until((double)s.end, where) - area_until((double)at, where)) / PERIOD;
        for (int m = 0; m < PP_SAMPLING_METRICS; m++)
            s.values[m] = m == PP_SAMPLING_CLOCK ? 1.98F : (float)(value + noise);
        assert_int_equal(pp_sampling_add_sample(f, &s, NULL), 0);
    }
}

/* The largest error of a kernel's value, in points. */
static double error_without(unsigned part, working where)
{
    pp_sampling *f = pp_sampling_new(PERIOD);
    assert_non_null(f);
    add_kernels(f);
    add_samples(f, where);
    const pp_sampling_clock clock = {.likely = 0, .stamped = true, .range = 300000};
    pp_sampling_sums *sums = NULL;
    pp_sampling_result *r = NULL;
    pp_error err = {0};
    if (pp_sampling_join(f, &clock, NULL, &sums, &err) < 0 ||
        pp_sampling_solve_without(part, (const pp_sampling_sums *const *)&sums, 1, &r, &err) < 0 ||
        !r) {
        fail_msg("%s", err.message);
        return INFINITY;
    }
    double worst = 0;
    assert_int_equal(r->n, KERNELS);
    for (size_t i = 0; i < r->n; i++)
        worst = fmax(worst, 100 * fabs(r->items[i].mean[0] - level_of((int)i)));
    pp_sampling_result_free(r);
    pp_sampling_sums_free(sums);
    pp_sampling_free(f);
    return worst;
}

/* Kernels beside it have nothing of what runs in the gap, where that is found; gaps that are empty
 * stay what they are held for. */
static void test_work_without_a_record_is_found(void **state)
{
    (void)state;
    const double found = error_without(0, ALL_THE_GAP),
                 held = error_without(PP_SAMPLING_WORK, ALL_THE_GAP),
                 none = error_without(0, NOWHERE),
                 none_held = error_without(PP_SAMPLING_WORK, NOWHERE);
    print_message(
        "%.2f points off, %.2f where gaps are held for empty; %.2f and %.2f where they are\n",
        found, held, none, none_held);
    assert_true(found < 1 && held > 10);
    assert_true(none < 1 && fabs(none - none_held) < 1e-9);
}

/* The host launches it right before the next kernel, whose it is not. */
static void test_work_at_the_end_of_a_gap_is_told_apart(void **state)
{
    (void)state;
    const double found = error_without(0, ITS_LAST_THIRD),
                 held = error_without(PP_SAMPLING_WORK, ITS_LAST_THIRD);
    print_message("%.2f points off, %.2f where gaps are held for empty\n", found, held);
    assert_true(found < 2 && held > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_at_the_end_of_a_gap_is_told_apart),
        cmocka_unit_test(test_work_without_a_record_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
