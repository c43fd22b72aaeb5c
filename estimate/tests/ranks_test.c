/* Processes side by side: whom the others wait for, where, in which steps; and when nobody is. */
#include "estimate/times/ranks.h"

#include "common/tests/cmocka_all.h"
#include "common/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define T0 INT64_C(1769000000000000000)

enum { STEPS = 40, STEP_MS = 100, MOST = 4, PIECES = 4, CAPTURES = 10 };

/* What one rank does in a step, one piece after the other; the rest of the step is `other`. */
typedef struct day {
    int64_t forward, backward, wait;
    int64_t less; /* by so much the step is shorter than STEP_MS */
} day;

typedef struct world {
    pp_activity activity;
    pp_activity_process processes[MOST];
    pp_activity_layer layers[MOST];
    pp_activity_batch batches[MOST * CAPTURES];
    pp_activity_step steps[MOST * STEPS];
    pp_activity_interval intervals[MOST * STEPS * PIECES];
    pp_activity_cell cells[MOST * STEPS * PIECES];
} world;

static char instance[] = "agent";
static char layer_name[] = "blocks.3";
static char layer_type[] = "Linear";

static void add_piece(world *w, uint32_t batch, unsigned phase, int64_t at, int64_t ms)
{
    if (ms <= 0)
        return;
    w->intervals[w->activity.n_intervals++] =
        (pp_activity_interval){.batch = batch,
                               .layer = phase <= PP_PHASE_BACKWARD ? 1 : 0,
                               .phase = (uint8_t)phase,
                               .start_ns = at,
                               .duration_ns = ms * MS,
                               .kernels_ns = -1};
}

/* A process whose steps are as of() has them. Ranks are numbered backwards. */
static void add_rank(world *w, int ranks, day (*of)(int rank, int step))
{
    pp_activity *a = &w->activity;
    const uint32_t n = (uint32_t)a->n_processes++;
    const int rank = ranks - 1 - (int)n;
    w->processes[n] = (pp_activity_process){
        .instance = instance, .process = (int32_t)n, .rank = rank, .world_size = ranks};
    w->layers[a->n_layers++] =
        (pp_activity_layer){.process = n, .id = 1, .name = layer_name, .type = layer_type};
    for (int capture = 0; capture < CAPTURES; capture++)
        w->batches[a->n_batches++] =
            (pp_activity_batch){.process = n,
                                .capture = capture,
                                .last = true,
                                .start_ns = T0 + capture * STEPS / CAPTURES * STEP_MS * MS,
                                .end_ns = T0 + (capture + 1) * STEPS / CAPTURES * STEP_MS * MS};
    for (int step = 0; step < STEPS; step++) {
        const day d = of(rank, step);
        const int64_t at = T0 + step * STEP_MS * MS;
        const uint32_t batch = n * CAPTURES + (uint32_t)(step * CAPTURES / STEPS);
        w->steps[a->n_steps++] = (pp_activity_step){.batch = batch,
                                                    .number = 100 + step,
                                                    .start_ns = at,
                                                    .duration_ns = (STEP_MS - d.less) * MS};
        add_piece(w, batch, PP_PHASE_FORWARD, at, d.forward);
        add_piece(w, batch, PP_PHASE_BACKWARD, at + d.forward * MS, d.backward);
        add_piece(w, batch, PP_PHASE_COMMUNICATION, at + (d.forward + d.backward) * MS, d.wait);
    }
}

static world *make(int ranks, day (*of)(int rank, int step))
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->activity = (pp_activity){.processes = w->processes,
                                .layers = w->layers,
                                .batches = w->batches,
                                .steps = w->steps,
                                .intervals = w->intervals,
                                .cells = w->cells};
    for (int i = 0; i < ranks; i++)
        add_rank(w, ranks, of);
    return w;
}

static pp_ranks *compare(const world *w)
{
    pp_ranks *r = NULL;
    assert_int_equal(pp_ranks_compare(&w->activity, &r, NULL), 0);
    return r;
}

static void is_near(double value, double ms)
{
    if (fabs(value - ms * (double)MS) > 1)
        fail_msg("%f ns, not %f ms", value, ms);
}

/* Steps differ by a millisecond, as real ones do. */
static day steady(int rank, int step)
{
    const int more = step % 2;
    return rank == 2 ? (day){20, 70 + more, 5, 0} : (day){20 + more, 30, 45 - more, 0};
}

