#include "sidecar/agent/sampling_schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define S INT64_C(1000000000)

static const pp_schedule_policy policy = {
    .capture = 10 * S, .longest = 600 * S, .budget = 0.01, .duration = 0};

/* A trainer that obeys at once and whose marks cost `share` of the sampled time. */
typedef struct world {
    pp_schedule schedule;
    pp_schedule_input in;
    double share;
    int64_t after; /* ns that each capture costs once it has ended */
    int64_t sampled_ns;
    int captures;
} world;

static void pass(world *w, const pp_schedule_policy *p, int64_t ns, int64_t tick)
{
    for (int64_t end = w->in.now + ns; w->in.now < end; w->in.now += tick) {
        pp_ring_mode mode = pp_schedule_next(&w->schedule, p, &w->in);
        bool was = w->in.running;
        w->in.running = mode == PP_RING_SAMPLE;
        w->captures += w->in.running && !was;
        w->in.cost += was && !w->in.running ? w->after : 0;
        w->in.steps++;
        if (!w->in.running)
            continue;
        if (w->in.first == 0)
            w->in.first = w->in.now;
        w->in.sampled++;
        w->sampled_ns += tick;
        w->in.cost += (int64_t)((double)tick * w->share);
    }
}

static world begin(double share)
{
    return (world){.in = {.now = 1000 * S, .allowed = true}, .share = share};
}

static void test_cheap_marks_sample_all_the_time(void **state)
{
    (void)state;
    world w = begin(0.001);
    pass(&w, &policy, 500 * S, S / 20);
    assert_int_equal(w.captures, 1);
    assert_true(w.sampled_ns > 499 * S);
}

/* However dear the marks are: its limit is another one. */
static void test_replays_are_not_cut_short(void **state)
{
    (void)state;
    world w = begin(0.3);
    w.in.isolating = true;
    pass(&w, &policy, 900 * S, S / 20);
    assert_int_equal(w.captures, 1);
    assert_true(w.sampled_ns > 899 * S);
    w.in.isolating = false;
    pass(&w, &policy, S, S / 20);
    assert_false(w.in.running);
}

/* While layers are replayed nothing is sampled: the duration is longer by that, and does not end
 * within. */
static void test_replays_are_no_part_of_the_duration(void **state)
{
    (void)state;
    pp_schedule_policy bounded = policy;
    world w = begin(0.001);
    bounded.duration = 20 * S;
    pass(&w, &bounded, 10 * S, S / 20);
    w.in.isolating = true;
    pass(&w, &bounded, 15 * S, S / 20);
    assert_true(w.in.running && !w.schedule.finished);
    w.in.isolating = false;
    w.in.paused = 15 * S;
    pass(&w, &bounded, 9 * S, S / 20);
    assert_true(w.in.running && !w.schedule.finished);
    pass(&w, &bounded, 2 * S, S / 20);
    assert_true(!w.in.running && w.schedule.finished);
}

/* The program may write into its ring what it likes: its own sampling ends, or goes on. */
static void test_pauses_that_cannot_be(void **state)
{
    (void)state;
    pp_schedule_policy bounded = policy;
    bounded.duration = 20 * S;
    const int64_t lies[] = {INT64_MAX, INT64_MIN, -1};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        world w = begin(0.001);
        pass(&w, &bounded, 10 * S, S / 20);
        w.in.paused = lies[i];
        pass(&w, &bounded, 12 * S, S / 20);
        assert_int_equal(w.schedule.finished, lies[i] < 0);
    }
}

/* What kept kernels from being recorded, another profiler say, may be over. */
static void test_captures_by_events_are_begun_anew(void **state)
{
    (void)state;
    world w = begin(0.001);
    w.in.events = true;
    pass(&w, &policy, 100 * S, S / 20);
    assert_true(w.captures >= 9 && w.captures <= 10);
    assert_true(w.sampled_ns > 98 * S);
}

static void test_short_steps_make_short_captures(void **state)
{
    (void)state;
    world w = begin(0.2);
    w.in.step = 2 * S / 1000;
    pass(&w, &policy, 60 * S, S / 20);
    assert_true(w.captures >= 3);
    assert_true((double)w.in.cost / (double)(60 * S) <= 0.01);

    w = begin(0.2);
    w.in.step = S; /* 64 of these are longer than a capture must be */
    pass(&w, &policy, 60 * S, S / 20);
    assert_int_equal(w.captures, 1);
    assert_true(w.sampled_ns >= 10 * S - S / 10);
}

