#include "estimate/sampling/join.h"

#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 25000, STEPS = 400, STEP = 1000000, SAMPLES = STEPS * STEP / PERIOD };

/* A step of 1 ms: a kernel of 300 us in layer 1, one of 100 us beside nothing, a gap, one of 200 us
 * of the same layer and phase, and a gap of 300 us. */
static const struct {
    int64_t start, length;
    uint32_t layer;
    float level;
} kernels[] = {
    {0, 300000, 1, 0.5F},
    {300000, 100000, 2, 0.9F},
    {500000, 200000, 1, 0.2F},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* Whether the host is late now and then, but for the half of the steps in the middle. */
static bool uneven;

static int64_t begin_of(int64_t step)
{
    const bool late = uneven && (step < STEPS / 5 || step >= STEPS - STEPS / 5);
    return step * STEP + (late ? step * 7919 % 101 * 1000 : 0);
}

/* Whether a quarter of the steps has no kernels. */
static bool missing;
enum { MISSING = STEPS / 2 + 3 };

static void add_kernels_of(pp_sampling *f, bool one_step)
{
    for (int64_t step = 0; step < STEPS; step++)
        for (size_t i = 0; i < KERNELS; i++) {
            if (missing && step >= MISSING && step < MISSING + STEPS / 4)
                continue;
            int64_t start = 7000000 + begin_of(step) + kernels[i].start;
            pp_sampling_kernel k = {.start = start,
                                    .end = start + kernels[i].length,
                                    .step = one_step ? 0 : step,
                                    .layer = kernels[i].layer};
            assert_int_equal(pp_sampling_add_kernel(f, &k, NULL), 0);
        }
}

static void add_kernels(pp_sampling *f)
{
    add_kernels_of(f, false);
}

/* One more kernel of layer 1, between its two, in every so many steps; 0: in none. */
static int64_t again_every;
enum { AGAIN = 420000, AGAIN_LENGTH = 60000 };
#define AGAIN_LEVEL 0.9F

static bool comes_again(int64_t step)
{
    return again_every && step % again_every == again_every - 1;
}

static int64_t steps_again(void)
{
    return again_every ? STEPS / again_every : 0;
}

static void add_kernel(pp_sampling *f, int64_t step, int64_t start, int64_t length)
{
    const pp_sampling_kernel k = {
        .start = 7000000 + start, .end = 7000000 + start + length, .step = step, .layer = 1};
    assert_int_equal(pp_sampling_add_kernel(f, &k, NULL), 0);
}

/* Time of a window in a piece of a step, as a share of it. */
static double share_of(int64_t start, int64_t end, int64_t from, int64_t length)
{
    int64_t to = from + length;
    int64_t a = start > from ? start : from;
    int64_t b = end < to ? end : to;
    return b > a ? (double)(b - a) / (double)(end - start) : 0;
}

static double share_in(int64_t start, int64_t end, size_t i, int64_t step)
{
    return share_of(start, end, begin_of(step) + kernels[i].start, kernels[i].length);
}

/* The samples' clock is `lag` ahead and goes faster by `drift`. */
static void add_samples(pp_sampling *f, int64_t lag, double drift)
{
    for (int64_t n = 0; n < SAMPLES; n++) {
        int64_t start = n * PERIOD + 3000;
        int64_t end = start + PERIOD;
        pp_sampling_sample s = {.start = 7000000 + lag + start + (int64_t)(drift * (double)start),
                                .end = 7000000 + lag + end + (int64_t)(drift * (double)end)};
        double busy = 0, value = 0;
        for (int64_t step = 0; step < STEPS; step++) {
            double again =
                comes_again(step) ? share_of(start, end, step * STEP + AGAIN, AGAIN_LENGTH) : 0;
            busy += again;
            value += again * (double)AGAIN_LEVEL;
            for (size_t i = 0; i < KERNELS; i++) {
                double share = share_in(start, end, i, step);
                busy += share;
                value += share * (double)kernels[i].level;
            }
        }
        for (int m = 0; m < PP_SAMPLING_METRICS; m++)
            s.values[m] = m == 0 ? (float)busy : m == 1 ? (float)value : NAN;
        assert_int_equal(pp_sampling_add_sample(f, &s, NULL), 0);
    }
}

static double level_of(const pp_sampling_key *key)
{
    if (key->gap)
        return 0;
    return key->layer == 2 ? 0.9 : key->kernel == 0 ? 0.5 : 0.2;
}

static pp_sampling_sums *joined(int64_t lag, double drift)
{
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *sums = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .lag = lag + 270000, .range = 400000, .likely = PP_SAMPLING_NOT_LIKELY};
    add_kernels(f);
    for (int64_t step = 0; step < STEPS; step++)
        if (comes_again(step))
            add_kernel(f, step, step * STEP + AGAIN, AGAIN_LENGTH);
    add_samples(f, lag, drift);
    if (pp_sampling_join(f, &clock, NULL, &sums, &err) < 0)
        fail_msg("%s", err.message);
    pp_sampling_free(f);
    return sums;
}

