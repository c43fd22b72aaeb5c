/* The work queue on a real loop. */
#include "operator/kube/workqueue.h"

#include "common/buf.h"
#include "common/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct world {
    uv_loop_t loop;
    pp_workqueue *queue;
    pp_buf log;
    bool hold;      /* leave the work open */
    int retry_left; /* fail so many times */
    bool free_in_process;
    int64_t at_ns; /* of the last process */
} world;

static void process(void *user, const char *key)
{
    world *w = user;
    w->at_ns = pp_time_monotonic();
    (void)pp_buf_printf(&w->log, NULL, "%s ", key);
    if (w->free_in_process) {
        pp_workqueue_free(w->queue);
        w->queue = NULL;
        return;
    }
    if (w->hold)
        return;
    if (w->retry_left > 0) {
        w->retry_left--;
        assert_int_equal(pp_workqueue_retry(w->queue, key, NULL), 0);
    } else {
        pp_workqueue_forget(w->queue, key);
    }
    pp_workqueue_done(w->queue, key);
}

static int setup_with(void **state, unsigned concurrency, size_t max_keys)
{
    world *w = calloc(1, sizeof *w);
    uv_loop_init(&w->loop);
    pp_buf_init(&w->log, 1 << 16);
    (void)pp_buf_append(&w->log, "", 0, NULL);
    pp_workqueue_options options = {
        .process = process, .user = w, .concurrency = concurrency, .max_keys = max_keys};
    w->queue = pp_workqueue_new(&w->loop, &options, NULL);
    *state = w;
    return w->queue ? 0 : -1;
}

static int setup(void **state)
{
    return setup_with(state, 1, 0);
}

static int setup_small(void **state)
{
    return setup_with(state, 2, 3);
}

static int teardown(void **state)
{
    world *w = *state;
    pp_workqueue_free(w->queue);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    pp_buf_done(&w->log);
    free(w);
    return 0;
}

static void add(world *w, const char *key)
{
    assert_int_equal(pp_workqueue_add(w->queue, key, NULL), 0);
}

static void run_dry(world *w)
{
    uv_run(&w->loop, UV_RUN_DEFAULT); /* nothing left to do: the timer is stopped */
}

static void test_once_each_in_order(void **state)
{
    world *w = *state;
    add(w, "a");
    add(w, "b");
    add(w, "a");
    add(w, "c");
    add(w, "b");
    assert_int_equal(w->log.len, 0); /* never from within add */
    assert_int_equal(pp_workqueue_depth(w->queue), 3);
    run_dry(w);
    assert_string_equal(w->log.data, "a b c ");
    add(w, "a");
    run_dry(w);
    assert_string_equal(w->log.data, "a b c a ");
}

/* The first in the queue has waited longest, however long another's delay was. */
static void test_oldest(void **state)
{
    world *w = *state;
    assert_true(pp_workqueue_oldest_ns(w->queue) == 0);
    add(w, "a");
    int64_t from = pp_time_monotonic();
    while (pp_time_monotonic() - from < 2000000)
        continue;
    add(w, "b");
    add(w, "a"); /* waits already */
    assert_true(pp_workqueue_oldest_ns(w->queue) >= 2000000);
    w->hold = true;
    run_dry(w); /* a is worked on, b waits */
    int64_t waited = pp_workqueue_oldest_ns(w->queue);
    assert_true(waited > 0 && waited <= pp_time_monotonic() - from - 2000000);
    w->hold = false;
    pp_workqueue_done(w->queue, "a");
    run_dry(w);
    assert_true(pp_workqueue_oldest_ns(w->queue) == 0);
}

static void test_added_while_worked_on(void **state)
{
    world *w = *state;
    w->hold = true;
    add(w, "a");
    run_dry(w);
    add(w, "a");
    add(w, "a");
    add(w, "b");
    run_dry(w);
    assert_string_equal(w->log.data, "a "); /* not twice at once, and one at a time */
    pp_workqueue_done(w->queue, "a");
    run_dry(w);
    assert_string_equal(w->log.data, "a b ");
    pp_workqueue_done(w->queue, "b");
    run_dry(w);
    assert_string_equal(w->log.data, "a b a ");
    pp_workqueue_done(w->queue, "a");
    pp_workqueue_done(w->queue, "a"); /* once too often */
    run_dry(w);
    assert_string_equal(w->log.data, "a b a ");
}

