#include "common/text.h"

#include "common/tests/cmocka_all.h"

#include <stdio.h>
#include <string.h>

static void tamed(const char *text, const char *expected)
{
    char copy[64];
    (void)snprintf(copy, sizeof copy, "%s", text);
    pp_text_tame(copy);
    assert_string_equal(copy, expected);
}

static void what_a_terminal_obeys_goes(void **state)
{
    (void)state;
    tamed("", "");
    tamed("plain \xc3\xa9 \xe5\x90\x8d \xf0\x9f\x99\x82",
          "plain \xc3\xa9 \xe5\x90\x8d \xf0\x9f\x99\x82");
    tamed("\x1b[2J\x1b]0;t\x07\x7f", "?[2J?]0;t??");
    tamed("a\nb\r\tc", "a?b??c");
    tamed("\xc2\x9b"
          "31m\xc2\xa0",
          "?31m\xc2\xa0");
    tamed("\xe2\x80\xaegnp\xe2\x81\xa6\xe2\x80\x8f\xd8\x9c\xe2\x80\xa8", "?gnp????");
    tamed("\xe2\x80\xa6\xe2\x81\xaa\xd8\x9d", "\xe2\x80\xa6\xe2\x81\xaa\xd8\x9d");
}

/* As a buffer that was too short leaves it. */
static void what_was_cut_off_goes(void **state)
{
    (void)state;
    tamed("a\xc3", "a");
    tamed("a\xe5\x90", "a");
    tamed("a\xf0\x9f\x99", "a");
    tamed("a\xf0\x9f\x99 b", "a b");
}

static void a_files_name_is_behind_the_last_slash(void **state)
{
    (void)state;
    assert_string_equal(pp_text_file_name("/a/b/c"), "c");
    assert_string_equal(pp_text_file_name("c"), "c");
    assert_string_equal(pp_text_file_name("a/"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_terminal_obeys_goes),
        cmocka_unit_test(what_was_cut_off_goes),
        cmocka_unit_test(a_files_name_is_behind_the_last_slash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
