/*
 * pm_sampling.c with libraries in the driver's and CUPTI's place (pm_double.c). PM_DOUBLE says
 * which make of them the loader finds.
 */
#include "sidecar/gpu/pm_sampling.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GPU "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define OTHER_GPU "GPU-ffeeddcc-bbaa-9988-7766-554433221100"
#define GPUS "gpu " OTHER_GPU " GX100\ngpu " GPU " GH100\n"
#define BUSY "at 0 sm=80 warps=40 dram=20 fma=10 tensor=30 mhz=1755\n"

enum {
    PERIOD = 25000,
    CLOCK_STEP = 32,
    STEP = 1000000,    /* the double's, between two polls: 40 samples */
    PAUSE = 5 * STEP,  /* before a capture */
    OFFSET = -1400000, /* of the GPU's clock to the host's, ns */
    PPM = -7,
    SAMPLES = 1 << 14,
};
#define CLOCK "offset_ns -1400000\nppm -7\n"
static const int64_t beginning = 1700000000000000000; /* of the double's time */

static char table[] = "/tmp/pm-table-XXXXXX";

typedef struct samples {
    pp_pm_sample all[SAMPLES];
    size_t count, limit;
} samples;

static samples got;

static void write_table(const char *text)
{
    FILE *f = fopen(table, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A function of the CUPTI that the loader finds. */
static void find_in_double(const char *name, void *slot)
{
    void *library = dlopen("libcupti.so", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    memcpy(slot, &symbol, sizeof symbol);
    (void)dlclose(library);
}

static int number_of(const char *name)
{
    int (*function)(void);
    find_in_double(name, &function);
    return function();
}

static void tell_double(const char *text)
{
    void (*say)(char *);
    char line[128];
    find_in_double("pm_double_read", &say);
    (void)snprintf(line, sizeof line, "%s", text);
    say(line);
}

/* Waits until the evaluation of so many samples has begun, and tells of how many it has. As they
 * come in turn, those before are evaluated, and the images before are free. */
static long evaluated(long least)
{
    long (*function)(long);
    find_in_double("pm_double_evaluated", &function);
    return function(least);
}

/* Lets so many more samples be evaluated, until the capture is stopped. */
static void allow(long more)
{
    void (*function)(long);
    find_in_double("pm_double_allow", &function);
    function(evaluated(0) + more);
}

static pp_pm_options options(uint32_t image_samples, uint32_t images)
{
    return (pp_pm_options){.gpu = GPU,
                           .period_ns = PERIOD,
                           .hardware_bytes = 1 << 20,
                           .image_samples = image_samples,
                           .images = images};
}

static pp_pm *open_with(const char *text, const pp_pm_options *o)
{
    pp_error err = {0};
    pp_pm *pm = NULL;
    write_table(text);
    if (pp_pm_open(o, &pm, &err) < 0)
        fail_msg("%s", err.message);
    return pm;
}

/* Closes it; nothing may be left of it. */
static void close_all(pp_pm *pm)
{
    pp_pm_close(pm);
    assert_int_equal(number_of("pm_double_left"), 0);
}

static void expect_error(int rc, const pp_error *err, pp_error_code code, const char *words)
{
    assert_int_equal(rc, -1);
    if (!strstr(err->message, words))
        fail_msg("no \"%s\" in: %s", words, err->message);
    assert_string_equal(pp_error_code_name(err->code), pp_error_code_name(code));
}

static void refused(const char *text, const pp_pm_options *o, pp_error_code code, const char *words)
{
    pp_error err = {0};
    pp_pm *pm = NULL;
    write_table(text);
    int rc = pp_pm_open(o, &pm, &err);
    assert_null(pm);
    expect_error(rc, &err, code, words);
}

static void start(pp_pm *pm)
{
    pp_error err = {0};
    if (pp_pm_start(pm, &err) < 0)
        fail_msg("%s", err.message);
}

static bool poll(pp_pm *pm)
{
    pp_error err = {0};
    bool full = false;
    if (pp_pm_poll(pm, &full, &err) < 0)
        fail_msg("%s", err.message);
    return full;
}

static bool stop(pp_pm *pm)
{
    pp_error err = {0};
    bool lost = false;
    if (pp_pm_stop(pm, &lost, &err) < 0)
        fail_msg("%s", err.message);
    return lost;
}

static bool keep(void *user, const pp_pm_sample *sample)
{
    samples *to = user;
    assert_true(to->count < SAMPLES);
    to->all[to->count++] = *sample;
    return to->count != to->limit;
}

/* What there is of the capture's samples, to those in `got`: in order of time, none over another,
 * each of one period. */
static void take_more(pp_pm *pm)
{
    pp_error err = {0};
    got.limit = 0;
    if (pp_pm_take(pm, keep, &got, &err) < 0)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < got.count; i++) {
        const pp_pm_sample *s = &got.all[i];
        assert_true(llabs(s->end - s->start - PERIOD) <= CLOCK_STEP);
        assert_true(i == 0 || s->start >= s[-1].end);
    }
}

static void take(pp_pm *pm)
{
    got.count = 0;
    take_more(pm);
}

/* A capture in which nothing gets lost. */
static void sample(pp_pm *pm, int polls)
{
    start(pm);
    for (int i = 0; i < polls; i++)
        assert_false(poll(pm));
    assert_false(stop(pm));
    take(pm);
}

/* Samples before which some are missing. */
static size_t gaps(void)
{
    size_t count = 0;
    for (size_t i = 1; i < got.count; i++)
        count += got.all[i].start != got.all[i - 1].end;
    return count;
}

/* A time of the GPU with clock CLOCK, in ns of the host since the double's beginning. */
static double host_time(int64_t gpu)
{
    return (double)(gpu - beginning - OFFSET) / (1 + PPM * 1e-6);
}

static void assert_near(double value, double wanted, double by)
{
    if (!(fabs(value - wanted) <= by))
        fail_msg("%.9g, not %.9g", value, wanted);
}

/* ---- metrics ---- */

static void metrics_of_a_known_chip(void **state)
{
    (void)state;
    pp_pm_options o = options(1000, 1);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    static const char rest[] = ".avg.pct_of_peak_sustained_elapsed";
    static const char *const sources[] = {
        [PP_METRIC_SM_ACTIVE] = "sm__cycles_active",
        [PP_METRIC_SM_OCCUPANCY] = "sm__warps_active",
        [PP_METRIC_DRAM_ACTIVE] = "dram__throughput",
        [PP_METRIC_FP32_ACTIVE] = "TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime",
        [PP_METRIC_TENSOR_ACTIVE] = "sm__pipe_tensor_cycles_active",
        [PP_METRIC_SM_CLOCK] = "sm__cycles_elapsed"};
    static const double values[] = {.8, .4, .2, .1, .3, 1.755};
    assert_string_equal(pp_pm_chip(pm), "GH100");
    assert_true(pp_pm_image_bytes(pm) > 1000);
    sample(pm, 3);
    assert_int_equal(got.count, 4 * STEP / PERIOD - 1);
    for (int m = 0; m < PP_METRIC_SAMPLED_COUNT; m++) {
        const char *source = pp_pm_source(pm, (pp_metric)m);
        assert_true(strncmp(source, sources[m], strlen(sources[m])) == 0);
        assert_string_equal(source + strlen(sources[m]), m == PP_METRIC_SM_CLOCK ? ".avg" : rest);
        for (size_t i = 0; i < got.count; i++)
            assert_near((double)got.all[i].values[m], values[m], 1e-6);
    }
    close_all(pm);
}

/* Where the FMA pipe would take a second pass it is not sampled. */
static void metrics_that_take_another_pass(void **state)
{
    (void)state;
    pp_pm_options o = options(1000, 1);
    o.gpu = OTHER_GPU;
    pp_pm *pm = open_with(GPUS BUSY, &o);
    assert_string_equal(pp_pm_chip(pm), "GX100");
    assert_null(pp_pm_source(pm, PP_METRIC_FP32_ACTIVE));
    assert_string_equal(pp_pm_source(pm, PP_METRIC_DRAM_ACTIVE),
                        "dram__throughput.avg.pct_of_peak_sustained_elapsed");
    sample(pm, 1);
    assert_true(got.count > 0);
    assert_near((double)got.all[0].values[PP_METRIC_SM_ACTIVE], .8, 1e-6);
    assert_near((double)got.all[0].values[PP_METRIC_DRAM_ACTIVE], .2, 1e-6);
    assert_true(isnan(got.all[0].values[PP_METRIC_FP32_ACTIVE]));
    close_all(pm);
}

static void a_metric_that_fails_leaves_the_others(void **state)
{
    (void)state;
    pp_pm_options o = options(1000, 1);
    pp_pm *pm = open_with(GPUS BUSY "fault cuptiProfilerHostGetNumOfPasses 999 2\n", &o);
    assert_non_null(pp_pm_source(pm, PP_METRIC_SM_OCCUPANCY));
    assert_null(pp_pm_source(pm, PP_METRIC_DRAM_ACTIVE));
    sample(pm, 1);
    assert_near((double)got.all[0].values[PP_METRIC_SM_OCCUPANCY], .4, 1e-6);
    assert_true(isnan(got.all[0].values[PP_METRIC_DRAM_ACTIVE]));
    close_all(pm);
}

static void values_that_are_none(void **state)
{
    (void)state;
    pp_pm_options o = options(1000, 1);
    pp_pm *pm = open_with(GPUS "at 0 sm=-1 warps=nan dram=inf fma=100.4\n", &o);
    sample(pm, 1);
    const float *v = got.all[0].values;
    assert_true(isnan(v[PP_METRIC_SM_ACTIVE]) && isnan(v[PP_METRIC_SM_OCCUPANCY]));
    assert_true(isnan(v[PP_METRIC_DRAM_ACTIVE]));
    assert_near((double)v[PP_METRIC_FP32_ACTIVE], 1.004, 1e-6);
    close_all(pm);
}

/* ---- the period ---- */

static void what_decoding_takes(void **state)
{
    (void)state;
    enum { SLOW = 20000 };
    pp_pm_options o = options(1000, 1);
    pp_pm *pm = open_with(GPUS BUSY "slow_ns 20000\n", &o);
    assert_near(pp_pm_decode_ns(pm), 0, 0);
    sample(pm, 3);
    assert_true(pp_pm_decode_ns(pm) > 0.9 * SLOW);   /* the last two of each capture take no time */
    assert_true(pp_pm_decode_ns(pm) < 100.0 * SLOW); /* and not of all together */
    start(pm);
    assert_near(pp_pm_decode_ns(pm), 0, 0); /* it is of the latest capture */
    assert_false(stop(pm));
    close_all(pm);
}

static void another_period(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_pm_options o = options(1000, 1);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    start(pm);
    expect_error(pp_pm_set_period(pm, 2 * PERIOD, &err), &err, PP_ERR_INVALID, "runs");
    assert_false(poll(pm));
    assert_false(stop(pm));
    take(pm); /* of the period as it was */
    assert_int_equal(pp_pm_set_period(pm, 2 * PERIOD, &err), 0);
    start(pm);
    for (int i = 0; i < 3; i++)
        assert_false(poll(pm));
    assert_false(stop(pm));
    got.count = 0;
    assert_int_equal(pp_pm_take(pm, keep, &got, &err), 0);
    assert_int_equal(got.count, 4 * STEP / (2 * PERIOD) - 1);
    for (size_t i = 0; i < got.count; i++)
        assert_true(llabs(got.all[i].end - got.all[i].start - 2 * PERIOD) <= CLOCK_STEP);
    close_all(pm);
}

/* ---- times ---- */

/* All of a capture but its first sample, in times of the GPU's clock, and in each the mean of what
 * ran in it: the SMs' load falls at 7.01 ms. */
static void check_capture(double began, double ended)
{
    assert_true(got.count > 0);
    assert_near(host_time(got.all[0].start), began + PERIOD, 2 * CLOCK_STEP);
    assert_true(host_time(got.all[got.count - 1].end) <= ended);
    assert_near(host_time(got.all[got.count - 1].end), ended, PERIOD + CLOCK_STEP);
    for (size_t i = 0; i < got.count; i++) {
        double from = host_time(got.all[i].start);
        double to = host_time(got.all[i].end);
        double busy = fmin(fmax((7.01e6 - from) / (to - from), 0), 1);
        assert_near((double)got.all[i].values[PP_METRIC_SM_ACTIVE], .2 + .6 * busy, .002);
    }
}

#define FALLING "at 0 sm=80\nat 7010000 sm=20\n"

static void times_over_several_images(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 8);
    pp_pm *pm = open_with(GPUS CLOCK FALLING, &o);
    sample(pm, 13); /* two polls fill an image */
    check_capture(PAUSE, PAUSE + 14 * STEP);
    assert_int_equal(gaps(), 0);
    close_all(pm);
}

/* The newest samples are not whole when the image changes: they are missing, or come again in part
 * in the next image. */
static void samples_between_two_images(void **state)
{
    (void)state;
    static const char *const tables[] = {GPUS CLOCK FALLING "late 2\n",
                                         GPUS CLOCK FALLING "late 2\npieces 1\n"};
    static const int missing[] = {4, 2}; /* those, and as many that could be parts */
    pp_pm_options o = options(100, 8);
    for (int t = 0; t < 2; t++) {
        pp_pm *pm = open_with(tables[t], &o);
        sample(pm, 9);
        check_capture(PAUSE, PAUSE + 10 * STEP);
        assert_int_equal(gaps(), 4);
        for (size_t i = 1; i < got.count; i++) {
            int64_t gap = got.all[i].start - got.all[i - 1].end;
            assert_true(gap == 0 || llabs(gap - missing[t] * PERIOD) <= CLOCK_STEP);
        }
        close_all(pm);
    }
}

static void several_captures(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 4);
    pp_pm *pm = open_with(GPUS CLOCK FALLING, &o);
    double began = 0;
    int sessions = number_of("pm_double_sessions");
    for (int n = 0; n < 4; n++) {
        began += PAUSE;
        sample(pm, n);
        check_capture(began, began + (n + 1) * STEP);
        assert_int_equal(gaps(), 0);
        began += (n + 1) * STEP;
    }
    assert_int_equal(number_of("pm_double_sessions"), sessions);
    close_all(pm);
}

