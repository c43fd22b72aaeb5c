/*
 * How a capture of kernels ends, with the double of CUPTI (cupti.c): the threads of hook and
 * training are one here, and what comes between two of its steps is put there. Time passes only
 * where a test says so.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/kernels/kernels_internal.h"

#include <dirent.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT INT64_C(1000)
#define LONG INT64_C(1000000000) /* it still runs as the capture is closed */
/* ns: launches so much later show that a capture's kernels are here. */
#define LATER INT64_C(25000000)

enum { TOLD_LATE = 2, LAUNCH = 307 }; /* as in cupti.c */

static const char gemm[] = "gemm", collective[] = "ncclKernel"; /* on a stream of its own */

static struct {
    void (*launch)(const char *name, int64_t duration, int how);
    void (*clock)(const int64_t *time);
    void (*log)(char *out, size_t size);
    void (*fault)(const char *name);
} cupti;

static char folder[64];
static int64_t now = INT64_C(1769000000000000000); /* ns, of all clocks */
static int64_t ahead;                              /* ns: the hook's is so much later */
static bool ends_next;     /* the capture ends as somebody looks at the clock next */
static bool ends_at_flush; /* after the next flush has returned */
static bool calls_next;    /* the training calls CUDA as a record is read next */
static int (*real_flush)(uint32_t);
static int (*real_next)(uint8_t *, size_t, void **);
static int (*real_callbacks)(void (*)(uint8_t **, size_t *, size_t *),
                             void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
static void (*wanted)(uint8_t **, size_t *, size_t *);
static void (*filled)(void *, uint32_t, uint8_t *, size_t, size_t);

/* The linker puts these in the place of pp_now() and clock_gettime(). */
int64_t __wrap_pp_now(void);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int64_t __wrap_pp_now(void)
{
    if (ends_next) {
        ends_next = false;
        pp_kernels_end();
    }
    return now + ahead;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    *ret = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

/* Nobody measures steps. */
bool pp_pace_extra(bool by_calls, int64_t *ret)
{
    (void)by_calls;
    *ret = 0;
    return false;
}

void pp_pace_forget(void)
{
}

static int flush(uint32_t force)
{
    const int rc = real_flush(force);
    ends_next = ends_at_flush;
    ends_at_flush = false;
    return rc;
}

static int next_record(uint8_t *buffer, size_t valid, void **record)
{
    if (calls_next) {
        calls_next = false;
        cupti.launch(gemm, SHORT, 0);
    }
    return real_next(buffer, valid, record);
}

static int callbacks(void (*want)(uint8_t **, size_t *, size_t *),
                     void (*fill)(void *, uint32_t, uint8_t *, size_t, size_t))
{
    wanted = want;
    filled = fill;
    return real_callbacks(want, fill);
}

static void get(void *library, const char *name, void *ret)
{
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    memcpy(ret, &symbol, sizeof symbol);
}

static int load(void **state)
{
    (void)state;
    void *library = dlopen(PP_CUPTI_DOUBLE, RTLD_NOW | RTLD_GLOBAL);
    (void)snprintf(folder, sizeof folder, "/tmp/pp-kernels-XXXXXX");
    if (!library || pp_cupti_load() || !mkdtemp(folder) || pp_ring_open(folder) ||
        pp_ring_publish())
        return -1;
    get(library, "pp_cupti_launch", &cupti.launch);
    get(library, "pp_cupti_clock", &cupti.clock);
    get(library, "pp_cupti_log", &cupti.log);
    get(library, "pp_cupti_fault", &cupti.fault);
    cupti.clock(&now);
    real_flush = pp_cupti.flush;
    pp_cupti.flush = flush;
    real_next = pp_cupti.next;
    pp_cupti.next = next_record;
    real_callbacks = pp_cupti.callbacks;
    pp_cupti.callbacks = callbacks;
    return 0;
}

static int unload(void **state)
{
    (void)state;
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s" PP_RING_SUFFIX, folder, pp_ring_id());
    pp_ring_close(true);
    (void)unlink(path);
    return rmdir(folder);
}

static void launch(const char *name, int64_t duration)
{
    cupti.launch(name, duration, 0);
}

/* One that has run by then. */
static void launch_short(void)
{
    launch(gemm, SHORT);
    now += 100 * SHORT;
}

static void start(void)
{
    assert_null(pp_kernels_start(false, false));
    launch_short();
}

static void end(void)
{
    pp_kernels_end();
    now += LATER;
}

/* Whether one of these calls of CUPTI's came since this was asked last. */
static bool called(const char *name)
{
    char text[65536];
    cupti.log(text, sizeof text);
    return strstr(text, name) != NULL;
}

/* The GPU is done, and CUPTI is left in the next CUDA call. */
static void leave(void)
{
    now += 3 * LONG;
    launch_short();
    assert_false(pp_kernels_active());
    ahead = 0;
}

static void test_a_capture_is_not_closed_by_the_end_of_the_one_before(void **state)
{
    (void)state;
    start();
    end();
    launch_short();
    (void)called("");
    (void)pp_kernels_poll(false);
    assert_true(called("disable"));
    leave();
    start();
    now += LATER;
    launch_short();
    ends_at_flush = true;
    (void)called("");
    (void)pp_kernels_poll(false);
    assert_false(ends_at_flush || ends_next);
    assert_false(called("disable"));
    now += LATER;
    launch_short();
    (void)pp_kernels_poll(false);
    assert_true(called("disable"));
    leave();
}

/* A stream is waited for in the capture after one in which it was seen, and then in none. */
static void forget_streams(void)
{
    start();
    end();
    now += 10 * LATER;
    launch_short();
    (void)pp_kernels_poll(false);
    leave();
}

/* Its kernels that still run are lost, whose stream has shown none, and those behind it are not. */
static void test_a_first_kernel_of_a_stream_at_the_end(void **state)
{
    (void)state;
    for (int inside = 0; inside < 2; inside++) {
        const uint64_t lost = pp_ring_kernels_lost();
        start();
        if (inside)
            launch(collective, LONG);
        end();
        if (!inside)
            launch(collective, LONG);
        launch_short();
        (void)called("");
        (void)pp_kernels_poll(false);
        assert_true(called("disable"));
        assert_int_equal(pp_ring_kernels_lost() - lost, inside);
        leave();
        forget_streams();
    }
}

/* How a capture is closed that shows nothing by what is launched behind it. */
static void by_silence(void)
{
    (void)pp_kernels_poll(false);
    ahead = 3 * LONG;
    (void)pp_kernels_poll(false);
}

static void at_exit_of_the_process(void)
{
    (void)pp_kernels_poll(true);
    pp_kernels_give_way(); /* there is a next test */
}

static void (*const ways[])(void) = {by_silence, pp_kernels_give_way, at_exit_of_the_process};

/* Whichever way it is closed: what was launched behind it and still runs is no loss of its. */
static void test_what_still_runs_is_lost_if_it_is_the_captures(void **state)
{
    (void)state;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int inside = 0; inside < 2; inside++) {
            const uint64_t lost = pp_ring_kernels_lost();
            start();
            if (inside)
                launch(gemm, LONG);
            end();
            launch(gemm, LONG);
            (void)called("");
            ways[way]();
            assert_true(called("disable"));
            assert_int_equal(pp_ring_kernels_lost() - lost, inside);
            leave();
        }
}

/* Launches are told by records of calls. */
static void start_by_calls(void)
{
    assert_null(pp_kernels_start(true, false));
    cupti.launch(gemm, SHORT, TOLD_LATE);
    now += 100 * SHORT;
}

/* Where the records of their calls come behind theirs. One whose call is not told at all is lost,
 * unless a call before it was behind the capture already: its own is under way then. */
static void test_what_has_not_begun_is_lost_if_it_is_the_captures(void **state)
{
    (void)state;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int inside = 0; inside < 2; inside++)
            for (int told = 0; told < 2; told++) {
                const uint64_t lost = pp_ring_kernels_lost();
                start_by_calls();
                cupti.launch(gemm, LONG, TOLD_LATE);
                now += SHORT;
                if (!told)
                    (void)pp_cupti.driver_api(LAUNCH, false);
                if (inside)
                    cupti.launch(gemm, SHORT, TOLD_LATE);
                (void)pp_cupti.driver_api(LAUNCH, true);
                end();
                cupti.launch(gemm, SHORT, TOLD_LATE);
                if (!told)
                    (void)pp_cupti.driver_api(LAUNCH, false);
                cupti.launch(gemm, SHORT, TOLD_LATE);
                ways[way]();
                assert_int_equal(pp_ring_kernels_lost() - lost, 1 + inside);
                leave();
            }
}

