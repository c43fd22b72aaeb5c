/* Numbers as texts. */
#include "common/number.h"
#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/** As printf and strtod have it: what is quicker says nothing else. */
static const char *by_printf(double value, char *out)
{
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(out, PP_NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return out;
}

static void expect_same(double value)
{
    char text[PP_NUMBER_TEXT], wanted[PP_NUMBER_TEXT];
    if (isfinite(value))
        assert_string_equal(pp_number_text(value, text), by_printf(value, wanted));
}

/* Numbers of all sizes, short and long ones, and those beside powers of ten and two. */
static void texts_are_those_of_printf(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        double any;
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(&any, &seed, sizeof any);
        expect_same(any);
        const double part = (double)(seed >> 11) / 9007199254740992.0;
        expect_same(part * pow(10, i % 24 - 7));
        expect_same(-round(part * 1e6) / pow(10, i % 12));
    }
    for (int i = -30; i < 70; i++) {
        const double ten = pow(10, i), two = ldexp(1, i);
        const double near[] = {ten, nextafter(ten, 0), nextafter(ten, 1e300), 2 * ten,   5 * ten,
                               two, nextafter(two, 0), nextafter(two, 1e300), 0.3 * two, -two};
        for (size_t k = 0; k < sizeof near / sizeof *near; k++)
            expect_same(near[k]);
    }
    expect_same(0.0);
    expect_same(-0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_back),
        cmocka_unit_test(no_digits_are_made_up),
        cmocka_unit_test(what_is_no_number_is_empty),
        cmocka_unit_test(texts_are_those_of_printf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
