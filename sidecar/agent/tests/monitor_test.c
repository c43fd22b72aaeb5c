/* PM sampling of a process: this is the sampler, by its file, and the training, by its kernels.
 */
#include "common/tests/cmocka_all.h"
#include "common/tests/random.h"
#include "sidecar/agent/monitor.h"
#include "sidecar/agent/window_file.h"
#include "sidecar/agent/windows.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define S INT64_C(1000000000)
#define TICK (S / 20)

enum { PERIOD = 25000, METRICS = PP_METRIC_SM_CLOCK, KERNELS = 4, LATE = 3000000 };
/* ms that the monitor's thread is waited for: it takes up to a second of a processor, and goes
 * after everything else that this machine does. */
enum { PATIENCE = 600000 };

static struct {
    char folder[32], ring[64], path[64];
    int fd;
    pp_samples_header *header;
    pp_samples_one *all;
    pp_monitor *monitor;
    int64_t now;
    int64_t ahead;           /* the samples' clock less the kernels' */
    int64_t realtime;        /* the host's less the kernels' */
    int64_t sampled, placed; /* up to where there are samples and kernels */
    int64_t step;
    bool blank; /* samples lack the last metric */
    bool fills; /* layer 2's is a fill */
    uint64_t seed;
    int64_t period; /* of samples */
    bool running;
    bool paused;                            /* no capture is wanted */
    double left[METRICS];                   /* of the window that the step before began */
    int64_t ends[KERNELS], starts[KERNELS]; /* of the step that was drawn last */
} t;

/* Of each kernel: us, layer, phase, and its metrics. */
static const struct {
    double us;
    uint32_t layer;
    uint8_t phase;
    double levels[METRICS];
} model[KERNELS] = {
    {600, 1, PP_MARK_FORWARD, {0.8, 0.5, 0.3, 0.2}},
    {300, 2, PP_MARK_FORWARD, {0.3, 0.1, 0.6, 0.0}},
    {400, 1, PP_MARK_BACKWARD, {0.5, 0.4, 0.1, 0.7}},
    {80, 0, PP_MARK_OPTIMIZER, {0.9, 0.2, 0.9, 0.1}},
};

