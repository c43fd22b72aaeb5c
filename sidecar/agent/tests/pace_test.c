/* What the hook takes a marked step to cost, with a clock and costs of the test's. */
#include "sidecar/hook/hook.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct {
    int64_t now, held, cost, kernels;
    bool recording, by_calls; /* in marked steps */
    bool behind;              /* marks wait for the GPU */
    int runs;                 /* told */
    pp_mark run;              /* the latest */
} world;

bool pp_clock_cuda_behind(void)
{
    return world.behind;
}

void pp_ring_push(const pp_mark *mark)
{
    assert_int_equal(mark->kind, PP_MARK_COUNTED);
    world.run = *mark;
    world.runs++;
}

int64_t pp_now(void)
{
    return world.now;
}

int64_t pp_ring_cost_hold(bool hold)
{
    int64_t ns = world.held;
    world.held = 0;
    (void)hold;
    return ns;
}

void pp_ring_cost_add(int64_t ns)
{
    world.cost += ns;
}

/* So many steps of `ns` each, of which the hook has summed up `own`; what it counts for one. */
static int64_t pass(pp_state state, int steps, int64_t ns, int64_t own)
{
    int64_t before = world.cost;
    for (int i = 0; i < steps; i++) {
        world.now += ns + (i % 3 - 1) * ns / 1000;
        world.held = own;
        const pp_pace_kernels kernels = {world.recording && state == MARKING, world.by_calls,
                                         world.kernels};
        world.kernels = 0;
        pp_pace_step(state, &kernels);
    }
    return (world.cost - before) / steps;
}

/* Nothing to compare with: the sum of the parts. */
static void no_plain_step_yet(void)
{
    assert_int_equal(pass(MARKING, 100, 1200000, 50000), 50000);
    /* Records come in bursts and count evenly. */
    int64_t before = world.cost;
    for (int i = 0; i < 2000; i++) {
        if (i % 20 == 0)
            world.kernels = 20 * 100000;
        (void)pass(MARKING, 1, 1200000, 50000);
    }
    int64_t each = (world.cost - before) / 2000;
    assert_true(each > 140000 && each < 160000);
    (void)pass(MARKING, 400, 1200000, 0);
}

/* Plain steps are 0.2 ms shorter: more than the parts say, so that is what counts. */
static void plain_steps_are_shorter(void)
{
    (void)pass(COUNTING, 200, 1000000, 0);
    (void)pass(MARKING, 200, 1200000, 50000);
    int64_t each = pass(MARKING, 100, 1200000, 50000);
    assert_true(each > 190000 && each < 210000);
    /* Plain steps that differ among each other: what is seen on average, no less. */
    for (int i = 0; i < 9; i++) {
        (void)pass(COUNTING, 16 * 9, 1000000, 0);
        (void)pass(MARKING, 17, 1100000 + 25000 * i, 50000);
    }
    each = pass(MARKING, 1, 1200000, 50000);
    assert_true(each > 195000 && each < 205000);
}

/* A machine that gets slower long after a plain step was seen costs what it did. */
static void the_machine_gets_slower(void)
{
    (void)pass(COUNTING, 200, 1000000, 0);
    (void)pass(MARKING, 200, 1200000, 50000);
    (void)pass(MARKING, 10000, 1200000, 50000);
    (void)pass(MARKING, 200, 2400000, 50000);
    int64_t each = pass(MARKING, 100, 2400000, 50000);
    assert_true(each > 190000 && each < 210000);
}

/* Where the GPU hides what the parts say, some of it always counts. */
static void the_gpu_hides_the_cost(void)
{
    (void)pass(COUNTING, 200, 1000000, 0);
    (void)pass(MARKING, 200, 1000000, 50000);
    int64_t each = pass(MARKING, 100, 1000000, 50000);
    assert_true(each > 50000 / 4 - 100 && each < 50000 / 4 + 100);
    /* What happens outside of marked steps counts in full. */
    assert_int_equal(pass(DISCOVERING, 10, 1000000, 7000), 7000);
}

