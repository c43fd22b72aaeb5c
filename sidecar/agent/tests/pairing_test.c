#include "sidecar/agent/pairing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { F = PP_MARK_FORWARD, B = PP_MARK_BACKWARD, O = PP_MARK_OPTIMIZER };
enum { BEGIN = PP_MARK_BEGIN, END = PP_MARK_END };

static int feed(pp_pairing *p, pp_mark mark)
{
    pp_error err = {0};
    return pp_pairing_feed(p, &mark, &err);
}

static int work(pp_pairing *p, int64_t time, int kind, int phase, uint32_t layer)
{
    return feed(
        p, (pp_mark){.time = time, .kind = (uint8_t)kind, .phase = (uint8_t)phase, .layer = layer});
}

static int at_step(pp_pairing *p, int kind, int64_t time, int64_t number)
{
    return feed(
        p, (pp_mark){.time = time, .kind = (uint8_t)kind, .value = number, .epoch = 2, .batch = 7});
}

static pp_pairing *started(int64_t time)
{
    pp_pairing *p = pp_pairing_new();
    assert_non_null(p);
    assert_int_equal(at_step(p, PP_MARK_START, time, 10), PP_PAIRING_START);
    return p;
}

static void check(const pp_pairing *p, size_t i, uint32_t layer, int phase, int64_t start,
                  int64_t end)
{
    const pp_step *step = pp_pairing_step(p);
    assert_true(i < step->count);
    assert_int_equal(step->pieces[i].layer, layer);
    assert_int_equal(step->pieces[i].phase, phase);
    assert_int_equal(step->pieces[i].start, start);
    assert_int_equal(step->pieces[i].end, end);
}

/* Whether the call of each piece goes on, as text of - and +. */
static void check_calls(const pp_pairing *p, const char *goes_on)
{
    const pp_step *step = pp_pairing_step(p);
    assert_int_equal(step->count, strlen(goes_on));
    for (size_t i = 0; i < step->count; i++)
        assert_int_equal(step->pieces[i].goes_on, goes_on[i] == '+');
}

static int backward(pp_pairing *p, int64_t time, int kind, uint8_t flags, uint8_t thread)
{
    return feed(p, (pp_mark){.time = time,
                             .kind = (uint8_t)kind,
                             .phase = B,
                             .layer = 1,
                             .flags = flags,
                             .thread = thread});
}

/* A call that goes on behind a sum is one, in each of two threads; a call behind it is another. */
static void test_calls_that_go_on_by_thread(void **state)
{
    (void)state;
    pp_pairing *p = started(100);
    (void)backward(p, 110, BEGIN, 0, 3);
    (void)backward(p, 111, BEGIN, 0, 4);
    (void)backward(p, 120, END, 0, 3);
    (void)backward(p, 121, END, 0, 4);
    (void)backward(p, 130, BEGIN, PP_MARK_RESUMES, 3);
    (void)backward(p, 140, END, 0, 3);
    (void)backward(p, 150, BEGIN, PP_MARK_RESUMES, 4);
    (void)backward(p, 160, END, 0, 4);
    (void)backward(p, 170, BEGIN, 0, 3);
    (void)backward(p, 180, END, 0, 3);
    assert_int_equal(at_step(p, PP_MARK_STEP, 190, 11), PP_PAIRING_STEP);
    check_calls(p, "++---");
    pp_pairing_free(p);
}

static void test_a_step(void **state)
{
    (void)state;
    pp_pairing *p = started(100);
    assert_int_equal(work(p, 110, BEGIN, F, 1), PP_PAIRING_NONE);
    (void)work(p, 120, END, F, 1);
    (void)work(p, 130, BEGIN, B, 1);
    (void)work(p, 150, END, B, 1);
    (void)work(p, 160, BEGIN, O, 0);
    (void)work(p, 170, END, O, 0);
    assert_int_equal(at_step(p, PP_MARK_STEP, 175, 11), PP_PAIRING_STEP);
    const pp_step *step = pp_pairing_step(p);
    assert_int_equal(step->number, 11);
    assert_int_equal(step->start, 100);
    assert_int_equal(step->end, 175);
    assert_int_equal(step->epoch, 2);
    assert_int_equal(step->batch, 7);
    assert_int_equal(step->count, 3);
    check(p, 0, 1, F, 110, 120);
    check(p, 1, 1, B, 130, 150);
    check(p, 2, 0, O, 160, 170);
    assert_int_equal(at_step(p, PP_MARK_STEP, 200, 12), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->start, 175);
    assert_int_equal(pp_pairing_step(p)->count, 0);
    assert_int_equal(at_step(p, PP_MARK_STOP, 200, 12), PP_PAIRING_STOP);
    assert_int_equal(work(p, 210, BEGIN, F, 1), PP_PAIRING_NONE);
    assert_false(pp_pairing_running(p));
    pp_pairing_free(p);
}

static void test_a_begin_without_an_end_vanishes(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, F, 1); /* left by an exception */
    (void)work(p, 20, BEGIN, F, 2);
    (void)work(p, 30, END, F, 2);
    (void)at_step(p, PP_MARK_STEP, 40, 11);
    /* What ran before the inner one is the outer's, as far as anybody knows. */
    assert_int_equal(pp_pairing_step(p)->count, 2);
    check(p, 1, 2, F, 20, 30);
    (void)work(p, 50, END, F, 1); /* nothing of the step before is open */
    (void)at_step(p, PP_MARK_STEP, 60, 12);
    assert_int_equal(pp_pairing_step(p)->count, 0);
    pp_pairing_free(p);
}

