#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"

#include <malloc.h>
#include <string.h>

typedef struct sample {
    char *name;
    bool on;
    int64_t count;
    double ratio;
    pp_strings tags;
    int64_t wait;
    int64_t at;
    json_t *rest;
} sample;

static const pp_json_field fields[] = {
    {"name", PP_JSON_STRING, offsetof(sample, name), true, 8},
    {"on", PP_JSON_BOOL, offsetof(sample, on), false, 0},
    {"count", PP_JSON_INT, offsetof(sample, count), false, 100},
    {"ratio", PP_JSON_NUMBER, offsetof(sample, ratio), false, 0},
    {"tags", PP_JSON_STRINGS, offsetof(sample, tags), false, 2},
    {"wait", PP_JSON_DURATION, offsetof(sample, wait), false, 0},
    {"at", PP_JSON_TIME, offsetof(sample, at), false, 0},
    {"rest", PP_JSON_VALUE, offsetof(sample, rest), false, 0},
    {0},
};

static int decode(const char *text, bool strict, sample *out, pp_error *err)
{
    PP_CLEANUP_JSON json_t *value = pp_json_parse(text, strlen(text), err);
    if (!value)
        return -1;
    return pp_json_decode(value, fields, strict, "spec", out, err);
}

static void test_every_type(void **state)
{
    (void)state;
    sample s = {0};
    pp_error err = {0};
    assert_int_equal(
        decode("{\"name\":\"x\",\"on\":true,\"count\":7,\"ratio\":2,\"tags\":[\"a\",\"b\"],"
               "\"wait\":\"2m30s\",\"at\":\"2026-01-02T03:04:05.5Z\",\"rest\":{\"k\":[1]}}",
               true, &s, &err),
        0);
    assert_string_equal(s.name, "x");
    assert_true(s.on);
    assert_int_equal(s.count, 7);
    assert_true(s.ratio == 2.0);
    assert_true(pp_strings_contain(&s.tags, "b"));
    assert_int_equal(s.wait, 150000000000);
    assert_int_equal(s.at, 1767323045500000000);
    assert_int_equal(json_array_size(pp_json_get(s.rest, "k", NULL)), 1);
    pp_json_free_fields(fields, &s);
    assert_null(s.name);
}

static void test_errors_name_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *field;
    } cases[] = {
        {"{}", "spec.name"},
        {"{\"name\":1}", "spec.name"},
        {"{\"name\":\"123456789\"}", "spec.name"},
        {"{\"name\":\"x\",\"on\":1}", "spec.on"},
        {"{\"name\":\"x\",\"count\":101}", "spec.count"},
        {"{\"name\":\"x\",\"count\":1.5}", "spec.count"},
        {"{\"name\":\"x\",\"ratio\":\"1\"}", "spec.ratio"},
        {"{\"name\":\"x\",\"tags\":[\"a\",2]}", "spec.tags[1]"},
        {"{\"name\":\"x\",\"tags\":[\"a\",\"b\",\"c\"]}", "spec.tags"},
        {"{\"name\":\"x\",\"wait\":\"soon\"}", "spec.wait"},
        {"{\"name\":\"x\",\"at\":\"yesterday\"}", "spec.at"},
        {"{\"name\":\"x\",\"nmae\":1}", "spec.nmae"},
        {"[]", "spec"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample s = {0};
        pp_error err = {0};
        assert_int_equal(decode(cases[i].text, true, &s, &err), -1);
        assert_int_equal(err.code, PP_ERR_INVALID);
        assert_string_equal(err.field, cases[i].field);
        pp_json_free_fields(fields, &s);
    }
}

/* JSON's parser refuses NUL; what comes from YAML may have it. */
static void test_items_and_texts_are_checked(void **state)
{
    (void)state;
    char large[65537];
    (void)memset(large, 'x', sizeof large);
    const struct {
        const char *text;
        size_t n;
    } bad[] = {{"GPU-1\0x", 7}, {large, sizeof large}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sample s = {0};
        pp_error err = {0};
        json_t *tag = json_stringn(bad[i].text, bad[i].n);
        PP_CLEANUP_JSON json_t *value = json_pack("{s:s, s:[s, o]}", "name", "x", "tags", "a", tag);
        assert_int_equal(pp_json_decode(value, fields, true, "spec", &s, &err), -1);
        assert_string_equal(err.field, "spec.tags[1]");
        pp_json_free_fields(fields, &s);
    }
    sample s = {0};
    PP_CLEANUP_JSON json_t *value =
        json_pack("{s:s, s:o}", "name", "x", "wait", json_stringn("5s\0", 3));
    assert_int_equal(pp_json_decode(value, fields, true, "spec", &s, NULL), -1);
    pp_json_free_fields(fields, &s);
}

static void test_null_leaves_the_default(void **state)
{
    (void)state;
    sample s = {.count = 5};
    assert_int_equal(decode("{\"name\":\"x\",\"count\":null,\"more\":1}", false, &s, NULL), 0);
    assert_int_equal(s.count, 5);
    pp_json_free_fields(fields, &s);
}

static void test_duplicate_keys_are_refused(void **state)
{
    (void)state;
    sample s = {0};
    assert_int_equal(decode("{\"name\":\"x\",\"name\":\"y\"}", false, &s, NULL), -1);
}