static void make_sampler(void)
{
    t.fd = open(t.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(t.fd >= 0 && ftruncate(t.fd, (off_t)PP_SAMPLES_SIZE) == 0);
    assert_int_equal(flock(t.fd, LOCK_EX), 0);
    char *base = mmap(NULL, PP_SAMPLES_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, t.fd, 0);
    assert_true(base != MAP_FAILED);
    t.header = (void *)base;
    t.all = (void *)(base + PP_SAMPLES_AT);
    t.header->version = PP_SAMPLES_VERSION;
    t.header->header_size = sizeof *t.header;
    t.header->sample_size = sizeof *t.all;
    t.header->sample_count = PP_SAMPLES_COUNT;
    t.header->period = PERIOD;
    t.header->offset = INT64_MAX;
    t.header->magic = PP_SAMPLES_MAGIC;
}

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    (void)snprintf(t.folder, sizeof t.folder, "/tmp/pp-monitor-XXXXXX");
    if (!mkdtemp(t.folder))
        return -1;
    (void)snprintf(t.ring, sizeof t.ring, "%s/a.ring", t.folder);
    (void)snprintf(t.path, sizeof t.path, "%s/a.samples", t.folder);
    t.now = 1000 * S;
    t.ahead = INT64_C(1795331679417193481); /* between boot and 1970, as on a real GPU */
    t.seed = 1;
    t.period = PERIOD;
    t.fd = -1;
    return pp_monitor_new(t.ring, PERIOD, NULL, &t.monitor, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    pp_monitor_free(t.monitor, true);
    if (t.header)
        (void)munmap(t.header, PP_SAMPLES_SIZE);
    if (t.fd >= 0)
        (void)close(t.fd);
    (void)unlink(t.path);
    return rmdir(t.folder);
}

static pp_monitor_advice advise(const char *hook)
{
    pp_monitor_input in = {.now = t.now,
                           .realtime = t.realtime,
                           .wanted = !t.paused,
                           .running = t.running,
                           .hook = hook};
    t.now += TICK;
    return pp_monitor_poll(t.monitor, &in);
}

/* Whether a capture may begin. */
static bool poll(const char *hook)
{
    return advise(hook) == PP_MONITOR_GO;
}

static void show(pp_samples_state state)
{
    t.header->state = state;
}

/* A step that begins at `at`: its kernels follow each other, the host is late now and then. */
static int64_t draw_step(int64_t at)
{
    for (int k = 0; k < KERNELS; k++) {
        t.starts[k] = at + (int64_t)(1000 + 50000 * sim_uniform(&t.seed));
        t.ends[k] =
            t.starts[k] + (int64_t)(1000 * model[k].us * (0.98 + 0.04 * sim_uniform(&t.seed)));
        at = t.ends[k];
    }
    return at + (int64_t)(400000 * sim_uniform(&t.seed));
}

static void write_sample(int64_t start, int64_t end, const double *values)
{
    pp_samples_one *s = &t.all[t.header->head % PP_SAMPLES_COUNT];
    *s = (pp_samples_one){.start = start + t.ahead, .end = end + t.ahead};
    for (int m = 0; m < METRICS; m++)
        s->values[m] = t.blank && m == METRICS - 1 ? NAN : (float)values[m];
    s->values[PP_METRIC_SM_CLOCK] = 1.98F;
    t.header->head++;
}

/* Samples of a step, whose windows do not care about its bounds. */
static void sample_step(int64_t until)
{
    for (; t.sampled + t.period <= until; t.sampled += t.period) {
        double values[METRICS];
        for (int m = 0; m < METRICS; m++) {
            values[m] = t.left[m];
            t.left[m] = 0;
        }
        for (int k = 0; k < KERNELS; k++) {
            int64_t from = t.starts[k] > t.sampled ? t.starts[k] : t.sampled;
            int64_t to = t.ends[k] < t.sampled + t.period ? t.ends[k] : t.sampled + t.period;
            for (int m = 0; to > from && m < METRICS; m++)
                values[m] += model[k].levels[m] * (double)(to - from) / (double)t.period;
        }
        write_sample(t.sampled, t.sampled + t.period, values);
    }
    for (int k = 0; k < KERNELS; k++)
        for (int m = 0; t.ends[k] > t.sampled && m < METRICS; m++)
            t.left[m] += model[k].levels[m] *
                         (double)(t.ends[k] - (t.starts[k] > t.sampled ? t.starts[k] : t.sampled)) /
                         (double)t.period;
}

static void tell_step(void)
{
    for (int k = 0; k < KERNELS; k++) {
        pp_kernels_placed one = {.start = t.starts[k],
                                 .end = t.ends[k],
                                 .step = t.step,
                                 .layer = model[k].layer,
                                 .phase = model[k].phase,
                                 .copy = t.fills && model[k].layer == 2,
                                 .type = PP_COPY_FILL};
        pp_monitor_kernel(t.monitor, &one);
    }
    t.step++;
}

/* The training up to now, samples while they are wanted. */
static void train(void)
{
    while (t.placed < t.now) {
        int64_t end = draw_step(t.placed);
        if (t.header->state == PP_SAMPLES_SAMPLING)
            sample_step(end);
        else
            t.sampled = end;
        tell_step();
        t.placed = end;
    }
    t.header->offset = -t.ahead + LATE;
}

/* Until samples come. */
static void begin(void)
{
    if (!t.header)
        make_sampler();
    show(PP_SAMPLES_RESTING);
    assert_false(poll("started"));
    assert_int_equal(t.header->want, PP_SAMPLES_SAMPLE);
    show(PP_SAMPLES_SAMPLING);
    t.placed = t.sampled = t.now;
    memset(t.left, 0, sizeof t.left);
    assert_true(poll("started"));
}

/* The sampler is ready, and samples are asked for, in the middle of a capture. */
static void ask_while_it_runs(void)
{
    make_sampler();
    show(PP_SAMPLES_RESTING);
    t.running = true;
    (void)poll("started");
    assert_int_equal(t.header->want, PP_SAMPLES_SAMPLE);
}

/* A capture, as long as samples are wanted; what follows of it is not sampled. */
static void sample(void)
{
    t.running = true;
    for (int i = 0; i < 100 && t.header->want == PP_SAMPLES_SAMPLE; i++) {
        train();
        (void)poll("started");
    }
    assert_int_equal(t.header->want, PP_SAMPLES_REST);
    show(PP_SAMPLES_RESTING);
    for (int i = 0; i < 3; i++) {
        train();
        (void)poll("started");
    }
}

static bool wait_for(pp_monitor_estimates *ret)
{
    for (int i = 0; i < PATIENCE; i++) {
        (void)poll("started");
        if (pp_monitor_take(t.monitor, ret))
            return true;
        t.now -= TICK;
        (void)usleep(1000);
    }
    return false;
}

static void check_estimates(const pp_monitor_estimates *e)
{
    size_t found = 0;
    for (size_t i = 0; i < e->result->n; i++)
        for (int k = 0; k < KERNELS; k++) {
            const pp_sampling_item *item = &e->result->items[i];
            if (item->layer != model[k].layer || item->phase != model[k].phase)
                continue;
            found++;
            for (int m = 0; m < METRICS; m++)
                assert_true(fabs(item->mean[m] - model[k].levels[m]) < 0.01);
        }
    assert_int_equal(found, t.fills ? KERNELS - 1 : KERNELS);
    assert_true(llabs(e->lag - t.ahead) < 1000);
}

/* Samples of 2 s, and nothing else, have been joined. */
static pp_monitor_estimates check_whole_window(void)
{
    pp_monitor_estimates e;
    assert_true(wait_for(&e));
    assert_int_equal(e.windows, 1);
    assert_int_equal(e.failed, 0);
    assert_true(e.sampled > 19 * S / 10 && e.sampled < 22 * S / 10);
    check_estimates(&e);
    return e;
}

static void test_from_samples_to_estimates(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    sample();
    e = check_whole_window();
    const uint64_t windows = e.result->windows;
    assert_false(pp_monitor_take(t.monitor, &e)); /* nothing new */

    /* The capture goes on: samples after a while. */
    int64_t then = t.now;
    while (t.header->want == PP_SAMPLES_REST && t.now - then < 60 * S)
        (void)poll("started");
    assert_true(t.now - then > 20 * S && t.now - then < 40 * S);
    show(PP_SAMPLES_SAMPLING);
    t.placed = t.sampled = t.now;
    sample();
    assert_true(wait_for(&e));
    assert_int_equal(e.windows, 2);
    assert_int_equal(e.failed, 0);
    assert_true(e.result->windows > windows * 3 / 2);
    check_estimates(&e);
    assert_string_equal(pp_monitor_why(t.monitor), "");
}

/* A fill has no row, and is no gap in which others are seen. */
static void test_fills_among_kernels(void **state)
{
    (void)state;
    t.fills = true;
    begin();
    sample();
    const pp_monitor_estimates e = check_whole_window();
    for (size_t i = 0; i < e.result->n; i++)
        assert_int_not_equal(e.result->items[i].layer, 2);
    assert_int_equal(e.result->quality[0].doubt, PP_SAMPLING_FITS);
}

/* However slow the processor is, what the thread took of it is paid for then. */
static void rest(void)
{
    t.now += 20 * S;
}

/* More windows than are kept apart. */
static void test_many_windows(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    for (uint64_t i = 1; i <= 11; i++) {
        t.running = false;
        begin();
        sample();
        assert_true(wait_for(&e));
        assert_int_equal(e.windows, i);
        t.ahead += 2000; /* the clocks drift */
        rest();
    }
    t.ahead -= 2000;
    assert_int_equal(e.failed, 0);
    assert_true(e.sampled > 11 * 19 * S / 10);
    check_estimates(&e);
}

/* Windows that lack a metric are not merged with those that have it. */
static void test_many_windows_some_blank(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    for (uint64_t i = 1; i <= 16; i++) {
        t.running = false;
        t.blank = i > 3;
        begin();
        sample();
        assert_true(wait_for(&e));
        assert_int_equal(e.windows, i);
        rest();
    }
    assert_int_equal(e.failed, 0);
    check_estimates(&e);
}

/* Samples that the host's clock stamps go by their stamps: to a us, and what one window says more.
 */
static void test_samples_stamped_by_the_hosts_clock(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    t.realtime = t.ahead + 300;
    begin();
    sample();
    e = check_whole_window();
    assert_int_equal(e.lag, t.realtime);
    /* Of a window of 2 s, by 2 parts per million in its half: these stamps have no ticks. */
    assert_true(fabs((double)e.lag_stderr - sqrt(1e6 + 250 * 250 + 2000 * 2000)) < 100);
}

/* Of a clock that is some us off the host's, as data say clearly, the data's lag is taken; what
 * that may be off by goes with kernels' length, which is half a ms. */
static void test_samples_stamped_by_another_clock(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    t.realtime = t.ahead - 50000;
    begin();
    sample();
    e = check_whole_window();
    assert_true(e.lag_stderr > 5000 && e.lag_stderr < 30000);
}

/* Hours later the lag that was found last tells less than the sampler does. */
static void test_windows_far_apart(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    for (uint64_t i = 1; i <= 2; i++) {
        t.running = false;
        begin();
        sample();
        assert_true(wait_for(&e));
        assert_int_equal(e.windows, i);
        assert_int_equal(e.failed, 0);
        assert_true(llabs(e.lag - t.ahead) < 1000);
        t.now += 30000 * S;
        t.ahead += S / 5;
    }
}

/* The session is, while the training goes on: the sampler leaves, once all is joined. */
static void test_a_session_that_is_over(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    sample();
    t.running = false;
    pp_monitor_end(t.monitor);
    pp_monitor_input in = {.now = t.now, .over = true, .hook = "started"};
    for (int i = 0; i < PATIENCE && t.header->want != PP_SAMPLES_LEAVE; i++) {
        assert_int_equal(pp_monitor_poll(t.monitor, &in), PP_MONITOR_GO);
        (void)usleep(1000);
    }
    assert_int_equal(t.header->want, PP_SAMPLES_LEAVE);
    assert_true(pp_monitor_take(t.monitor, &e));
    check_estimates(&e);
    assert_int_equal(flock(t.fd, LOCK_UN), 0);
    assert_int_equal(pp_monitor_poll(t.monitor, &in), PP_MONITOR_GO);
    assert_string_equal(pp_monitor_why(t.monitor), "");
}

/* The capture ends before the window is full, or the training does. */
static void test_a_short_capture(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    t.running = true;
    for (int i = 0; i < 10; i++) {
        train();
        (void)poll("started");
    }
    t.running = false;
    (void)poll("started");
    assert_int_equal(t.header->want, PP_SAMPLES_SAMPLE); /* kernels may still run */
    pp_monitor_end(t.monitor);
    (void)poll("started");
    assert_int_equal(t.header->want, PP_SAMPLES_REST);
    show(PP_SAMPLES_RESTING);
    assert_true(wait_for(&e));
    check_estimates(&e);
    assert_true(e.sampled > 4 * S / 10 && e.sampled < 6 * S / 10);

    begin();
    t.running = true;
    for (int i = 0; i < 10; i++) {
        train();
        (void)poll("started");
    }
    pp_monitor_finish(t.monitor);
    assert_true(pp_monitor_take(t.monitor, &e));
    assert_int_equal(e.windows, 2);
    assert_int_equal(e.failed, 0);
    assert_true(e.sampled > 9 * S / 10 && e.sampled < 11 * S / 10);
    check_estimates(&e);
}

/* Of the samples before it the latest ones are kept. */
static void test_a_capture_that_comes_late(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    for (int i = 0; i < 200; i++) {
        train();
        assert_true(poll("started"));
    }
    sample();
    assert_true(wait_for(&e));
    assert_int_equal(e.failed, 0);
    assert_true(e.sampled > 2 * S && e.sampled < 5 * S / 2);
    check_estimates(&e);
}

/* The host has ended a capture before the GPU comes to the first kernel of it. */
static void test_a_host_that_is_far_ahead(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    t.running = true;
    for (int64_t from = t.now; t.now < from + 5 * S / 2; (void)poll("started")) {
        t.running = t.now < from + 2 * S;
        sample_step(t.now); /* of steps that were launched before, whose kernels are not told */
    }
    t.placed = t.sampled = t.now;
    sample();
    pp_monitor_end(t.monitor);
    assert_true(wait_for(&e));
    assert_int_equal(e.failed, 0);
    assert_true(e.sampled > 19 * S / 10);
    check_estimates(&e);
}

/* A capture of which no kernel is told. */
static void test_a_capture_without_kernels(void **state)
{
    (void)state;
    begin();
    t.running = true;
    const int64_t from = t.now;
    while (t.header->want == PP_SAMPLES_SAMPLE && t.now < from + 20 * S) {
        sample_step(t.now);
        (void)poll("started");
    }
    assert_true(t.now < from + 6 * S);
}

/* What is told of the capture before while samples come already is not this one's. */
static void test_a_capture_before_that_is_told_late(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    const pp_kernels_placed late = {.start = t.now - 2 * S, .end = t.now - S, .layer = 9};
    begin();
    pp_monitor_kernel(t.monitor, &late);
    pp_monitor_end(t.monitor);
    t.running = true;
    (void)poll("started");
    pp_monitor_kernel(t.monitor, &late);
    pp_monitor_end(t.monitor); /* even after this one runs */
    sample();
    assert_true(wait_for(&e));
    assert_int_equal(e.failed, 0);
    assert_true(e.sampled > 19 * S / 10 && e.sampled < 22 * S / 10);
    check_estimates(&e);
    for (size_t i = 0; i < e.result->n; i++)
        assert_int_not_equal(e.result->items[i].layer, 9);
}

/* They were asked for while it ran: they are not for the next one. */
static void test_a_capture_that_is_over_as_samples_come(void **state)
{
    (void)state;
    for (int opened = 0; opened < 2; opened++) {
        t.paused = t.running = false;
        if (opened) {
            begin();
        } else {
            ask_while_it_runs();
        }
        t.running = false;
        t.paused = true;
        show(PP_SAMPLES_SAMPLING);
        assert_true(poll("started"));
        assert_int_equal(t.header->want, PP_SAMPLES_REST);
        t.placed = t.sampled = t.now - S / 4;
        train();
        pp_monitor_end(t.monitor);
        show(PP_SAMPLES_RESTING);
        for (int i = 0; i < 10; i++)
            assert_true(poll("started"));
    }
    t.paused = false;
    begin();
    sample();
    (void)check_whole_window();
}

/* Losses broke the one that ran when samples were asked for; it goes on after that. What is told of
 * its part before the break ends no window. */
static void test_a_capture_that_breaks_as_samples_come(void **state)
{
    (void)state;
    ask_while_it_runs();
    show(PP_SAMPLES_SAMPLING);
    t.running = false;
    t.placed = t.sampled = t.now;
    (void)poll("started");
    train();
    pp_monitor_end(t.monitor);
    (void)poll("started");
    t.placed = t.sampled = t.now;
    sample();
    (void)check_whole_window();
}

/* A session that is over before the sampler has opened still hears why it cannot. */
static void test_a_session_that_is_over_early(void **state)
{
    (void)state;
    pp_monitor_input over = {.over = true, .hook = "started"};
    make_sampler();
    (void)poll("started");
    for (int i = 0; i < 10; i++) {
        over.now = t.now += TICK;
        (void)pp_monitor_poll(t.monitor, &over);
        assert_int_equal(t.header->want, PP_SAMPLES_REST);
    }
    show(PP_SAMPLES_FAILED);
    (void)snprintf(t.header->why, sizeof t.header->why, "not allowed here");
    (void)pp_monitor_poll(t.monitor, &over);
    assert_string_equal(pp_monitor_why(t.monitor), "not allowed here");
    assert_int_equal(t.header->want, PP_SAMPLES_LEAVE);
}

/* The one that runs while the sampler opens would be paid for without samples; one that they are
 * asked for within goes on. */
static void test_a_sampler_that_opens_within_a_capture(void **state)
{
    (void)state;
    t.running = true;
    assert_int_equal(advise(""), PP_MONITOR_GO);
    assert_int_equal(advise("started"), PP_MONITOR_STOP);
    make_sampler();
    t.now += S;
    assert_int_equal(advise("started"), PP_MONITOR_STOP);
    show(PP_SAMPLES_RESTING);
    assert_int_equal(advise("started"), PP_MONITOR_WAIT);
    assert_int_equal(t.header->want, PP_SAMPLES_SAMPLE);
    show(PP_SAMPLES_SAMPLING);
    t.placed = t.sampled = t.now;
    assert_int_equal(advise("started"), PP_MONITOR_GO);
    sample();
    (void)check_whole_window();
}

/* It does not open: the capture is not held off for long. Nor is it for one that was there before
 * this agent. */
static void test_a_capture_is_not_stopped_for_long(void **state)
{
    (void)state;
    t.running = true;
    (void)advise("");
    int64_t from = t.now;
    while (advise("started") == PP_MONITOR_STOP)
        assert_true(t.now - from < 100 * S);
    assert_true(t.now - from > 5 * S && t.now - from < 7 * S);
    t.running = false; /* nor is its successor */
    assert_int_equal(advise("started"), PP_MONITOR_GO);

    pp_monitor_free(t.monitor, false);
    assert_int_equal(pp_monitor_new(t.ring, PERIOD, NULL, &t.monitor, NULL), 0);
    assert_int_equal(advise("started"), PP_MONITOR_WAIT);
}

static uint64_t kernels_of(const pp_monitor_estimates *e, uint32_t layer, uint8_t phase)
{
    for (size_t i = 0; i < e->result->n; i++)
        if (e->result->items[i].layer == layer && e->result->items[i].phase == phase)
            return e->result->items[i].kernels;
    return 0;
}

/* In a capture that goes on a window begins in the middle of a step: kernels are told by their
 * numbers in the step, so it takes all of them. Those of the steps before it are none of its. */
static void test_a_window_that_begins_within_a_step(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    const int64_t from = t.now;
    begin();
    const pp_kernels_placed before = {
        .start = from - 2000000, .end = from - 1000000, .step = t.step++, .layer = 9};
    pp_monitor_kernel(t.monitor, &before);
    (void)draw_step(from - 400000);
    tell_step();
    assert_true(t.starts[0] < from && t.ends[0] > from && t.starts[1] > from);
    sample();
    assert_true(wait_for(&e));
    assert_int_equal(e.failed, 0);
    check_estimates(&e);
    const uint64_t steps = kernels_of(&e, 2, PP_MARK_FORWARD);
    assert_true(steps > 1000);
    assert_int_equal(kernels_of(&e, 1, PP_MARK_FORWARD), steps);
    assert_int_equal(kernels_of(&e, 1, PP_MARK_BACKWARD), steps);
    assert_int_equal(kernels_of(&e, 9, PP_MARK_FORWARD), 0);
}

/* Samples of another GPU, say: they tell nothing, and spoil nothing of what is known. */
static void test_samples_that_do_not_fit(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    sample();
    assert_true(wait_for(&e));
    t.running = false;
    begin();
    t.running = true;
    for (int i = 0; i < 10; i++) {
        int64_t from = t.sampled;
        uint64_t head = t.header->head;
        train();
        for (uint64_t k = head; k < t.header->head; k++)
            for (int m = 0; m < METRICS; m++)
                t.all[k % PP_SAMPLES_COUNT].values[m] = (float)sim_uniform(&t.seed);
        assert_true(t.sampled > from);
        (void)poll("started");
    }
    pp_monitor_finish(t.monitor);
    assert_true(pp_monitor_take(t.monitor, &e));
    assert_int_equal(e.windows, 2);
    assert_int_equal(e.failed, 1);
    check_estimates(&e);
}

/* A capture of half a second whose samples are another GPU's. */
static void sample_noise(void)
{
    t.running = false;
    begin();
    t.running = true;
    for (int i = 0; i < 10; i++) {
        uint64_t head = t.header->head;
        train();
        for (uint64_t k = head; k < t.header->head; k++)
            for (int m = 0; m < METRICS; m++)
                t.all[k % PP_SAMPLES_COUNT].values[m] = (float)sim_uniform(&t.seed);
        (void)poll("started");
    }
    t.running = false;
    pp_monitor_end(t.monitor);
    (void)poll("started");
    show(PP_SAMPLES_RESTING);
    (void)poll("started");
}

/* Until they are joined: then samples are asked for again. */
static void wait_until_asked(void)
{
    for (int i = 0; i < PATIENCE && t.header->want != PP_SAMPLES_SAMPLE; i++) {
        (void)poll("started");
        t.now -= TICK;
        (void)usleep(1000);
    }
    assert_int_equal(t.header->want, PP_SAMPLES_SAMPLE);
}

/* It says why, until something is known. */
static void test_windows_in_vain(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    for (int i = 0; i < 3; i++) {
        assert_string_equal(pp_monitor_why(t.monitor), "");
        sample_noise();
        wait_until_asked();
    }
    assert_non_null(strstr(pp_monitor_why(t.monitor), "at no lag"));
    assert_false(pp_monitor_take(t.monitor, &e));
    begin();
    sample();
    assert_true(wait_for(&e));
    assert_int_equal(e.failed, 3);
    assert_non_null(strstr(e.failure, "at no lag"));
    assert_string_equal(pp_monitor_why(t.monitor), "");
}

static void test_one_window_in_vain(void **state)
{
    (void)state;
    sample_noise();
    wait_until_asked();
    assert_string_equal(pp_monitor_why(t.monitor), "");
    pp_monitor_finish(t.monitor);
    assert_non_null(strstr(pp_monitor_why(t.monitor), "at no lag"));
}

/* It is the sampler's to choose, but not any. */
static void test_a_longer_period(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    make_sampler();
    t.header->period = 2 * PERIOD; /* windows come as they did: only the cuts are others */
    begin();
    sample();
    assert_true(wait_for(&e));
    assert_int_equal(e.sampler->period, 2 * PERIOD);
    assert_true(e.sampled > 19 * S / 10 && e.sampled < 22 * S / 10);
    check_estimates(&e);
    static const uint32_t impossible[] = {PERIOD - 1, 1000001};
    for (int i = 0; i < 2; i++) {
        pp_monitor_free(t.monitor, false);
        assert_int_equal(pp_monitor_new(t.ring, PERIOD, NULL, &t.monitor, NULL), 0);
        t.header->want = PP_SAMPLES_REST;
        t.header->period = impossible[i];
        show(PP_SAMPLES_RESTING);
        assert_true(poll("started"));
        assert_non_null(strstr(pp_monitor_why(t.monitor), "impossible period"));
    }
}

/* Later it may make it longer still, where its processor does not keep up. */
static void test_a_period_that_grows(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    sample();
    assert_true(wait_for(&e));
    t.running = false;
    t.period = 4 * PERIOD + 320; /* the clock has steps of 32 ns */
    t.header->period = 4 * PERIOD;
    begin();
    sample();
    assert_true(wait_for(&e));
    assert_int_equal(e.windows, 2);
    assert_int_equal(e.failed, 0);
    assert_true(e.sampled > 39 * S / 10);
    check_estimates(&e);
}

/* What the sampler has taken of a processor is paid for before the next window. */
static void test_a_share_of_a_processor(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    sample();
    assert_true(wait_for(&e));
    t.running = false;
    t.header->cpu = 120 * S;
    const int64_t from = t.now;
    while (t.header->want == PP_SAMPLES_REST && t.now - from < 3000 * S)
        assert_true(poll("started") || t.header->want == PP_SAMPLES_SAMPLE);
    /* 120 - 20, and what the thread has taken, by the tenth */
    assert_true(t.now - from > 990 * S && t.now - from < 2000 * S);
    t.header->cpu = INT64_MIN;
    begin();
}

/* A clock that nobody has, and one that is not compared yet: another capture has just begun. */
static void test_an_offset_that_says_nothing(void **state)
{
    (void)state;
    static const int64_t offsets[] = {INT64_MIN, INT64_MAX - 1, INT64_MAX};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        pp_monitor_estimates e;
        pp_monitor_free(t.monitor, true);
        assert_int_equal(pp_monitor_new(t.ring, PERIOD, NULL, &t.monitor, NULL), 0);
        if (t.header)
            t.header->want = PP_SAMPLES_REST; /* the next one */
        t.running = false;
        begin();
        t.running = true;
        for (int k = 0; k < 10; k++) {
            train();
            (void)poll("started");
        }
        t.header->offset = offsets[i];
        pp_monitor_finish(t.monitor);
        assert_true(pp_monitor_take(t.monitor, &e));
        assert_int_equal(e.failed, 0);
        check_estimates(&e);
    }
}