static void test_a_slow_rank(void **state)
{
    (void)state;
    world *w = make(4, steady);
    pp_ranks *r = compare(w);
    assert_int_equal(r->n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r->ranks[i].rank, i);
        assert_int_equal(r->ranks[i].process, 3 - i);
        assert_int_equal(r->ranks[i].steps, STEPS);
        is_near(r->ranks[i].step_ns, STEP_MS);
        is_near(r->ranks[i].own_ns + r->ranks[i].wait_ns, STEP_MS);
    }
    is_near(r->ranks[0].wait_ns, 44.5);
    is_near(r->ranks[2].wait_ns, 5);
    assert_ptr_equal(r->slowest, &r->ranks[2]);
    is_near(r->behind_ns, 39.5);
    assert_int_equal(r->told_steps, STEPS);
    assert_int_equal(r->late_steps, STEPS);
    assert_int_equal(r->n_excesses, 1);
    assert_string_equal(r->excesses[0].item->layer, "blocks.3");
    assert_int_equal(r->excesses[0].item->phase, PP_PHASE_BACKWARD);
    is_near(r->excesses[0].item->ns, 70.5);
    is_near(r->excesses[0].others_ns, 30);
    pp_ranks_free(r);
    free(w);
}

/* Where its own code, in no layer, takes the time: a slow loader that nobody marks, say. */
static day outside(int rank, int step)
{
    const int more = step % 2;
    return rank == 0 ? (day){20, 30 + more, 0, 0} : (day){20 + more, 30, 48, 0};
}

static void test_what_no_layer_has(void **state)
{
    (void)state;
    world *w = make(2, outside);
    pp_ranks *r = compare(w);
    assert_ptr_equal(r->slowest, &r->ranks[0]);
    assert_int_equal(r->excesses[0].item->phase, PP_PHASE_OTHER);
    is_near(r->excesses[0].item->ns, 49.5);
    is_near(r->excesses[0].others_ns, 1.5);
    pp_ranks_free(r);
    free(w);
}

/* Rank 1 in every other step, and most in the last of all. */
static day now_and_then(int rank, int step)
{
    if (step % 2 == 0)
        return (day){20, 30, 2, 48};
    const int least = step < STEPS - 1;
    return rank == 1 ? (day){20, 76, 2 + least, 0} : (day){20, 30, 50, 0};
}

static void test_late_in_some_steps(void **state)
{
    (void)state;
    world *w = make(2, now_and_then);
    pp_ranks *r = compare(w);
    assert_ptr_equal(r->slowest, &r->ranks[1]);
    assert_int_equal(r->told_steps, STEPS);
    assert_int_equal(r->late_steps, STEPS / 2);
    assert_int_equal(r->worst_step, 100 + STEPS - 1);
    is_near(r->worst_ns, 98);
    pp_ranks_free(r);
    free(w);
}

/* Rank 1 in its later captures alone, as a neighbour's load would have it. */
static day for_a_while(int rank, int step)
{
    if (step < STEPS / 2)
        return (day){20, 30, 5, 45};
    return rank == 1 ? (day){20, 75, 5, 0} : (day){20, 30, 50, 0};
}

static void test_captures_that_differ(void **state)
{
    (void)state;
    world *w = make(2, for_a_while);
    pp_ranks *r = compare(w);
    assert_true(r->ranks[1].own_stderr >= 22.5 / sqrt(CAPTURES - 1) * (double)MS);
    assert_null(r->slowest);
    pp_ranks_free(r);
    free(w);
}

/* By a fifth of a step. */
static day a_little(int rank, int step)
{
    const int more = step % 2;
    return rank == 2 ? (day){20, 50 + more, 25, 0} : (day){20 + more, 30, 45 - more, 0};
}

/* How captures differ one of four seconds does not say. */
static void test_one_short_capture(void **state)
{
    (void)state;
    world *w = make(4, a_little);
    for (size_t i = 0; i < w->activity.n_batches; i++)
        w->batches[i].capture = 0;
    pp_ranks *r = compare(w);
    assert_true(isnan(r->ranks[2].own_freedom));
    assert_null(r->slowest);
    pp_ranks_free(r);
    free(w);
    w = make(4, steady); /* by two fifths: more than captures differ by */
    for (size_t i = 0; i < w->activity.n_batches; i++)
        w->batches[i].capture = 0;
    r = compare(w);
    assert_ptr_equal(r->slowest, &r->ranks[2]);
    pp_ranks_free(r);
    free(w);
}

/* Of three others one has a single short capture, whichever that is: the two others say enough. */
static void test_others_of_one_capture(void **state)
{
    (void)state;
    for (uint32_t of = 0; of < 4; of++) {
        world *w = make(4, a_little);
        for (size_t i = 0; i < w->activity.n_batches; i++)
            if (w->batches[i].process == of)
                w->batches[i].capture = 0;
        pp_ranks *r = compare(w);
        assert_int_equal(r->slowest != NULL, w->processes[of].rank != 2);
        pp_ranks_free(r);
        free(w);
    }
}

/* Whatever a process says, no time is two steps'. */
static void test_steps_on_top_of_each_other(void **state)
{
    (void)state;
    world *w = make(2, steady);
    for (int i = 0; i < STEPS; i++) {
        w->steps[i].start_ns = T0;
        w->steps[i].duration_ns = STEPS * STEP_MS * MS;
    }
    pp_ranks *r = compare(w);
    const pp_rank *odd = r->ranks[0].process == 0 ? &r->ranks[0] : &r->ranks[1];
    is_near(odd->step_ns * (double)odd->steps, STEPS * STEP_MS);
    pp_ranks_free(r);
    free(w);
}