/* A decode may end before all is decoded: after a stop it goes on, over several images, whether
 * the last says so or not. */
static void an_end_in_steps(void **state)
{
    (void)state;
    static const char *const tables[] = {GPUS CLOCK FALLING "most 20\n",
                                         GPUS CLOCK FALLING "most 20\ntells_end 0\n"};
    for (int t = 0; t < 4; t++) {
        int polls = t < 2 ? 3 : 2; /* one image: it is evaluated before it is used again */
        pp_pm_options o = options(70, t < 2 ? 8 : 1);
        pp_pm *pm = open_with(tables[t % 2], &o);
        sample(pm, polls);
        check_capture(PAUSE, PAUSE + (polls + 1) * STEP);
        assert_int_equal(gaps(), 0);
        close_all(pm);
    }
}

static void a_capture_of_nothing(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    pp_pm *pm = open_with(GPUS BUSY "step_ns 20000\n", &o);
    sample(pm, 0); /* samples of no length alone */
    assert_int_equal(got.count, 0);
    sample(pm, 1); /* and the first */
    assert_int_equal(got.count, 0);
    close_all(pm);
}

static void a_taker_that_has_enough(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_pm_options o = options(100, 8);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    start(pm);
    for (int i = 0; i < 5; i++)
        assert_false(poll(pm));
    assert_false(stop(pm));
    got.count = 0;
    got.limit = 100;
    assert_int_equal(pp_pm_take(pm, keep, &got, &err), 0);
    assert_int_equal(got.count, 100);
    take_more(pm); /* the others are still there */
    assert_int_equal(got.count, 6 * STEP / PERIOD - 1);
    assert_int_equal(gaps(), 0);
    close_all(pm);
}