static void test_before_the_hook_has_decided(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_true(poll(""));
    assert_string_equal(pp_monitor_why(t.monitor), "");
    assert_true(poll("several GPUs"));
    assert_string_equal(pp_monitor_why(t.monitor), "several GPUs");
}

static int64_t waited(void)
{
    int64_t from = t.now;
    while (!poll("started"))
        assert_true(t.now - from < 100 * S);
    return t.now - from;
}

static void test_a_sampler_that_does_not_come(void **state)
{
    (void)state;
    int64_t ns = waited();
    assert_true(ns > 5 * S && ns < 15 * S);
    assert_string_equal(pp_monitor_why(t.monitor), "no sampler has come");
}

static void test_a_sampler_that_does_not_open(void **state)
{
    (void)state;
    make_sampler();
    int64_t ns = waited();
    assert_true(ns > 5 * S && ns < 15 * S);
    show(PP_SAMPLES_FAILED);
    (void)snprintf(t.header->why, sizeof t.header->why, "not allowed here");
    assert_true(poll("started"));
    assert_string_equal(pp_monitor_why(t.monitor), "not allowed here");
    assert_int_equal(t.header->want, PP_SAMPLES_LEAVE);
}

/* It is asked again, but not at once: each time a capture has to wait. */
static void test_samples_that_do_not_come(void **state)
{
    (void)state;
    make_sampler();
    show(PP_SAMPLES_RESTING);
    int64_t ns = waited();
    assert_true(ns > 4 * S && ns < 7 * S);
    assert_int_equal(t.header->want, PP_SAMPLES_REST);
    int64_t from = t.now;
    while (poll("started"))
        assert_true(t.now - from < 100 * S);
    assert_true(t.now - from > 20 * S);
    assert_int_equal(t.header->want, PP_SAMPLES_SAMPLE);
}