static void test_a_layer_that_begins_again(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, F, 1);
    (void)work(p, 20, BEGIN, F, 1); /* the first was left by an exception */
    (void)work(p, 30, END, F, 1);
    (void)at_step(p, PP_MARK_STEP, 40, 11);
    assert_int_equal(pp_pairing_step(p)->count, 1);
    check(p, 0, 1, F, 20, 30);
    pp_pairing_free(p);
}

static void test_the_innermost_wins(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, O, 0); /* a closure inside an optimizer's step */
    (void)work(p, 20, BEGIN, F, 1);
    (void)work(p, 30, END, F, 1);
    (void)work(p, 50, END, O, 0);
    (void)at_step(p, PP_MARK_STEP, 60, 11);
    assert_int_equal(pp_pairing_step(p)->count, 3);
    check(p, 0, 0, O, 10, 20);
    check(p, 1, 1, F, 20, 30);
    check(p, 2, 0, O, 30, 50);
    check_calls(p, "+--");
    pp_pairing_free(p);
}

/* Layer 9 calls 1 and 2; its backward has a stretch before, between and after theirs. */
static void test_a_parent_is_called_once(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, F, 9);
    for (int64_t i = 0; i < 2; i++) {
        (void)work(p, 20 + 20 * i, BEGIN, F, 1 + i);
        (void)work(p, 30 + 20 * i, END, F, 1 + i);
    }
    (void)work(p, 60, END, F, 9);
    for (int64_t i = 0; i < 3; i++) {
        (void)work(p, 100 + 20 * i, BEGIN, B, 9);
        pp_mark end = {.kind = END, .phase = B, .layer = 9, .time = 105 + 20 * i};
        end.flags = i < 2 ? PP_MARK_PAUSES : 0;
        assert_int_equal(feed(p, end), PP_PAIRING_NONE);
        (void)work(p, 107 + 20 * i, BEGIN, B, 3 - i);
        (void)work(p, 115 + 20 * i, END, B, 3 - i);
    }
    (void)at_step(p, PP_MARK_STEP, 200, 11);
    static const int64_t own[][2] = {{10, 20},   {30, 40},   {50, 60},
                                     {100, 105}, {120, 125}, {140, 145}};
    const pp_step *step = pp_pairing_step(p);
    size_t n = 0, calls[2] = {0};
    for (size_t i = 0; i < step->count; i++) {
        const pp_piece *piece = &step->pieces[i];
        if (piece->layer != 9) {
            assert_false(piece->goes_on);
            continue;
        }
        assert_int_equal(piece->start, own[n][0]);
        assert_int_equal(piece->end, own[n][1]);
        calls[piece->phase == B] += !piece->goes_on;
        n++;
    }
    assert_int_equal(n, 6);
    assert_int_equal(calls[0], 1);
    assert_int_equal(calls[1], 1);
    pp_pairing_free(p);
}

static void test_an_end_prolongs_in_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, B, 1);
    (void)work(p, 20, END, B, 1);
    (void)work(p, 25, END, B, 1); /* AccumulateGrad of its bias */
    (void)work(p, 30, END, B, 1); /* and of its weight */
    (void)work(p, 40, BEGIN, B, 2);
    (void)work(p, 50, END, B, 2);
    (void)work(p, 90, END, B, 1); /* something else ran in between */
    (void)work(p, 95, END, B, 2); /* and now it is not the last any more */
    (void)at_step(p, PP_MARK_STEP, 100, 11);
    assert_int_equal(pp_pairing_step(p)->count, 2);
    check(p, 0, 1, B, 10, 30);
    check(p, 1, 2, B, 40, 50);
    pp_pairing_free(p);
}

static void test_two_outputs_are_one_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, B, 1);
    (void)work(p, 15, BEGIN, B, 1);
    (void)work(p, 20, END, B, 1);
    (void)at_step(p, PP_MARK_STEP, 30, 11);
    assert_int_equal(pp_pairing_step(p)->count, 1);
    check(p, 0, 1, B, 10, 20);
    pp_pairing_free(p);
}

static void test_a_backward_that_never_ends(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, B, 1);
    (void)work(p, 40, BEGIN, B, 2); /* nodes run one after the other: 1 is done by now */
    (void)work(p, 60, END, B, 2);
    (void)work(p, 70, BEGIN, B, 3);
    (void)work(p, 80, BEGIN, O, 0); /* 3 has no end, and this is no part of it */
    (void)work(p, 90, END, O, 0);
    (void)at_step(p, PP_MARK_STEP, 100, 11);
    assert_int_equal(pp_pairing_step(p)->count, 3);
    check(p, 0, 1, B, 10, 40);
    check(p, 1, 2, B, 40, 60);
    check(p, 2, 0, O, 80, 90);
    pp_pairing_free(p);
}

static void test_a_forward_inside_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, B, 1);
    (void)work(p, 20, BEGIN, PP_MARK_RECOMPUTE, 2);
    (void)work(p, 30, END, PP_MARK_RECOMPUTE, 2);
    (void)work(p, 40, END, B, 1);
    (void)at_step(p, PP_MARK_STEP, 50, 11);
    assert_int_equal(pp_pairing_step(p)->count, 3);
    check(p, 0, 1, B, 10, 20);
    check(p, 1, 2, PP_MARK_RECOMPUTE, 20, 30);
    check(p, 2, 1, B, 30, 40);
    pp_pairing_free(p);
}

static void test_threads_are_apart(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    pp_mark other = {.time = 20, .kind = BEGIN, .phase = B, .layer = 2, .thread = 9};
    (void)work(p, 10, BEGIN, F, 1);
    (void)feed(p, other);
    other.kind = END;
    other.time = 40;
    (void)work(p, 30, END, F, 1);
    (void)feed(p, other);
    (void)at_step(p, PP_MARK_STEP, 50, 11);
    assert_int_equal(pp_pairing_step(p)->count, 2);
    check(p, 0, 1, F, 10, 30);
    check(p, 1, 2, B, 20, 40);
    pp_pairing_free(p);
}

