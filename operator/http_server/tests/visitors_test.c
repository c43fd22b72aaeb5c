/* Who keeps a place, who gets one, and who has been there too long. */
#include "common/tests/cmocka_all.h"
#include "operator/http_server/visitors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)

enum { TOTAL = 8, EACH = 5 };

static const visitor_limits limits[SHARES] = {
    [SHARE_UNPROVEN] = {TOTAL, EACH, 10 * SECOND, 3 * SECOND},
    [SHARE_REVIEW] = {2, 0, 10 * SECOND, 90 * SECOND},
    [SHARE_PLAIN] = {3, 2, 10 * SECOND, 90 * SECOND},
};

/** Names of visitors: pointers that nobody follows. */
static const char names[64];

static visitor_address address(const char *text)
{
    struct sockaddr_in in4 = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &in4.sin_addr) == 1)
        return visitor_address_of((const struct sockaddr *)&in4);
    assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return visitor_address_of((const struct sockaddr *)&in6);
}

/** Admits one: -1 refused, 0 admitted, else 1 + the number of who had to go. */
static int come(visitors *v, int number, visitor_share share, const char *from, int64_t now)
{
    const visitor_address a = address(from);
    const void *victim = NULL;
    if (!visitors_admit(v, &names[number], share, &a, now, &victim)) {
        assert_null(victim);
        return -1;
    }
    return victim ? (int)((const char *)victim - names) + 1 : 0;
}

static int unproven(visitors *v, int number, const char *from, int64_t now)
{
    return come(v, number, SHARE_UNPROVEN, from, now);
}

static void test_one_address_has_its_part(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    for (int i = 0; i < EACH; i++)
        assert_int_equal(unproven(v, i, "10.0.0.1", i), 0);
    assert_int_equal(unproven(v, 10, "10.0.0.1", SECOND / 2), -1); /* they are young yet */
    assert_int_equal(visitors_count(v, SHARE_UNPROVEN), EACH);
    assert_int_equal(unproven(v, 10, "10.0.0.1", SECOND), 1); /* in the oldest one's place */
    assert_int_equal(unproven(v, 11, "10.0.0.1", SECOND), -1);
    assert_int_equal(visitors_count(v, SHARE_UNPROVEN), EACH);
    visitors_busy(v, &names[1]); /* who waits for us goes after who does not */
    assert_int_equal(unproven(v, 11, "10.0.0.1", 2 * SECOND), 3);
    visitors_free(v);
}

/** Or else two addresses that have us wait for them would keep out all others. */
static void test_who_waits_for_us_keeps_nobody_out(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    for (int i = 0; i < TOTAL; i++) {
        assert_int_equal(unproven(v, i, i < EACH ? "10.0.0.1" : "10.0.0.2", 0), 0);
        visitors_busy(v, &names[i]);
    }
    assert_int_equal(unproven(v, 20, "10.0.0.3", 1), 1);
    visitors_idle(v, &names[2], 1); /* its answer is there */
    assert_int_equal(unproven(v, 21, "10.0.0.4", 1), 3);
    assert_int_equal(unproven(v, 22, "10.0.0.5", 1), 2);
    assert_int_equal(unproven(v, 23, "10.0.0.2", 1), -1);
    assert_int_equal(unproven(v, 23, "10.0.0.2", SECOND + 1), 21);
    visitors_free(v);
}

static void test_a_full_share_takes_from_who_has_most(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    for (int i = 0; i < EACH; i++)
        assert_int_equal(unproven(v, i, "10.0.0.1", 0), 0);
    for (int i = EACH; i < TOTAL; i++)
        assert_int_equal(unproven(v, i, "10.0.0.2", 0), 0);
    assert_int_equal(unproven(v, 20, "10.0.0.3", 1), 1);
    assert_int_equal(unproven(v, 21, "10.0.0.3", 1), 2);
    assert_int_equal(unproven(v, 22, "10.0.0.3", 1), -1); /* 3, 3 and 2: nobody has much more */
    assert_int_equal(unproven(v, 22, "10.0.0.4", 1), 3);
    assert_int_equal(visitors_count(v, SHARE_UNPROVEN), TOTAL);
    visitors_free(v);
}

static void test_shares_are_apart(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    for (int i = 0; i < EACH; i++)
        assert_int_equal(unproven(v, i, "10.0.0.1", 0), 0);
    assert_int_equal(unproven(v, 20, "10.0.0.1", 0), -1);
    assert_int_equal(come(v, 30, SHARE_PLAIN, "10.0.0.1", 0), 0);
    assert_int_equal(come(v, 31, SHARE_PLAIN, "10.0.0.1", 0), 0);
    assert_int_equal(come(v, 32, SHARE_PLAIN, "10.0.0.1", 0), -1);
    assert_int_equal(come(v, 32, SHARE_PLAIN, "10.0.0.2", 0), 0);
    assert_int_equal(come(v, 33, SHARE_PLAIN, "10.0.0.3", 0), 31);
    assert_int_equal(come(v, 34, SHARE_PLAIN, "10.0.0.1", 0), -1); /* each has one */
    visitors_free(v);
}

