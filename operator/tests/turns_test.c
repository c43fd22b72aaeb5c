/* The loop's turns, on a real loop. */
#include "operator/state/turns.h"

#include "common/cleanup.h"
#include "common/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t MILLISECOND = 1000000;

typedef struct world {
    uv_loop_t loop;
    pp_turns turns;
    pp_metrics *metrics;
    uv_timer_t timer;
    int left;         /* turns */
    int64_t busy_ns;  /* of each */
    int64_t spent_ns; /* in all but the last, which may have no next */
} world;

static void on_timer(uv_timer_t *timer)
{
    world *w = timer->data;
    int64_t from = pp_time_monotonic();
    while (pp_time_monotonic() - from < w->busy_ns)
        ;
    if (--w->left == 0)
        uv_timer_stop(timer);
    else
        w->spent_ns += pp_time_monotonic() - from;
}

static double value_of(pp_metrics *metrics, const char *line)
{
    pp_buf text;
    pp_buf_init(&text, PP_METRICS_MAX_TEXT);
    assert_int_equal(pp_metrics_render(metrics, &text, NULL), 0);
    const char *at = strstr(text.data, line);
    assert_non_null(at);
    double value = strtod(at + strlen(line), NULL);
    pp_buf_done(&text);
    return value;
}

/* What callbacks take is counted, what the loop waits for its timer is not. */
static void turns_are_measured_without_the_wait(void **state)
{
    (void)state;
    static const double bounds[] = {1};
    enum { TURNS = 20, EVERY_MS = 20 };
    world w = {.left = TURNS, .busy_ns = 2 * MILLISECOND, .metrics = pp_metrics_new()};
    pp_meter *seconds = pp_metrics_histogram(w.metrics, "t", "Turns.", NULL, bounds, 1, NULL);
    uv_loop_init(&w.loop);
    assert_int_equal(pp_turns_start(&w.turns, &w.loop, seconds, NULL), 0);
    uv_timer_init(&w.loop, &w.timer);
    w.timer.data = &w;
    uv_timer_start(&w.timer, on_timer, EVERY_MS, EVERY_MS);
    int64_t from = pp_time_monotonic();
    uv_run(&w.loop, UV_RUN_DEFAULT); /* ends by itself: the turns keep no loop */
    double all = (double)(pp_time_monotonic() - from) / 1e9;
    double waited = (double)uv_metrics_idle_time(&w.loop) / 1e9;
    double sum = value_of(w.metrics, "\nt_sum ");
    assert_true(value_of(w.metrics, "\nt_count ") >= TURNS - 1);
    assert_true(sum >= (double)w.spent_ns / 1e9);
    assert_true(waited > 0 && sum + waited <= all);

    pp_turns_stop(&w.turns);
    pp_turns_stop(&w.turns); /* once is enough */
    uv_close((uv_handle_t *)&w.timer, NULL);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    pp_metrics_free(w.metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns_are_measured_without_the_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