/* ---- longer than its images ---- */

/* Of samples: 4 polls fill an image to three quarters, and there is room for another's. */
enum { A_POLL = STEP / PERIOD, AN_IMAGE = 203, ITS_POLLS = 4 };

/* Polls while the evaluation keeps up: it is at the newest image but one, or past it. */
static void poll_evaluated(pp_pm *pm, int polls, void (*then)(pp_pm *pm, long least))
{
    for (int p = 1; p <= polls; p++) {
        assert_false(poll(pm));
        long least = (long)(p / ITS_POLLS - 1) * ITS_POLLS * A_POLL;
        (void)evaluated(least);
        if (then)
            then(pm, least - 1); /* of that the evaluation has begun alone */
    }
}

static void a_capture_longer_than_its_images(void **state)
{
    (void)state;
    pp_pm_options o = options(AN_IMAGE, 3);
    pp_pm *pm = open_with(GPUS CLOCK FALLING, &o);
    start(pm);
    poll_evaluated(pm, 300, NULL);
    assert_false(stop(pm));
    take(pm);
    check_capture(PAUSE, PAUSE + 301.0 * STEP);
    assert_int_equal(gaps(), 0);
    close_all(pm);
}

static void take_at_least(pp_pm *pm, long least)
{
    take_more(pm);
    assert_true((long)got.count >= least);
}

