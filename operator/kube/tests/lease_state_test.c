/* Leader election on a simulated clock: two and three candidates against one Lease. */
#include "operator/kube/lease_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const int64_t S = 1000000000;

static pp_lease_state candidate(const char *name)
{
    pp_lease_state s;
    pp_lease_state_init(&s, name, 15000, 10000, 2000);
    return s;
}

static pp_lease_record record(const char *holder, const char *renew)
{
    pp_lease_record r = {.duration_s = 15, .transitions = 3};
    (void)snprintf(r.holder, sizeof r.holder, "%s", holder);
    (void)snprintf(r.renew_time, sizeof r.renew_time, "%s", renew);
    return r;
}

static void test_first_creates(void **state)
{
    (void)state;
    pp_lease_state a = candidate("a");
    pp_lease_record r;
    assert_int_equal(pp_lease_observe(&a, NULL, S), PP_LEASE_CREATE);
    pp_lease_fill(&a, "t1", &r);
    assert_string_equal(r.holder, "a");
    assert_string_equal(r.acquire_time, "t1");
    assert_int_equal(r.duration_s, 15);
    assert_int_equal(r.transitions, 0);
    assert_false(pp_lease_leads(&a, S));
    assert_true(pp_lease_written(&a, &r, S, S + S / 10));
    assert_true(pp_lease_leads(&a, 2 * S));
    pp_lease_fill(&a, "t2", &r);
    assert_string_equal(r.acquire_time, "t1"); /* one term */
    assert_string_equal(r.renew_time, "t2");
    assert_false(pp_lease_written(&a, &r, 3 * S, 3 * S)); /* leads already */
}

static void test_other_is_judged_by_our_clock(void **state)
{
    (void)state;
    pp_lease_state b = candidate("b");
    /* The time in it is a year old: the holder's clock may be wrong, it is alive all the same. */
    pp_lease_record r = record("a", "2001-01-01T00:00:00.000000Z");
    assert_int_equal(pp_lease_observe(&b, &r, 100 * S), PP_LEASE_WAIT);
    assert_int_equal(pp_lease_observe(&b, &r, 114 * S), PP_LEASE_WAIT);
    r = record("a", "2001-01-01T00:00:02.000000Z");
    assert_int_equal(pp_lease_observe(&b, &r, 114 * S + 1), PP_LEASE_WAIT);
    assert_int_equal(pp_lease_observe(&b, &r, 129 * S), PP_LEASE_WAIT);
    assert_int_equal(pp_lease_observe(&b, &r, 129 * S + 1), PP_LEASE_UPDATE);
    pp_lease_record ours;
    pp_lease_fill(&b, "t9", &ours);
    assert_int_equal(ours.transitions, 4);
    assert_string_equal(ours.acquire_time, "t9");
}

static void test_released_is_taken_at_once(void **state)
{
    (void)state;
    pp_lease_state b = candidate("b");
    pp_lease_record r = record("", "t1");
    assert_int_equal(pp_lease_observe(&b, &r, S), PP_LEASE_UPDATE);
}

static void test_absurd_duration(void **state)
{
    (void)state;
    static const int64_t durations[] = {0, -5, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 4; i++) {
        pp_lease_state b = candidate("b");
        pp_lease_record r = record("a", "t1");
        r.duration_s = durations[i];
        assert_int_equal(pp_lease_observe(&b, &r, S), PP_LEASE_WAIT);
        assert_int_equal(pp_lease_observe(&b, &r, 17 * S), PP_LEASE_UPDATE);
    }
}

static void test_deadline_ends_the_term(void **state)
{
    (void)state;
    pp_lease_state a = candidate("a");
    pp_lease_record r;
    (void)pp_lease_observe(&a, NULL, S);
    pp_lease_fill(&a, "t1", &r);
    assert_true(pp_lease_written(&a, &r, S, 2 * S));
    assert_false(pp_lease_lost(&a, 11 * S - 1));
    /* counted from when the request was sent: the server may have taken it that early */
    assert_true(pp_lease_lost(&a, 11 * S));
    assert_false(pp_lease_lost(&a, 12 * S)); /* said once */
    assert_false(pp_lease_leads(&a, 12 * S));
}

static void test_late_answer_does_not_count(void **state)
{
    (void)state;
    pp_lease_state a = candidate("a");
    pp_lease_record r;
    (void)pp_lease_observe(&a, NULL, S);
    pp_lease_fill(&a, "t1", &r);
    assert_false(pp_lease_written(&a, &r, S, 11 * S));
    assert_false(pp_lease_leads(&a, 11 * S));
}

static void test_another_holder_ends_the_term(void **state)
{
    (void)state;
    pp_lease_state a = candidate("a");
    pp_lease_record r;
    (void)pp_lease_observe(&a, NULL, S);
    pp_lease_fill(&a, "t1", &r);
    (void)pp_lease_written(&a, &r, S, S);
    r = record("b", "t2");
    assert_int_equal(pp_lease_observe(&a, &r, 2 * S), PP_LEASE_WAIT);
    assert_true(pp_lease_lost(&a, 2 * S));
}

/* One server, several candidates whose clocks start anywhere, random failures: at no time do two
 * lead, and while the server answers somebody leads most of the time. */
typedef struct sim {
    bool exists;
    pp_lease_record record;
    uint64_t version;
    uint64_t random;
} sim;

static uint64_t roll(sim *s)
{
    s->random = s->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return s->random >> 33;
}

static void try_once(sim *s, pp_lease_state *c, int64_t now, int64_t tick)
{
    char wall[32];
    pp_lease_record ours;
    (void)snprintf(wall, sizeof wall, "%lld", (long long)tick);
    if (roll(s) % 4 == 0)
        return; /* the read was lost */
    uint64_t seen = s->version;
    if (pp_lease_observe(c, s->exists ? &s->record : NULL, now) == PP_LEASE_WAIT)
        return;
    pp_lease_fill(c, wall, &ours);
    if (roll(s) % 8 == 0)
        return; /* the write was lost */
    assert_true(seen == s->version);
    s->exists = true;
    s->record = ours;
    s->version++;
    if (roll(s) % 8 == 0)
        return; /* the write arrived, its answer did not */
    (void)pp_lease_written(c, &ours, now, now);
}

static void test_never_two_leaders(void **state)
{
    (void)state;
    int64_t led = 0, ticks = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        sim s = {.random = seed};
        pp_lease_state c[3] = {candidate("a"), candidate("b"), candidate("c")};
        int64_t offset[3] = {0, 7777 * S, 123456789};
        for (int64_t tick = 0; tick < 1200; tick++) { /* 500 ms each */
            int leaders = 0;
            for (int i = 0; i < 3; i++) {
                int64_t now = offset[i] + tick * S / 2;
                bool away = (tick / 100 + i) % 4 == 0; /* 50 s without any contact */
                (void)pp_lease_lost(&c[i], now);
                if (!away && (tick + i) % 4 == 0)
                    try_once(&s, &c[i], now, tick);
                leaders += pp_lease_leads(&c[i], now);
            }
            assert_true(leaders <= 1);
            led += leaders;
            ticks++;
        }
    }
    assert_true(led > ticks / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_creates),
        cmocka_unit_test(test_other_is_judged_by_our_clock),
        cmocka_unit_test(test_released_is_taken_at_once),
        cmocka_unit_test(test_absurd_duration),
        cmocka_unit_test(test_deadline_ends_the_term),
        cmocka_unit_test(test_late_answer_does_not_count),
        cmocka_unit_test(test_another_holder_ends_the_term),
        cmocka_unit_test(test_never_two_leaders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
