#include "operator/http_server/metrics.h"

#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_renders(pp_metrics *m, const char *expected)
{
    pp_buf out;
    pp_error err = {0};
    pp_buf_init(&out, PP_METRICS_MAX_TEXT);
    assert_int_equal(pp_metrics_render(m, &out, &err), 0);
    assert_string_equal(out.data, expected);
    pp_buf_done(&out);
}

static void test_text_format(void **state)
{
    (void)state;
    pp_metrics *m = pp_metrics_new();
    pp_meter *a = pp_metrics_counter(m, "x_total", "Things.", "code=\"200\"", NULL);
    pp_meter *b = pp_metrics_counter(m, "x_total", "Things.", "code=\"404\"", NULL);
    pp_meter *g = pp_metrics_gauge(m, "y", "A level.", NULL, NULL);
    static const double bounds[] = {0.1, 1};
    pp_meter *h = pp_metrics_histogram(m, "z_seconds", "Times.", "k=\"v\"", bounds, 2, NULL);
    assert_ptr_equal(a, pp_metrics_counter(m, "x_total", "Things.", "code=\"200\"", NULL));
    pp_meter_add(a, 3);
    pp_meter_add(a, -1); /* counters do not go down */
    pp_meter_set(a, 2);
    pp_meter_set(b, 12345678901234.0);
    pp_meter_set(g, 0.1 + 0.2); /* not 0.3, and said so */
    pp_meter_observe(h, 0.1);
    pp_meter_observe(h, 0.5);
    pp_meter_observe(h, 7);
    assert_renders(m, "# HELP x_total Things.\n# TYPE x_total counter\n"
                      "x_total{code=\"200\"} 3\nx_total{code=\"404\"} 12345678901234\n"
                      "# HELP y A level.\n# TYPE y gauge\ny 0.30000000000000004\n"
                      "# HELP z_seconds Times.\n# TYPE z_seconds histogram\n"
                      "z_seconds_bucket{k=\"v\",le=\"0.1\"} 1\n"
                      "z_seconds_bucket{k=\"v\",le=\"1\"} 2\n"
                      "z_seconds_bucket{k=\"v\",le=\"+Inf\"} 3\n"
                      "z_seconds_sum{k=\"v\"} 7.6\n"
                      "z_seconds_count{k=\"v\"} 3\n");
    pp_metrics_free(m);
}

static void test_refused(void **state)
{
    (void)state;
    pp_metrics *m = pp_metrics_new();
    pp_error err = {0};
    static const double unsorted[] = {1, 1};
    assert_null(pp_metrics_counter(m, "1x", "Help.", NULL, &err));
    assert_null(pp_metrics_counter(m, "x", "Two\nlines.", NULL, &err));
    assert_non_null(pp_metrics_counter(m, "x", "Help.", NULL, &err));
    assert_null(pp_metrics_gauge(m, "x", "Help.", NULL, &err));
    assert_int_equal(err.code, PP_ERR_CONFLICT);
    assert_null(pp_metrics_histogram(m, "h", "Help.", NULL, unsorted, 2, &err));
    pp_meter_add(NULL, 1);
    pp_meter_observe(NULL, 1);
    pp_metrics_free(m);
}

static void test_series_are_limited(void **state)
{
    (void)state;
    pp_metrics *m = pp_metrics_new();
    pp_error err = {0};
    char labels[32];
    for (int i = 0; i < PP_METRICS_MAX_SERIES; i++) {
        (void)snprintf(labels, sizeof labels, "i=\"%d\"", i);
        assert_non_null(pp_metrics_counter(m, "x", "Help.", labels, &err));
    }
    assert_null(pp_metrics_counter(m, "x", "Help.", "i=\"more\"", &err));
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    pp_metrics_free(m);
}

/* The number at the end of the line that begins at `line`; NaN where there is none. */
static double value_after(const char *line)
{
    const char *space = line ? strchr(line, ' ') : NULL;
    char *end = NULL;
    const double value = space ? strtod(space, &end) : 0;
    return space && end != space ? value : (double)NAN;
}

static void test_process(void **state)
{
    (void)state;
    pp_metrics *m = pp_metrics_new();
    pp_error err = {0};
    pp_buf out;
    pp_buf_init(&out, PP_METRICS_MAX_TEXT);
    assert_int_equal(pp_metrics_add_process(m, &err), 0);
    assert_int_equal(pp_metrics_render(m, &out, &err), 0);
    double value = 0;
    const char *at = strstr(out.data, "\nprocess_resident_memory_bytes ");
    assert_non_null(at);
    value = value_after(at);
    assert_true(value > 500e3 && value < 100e9);
    at = strstr(out.data, "\nprocess_open_fds ");
    value = value_after(at);
    assert_true(value >= 3);
    at = strstr(out.data, "\nprocess_start_time_seconds ");
    value = value_after(at);
    assert_true(value > 1.6e9);
    pp_buf_done(&out);
    pp_metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_format),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_series_are_limited),
        cmocka_unit_test(test_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
