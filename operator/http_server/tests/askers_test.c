/* Whose tokens are asked about where more come than can be, and who keeps nobody else out. */
#include "common/tests/cmocka_all.h"
#include "operator/http_server/askers.h"

#include <string.h>

#define SECOND INT64_C(1000000000)

enum { TOTAL = 8, EACH = 3, BURST = 5 };

static const asker_limits limits = {TOTAL, EACH, SECOND / 10, BURST};

static visitor_address address(unsigned number)
{
    visitor_address a = {{0}};
    (void)memcpy(a.bytes, &number, sizeof number);
    return a;
}

static bool ask(askers *a, unsigned from, int64_t now, asking *ret)
{
    const visitor_address there = address(from);
    return askers_ask(a, &there, now, ret);
}

/** Asks and has the answer at once; false where it may not ask. */
static bool ask_and_hear(askers *a, unsigned from, int64_t now, bool refused)
{
    asking question;
    if (!ask(a, from, now, &question))
        return false;
    askers_answered(a, &question, refused);
    return true;
}

static void test_an_address_has_so_many_under_way(void **state)
{
    (void)state;
    askers *a = askers_new(&limits);
    asking questions[EACH];
    asking more;
    for (int i = 0; i < EACH; i++)
        assert_true(ask(a, 1, 0, &questions[i]));
    assert_false(ask(a, 1, 0, &more));
    assert_true(ask(a, 2, 0, &more));
    askers_answered(a, &questions[0], false);
    assert_true(ask(a, 1, 0, &questions[0]));
    askers_free(a);
}

static void test_all_together_have_so_many_under_way(void **state)
{
    (void)state;
    askers *a = askers_new(&limits);
    asking questions[TOTAL];
    asking more;
    for (unsigned i = 0; i < TOTAL; i++)
        assert_true(ask(a, i, 0, &questions[i]));
    assert_false(ask(a, 99, 0, &more));
    askers_answered(a, &questions[4], true);
    assert_true(ask(a, 99, 0, &more));
    askers_free(a);
}

static void test_refusals_are_paid_for(void **state)
{
    (void)state;
    askers *a = askers_new(&limits);
    for (int i = 0; i < BURST; i++)
        assert_true(ask_and_hear(a, 1, 0, true));
    assert_false(ask_and_hear(a, 1, 0, true));
    assert_false(ask_and_hear(a, 1, SECOND / 10 - 1, true));
    assert_true(ask_and_hear(a, 1, SECOND / 10, true));
    assert_false(ask_and_hear(a, 1, SECOND / 10, true));
    assert_true(ask_and_hear(a, 2, 0, true)); /* another one has its own */
    askers_free(a);
}

static void test_good_tokens_cost_nothing(void **state)
{
    (void)state;
    askers *a = askers_new(&limits);
    for (int i = 0; i < 100; i++)
        assert_true(ask_and_hear(a, 1, 0, false));
    askers_free(a);
}

/** Whoever brought bad tokens gets half of the places, however many they are. */
static void test_suspects_leave_room(void **state)
{
    (void)state;
    askers *a = askers_new(&limits);
    asking questions[TOTAL];
    asking more;
    for (unsigned i = 0; i < TOTAL; i++)
        assert_true(ask_and_hear(a, i, 0, true));
    for (unsigned i = 0; i < TOTAL / 2; i++)
        assert_true(ask(a, i, 0, &questions[i]));
    assert_false(ask(a, TOTAL - 1, 0, &more));
    for (unsigned i = TOTAL / 2; i < TOTAL; i++)
        assert_true(ask(a, 100 + i, 0, &questions[i]));
    askers_answered(a, &questions[0], true);
    assert_true(ask(a, TOTAL - 1, 0, &more));
    askers_answered(a, &questions[1], true);
    assert_true(ask(a, TOTAL - 1, SECOND, &questions[1])); /* paid for: a suspect no more */
    assert_false(questions[1].suspect);
    askers_free(a);
}

/** What is known of addresses has a bound, and is forgotten once it matters no more. */
static void test_addresses_are_forgotten(void **state)
{
    (void)state;
    askers *a = askers_new(&limits);
    for (unsigned i = 0; i < 20000; i++)
        assert_true(ask_and_hear(a, i, i * (SECOND / 100), true));
    assert_true(askers_count(a) <= 4096);
    askers_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_address_has_so_many_under_way),
        cmocka_unit_test(test_all_together_have_so_many_under_way),
        cmocka_unit_test(test_refusals_are_paid_for),
        cmocka_unit_test(test_good_tokens_cost_nothing),
        cmocka_unit_test(test_suspects_leave_room),
        cmocka_unit_test(test_addresses_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