/* There is room for a few samples alone, which is used again and again. */
static void samples_taken_during_a_capture(void **state)
{
    (void)state;
    pp_pm_options o = options(AN_IMAGE, 3);
    o.samples = 3 * AN_IMAGE;
    pp_pm *pm = open_with(GPUS CLOCK FALLING, &o);
    got.count = 0;
    start(pm);
    poll_evaluated(pm, 100, take_at_least);
    assert_false(stop(pm));
    take_more(pm);
    check_capture(PAUSE, PAUSE + 101.0 * STEP);
    assert_int_equal(gaps(), 0);
    take(pm);
    assert_int_equal(got.count, 0);
    close_all(pm);
}

/* Each stops while the evaluation is in its midst, and has all samples. */
static void many_captures(void **state)
{
    (void)state;
    pp_pm_options o = options(AN_IMAGE, 3);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    int sessions = number_of("pm_double_sessions");
    for (int n = 0; n < 40; n++) {
        int polls = ITS_POLLS + n % 5;
        allow(n);
        sample(pm, polls);
        assert_int_equal(got.count, (polls + 1) * A_POLL - 1);
        assert_int_equal(gaps(), 0);
    }
    assert_int_equal(number_of("pm_double_sessions"), sessions);
    close_all(pm);
}

/* A decode that takes 20 us a sample leaves 0.8 of what it found to the next. */
static void decoding_that_takes_time(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int polls;
    } cases[] = {
        {GPUS BUSY "decode_ns 20000\nstep_ns 1000000\n", 60},
        {GPUS BUSY "decode_ns 20000\nstep_ns 2000000\n", 30},
        {GPUS BUSY "decode_ns 20000\nstep_ns 5000000\n", 13}, /* more than a quarter each */
    };
    pp_pm_options o = options(0, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_pm *pm = open_with(cases[i].text, &o);
        sample(pm, cases[i].polls);
        assert_true(got.count > 10000);
        assert_int_equal(gaps(), 0);
        close_all(pm);
    }
    pp_pm *pm = open_with(GPUS BUSY "decode_ns 20000\nstep_ns 20000000\n", &o);
    start(pm);
    assert_false(poll(pm));
    assert_true(poll(pm)); /* 800 and 1,440 */
    assert_true(stop(pm));
    take(pm);
    assert_int_equal(got.count, 2048 - 1);
    close_all(pm);
}

/* ---- an evaluation that is too slow, fails or is left ---- */

static void poll_until_full(pp_pm *pm, int polls)
{
    for (int p = 1; p < polls; p++)
        assert_false(poll(pm));
    assert_true(poll(pm));
}

static void an_evaluation_that_is_too_slow(void **state)
{
    (void)state;
    pp_pm_options o = options(AN_IMAGE, 0);
    pp_pm *pm = open_with(GPUS CLOCK FALLING, &o);
    int sessions = number_of("pm_double_sessions");
    start(pm);
    allow(5);
    poll_until_full(pm, 3 * ITS_POLLS);
    assert_false(stop(pm));
    take(pm);
    check_capture(PAUSE, PAUSE + (3 * ITS_POLLS + 1) * STEP);
    assert_int_equal(gaps(), 0);
    sample(pm, 1);
    assert_int_equal(number_of("pm_double_sessions"), sessions);
    close_all(pm);
}

