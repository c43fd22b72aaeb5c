/* Workloads as text: what Prometheus reads, however a layer is named, and no more than there is
 * room for. */
#include "operator/workloads/workload_text.h"

#include "common/cleanup.h"
#include "common/file.h"
#include "common/tests/cmocka_all.h"
#include "operator/workloads/label_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char text_of[][8] = {"ml", "Job", "dlrm", "main", "u-1"};

/** A workload with a row for each name. Its texts are static. */
static pp_workload_figures make(const char *const *layers, size_t n)
{
    pp_workload_figures f;
    pp_workload_figures_init(&f);
    f.ns = text_of[0];
    f.kind = text_of[1];
    f.name = text_of[2];
    f.session = text_of[3];
    f.uid = text_of[4];
    f.finished_ns = INT64_C(1700000000500000000);
    f.gpus = 2;
    f.layers = (double)n;
    f.step_seconds = 0.1 + 0.2;
    f.bounds[PP_BOUND_MEMORY] = 0.75;
    f.bounds[PP_BOUND_LAUNCH] = 0.25;
    for (size_t i = 0; i < n; i++) {
        pp_layer_figures *row = pp_workload_figures_add(&f);
        assert_non_null(row);
        row->layer = layers[i] ? strdup(layers[i]) : NULL;
        (void)snprintf(row->phase, sizeof row->phase, "forward");
        row->seconds = 1;
        row->metrics[PP_METRIC_SM_ACTIVE] = 0.5;
    }
    return f;
}

static void done(pp_workload_figures *f)
{
    f->ns = f->kind = f->name = f->session = f->uid = NULL;
    pp_workload_figures_done(f);
}

/** The page of a workload; the caller's. */
static char *page_of(pp_workload_figures *f)
{
    pp_workload_text text;
    pp_workload_page cut;
    pp_buf out;
    pp_error err = {0};
    pp_buf_init(&out, PP_WORKLOAD_TEXT_MAX);
    assert_int_equal(pp_workload_text_write(f, &text, &err), 0);
    const pp_workload_text *const all[] = {&text};
    assert_int_equal(pp_workload_text_page(all, 1, &out, &cut, &err), 0);
    assert_int_equal(cut.left_out + cut.without_layers, 0);
    pp_workload_text_done(&text);
    return pp_buf_take(&out);
}

static void has(const char *page, const char *line)
{
    if (!strstr(page, line))
        fail_msg("the page lacks%s\n%s", line, page);
}

#define OF "workload_namespace=\"ml\",workload_kind=\"Job\",workload_name=\"dlrm\""

static void what_is_known_is_told_in_base_units(void **state)
{
    (void)state;
    const char *const layers[] = {"bot.0", "", NULL};
    pp_workload_figures f = make(layers, 3);
    f.metrics[PP_METRIC_GPU_UTIL] = 50;
    f.metrics[PP_METRIC_GPU_MEM] = 3;
    f.metrics[PP_METRIC_SM_CLOCK] = 1980;
    f.metrics[PP_METRIC_PCIE_TX] = 7;
    f.metrics[PP_METRIC_POWER] = 700;
    PP_CLEANUP_FREE char *page = page_of(&f);
    has(page, "\nprecisionprobe_workload_info{" OF ",session=\"main\",session_uid=\"u-1\","
              "bound=\"Memory\"} 1\n");
    has(page, "\nprecisionprobe_workload_finished_timestamp_seconds{" OF "} 1700000000.5\n");
    has(page, "\nprecisionprobe_workload_step_seconds{" OF "} 0.30000000000000004\n");
    has(page, "\nprecisionprobe_workload_usage_ratio{" OF ",metric=\"gpu_util\"} 0.5\n");
    has(page, "\nprecisionprobe_workload_memory_bytes{" OF "} 3145728\n");
    has(page, "\nprecisionprobe_workload_sm_clock_hertz{" OF "} 1980000000\n");
    has(page, "\nprecisionprobe_workload_transfer_bytes_per_second{" OF ",metric=\"pcie_tx\"} 7\n");
    has(page, "\nprecisionprobe_workload_power_watts{" OF "} 700\n");
    has(page, "\nprecisionprobe_layer_usage_ratio{" OF
              ",layer=\"bot.0\",phase=\"forward\",metric=\"sm_active\"} 0.5\n");
    has(page, "\nprecisionprobe_layer_step_seconds{" OF ",layer=\"\",phase=\"forward\"} 1\n");
    has(page, "\nprecisionprobe_layer_step_seconds{" OF ",layer=\"(rest)\",phase=\"forward\"} 1\n");
    assert_null(strstr(page, "NaN"));
    assert_null(strstr(page, "\nprecisionprobe_workload_idle_ratio{"));
    done(&f);
}

