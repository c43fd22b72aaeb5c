/* The program precisionprobe-sampler with libraries in the driver's and CUPTI's place
 * (pm_double.c). This is the training, by the lock on its ring, and the agent. */
#include "sidecar/gpu/pm_sampling.h"
#include "sidecar/ring.h"
#include "sidecar/samples.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define GPU "GPU-00112233-4455-6677-8899-aabbccddeeff"
/* Patient, so that no capture breaks because its evaluation finds no processor. */
#define BUSY "gpu " GPU " GH100\nat 0 sm=80 warps=40 dram=20 fma=10 tensor=30 mhz=1755\npatient 1\n"
#define ID "0123456789abcdef"

enum { LIMIT = 250 }; /* s: that anything is waited for */

static struct {
    char folder[32], table[64], ring[64], samples[64];
    int lock;
    bool silent; /* as no agent is */
    pid_t sampler;
    pp_samples_header *header;
    const pp_samples_one *all;
} t;

static int64_t now(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

#define GET(field) __atomic_load_n(&t.header->field, __ATOMIC_ACQUIRE)
#define PUT(field, value) __atomic_store_n(&t.header->field, value, __ATOMIC_RELEASE)

/* As the agent shows that it is there. */
static void beat(void)
{
    if (!t.silent)
        PUT(beat, GET(beat) + 1);
}

/* Waits for a condition, not for a time. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        int64_t end = now() + LIMIT * INT64_C(1000000000);                                         \
        while (!(condition)) {                                                                     \
            if (now() > end)                                                                       \
                fail_msg("waited in vain for: %s", #condition);                                    \
            beat();                                                                                \
            (void)usleep(1000);                                                                    \
        }                                                                                          \
    } while (0)

static void write_table(const char *text)
{
    FILE *f = fopen(t.table, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(t.folder, sizeof t.folder, "/tmp/pp-sampler-XXXXXX");
    if (!mkdtemp(t.folder))
        return -1;
    (void)snprintf(t.table, sizeof t.table, "%s/table", t.folder);
    (void)snprintf(t.ring, sizeof t.ring, "%s/" ID PP_RING_SUFFIX, t.folder);
    (void)snprintf(t.samples, sizeof t.samples, "%s/" ID PP_SAMPLES_SUFFIX, t.folder);
    t.silent = true; /* until there is where to */
    t.lock = open(t.ring, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return t.lock < 0 || flock(t.lock, LOCK_EX) < 0 || setenv("PP_PM_TABLE", t.table, 1) < 0;
}

static void unmap(void)
{
    if (t.header)
        (void)munmap(t.header, PP_SAMPLES_SIZE);
    t.header = NULL;
    t.silent = true;
}

static int tear_down(void **state)
{
    (void)state;
    unmap();
    if (t.sampler > 0) { /* of a test that failed */
        (void)kill(t.sampler, SIGKILL);
        (void)waitpid(t.sampler, NULL, 0);
        (void)unlink(t.samples);
    }
    t.sampler = 0;
    (void)close(t.lock);
    (void)unlink(t.table);
    (void)unlink(t.ring);
    return rmdir(t.folder); /* fails where the sampler left a file */
}

static pid_t run(const char *program, const char *period)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl(program, program, t.folder, ID, GPU, period, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Maps the file, once it is there. */
static void map(void)
{
    struct stat st;
    int fd = -1;
    UNTIL((fd = open(t.samples, O_RDWR | O_CLOEXEC)) >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, PP_SAMPLES_SIZE);
    /* All of it at once: what the volume has no room for is refused, and no page faults. */
    assert_in_range(512 * (size_t)st.st_blocks, PP_SAMPLES_SIZE, PP_SAMPLES_SIZE + (64 << 10));
    char *base = mmap(NULL, PP_SAMPLES_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    (void)close(fd);
    t.header = (void *)base;
    t.all = (void *)(base + PP_SAMPLES_AT);
    t.silent = false;
}

static void start_program(const char *program, const char *table)
{
    write_table(table);
    t.sampler = run(program, "25000");
    map();
}

static void start(const char *table)
{
    start_program(PP_SAMPLER, table);
}

static void expect_code(pid_t pid, int code)
{
    int status = 0;
    UNTIL(waitpid(pid, &status, WNOHANG) == pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

/* It ends, and its file is gone. */
static void expect_end(void)
{
    pid_t pid = t.sampler;
    t.sampler = 0;
    expect_code(pid, 0);
    assert_int_equal(access(t.samples, F_OK), -1);
}

static void leave(void)
{
    PUT(want, PP_SAMPLES_LEAVE);
    expect_end();
}

/* A capture of so many samples or more. */
static void sample(uint64_t count)
{
    uint64_t before = GET(head);
    PUT(want, PP_SAMPLES_SAMPLE);
    UNTIL(GET(head) >= before + count);
    PUT(want, PP_SAMPLES_REST);
    UNTIL(GET(state) == PP_SAMPLES_RESTING);
}

/* Samples of the latest capture: one follows on the other, and the values are the table's. */
static void check_capture(int64_t begun)
{
    static const float expected[] = {0.8F, 0.4F, 0.2F, 0.1F, 0.3F, 1.755F};
    const uint64_t first = GET(first), head = GET(head);
    for (uint64_t i = first; i < head; i++) {
        assert_true(t.all[i].end > t.all[i].start);
        assert_true(i == first || t.all[i].start == t.all[i - 1].end);
        for (int m = 0; m < PP_SAMPLES_METRICS; m++)
            assert_true(fabsf(t.all[i].values[m] - expected[m]) < 1e-5F);
    }
    assert_true(GET(offset) <= now() - t.all[head - 1].end);
    assert_true(GET(offset) >= begun - t.all[head - 1].end);
}

static void test_captures_come_whole(void **state)
{
    (void)state;
    start(BUSY);
    UNTIL(GET(state) == PP_SAMPLES_RESTING);
    assert_int_equal(GET(head), 0);
    assert_string_equal(t.header->chip, "GH100");
    assert_string_equal(t.header->gpu, GPU);
    assert_non_null(strstr(t.header->sources[PP_METRIC_SM_ACTIVE], "sm__cycles_active"));
    UNTIL(GET(state) == PP_SAMPLES_RESTING);
    /* As asked for, or, where this machine decodes too slowly, some steps longer. */
    assert_in_range(GET(period), 25000, 250000);
    assert_int_equal(GET(period) % 5000, 0);
    assert_true(GET(offset) == INT64_MAX);
    for (uint64_t capture = 1; capture <= 3; capture++) {
        const uint64_t before = GET(head);
        const int64_t begun = now();
        sample(3000); /* more than an image holds */
        assert_int_equal(GET(capture), capture);
        assert_int_equal(GET(first), before);
        check_capture(begun);
        assert_true(llabs(t.all[before].end - t.all[before].start - (int64_t)GET(period)) <= 32);
    }
    assert_int_equal(GET(lost) + GET(broken), 0);
    assert_true(GET(cpu) > 0);
    leave();
}

/* What is in the image that is being filled comes too. */
static void test_a_short_capture_comes_whole(void **state)
{
    (void)state;
    start(BUSY);
    PUT(want, PP_SAMPLES_SAMPLE);
    UNTIL(GET(state) == PP_SAMPLES_SAMPLING);
    PUT(want, PP_SAMPLES_REST);
    UNTIL(GET(state) == PP_SAMPLES_RESTING);
    /* All but the first, up to one of the double's looks, every ms; a slow machine has a longer
     * period, of which a ms is no multiple. */
    const int64_t over = ((int64_t)GET(head) + 1) * GET(period) % 1000000;
    assert_true(over == 0 || 1000000 - over < GET(period));
    assert_true(GET(head) > 0);
    leave();
}

static void test_it_stands_back(void **state)
{
    (void)state;
    char path[64], text[16] = "";
    start(BUSY);
    (void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", t.sampler);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    (void)fclose(f);
    assert_string_equal(text, "1000\n");
    int nice = getpriority(PRIO_PROCESS, 0) + 5;
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)t.sampler), nice < 19 ? nice : 19);
    leave();
}

static void test_the_training_is_gone(void **state)
{
    (void)state;
    start(BUSY);
    PUT(want, PP_SAMPLES_SAMPLE);
    UNTIL(GET(head) > 0);
    assert_int_equal(flock(t.lock, LOCK_UN), 0);
    expect_end();
}

static void test_it_leaves_while_it_samples(void **state)
{
    (void)state;
    start(BUSY);
    PUT(want, PP_SAMPLES_SAMPLE);
    UNTIL(GET(head) > 0);
    leave();
}

/* The program has less patience than the one that is shipped. */
static void test_the_agent_is_silent(void **state)
{
    (void)state;
    start_program(PP_SAMPLER_IMPATIENT, BUSY);
    PUT(want, PP_SAMPLES_SAMPLE);
    UNTIL(GET(head) > 0);
    t.silent = true;
    expect_end();
}

static void expect_failure(const char *words)
{
    UNTIL(GET(state) == PP_SAMPLES_FAILED);
    if (!strstr(t.header->why, words))
        fail_msg("no \"%s\" in: %s", words, t.header->why);
    assert_int_equal(kill(t.sampler, 0), 0);
    leave();
}

static void test_it_tells_why_it_cannot_sample(void **state)
{
    (void)state;
    start(BUSY "fault cuptiPmSamplingEnable 35\n");
    expect_failure("CAP_SYS_ADMIN");
}

static void test_it_tells_why_it_cannot_go_on(void **state)
{
    (void)state;
    start(BUSY "fault cuptiPmSamplingDecodeData 999 60\n");
    PUT(want, PP_SAMPLES_SAMPLE);
    expect_failure("cuptiPmSamplingDecodeData");
    assert_int_equal(access(t.samples, F_OK), -1);
}

/* The hardware has room for 16 samples, and 40 come between two polls. The period grows with each
 * of three trials, from 25 over 35 and 45 to 60 us, and with the first capture, until there is room
 * for what comes between them: 13 or 14. */
static void test_a_capture_that_breaks_is_followed_by_another(void **state)
{
    (void)state;
    start(BUSY "record 33554432\n");
    PUT(want, PP_SAMPLES_SAMPLE);
    UNTIL(GET(capture) >= 2);
    assert_int_equal(GET(broken), 1);
    assert_int_equal(GET(period), 75000);
    const uint64_t first = GET(first);
    UNTIL(GET(head) >= first + 1000);
    assert_int_equal(GET(capture), 2);
    assert_int_equal(GET(broken), 1);
    leave();
}

/* 30 us of a processor for each sample leave a quarter of 40 us. */
static void test_the_period_is_one_that_decoding_can_follow(void **state)
{
    (void)state;
    start(BUSY "slow_ns 30000\n");
    UNTIL(GET(state) == PP_SAMPLES_RESTING);
    /* What the double does itself comes on top: on a slow machine up to where the period ends. */
    assert_in_range(GET(period), 40000, 250000);
    assert_int_equal(GET(period) % 5000, 0);
    const int64_t period = GET(period);
    sample(100);
    for (uint64_t i = GET(first); i < GET(head); i++)
        assert_true(llabs(t.all[i].end - t.all[i].start - period) <= 32);
    assert_int_equal(GET(broken), 0);
    leave();
}

/* 20 us for each of the first 1,536, by which a single trial chooses 50 us at most, and 70 once
 * they are evaluated. Beside other work on this machine a trial may end before it has seen all of
 * that.
 */
static void test_the_period_is_one_that_decoding_can_follow_beside_evaluation(void **state)
{
    (void)state;
    start(BUSY "slow_ns 20000\ndecode_ns 20000\nbeside_ns 50000\n");
    UNTIL(GET(state) == PP_SAMPLES_RESTING);
    assert_in_range(GET(period), 55000, 250000);
    sample(8000);
    assert_in_range(GET(broken), 0, 1);
    leave();
}

static void test_the_period_has_an_end(void **state)
{
    (void)state;
    start(BUSY "slow_ns 300000\n");
    UNTIL(GET(state) == PP_SAMPLES_RESTING);
    assert_int_equal(GET(period), 250000);
    leave();
}

static void expect_full(uint64_t head)
{
    uint64_t lost = GET(lost);
    UNTIL(GET(lost) >= lost + 1000);
    assert_int_equal(GET(head), head);
}

static void tell_tail(uint64_t tail, uint64_t check)
{
    PUT(tail, tail);
    PUT(tail_check, check);
}

static void test_what_finds_no_room_is_counted(void **state)
{
    (void)state;
    start(BUSY "step_ns 10000000\n");
    PUT(want, PP_SAMPLES_SAMPLE);
    UNTIL(GET(lost) > 0);
    expect_full(PP_SAMPLES_COUNT);
    tell_tail(100, ~UINT64_C(0)); /* half-written */
    expect_full(PP_SAMPLES_COUNT);
    tell_tail(PP_SAMPLES_COUNT + 1, ~((uint64_t)PP_SAMPLES_COUNT + 1)); /* not written yet */
    expect_full(PP_SAMPLES_COUNT);
    tell_tail(100, ~UINT64_C(100));
    UNTIL(GET(head) == PP_SAMPLES_COUNT + 100);
    expect_full(PP_SAMPLES_COUNT + 100);
    tell_tail(50, ~UINT64_C(50)); /* back */
    expect_full(PP_SAMPLES_COUNT + 100);
    tell_tail(300, ~UINT64_C(300));
    UNTIL(GET(head) == PP_SAMPLES_COUNT + 300);
    leave();
}

static bool has_open(pid_t pid, const char *path)
{
    char name[64], target[128];
    for (int fd = 3; fd < 16; fd++) {
        (void)snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, fd);
        ssize_t n = readlink(name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strcmp(target, path) == 0)
            return true;
    }
    return false;
}

static void test_the_next_one_waits(void **state)
{
    (void)state;
    struct stat before, after;
    start(BUSY);
    assert_int_equal(stat(t.samples, &before), 0);
    pid_t next = run(PP_SAMPLER, "25000");
    UNTIL(has_open(next, t.samples));
    assert_int_equal(stat(t.samples, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    PUT(want, PP_SAMPLES_LEAVE);
    expect_code(t.sampler, 0);
    t.sampler = next;
    unmap();
    map();
    sample(100);
    leave();
}

static bool is_another_file(const struct stat *before)
{
    struct stat now;
    return stat(t.samples, &now) == 0 && now.st_ino != before->st_ino;
}

/* One that was killed could not remove its file. The next one opens it to see that it is gone. */
static void test_the_next_one_replaces_what_was_left(void **state)
{
    (void)state;
    struct stat before;
    start(BUSY);
    assert_int_equal(stat(t.samples, &before), 0);
    sample(100);
    assert_int_equal(kill(t.sampler, SIGKILL), 0);
    assert_int_equal(waitpid(t.sampler, NULL, 0), t.sampler);
    t.sampler = run(PP_SAMPLER, "25000");
    UNTIL(is_another_file(&before));
    unmap();
    map();
    assert_int_equal(GET(head), 0);
    sample(100);
    leave();
}

static void test_without_a_training_or_a_period_it_does_not_begin(void **state)
{
    (void)state;
    write_table(BUSY);
    expect_code(run(PP_SAMPLER, "999"), 2);
    expect_code(run(PP_SAMPLER, "1000001"), 2);
    assert_int_equal(flock(t.lock, LOCK_UN), 0);
    expect_code(run(PP_SAMPLER, "25000"), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_captures_come_whole),
        TEST(test_a_short_capture_comes_whole),
        TEST(test_it_stands_back),
        TEST(test_the_training_is_gone),
        TEST(test_it_leaves_while_it_samples),
        TEST(test_the_agent_is_silent),
        TEST(test_it_tells_why_it_cannot_sample),
        TEST(test_it_tells_why_it_cannot_go_on),
        TEST(test_a_capture_that_breaks_is_followed_by_another),
        TEST(test_the_period_is_one_that_decoding_can_follow),
        TEST(test_the_period_is_one_that_decoding_can_follow_beside_evaluation),
        TEST(test_the_period_has_an_end),
        TEST(test_what_finds_no_room_is_counted),
        TEST(test_the_next_one_waits),
        TEST(test_the_next_one_replaces_what_was_left),
        TEST(test_without_a_training_or_a_period_it_does_not_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
