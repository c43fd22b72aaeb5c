/* How often the hook attaches CUPTI. */
#include "sidecar/hook/hook.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Attaches as often as it may; returns how often that was. */
static int attach_all(uint32_t session)
{
    int count = 0;
    while (count < 10000 && pp_cupti_rate_left(session)) {
        pp_cupti_rate_use();
        count++;
    }
    return count;
}

static void test_sessions_and_the_process(void **state)
{
    (void)state;
    int each = attach_all(1);
    assert_in_range(each, 10, 100);
    assert_int_equal(attach_all(1), 0);
    assert_true(pp_cupti_rate_left(2));
    assert_true(pp_cupti_rate_left(2)); /* asked, not used */
    int all = each;
    for (uint32_t session = 2; session < 100; session++)
        all += attach_all(session);
    assert_in_range(all, 4 * each, 300); /* 0.6 MiB each */
    assert_false(pp_cupti_rate_left(100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sessions_and_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