/* An agent before this one was gone before it could say that no more are wanted. */
static void test_a_sampler_that_samples_already(void **state)
{
    (void)state;
    make_sampler();
    t.header->want = PP_SAMPLES_SAMPLE;
    show(PP_SAMPLES_SAMPLING);
    assert_true(poll("started"));
    assert_int_equal(t.header->want, PP_SAMPLES_REST);
    begin();
}

/* That of the session before: the next one comes when it is gone. */
static void test_a_sampler_that_leaves(void **state)
{
    (void)state;
    make_sampler();
    t.header->want = PP_SAMPLES_LEAVE;
    show(PP_SAMPLES_RESTING);
    for (int64_t from = t.now; t.now - from < 2 * S;)
        assert_false(poll("started"));
    assert_int_equal(t.header->want, PP_SAMPLES_LEAVE);
    assert_int_equal(flock(t.fd, LOCK_UN), 0);
    t.header->want = PP_SAMPLES_REST; /* as of one that was killed */
    for (int64_t from = t.now; t.now - from < 2 * S;)
        assert_false(poll("started"));
    assert_string_equal(pp_monitor_why(t.monitor), "");
    t.header->want = PP_SAMPLES_REST;
    assert_int_equal(flock(t.fd, LOCK_EX), 0); /* the next one */
    while (t.header->want == PP_SAMPLES_REST)
        assert_false(poll("started"));
    assert_int_equal(t.header->want, PP_SAMPLES_SAMPLE);
}