/* Nor is it known of which call it is. The last test: this CUPTI is not asked for calls again. */
static void test_what_began_within_a_capture_is_its_own(void **state)
{
    (void)state;
    const uint64_t lost = pp_ring_kernels_lost();
    cupti.fault("calls");
    assert_null(pp_kernels_start(true, false));
    launch(gemm, LONG);
    end();
    by_silence();
    assert_int_equal(pp_ring_kernels_lost() - lost, 1);
    leave();
    cupti.fault("");
}

/* What is handed over late, by a thread of CUPTI's: its names are freed by then. */
static void test_a_buffer_after_cupti_was_left_is_not_read(void **state)
{
    (void)state;
    enum { SIZE = 216, START = 16, END = 24, NAME = 104, QUEUED = 120, SUBMITTED = 128 };
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0;
    const int64_t at = INT64_C(2000000000000000000);
    const char *const freed = (const char *)(uintptr_t)1;
    const uint32_t kind = PP_CUPTI_KERNEL;
    start();
    wanted(&buffer, &size, &most);
    end();
    launch_short();
    (void)pp_kernels_poll(false);
    leave();
    const uint64_t told = pp_ring()->kernel_head;
    memset(buffer, 0, SIZE);
    memcpy(buffer, &kind, sizeof kind);
    memcpy(buffer + START, &at, sizeof at);
    memcpy(buffer + END, &at, sizeof at);
    memcpy(buffer + QUEUED, &at, sizeof at);
    memcpy(buffer + SUBMITTED, &at, sizeof at);
    memcpy(buffer + NAME, &freed, sizeof freed);
    filled(NULL, 0, buffer, size, SIZE);
    assert_int_equal(pp_ring()->kernel_head, told);
}

/* The call would wait for CUPTI's thread, which may wait for it. */
static void test_cupti_is_not_left_while_a_buffer_is_read(void **state)
{
    (void)state;
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0;
    const uint32_t other = 0;
    start();
    wanted(&buffer, &size, &most);
    memcpy(buffer, &other, sizeof other);
    end();
    launch_short();
    (void)pp_kernels_poll(false);
    (void)called("");
    calls_next = true;
    filled(NULL, 0, buffer, size, sizeof other);
    assert_false(calls_next || called("finalize"));
    assert_true(pp_kernels_active());
    leave();
    assert_true(called("finalize"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_capture_is_not_closed_by_the_end_of_the_one_before),
        cmocka_unit_test(test_a_first_kernel_of_a_stream_at_the_end),
        cmocka_unit_test(test_what_still_runs_is_lost_if_it_is_the_captures),
        cmocka_unit_test(test_what_has_not_begun_is_lost_if_it_is_the_captures),
        cmocka_unit_test(test_a_buffer_after_cupti_was_left_is_not_read),
        cmocka_unit_test(test_cupti_is_not_left_while_a_buffer_is_read),
        cmocka_unit_test(test_what_began_within_a_capture_is_its_own),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