/* It may go on after all. */
static void an_evaluation_that_catches_up(void **state)
{
    (void)state;
    pp_pm_options o = options(AN_IMAGE, 3);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    start(pm);
    allow(5);
    poll_until_full(pm, 3 * ITS_POLLS);
    allow(1000);
    (void)evaluated((long)ITS_POLLS * A_POLL);
    assert_false(poll(pm));
    assert_false(stop(pm));
    take(pm);
    assert_int_equal(got.count, (3 * ITS_POLLS + 2) * A_POLL - 1);
    assert_int_equal(gaps(), 0);
    close_all(pm);
}

/* An image is evaluated, and nothing comes any more. */
static void hand_over_one(pp_pm *pm)
{
    for (int p = 0; p < ITS_POLLS; p++)
        (void)poll(pm);
    tell_double("step_ns 0");
}

/* The first are kept, and the session is. */
static void samples_that_nobody_takes(void **state)
{
    (void)state;
    pp_pm_options o = options(AN_IMAGE, 3);
    o.samples = 100;
    pp_pm *pm = open_with(GPUS BUSY, &o);
    int sessions = number_of("pm_double_sessions");
    start(pm);
    hand_over_one(pm);
    while (!poll(pm))
        ;
    assert_true(stop(pm));
    take(pm);
    assert_int_equal(got.count, 100);
    assert_int_equal(gaps(), 0);
    tell_double("step_ns 1000000");
    sample(pm, 1);
    assert_int_equal(got.count, 2 * A_POLL - 1);
    assert_int_equal(number_of("pm_double_sessions"), sessions);
    close_all(pm);
}

/* Each function tells it; the next capture knows nothing of it. */
static void an_evaluation_that_fails(void **state)
{
    (void)state;
    static const char name[] = "cuptiProfilerHostEvaluateToGpuValues";
    pp_error err = {0};
    bool flag = false;
    pp_pm_options o = options(AN_IMAGE, 3);
    pp_pm *pm = open_with(GPUS BUSY "fault cuptiProfilerHostEvaluateToGpuValues 999 7\n", &o);
    start(pm);
    hand_over_one(pm);
    while (pp_pm_poll(pm, &flag, &err) == 0)
        ;
    expect_error(-1, &err, PP_ERR_INTERNAL, name);
    expect_error(pp_pm_poll(pm, &flag, &err), &err, PP_ERR_INTERNAL, name);
    tell_double("step_ns 1000000");
    expect_error(pp_pm_stop(pm, &flag, &err), &err, PP_ERR_INTERNAL, name);
    assert_int_equal(evaluated(0), 8); /* the rest is left out */
    got.count = got.limit = 0;
    expect_error(pp_pm_take(pm, keep, &got, &err), &err, PP_ERR_INTERNAL, name);
    assert_int_equal(got.count, 7);
    start(pm);
    assert_false(poll(pm));
    take(pm);
    assert_int_equal(got.count, 0);
    close_all(pm);
}

static void closed_while_it_evaluates(void **state)
{
    (void)state;
    pp_pm_options o = options(AN_IMAGE, 3);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    start(pm);
    allow(5);
    for (int p = 0; p < 2 * ITS_POLLS; p++)
        assert_false(poll(pm));
    (void)evaluated(6);
    close_all(pm);
    assert_int_equal(evaluated(0), 6); /* it did not wait for the others */
}

/* ---- want of room ---- */

static void no_image_is_left(void **state)
{
    (void)state;
    pp_pm_options o = options(300, 1);
    pp_pm *pm = open_with(GPUS CLOCK FALLING, &o);
    start(pm);
    for (int i = 0; i < 5; i++)
        assert_false(poll(pm));
    assert_true(poll(pm));
    assert_false(stop(pm));
    take(pm);
    check_capture(PAUSE, PAUSE + 7 * STEP);
    close_all(pm);
}

/* What was decoded before is right, and the next capture is, in a session of its own. */
static void check_losses(pp_pm *pm, size_t kept)
{
    int sessions = number_of("pm_double_sessions");
    start(pm);
    tell_double("step_ns 6000000");
    assert_true(poll(pm));
    assert_true(poll(pm));
    assert_true(stop(pm));
    take(pm);
    assert_int_equal(got.count, kept);
    assert_int_equal(gaps(), 0);
    tell_double("step_ns 1000000");
    sample(pm, 3);
    assert_int_equal(got.count, 4 * STEP / PERIOD - 1);
    assert_int_equal(gaps(), 0);
    assert_near((double)got.all[0].values[PP_METRIC_SM_ACTIVE], .8, 1e-6);
    assert_int_equal(number_of("pm_double_sessions"), sessions + 1);
    close_all(pm);
}

static void an_image_runs_full(void **state)
{
    (void)state;
    pp_pm_options o = options(200, 2);
    check_losses(open_with(GPUS BUSY, &o), 199); /* without a word */
    check_losses(open_with(GPUS BUSY "tells_full 1\n", &o), 199);
}

