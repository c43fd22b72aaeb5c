#include "common/tests/cmocka_all.h"
#include "operator/state/rights.h"

#include <string.h>

#define T(seconds) ((seconds)*INT64_C(1000000000))

static const pp_error denied = {.code = PP_ERR_DENIED};
static const pp_error unknown = {.code = PP_ERR_UNAUTHORIZED};
static const pp_error away = {.code = PP_ERR_UNAVAILABLE};

static void assert_missing(const pp_rights *rights, int64_t now, const char *text)
{
    char out[256] = "";
    assert_int_equal(pp_rights_missing(rights, now, out, sizeof out), *text != '\0');
    assert_string_equal(out, text);
}

static void test_denied_and_granted(void **state)
{
    (void)state;
    pp_rights rights = {{0}};
    assert_false(pp_rights_note(&rights, PP_RIGHT_PODS, NULL, T(1)));
    assert_false(pp_rights_note(&rights, PP_RIGHT_PODS, &away, T(2))); /* tells nothing */
    assert_missing(&rights, T(2), "");
    assert_true(pp_rights_note(&rights, PP_RIGHT_PODS, &denied, T(3)));
    assert_false(pp_rights_note(&rights, PP_RIGHT_PODS, &denied, T(4)));
    assert_true(pp_rights_note(&rights, PP_RIGHT_STATUS, &denied, T(4)));
    assert_missing(&rights, T(5),
                   "denied by the API server: writing the status of ProfileSessions, watching "
                   "pods");
    assert_false(pp_rights_note(&rights, PP_RIGHT_PODS, &away, T(6)));
    assert_true(pp_rights_note(&rights, PP_RIGHT_PODS, NULL, T(7)));
    assert_missing(&rights, T(7),
                   "denied by the API server: writing the status of ProfileSessions");
}

/* A session whose status could not be written may be gone: then nothing is tried any more. */
static void test_a_denial_is_forgotten(void **state)
{
    (void)state;
    pp_rights rights = {{0}};
    (void)pp_rights_note(&rights, PP_RIGHT_STATUS, &denied, T(100));
    (void)pp_rights_note(&rights, PP_RIGHT_STATUS, &denied, T(160));
    assert_true(pp_rights_denied(&rights, PP_RIGHT_STATUS, T(339)));
    assert_false(pp_rights_denied(&rights, PP_RIGHT_STATUS, T(340)));
    assert_true(pp_rights_note(&rights, PP_RIGHT_STATUS, &denied, T(400)));
}

static void test_a_token_that_is_not_known(void **state)
{
    (void)state;
    pp_rights rights = {{0}};
    assert_true(pp_rights_note(&rights, PP_RIGHT_PODS, &unknown, T(1)));
    assert_missing(&rights, T(1), "denied by the API server: the operator's own token");
    assert_true(pp_rights_note(&rights, PP_RIGHT_STATUS, &denied, T(2))); /* it is known now */
    assert_missing(&rights, T(2),
                   "denied by the API server: writing the status of ProfileSessions");
    assert_true(pp_rights_note(&rights, PP_RIGHT_STATUS, NULL, T(3)));
    assert_missing(&rights, T(3), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_denied_and_granted),
        cmocka_unit_test(test_a_denial_is_forgotten),
        cmocka_unit_test(test_a_token_that_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