static void each_way_of_recording_has_its_own(void)
{
    int64_t ns = 1;
    world.recording = true;
    assert_false(pp_pace_extra(false, &ns) || pp_pace_extra(true, &ns));
    assert_int_equal(ns, 0);
    for (int calls = 0; calls < 2; calls++) {
        world.by_calls = calls;
        (void)pass(COUNTING, 200, 1000000, 0);
        (void)pass(MARKING, 200, calls ? 1050000 : 1400000, 50000);
    }
    assert_true(pp_pace_extra(false, &ns) && ns > 390000 && ns < 410000);
    assert_true(pp_pace_extra(true, &ns) && ns > 40000 && ns < 60000);
}

/* Others are marked from now on: it takes them as many blocks. */
static void what_was_seen_is_forgotten(void)
{
    int64_t ns = 1;
    pp_pace_forget();
    assert_false(pp_pace_extra(false, &ns) || pp_pace_extra(true, &ns));
    assert_int_equal(pass(MARKING, 1, 1050000, 50000), 50000);
    (void)pass(COUNTING, 200, 1000000, 0);
    (void)pass(MARKING, 200, 1800000, 50000);
    int64_t each = pass(MARKING, 100, 1800000, 50000);
    assert_true(each > 790000 && each < 810000);
}

/* In one test: what was seen stays with the process. */
static void test_the_cost_of_a_step(void **state)
{
    (void)state;
    no_plain_step_yet();
    plain_steps_are_shorter();
    the_machine_gets_slower();
    the_gpu_hides_the_cost();
    each_way_of_recording_has_its_own();
    what_was_seen_is_forgotten();
}

/* In which no capture is running. */
static void wait_a_minute(void)
{
    world.kernels = 0;
    pp_pace_pause();
    world.now += INT64_C(60000000000);
}

/* A third of the blocks takes longer, as where records come in bursts: that counts, a checkpoint in
 * one of them does not. */
static void test_some_take_longer(void **state)
{
    (void)state;
    pp_pace_forget();
    wait_a_minute();
    (void)pass(COUNTING, 200, 1000000, 0);
    for (int i = 0; i < 9; i++) {
        (void)pass(COUNTING, 16 * 9, 1000000, 0);
        (void)pass(MARKING, 17, i % 3 ? 1060000 : 1150000, 50000);
    }
    int64_t each = pass(MARKING, 1, 1060000, 50000);
    assert_true(each > 85000 && each < 95000);
    (void)pass(COUNTING, 16 * 9, 1000000, 0);
    (void)pass(MARKING, 17, 15000000, 50000);
    each = pass(MARKING, 1, 1060000, 50000);
    assert_true(each > 80000 && each < 110000);
}

/* The first capture of a session: plain steps come after it only. */
static void test_the_first_capture(void **state)
{
    (void)state;
    wait_a_minute();
    world.recording = world.by_calls = false;
    pp_pace_forget();
    (void)pass(MARKING, 30, 1300000, 50000); /* of the session before */
    pp_pace_forget();
    wait_a_minute();
    int64_t before = world.cost; /* on a machine that is slower by now */
    (void)pass(MARKING, 53, 2300000, 50000);
    (void)pass(COUNTING, 16 * 2, 2000000, 0);
    assert_true(world.cost - before < 53 * 51000);
    (void)pass(COUNTING, 16 * 8, 2000000, 0);
    int64_t cost = world.cost - before; /* of 52: where the first one began is not known */
    assert_true(cost > 52 * 295000 && cost < 53 * 305000);
    assert_true(pass(MARKING, 100, 2300000, 50000) > 290000);

    /* Steps of another kind after it: not more than eight times what its parts came to. */
    pp_pace_forget();
    wait_a_minute();
    before = world.cost;
    (void)pass(MARKING, 53, 9000000, 50000);
    (void)pass(COUNTING, 16 * 8, 1000000, 0);
    assert_true(world.cost - before < 8 * 53 * 51000);
    assert_true(world.cost - before > 7 * 53 * 50000);

    /* Plain steps of a minute later say nothing about them; what was counted stays. */
    pp_pace_forget();
    wait_a_minute();
    before = world.cost;
    (void)pass(MARKING, 53, 1300000, 50000);
    wait_a_minute();
    (void)pass(COUNTING, 16 * 10, 1000000, 0);
    assert_true(world.cost - before < 53 * 51000);
}