static void the_hardware_buffer_runs_full(void **state)
{
    (void)state;
    pp_pm_options o = options(200, 2);
    o.hardware_bytes = 60000;
    check_losses(open_with(GPUS BUSY "record 1000\noverflow 8\n", &o), 0);
}

/* The oldest are kept: what follows lies apart. */
static void the_hardware_buffer_ran_full_once(void **state)
{
    (void)state;
    pp_pm_options o = options(1000, 1);
    o.hardware_bytes = 60000;
    pp_pm *pm = open_with(GPUS BUSY "record 1000\n", &o);
    start(pm);
    assert_false(poll(pm));
    tell_double("step_ns 6000000");
    assert_true(poll(pm));
    tell_double("step_ns 1000000");
    assert_true(stop(pm));
    take(pm);
    assert_int_equal(got.count, 40 + 60 + 40 - 1);
    assert_int_equal(gaps(), 1);
    assert_near((double)(got.all[99].start - got.all[98].end), 180 * PERIOD, CLOCK_STEP);
    close_all(pm);
}

/* ---- errors ---- */

static void what_is_not_there(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    o.gpu = "GPU-0";
    refused(GPUS, &o, PP_ERR_NOT_FOUND, "does not show GPU-0 here (of 2 GPUs)");
    o = options(100, 1);
    o.cupti = "/nowhere/libcupti.so.13";
    refused(GPUS, &o, PP_ERR_NOT_FOUND, "there is no CUPTI: /nowhere/libcupti.so.13");
    o = options(100, 1);
    refused("gpu " GPU " GH100\nfault cuptiProfilerHostConfigAddMetrics 17\n", &o, PP_ERR_NOT_FOUND,
            "none of the metrics on GH100");
    refused(GPUS "fault cuptiProfilerInitialize 15\n", &o, PP_ERR_NOT_FOUND, "libnvperf_host");
    assert_int_equal(number_of("pm_double_left"), 0);
}

static void options_that_cannot_be(void **state)
{
    (void)state;
    pp_pm_options many = options(100, PP_PM_IMAGES + 1);
    pp_pm_options small = options(PP_PM_IMAGE_SAMPLES - 1, 1);
    refused(GPUS, &many, PP_ERR_INVALID, "must be 1 to 8");
    refused(GPUS, &small, PP_ERR_INVALID, "must be at least 4");
}

static void what_is_not_allowed(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    refused(GPUS "fault cuptiPmSamplingGetCounterAvailability 35\n", &o, PP_ERR_DENIED,
            "RmProfilingAdminOnly");
    refused(GPUS "fault cuptiPmSamplingEnable 35\n", &o, PP_ERR_DENIED, "CAP_SYS_ADMIN");
    refused(GPUS "fault cuptiPmSamplingEnable 40\n", &o, PP_ERR_DENIED, "hypervisor");
    refused(GPUS "fault cuptiPmSamplingGetCounterAvailability 26\n", &o, PP_ERR_CONFLICT,
            "another profiler");
    assert_int_equal(number_of("pm_double_left"), 0);
}

static void one_session_at_a_time(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    refused(GPUS BUSY, &o, PP_ERR_CONFLICT, "another profiler");
    o.gpu = OTHER_GPU;
    pp_pm_close(open_with(GPUS BUSY, &o)); /* another GPU is free */
    sample(pm, 1);
    close_all(pm);
}

/* A table of one call that fails. */
static const char *with_fault(const char *name, int code, int spared)
{
    static char text[512];
    (void)snprintf(text, sizeof text, GPUS BUSY "fault %s %d %d\n", name, code, spared);
    return text;
}