/* What is left of the windows where each kernel has its true level, of the mean square: sums tell
 * all of it. Only with every window in its place it is 0. */
static double left(const pp_sampling_sums *s)
{
    double sum = s->yy[1];
    for (size_t i = 0; i < s->n; i++)
        sum -= 2 * level_of(&s->columns[i].key) * s->columns[i].rhs[1];
    for (size_t i = 0; i < s->n_pairs; i++)
        sum += s->pairs[i].sum * level_of(&s->columns[s->pairs[i].a].key) *
               level_of(&s->columns[s->pairs[i].b].key) * (s->pairs[i].a == s->pairs[i].b ? 1 : 2);
    return sum / s->yy[1];
}

static void test_sums_are_those_of_the_windows(void **state)
{
    (void)state;
    pp_sampling_sums *s = joined(-1234567, 0);
    double all = 0, products = 0, held = 0, shift = 0, shifts = 0;
    assert_true(s->known[0] && s->known[1] && !s->known[2]);
    assert_true(llabs(s->lag + 1234567) < 300);
    assert_true(left(s) < 1e-5);
    for (size_t i = 0; i < s->n; i++) {
        all += s->columns[i].share;
        held += s->columns[i].held;
    }
    for (size_t i = 0; i < s->n_pairs; i++) {
        assert_true(s->pairs[i].a <= s->pairs[i].b && s->pairs[i].b < s->n);
        products += s->pairs[i].sum * (s->pairs[i].a == s->pairs[i].b ? 1 : 2);
        shift += s->pairs[i].shift_a + s->pairs[i].shift_b;
        shifts += fabs(s->pairs[i].shift_a) + fabs(s->pairs[i].shift_b);
    }
    /* Wherever a window lies it is as long: what it gains it loses. A third of them and more begin
     * in one column and end in another. */
    assert_true(fabs(shift) < 1e-9 * shifts && shifts * PERIOD > (double)s->windows / 3);
    /* Every window is full of kernels' parts and gaps, and so is its product with itself. */
    assert_true(fabs(all - (double)s->windows) < 1e-6);
    assert_true(fabs(products - (double)s->windows) < 1e-6);
    assert_true(fabs(held - (double)s->held_windows) < 1e-6);
    assert_true(s->held_windows > SAMPLES / 20 && s->held_windows < SAMPLES / 4);
    assert_true(s->windows + s->held_windows > SAMPLES - 60);
    pp_sampling_sums_free(s);
}

/* In the middle, which is scanned first, the lag of another step is as good. */
static void test_steps_that_are_alike(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .lag = 300000, .range = 3 * STEP, .likely = PP_SAMPLING_NOT_LIKELY};
    uneven = true;
    add_kernels(f);
    add_samples(f, 0, 0);
    uneven = false;
    if (pp_sampling_join(f, &clock, NULL, &s, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(llabs(s->lag) < 300);
    assert_true(left(s) < 1e-5);
    pp_sampling_sums_free(s);
    pp_sampling_free(f);
}

/* Where each step is like the one before to the ns nothing but the likely lag tells. */
static void test_a_likely_lag_decides(void **state)
{
    (void)state;
    static const struct {
        int64_t likely, found;
    } cases[] = {{30000, 0}, {STEP - 30000, STEP}, {INT64_C(1) << 60, -1}, {STEP / 2, -1}};
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_sampling_sums *s = NULL;
        const pp_sampling_clock clock = {
            .metric = 0, .lag = 300000, .range = 3 * STEP, .likely = cases[i].likely};
        add_kernels(f);
        add_samples(f, 0, 0);
        pp_error_clear(&err);
        int rc = pp_sampling_join(f, &clock, NULL, &s, &err);
        if (cases[i].found < 0) {
            assert_int_equal(rc, -1);
            assert_int_equal(err.code, PP_ERR_NOT_FOUND);
            assert_non_null(strstr(err.message, "at several lags"));
            continue;
        }
        assert_int_equal(rc, 0);
        assert_true(llabs(s->lag - cases[i].found) < 300);
        assert_true(left(s) < 1e-5);
        pp_sampling_sums_free(s);
    }
    pp_sampling_free(f);
}

