#include "common/error.h"
#include "common/tests/cmocka_all.h"

#include <errno.h>
#include <string.h>

static void test_context_is_prepended(void **state)
{
    (void)state;
    pp_error err = {0};
    assert_int_equal(pp_error_field(&err, "spec.duration", "must be at least %ds", 1), -1);
    (void)pp_error_prefix(&err, "session %s", "ml/dlrm");
    assert_string_equal(err.message, "session ml/dlrm: must be at least 1s");
    assert_string_equal(err.field, "spec.duration");
    assert_false(pp_error_retryable(&err));
}

static void test_errno_is_named(void **state)
{
    (void)state;
    pp_error err = {0};
    errno = ENOENT;
    assert_int_equal(pp_error_errno(&err, "opening %s", "/x"), -1);
    assert_string_equal(err.message, "opening /x: No such file or directory");
    assert_true(pp_error_retryable(&err));
}

static void test_long_messages_are_cut_not_overrun(void **state)
{
    (void)state;
    pp_error err = {0};
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)pp_error_field(&err, text, "%s", text);
    (void)pp_error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(strlen(err.field), sizeof err.field - 1);
}

static void test_null_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(pp_error_set(NULL, PP_ERR_IO, "x"), -1);
    assert_int_equal(pp_error_prefix(NULL, "x"), -1);
    pp_error_clear(NULL);
}

static void test_every_code_has_a_name(void **state)
{
    (void)state;
    for (int code = PP_OK; code <= PP_ERR_INTERNAL; code++)
        assert_string_not_equal(pp_error_code_name((pp_error_code)code), "unknown");
    assert_string_equal(pp_error_code_name((pp_error_code)999), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context_is_prepended),
        cmocka_unit_test(test_errno_is_named),
        cmocka_unit_test(test_long_messages_are_cut_not_overrun),
        cmocka_unit_test(test_null_is_allowed),
        cmocka_unit_test(test_every_code_has_a_name),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