static int call(pp_pairing *p, int64_t time, int phase, int layer, int flags)
{
    (void)feed(p, (pp_mark){.time = time,
                            .kind = BEGIN,
                            .phase = (uint8_t)phase,
                            .layer = (uint32_t)layer,
                            .flags = (uint8_t)flags});
    return work(p, time + 5, END, phase, layer);
}

/* What a checkpoint calls is run again; what is evaluated in the same step, or is called while it
 * trains and is not run again, is not the training's. */
static void test_forwards_that_record_nothing(void **state)
{
    (void)state;
    enum { N = PP_MARK_INFERENCE };
    pp_pairing *p = started(0);
    (void)call(p, 10, N, 1, 0);              /* evaluated */
    (void)call(p, 20, N, 1, PP_MARK_TRAINS); /* a checkpoint's */
    (void)call(p, 30, N, 2, PP_MARK_TRAINS); /* a rollout's */
    (void)call(p, 40, PP_MARK_RECOMPUTE, 1, 0);
    (void)at_step(p, PP_MARK_STEP, 50, 11);
    const pp_step *s = pp_pairing_step(p);
    assert_int_equal(s->count, 4);
    check(p, 0, 1, N, 10, 15);
    check(p, 1, 1, F, 20, 25);
    check(p, 2, 2, N, 30, 35);
    check(p, 3, 1, PP_MARK_RECOMPUTE, 40, 45);
    pp_pairing_free(p);
}

static int wait_at(pp_pairing *p, int64_t time, uint8_t thread, int count, int64_t ns)
{
    return feed(p, (pp_mark){.time = time,
                             .kind = PP_MARK_WAIT,
                             .phase = PP_WAIT_ITEM,
                             .layer = 7,
                             .thread = thread,
                             .epoch = count,
                             .value = ns});
}

static void check_wait(const pp_pairing *p, size_t i, uint32_t layer, int phase, int count,
                       int64_t ns)
{
    const pp_step *step = pp_pairing_step(p);
    assert_true(i < step->wait_count);
    const pp_wait *w = &step->waits[i];
    assert_true(w->layer == layer && w->phase == phase && w->count == count && w->ns == ns);
    assert_true(w->call == PP_WAIT_ITEM && w->site == 7);
}

/* A wait is of the innermost piece of its thread, and of no other step. */
static void test_waits(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)wait_at(p, 5, 0, 1, 1);
    (void)work(p, 10, BEGIN, F, 1);
    (void)work(p, 20, BEGIN, F, 2);
    (void)wait_at(p, 25, 0, 3, 4);
    (void)wait_at(p, 26, 1, 1, 9); /* of another thread, where nothing is open */
    (void)work(p, 30, END, F, 2);
    (void)wait_at(p, 35, 0, 1, 2);
    (void)work(p, 40, END, F, 1);
    (void)work(p, 50, BEGIN, B, 1);
    (void)work(p, 60, END, B, 1);
    (void)wait_at(p, 62, 0, 1, 3);
    (void)work(p, 65, END, B, 1); /* prolongs it: a wait in between is no work of another layer */
    assert_int_equal(at_step(p, PP_MARK_STEP, 70, 11), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->wait_count, 5);
    check_wait(p, 0, 0, PP_MARK_OTHER, 1, 1);
    check_wait(p, 1, 2, F, 3, 4);
    check_wait(p, 2, 0, PP_MARK_OTHER, 1, 9);
    check_wait(p, 3, 1, F, 1, 2);
    check_wait(p, 4, 0, PP_MARK_OTHER, 1, 3);
    check(p, 3, 1, B, 50, 65);
    (void)wait_at(p, 75, 0, 2, 8);
    assert_int_equal(at_step(p, PP_MARK_STEP, 80, 12), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->wait_count, 1);
    check_wait(p, 0, 0, PP_MARK_OTHER, 2, 8);
    pp_pairing_free(p);
}

/* What a checkpoint waits for in its forward is its forward's. */
static void test_waits_of_a_checkpoint(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)feed(p, (pp_mark){.time = 10,
                            .kind = BEGIN,
                            .phase = PP_MARK_INFERENCE,
                            .flags = PP_MARK_TRAINS,
                            .layer = 1});
    (void)wait_at(p, 12, 0, 1, 1);
    (void)work(p, 15, END, PP_MARK_INFERENCE, 1);
    (void)call(p, 20, PP_MARK_RECOMPUTE, 1, 0);
    (void)at_step(p, PP_MARK_STEP, 50, 11);
    check_wait(p, 0, 1, F, 1, 1);
    pp_pairing_free(p);
}

static void test_losses_break_the_capture(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, F, 1);
    assert_int_equal(feed(p, (pp_mark){.time = 20, .kind = PP_MARK_LOST, .value = 5}),
                     PP_PAIRING_STOP);
    (void)work(p, 30, END, F, 1);
    assert_int_equal(at_step(p, PP_MARK_STEP, 40, 11), PP_PAIRING_START);
    (void)work(p, 50, BEGIN, F, 1);
    (void)work(p, 60, END, F, 1);
    assert_int_equal(at_step(p, PP_MARK_STEP, 70, 12), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->start, 40);
    assert_int_equal(pp_pairing_step(p)->count, 1);
    assert_int_equal(pp_pairing_broken(p), 1);
    pp_pairing_free(p);
}