/* What the hook said in the session before is no word of this one's sampler. */
static void test_a_hook_that_begins_anew(void **state)
{
    (void)state;
    assert_false(poll("started"));
    for (int64_t from = t.now; t.now - from < 60 * S;)
        assert_true(poll(""));
    int64_t ns = waited();
    assert_true(ns > 5 * S && ns < 7 * S); /* a new one, which does not come */
}

/* Samples are given back where no capture comes. */
static void test_a_capture_that_does_not_come(void **state)
{
    (void)state;
    begin();
    int64_t from = t.now;
    while (t.header->want == PP_SAMPLES_SAMPLE && t.now - from < 100 * S) {
        train();
        (void)poll("started");
    }
    assert_true(t.now - from > 10 * S && t.now - from < 40 * S);
    assert_int_equal(t.header->tail, t.header->head);
    assert_int_equal(t.header->tail_check, ~t.header->head);
}

static void test_a_file_that_lies(void **state)
{
    (void)state;
    begin();
    t.header->head += PP_SAMPLES_COUNT + 1;
    assert_true(poll("started"));
    assert_non_null(strstr(pp_monitor_why(t.monitor), "impossible"));

    pp_monitor_free(t.monitor, true);
    assert_int_equal(pp_monitor_new(t.ring, PERIOD, NULL, &t.monitor, NULL), 0);
    t.header->sample_size++;
    assert_true(poll("started"));
    assert_non_null(strstr(pp_monitor_why(t.monitor), "another build"));
}

