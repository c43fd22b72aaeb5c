/* Numbers as texts. */
#include "common/number.h"
#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

static void numbers_are_read_back(void **state)
{
    static const double numbers[] = {0.1,  1.0 / 3,       0.417401312766, 1e300, 5e-324,
                                     -2.5, 133878674.098, 0.1 + 0.2,      0,     1e15};
    char text[PP_NUMBER_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_true(strtod(pp_number_text(numbers[i], text), NULL) == numbers[i]);
}

static void no_digits_are_made_up(void **state)
{
    char text[PP_NUMBER_TEXT];
    (void)state;
    assert_string_equal(pp_number_text(0.417401312766, text), "0.417401312766");
    assert_string_equal(pp_number_text(0.1 + 0.2, text), "0.30000000000000004");
    assert_string_equal(pp_number_text(470, text), "470");
}

static void what_is_no_number_is_empty(void **state)
{
    char text[PP_NUMBER_TEXT];
    (void)state;
    assert_string_equal(pp_number_text((double)NAN, text), "");
    assert_string_equal(pp_number_text((double)INFINITY, text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_back),
        cmocka_unit_test(no_digits_are_made_up),
        cmocka_unit_test(what_is_no_number_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