static void every_metric_is_in_a_family(void **state)
{
    (void)state;
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        double value;
        if (pp_workload_family_of((pp_metric)i, 1, &value) == PP_WORKLOAD_FAMILIES)
            fail_msg("%s is in no family", pp_metric_get((pp_metric)i)->column);
    }
}

/* ---- names ---- */

enum { LONG = 10240 };

/** Names that somebody may give to a layer; the last two differ in the middle alone. */
static size_t hostile(const char *ret[32], char longs[2][LONG + 1])
{
    static const char *const names[] = {"",
                                        "bot.0",
                                        "a\nb",
                                        "a\\nb",
                                        "\"} 1\nx 2",
                                        "back\\slash",
                                        "\\",
                                        "\"",
                                        "a\x01z",
                                        "a\x02z",
                                        "a\x7f",
                                        "\r\n\t",
                                        "\xff\xfe",
                                        "\xc3",
                                        "\xc3(",
                                        "\xe2\x28\xa1",
                                        "\xf0\x9f\x98",
                                        "\xed\xa0\x80",
                                        "\xc0\x80",
                                        "\xc0\xaf",
                                        "a\xe2\x80\xae"
                                        "txt",
                                        "\xe2\x80\x8f",
                                        "\xef\xbb\xbf"
                                        "a",
                                        "\xf4\x90\x80\x80",
                                        "(rest)",
                                        "(rest)~",
                                        "\xf0\x9f\x98\x80",
                                        "\xef\xbf\xbd",
                                        "{le=\"0\"}"};
    const size_t n = sizeof names / sizeof names[0];
    memcpy(ret, names, sizeof names);
    for (size_t i = 0; i < 2; i++) {
        memset(longs[i], 'x', LONG);
        longs[i][LONG / 2] = (char)('a' + i);
        longs[i][LONG] = '\0';
        ret[n + i] = longs[i];
    }
    return n + 2;
}

static void names_stay_distinct_and_bounded(void **state)
{
    (void)state;
    static char longs[2][LONG + 1];
    static char values[32][PP_LABEL_VALUE];
    const char *names[32];
    const size_t n = hostile(names, longs);
    for (size_t i = 0; i < n; i++) {
        pp_label_value(names[i], values[i]);
        assert_null(strchr(values[i], '\n'));
        assert_string_not_equal(values[i], PP_LABEL_REST);
        PP_CLEANUP_JSON json_t *text = json_string(values[i]); /* refuses what is no UTF-8 */
        assert_non_null(text);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(values[i], values[k]);
    }
    char value[PP_LABEL_VALUE];
    pp_label_value("encoder.layers.11.self_attn.q_proj", value);
    assert_string_equal(value, "encoder.layers.11.self_attn.q_proj");
    pp_label_value("a\nb\"\\", value);
    assert_string_equal(value, "a\\nb\\\"\\\\");
    pp_label_value("\xc3\xa9", value);
    assert_string_equal(value, "\xc3\xa9");
}

/** Lengths around the limit, of characters of one to four bytes: whole ones stay. */
static void cuts_are_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t c = 0; c < 4; c++) {
        for (size_t n = 1; n < 2 * PP_LABEL_BYTES; n++) {
            char name[8 * PP_LABEL_BYTES + 8] = "";
            char value[PP_LABEL_VALUE];
            for (size_t i = 0; i < n; i++)
                memcpy(name + i * strlen(characters[c]), characters[c], strlen(characters[c]) + 1);
            pp_label_value(name, value);
            assert_true(strlen(value) <= PP_LABEL_BYTES);
            PP_CLEANUP_JSON json_t *text = json_string(value);
            assert_non_null(text);
            if (strlen(name) <= PP_LABEL_BYTES)
                assert_string_equal(value, name);
            memcpy(name + strlen(name), "y", 2); /* so that cuts lie elsewhere */
            pp_label_value(name, value);
            text = (json_decref(text), json_string(value));
            assert_non_null(text);
            memmove(name + 1, name, strlen(name) + 1);
            pp_label_value(name, value);
            text = (json_decref(text), json_string(value));
            assert_non_null(text);
            name[0] = '\x01'; /* as many bytes more of a replacement, and a digest */
            pp_label_value(name, value);
            text = (json_decref(text), json_string(value));
            assert_non_null(text);
        }
    }
}

