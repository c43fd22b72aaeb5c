#include "common/tests/cmocka_all.h"
#include "operator/cache/refusals.h"

#include <string.h>

static void answer(pp_refusals *refusals, const char *pod, const char *reason)
{
    pp_refusal *refusal = pp_refusals_find(refusals, pod);
    assert_non_null(refusal);
    (void)snprintf(refusal->why.reason, sizeof refusal->why.reason, "%s", reason);
}

/* What one session's spec makes of a pod is no answer for another session. */
static void test_of_one_session(void **state)
{
    (void)state;
    pp_refusals first = {0};
    pp_refusals second = {0};
    pp_refusals_begin(&first);
    assert_non_null(pp_refusals_get(&first, "pod"));
    answer(&first, "pod", "ContainerNotFound");
    assert_string_equal(pp_refusals_get(&first, "pod")->why.reason, "ContainerNotFound");
    pp_refusals_begin(&second);
    assert_string_equal(pp_refusals_get(&second, "pod")->why.reason, "");
    pp_refusals_done(&first);
    pp_refusals_done(&second);
}

static void test_pods_that_have_gone_are_forgotten(void **state)
{
    (void)state;
    pp_refusals refusals = {0};
    pp_refusals_begin(&refusals);
    (void)pp_refusals_get(&refusals, "stays");
    (void)pp_refusals_get(&refusals, "goes");
    pp_refusals_end(&refusals);
    answer(&refusals, "stays", "NotLinux");
    pp_refusals_begin(&refusals);
    (void)pp_refusals_get(&refusals, "stays");
    pp_refusals_end(&refusals);
    assert_null(pp_refusals_find(&refusals, "goes"));
    assert_string_equal(pp_refusals_find(&refusals, "stays")->why.reason, "NotLinux");
    pp_refusals_done(&refusals);
    assert_null(pp_refusals_find(&refusals, "stays"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_one_session),
        cmocka_unit_test(test_pods_that_have_gone_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
