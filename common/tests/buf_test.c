#include "common/buf.h"
#include "common/tests/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static void test_append(void **state)
{
    (void)state;
    pp_buf buf;
    pp_buf_init(&buf, 1000);
    assert_int_equal(pp_buf_append(&buf, "one\ntwo", 7, NULL), 0);
    assert_int_equal(pp_buf_printf(&buf, NULL, "-%d", 42), 0);
    assert_string_equal(buf.data, "one\ntwo-42");
    pp_buf_done(&buf);
}

static void test_limit_is_exact_and_keeps_content(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_buf buf;
    pp_buf_init(&buf, 4);
    assert_int_equal(pp_buf_append(&buf, "1234", 4, &err), 0);
    assert_int_equal(pp_buf_append(&buf, "5", 1, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_int_equal(pp_buf_printf(&buf, &err, "x"), -1);
    assert_string_equal(buf.data, "1234");
    pp_buf_done(&buf);
}

static void test_take_hands_over(void **state)
{
    (void)state;
    pp_buf buf;
    pp_buf_init(&buf, 10);
    char *empty = pp_buf_take(&buf);
    assert_string_equal(empty, "");
    free(empty);
    assert_int_equal(pp_buf_append(&buf, "abc", 3, NULL), 0);
    char *text = pp_buf_take(&buf);
    assert_string_equal(text, "abc");
    assert_null(buf.data);
    free(text);
    pp_buf_done(&buf);
}

static void test_grows_over_many_appends(void **state)
{
    (void)state;
    pp_buf buf;
    pp_buf_init(&buf, 100000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(pp_buf_append(&buf, "0123456789", 10, NULL), 0);
    assert_int_equal(buf.len, 100000);
    assert_int_equal(strlen(buf.data), 100000);
    pp_buf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_limit_is_exact_and_keeps_content),
        cmocka_unit_test(test_take_hands_over),
        cmocka_unit_test(test_grows_over_many_appends),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