static void test_too_many_processes(void **state)
{
    (void)state;
    static pp_activity_process many[PP_RANKS_MOST + 1];
    for (int i = 0; i <= PP_RANKS_MOST; i++)
        many[i] = (pp_activity_process){.instance = instance, .process = i, .world_size = 1};
    const world w = {.activity = {.processes = many, .n_processes = PP_RANKS_MOST + 1}};
    pp_ranks *r = compare(&w);
    assert_int_equal(r->n, 0);
    pp_ranks_free(r);
}

static day alike(int rank, int step)
{
    return (day){20 + (rank + step) % 3, 30, 40, 0};
}

static void test_nobody_is_slowest(void **state)
{
    (void)state;
    world *w = make(4, alike);
    pp_ranks *r = compare(w);
    assert_null(r->slowest);
    assert_int_equal(r->n_excesses, 0);
    assert_true(r->behind_ns == 0);
    pp_ranks_free(r);
    free(w);
}

/* They do not wait for each other: one takes longer, and nobody minds. */
static day apart(int rank, int step)
{
    return (day){20 + step % 2, rank ? 30 : 70, 0, rank ? 48 : 8};
}

static void test_nobody_waits(void **state)
{
    (void)state;
    world *w = make(2, apart);
    pp_ranks *r = compare(w);
    assert_null(r->slowest);
    pp_ranks_free(r);
    free(w);
}

/* Communication beside backward is no waiting, but for what reaches over it. */
static void test_communication_beside_work(void **state)
{
    (void)state;
    world *w = make(2, alike);
    for (size_t i = 0; i < w->activity.n_intervals; i++)
        if (w->intervals[i].phase == PP_PHASE_COMMUNICATION)
            w->intervals[i].start_ns -= 25 * MS;
    pp_ranks *r = compare(w);
    is_near(r->ranks[0].wait_ns, 15);
    pp_ranks_free(r);
    free(w);
}

/* As sums of cells: the same means, and no step by itself. */
static void test_sums(void **state)
{
    (void)state;
    world *w = make(2, steady);
    pp_activity *a = &w->activity;
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *v = &w->intervals[i];
        const int64_t step = (v->start_ns - T0) / (STEP_MS * MS);
        w->cells[a->n_cells++] = (pp_activity_cell){.batch = v->batch,
                                                    .layer = v->layer,
                                                    .phase = v->phase,
                                                    .start_ns = T0 + step * STEP_MS * MS,
                                                    .width_ns = STEP_MS * MS,
                                                    .busy_ns = v->duration_ns,
                                                    .calls = 1,
                                                    .kernels_ns = -1};
    }
    a->n_intervals = 0;
    pp_ranks *r = compare(w);
    is_near(r->ranks[0].wait_ns, 44.5);
    is_near(r->ranks[0].own_ns, 55.5);
    assert_true(isnan(r->ranks[0].own_stderr));
    assert_null(r->slowest);
    assert_int_equal(r->told_steps, 0);
    pp_ranks_free(r);
    free(w);
}

/* Two agents saw process 0, one after the other. */
static void test_an_agent_that_was_replaced(void **state)
{
    (void)state;
    static char other[] = "next";
    world *w = make(3, steady);
    w->processes[2].process = 0;
    w->processes[2].instance = other;
    pp_ranks *r = compare(w);
    assert_int_equal(r->n, 2);
    const pp_rank *both = r->ranks[0].process == 0 ? &r->ranks[0] : &r->ranks[1];
    assert_int_equal(both->steps, 2 * STEPS);
    assert_int_equal(both->n_items, 4);
    pp_ranks_free(r);
    free(w);
}

static void test_replays_are_no_training(void **state)
{
    (void)state;
    world *w = make(2, steady);
    for (int i = 0; i < CAPTURES; i++)
        w->batches[i].dwell = 3;
    pp_ranks *r = compare(w);
    assert_int_equal(r->ranks[0].steps + r->ranks[1].steps, STEPS);
    assert_null(r->slowest);
    pp_ranks_free(r);
    free(w);
}

static void test_nothing(void **state)
{
    (void)state;
    world *w = make(0, steady);
    pp_ranks *r = compare(w);
    assert_int_equal(r->n, 0);
    assert_null(r->slowest);
    pp_ranks_free(r);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_rank),
        cmocka_unit_test(test_what_no_layer_has),
        cmocka_unit_test(test_late_in_some_steps),
        cmocka_unit_test(test_captures_that_differ),
        cmocka_unit_test(test_one_short_capture),
        cmocka_unit_test(test_others_of_one_capture),
        cmocka_unit_test(test_steps_on_top_of_each_other),
        cmocka_unit_test(test_too_many_processes),
        cmocka_unit_test(test_nobody_is_slowest),
        cmocka_unit_test(test_nobody_waits),
        cmocka_unit_test(test_communication_beside_work),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_an_agent_that_was_replaced),
        cmocka_unit_test(test_replays_are_no_training),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