static void test_impossible_marks_break_the_capture(void **state)
{
    (void)state;
    static const pp_mark bad[] = {
        {.time = 20, .kind = 0},
        {.time = 20, .kind = 200},
        {.time = -1, .kind = BEGIN, .phase = F, .layer = 1},
        {.time = 20, .kind = BEGIN, .phase = PP_MARK_OTHER, .layer = 0},
        {.time = 20, .kind = BEGIN, .phase = PP_MARK_PHASES, .layer = 1},
        {.time = 20, .kind = BEGIN, .phase = PP_MARK_INFERENCE, .layer = 0},
        {.time = 20, .kind = BEGIN, .phase = F, .layer = 0},
        {.time = 20, .kind = BEGIN, .phase = O, .layer = 1},
        {.time = 20, .kind = BEGIN, .phase = PP_MARK_DATA, .layer = 1},
        {.time = 20, .kind = BEGIN, .phase = PP_MARK_RECOMPUTE, .layer = 0},
        {.time = 20, .kind = END, .phase = F, .layer = PP_RING_LAYERS + 1},
        {.time = 20, .kind = PP_MARK_WAIT, .epoch = 0},
        {.time = 20, .kind = PP_MARK_WAIT, .epoch = 1, .value = -1},
        {.time = 20, .kind = PP_MARK_WAIT, .epoch = 1, .value = INT64_MAX},
        {.time = 20, .kind = PP_MARK_WAIT, .epoch = 1, .phase = PP_WAIT_CALLS},
        {.time = 20, .kind = PP_MARK_WAIT, .epoch = 1, .layer = PP_RING_SITES + 1},
        {.time = 20, .kind = PP_MARK_STEP, .value = INT64_MIN},
        {.time = 20, .kind = PP_MARK_STEP, .value = 10}, /* not after the one before */
        {.time = 3, .kind = PP_MARK_STEP, .value = 11},  /* ends before it began */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pp_pairing *p = started(5);
        assert_int_equal(feed(p, bad[i]), PP_PAIRING_STOP);
        assert_false(pp_pairing_running(p));
        pp_pairing_free(p);
    }
}

static int at_dwell(pp_pairing *p, int kind, int64_t time, int64_t number, int flags)
{
    return feed(p, (pp_mark){.time = time,
                             .kind = (uint8_t)kind,
                             .flags = (uint8_t)(PP_MARK_DWELL | flags),
                             .value = number});
}

/* Its start says which it is, and nothing else does. */
static void test_a_dwell(void **state)
{
    (void)state;
    pp_pairing *p = started(100);
    assert_int_equal(pp_pairing_step(p)->dwell, 0);
    assert_int_equal(at_step(p, PP_MARK_STOP, 110, 10), PP_PAIRING_STOP);
    assert_int_equal(at_dwell(p, PP_MARK_START, 120, 3, PP_MARK_BACKGROUND), PP_PAIRING_START);
    (void)work(p, 130, BEGIN, F, 2);
    (void)work(p, 135, END, F, 2);
    assert_int_equal(at_dwell(p, PP_MARK_STEP, 140, 4, PP_MARK_BACKGROUND), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->dwell, 3);
    assert_true(pp_pairing_step(p)->background);
    assert_int_equal(pp_pairing_step(p)->count, 1);
    assert_int_equal(at_dwell(p, PP_MARK_STEP, 150, 5, PP_MARK_BACKGROUND), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->dwell, 3);
    assert_int_equal(feed(p, (pp_mark){.time = 155, .kind = PP_MARK_LOST, .value = 1}),
                     PP_PAIRING_STOP);
    assert_int_equal(at_dwell(p, PP_MARK_STEP, 160, 6, PP_MARK_BACKGROUND), PP_PAIRING_NONE);
    assert_false(pp_pairing_running(p));
    assert_int_equal(at_dwell(p, PP_MARK_START, 170, 4, 0), PP_PAIRING_START);
    assert_int_equal(pp_pairing_step(p)->dwell, 4);
    assert_false(pp_pairing_step(p)->background);
    assert_int_equal(at_step(p, PP_MARK_START, 180, 11), PP_PAIRING_START);
    assert_int_equal(pp_pairing_step(p)->dwell, 0);
    pp_pairing_free(p);
}

static void test_impossible_dwells_are_none(void **state)
{
    (void)state;
    static const int64_t numbers[] = {-1, 0, PP_RING_DWELLS + 1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pp_pairing *p = started(100);
        assert_int_equal(at_dwell(p, PP_MARK_START, 120, numbers[i], 0), PP_PAIRING_STOP);
        assert_false(pp_pairing_running(p));
        pp_pairing_free(p);
    }
}

static void test_pieces_stay_within_their_step(void **state)
{
    (void)state;
    pp_pairing *p = started(100);
    (void)work(p, 50, BEGIN, F, 1); /* another stream of the GPU was behind */
    (void)work(p, 160, END, F, 1);
    (void)at_step(p, PP_MARK_STEP, 150, 11);
    assert_int_equal(pp_pairing_step(p)->count, 1);
    check(p, 0, 1, F, 100, 150);
    pp_pairing_free(p);
}

static void test_too_many_pieces(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    for (int64_t i = 0; i <= PP_PAIRING_MAX_PIECES; i++) {
        (void)work(p, i, BEGIN, F, 1);
        (void)work(p, i, END, F, 1);
    }
    assert_false(pp_pairing_running(p));
    assert_int_equal(pp_pairing_broken(p), 1);
    pp_pairing_free(p);
}