static void test_a_sampler_that_ends(void **state)
{
    (void)state;
    begin();
    assert_int_equal(flock(t.fd, LOCK_UN), 0);
    assert_true(poll("started"));
    assert_string_equal(pp_monitor_why(t.monitor), "the sampler has ended");
}

/* What it has given is joined all the same, and nobody waits for that. */
static void test_a_sampler_that_ends_meanwhile(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    begin();
    sample();
    pp_monitor_end(t.monitor);
    (void)poll("started"); /* it is submitted now, where it was not yet */
    assert_int_equal(flock(t.fd, LOCK_UN), 0);
    assert_true(wait_for(&e));
    assert_int_equal(e.windows, 1);
    check_estimates(&e);
    assert_int_equal(e.sampler->period, PERIOD);
    assert_true(poll("started"));
    assert_string_equal(pp_monitor_why(t.monitor), "the sampler has ended");
}

/* What is evaluated again of the file, by the same windows. */
static void check_again(const char *path, const pp_sampling_result *told)
{
    pp_sampling *window = NULL;
    pp_sampling_clock clock;
    pp_sampled again = {0};
    pp_error err = {0};
    assert_int_equal(pp_window_file_read(path, &window, &clock, &err), 0);
    assert_int_equal(pp_sampled_add(&again, window, &clock, &err), 0);
    pp_sampling_free(window);
    assert_int_equal(again.result->n, told->n);
    for (size_t i = 0; i < told->n; i++)
        assert_memory_equal(&again.result->items[i], &told->items[i], sizeof *told->items);
    pp_sampled_free(&again);
}

