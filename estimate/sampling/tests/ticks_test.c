/* How fast two clocks go against each other, by the ticks of the timer that both tell. */
#include "common/tests/cmocka_all.h"
#include "estimate/sampling/join_internal.h"

#include <math.h>
#include <stdlib.h>

enum { TICK = 32, KERNELS = 3000, SAMPLES = 5000 };

/* A capture as the GPU's timer counts it, and how two clocks tell that. */
typedef struct told {
    double kernels, samples; /* by so much they go faster than the timer */
    int64_t tick;            /* ns */
    int64_t far;             /* ns, between two kernels in each hundred */
    size_t n_kernels, n_samples;
} told;

static int64_t on_clock(double by, int64_t from, int64_t ns)
{
    return from + (int64_t)llround((double)ns * (1 + by));
}

static void add_kernel(pp_sampling *f, const told *t, int64_t at, int64_t length)
{
    const int64_t zero = INT64_C(387731676009);
    const pp_sampling_kernel k = {.start = on_clock(t->kernels, zero, at),
                                  .end = on_clock(t->kernels, zero, at + length)};
    assert_int_equal(pp_sampling_add_kernel(f, &k, NULL), 0);
}

static bool drift_of(const told *t, double *ret)
{
    pp_sampling *f = pp_sampling_new(100000);
    assert_non_null(f);
    srand(1);
    int64_t at = 0;
    for (size_t i = 0; i < t->n_kernels; i++) {
        const int64_t length = (400 + rand() % 8000) * t->tick;
        add_kernel(f, t, at, length);
        at += length + 37 * t->tick + (i % 100 == 99 ? t->far : 0);
    }
    for (int64_t i = 0; i < (int64_t)t->n_samples; i++) {
        const int64_t zero = INT64_C(1796017124825248520), period = 99968 / TICK * t->tick;
        pp_sampling_sample s = {.start = on_clock(t->samples, zero, i * period),
                                .end = on_clock(t->samples, zero, (i + 1) * period)};
        for (int m = 0; m < PP_SAMPLING_METRICS; m++)
            s.values[m] = 0.5F;
        assert_int_equal(pp_sampling_add_sample(f, &s, NULL), 0);
    }
    const bool known = pp_sampling_drift_by_ticks(f, ret);
    pp_sampling_free(f);
    return known;
}

static void test_rates_are_told_apart(void **state)
{
    (void)state;
    static const double rates[][2] = {
        {-9.37e-6, -6.583e-6}, {-7.962e-6, 0.036e-6}, {0, 0}, {2.004e-6, -0.5e-6}, {12e-6, -12e-6}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const told t = {rates[i][0], rates[i][1], TICK, 5000000, KERNELS, SAMPLES};
        double drift = 1;
        assert_true(drift_of(&t, &drift));
        assert_true(fabs(drift - (rates[i][1] - rates[i][0])) < 0.05e-6);
    }
}

static void test_other_times_tell_nothing(void **state)
{
    (void)state;
    double drift;
    static const told others[] = {
        {1e-6, 0, 31, 0, KERNELS, SAMPLES},                                     /* no such ticks */
        {1e-6, 0, 1, 0, KERNELS, SAMPLES},    {1e-6, 0, TICK, 0, 100, SAMPLES}, /* too few */
        {1e-6, 0, TICK, 0, KERNELS, 100},     {1e-6, 0, TICK, 0, KERNELS, 0},
        {60e-6, 0, TICK, 0, KERNELS, SAMPLES}}; /* half a tick apart */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(drift_of(&others[i], &drift));
    const told just = {1e-6, 0, TICK, 0, 300, 300};
    assert_true(drift_of(&just, &drift));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_are_told_apart),
        cmocka_unit_test(test_other_times_tell_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