/* Anything at all: it must not crash, and what comes out must be in order. */
static void test_random_marks(void **state)
{
    (void)state;
    srand(11);
    pp_pairing *p = pp_pairing_new();
    for (int i = 0; i < 300000; i++) {
        pp_mark m = {.time = rand() % 100000,
                     .kind = (uint8_t)(1 + rand() % 6),
                     .phase = (uint8_t)(rand() % 7),
                     .layer = (uint32_t)(rand() % 6),
                     .thread = (uint8_t)(rand() % 7),
                     .flags = (uint8_t)(rand() % 2 + (rand() % 4 ? 0 : PP_MARK_RANGE)),
                     .value = i};
        if (m.kind >= PP_MARK_STEP && rand() % 8)
            m.kind = (uint8_t)(BEGIN + rand() % 2);
        m.time = m.kind == PP_MARK_STEP ? i : m.time;
        if (feed(p, m) != PP_PAIRING_STEP)
            continue;
        const pp_step *step = pp_pairing_step(p);
        for (size_t k = 0; k < step->count; k++) {
            assert_true(step->start <= step->pieces[k].start);
            assert_true(step->pieces[k].start <= step->pieces[k].end);
            assert_true(step->pieces[k].end <= step->end);
            assert_true(k == 0 || step->pieces[k - 1].end <= step->pieces[k].end);
        }
    }
    pp_pairing_free(p);
}

/* ---- outside of modules: LOSS and GRADIENTS are their layers ---- */

enum { LOSS = 7, GRADIENTS = 8, R = PP_MARK_RECOMPUTE, I = PP_MARK_INFERENCE };

static void engine(pp_pairing *p, int64_t time, int kind, int flags, int64_t gradients)
{
    assert_int_equal(feed(p, (pp_mark){.time = time,
                                       .kind = (uint8_t)kind,
                                       .phase = B,
                                       .layer = LOSS,
                                       .flags = (uint8_t)(PP_MARK_ENGINE | flags),
                                       .value = gradients}),
                     PP_PAIRING_NONE);
}

static void in_thread(pp_pairing *p, uint8_t thread, int64_t time, int kind, int phase,
                      uint32_t layer)
{
    (void)feed(p, (pp_mark){.time = time,
                            .kind = (uint8_t)kind,
                            .phase = (uint8_t)phase,
                            .layer = layer,
                            .thread = thread});
}

static void flagged(pp_pairing *p, int64_t time, int kind, int phase, int flags, uint32_t layer)
{
    (void)feed(p, (pp_mark){.time = time,
                            .kind = (uint8_t)kind,
                            .phase = (uint8_t)phase,
                            .flags = (uint8_t)flags,
                            .layer = layer});
}

/* A model's forward, whose nodes are hooked for two. */
static void model(pp_pairing *p, int64_t from, int64_t to, uint32_t layer)
{
    flagged(p, from, BEGIN, F, PP_MARK_MODEL, layer);
    (void)work(p, to, END, F, layer);
    flagged(p, to + 2, END, F, PP_MARK_MODEL, layer);
}

/* The pieces of one of them, as text: "F22-50 ", with a + where the call goes on. */
static void check_outside(pp_pairing *p, uint32_t layer, const char *expected)
{
    char text[256] = "";
    const pp_step *step = pp_pairing_step(p);
    for (size_t i = 0; i < step->count; i++) {
        const pp_piece *piece = &step->pieces[i];
        const size_t n = strlen(text);
        if (piece->layer == layer)
            (void)snprintf(text + n, sizeof text - n, "%c%lld-%lld%s ",
                           piece->phase == F ? 'F' : 'B', (long long)piece->start,
                           (long long)piece->end, piece->goes_on ? "+" : "");
    }
    assert_string_equal(text, expected);
}

static void end_outside(pp_pairing *p, int64_t time, const char *loss, const char *gradients)
{
    assert_int_equal(at_step(p, PP_MARK_STEP, time, 11), PP_PAIRING_STEP);
    check_outside(p, LOSS, loss);
    check_outside(p, GRADIENTS, gradients);
    pp_pairing_free(p);
}

/* In the training's thread, as on a CPU, or in the engine's own. */
static void check_backward_in(uint8_t thread)
{
    pp_pairing *p = started(0);
    model(p, 10, 20, 1);
    engine(p, 50, BEGIN, PP_MARK_LOSS, GRADIENTS);
    in_thread(p, thread, 60, BEGIN, B, 2);
    in_thread(p, thread, 70, END, B, 2);
    in_thread(p, thread, 72, BEGIN, B, 1);
    in_thread(p, thread, 80, END, B, 1);
    in_thread(p, thread, 84, END, B, 1);
    engine(p, 90, END, 0, 0);
    (void)work(p, 95, BEGIN, O, 0);
    (void)work(p, 99, END, O, 0);
    assert_int_equal(at_step(p, PP_MARK_STEP, 100, 11), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->count, 8);
    check(p, 0, 1, F, 10, 20);
    check(p, 1, LOSS, F, 22, 50);
    check(p, 2, LOSS, B, 50, 60);
    check(p, 3, 2, B, 60, 70);
    check(p, 4, GRADIENTS, B, 70, 72);
    check(p, 5, 1, B, 72, 84);
    check(p, 6, GRADIENTS, B, 84, 90);
    check(p, 7, 0, O, 95, 99);
    check_calls(p, "----+---");
    /* What is the engine's is of whichever thread ran backward. */
    const pp_step *step = pp_pairing_step(p);
    for (size_t i = 0; i < step->count; i++)
        assert_int_equal(step->pieces[i].thread, i == 3 || i == 5 ? thread : PP_THREAD_UNKNOWN);
    for (unsigned i = 0; i < 256; i++)
        assert_int_equal(step->engine[i / 64] >> i % 64 & 1, i == 0 || i == thread);
    pp_pairing_free(p);
}

static void test_a_loss_and_its_gradients(void **state)
{
    (void)state;
    check_backward_in(0);
    check_backward_in(1);
    check_backward_in(200);
}