static void test_the_budget_holds_by_construction(void **state)
{
    (void)state;
    static const double shares[] = {0.0085, 0.02, 0.1, 0.37, 0.9};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        world w = begin(shares[i]);
        pass(&w, &policy, 20000 * S, S / 20);
        double spent = (double)w.in.cost / (double)(20000 * S);
        assert_true(w.captures >= 2);
        assert_true(spent <= 0.006);
        assert_true(spent >= 0.004);
        assert_true(w.sampled_ns >= w.captures * (10 * S - S / 10));
    }
}

/* From when the first capture is paid for on. */
static void test_the_budget_holds_wherever_a_session_ends(void **state)
{
    (void)state;
    world w = begin(0.05);
    w.after = S / 10;
    pass(&w, &policy, 150 * S, S / 20);
    for (int seconds = 151; seconds < 1200; seconds++) {
        pass(&w, &policy, S, S / 20);
        assert_true((double)w.in.cost <= 0.006 * seconds * (double)S);
    }
    assert_true(w.captures >= 1200 / 125 - 1);
}

/* Waits differ from one capture to the next, by a quarter at most and evenly. */
static void test_captures_do_not_come_in_a_rhythm(void **state)
{
    (void)state;
    world w = begin(0.02);
    int64_t before = 0, least = INT64_MAX, most = 0;
    double sum = 0;
    int waits = 0;
    while (w.captures < 60) {
        const int captures = w.captures;
        pass(&w, &policy, S / 20, S / 20);
        if (w.captures == captures)
            continue;
        const int64_t wait = w.in.now - before;
        before = w.in.now;
        if (w.captures < 3)
            continue; /* the second is paid for in advance */
        least = wait < least ? wait : least;
        most = wait > most ? wait : most;
        sum += (double)wait;
        waits++;
    }
    const double paid = 0.2 / 0.006 * (double)S;
    assert_true((double)least >= paid && (double)least < 1.05 * paid);
    assert_true((double)most > 1.2 * paid && (double)most < 1.27 * paid);
    assert_true(sum / waits > 1.08 * paid && sum / waits < 1.17 * paid);
}

static void test_what_comes_after_a_capture_is_paid_for(void **state)
{
    (void)state;
    world w = begin(0.02);
    w.after = S;
    pass(&w, &policy, 20000 * S, S / 20);
    assert_true(w.captures >= 80);
    assert_true((double)w.in.cost <= 0.006 * 20000 * (double)S);
}

static void test_captures_are_begun_anew(void **state)
{
    (void)state;
    world w = begin(0.0001);
    pass(&w, &policy, 1900 * S, S / 20);
    assert_int_equal(w.captures, 4);
    assert_true(w.sampled_ns > 1890 * S);
}

static void test_skip_max_and_duration(void **state)
{
    (void)state;
    pp_schedule_policy p = policy;
    p.skip = 100;
    p.max = 40;
    world w = begin(0);
    pass(&w, &p, 100 * S, S / 20);
    assert_int_equal(w.in.sampled, 40);
    assert_int_equal(w.in.first, 1000 * S + 100 * (S / 20));
    p = policy;
    p.duration = 30 * S;
    w = begin(0);
    pass(&w, &p, 100 * S, S / 20);
    assert_int_equal(w.sampled_ns, 30 * S);
    assert_int_equal(pp_schedule_next(&w.schedule, &p, &w.in), PP_RING_IDLE);
    w.in.first = 0; /* once over, over */
    assert_int_equal(pp_schedule_next(&w.schedule, &p, &w.in), PP_RING_IDLE);
}

static void test_the_operators_wish(void **state)
{
    (void)state;
    world w = begin(0);
    w.in.allowed = false;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_IDLE);
    w.in.allowed = true;
    pass(&w, &policy, 5 * S, S / 20);
    w.in.allowed = false;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_IDLE);
    w.in.allowed = true;
    /* The capture still runs: it must have ended before another is asked for. */
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_COUNT);
    w.in.running = false;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_SAMPLE);
}

