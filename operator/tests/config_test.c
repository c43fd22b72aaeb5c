/* The configuration table: sorted, documented, and refusing what is wrong by its path. */
#include "operator/state/config.h"

#include "common/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int parse(const char *text, pp_config *config, pp_error *err)
{
    return pp_config_parse(text, strlen(text), config, err);
}

static void refused(const char *text, const char *field, const char *words)
{
    pp_config config = {0};
    pp_error err = {0};
    assert_int_equal(parse(text, &config, &err), -1);
    assert_string_equal(err.field, field);
    if (!strstr(err.message, words))
        fail_msg("%s: %s", text, err.message);
}

static void table_is_sorted(void **state)
{
    (void)state;
    size_t n = 0;
    const pp_config_option *o = pp_config_options(&n);
    for (size_t i = 1; i < n; i++)
        assert_true(strcmp(o[i - 1].path, o[i].path) < 0);
}

static void defaults(void **state)
{
    (void)state;
    pp_config c = {0};
    pp_error err = {0};
    assert_int_equal(parse("", &c, &err), 0);
    assert_int_equal(c.http.tls_port, 9443);
    assert_true(c.lease.enabled);
    assert_int_equal(c.retention.activity, INT64_C(168) * 3600 * 1000000000);
    assert_int_equal(c.injection.gpu_resources.count, 2);
    assert_string_equal(c.injection.gpu_resources.items[1], "amd.com/gpu");
    assert_string_equal(c.prometheus.url, "");
    assert_string_equal(c.injection.cpu, ""); /* no training is asked to make room */
    assert_string_equal(c.injection.memory, "");
    assert_true(c.attribution.max_standard_error_points == 5.0);
    pp_config_done(&c);
}

static void given_values(void **state)
{
    (void)state;
    pp_config c = {0};
    pp_error err = {0};
    const char *text =
        "http:\n  plainPort: 18080\nlease: {enabled: false}\nsampling: {memory: \"\"}\n"
        "injection:\n  cpu: 2\n  memory: 128Mi\n  image:\n"
        "  gpuResources: [example.com/gpu]\n"
        "prometheus: {collectionInterval: 250ms, preset: amd}\n";
    assert_int_equal(parse(text, &c, &err), 0);
    assert_int_equal(c.http.plain_port, 18080);
    assert_false(c.lease.enabled);
    assert_string_equal(c.injection.cpu, "2");
    assert_string_equal(c.injection.memory, "128Mi");
    assert_string_equal(c.injection.image, "");
    assert_string_equal(c.sampling.memory, "");
    assert_int_equal(c.injection.gpu_resources.count, 1);
    assert_int_equal(c.prometheus.collection_interval, 250000000);
    assert_string_equal(c.prometheus.preset, "amd");
    pp_config_done(&c);
}

/* As values of earlier releases have them, also beside the new ones. */
static void former_sections(void **state)
{
    (void)state;
    pp_config c = {0};
    pp_error err = {0};
    assert_int_equal(parse("fine: {auto: true, periodMicroseconds: 50}\nisolated: {allow: true}\n"
                           "sampling: {periodMicroseconds: 30}\n",
                           &c, &err),
                     0);
    assert_true(c.sampling.by_auto && c.replay.allow);
    assert_int_equal(c.sampling.period_us, 30);
    pp_config_done(&c);
    assert_int_equal(parse("fine:\nisolated:\n", &c, &err), 0);
    assert_false(c.replay.allow);
    pp_config_done(&c);
    assert_int_equal(parse("injection: {stretchSeconds: 7}\n", &c, &err), 0);
    assert_true(c.injection.capture_seconds == 7);
    pp_config_done(&c);
    assert_int_equal(parse("injection: {stretchSeconds: 7, captureSeconds: 8}\n", &c, &err), 0);
    assert_true(c.injection.capture_seconds == 8);
    pp_config_done(&c);
    refused("injection: {stretchSeconds: long}\n", "injection.captureSeconds", "number");
    refused("fine: 1\n", "fine", "a map");
    refused("fine: {auto: true}\nsampling: 5\n", "sampling", "a map");
    refused("fine: {often: true}\n", "sampling.often", "unknown option");
}

static void bad_values(void **state)
{
    (void)state;
    refused("htpp: {}", "htpp", "unknown option");
    refused("http: {tlsport: 1}", "http.tlsport", "unknown option");
    refused("http: {tlsPort: 70000}", "http.tlsPort", "from 0 to 65535");
    refused("http: {tlsPort: \"1\"}", "http.tlsPort", "integer");
    refused("http: 7", "http", "map");
    refused("lease: {enabled: 1}", "lease.enabled", "true or false");
    refused("log: {level: loud}", "log.level", "debug|info|warn|error");
    refused("log: {level: \"\"}", "log.level", "debug|info|warn|error");
    refused("injection: {memory: 1MB}", "injection.memory", "quantity");
    refused("injection: {gpuResources: [1]}", "injection.gpuResources", "strings");
    refused("prometheus: {maxLag: 30}", "prometheus.maxLag", "duration");
    refused("prometheus: {maxLag: 700s}", "prometheus.maxLag", "600 seconds");
    refused("prometheus: {url: 1}", "prometheus.url", "string");
    refused("- a", "", "map");
}

static void missing_file(void **state)
{
    (void)state;
    pp_config c = {0};
    pp_error err = {0};
    assert_int_equal(pp_config_load("/nonexistent/config.yaml", &c, &err), -1);
    assert_non_null(strstr(err.message, "/nonexistent/config.yaml"));
}

static void documentation_holds_the_table(void **state)
{
    (void)state;
    char *table = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&table, &n);
    assert_non_null(out);
    assert_int_equal(pp_config_print_help(out), 0);
    (void)fclose(out);
    char *text = pp_file_read(PP_SOURCE_DIR "/docs/configuration.md", 1 << 16, NULL, NULL);
    assert_non_null(text);
    if (!strstr(text, table))
        fail_msg("docs/configuration.md lacks this table:\n%s", table);
    free(text);
    free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sorted),
        cmocka_unit_test(defaults),
        cmocka_unit_test(given_values),
        cmocka_unit_test(former_sections),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(missing_file),
        cmocka_unit_test(documentation_holds_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
