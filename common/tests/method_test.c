/* Names of methods: what results carry, what can be asked for, and nothing else. */
#include "common/method.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_names_of_results(void **state)
{
    (void)state;
    const char *const names[] = {"none",     "auto",   "job",    "regression",
                                 "sampling", "replay", "records"};
    for (int i = 0; i < PP_METHOD_COUNT; i++)
        assert_string_equal(pp_method_name((pp_method)i), names[i]);
    assert_string_equal(pp_method_name((pp_method)99), "none");
    assert_string_equal(pp_method_name((pp_method)-1), "none");
}

static void test_what_can_be_asked_for(void **state)
{
    (void)state;
    for (int i = PP_METHOD_AUTO; i <= PP_METHOD_LAST_ASKED; i++) {
        pp_method found = PP_METHOD_NONE;
        assert_int_equal(pp_method_from_spec_name(pp_method_spec_name((pp_method)i), &found), 0);
        assert_int_equal(found, i);
    }
    const char *const none[] = {"", "none", "records", "auto", "Fast", "Jo", "Jobs"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        pp_method found = PP_METHOD_JOB;
        assert_int_equal(pp_method_from_spec_name(none[i], &found), -1);
        assert_int_equal(found, PP_METHOD_JOB);
    }
    assert_string_equal(pp_method_spec_name(PP_METHOD_NONE), "");
    assert_string_equal(pp_method_spec_name(PP_METHOD_RECORDS), "");
    assert_string_equal(pp_method_spec_name(PP_METHOD_COUNT), "");
}

static void test_all_of_them(void **state)
{
    (void)state;
    char text[64];
    pp_method_spec_names(text, sizeof text);
    assert_string_equal(text, "Auto, Job, Regression, Sampling and Replay");
    char small[8];
    pp_method_spec_names(small, sizeof small);
    assert_string_equal(small, "Auto, J");
}

static void test_what_a_person_wrote(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_method found = PP_METHOD_NONE;
    assert_int_equal(pp_method_parse("Job", "spec.method", &found, &err), 0);
    assert_int_equal(found, PP_METHOD_JOB);
    static const struct {
        const char *former;
        pp_method is;
    } formers[] = {{"Direct", PP_METHOD_REGRESSION},
                   {"Fine", PP_METHOD_SAMPLING},
                   {"Isolated", PP_METHOD_REPLAY}};
    for (size_t i = 0; i < sizeof formers / sizeof *formers; i++) {
        assert_int_equal(pp_method_parse(formers[i].former, "spec.method", &found, &err), 0);
        assert_int_equal(found, formers[i].is);
    }
    found = PP_METHOD_JOB;
    assert_int_equal(pp_method_parse("Guess", "spec.method", &found, &err), -1);
    assert_int_equal(found, PP_METHOD_JOB);
    assert_string_equal(err.field, "spec.method");
    assert_string_equal(err.message,
                        "\"Guess\" is none of Auto, Job, Regression, Sampling and Replay");
}

static void test_what_values_are_means_over(void **state)
{
    (void)state;
    assert_null(pp_basis_name(PP_BASIS_NONE));
    assert_string_equal(pp_basis_name(PP_BASIS_ELAPSED), "elapsed");
    assert_string_equal(pp_basis_name(PP_BASIS_BUSY), "busy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_results),
        cmocka_unit_test(test_what_can_be_asked_for),
        cmocka_unit_test(test_all_of_them),
        cmocka_unit_test(test_what_a_person_wrote),
        cmocka_unit_test(test_what_values_are_means_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
