/* The lag of samples' stamps, and how it drifts by the ticks of the timer that both clocks tell. */
#include "common/tests/cmocka_all.h"
#include "estimate/sampling/join_internal.h"

#include <math.h>
#include <stdlib.h>

enum { TICK = 32, KERNELS = 3000, SAMPLES = 5000, PERIOD = 85000 };

#define LIKELY INT64_C(1796016888073763689) /* ns: the samples' clock less the kernels' */

/* A capture as the GPU's timer counts it, and how two clocks tell that. */
typedef struct told {
    double kernels, samples; /* by so much they go faster than the timer */
    int64_t tick;            /* ns */
    int64_t far;             /* ns, between two kernels in each hundred */
    size_t n_kernels, n_samples;
    int64_t late;     /* ns: samples begin so long after the kernels */
    int64_t odd_tick; /* ns, of the samples', where that is another; 0: it is not */
    size_t copies;    /* every so many kernels one is a copy, whose time is cut; 0: none is */
    double blurred;   /* ns: kernels' times are off by, standard deviation */
} told;

static const told usual = {.tick = TICK, .n_kernels = KERNELS, .n_samples = SAMPLES};

static int64_t on_clock(double by, int64_t from, int64_t ns)
{
    return from + (int64_t)llround((double)ns * (1 + by));
}

static int64_t round_to(int64_t ns, int64_t tick)
{
    return (ns + tick / 2) / tick * tick;
}

/* About a normal number. */
static double noise(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)rand() / RAND_MAX;
    return sum;
}

static void add_kernels(pp_sampling *f, const told *t)
{
    int64_t at = 0;
    for (size_t i = 0; i < t->n_kernels; i++) {
        const int64_t length = (400 + rand() % 8000) * t->tick;
        const bool copy = t->copies && i % t->copies == 0;
        const int64_t start =
            on_clock(t->kernels, 0, at) + (copy ? 11 : 0) + (int64_t)llround(t->blurred * noise());
        const pp_sampling_kernel k = {.start = start,
                                      .end = start + length,
                                      .work = copy ? PP_SAMPLING_COPY : PP_SAMPLING_KERNEL};
        f->kernels = realloc(f->kernels, (f->n_kernels + 1) * sizeof *f->kernels);
        assert_non_null(f->kernels); /* as a capture has them in whose gaps copies run */
        f->kernels[f->n_kernels++] = k;
        at += length + 37 * t->tick + (i % 100 == 99 ? t->far : 0);
    }
    f->kernels_max = f->n_kernels;
}

static void add_samples(pp_sampling *f, const told *t)
{
    const int64_t tick = t->odd_tick ? t->odd_tick : t->tick;
    for (int64_t i = 0; i < (int64_t)t->n_samples; i++) {
        const int64_t from = round_to(t->late + i * PERIOD, tick);
        const int64_t to = round_to(t->late + (i + 1) * PERIOD, tick);
        pp_sampling_sample s = {.start = on_clock(t->samples, LIKELY, from),
                                .end = on_clock(t->samples, LIKELY, to)};
        for (int m = 0; m < PP_SAMPLING_METRICS; m++)
            s.values[m] = 0.5F;
        if (i % 500 != 499) /* one is lost now and then */
            assert_int_equal(pp_sampling_add_sample(f, &s, NULL), 0);
    }
}

static pp_sampling *make(const told *t)
{
    pp_sampling *f = pp_sampling_new(PERIOD);
    assert_non_null(f);
    srand(1);
    add_kernels(f, t);
    add_samples(f, t);
    return f;
}

static bool drift_of(const told *t, double *ret, double *ret_stderr)
{
    pp_sampling *f = make(t);
    const bool known = pp_sampling_drift_by_ticks(f, ret, ret_stderr);
    pp_sampling_free(f);
    return known;
}