/* A capture of two seconds, as it is where steps are long, is enough to know what they cost. */
static void test_long_steps(void **state)
{
    (void)state;
    static const int64_t steps[] = {40000000, 300000000, 1500000000};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const int64_t ns = steps[i];
        const int capture = (int)(2000000000 / (ns * 5 / 4)) + 1;
        const int beside = (int)(1500000000 / ns) + 4;
        pp_pace_forget();
        wait_a_minute();
        (void)pass(COUNTING, beside, ns, 0);
        for (int k = 0; k < 4; k++) { /* of the longest each capture has two steps */
            (void)pass(MARKING, capture, ns * 5 / 4, ns / 20);
            (void)pass(COUNTING, beside, ns, 0);
        }
        int64_t before = world.cost;
        (void)pass(MARKING, capture, ns * 5 / 4, ns / 20);
        const int64_t each = (world.cost - before - ns / 20) / (capture - 1);
        assert_true(each > ns * 24 / 100 && each < ns * 26 / 100);
    }
    pp_pace_forget();
    wait_a_minute();
    int64_t before = world.cost;
    (void)pass(MARKING, 40, 50000000, 2000000); /* the very first capture, by what comes after it */
    (void)pass(COUNTING, 30, 40000000, 0);
    assert_true(world.cost - before > 39 * 9900000LL && world.cost - before < 40 * 10100000LL);
}

static void expect_run(int runs, uint32_t steps, int64_t ns, int64_t until)
{
    assert_int_equal(world.runs, runs);
    assert_int_equal(world.run.layer, steps);
    assert_int_equal(world.run.value, ns);
    assert_int_equal(world.run.time, until);
}

/* A second of them; from one plain step's end to another's, with nothing else between. */
static void test_runs_of_plain_steps(void **state)
{
    (void)state;
    const int64_t ms = 1000000;
    pp_pace_pause();
    world.runs = 0;
    (void)pass(COUNTING, 1, 30 * ms, 0); /* whose beginning is not known */
    (void)pass(COUNTING, 99, 10 * ms, 0);
    assert_int_equal(world.runs, 0);
    (void)pass(COUNTING, 3, 10 * ms, 0);
    expect_run(1, 101, 1010 * ms - 10000, world.now - 10 * ms - 10000);
    (void)pass(COUNTING, 28, 10 * ms, 0);
    (void)pass(DISCOVERING, 1, 500 * ms, 0); /* what was counted is told, and nothing of this */
    assert_int_equal(world.runs, 2);
    assert_int_equal(world.run.layer, 29);
    (void)pass(MARKING, 100, 12 * ms, 0);
    (void)pass(COUNTING, 5, 10 * ms, 0);
    (void)pass(MARKING, 1, 12 * ms, 0); /* of so few nothing is said */
    assert_int_equal(world.runs, 2);
    (void)pass(COUNTING, 3, 3000 * ms, 0);
    expect_run(4, 1, 3003 * ms, world.now); /* each by itself */
    (void)pass(COUNTING, 20, 10 * ms, 0);
    world.now += 60000 * ms; /* the hook was out of torch meanwhile */
    pp_pace_pause();
    expect_run(5, 20, 200 * ms - 10000, world.now - 60000 * ms);
    (void)pass(COUNTING, 102, 10 * ms, 0);
    assert_int_equal(world.runs, 6);
    assert_true(world.run.value < 1100 * ms);
    world.behind = true;
    (void)pass(COUNTING, 300, 10 * ms, 0);
    assert_int_equal(world.runs, 6);
    world.behind = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cost_of_a_step), cmocka_unit_test(test_some_take_longer),
        cmocka_unit_test(test_the_first_capture), cmocka_unit_test(test_long_steps),
        cmocka_unit_test(test_runs_of_plain_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