/* All that its estimates come from is in the file, copies too; a file that is none of ours, or ends
 * early, is refused. */
static void test_windows_that_are_kept(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    pp_sampling *window = NULL;
    pp_sampling_clock clock;
    pp_error err = {0};
    char path[96];
    pp_monitor_free(t.monitor, true);
    assert_int_equal(pp_monitor_new(t.ring, PERIOD, t.folder, &t.monitor, NULL), 0);
    t.fills = true;
    begin();
    sample();
    assert_true(wait_for(&e));
    (void)snprintf(path, sizeof path, "%s/a-0001" PP_WINDOW_SUFFIX, t.folder);
    check_again(path, e.result);
    assert_int_equal(truncate(path, 50000), 0);
    assert_int_equal(pp_window_file_read(path, &window, &clock, &err), -1);
    assert_non_null(strstr(err.message, "was cut short"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++)
        assert_true(fputs("0123456789", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(pp_window_file_read(path, &window, &clock, &err), -1);
    assert_non_null(strstr(err.message, "is no window of version 1"));
    assert_int_equal(unlink(path), 0);
}

/* Training and estimates go on. */
static void test_a_window_that_cannot_be_kept(void **state)
{
    (void)state;
    pp_monitor_estimates e;
    pp_monitor_free(t.monitor, true);
    assert_int_equal(pp_monitor_new(t.ring, PERIOD, "/nonexistent", &t.monitor, NULL), 0);
    begin();
    sample();
    assert_true(wait_for(&e));
    check_estimates(&e);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_from_samples_to_estimates),
        WITH_FOLDER(test_fills_among_kernels),
        WITH_FOLDER(test_samples_stamped_by_the_hosts_clock),
        WITH_FOLDER(test_samples_stamped_by_another_clock),
        WITH_FOLDER(test_windows_that_are_kept),
        WITH_FOLDER(test_a_window_that_cannot_be_kept),
        WITH_FOLDER(test_many_windows),
        WITH_FOLDER(test_many_windows_some_blank),
        WITH_FOLDER(test_windows_far_apart),
        WITH_FOLDER(test_a_session_that_is_over),
        WITH_FOLDER(test_a_short_capture),
        WITH_FOLDER(test_a_capture_that_comes_late),
        WITH_FOLDER(test_a_host_that_is_far_ahead),
        WITH_FOLDER(test_a_capture_without_kernels),
        WITH_FOLDER(test_a_capture_before_that_is_told_late),
        WITH_FOLDER(test_a_capture_that_is_over_as_samples_come),
        WITH_FOLDER(test_a_capture_that_breaks_as_samples_come),
        WITH_FOLDER(test_a_session_that_is_over_early),
        WITH_FOLDER(test_a_sampler_that_opens_within_a_capture),
        WITH_FOLDER(test_a_capture_is_not_stopped_for_long),
        WITH_FOLDER(test_a_window_that_begins_within_a_step),
        WITH_FOLDER(test_samples_that_do_not_fit),
        WITH_FOLDER(test_windows_in_vain),
        WITH_FOLDER(test_one_window_in_vain),
        WITH_FOLDER(test_a_share_of_a_processor),
        WITH_FOLDER(test_a_longer_period),
        WITH_FOLDER(test_a_period_that_grows),
        WITH_FOLDER(test_an_offset_that_says_nothing),
        WITH_FOLDER(test_before_the_hook_has_decided),
        WITH_FOLDER(test_a_sampler_that_does_not_come),
        WITH_FOLDER(test_a_sampler_that_does_not_open),
        WITH_FOLDER(test_samples_that_do_not_come),
        WITH_FOLDER(test_a_sampler_that_samples_already),
        WITH_FOLDER(test_a_sampler_that_leaves),
        WITH_FOLDER(test_a_hook_that_begins_anew),
        WITH_FOLDER(test_a_capture_that_does_not_come),
        WITH_FOLDER(test_a_file_that_lies),
        WITH_FOLDER(test_a_sampler_that_ends),
        WITH_FOLDER(test_a_sampler_that_ends_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