static void prometheus_reads_any_name(void **state)
{
    (void)state;
    static char longs[2][LONG + 1];
    const char *names[32];
    if (system("command -v promtool >/dev/null") != 0)
        skip();
    pp_workload_figures f = make(names, hostile(names, longs));
    PP_CLEANUP_FREE char *page = page_of(&f);
    FILE *check = popen("promtool check metrics", "we");
    assert_non_null(check);
    assert_int_equal(fwrite(page, 1, strlen(page), check), strlen(page));
    assert_int_equal(pclose(check), 0);
    done(&f);
}

/* ---- room ---- */

static void a_page_has_an_end(void **state)
{
    (void)state;
    enum { MANY = 400, ROWS = 60 };
    static pp_workload_text texts[1];
    const char *names[ROWS];
    const pp_workload_text *all[MANY];
    pp_workload_page cut;
    pp_buf out;
    for (int i = 0; i < ROWS; i++)
        names[i] = "encoder";
    pp_workload_figures f = make(names, ROWS);
    assert_int_equal(pp_workload_text_write(&f, texts, NULL), 0);
    for (int i = 0; i < MANY; i++)
        all[i] = texts;
    pp_buf_init(&out, PP_WORKLOAD_TEXT_MAX);
    assert_int_equal(pp_workload_text_page(all, MANY, &out, &cut, NULL), 0);
    assert_int_equal(cut.left_out, 0);
    assert_true(cut.without_layers > 0 && cut.without_layers < MANY);
    assert_true(out.len <= PP_WORKLOAD_TEXT_MAX);
    pp_buf_done(&out);
    pp_buf_init(&out, 1 << 16); /* nearly nothing: their own series first */
    assert_int_equal(pp_workload_text_page(all, MANY, &out, &cut, NULL), 0);
    assert_true(cut.left_out > 0 && cut.left_out < MANY);
    assert_non_null(strstr(out.data, "\nprecisionprobe_workload_step_seconds{"));
    pp_buf_done(&out);
    assert_int_equal(pp_workload_text_page(NULL, 0, &out, &cut, NULL), 0);
    assert_int_equal(out.len, 0);
    pp_workload_text_done(texts);
    done(&f);
}

/* ---- the page of docs ---- */

static void put_row(FILE *out, const pp_family_info *info, const char *of)
{
    char labels[128];
    char *rest = NULL;
    (void)fprintf(out, "| `%s` | %s", info->name, of);
    (void)snprintf(labels, sizeof labels, "%s", info->labels);
    const char *between = *of ? ", " : "";
    for (char *label = strtok_r(labels, ", ", &rest); label; label = strtok_r(NULL, ", ", &rest)) {
        (void)fprintf(out, "%s`%s`", between, label);
        between = ", ";
    }
    (void)fprintf(out, " | %s |\n", info->help);
}

static void documentation_holds_the_families(void **state)
{
    (void)state;
    PP_CLEANUP_FREE char *table = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&table, &n);
    assert_non_null(out);
    (void)fprintf(out, "| metric | labels | meaning |\n|---|---|---|\n");
    for (int i = 0; i < PP_WORKLOAD_FAMILIES; i++)
        put_row(out, pp_workload_family_get((pp_workload_family)i), "the workload's");
    put_row(out, &pp_session_failed_info, "");
    (void)fclose(out);
    PP_CLEANUP_FREE char *page =
        pp_file_read(PP_SOURCE_DIR "/docs/metrics.md", 1 << 16, NULL, NULL);
    if (!page || !strstr(page, table)) {
        (void)fputs(table, stderr);
        fail_msg("docs/metrics.md lacks this table");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_is_told_in_base_units),
        cmocka_unit_test(every_metric_is_in_a_family),
        cmocka_unit_test(names_stay_distinct_and_bounded),
        cmocka_unit_test(cuts_are_between_characters),
        cmocka_unit_test(prometheus_reads_any_name),
        cmocka_unit_test(a_page_has_an_end),
        cmocka_unit_test(documentation_holds_the_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
