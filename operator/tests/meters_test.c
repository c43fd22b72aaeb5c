/* docs/metrics.md holds what the registry exports: every name, type, label and meaning. */
#include "operator/state/meters.h"

#include "common/cleanup.h"
#include "common/file.h"
#include "operator/http_server/http_server_internal.h"
#include "operator/state/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of the line of a sample: what stands in its braces. A histogram's bounds are no labels of ours,
 * so that its count alone is looked at. Returns whether there is something. */
static bool print_labels(FILE *out, const char *line, const char *type, bool first)
{
    const char *from = strchr(line, '{');
    const char *count = strstr(line, "_count{");
    if (!from || (strcmp(type, "histogram") == 0 && (!count || count > from)))
        return false;
    (void)fprintf(out, "%s`%.*s`", first ? "" : ", ", (int)strcspn(from + 1, "}"), from + 1);
    return true;
}

/* The rendered text as a table with a row per name. */
static char *table_of(char *text)
{
    char *table = NULL;
    size_t n = 0;
    char *rest = NULL;
    char help[512] = "";
    char type[16] = "";
    bool first = true;
    FILE *out = open_memstream(&table, &n);
    assert_non_null(out);
    (void)fprintf(out, "| metric | type | labels | meaning |\n|---|---|---|---|");
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *name = line + strlen("# HELP ");
        size_t length = strcspn(line[0] == '#' ? name : "", " ");
        if (strncmp(line, "# HELP ", 7) == 0) {
            (void)fprintf(out, "%s\n| `%.*s` | ", help, (int)length, name);
            (void)snprintf(help, sizeof help, " | %s |", name + length + 1);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            (void)snprintf(type, sizeof type, "%s", name + length + 1);
            (void)fprintf(out, "%s | ", type);
            first = true;
        } else {
            first = !print_labels(out, line, type, first) && first;
        }
    }
    (void)fprintf(out, "%s\n", help);
    (void)fclose(out);
    return table;
}

static void documentation_holds_the_metrics(void **state)
{
    pp_operator op = {.stopping = true}; /* nothing is read from the edges, which are not there */
    server_metrics server;
    pp_error err = {0};
    pp_buf text;
    (void)state;
    assert_int_equal(pp_meters_make(&op, &err), 0);
    assert_int_equal(pp_meters_add_build(op.meters.registry, "0.1.0", "x86_64", &err), 0);
    http_make_metrics(op.meters.registry, &server);
    pp_buf_init(&text, PP_METRICS_MAX_TEXT);
    assert_int_equal(pp_metrics_render(op.meters.registry, &text, &err), 0);
    PP_CLEANUP_FREE char *table = table_of(text.data);
    PP_CLEANUP_FREE char *page =
        pp_file_read(PP_SOURCE_DIR "/docs/metrics.md", 1 << 16, NULL, &err);
    if (!page || !strstr(page, table)) {
        (void)fputs(table, stderr); /* longer than cmocka's messages may be */
        fail_msg("docs/metrics.md lacks this table");
    }
    pp_buf_done(&text);
    pp_metrics_free(op.meters.registry);
}

static void fails_without(pp_metrics *registry, const char *line)
{
    pp_buf text;
    pp_buf_init(&text, PP_METRICS_MAX_TEXT);
    assert_int_equal(pp_metrics_render(registry, &text, NULL), 0);
    if (!strstr(text.data, line))
        fail_msg("the metrics lack%s\n%s", line, text.data);
    pp_buf_done(&text);
}

static void sessions_are_counted_by_phase(void **state)
{
    (void)state;
    pp_operator op = {.stopping = true};
    pp_session pending = {.phase = PP_SESSION_PENDING};
    pp_session collecting = {.phase = PP_SESSION_COLLECTING};
    assert_int_equal(pp_meters_make(&op, NULL), 0);
    pp_meters_session(&op.meters, NULL, &pending);
    pp_meters_session(&op.meters, NULL, &pending);
    pp_meters_session(&op.meters, &pending, &collecting);
    pp_meters_session(&op.meters, &collecting, &collecting);
    fails_without(op.meters.registry, "\nprecisionprobe_sessions{phase=\"Pending\"} 1\n");
    fails_without(op.meters.registry, "\nprecisionprobe_sessions{phase=\"Collecting\"} 1\n");
    fails_without(op.meters.registry, "\nprecisionprobe_sessions{phase=\"Suspended\"} 0\n");
    pp_meters_session(&op.meters, &collecting, NULL);
    fails_without(op.meters.registry, "\nprecisionprobe_sessions{phase=\"Collecting\"} 0\n");
    pp_metrics_free(op.meters.registry);
}

static void requests_are_counted_by_verb_and_code(void **state)
{
    (void)state;
    pp_operator op = {.stopping = true};
    assert_int_equal(pp_meters_make(&op, NULL), 0);
    pp_metrics *r = op.meters.registry;
    fails_without(r, "\nprecisionprobe_kube_requests_total{verb=\"create\",code=\"201\"} 0\n");
    pp_meters_request(&op.meters, PP_KUBE_PATCH_MERGE, 409);
    pp_meters_request(&op.meters, PP_KUBE_PATCH_JSON, 409);
    pp_meters_request(&op.meters, PP_KUBE_WATCH, 200);
    pp_meters_request(&op.meters, PP_KUBE_LIST, 0);
    fails_without(r, "\nprecisionprobe_kube_requests_total{verb=\"patch\",code=\"409\"} 2\n");
    fails_without(r, "\nprecisionprobe_kube_requests_total{verb=\"watch\",code=\"200\"} 1\n");
    fails_without(r, "\nprecisionprobe_kube_requests_total{verb=\"list\",code=\"none\"} 1\n");
    for (int status = -1; status < 100000; status++)
        pp_meters_request(&op.meters, PP_KUBE_GET, status); /* whatever a proxy makes up */
    fails_without(r, "\nprecisionprobe_kube_requests_total{verb=\"get\",code=\"other\"} ");
    assert_non_null(pp_metrics_gauge(r, "room", "Is left.", NULL, NULL));
    pp_metrics_free(r);
}

/* What Prometheus itself has to say of them. */
static void promtool_finds_nothing(void **state)
{
    (void)state;
    pp_operator op = {.stopping = true};
    server_metrics server;
    pp_buf text;
    if (system("command -v promtool >/dev/null") != 0)
        skip();
    assert_int_equal(pp_meters_make(&op, NULL), 0);
    assert_int_equal(pp_meters_add_build(op.meters.registry, "0.1.0", "x86_64", NULL), 0);
    http_make_metrics(op.meters.registry, &server);
    pp_meters_request(&op.meters, PP_KUBE_LIST, 0);
    pp_meter_observe(op.meters.reconcile_seconds, 0.0123);
    pp_buf_init(&text, PP_METRICS_MAX_TEXT);
    assert_int_equal(pp_metrics_render(op.meters.registry, &text, NULL), 0);
    FILE *check = popen("promtool check metrics", "we");
    assert_non_null(check);
    assert_int_equal(fwrite(text.data, 1, text.len, check), text.len);
    assert_int_equal(pclose(check), 0);
    pp_buf_done(&text);
    pp_metrics_free(op.meters.registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documentation_holds_the_metrics),
        cmocka_unit_test(sessions_are_counted_by_phase),
        cmocka_unit_test(requests_are_counted_by_verb_and_code),
        cmocka_unit_test(promtool_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