static void test_a_running_capture_is_adopted(void **state)
{
    (void)state;
    world w = begin(0);
    w.in.running = true; /* the hook began by the control file */
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_SAMPLE);
    assert_true(w.schedule.started);
}

static void test_a_capture_lasts_although_it_starts_late(void **state)
{
    (void)state;
    world w = begin(0);
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_SAMPLE);
    w.in.cost = 5 * S; /* finding the layers was dear */
    w.in.now += 60 * S;
    w.in.running = true;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_SAMPLE);
    w.in.now += 10 * S - 1;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_SAMPLE);
    w.in.now += 1;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_COUNT);
    w.in.running = false;
    /* 5 s of cost are 0.6 % of 833 s, and one more to come */
    w.in.now = 1000 * S + INT64_C(1666666666666) - 1;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_COUNT);
    w.in.now += 1;
    assert_int_equal(pp_schedule_next(&w.schedule, &policy, &w.in), PP_RING_SAMPLE);
}

/* Its sampler was not there yet: it lasts as long as any when it is begun anew, and what it has
 * cost until then is paid for with it. */
static void test_a_capture_that_is_begun_anew(void **state)
{
    (void)state;
    world w = begin(0.02);
    pass(&w, &policy, S, S / 20);
    pp_schedule_begin_anew(&w.schedule);
    w.in.running = false; /* and the hook is asked for nothing, for four seconds */
    w.in.now += 4 * S;
    pass(&w, &policy, 10 * S - S / 20, S / 20);
    assert_true(w.in.running);
    pass(&w, &policy, S / 5, S / 20);
    assert_false(w.in.running);
    const int64_t cost = w.in.cost, armed_at = 1000 * S;
    while (!w.in.running)
        pass(&w, &policy, S / 20, S / 20);
    assert_true(cost > 11 * S / 50);
    assert_true(w.in.now - armed_at >= 2 * (int64_t)((double)cost / 0.006));
    assert_true(w.in.now - armed_at <= 2 * (int64_t)((double)cost / 0.006) + S);
}

static void test_vigil(void **state)
{
    (void)state;
    pp_idle_exit v = {.quiet_since = 5 * S};
    assert_false(pp_idle_exit_is_due(&v, 100 * S, 1, false)); /* a helper, which counts no step */
    assert_false(pp_idle_exit_is_due(&v, 699 * S, 0, false));
    assert_false(pp_idle_exit_is_due(&v, 699 * S, 0, true)); /* the operator is asked instead */
    assert_false(pp_idle_exit_is_due(&v, 1298 * S, 0, false));
    assert_true(pp_idle_exit_is_due(&v, 1299 * S, 0, false));
    v.trained = true;
    assert_false(pp_idle_exit_is_due(&v, 1400 * S, 1, true));
    assert_false(pp_idle_exit_is_due(&v, 1409 * S, 0, true));
    assert_true(pp_idle_exit_is_due(&v, 1410 * S, 0, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cheap_marks_sample_all_the_time),
        cmocka_unit_test(test_captures_by_events_are_begun_anew),
        cmocka_unit_test(test_replays_are_not_cut_short),
        cmocka_unit_test(test_replays_are_no_part_of_the_duration),
        cmocka_unit_test(test_pauses_that_cannot_be),
        cmocka_unit_test(test_short_steps_make_short_captures),
        cmocka_unit_test(test_the_budget_holds_by_construction),
        cmocka_unit_test(test_the_budget_holds_wherever_a_session_ends),
        cmocka_unit_test(test_captures_do_not_come_in_a_rhythm),
        cmocka_unit_test(test_what_comes_after_a_capture_is_paid_for),
        cmocka_unit_test(test_captures_are_begun_anew),
        cmocka_unit_test(test_skip_max_and_duration),
        cmocka_unit_test(test_the_operators_wish),
        cmocka_unit_test(test_a_running_capture_is_adopted),
        cmocka_unit_test(test_a_capture_lasts_although_it_starts_late),
        cmocka_unit_test(test_a_capture_that_is_begun_anew),
        cmocka_unit_test(test_vigil),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