static void test_a_loss_is_cut(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    model(p, 10, 20, 1);
    (void)work(p, 30, BEGIN, F, 3); /* a loss's module */
    (void)work(p, 35, END, F, 3);
    (void)work(p, 40, BEGIN, PP_MARK_ZERO_GRAD, 0);
    (void)work(p, 45, END, PP_MARK_ZERO_GRAD, 0);
    engine(p, 50, BEGIN, PP_MARK_LOSS, GRADIENTS);
    flagged(p, 60, BEGIN, R, PP_MARK_AGAIN, 4); /* it is a checkpoint's, too */
    (void)work(p, 70, END, R, 4);
    (void)work(p, 80, BEGIN, B, 1);
    (void)work(p, 85, END, B, 1);
    engine(p, 85, END, 0, 0);
    end_outside(p, 100, "F22-30+ F35-40+ F45-50 B50-60+ B70-80 ", "");
}

static void test_what_leads_to_another_model_is_no_loss(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    model(p, 10, 20, 1);
    model(p, 30, 40, 2);
    (void)work(p, 50, BEGIN, I, 5);
    (void)work(p, 60, END, I, 5);
    engine(p, 70, BEGIN, PP_MARK_LOSS, 0);
    (void)work(p, 80, BEGIN, B, 2);
    (void)work(p, 85, END, B, 2);
    engine(p, 90, END, 0, 0);
    model(p, 100, 110, 1); /* and what no backward follows is none */
    (void)work(p, 120, BEGIN, O, 0);
    (void)work(p, 130, END, O, 0);
    engine(p, 140, BEGIN, PP_MARK_LOSS, GRADIENTS);
    engine(p, 150, END, 0, 0);
    end_outside(p, 200, "F42-50+ F60-70 B70-80 ", "");
}

/* One that backward runs again, and whose nodes are made then. */
static void test_what_leads_to_a_checkpoint_is_no_loss(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    model(p, 10, 20, 1);
    flagged(p, 30, BEGIN, I, PP_MARK_MODEL | PP_MARK_TRAINS, 2);
    (void)work(p, 40, END, I, 2);
    engine(p, 50, BEGIN, PP_MARK_LOSS, GRADIENTS);
    (void)work(p, 60, BEGIN, R, 2);
    (void)work(p, 70, END, R, 2);
    engine(p, 80, END, 0, 0);
    end_outside(p, 100, "F40-50 ", "");
}

/* Another thread's forward: what runs beside it may be its work. */
static void test_what_runs_beside_a_piece_is_not_told(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    model(p, 10, 20, 1);
    in_thread(p, 3, 25, BEGIN, I, 5);
    engine(p, 30, BEGIN, PP_MARK_LOSS, GRADIENTS);
    (void)work(p, 40, BEGIN, B, 1);
    (void)work(p, 50, END, B, 1);
    engine(p, 70, END, 0, 0);
    in_thread(p, 3, 80, END, I, 5);
    end_outside(p, 100, "F22-30 ", "");
}

static void test_a_loss_in_the_model(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    model(p, 10, 20, 1);
    engine(p, 50, BEGIN, 0, GRADIENTS);
    (void)work(p, 60, BEGIN, B, 1);
    (void)work(p, 70, END, B, 1);
    engine(p, 90, END, 0, 0);
    end_outside(p, 100, "", "B70-90 ");
}

static void test_a_backward_of_no_layer_is_not_told(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    engine(p, 10, BEGIN, PP_MARK_LOSS, GRADIENTS);
    engine(p, 20, END, 0, 0);
    engine(p, 30, BEGIN, PP_MARK_LOSS, GRADIENTS);
    (void)work(p, 40, BEGIN, B, 1); /* ends in an exception */
    engine(p, 50, END, 0, 0);
    in_thread(p, 1, 52, BEGIN, B, 2); /* of another capture's beginning */
    in_thread(p, 1, 54, END, B, 2);
    engine(p, 56, END, 0, 0);
    end_outside(p, 100, "B30-40 ", "");
}

/* With use_reentrant=True: what of it is run again outside of modules nobody says. */
static void test_a_backward_within_a_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    engine(p, 10, BEGIN, 0, GRADIENTS);
    (void)work(p, 20, BEGIN, B, 3);
    (void)work(p, 30, END, B, 3);
    (void)work(p, 40, BEGIN, R, 1);
    (void)work(p, 50, END, R, 1);
    engine(p, 60, BEGIN, 0, GRADIENTS);
    (void)work(p, 70, BEGIN, B, 1);
    (void)work(p, 80, END, B, 1);
    engine(p, 90, END, 0, 0);
    (void)work(p, 95, BEGIN, B, 2);
    (void)work(p, 96, END, B, 2);
    engine(p, 99, END, 0, 0);
    end_outside(p, 100, "", "B90-95+ B96-99 ");
}

/* Nothing that tells is run again in it. */
static void test_a_backward_of_functions_within_a_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    engine(p, 10, BEGIN, 0, GRADIENTS);
    (void)work(p, 20, BEGIN, B, 3);
    (void)work(p, 30, END, B, 3);
    engine(p, 40, BEGIN, 0, GRADIENTS);
    (void)work(p, 50, BEGIN, B, 1);
    (void)work(p, 60, END, B, 1);
    engine(p, 70, END, 0, 0);
    engine(p, 80, END, 0, 0);
    end_outside(p, 100, "", "B70-80 ");
}

/* In the engine's thread, where nothing else tells that it is over. */
static void test_a_layer_without_an_end_ends_with_its_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    engine(p, 10, BEGIN, 0, GRADIENTS);
    in_thread(p, 1, 20, BEGIN, B, 2);
    engine(p, 30, END, 0, 0);
    model(p, 40, 50, 1);
    engine(p, 60, BEGIN, PP_MARK_LOSS, GRADIENTS);
    in_thread(p, 1, 70, BEGIN, B, 1);
    in_thread(p, 1, 80, END, B, 1);
    engine(p, 90, END, 0, 0);
    assert_int_equal(at_step(p, PP_MARK_STEP, 100, 11), PP_PAIRING_STEP);
    check_outside(p, 2, "");
    check_outside(p, LOSS, "F52-60 B60-70 ");
    check_outside(p, GRADIENTS, "B80-90 ");
    pp_pairing_free(p);
}

