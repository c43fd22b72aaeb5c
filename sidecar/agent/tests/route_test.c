/* Which of the operator's addresses an agent connects to. */
#include "sidecar/agent/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(pp_route *route, const char *address, bool named)
{
    bool is_named;
    const char *next = pp_route_next(route, &is_named);
    if (!next || strcmp(next, address) != 0 || is_named != named)
        fail_msg("%s (%s) where %s was expected", next ? next : "none", is_named ? "name" : "given",
                 address);
}

static void test_nothing(void **state)
{
    (void)state;
    pp_route route = {0};
    bool named;
    assert_null(pp_route_next(&route, &named));
    pp_route_failed(&route);
    assert_null(pp_route_next(&route, &named));
}

static void test_the_name_goes_first(void **state)
{
    (void)state;
    pp_route route = {0};
    pp_route_add(&route.given, "10.96.3.4");
    pp_route_add(&route.found, "10.96.3.9");
    expect(&route, "10.96.3.9", true);
    pp_route_worked(&route);
    expect(&route, "10.96.3.9", true);
}

static void test_the_same_address_is_one(void **state)
{
    (void)state;
    pp_route route = {0};
    pp_route_add(&route.given, "10.96.3.4");
    pp_route_add(&route.found, "10.96.3.4");
    expect(&route, "10.96.3.4", true);
    pp_route_failed(&route);
    expect(&route, "10.96.3.4", true);
}

static void test_a_name_that_is_not_resolved(void **state)
{
    (void)state;
    pp_route route = {0};
    pp_route_add(&route.given, "10.96.3.4");
    pp_route_add(&route.given, "fd00:10:96::1a2b");
    expect(&route, "10.96.3.4", false);
    pp_route_failed(&route);
    expect(&route, "fd00:10:96::1a2b", false);
    pp_route_worked(&route);
    expect(&route, "fd00:10:96::1a2b", false);
    pp_route_failed(&route);
    expect(&route, "10.96.3.4", false);
}

/* A resolver that knows something else by that name: what has answered stays, or each attempt
 * after an operator that was busy would begin with what is wrong. */
static void test_a_name_that_leads_elsewhere(void **state)
{
    (void)state;
    pp_route route = {0};
    pp_route_add(&route.given, "10.96.3.4");
    pp_route_add(&route.found, "192.0.2.1");
    pp_route_add(&route.found, "192.0.2.2");
    expect(&route, "192.0.2.1", true);
    pp_route_failed(&route);
    expect(&route, "192.0.2.2", true);
    pp_route_failed(&route);
    expect(&route, "10.96.3.4", false);
    pp_route_worked(&route);
    expect(&route, "10.96.3.4", false);
    pp_route_failed(&route);
    expect(&route, "192.0.2.1", true);
}

/* The Service was made anew: what the pod was injected with is of nobody any more. */
static void test_a_service_with_another_address(void **state)
{
    (void)state;
    pp_route route = {0};
    pp_route_add(&route.given, "10.96.3.4");
    pp_route_add(&route.found, "10.96.3.4");
    expect(&route, "10.96.3.4", true);
    pp_route_worked(&route);
    route.found = (pp_route_list){0};
    pp_route_add(&route.found, "10.96.7.7");
    pp_route_failed(&route);
    expect(&route, "10.96.7.7", true);
}

/* The answer comes late: the one that has failed meanwhile is not tried again first. */
static void test_a_late_answer(void **state)
{
    (void)state;
    pp_route route = {0};
    pp_route_add(&route.given, "10.96.3.4");
    expect(&route, "10.96.3.4", false);
    pp_route_failed(&route);
    pp_route_add(&route.found, "10.96.7.7");
    expect(&route, "10.96.7.7", true);
}

static void test_lists_are_bounded_and_hold_addresses(void **state)
{
    (void)state;
    pp_route_list list = {0};
    char text[32];
    pp_route_add(&list, "localhost");
    pp_route_add(&list, "10.96.3");
    pp_route_add(&list, "[::1]");
    pp_route_add(&list, "fe80::1%lo");
    pp_route_add(&list, "");
    assert_int_equal(list.count, 0);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(text, sizeof text, "10.0.0.%d", i);
        pp_route_add(&list, text);
        pp_route_add(&list, text);
    }
    assert_int_equal(list.count, PP_WIRE_MAX_ADDRESSES);
    assert_string_equal(list.text[7], "10.0.0.7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_the_name_goes_first),
        cmocka_unit_test(test_the_same_address_is_one),
        cmocka_unit_test(test_a_name_that_is_not_resolved),
        cmocka_unit_test(test_a_name_that_leads_elsewhere),
        cmocka_unit_test(test_a_service_with_another_address),
        cmocka_unit_test(test_a_late_answer),
        cmocka_unit_test(test_lists_are_bounded_and_hold_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