static void test_strings_once(void **state)
{
    (void)state;
    pp_strings list = {0};
    assert_int_equal(pp_strings_add_once(&list, "a", NULL), 0);
    assert_int_equal(pp_strings_add_once(&list, "b", NULL), 0);
    assert_int_equal(pp_strings_add_once(&list, "a", NULL), 0);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.items[1], "b");
    pp_strings_free(&list);
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"0s", 0},
                {"90s", 90000000000},
                {"1h2m3.5s", 3723500000000},
                {"250ms", 250000000},
                {"1.5us", 1500},
                {"9223372036.8s", 9223372036800000000},
                {"7ns", 7}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t ns = -1;
        assert_int_equal(pp_duration_parse(good[i].text, &ns, NULL), 0);
        assert_int_equal(ns, good[i].ns);
        char text[64];
        pp_duration_format(ns, text, sizeof text);
        int64_t again = -1;
        assert_int_equal(pp_duration_parse(text, &again, NULL), 0);
        assert_int_equal(again, ns);
    }
    static const char *const bad[] = {
        "", "5", "s", "-1s", "1 s", "1.s", "9999999999999h", "9223372036.9s", "1x", "0x1s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t ns;
        assert_int_equal(pp_duration_parse(bad[i], &ns, NULL), -1);
    }
}

static void test_times(void **state)
{
    (void)state;
    int64_t ns = 0;
    assert_int_equal(pp_time_parse("2026-01-02T05:04:05+02:00", &ns, NULL), 0);
    char text[40];
    pp_time_format(ns, 0, text, sizeof text);
    assert_string_equal(text, "2026-01-02T03:04:05Z");
    pp_time_format(1767323045123456789, 6, text, sizeof text);
    assert_string_equal(text, "2026-01-02T03:04:05.123456Z");
    static const char *const bad[] = {"",
                                      "2026-13-02T03:04:05Z",
                                      "2026-01-02 03:04:05Z",
                                      "2026-01-02T03:04:05",
                                      "2026-01-02T03:04:05Zx",
                                      "2026-01-02T03:04:05.Z"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(pp_time_parse(bad[i], &ns, NULL), -1);
}

/* Texts that were cut, and the rest of them, are still texts. */
static void test_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *is;
    } cases[] = {
        {"", ""},
        {"a b", "a b"},
        {"\xe2\x82\xac", "\xe2\x82\xac"},
        {"a\xe2\x82", "a"},
        {"a\xf0\x9f\x98", "a"},
        {"a\xe2\x82; b", "a??; b"},
        {"\x82\xac\xe2\x82\xac", "??\xe2\x82\xac"},
        {"\xff", "?"},
        {"\xed\xa0\x80.", "???."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *value = pp_json_text(cases[i].text);
        assert_string_equal(json_string_value(value), cases[i].is);
    }
}

/* ---- heap ---- */

static size_t taken;

/* What malloc has for it, and its own word before it. */
static void *take(size_t n)
{
    void *p = malloc(n);
    taken += p ? malloc_usable_size(p) + sizeof(size_t) : 0;
    return p;
}

static void give_back(void *p)
{
    taken -= p ? malloc_usable_size(p) + sizeof(size_t) : 0;
    free(p);
}

static void assert_bytes(const char *text)
{
    json_set_alloc_funcs(take, give_back);
    taken = 0;
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    const double told = (double)pp_json_bytes(value), true_bytes = (double)taken;
    json_decref(value);
    json_set_alloc_funcs(malloc, free);
    if (told < 0.7 * true_bytes || told > 1.5 * true_bytes)
        fail_msg("%.40s...: %.0f bytes told, %.0f taken", text, told, true_bytes);
}

/* `n` times `item` between `open` and `close`; %d in it is its number. */
static void assert_bytes_of_many(const char *open, const char *item, const char *close, int n)
{
    pp_buf text;
    pp_buf_init(&text, 1 << 20);
    assert_int_equal(pp_buf_printf(&text, NULL, "%s", open), 0);
    for (int i = 0; i < n; i++) {
        char one[64];
        (void)snprintf(one, sizeof one, "%s\"%d\"%s", i ? "," : "", i, item);
        assert_int_equal(pp_buf_printf(&text, NULL, "%s", one), 0);
    }
    assert_int_equal(pp_buf_printf(&text, NULL, "%s", close), 0);
    assert_bytes(text.data);
    pp_buf_done(&text);
}

static void test_bytes(void **state)
{
    (void)state;
    assert_bytes("{\"metadata\": {\"name\": \"a\", \"labels\": {\"app\": \"b\"}}, \"spec\": "
                 "{\"a\": [1, 2]}}");
    assert_bytes_of_many("{", ":\"\"", "}", 10000);
    assert_bytes_of_many("{", ":{}", "}", 10000);
    assert_bytes_of_many("{", ":[]", "}", 10000);
    assert_bytes_of_many("{", ":7", "}", 10000);
    assert_bytes_of_many("[", "", "]", 10000);
    assert_int_equal(pp_json_bytes(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_errors_name_the_field),
        cmocka_unit_test(test_items_and_texts_are_checked),
        cmocka_unit_test(test_null_leaves_the_default),
        cmocka_unit_test(test_duplicate_keys_are_refused),
        cmocka_unit_test(test_strings_once),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