static void calls_that_fail_at_the_beginning(void **state)
{
    (void)state;
    static const char *const cuda[] = {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid"};
    static const char *const cupti[] = {
        "cuptiProfilerInitialize",
        "cuptiDeviceGetChipName",
        "cuptiPmSamplingGetCounterAvailability",
        "cuptiProfilerHostInitialize",
        "cuptiProfilerHostConfigAddMetrics",
        "cuptiProfilerHostGetConfigImageSize",
        "cuptiProfilerHostGetConfigImage",
        "cuptiProfilerHostGetNumOfPasses",
        "cuptiPmSamplingEnable",
        "cuptiPmSamplingSetConfig",
        "cuptiPmSamplingGetCounterDataSize",
    };
    pp_pm_options o = options(100, 1);
    refused(with_fault("cuInit", 100, 0), &o, PP_ERR_NOT_FOUND, "cuInit gives 100");
    for (size_t i = 0; i < sizeof cuda / sizeof *cuda; i++)
        refused(with_fault(cuda[i], 3, 0), &o, PP_ERR_INTERNAL, "its GPUs: code 3");
    for (size_t i = 0; i < sizeof cupti / sizeof *cupti; i++) {
        char words[128];
        (void)snprintf(words, sizeof words, "%s: CUPTI_ERROR_UNKNOWN (999)", cupti[i]);
        refused(with_fault(cupti[i], 999, 0), &o, PP_ERR_INTERNAL, words);
    }
    refused(with_fault("cuptiPmSamplingGetCounterAvailability", 999, 1), &o, PP_ERR_INTERNAL,
            "(999)");
    refused(with_fault("cuptiPmSamplingSetConfig", 27, 0), &o, PP_ERR_INTERNAL, "CUPTI (27)");
    assert_int_equal(number_of("pm_double_left"), 0);
}

/* A call that fails in a capture, in each function of ours; what was decoded stays. */
static void calls_that_fail_in_a_capture(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int spared, start, polls, stop, take; /* what each gives; `polls` that go well */
    } cases[] = {
        {"cuptiPmSamplingCounterDataImageInitialize", 0, -1, 0, 0, 0},
        {"cuptiPmSamplingStart", 0, -1, 0, 0, 0},
        {"cuptiPmSamplingDecodeData", 1, 0, 1, -1, 0},
        {"cuptiPmSamplingGetCounterDataInfo", 1, 0, 1, -1, 0},
        {"cuptiPmSamplingCounterDataImageInitialize", 1, 0, 2, 0, 0},
        {"cuptiPmSamplingStop", 0, 0, 3, -1, 0},
        {"cuptiPmSamplingCounterDataGetSampleInfo", 10, 0, 3, -1, -1},
        {"cuptiProfilerHostEvaluateToGpuValues", 7, 0, 3, -1, -1},
    };
    pp_pm_options o = options(130, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_error err = {0};
        bool flag = false;
        int rc = 0;
        pp_pm *pm = open_with(with_fault(cases[i].name, 999, cases[i].spared), &o);
        assert_int_equal(pp_pm_start(pm, &err), cases[i].start);
        for (int p = 0; cases[i].start == 0 && p < 3; p++) {
            rc = pp_pm_poll(pm, &flag, &err);
            assert_int_equal(rc, p < cases[i].polls ? 0 : -1);
        }
        if (cases[i].start == 0)
            assert_int_equal(pp_pm_stop(pm, &flag, &err), cases[i].stop);
        got.count = got.limit = 0;
        assert_int_equal(pp_pm_take(pm, keep, &got, &err), cases[i].take);
        assert_true(cases[i].start < 0 || got.count >= 6);
        expect_error(-1, &err, PP_ERR_INTERNAL, cases[i].name);
        assert_non_null(strstr(err.message, "(999)"));
        close_all(pm);
    }
}

/* After losses a session is begun anew, which may fail: the next start tries again. */
static void a_session_that_does_not_come_back(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_pm_options o = options(60, 1);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    start(pm);
    assert_true(poll(pm)); /* another poll's would not fit */
    assert_true(poll(pm));
    assert_true(stop(pm));
    tell_double("growth 8");
    expect_error(pp_pm_start(pm, &err), &err, PP_ERR_INTERNAL, "CUPTI's images have");
    tell_double("growth 0");
    start(pm);
    assert_true(poll(pm));
    assert_true(poll(pm));
    assert_true(stop(pm));
    tell_double("fault cuptiPmSamplingEnable 7 1");
    tell_double("fault cuptiPmSamplingSetConfig 999 0");
    expect_error(pp_pm_start(pm, &err), &err, PP_ERR_INTERNAL, "cuptiPmSamplingSetConfig");
    expect_error(pp_pm_start(pm, &err), &err, PP_ERR_CONFLICT, "cuptiPmSamplingEnable");
    take(pm);
    assert_int_equal(got.count, 0);
    close_all(pm);
}

/* The newest sample is known before it is evaluated, and in the next image too. */
static void when_the_newest_ended(void **state)
{
    (void)state;
    pp_pm_options o = options(60, 3);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    int64_t newest[4];
    assert_int_equal(pp_pm_newest(pm), 0);
    for (int capture = 0; capture < 2; capture++) {
        start(pm);
        assert_int_equal(pp_pm_newest(pm), 0);
        for (int i = 0; i < 4; i++) {
            (void)poll(pm);
            newest[i] = pp_pm_newest(pm);
            assert_true(newest[i] >= (i ? newest[i - 1] : 1));
        }
        (void)stop(pm);
        take(pm);
        for (int i = 0; i < 4; i++) {
            size_t k = 0;
            while (k < got.count && got.all[k].end != newest[i])
                k++;
            assert_true(k < got.count);
        }
        assert_true(newest[3] > newest[0]);
    }
    close_all(pm);
}

static void calls_out_of_turn(void **state)
{
    (void)state;
    pp_error err = {0};
    bool flag = false;
    pp_pm_options o = options(100, 2);
    pp_pm *pm = open_with(GPUS BUSY, &o);
    take(pm);
    assert_int_equal(got.count, 0);
    expect_error(pp_pm_poll(pm, &flag, &err), &err, PP_ERR_INVALID, "no capture runs");
    expect_error(pp_pm_stop(pm, &flag, &err), &err, PP_ERR_INVALID, "no capture runs");
    start(pm);
    assert_false(poll(pm));
    expect_error(pp_pm_start(pm, &err), &err, PP_ERR_INVALID, "runs already");
    assert_false(stop(pm));
    take(pm);
    assert_int_equal(got.count, 2 * STEP / PERIOD - 1);
    expect_error(pp_pm_stop(pm, &flag, &err), &err, PP_ERR_INVALID, "no capture runs");
    close_all(pm);
}

