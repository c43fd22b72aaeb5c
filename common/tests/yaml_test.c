#include "common/cleanup.h"
#include "common/json.h"
#include "common/tests/cmocka_all.h"
#include "common/yaml.h"

#include <string.h>

static void test_scalars_are_typed_by_the_core_schema(void **state)
{
    (void)state;
    const char *text = "a: 1\nb: -2.5\nc: yes\nd: 'true'\ne: true\nf: ~\ng: 1.2.3\nh: [x, {y: 2}]\n"
                       "i: 9223372036854775807\nj: +\nk: e\n";
    PP_CLEANUP_JSON json_t *v = pp_yaml_parse(text, strlen(text), NULL);
    assert_non_null(v);
    assert_int_equal(json_integer_value(json_object_get(v, "a")), 1);
    assert_true(json_real_value(json_object_get(v, "b")) == -2.5);
    assert_string_equal(json_string_value(json_object_get(v, "c")), "yes");
    assert_string_equal(json_string_value(json_object_get(v, "d")), "true");
    assert_true(json_is_true(json_object_get(v, "e")));
    assert_true(json_is_null(json_object_get(v, "f")));
    assert_string_equal(json_string_value(json_object_get(v, "g")), "1.2.3");
    assert_int_equal(json_array_size(json_object_get(v, "h")), 2);
    assert_int_equal(json_integer_value(json_object_get(v, "i")), INT64_MAX);
    assert_string_equal(json_string_value(json_object_get(v, "j")), "+");
    assert_string_equal(json_string_value(json_object_get(v, "k")), "e");
}

static void test_bad_documents_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "a: 1\na: 2\n", "a: [1\n", "? [x]\n: 1\n", "<<: {a: 1}\n", "a: \"\\xff\\xfe\n", "\t- x: [",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pp_error err = {0};
        assert_null(pp_yaml_parse(bad[i], strlen(bad[i]), &err));
        assert_int_equal(err.code, PP_ERR_INVALID);
    }
}

static void test_alias_bomb_hits_the_limit(void **state)
{
    (void)state;
    const char *text =
        "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
        "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    pp_error err = {0};
    assert_null(pp_yaml_parse(text, strlen(text), &err));
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
}

static void test_deep_nesting_hits_the_limit(void **state)
{
    (void)state;
    char text[400];
    memset(text, '[', 200);
    memset(text + 200, ']', 200);
    pp_error err = {0};
    assert_null(pp_yaml_parse(text, sizeof text, &err));
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
}

static void test_empty_text_is_null(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *v = pp_yaml_parse("", 0, NULL);
    assert_true(json_is_null(v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_are_typed_by_the_core_schema),
        cmocka_unit_test(test_bad_documents_are_refused),
        cmocka_unit_test(test_alias_bomb_hits_the_limit),
        cmocka_unit_test(test_deep_nesting_hits_the_limit),
        cmocka_unit_test(test_empty_text_is_null),
    };
    return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}
