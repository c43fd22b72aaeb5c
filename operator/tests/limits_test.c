#include "operator/cache/limits.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"

#include <stdio.h>
#include <string.h>

static void put(pp_limits *limits, pp_limits_kind kind, const char *key, const char *name)
{
    PP_CLEANUP_JSON json_t *object = json_pack("{s:s}", "name", name);
    assert_int_equal(pp_limits_put(limits, kind, key, object), 0);
}

static const char *name_of(const json_t *object)
{
    return json_string_value(json_object_get(object, "name"));
}

static void test_by_namespace(void **state)
{
    (void)state;
    pp_limits *limits = pp_limits_new();
    put(limits, PP_LIMITS_RANGES, "a/one", "1");
    put(limits, PP_LIMITS_QUOTAS, "a/one", "2");
    put(limits, PP_LIMITS_QUOTAS, "a/two", "3");
    put(limits, PP_LIMITS_QUOTAS, "ab/two", "4");
    const pp_inject_limits *a = pp_limits_of(limits, "a");
    assert_int_equal(a->n_ranges, 1);
    assert_int_equal(a->n_quotas, 2);
    assert_string_equal(name_of(a->ranges[0]), "1");
    assert_string_equal(name_of(a->quotas[1]), "3");
    assert_int_equal(pp_limits_of(limits, "ab")->n_quotas, 1);
    assert_null(pp_limits_of(limits, "b"));
    assert_null(pp_limits_of(limits, NULL));
    assert_null(pp_limits_of(NULL, "a"));
    pp_limits_free(limits);
}

static void test_changes(void **state)
{
    (void)state;
    pp_limits *limits = pp_limits_new();
    put(limits, PP_LIMITS_QUOTAS, "a/one", "old");
    put(limits, PP_LIMITS_QUOTAS, "a/one", "new");
    assert_int_equal(pp_limits_of(limits, "a")->n_quotas, 1);
    assert_string_equal(name_of(pp_limits_of(limits, "a")->quotas[0]), "new");
    put(limits, PP_LIMITS_QUOTAS, "a/two", "2");
    put(limits, PP_LIMITS_QUOTAS, "a/three", "3");
    pp_limits_drop(limits, PP_LIMITS_QUOTAS, "a/one");
    pp_limits_drop(limits, PP_LIMITS_RANGES, "a/two"); /* of the other kind */
    pp_limits_drop(limits, PP_LIMITS_QUOTAS, "b/two");
    assert_int_equal(pp_limits_of(limits, "a")->n_quotas, 2);
    pp_limits_drop(limits, PP_LIMITS_QUOTAS, "a/two");
    assert_string_equal(name_of(pp_limits_of(limits, "a")->quotas[0]), "3");
    pp_limits_drop(limits, PP_LIMITS_QUOTAS, "a/three");
    assert_null(pp_limits_of(limits, "a"));
    pp_limits_free(limits);
    pp_limits_free(NULL);
}

static void test_many(void **state)
{
    (void)state;
    pp_limits *limits = pp_limits_new();
    char key[40];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof key, "ns%d/q%d", i % 10, i);
        put(limits, PP_LIMITS_QUOTAS, key, key);
    }
    assert_int_equal(pp_limits_of(limits, "ns7")->n_quotas, 100);
    for (int i = 0; i < 1000; i += 2) {
        (void)snprintf(key, sizeof key, "ns%d/q%d", i % 10, i);
        pp_limits_drop(limits, PP_LIMITS_QUOTAS, key);
    }
    assert_null(pp_limits_of(limits, "ns4"));
    assert_int_equal(pp_limits_of(limits, "ns7")->n_quotas, 100);
    pp_limits_free(limits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_namespace),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