static void test_proof_leaves_room(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    const void *victim = NULL;
    for (int i = 0; i < EACH; i++)
        assert_int_equal(unproven(v, i, "10.0.0.1", 0), 0);
    assert_true(visitors_promote(v, &names[0], SHARE_REVIEW, 0, &victim));
    assert_true(visitors_promote(v, &names[1], SHARE_REVIEW, 0, &victim));
    assert_null(victim);
    assert_int_equal(visitors_count(v, SHARE_UNPROVEN), EACH - 2);
    assert_int_equal(unproven(v, 20, "10.0.0.1", 0), 0);
    assert_true(visitors_promote(v, &names[1], SHARE_REVIEW, 0, &victim)); /* is there already */
    assert_false(visitors_promote(v, &names[2], SHARE_REVIEW, 0, &victim));
    visitors_busy(v, &names[0]);
    assert_true(visitors_promote(v, &names[2], SHARE_REVIEW, SECOND, &victim));
    assert_ptr_equal(victim, &names[1]);
    visitors_busy(v, &names[2]);
    assert_false(visitors_promote(v, &names[3], SHARE_REVIEW, 2 * SECOND, &victim));
    assert_false(visitors_promote(v, &names[40], SHARE_REVIEW, SECOND, &victim)); /* unknown */
    visitors_leave(v, &names[3]); /* an agent's now */
    assert_int_equal(visitors_count(v, SHARE_UNPROVEN), EACH - 3);
    visitors_free(v);
}

/** Numbers of all that are overdue, added up; each is named once a sweep. */
static int overdue(visitors *v, int64_t now)
{
    int sum = 0;
    const void *who;
    visitors_sweep(v);
    while ((who = visitors_overdue(v, now)))
        sum += (int)((const char *)who - names);
    return sum;
}

static void test_times(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    assert_int_equal(unproven(v, 1, "10.0.0.1", 0), 0);
    assert_int_equal(unproven(v, 2, "10.0.0.1", SECOND), 0);
    assert_int_equal(unproven(v, 4, "10.0.0.1", SECOND), 0);
    assert_int_equal(overdue(v, 10 * SECOND - 1), 0);
    assert_int_equal(overdue(v, 10 * SECOND), 1);
    assert_int_equal(overdue(v, 10 * SECOND), 1); /* until it is gone */
    visitors_leave(v, &names[1]);
    visitors_busy(v, &names[2]);
    assert_int_equal(overdue(v, 11 * SECOND), 4); /* a request has times of its own */
    visitors_leave(v, &names[4]);
    visitors_idle(v, &names[2], 20 * SECOND);
    assert_int_equal(overdue(v, 23 * SECOND - 1), 0);
    assert_int_equal(overdue(v, 23 * SECOND), 2);
    visitors_free(v);
}

static void test_who_lost_its_place_is_named_until_gone(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    for (int i = 0; i < EACH; i++)
        assert_int_equal(unproven(v, 10 + i, "10.0.0.1", 0), 0);
    assert_int_equal(unproven(v, 20, "10.0.0.1", SECOND), 11);
    assert_int_equal(overdue(v, SECOND), 10);
    assert_int_equal(overdue(v, SECOND), 10);
    assert_int_equal(unproven(v, 21, "10.0.0.1", SECOND), 12); /* nobody goes twice */
    const void *victim = NULL;
    assert_false(visitors_promote(v, &names[10], SHARE_REVIEW, SECOND, &victim));
    visitors_leave(v, &names[10]);
    visitors_leave(v, &names[11]);
    assert_int_equal(overdue(v, SECOND), 0);
    assert_int_equal(visitors_count(v, SHARE_UNPROVEN), EACH);
    visitors_free(v);
}

static void test_names(void **state)
{
    (void)state;
    visitors *v = visitors_new(limits);
    assert_int_equal(unproven(v, 1, "10.0.0.1", 0), 0);
    visitors_rename(v, &names[1], &names[2]);
    visitors_rename(v, &names[1], &names[3]); /* unknown by now */
    assert_int_equal(overdue(v, 10 * SECOND), 2);
    assert_int_equal(unproven(v, 1, "10.0.0.1", 0), 0);
    assert_int_equal(unproven(v, 1, "10.0.0.1", 0), 0); /* never became one: forgotten */
    assert_int_equal(visitors_count(v, SHARE_UNPROVEN), 2);
    visitors_free(v);
}

static void test_addresses(void **state)
{
    (void)state;
    visitor_address a = address("10.1.2.3");
    visitor_address b = address("::ffff:10.1.2.3");
    visitor_address c = address("10.1.2.4");
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
    a = address("2001:db8:1:2:3::1"); /* one host, however many addresses it takes */
    b = address("2001:db8:1:2:ffff::9");
    c = address("2001:db8:1:3::1");
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_address_has_its_part),
        cmocka_unit_test(test_who_waits_for_us_keeps_nobody_out),
        cmocka_unit_test(test_a_full_share_takes_from_who_has_most),
        cmocka_unit_test(test_shares_are_apart),
        cmocka_unit_test(test_proof_leaves_room),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_who_lost_its_place_is_named_until_gone),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
