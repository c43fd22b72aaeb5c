/* docs/metrics.md holds what the registry exports: every name, type, label and meaning. */
#include "operator/meters.h"

#include "common/cleanup.h"
#include "common/file.h"
#include "operator/http_server/http_server_internal.h"
#include "operator/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Of the line of a sample: what stands in its braces. A histogram's bounds are no labels of ours.
 */
static void print_labels(FILE *out, const char *line, const char *type, bool first)
{
    const char *from = strchr(line, '{');
    if (from && strcmp(type, "histogram") != 0)
        (void)fprintf(out, "%s`%.*s`", first ? "" : ", ", (int)strcspn(from + 1, "}"), from + 1);
}

/* The rendered text as a table with a row per name. */
static char *table_of(char *text)
{
    char *table = NULL;
    size_t n = 0;
    char *rest = NULL;
    char help[256] = "";
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
            print_labels(out, line, type, first);
            first = false;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(documentation_holds_the_metrics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
