#include "common/tests/cmocka_all.h"
#include "operator/cache/session_runtime.h"
#include "operator/state/config.h"

#include <string.h>

#define T(seconds) (INT64_C(1769000000000000000) + (int64_t)((seconds)*1e9))

static pp_session_pod view(bool running, bool connected, bool finished)
{
    return (pp_session_pod){.running = running, .connected = connected, .finished = finished};
}

static void see(pp_runtime_target *target, double second, bool running, bool connected,
                bool finished)
{
    const pp_session_pod seen = view(running, connected, finished);
    pp_runtime_see(target, &seen, T(second));
}

static pp_plan_options plan_of(int64_t window, int64_t scrape, int64_t lag)
{
    pp_config config = {0};
    pp_plan_options options;
    config.prometheus.collection_interval = window * INT64_C(1000000000);
    config.prometheus.scrape_interval = scrape * INT64_C(1000000000);
    config.prometheus.max_lag = lag * INT64_C(1000000000);
    pp_runtime_plan_options(&config, PP_METRIC_ALL, &options);
    return options;
}

/* Samples are waited for as long as any one of the intervals that are configured says. */
static void test_how_long_samples_are_waited_for(void **state)
{
    (void)state;
    assert_true(plan_of(0, 0, 0).lag_ns == PP_PLAN_LAG);
    assert_true(plan_of(0, 0, 0).settle_ns == PP_PLAN_SETTLE);
    assert_true(plan_of(1, 1, 0).lag_ns < PP_PLAN_LAG);
    assert_true(plan_of(1, 1, 0).settle_ns < PP_PLAN_SETTLE);
    assert_true(plan_of(0, 0, 300).lag_ns >= INT64_C(300000000000));
    assert_true(plan_of(120, 0, 0).lag_ns >= INT64_C(420000000000)); /* 2.5 windows late */
    assert_true(plan_of(0, 90, 0).lag_ns >= INT64_C(90000000000));
    assert_true(plan_of(0, 90, 0).settle_ns >= INT64_C(90000000000));
}

/* A pod's part in a session is told by this process' clock. */
static void test_part_of_a_pod(void **state)
{
    (void)state;
    pp_runtime_target t = {0};
    see(&t, 1, false, false, false); /* it waits for its node */
    assert_true(t.lived_from_ns == 0 && t.heard_from_ns == 0);
    see(&t, 5, true, false, false);
    see(&t, 6, true, true, false);
    assert_true(t.lived_from_ns == T(5) && t.heard_from_ns == T(6) && t.heard_to_ns == T(6));
    see(&t, 20, true, true, false);
    see(&t, 30, true, false, false);
    assert_true(t.heard_to_ns == T(20) && t.lived_to_ns == T(30));
    see(&t, 40, false, false, true);
    see(&t, 50, false, false, true);
    assert_true(t.lived_to_ns == T(40) && t.heard_from_ns == T(6));
}

/* While no container of the training runs the agent's presence is no measurement. */
static void test_a_part_without_a_training(void **state)
{
    (void)state;
    pp_runtime_target t = {0};
    pp_session_pod seen = view(true, true, false);
    seen.trainer_waits = true;
    pp_runtime_see(&t, &seen, T(5)); /* before the training has begun there is nothing to hear */
    assert_true(t.heard_from_ns == 0 && t.n_idle == 0);
    see(&t, 6, true, true, false);
    see(&t, 20, true, true, false);
    pp_runtime_see(&t, &seen, T(21));
    pp_runtime_see(&t, &seen, T(25));
    see(&t, 28, true, true, false); /* it runs again */
    see(&t, 40, true, true, false);
    assert_true(t.heard_from_ns == T(6) && t.heard_to_ns == T(40));
    assert_true(t.n_idle == 1 && t.idle[0].from_ns == T(21) && t.idle[0].to_ns == T(28));
    for (int i = 0; i < 2 * PP_RUNTIME_MAX_IDLE; i++) {
        pp_runtime_see(&t, &seen, T(50 + 2 * i));
        see(&t, 51 + 2 * i, true, true, false);
    }
    assert_true(t.n_idle == PP_RUNTIME_MAX_IDLE);
    assert_true(t.idle[t.n_idle - 1].to_ns == T(49 + 4 * PP_RUNTIME_MAX_IDLE));
}

/* Another process finds it half-way: what is stored of it tells when it began. */
static void test_part_from_the_store(void **state)
{
    (void)state;
    pp_runtime_target t = {0};
    see(&t, 60, true, true, false);
    pp_runtime_restore(&t, T(10), T(61));
    assert_true(t.lived_from_ns == T(10) && t.heard_from_ns == T(10) && t.heard_to_ns == T(60));
    pp_runtime_restore(&t, 0, T(61)); /* nothing is stored yet */
    assert_true(t.heard_from_ns == T(10));
    pp_runtime_target ahead = {0};
    pp_runtime_restore(&ahead, T(3600), T(61)); /* a clock that is ahead */
    assert_true(ahead.heard_from_ns == T(61));
}

/* Ended before this process came: its node says when, where that can be. */
static void test_part_that_ended_before(void **state)
{
    (void)state;
    pp_runtime_target t = {0};
    pp_session_pod seen = view(false, false, true);
    seen.finished_ns = T(40);
    pp_runtime_see(&t, &seen, T(60));
    assert_true(t.lived_to_ns == T(40));
    pp_runtime_target ahead = {0};
    seen.finished_ns = T(4000);
    pp_runtime_see(&ahead, &seen, T(60));
    assert_true(ahead.lived_to_ns == T(60));
}

/* What an agent can have said in turns is not written at each look; a phase is. */
static void test_status_waits(void **state)
{
    (void)state;
    const int64_t s = INT64_C(1000000000);
    pp_runtime runtime = {0};
    for (int news = PP_STATUS_FIGURES; news <= PP_STATUS_PHASE; news++)
        assert_int_equal(pp_runtime_status_wait(&runtime, news, 1, 5 * s), 0); /* the first */
    runtime.status_written_ns = 5 * s;
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_FIGURES, 1, 6 * s), 29 * s);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_TEXTS, 1, 6 * s), 2 * s);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_CONDITION, 1, 5 * s + s / 5),
                     s - s / 5);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_CONDITION, 1, 6 * s), 0);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_PHASE, 1, 5 * s), 0);
    /* Of many sessions each is written less often, but for its phase. */
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_FIGURES, 300, 6 * s), 29 * s);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_FIGURES, 1000, 6 * s), 99 * s);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_TEXTS, 600, 6 * s), 19 * s);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_CONDITION, 500, 6 * s), 4 * s);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_CONDITION, 10000, 6 * s), 19 * s);
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_PHASE, 10000, 6 * s), 0);
    runtime.status_retry_ns = 9 * s; /* the last one failed */
    assert_int_equal(pp_runtime_status_wait(&runtime, PP_STATUS_PHASE, 1, 6 * s), 3 * s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_long_samples_are_waited_for),
        cmocka_unit_test(test_part_of_a_pod),
        cmocka_unit_test(test_a_part_without_a_training),
        cmocka_unit_test(test_part_from_the_store),
        cmocka_unit_test(test_status_waits),
        cmocka_unit_test(test_part_that_ended_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