/* An optimizer for each parameter: the step ends there. */
static void test_a_step_that_ends_within_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    engine(p, 10, BEGIN, 0, GRADIENTS);
    (void)work(p, 20, BEGIN, B, 1);
    (void)work(p, 30, END, B, 1);
    (void)work(p, 40, BEGIN, O, 0);
    (void)work(p, 50, END, O, 0);
    assert_int_equal(at_step(p, PP_MARK_STEP, 60, 11), PP_PAIRING_STEP);
    check_outside(p, GRADIENTS, "B30-40 ");
    engine(p, 70, END, 0, 0);
    assert_int_equal(at_step(p, PP_MARK_STEP, 80, 12), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->count, 0);
    pp_pairing_free(p);
}

static void test_a_loss_of_too_many_parts(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    model(p, 10, 20, 1);
    for (int i = 0; i < 20; i++) {
        (void)work(p, 30 + 2 * i, BEGIN, F, 3);
        (void)work(p, 31 + 2 * i, END, F, 3);
    }
    engine(p, 90, BEGIN, PP_MARK_LOSS, GRADIENTS);
    (void)work(p, 95, BEGIN, B, 1);
    (void)work(p, 96, END, B, 1);
    engine(p, 96, END, 0, 0);
    end_outside(p, 100, "B90-95 ", "");
}

/* A range around a model, of which another's work is a part, and one in its loss. */
static void test_ranges_in_a_loss(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    flagged(p, 5, BEGIN, F, PP_MARK_RANGE, 9);
    model(p, 10, 20, 1);
    flagged(p, 30, END, F, PP_MARK_RANGE, 9);
    flagged(p, 35, BEGIN, F, PP_MARK_RANGE, 10);
    flagged(p, 40, END, F, PP_MARK_RANGE, 10);
    engine(p, 50, BEGIN, PP_MARK_LOSS, GRADIENTS);
    flagged(p, 60, BEGIN, B, PP_MARK_RANGE, 10); /* is no layer's backward yet */
    flagged(p, 65, END, B, PP_MARK_RANGE, 10);
    (void)work(p, 70, BEGIN, B, 1);
    (void)work(p, 80, END, B, 1);
    engine(p, 90, END, 0, 0);
    assert_int_equal(at_step(p, PP_MARK_STEP, 100, 11), PP_PAIRING_STEP);
    check_outside(p, 9, "F5-10+ F20-30 ");
    check_outside(p, 10, "F35-40 B60-65 ");
    check_outside(p, LOSS, "F30-35+ F40-50 B50-60+ B65-70 ");
    check_outside(p, GRADIENTS, "B80-90 ");
    pp_pairing_free(p);
}

/* The program ends one within another, and within a module; its own time has ended before. */
static void test_ranges_that_do_not_nest(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    flagged(p, 10, BEGIN, F, PP_MARK_RANGE, 9);
    flagged(p, 20, BEGIN, F, PP_MARK_RANGE, 10);
    flagged(p, 30, END, F, PP_MARK_RANGE, 9);
    (void)work(p, 40, BEGIN, F, 1);
    flagged(p, 50, END, F, PP_MARK_RANGE, 10);
    (void)work(p, 60, END, F, 1);
    assert_int_equal(at_step(p, PP_MARK_STEP, 100, 11), PP_PAIRING_STEP);
    check_outside(p, 9, "F10-20+ F20-20 ");
    check_outside(p, 10, "F20-40+ F40-40 ");
    check_outside(p, 1, "F40-60 ");
    pp_pairing_free(p);
}

/* As a compiler does, in the backward of what it compiles. */
static void test_a_range_within_backward(void **state)
{
    (void)state;
    pp_pairing *p = started(0);
    (void)work(p, 10, BEGIN, B, 1);
    flagged(p, 20, BEGIN, F, PP_MARK_RANGE, 9);
    flagged(p, 30, END, F, PP_MARK_RANGE, 9);
    (void)work(p, 40, END, B, 1);
    assert_int_equal(at_step(p, PP_MARK_STEP, 100, 11), PP_PAIRING_STEP);
    check_outside(p, 9, "F20-30 ");
    check_outside(p, 1, "B10-20+ B30-40 ");
    pp_pairing_free(p);
}

static int allocated(pp_pairing *p, int64_t time, int64_t bytes, int64_t peak)
{
    return feed(p, (pp_mark){.time = time, .kind = PP_MARK_MEMORY, .value = bytes, .peak = peak});
}

/* A step that is there for what it allocates has that, and the next one is as ever. */
static void test_levels(void **state)
{
    (void)state;
    pp_pairing *p = started(100);
    assert_int_equal(
        feed(p, (pp_mark){.time = 100, .kind = PP_MARK_START, .flags = PP_MARK_STEP_MEMORY}),
        PP_PAIRING_START);
    (void)work(p, 110, BEGIN, F, 1);
    (void)work(p, 120, END, F, 1);
    assert_int_equal(allocated(p, 110, 5, 1000), PP_PAIRING_NONE);
    assert_int_equal(allocated(p, 120, 9, 9), PP_PAIRING_NONE);
    assert_int_equal(feed(p, (pp_mark){.time = 130,
                                       .kind = PP_MARK_STEP,
                                       .flags = PP_MARK_STEP_MEMORY,
                                       .value = 11}),
                     PP_PAIRING_STEP);
    const pp_step *step = pp_pairing_step(p);
    assert_true(step->memory && step->count == 1 && step->level_count == 2);
    assert_true(step->levels[0].time == 110 && step->levels[0].bytes == 5);
    assert_int_equal(step->levels[0].peak, 1000);
    assert_int_equal(at_step(p, PP_MARK_START, 130, 11), PP_PAIRING_START);
    assert_int_equal(at_step(p, PP_MARK_STEP, 140, 12), PP_PAIRING_STEP);
    assert_true(!pp_pairing_step(p)->memory && pp_pairing_step(p)->level_count == 0);
    pp_pairing_free(p);
}