static void closed_in_every_state(void **state)
{
    (void)state;
    pp_pm_options o = options(60, 1);
    close_all(NULL);
    for (int calls = 0; calls <= 6; calls++) {
        pp_pm *pm = open_with(GPUS BUSY, &o);
        if (calls > 0)
            start(pm);
        if (calls > 1)
            (void)poll(pm);
        if (calls > 2)
            assert_true(poll(pm)); /* the image ran full */
        if (calls > 3)
            assert_true(stop(pm));
        if (calls > 4)
            take(pm);
        if (calls > 5)
            start(pm); /* in a session of its own */
        close_all(pm);
    }
}

/* ---- libraries ---- */

static void a_driver_that_lacks_functions(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    refused(GPUS, &o, PP_ERR_NOT_FOUND, "this libcuda lacks functions");
}

static void a_cupti_of_before(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    refused(GPUS, &o, PP_ERR_NOT_FOUND, "older than CUDA 12.6's: no cuptiPmSampling");
}

static void no_cupti(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    if (dlopen("libcupti.so", RTLD_NOW) || dlopen("libcupti.so.13", RTLD_NOW) ||
        dlopen("libcupti.so.12", RTLD_NOW))
        skip();
    refused(GPUS, &o, PP_ERR_NOT_FOUND, "there is no CUPTI: libcupti.so");
}

static void no_driver(void **state)
{
    (void)state;
    pp_pm_options o = options(100, 1);
    if (dlopen("libcuda.so.1", RTLD_NOW))
        skip(); /* a machine with a driver */
    refused(GPUS, &o, PP_ERR_NOT_FOUND, "there is no libcuda.so.1");
}

static const struct CMUnitTest full[] = {
    cmocka_unit_test(metrics_of_a_known_chip),
    cmocka_unit_test(metrics_that_take_another_pass),
    cmocka_unit_test(a_metric_that_fails_leaves_the_others),
    cmocka_unit_test(values_that_are_none),
    cmocka_unit_test(what_decoding_takes),
    cmocka_unit_test(another_period),
    cmocka_unit_test(times_over_several_images),
    cmocka_unit_test(samples_between_two_images),
    cmocka_unit_test(several_captures),
    cmocka_unit_test(an_end_in_steps),
    cmocka_unit_test(a_capture_of_nothing),
    cmocka_unit_test(a_taker_that_has_enough),
    cmocka_unit_test(a_capture_longer_than_its_images),
    cmocka_unit_test(samples_taken_during_a_capture),
    cmocka_unit_test(many_captures),
    cmocka_unit_test(decoding_that_takes_time),
    cmocka_unit_test(an_evaluation_that_is_too_slow),
    cmocka_unit_test(an_evaluation_that_catches_up),
    cmocka_unit_test(samples_that_nobody_takes),
    cmocka_unit_test(an_evaluation_that_fails),
    cmocka_unit_test(closed_while_it_evaluates),
    cmocka_unit_test(no_image_is_left),
    cmocka_unit_test(an_image_runs_full),
    cmocka_unit_test(the_hardware_buffer_runs_full),
    cmocka_unit_test(the_hardware_buffer_ran_full_once),
    cmocka_unit_test(what_is_not_there),
    cmocka_unit_test(options_that_cannot_be),
    cmocka_unit_test(what_is_not_allowed),
    cmocka_unit_test(one_session_at_a_time),
    cmocka_unit_test(calls_that_fail_at_the_beginning),
    cmocka_unit_test(calls_that_fail_in_a_capture),
    cmocka_unit_test(a_session_that_does_not_come_back),
    cmocka_unit_test(when_the_newest_ended),
    cmocka_unit_test(calls_out_of_turn),
    cmocka_unit_test(closed_in_every_state),
};
static const struct CMUnitTest broken[] = {cmocka_unit_test(a_driver_that_lacks_functions)};
static const struct CMUnitTest old[] = {cmocka_unit_test(a_cupti_of_before)};
static const struct CMUnitTest bare[] = {cmocka_unit_test(no_cupti)};
static const struct CMUnitTest none[] = {cmocka_unit_test(no_driver)};

int main(void)
{
    const char *make = getenv("PM_DOUBLE");
    int fd = mkstemp(table);
    int failed;
    if (fd < 0 || !make || setenv("PP_PM_TABLE", table, 1) != 0)
        return 1;
    if (strcmp(make, "broken") == 0)
        failed = cmocka_run_group_tests(broken, NULL, NULL);
    else if (strcmp(make, "old") == 0)
        failed = cmocka_run_group_tests(old, NULL, NULL);
    else if (strcmp(make, "bare") == 0)
        failed = cmocka_run_group_tests(bare, NULL, NULL);
    else if (strcmp(make, "none") == 0)
        failed = cmocka_run_group_tests(none, NULL, NULL);
    else
        failed = cmocka_run_group_tests(full, NULL, NULL);
    (void)close(fd);
    (void)unlink(table);
    return failed;
}
