/*
 * The program precisionprobe-sampler: samples a GPU's performance monitors into a file that the
 * agent reads (sidecar/samples.h), for as long as the training is there.
 *
 *   precisionprobe-sampler FOLDER ID GPU PERIOD-NS [CUPTI]
 *
 * The hook starts it in the training's container, which has the GPU, the driver and CUPTI; it has
 * nothing else of the training. It says nothing and reads nothing, and ends when the lock on the
 * training's ring has fallen, when it is told to, or when the agent has been silent for long.
 */
#include "common/error.h"
#include "sidecar/gpu/memory.h"
#include "sidecar/gpu/pm_sampling.h"
#include "sidecar/ring.h"
#include "sidecar/samples.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    NICE = 5, /* the training's threads go first */
    HARDWARE_BYTES = 512 << 20,
    PERIOD_MIN = 1000, /* ns */
    PERIOD_MAX = 1000000,
    PERIOD_LONG = 250000, /* that is not made longer for want of a faster processor */
    PERIOD_STEP = 5000,
    POLL = 1000000,          /* ns between two polls of a capture: pm_sampling.h says why */
    REST = 20000000,         /* ns between two looks at what is wanted */
    TRIALS = 3,              /* captures at most by which the period is chosen, each of ... */
    TRIAL_SAMPLES = 4000,    /* ... so many samples: two images, of which one is evaluated ... */
    TRIAL_MOST = 1000000000, /* ... or so many ns */
};

/** The part of a period in which its sample should be decoded: at 1 decoding would never catch up
 * with what came while it did something else. */
#define DECODING_MOST 0.75
#define LONGER 1.25 /* at least, where samples were lost all the same */

/** Bytes that a container has to have left: 800 MB are taken, and the training may grow. */
#define MEMORY_LEFT (INT64_C(1536) << 20)

/** ns without the agent's beat after which nobody reads; tests have less time. */
#ifndef PP_SAMPLER_SILENT
#define PP_SAMPLER_SILENT INT64_C(30000000000)
#endif

static struct {
    pp_samples_header *header;
    pp_samples_one *samples;
    char path[PATH_MAX];
    uint64_t head, tail; /* private copies: the other side cannot spoil them */
    int64_t offset;
    int fd;   /* of the file: keeps its lock */
    int ring; /* the training's, to see its lock fall */
    uint32_t beat;
    int64_t beat_at;
} out;

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void rest(int64_t ns)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* ---- the file ---- */

/* Any user may write, as with a ring: the agent is often another one. */
static int make_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fchmod(fd, 0666) == 0 &&
        posix_fallocate(fd, 0, (off_t)PP_SAMPLES_SIZE) == 0)
        return fd;
    (void)close(fd);
    (void)unlink(path);
    return -1;
}

static int map_file(const char *gpu, uint32_t period)
{
    char *base = mmap(NULL, PP_SAMPLES_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, out.fd, 0);
    if (base == MAP_FAILED)
        return -1;
    out.header = (pp_samples_header *)(void *)base;
    out.samples = (pp_samples_one *)(void *)(base + PP_SAMPLES_AT);
    pp_samples_header *h = out.header;
    h->version = PP_SAMPLES_VERSION;
    h->header_size = sizeof *h;
    h->sample_size = sizeof *out.samples;
    h->sample_count = PP_SAMPLES_COUNT;
    h->period = period;
    h->offset = INT64_MAX;
    h->tail_check = ~UINT64_C(0);
    (void)snprintf(h->gpu, sizeof h->gpu, "%s", gpu);
    h->magic = PP_SAMPLES_MAGIC;
    return 0;
}

/* Whether whoever holds the lock on an open file is gone. */
static bool has_fallen(int fd)
{
    return flock(fd, LOCK_SH | LOCK_NB) == 0;
}