/* Five kernels without a gap, unlike in how long they run and in what they reach. */
static const struct {
    int64_t start, end; /* in the step */
    double level;
} filled[] = {{0, 100000, 0.9},
              {100000, 400000, 0.7},
              {400000, 550000, 0.85},
              {550000, 800000, 0.6},
              {800000, STEP, 0.75}};
enum { FILLED = sizeof filled / sizeof *filled };

/* A metric's sum from the capture's begin until `t`. */
static double filled_until(int64_t t)
{
    double sum = 0;
    for (size_t i = 0; i < FILLED; i++) {
        const int64_t length = filled[i].end - filled[i].start;
        const int64_t in = t % STEP - filled[i].start;
        const int64_t all = t / STEP * length;
        sum += filled[i].level * (double)(all + (in < 0 ? 0 : in < length ? in : length));
    }
    return sum;
}

/* There is always a kernel: only which one it is tells the lag. */
static void test_a_gpu_that_never_stands_still(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    const int64_t lag = 123456;
    const pp_sampling_clock clock = {
        .metric = 0, .lag = lag + 270000, .range = 400000, .likely = PP_SAMPLING_NOT_LIKELY};
    for (int64_t at = 0; at < STEPS * FILLED; at++) {
        const int64_t step = 7000000 + at / FILLED * STEP;
        const pp_sampling_kernel k = {.start = step + filled[at % FILLED].start,
                                      .end = step + filled[at % FILLED].end,
                                      .step = at / FILLED,
                                      .layer = (uint32_t)(at % FILLED)};
        assert_int_equal(pp_sampling_add_kernel(f, &k, NULL), 0);
    }
    for (int64_t n = 0; n < SAMPLES; n++) {
        const int64_t start = n * PERIOD + 3000;
        const double mean = (filled_until(start + PERIOD) - filled_until(start)) / PERIOD;
        const pp_sampling_sample one = {.start = 7000000 + lag + start,
                                        .end = 7000000 + lag + start + PERIOD,
                                        .values = {(float)mean, 0.5F, NAN, NAN}};
        assert_int_equal(pp_sampling_add_sample(f, &one, NULL), 0);
    }
    if (pp_sampling_join(f, &clock, NULL, &s, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(llabs(s->lag - lag) < 300);
    assert_true(s->windows + s->held_windows > SAMPLES - 60);
    pp_sampling_sums_free(s);
    pp_sampling_free(f);
}

/* Their kernels were lost, as the hook tells: no other kernel ran then, but it is no gap. */
static void test_steps_that_are_missing(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .lag = 5000, .range = 400000, .likely = PP_SAMPLING_NOT_LIKELY};
    missing = true;
    add_kernels(f);
    missing = false;
    add_samples(f, 0, 0);
    if (pp_sampling_join(f, &clock, NULL, &s, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(llabs(s->lag) < 300);
    assert_true(left(s) < 1e-4);
    assert_true(s->windows + s->held_windows > (uint64_t)SAMPLES * 3 / 4 - 60);
    pp_sampling_sums_free(s);
    pp_sampling_free(f);
}

static void test_columns_are_parts_of_kernels(void **state)
{
    (void)state;
    pp_sampling_sums *s = joined(5000, 0);
    double of[3][2] = {{0}}; /* by layer, of its kernels */
    double gaps = 0;
    for (size_t i = 0; i < s->n; i++) {
        const pp_sampling_column *c = &s->columns[i];
        assert_int_equal(c->key.phase, 0);
        if (c->key.gap)
            gaps += c->time;
        else
            of[c->key.layer][c->key.kernel] += c->time;
        if (!c->key.gap)
            assert_int_equal(c->count, STEPS);
    }
    assert_true(fabs(of[1][0] - STEPS * 300000.0) < 1);
    assert_true(fabs(of[1][1] - STEPS * 200000.0) < 1);
    assert_true(fabs(of[2][0] - STEPS * 100000.0) < 1);
    assert_true(of[2][1] == 0 && of[0][0] == 0);
    assert_true(fabs(gaps - (STEPS * 100000.0 + (STEPS - 1) * 300000.0)) < 1);
    pp_sampling_sums_free(s);
}

/* Time in columns of what runs behind a kernel of layer 1 in the gap there, a pp_sampling_work. */
static double time_of(const pp_sampling_sums *s, uint32_t kernel, unsigned work)
{
    double time = 0;
    for (size_t i = 0; i < s->n; i++) {
        const pp_sampling_key *k = &s->columns[i].key;
        if (k->gap && k->layer == 1 && k->kernel == kernel && pp_sampling_copy_of(k) == work)
            time += s->columns[i].time;
    }
    return time;
}

/* Adds one of each step; times in the step. */
static void add_copies(pp_sampling *f, pp_sampling_work work, int64_t start, int64_t end)
{
    for (int64_t step = 0; step < STEPS; step++) {
        const pp_sampling_kernel k = {.start = 7000000 + step * STEP + start,
                                      .end = 7000000 + step * STEP + end,
                                      .step = step,
                                      .layer = 2,
                                      .work = (uint8_t)work};
        assert_int_equal(pp_sampling_add_kernel(f, &k, NULL), 0);
    }
}

/* What runs in a gap has columns of its own there; what runs beside a kernel, or a copy engine
 * beside a fill, has none. */
static void test_copies_cut_gaps(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .lag = 5000, .range = 400000, .likely = PP_SAMPLING_NOT_LIKELY};
    add_kernels(f);
    add_copies(f, PP_SAMPLING_FILL, 600000, 760000);        /* 60 us of it behind the kernel */
    add_copies(f, PP_SAMPLING_COPY_ACROSS, 650000, 800000); /* 40 us behind the fill */
    add_copies(f, PP_SAMPLING_COPY, 698000, 702000);        /* within it */
    add_copies(f, PP_SAMPLING_COPY, 900000, 902000);        /* too short to be told */
    add_samples(f, 0, 0);
    if (pp_sampling_join(f, &clock, NULL, &s, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(llabs(s->lag) < 300);
    const double gaps = STEPS - 1; /* none ends behind the last step's kernels */
    assert_true(time_of(s, 1, PP_SAMPLING_FILL) == gaps * 60000);
    assert_true(time_of(s, 1, PP_SAMPLING_COPY_ACROSS) == gaps * 40000);
    assert_true(time_of(s, 1, PP_SAMPLING_COPY) == 0);
    assert_true(time_of(s, 1, PP_SAMPLING_KERNEL) == gaps * 200000);
    assert_true(left(s) < 1e-4);
    pp_sampling_sums_free(s);
    pp_sampling_free(f);
}

/* Time of layer 1's kernels, by their numbers. */
static void find_times(const pp_sampling_sums *s, double times[4])
{
    memset(times, 0, 4 * sizeof *times);
    for (size_t i = 0; i < s->n; i++) {
        const pp_sampling_column *c = &s->columns[i];
        if (c->key.layer != 1 || c->key.gap)
            continue;
        assert_true(c->key.kernel < 4);
        times[c->key.kernel] += c->time;
    }
}

/* A kernel of the next step that begins, on another stream, before this one's last is still that
 * step's first, and this one's last still its own. */
static void test_steps_that_overlap(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    double times[4];
    const pp_sampling_clock clock = {
        .metric = 0, .range = 400000, .likely = PP_SAMPLING_NOT_LIKELY};
    add_kernels(f);
    for (int64_t step = 0; step < STEPS; step++)
        add_kernel(f, step, (step - 1) * STEP + 450000, 30000);
    add_samples(f, 0, 0);
    if (pp_sampling_join(f, &clock, NULL, &s, &err) < 0)
        fail_msg("%s", err.message);
    find_times(s, times);
    assert_true(times[0] == STEPS * 30000.0 && times[1] == STEPS * 300000.0);
    assert_true(times[2] == STEPS * 200000.0 && times[3] == 0);
    for (size_t i = 0; i < s->n; i++) { /* from their own step's first kernel */
        const pp_sampling_column *c = &s->columns[i];
        if (c->key.layer == 2 && c->key.part == 0 && !c->key.gap)
            assert_true(fabs(c->place / (double)c->count - 850000) < 1);
    }
    pp_sampling_sums_free(s);
    pp_sampling_free(f);
}

/* After an exception, say, a layer begins again: its kernels have other numbers in that step, which
 * are not those of the other steps. */
static void test_steps_unlike_the_others(void **state)
{
    (void)state;
    double times[4];
    again_every = 41;
    pp_sampling_sums *s = joined(-5000, 0);
    const double steps = (double)(STEPS - steps_again());
    find_times(s, times);
    assert_true(fabs(times[0] - steps * 300000) < 1 && fabs(times[1] - steps * 200000) < 1);
    assert_true(times[2] == 0);
    assert_true(left(s) < 1e-5);
    assert_true(s->windows + s->held_windows > SAMPLES * 9 / 10);
    pp_sampling_sums_free(s);

    again_every = 4; /* so often that it is how the training is */
    s = joined(-5000, 0);
    find_times(s, times);
    assert_true(times[0] == STEPS * 300000.0 && times[2] == (double)steps_again() * 200000);
    again_every = 0;
    pp_sampling_sums_free(s);
}

/* As they are: ns since 1970 and ns since the node started. */
static void test_clocks_far_apart(void **state)
{
    (void)state;
    const int64_t lag = INT64_C(1790000000123456789);
    pp_sampling_sums *s = joined(lag, 0);
    assert_true(llabs(s->lag - lag) < 300);
    assert_true(s->windows + s->held_windows > SAMPLES - 60);
    assert_true(left(s) < 1e-5);
    pp_sampling_sums_free(s);
}

static void test_clocks_that_drift(void **state)
{
    (void)state;
    static const double drifts[] = {-7e-6, 2e-6, 50e-6};
    for (size_t i = 0; i < sizeof drifts / sizeof *drifts; i++) {
        pp_sampling_sums *s = joined(40000, drifts[i]);
        double middle = 40000 + drifts[i] * STEPS * STEP / 2;
        assert_true(fabs((double)s->lag - middle) < 400);
        assert_true(left(s) < 1e-5);
        pp_sampling_sums_free(s);
    }
}

/* The sampler starts before the kernels, ends after them, and does not know every value. */
static void test_samples_that_tell_nothing(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .lag = 5000, .range = 400000, .likely = PP_SAMPLING_NOT_LIKELY};
    add_kernels(f);
    add_samples(f, 0, 0);
    for (int64_t n = 0; n < 2 * SAMPLES; n++) {
        int64_t start = 7000000 + (n < SAMPLES ? -n - 1 : n) * PERIOD + 3000;
        pp_sampling_sample idle = {start, start + PERIOD, {0, 0, NAN, NAN}};
        pp_sampling_sample unknown = {start + 1, start + 1 + PERIOD, {NAN, 1, NAN, NAN}};
        assert_int_equal(pp_sampling_add_sample(f, &idle, NULL), 0);
        if (n % 100 == 0)
            assert_int_equal(pp_sampling_add_sample(f, &unknown, NULL), 0);
    }
    if (pp_sampling_join(f, &clock, NULL, &s, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(llabs(s->lag) < 300);
    assert_true(left(s) < 1e-5);
    pp_sampling_sums_free(s);
    pp_sampling_free(f);
}

static void test_impossible_input(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    const pp_sampling_kernel kernel = {.start = INT64_MIN, .end = 1};
    const pp_sampling_sample sample = {.start = 1, .end = INT64_MAX};
    assert_int_equal(pp_sampling_add_kernel(f, &kernel, &err), -1);
    assert_int_equal(err.code, PP_ERR_INVALID);
    assert_int_equal(pp_sampling_add_sample(f, &sample, &err), -1);
    static const pp_sampling_clock clocks[] = {
        {.metric = -1}, {.metric = PP_SAMPLING_METRICS}, {.range = INT64_MAX}};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        pp_error_clear(&err);
        assert_int_equal(pp_sampling_join(f, &clocks[i], NULL, &s, &err), -1);
        assert_int_equal(err.code, PP_ERR_INVALID);
    }
    pp_sampling_free(f);
}

static void test_what_does_not_go_together(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *sums = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .range = 100000, .likely = PP_SAMPLING_NOT_LIKELY};
    assert_int_equal(pp_sampling_join(f, &clock, NULL, &sums, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
    add_kernels(f);
    for (int64_t n = 0; n < 2000; n++) {
        float noise = (float)(n * 7919 % 1009) / 1009;
        pp_sampling_sample s = {7000000 + n * PERIOD, 7000000 + (n + 1) * PERIOD, {noise, noise}};
        assert_int_equal(pp_sampling_add_sample(f, &s, NULL), 0);
    }
    assert_int_equal(pp_sampling_join(f, &clock, NULL, &sums, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "at no lag"));
    /* The next capture begins empty. */
    add_kernels(f);
    add_samples(f, 0, 0);
    assert_int_equal(pp_sampling_join(f, &clock, NULL, &sums, &err), 0);
    assert_true(sums->windows > 0);
    pp_sampling_sums_free(sums);
    pp_sampling_free(f);
}

/* No sampler writes two samples of one time. Each would be held against all kernels within it, at
 * every lag: for hours. */
static void test_samples_over_each_other(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *s = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .range = 400000, .likely = PP_SAMPLING_NOT_LIKELY};
    add_kernels(f);
    add_samples(f, 0, 0);
    for (int64_t i = 0; i < 200000; i++)
        add_kernel(f, STEPS, STEPS * STEP + 4000000 + 2 * i, 1);
    for (int64_t i = 0; i < 100000; i++) {
        const int64_t start = 7000000 + STEPS * STEP + 4000000 + i;
        const pp_sampling_sample over = {start, start + 4 * PERIOD, {0.5F, 0.5F, NAN, NAN}};
        assert_int_equal(pp_sampling_add_sample(f, &over, NULL), 0);
    }
    (void)pp_sampling_join(f, &clock, NULL, &s, &err);
    pp_sampling_sums_free(s);
    pp_sampling_free(f);
}

static void test_limits(void **state)
{
    (void)state;
    pp_sampling *f = pp_sampling_new(PERIOD);
    pp_sampling_sums *sums = NULL;
    pp_error err = {0};
    const pp_sampling_clock clock = {
        .metric = 0, .range = 100000, .likely = PP_SAMPLING_NOT_LIKELY};
    add_samples(f, 0, 0);
    add_kernels_of(f, true); /* no kernel comes twice: each has columns of its own, two at least */
    for (int64_t i = 0; i < PP_SAMPLING_MAX_COLUMNS / 2; i++)
        add_kernel(f, 0, STEPS * STEP + 2000 * i, 1000);
    assert_int_equal(pp_sampling_join(f, &clock, NULL, &sums, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_non_null(strstr(err.message, "columns"));
    for (int64_t i = 0; i < PP_SAMPLING_MAX_SAMPLES; i++) {
        pp_sampling_sample s = {i, i + 1, {0}};
        assert_int_equal(pp_sampling_add_sample(f, &s, &err), 0);
    }
    pp_sampling_sample more = {0, 1, {0}};
    assert_int_equal(pp_sampling_add_sample(f, &more, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    pp_sampling_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_the_windows),
        cmocka_unit_test(test_steps_that_are_alike),
        cmocka_unit_test(test_a_likely_lag_decides),
        cmocka_unit_test(test_a_gpu_that_never_stands_still),
        cmocka_unit_test(test_steps_that_are_missing),
        cmocka_unit_test(test_columns_are_parts_of_kernels),
        cmocka_unit_test(test_copies_cut_gaps),
        cmocka_unit_test(test_steps_that_overlap),
        cmocka_unit_test(test_steps_unlike_the_others),
        cmocka_unit_test(test_clocks_far_apart),
        cmocka_unit_test(test_clocks_that_drift),
        cmocka_unit_test(test_samples_that_tell_nothing),
        cmocka_unit_test(test_impossible_input),
        cmocka_unit_test(test_what_does_not_go_together),
        cmocka_unit_test(test_samples_over_each_other),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
