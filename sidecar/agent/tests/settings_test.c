#include "common/cleanup.h"
#include "sidecar/agent/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define IDENTITY "\"version\":1,\"session\":{\"uid\":\"u\",\"namespace\":\"ml\",\"name\":\"n\"}"
#define CAPTURE ",\"stretch\":{\"seconds\":10}"
#define SESSION IDENTITY CAPTURE ",\"overheadBudgetPercent\":1"

static int parse(const char *text, pp_settings *s, pp_error *err)
{
    return pp_settings_parse(text, strlen(text), s, err);
}

static void test_all_of_it(void **state)
{
    (void)state;
    pp_settings s;
    pp_error err = {0};
    const char *text =
        "{" IDENTITY ",\"endpoint\":\"wss://h/v1/ingest\","
        "\"addresses\":[\"10.96.3.4\",\"fd00:10:96::1a2b\"],\"layers\":{\"include\":[\"a*\"],"
        "\"exclude\":[],\"types\":[\"Linear\"],\"depth\":2},\"phases\":[\"Forward\"],"
        "\"steps\":{\"skip\":3,\"max\":9},\"durationSeconds\":120,\"overheadBudgetPercent\":2.5,"
        "\"stretch\":{\"seconds\":7.5},\"timeline\":{\"steps\":0},\"later\":{\"x\":1}}";
    if (parse(text, &s, &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    pp_schedule_policy policy = pp_settings_policy(&s);
    assert_string_equal(s.session, "u");
    assert_string_equal(s.types.items[0], "Linear");
    assert_int_equal(s.addresses.count, 2);
    assert_string_equal(s.addresses.items[1], "fd00:10:96::1a2b");
    assert_int_equal(s.depth, 2);
    assert_int_equal(policy.skip, 3);
    assert_int_equal(s.timeline, 0);
    assert_int_equal(policy.max, 9);
    assert_int_equal(policy.duration, INT64_C(120000000000));
    assert_int_equal(policy.capture, INT64_C(7500000000));
    assert_true(policy.budget > 0.0249 && policy.budget < 0.0251);
    pp_settings_free(&s);
}

static void test_defaults(void **state)
{
    (void)state;
    pp_settings s;
    pp_error err = {0};
    assert_int_equal(parse("{" SESSION "}", &s, &err), 0);
    pp_schedule_policy policy = pp_settings_policy(&s);
    assert_int_equal(policy.duration, 0);
    assert_int_equal(s.timeline, 8);
    assert_int_equal(s.events_port, 0);
    assert_int_equal(policy.capture, INT64_C(10000000000));
    assert_true(policy.budget > 0.0099 && policy.budget < 0.0101);
    pp_settings_free(&s);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field;
    } bad[] = {
        {"{}", "version"},
        {"[]", ""},
        {"{\"version\":2,\"session\":{\"uid\":\"u\",\"namespace\":\"m\",\"name\":\"n\"}}",
         "version"},
        {"{\"version\":1,\"session\":{\"uid\":\"u v\",\"namespace\":\"m\",\"name\":\"n\"}}",
         "session.uid"},
        {"{\"version\":1,\"session\":{\"uid\":\"u\",\"name\":\"n\"}}", "session.namespace"},
        {"{" IDENTITY ",\"overheadBudgetPercent\":1}", "stretch.seconds"},
        {"{" IDENTITY CAPTURE "}", "overheadBudgetPercent"},
        {"{" IDENTITY CAPTURE ",\"overheadBudgetPercent\":0}", "overheadBudgetPercent"},
        {"{" SESSION ",\"durationSeconds\":-1}", "durationSeconds"},
        {"{" SESSION ",\"durationSeconds\":\"1m\"}", "durationSeconds"},
        {"{" IDENTITY ",\"overheadBudgetPercent\":1,\"stretch\":{\"seconds\":1e300}}",
         "stretch.seconds"},
        {"{" SESSION ",\"steps\":{\"skip\":-1}}", "steps"},
        {"{" SESSION ",\"timeline\":{\"steps\":-1}}", "timeline.steps"},
        {"{" SESSION ",\"events\":{\"port\":-1}}", "events.port"},
        {"{" SESSION ",\"events\":{\"port\":65536}}", "events.port"},
        {"{\"version\":1,\"endpoint\":\"wss://o/v1/ingest\",\"events\":{\"port\":-1}}",
         "events.port"},
        {"{\"version\":1,\"addresses\":[\"probe.example.com\"]}", "addresses"},
        {"{" SESSION ",\"addresses\":[\"10.96.3.4\",\"10.96.3.4:443\"]}", "addresses"},
        {"{" SESSION ",\"addresses\":[\"fe80::1%eth0\"]}", "addresses"},
        {"{" SESSION ",\"addresses\":[\"\"]}", "addresses"},
        {"{" SESSION ",\"addresses\":\"10.96.3.4\"}", "addresses"},
        {"{" SESSION ",\"addresses\":[\"1.1.1.1\",\"1.1.1.2\",\"1.1.1.3\",\"1.1.1.4\","
         "\"1.1.1.5\",\"1.1.1.6\",\"1.1.1.7\",\"1.1.1.8\",\"1.1.1.9\"]}",
         "addresses"},
        {"{" SESSION ",\"timeline\":{\"steps\":1001}}", "timeline.steps"},
        {"{" SESSION ",\"phases\":[\"Sideways\"]}", "phases"},
        {"{" SESSION ",\"layers\":{\"include\":\"*\"}}", "layers.include"},
        {"{" SESSION ",\"isolation\":{\"dwellMs\":-1}}", "isolation.dwellMs"},
        {"{" SESSION ",\"isolation\":{\"dwellMs\":60001}}", "isolation.dwellMs"},
        {"{" SESSION ",\"isolation\":{\"maxPauseMs\":0}}", "isolation.maxPauseMs"},
        {"{" SESSION ",\"isolation\":{\"memoryMiB\":0}}", "isolation.memoryMiB"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pp_settings s;
        pp_error err = {0};
        assert_int_equal(parse(bad[i].text, &s, &err), -1);
        if (strncmp(err.field, bad[i].field, strlen(bad[i].field)) != 0)
            fail_msg("%s: field %s: %s", bad[i].text, err.field, err.message);
        pp_settings_free(&s);
    }
}

/* What a pod gets that is injected for no session. */
static void test_without_a_session(void **state)
{
    (void)state;
    pp_settings s;
    pp_error err = {0};
    assert_int_equal(parse("{\"version\":1,\"endpoint\":\"wss://h/v1/ingest\"}", &s, &err), 0);
    assert_null(s.session);
    assert_string_equal(s.endpoint, "wss://h/v1/ingest");
    assert_int_equal(pp_settings_number(&s), 0);
    pp_settings_free(&s);
}

static void test_the_control_file(void **state)
{
    (void)state;
    pp_settings s;
    pp_error err = {0};
    char folder[] = "/tmp/pp-settings-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(parse("{" SESSION ",\"layers\":{\"exclude\":[\"b\"],\"depth\":1}}", &s, &err),
                     0);
    assert_int_equal(pp_settings_control(&s, folder, "sample", &err), 0);
    (void)snprintf(path, sizeof path, "%s/control.json", folder);
    json_error_t json_err;
    PP_CLEANUP_JSON json_t *root = json_load_file(path, 0, &json_err);
    assert_non_null(root);
    assert_string_equal(pp_json_get_string(root, "mode", NULL), "sample");
    assert_int_equal(json_integer_value(json_object_get(root, "session")), pp_settings_number(&s));
    assert_int_not_equal(pp_settings_number(&s), 0);
    const json_t *exclude = pp_json_get(root, "layers", "exclude", NULL);
    assert_string_equal(json_string_value(json_array_get(exclude, 0)), "b");
    assert_int_equal(json_integer_value(pp_json_get(root, "layers", "depth", NULL)), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
    assert_int_equal(pp_settings_control(&s, folder, "sample", &err), -1);
    pp_settings_free(&s);
}

/* Nothing is replayed unless it is asked for; then there are limits, whoever has asked. */
static void test_isolation(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t dwell, pause, memory;
    } cases[] = {
        {"{" SESSION "}", 0, 60000, 2048},
        {"{" SESSION ",\"isolation\":{\"dwellMs\":700}}", 700, 60000, 2048},
        {"{" SESSION ",\"isolation\":{\"dwellMs\":1,\"maxPauseMs\":2,\"memoryMiB\":3}}", 1, 2, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_settings s;
        pp_error err = {0};
        char folder[] = "/tmp/pp-settings-XXXXXX";
        char path[64];
        assert_non_null(mkdtemp(folder));
        assert_int_equal(parse(cases[i].text, &s, &err), 0);
        assert_int_equal(pp_settings_control(&s, folder, "sample", &err), 0);
        (void)snprintf(path, sizeof path, "%s/control.json", folder);
        PP_CLEANUP_JSON json_t *root = json_load_file(path, 0, NULL);
        const json_t *told = json_object_get(root, "isolation");
        assert_int_equal(json_integer_value(json_object_get(told, "dwellMs")), cases[i].dwell);
        assert_int_equal(json_integer_value(json_object_get(told, "maxPauseMs")), cases[i].pause);
        assert_int_equal(json_integer_value(json_object_get(told, "memoryMiB")), cases[i].memory);
        assert_int_equal(unlink(path) + rmdir(folder), 0);
        pp_settings_free(&s);
    }
}

/* The ring directory is the user's too: what lies there is neither followed nor waited for. */
static void test_the_control_file_among_strangers(void **state)
{
    (void)state;
    pp_settings s;
    pp_error err = {0};
    char folder[] = "/tmp/pp-settings-XXXXXX";
    char path[64], fresh[64], target[64];
    struct stat st;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/control.json", folder);
    (void)snprintf(fresh, sizeof fresh, "%s/.new-control.json", folder);
    (void)snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(parse("{" SESSION "}", &s, &err), 0);
    assert_int_equal(mkfifo(fresh, 0666), 0);
    (void)alarm(20);
    assert_int_equal(pp_settings_control(&s, folder, "sample", &err), 0);
    (void)alarm(0);
    FILE *file = fopen(target, "we");
    assert_true(file && fputs("theirs", file) >= 0 && fclose(file) == 0);
    assert_int_equal(unlink(fresh) + symlink(target, fresh), 0);
    assert_int_equal(unlink(path) + symlink(target, path), 0);
    assert_int_equal(pp_settings_control(&s, folder, "idle", &err), 0);
    assert_true(stat(target, &st) == 0 && st.st_size == 6);
    assert_true(lstat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0644);
    assert_int_equal(unlink(fresh) + unlink(target) + unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(pp_settings_control(&s, folder, "idle", &err), -1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
    pp_settings_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_it),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_without_a_session),
        cmocka_unit_test(test_the_control_file),
        cmocka_unit_test(test_isolation),
        cmocka_unit_test(test_the_control_file_among_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