/* The session's before this one may still be at its last samples: a GPU has one sampler. */
static void wait_for_one_before(void)
{
    int fd = open(out.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int64_t until = read_clock(CLOCK_MONOTONIC) + PP_SAMPLER_SILENT;
    while (fd >= 0 && !has_fallen(fd) && !has_fallen(out.ring) &&
           read_clock(CLOCK_MONOTONIC) < until)
        rest(REST);
    if (fd >= 0)
        (void)close(fd);
}

/* `folder`/`id`.samples, which appears when it is whole. */
static int publish(const char *folder, const char *id, const char *gpu, uint32_t period)
{
    char fresh[PATH_MAX];
    int n = snprintf(fresh, sizeof fresh, "%s/" PP_RING_UNNAMED "%s-samples", folder, id);
    int m = snprintf(out.path, sizeof out.path, "%s/%s" PP_SAMPLES_SUFFIX, folder, id);
    if (n < 0 || (size_t)n >= sizeof fresh || m < 0 || (size_t)m >= sizeof out.path)
        return -1;
    wait_for_one_before();
    (void)unlink(fresh); /* of one that was ended there */
    out.fd = make_file(fresh);
    if (out.fd < 0)
        return -1;
    if (map_file(gpu, period) == 0 && rename(fresh, out.path) == 0)
        return 0;
    (void)unlink(fresh);
    return -1;
}

/* Unless another's lies there by now. */
static void withdraw(void)
{
    struct stat ours, there;
    if (fstat(out.fd, &ours) == 0 && lstat(out.path, &there) == 0 && ours.st_ino == there.st_ino)
        (void)unlink(out.path);
}

static uint32_t wanted(void)
{
    return __atomic_load_n(&out.header->want, __ATOMIC_ACQUIRE);
}

static void tell_cpu(void)
{
    __atomic_store_n(&out.header->cpu, read_clock(CLOCK_PROCESS_CPUTIME_ID), __ATOMIC_RELAXED);
}

static void show(pp_samples_state state)
{
    tell_cpu();
    __atomic_store_n(&out.header->state, (uint32_t)state, __ATOMIC_RELEASE);
}

/* Room for one more, as far as the agent's word can be believed: by one that is past the head there
 * is none. */
static bool has_room(void)
{
    if (out.head - out.tail < PP_SAMPLES_COUNT)
        return true;
    uint64_t tail = __atomic_load_n(&out.header->tail, __ATOMIC_ACQUIRE);
    uint64_t check = __atomic_load_n(&out.header->tail_check, __ATOMIC_ACQUIRE);
    if (check == ~tail)
        out.tail = tail;
    return out.head - out.tail < PP_SAMPLES_COUNT;
}

/* The sample that waited least until it was decoded is the nearest to its own end. */
static void compare_clocks(int64_t end)
{
    int64_t offset = read_clock(CLOCK_MONOTONIC) - end;
    if (end == 0 || offset >= out.offset)
        return;
    out.offset = offset;
    __atomic_store_n(&out.header->offset, offset, __ATOMIC_RELAXED);
}

static bool write_sample(void *user, const pp_pm_sample *s)
{
    (void)user;
    if (!has_room()) {
        __atomic_fetch_add(&out.header->lost, 1, __ATOMIC_RELAXED);
        return true;
    }
    pp_samples_one *at = &out.samples[out.head % PP_SAMPLES_COUNT];
    *at = (pp_samples_one){.start = s->start, .end = s->end};
    memcpy(at->values, s->values, sizeof at->values);
    __atomic_store_n(&out.header->head, ++out.head, __ATOMIC_RELEASE);
    return true;
}

/* ---- sampling ---- */

/* Whether there is still somebody to sample for. */
static bool is_needed(void)
{
    uint32_t beat = __atomic_load_n(&out.header->beat, __ATOMIC_RELAXED);
    int64_t now = read_clock(CLOCK_MONOTONIC);
    if (beat != out.beat || out.beat_at == 0) {
        out.beat = beat;
        out.beat_at = now;
    }
    return !has_fallen(out.ring) && wanted() != PP_SAMPLES_LEAVE &&
           now - out.beat_at < PP_SAMPLER_SILENT;
}

static void begin_capture(void)
{
    pp_samples_header *h = out.header;
    out.offset = INT64_MAX;
    __atomic_store_n(&h->offset, INT64_MAX, __ATOMIC_RELAXED);
    __atomic_store_n(&h->first, out.head, __ATOMIC_RELAXED);
    __atomic_fetch_add(&h->capture, 1, __ATOMIC_RELEASE);
    show(PP_SAMPLES_SAMPLING);
}

/* Makes the period longer where decoding is too slow for it on this processor, or was, as far as is
 * known. */
static int slow_down(pp_pm *pm, bool failed, pp_error *err)
{
    const double decoding = pp_pm_decode_ns(pm) / DECODING_MOST;
    const double longer = failed ? out.header->period * LONGER : 0;
    const double least = decoding > longer ? decoding : longer;
    uint32_t period = out.header->period;
    while (period < least && period < PERIOD_LONG)
        period += PERIOD_STEP;
    __atomic_store_n(&out.header->period, period, __ATOMIC_RELAXED);
    return pp_pm_set_period(pm, period, err);
}

static int try_period(pp_pm *pm, pp_error *err)
{
    bool full = false, lost = false;
    const int64_t until = read_clock(CLOCK_MONOTONIC) + TRIAL_MOST;
    int64_t from = 0, newest = 0;
    if (pp_pm_start(pm, err) < 0)
        return -1;
    while (!full && is_needed() && newest - from < TRIAL_SAMPLES * (int64_t)out.header->period &&
           read_clock(CLOCK_MONOTONIC) < until) {
        rest(POLL);
        if (pp_pm_poll(pm, &full, err) < 0)
            return -1;
        newest = pp_pm_newest(pm);
        from = from ? from : newest;
    }
    if (pp_pm_stop(pm, &lost, err) < 0)
        return -1;
    return slow_down(pm, full || lost, err);
}

/* Decoding is slower beside the evaluation of what it decoded before. How much slower shows only at
 * a period that it keeps up with, so a longer one is tried in turn. */
static int choose_period(pp_pm *pm, pp_error *err)
{
    for (int trial = 0; trial < TRIALS && is_needed(); trial++) {
        const uint32_t period = out.header->period;
        if (try_period(pm, err) < 0)
            return -1;
        if (out.header->period == period)
            break;
    }
    return 0;
}

/* What is decoded in a poll is evaluated beside it, so it is taken by a later one. */
static int sample(pp_pm *pm, pp_error *err)
{
    bool full = false, lost = false;
    if (pp_pm_start(pm, err) < 0)
        return -1;
    begin_capture();
    int rc = 0;
    while (rc == 0 && !full && wanted() == PP_SAMPLES_SAMPLE && is_needed()) {
        rest(POLL);
        rc = pp_pm_poll(pm, &full, err);
        compare_clocks(pp_pm_newest(pm));
        if (rc == 0)
            rc = pp_pm_take(pm, write_sample, NULL, err);
        tell_cpu();
    }
    show(PP_SAMPLES_ENDING);
    if (pp_pm_stop(pm, &lost, rc < 0 ? NULL : err) < 0 || rc < 0)
        return -1;
    if (pp_pm_take(pm, write_sample, NULL, err) < 0)
        return -1;
    if (!full && !lost)
        return 0;
    __atomic_fetch_add(&out.header->broken, 1, __ATOMIC_RELAXED);
    return slow_down(pm, true, err);
}

/* After a capture that ended by itself it is sampled on: what is wanted has not changed. */
static int serve(pp_pm *pm, pp_error *err)
{
    while (is_needed()) {
        if (wanted() == PP_SAMPLES_SAMPLE) {
            if (sample(pm, err) < 0)
                return -1;
            continue;
        }
        show(PP_SAMPLES_RESTING);
        rest(REST);
    }
    return 0;
}

static void tell_sources(const pp_pm *pm)
{
    (void)snprintf(out.header->chip, sizeof out.header->chip, "%s", pp_pm_chip(pm));
    for (int m = 0; m < PP_METRIC_SAMPLED_COUNT; m++) {
        const char *source = pp_pm_source(pm, (pp_metric)m);
        (void)snprintf(out.header->sources[m], sizeof out.header->sources[m], "%s",
                       source ? source : "");
    }
}

/* Where a container passes its limit all in it may be ended, whoever asked for the memory. */
static int check_memory(pp_error *err)
{
    int64_t left = pp_memory_left("/sys/fs/cgroup");
    if (left >= MEMORY_LEFT)
        return 0;
    return pp_error_set(err, PP_ERR_UNAVAILABLE,
                        "the container has %" PRId64
                        " MiB of memory left, sampling asks for %" PRId64,
                        left >> 20, MEMORY_LEFT >> 20);
}

static void run(const pp_pm_options *options)
{
    pp_error err = {0};
    pp_pm *pm = NULL;
    int rc = check_memory(&err) < 0 ? -1 : pp_pm_open(options, &pm, &err);
    if (rc == 0) {
        tell_sources(pm);
        rc = choose_period(pm, &err) < 0 ? -1 : serve(pm, &err);
    }
    pp_pm_close(pm);
    if (rc == 0)
        return;
    (void)snprintf(out.header->why, sizeof out.header->why, "%s", err.message);
    show(PP_SAMPLES_FAILED);
    while (is_needed()) /* until the agent has read why */
        rest(REST);
}

/* ---- what it has of the system ---- */

/* Of two that need memory the training is to have it; and cores to which it is bound are its own,
 * where there are others. */
static void step_back(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "1000", 4);
        (void)close(fd);
    }
    (void)!nice(NICE);
    cpu_set_t all;
    memset(&all, 0xff, sizeof all); /* of these the container has what it has */
    (void)sched_setaffinity(0, sizeof all, &all);
    (void)sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0});
    (void)umask(077);
}

/* Behind the ring's id may be the number of one of its process' GPUs. */
static int open_ring(const char *folder, const char *id)
{
    char path[PATH_MAX];
    const int length = (int)strcspn(id, "-");
    int n = snprintf(path, sizeof path, "%s/%.*s" PP_RING_SUFFIX, folder, length, id);
    if (n < 0 || (size_t)n >= sizeof path)
        return -1;
    out.ring = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return out.ring < 0 || has_fallen(out.ring) ? -1 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    long period = strtol(argv[4], NULL, 10);
    pp_pm_options options = {.gpu = argv[3],
                             .cupti = argc > 5 ? argv[5] : NULL,
                             .period_ns = (uint32_t)period,
                             .hardware_bytes = HARDWARE_BYTES};
    step_back();
    if (period < PERIOD_MIN || period > PERIOD_MAX || open_ring(argv[1], argv[2]) < 0 ||
        publish(argv[1], argv[2], argv[3], (uint32_t)period) < 0)
        return 2;
    if (argv[1][0] == '/')
        (void)!chdir("/"); /* the training's folder is its own to remove */
    run(&options);
    withdraw();
    return 0;
}
