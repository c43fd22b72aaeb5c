/* Texts and numbers as CSV has them, and texts that reach a terminal. */
#include "cli/formats/csv.h"
#include "cli/terminal/names.h"
#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is written for a text, and in *ret the memory that has it. */
static const char *written(void (*write)(FILE *, const char *), const char *text, char **ret)
{
    size_t length = 0;
    FILE *to = open_memstream(ret, &length);
    assert_non_null(to);
    write(to, text);
    assert_int_equal(fclose(to), 0);
    return *ret;
}

static void is_written(void (*write)(FILE *, const char *), const char *text, const char *as)
{
    char *memory = NULL;
    assert_string_equal(written(write, text, &memory), as);
    free(memory);
}

static void texts_are_quoted(void **state)
{
    (void)state;
    is_written(pp_csv_text, "a \"b\", c\r\nd", "\"a \"\"b\"\", c\r\nd\"");
    is_written(pp_csv_text, "=1+1", "\"=1+1\"");
    is_written(pp_csv_text, "", "\"\"");
    is_written(pp_csv_text, NULL, "");
}

/* And only those are that would be taken for formulas, or for what was made of one. */
static void formulas_are_made_plain(void **state)
{
    static const char *const formulas[] = {"=1", "+1", "-1", "@A", "\tA", "\rA", "\nA", "'A", "'"};
    static const char *const others[] = {"A=1", " =1", "1-1", "\"=\"", "é"};
    char as[32];
    (void)state;
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++) {
        (void)snprintf(as, sizeof as, "\"'%s\"", formulas[i]);
        is_written(pp_csv_plain_text, formulas[i], as);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        (void)snprintf(as, sizeof as, i == 3 ? "\"\"\"=\"\"\"" : "\"%s\"", others[i]);
        is_written(pp_csv_plain_text, others[i], as);
    }
    is_written(pp_csv_plain_text, "", "\"\"");
    is_written(pp_csv_plain_text, NULL, "");
}

static void unknown_numbers_are_empty(void **state)
{
    char *memory = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&memory, &length);
    (void)state;
    assert_non_null(to);
    pp_csv_number(to, (double)NAN);
    pp_csv_value(to, NULL);
    pp_csv_value(to, json_null());
    assert_int_equal(fclose(to), 0);
    assert_int_equal(length, 0);
    free(memory);
}

static void lines_harm_no_terminal(void **state)
{
    (void)state;
    is_written(pp_lines_print, "a\tb\nc\x1b[2J\x7f", "a?b\nc?[2J?");
    is_written(pp_lines_print, "\xc2\x9b|\xe2\x80\xae|\xe2\x81\xa6|\xd8\x9c|\xe2\x80\x8f",
               "?|?|?|?|?");
    is_written(pp_lines_print, "…é名\xe2\x80\x94 \xd8\xa7", "…é名\xe2\x80\x94 \xd8\xa7");
    is_written(pp_lines_print, "cut \xe2\x80", "cut \xe2\x80");
    is_written(pp_lines_print, "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_quoted),
        cmocka_unit_test(formulas_are_made_plain),
        cmocka_unit_test(unknown_numbers_are_empty),
        cmocka_unit_test(lines_harm_no_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