static void test_concurrency_and_limit(void **state)
{
    world *w = *state; /* two at once, three keys */
    pp_error err = {0};
    w->hold = true;
    add(w, "a");
    add(w, "b");
    add(w, "c");
    assert_int_equal(pp_workqueue_add(w->queue, "d", &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    run_dry(w);
    assert_string_equal(w->log.data, "a b ");
    pp_workqueue_done(w->queue, "a");
    add(w, "d"); /* a is no longer known */
    run_dry(w);
    assert_string_equal(w->log.data, "a b c ");
}

static void test_delay(void **state)
{
    world *w = *state;
    int64_t start = pp_time_monotonic();
    /* The shorter delays first: their order then holds however slow these lines run. */
    assert_int_equal(pp_workqueue_add_after(w->queue, "soon", 15, NULL), 0);
    assert_int_equal(pp_workqueue_add_after(w->queue, "middle", 5000, NULL), 0);
    assert_int_equal(pp_workqueue_add_after(w->queue, "middle", 25, NULL), 0); /* earlier wins */
    assert_int_equal(pp_workqueue_add_after(w->queue, "middle", 9000, NULL), 0);
    assert_int_equal(pp_workqueue_add_after(w->queue, "late", 40, NULL), 0);
    assert_int_equal(pp_workqueue_add_after(w->queue, "now", 0, NULL), 0);
    run_dry(w);
    assert_string_equal(w->log.data, "now soon middle late ");
    assert_true(w->at_ns - start >= INT64_C(40000000));
}

/* Those of one turn of the loop; what else is ready goes between them. */
static size_t take_turn(world *w)
{
    const size_t before = w->log.len;
    (void)uv_run(&w->loop, UV_RUN_NOWAIT);
    return (w->log.len - before) / strlen("000 ");
}

static void test_a_crowd_takes_turns(void **state)
{
    world *w = *state;
    char key[32];
    size_t taken = 0;
    int turns = 0;
    for (int i = 0; i < 200; i++) {
        (void)snprintf(key, sizeof key, "%03d", i);
        if (i % 2)
            assert_int_equal(pp_workqueue_add_after(w->queue, key, 1, NULL), 0);
        else
            add(w, key);
    }
    for (; taken < 200; turns++) {
        const size_t now = take_turn(w);
        assert_in_range(now, 0, 32);
        taken += now;
    }
    assert_true(turns >= 200 / 32);
    run_dry(w);
    assert_int_equal(w->log.len, 200 * strlen("000 "));
}

static void test_many_delays_in_order(void **state)
{
    world *w = *state;
    int64_t before[201], after[201]; /* ns between which each key became due */
    char key[32];
    for (int i = 0; i < 200; i++) {
        int ms = 1 + (i * 73) % 200; /* a permutation of 1 to 200 */
        (void)snprintf(key, sizeof key, "%03d", ms);
        before[ms] = pp_time_monotonic() + ms * INT64_C(1000000);
        assert_int_equal(pp_workqueue_add_after(w->queue, key, ms, NULL), 0);
        after[ms] = pp_time_monotonic() + ms * INT64_C(1000000);
    }
    run_dry(w);
    assert_int_equal(w->log.len, 200 * 4);
    int64_t latest = 0;
    for (int i = 0; i < 200; i++) {
        long ms = strtol(w->log.data + (size_t)i * 4, NULL, 10);
        assert_in_range(ms, 1, 200);
        assert_true(after[ms] >= latest); /* none comes after one that was due later */
        latest = before[ms] > latest ? before[ms] : latest;
    }
}

static void test_retries_wait_longer(void **state)
{
    world *w = *state;
    int64_t start = pp_time_monotonic();
    w->retry_left = 9; /* 5 + 10 + ... + 1280 ms */
    add(w, "a");
    run_dry(w);
    assert_string_equal(w->log.data, "a a a a a a a a a a ");
    assert_true(w->at_ns - start >= INT64_C(2555000000));
    w->retry_left = 1; /* forgotten when it succeeded: 5 ms again, not 2560 */
    add(w, "a");
    while (w->retry_left > 0)
        uv_run(&w->loop, UV_RUN_ONCE);
    assert_in_range(uv_backend_timeout(&w->loop), 0, 5);
    run_dry(w);
}

static void test_backoff_bounds(void **state)
{
    (void)state;
    assert_int_equal(pp_workqueue_backoff_ms(0), 5);
    assert_int_equal(pp_workqueue_backoff_ms(1), 10);
    assert_int_equal(pp_workqueue_backoff_ms(17), 655360);
    assert_int_equal(pp_workqueue_backoff_ms(18), 1000000);
    assert_int_equal(pp_workqueue_backoff_ms(4000000000u), 1000000);
}

static void test_free_in_process(void **state)
{
    world *w = *state;
    w->free_in_process = true;
    add(w, "a");
    add(w, "b");
    assert_int_equal(pp_workqueue_add_after(w->queue, "c", 1, NULL), 0);
    run_dry(w);
    assert_string_equal(w->log.data, "a ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_once_each_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_oldest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_added_while_worked_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_concurrency_and_limit, setup_small, teardown),
        cmocka_unit_test_setup_teardown(test_delay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_crowd_takes_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_delays_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retries_wait_longer, setup, teardown),
        cmocka_unit_test(test_backoff_bounds),
        cmocka_unit_test_setup_teardown(test_free_in_process, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