/* Levels out of order, of other steps, or less at most than at their begin. */
static void test_impossible_levels(void **state)
{
    (void)state;
    static const int64_t bad[][3] = {{99, 5, 5}, {150, 5, 4}, {150, -1, 5}, {150, 5, INT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pp_pairing *p = pp_pairing_new();
        (void)feed(p, (pp_mark){.time = 100, .kind = PP_MARK_START, .flags = PP_MARK_STEP_MEMORY});
        (void)allocated(p, 120, 5, 5);
        assert_int_equal(allocated(p, bad[i][0], bad[i][1], bad[i][2]), PP_PAIRING_STOP);
        /* its end begins no capture: the times that follow have a start of their own */
        assert_int_equal(feed(p, (pp_mark){.time = 130,
                                           .kind = PP_MARK_STEP,
                                           .flags = PP_MARK_STEP_MEMORY,
                                           .value = 11}),
                         PP_PAIRING_NONE);
        pp_pairing_free(p);
    }
    pp_pairing *p = started(100);
    assert_int_equal(allocated(p, 120, 5, 5), PP_PAIRING_STOP);
    pp_pairing_free(p);
}

/* They are of their step; what is impossible breaks the capture. */
static void test_runs_of_graphs(void **state)
{
    (void)state;
    pp_pairing *p = started(100);
    const pp_mark run = {.time = 130, .kind = PP_MARK_GRAPH, .layer = 7, .value = 20, .thread = 3};
    assert_int_equal(feed(p, run), PP_PAIRING_NONE);
    assert_int_equal(at_step(p, PP_MARK_STEP, 200, 11), PP_PAIRING_STEP);
    const pp_step *step = pp_pairing_step(p);
    assert_true(step->run_count == 1 && step->count == 0);
    assert_true(step->runs[0].start == 110 && step->runs[0].end == 130);
    assert_true(step->runs[0].graph == 7 && step->runs[0].thread == 3);
    assert_int_equal(at_step(p, PP_MARK_STEP, 300, 12), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->run_count, 0);
    pp_mark wrong = run;
    wrong.value = 131;
    assert_int_equal(feed(p, wrong), PP_PAIRING_STOP);
    for (int i = 0; i <= PP_PAIRING_MAX_RUNS; i++)
        assert_int_equal(feed(p, run), PP_PAIRING_NONE);
    pp_pairing_free(p);
    p = started(100);
    for (int i = 0; i <= PP_PAIRING_MAX_RUNS; i++)
        assert_int_equal(feed(p, run), PP_PAIRING_NONE);
    assert_int_equal(at_step(p, PP_MARK_STEP, 200, 11), PP_PAIRING_STEP);
    assert_int_equal(pp_pairing_step(p)->run_count, PP_PAIRING_MAX_RUNS);
    pp_pairing_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_runs_of_graphs),
        cmocka_unit_test(test_impossible_levels),
        cmocka_unit_test(test_calls_that_go_on_by_thread),
        cmocka_unit_test(test_a_step),
        cmocka_unit_test(test_a_begin_without_an_end_vanishes),
        cmocka_unit_test(test_a_layer_that_begins_again),
        cmocka_unit_test(test_the_innermost_wins),
        cmocka_unit_test(test_a_parent_is_called_once),
        cmocka_unit_test(test_an_end_prolongs_in_backward),
        cmocka_unit_test(test_two_outputs_are_one_backward),
        cmocka_unit_test(test_a_backward_that_never_ends),
        cmocka_unit_test(test_a_forward_inside_backward),
        cmocka_unit_test(test_threads_are_apart),
        cmocka_unit_test(test_forwards_that_record_nothing),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_waits_of_a_checkpoint),
        cmocka_unit_test(test_losses_break_the_capture),
        cmocka_unit_test(test_impossible_marks_break_the_capture),
        cmocka_unit_test(test_a_dwell),
        cmocka_unit_test(test_impossible_dwells_are_none),
        cmocka_unit_test(test_pieces_stay_within_their_step),
        cmocka_unit_test(test_too_many_pieces),
        cmocka_unit_test(test_random_marks),
        cmocka_unit_test(test_a_loss_and_its_gradients),
        cmocka_unit_test(test_a_loss_is_cut),
        cmocka_unit_test(test_what_leads_to_another_model_is_no_loss),
        cmocka_unit_test(test_what_leads_to_a_checkpoint_is_no_loss),
        cmocka_unit_test(test_what_runs_beside_a_piece_is_not_told),
        cmocka_unit_test(test_a_loss_in_the_model),
        cmocka_unit_test(test_a_backward_of_no_layer_is_not_told),
        cmocka_unit_test(test_a_backward_within_a_backward),
        cmocka_unit_test(test_a_backward_of_functions_within_a_backward),
        cmocka_unit_test(test_a_layer_without_an_end_ends_with_its_backward),
        cmocka_unit_test(test_a_step_that_ends_within_backward),
        cmocka_unit_test(test_a_loss_of_too_many_parts),
        cmocka_unit_test(test_ranges_in_a_loss),
        cmocka_unit_test(test_ranges_that_do_not_nest),
        cmocka_unit_test(test_a_range_within_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