static void test_rates_are_told_apart(void **state)
{
    (void)state;
    static const double rates[][2] = {
        {-9.37e-6, -6.583e-6}, {-7.962e-6, 0.036e-6}, {0, 0}, {2.004e-6, -0.5e-6}, {12e-6, -12e-6}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        told t = usual;
        t.kernels = rates[i][0], t.samples = rates[i][1];
        for (int kind = 0; kind < 3; kind++) {
            t.far = kind == 1 ? 5000000 : 0;
            t.copies = kind == 2 ? 7 : 0;
            double drift = 1, error = 1;
            assert_true(drift_of(&t, &drift, &error));
            assert_true(fabs(drift - (rates[i][1] - rates[i][0])) < 0.05e-6);
            assert_true(error < 0.05e-6);
        }
    }
}

/* What it says to be off by is what it is off by. */
static void test_times_that_are_blurred(void **state)
{
    (void)state;
    told t = usual;
    t.kernels = 3e-6, t.blurred = 1.2, t.far = 5000000;
    double drift, error;
    assert_true(drift_of(&t, &drift, &error));
    assert_true(error > 1e-9 && error < 0.2e-6);
    assert_true(fabs(drift + 3e-6) < 4 * error);
}

static void test_other_times_tell_nothing(void **state)
{
    (void)state;
    double drift, error;
    static const told others[] = {
        {.kernels = 1e-6, .tick = 31, .n_kernels = KERNELS, .n_samples = SAMPLES},
        {.kernels = 1e-6, .tick = 1, .n_kernels = KERNELS, .n_samples = SAMPLES},
        /* the samples' alone, each as long */
        {.kernels = 1e-6, .tick = TICK, .odd_tick = 1, .n_kernels = KERNELS, .n_samples = SAMPLES},
        {.kernels = 1e-6,
         .tick = TICK,
         .odd_tick = 100,
         .n_kernels = KERNELS,
         .n_samples = SAMPLES},
        /* too few, and in too short a time */
        {.kernels = 1e-6, .tick = TICK, .n_kernels = 100, .n_samples = SAMPLES},
        {.kernels = 1e-6, .tick = TICK, .n_kernels = KERNELS, .n_samples = 100},
        {.kernels = 1e-6, .tick = TICK, .n_kernels = KERNELS},
        {.kernels = 1e-6, .tick = TICK, .n_kernels = 250, .n_samples = SAMPLES},
        /* too fast and too slow */
        {.tick = TICK, .kernels = 25e-6, .n_kernels = KERNELS, .n_samples = SAMPLES},
        {.tick = TICK, .samples = -25e-6, .n_kernels = KERNELS, .n_samples = SAMPLES},
        {.tick = TICK, .kernels = 60e-6, .n_kernels = KERNELS, .n_samples = SAMPLES},
        {.tick = TICK, .blurred = 4, .n_kernels = KERNELS, .n_samples = SAMPLES},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (drift_of(&others[i], &drift, &error))
            fail_msg("case %zu: %g", i, drift);
}

static void check_line(const told *t, double since_s, double drift, double error)
{
    pp_sampling *f = make(t);
    const pp_sampling_clock clock = {.likely = LIKELY};
    const pp_sampling_line line = pp_sampling_line_of_stamps(f, &clock);
    assert_true(line.stamped);
    assert_true(fabs(line.drift - drift) < 0.05e-6);
    assert_true(fabs(line.lag - (double)LIKELY - drift * since_s * 1e9) < 50 + 256);
    assert_true(fabs(line.stderr_ns / error - 1) < 0.1);
    assert_true(line.common_ns == (t->tick == TICK ? 300 : 1000));
    pp_sampling_free(f);
}

/* Clocks are right as a capture begins, and known less where that was before its samples. */
static void test_the_lag_of_stamps(void **state)
{
    (void)state;
    const double since = SAMPLES * (double)PERIOD / 2e9;
    told t = usual;
    t.kernels = -2e-6;
    check_line(&t, since, 2e-6, hypot(250, 2e-6 * 150e6));
    t.late = 40000000;
    check_line(&t, since, 2e-6, hypot(250, 2e-6 * 30e9));
    t.late = 0, t.tick = 1, t.kernels = 0;
    check_line(&t, since, 0, hypot(250, 2e-6 * since * 1e9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_are_told_apart),
        cmocka_unit_test(test_times_that_are_blurred),
        cmocka_unit_test(test_other_times_tell_nothing),
        cmocka_unit_test(test_the_lag_of_stamps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
