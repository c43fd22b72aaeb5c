/* Steps on the host's clock and kernels go in, steps in the GPU's time come out. */
#include "sidecar/agent/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { F = PP_MARK_FORWARD, B = PP_MARK_BACKWARD, OTHER = PP_MARK_OTHER };

#define LATER INT64_C(6000000000) /* past what a step waits for */

static void kernel(pp_kernels *k, int64_t launched, int64_t start, int64_t duration, uint32_t flags)
{
    pp_error err = {0};
    pp_kernel one = {
        .launched = launched, .start = start, .flags = flags, .shape = (uint64_t)launched * 3};
    pp_kernel_set_duration(&one, duration);
    assert_int_equal(pp_kernels_add(k, &one, &err), 0);
}

static void step(pp_kernels *k, int64_t number, int64_t start, int64_t end, pp_piece *pieces,
                 size_t count)
{
    pp_error err = {0};
    pp_step s = {.number = number,
                 .start = start,
                 .end = end,
                 .gap = -1,
                 .kernels = true,
                 .pieces = pieces,
                 .count = count};
    assert_int_equal(pp_kernels_queue(k, PP_PAIRING_STEP, &s, &err), 0);
}

static void event(pp_kernels *k, pp_pairing_event what, int64_t time)
{
    pp_error err = {0};
    pp_step s = {.start = time, .end = time, .gap = -1, .kernels = true};
    assert_int_equal(pp_kernels_queue(k, what, &s, &err), 0);
}

static int next(pp_kernels *k, const pp_step **ret)
{
    pp_error err = {0};
    return pp_kernels_next(k, ret, &err);
}

static pp_piece piece(uint32_t layer, uint8_t phase, int64_t start, int64_t end)
{
    return (pp_piece){.layer = layer, .phase = phase, .start = start, .end = end, .busy = -1};
}

static void check(const pp_step *s, size_t i, uint32_t layer, uint8_t phase, int64_t start,
                  int64_t end, int64_t busy)
{
    assert_true(i < s->count);
    assert_int_equal(s->pieces[i].layer, layer);
    assert_int_equal(s->pieces[i].phase, phase);
    assert_int_equal(s->pieces[i].start, start);
    assert_int_equal(s->pieces[i].end, end);
    assert_int_equal(s->pieces[i].busy, busy);
}

/* A capture whose time line is set: the step from 0 to 1000 has been passed, its work ended at
 * 1500 on the GPU. */
static pp_kernels *started(void)
{
    const pp_step *s = NULL;
    pp_kernels *k = pp_kernels_new();
    event(k, PP_PAIRING_START, 0);
    step(k, 1, 0, 1000, NULL, 0);
    kernel(k, 900, 1100, 400, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE); /* more may have been launched before 1000 */
    kernel(k, 1000 + LATER, 1000 + LATER, 1, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_int_equal(s->end, 1500);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    return k;
}

static void test_the_gpu_behind_the_host(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_piece pieces[] = {piece(1, F, 1010, 1030), piece(2, F, 1030, 1040), piece(1, B, 1050, 1060)};
    step(k, 2, 1000, 1100, pieces, 3);
    kernel(k, 1055, 2500, 300, 0); /* in any order */
    kernel(k, 1012, 1500, 500, 0);
    kernel(k, 1020, 2010, 90, 0);
    kernel(k, 1030, 2100, 100, 0);
    kernel(k, 1045, 2200, 300, 0); /* between layers */
    kernel(k, 1090, 2850, 50, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->number, 2);
    assert_int_equal(s->start, 1500);
    assert_int_equal(s->end, 2900);
    assert_int_equal(s->count, 5);
    check(s, 0, 1, F, 1500, 2100, 590);
    check(s, 1, 2, F, 2100, 2200, 100);
    check(s, 2, 0, OTHER, 2200, 2500, 300);
    check(s, 3, 1, B, 2500, 2800, 300);
    check(s, 4, 0, OTHER, 2800, 2900, 50);
    assert_int_equal(s->gap, 60);
    assert_int_equal(pp_kernels_what_is_missing(k).late, 0);
    pp_kernels_free(k);
}

/* A GPU that waits for its launches: pieces are as long as the host's, the GPU is busy in a part.
 */
static void test_the_host_behind_the_gpu(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_piece pieces[] = {piece(1, F, 3000, 3100), piece(2, F, 3100, 3200)};
    step(k, 2, 1000, 4000, pieces, 2);
    kernel(k, 3050, 3060, 10, 0);
    kernel(k, 3150, 3160, 10, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    check(s, 0, 1, F, 3000, 3100, 10);
    check(s, 1, 2, F, 3100, 3200, 10);
    assert_int_equal(s->start, 1500);
    assert_int_equal(s->end, 4000);
    assert_int_equal(s->gap, 2480);
    pp_kernels_free(k);
}

typedef struct told {
    pp_kernels_placed kernels[8];
    size_t n;
} told;

static void on_placed(void *user, const pp_kernels_placed *kernel)
{
    told *t = user;
    assert_true(t->n < 8);
    t->kernels[t->n++] = *kernel;
}

/* Not those of the step that only sets the time line. */
static void test_where_each_kernel_is(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    told t = {.n = 0};
    pp_kernels *k = pp_kernels_new();
    pp_kernels_watch(k, on_placed, &t);
    event(k, PP_PAIRING_START, 0);
    step(k, 1, 0, 1000, NULL, 0);
    kernel(k, 900, 1100, 400, 0);
    pp_piece pieces[] = {piece(7, F, 1010, 1100)};
    step(k, 2, 1000, 1200, pieces, 1);
    kernel(k, 1020, 1500, 500, 3 << PP_KERNEL_NAME_SHIFT);
    kernel(k, 1030, 1700, 900, PP_KERNEL_COLLECTIVE | 4095U << PP_KERNEL_NAME_SHIFT);
    kernel(k, 1150, 2000, 0, 0);
    kernel(k, 1200 + LATER, 1200 + LATER, 1, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_int_equal(t.n, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    static const pp_kernels_placed expected[] = {
        {.start = 1500, .end = 2000, .step = 2, .layer = 7, .phase = F, .name = 3},
        {.start = 1700, .end = 2600, .step = 2, .phase = PP_MARK_COMMUNICATION, .name = 4095},
        {.start = 2000, .end = 2000, .step = 2, .phase = OTHER}};
    static const uint64_t shapes[] = {3060, 3090, 3450};
    assert_int_equal(t.n, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(t.kernels[i].start, expected[i].start);
        assert_int_equal(t.kernels[i].end, expected[i].end);
        assert_int_equal(t.kernels[i].step, expected[i].step);
        assert_int_equal(t.kernels[i].layer, expected[i].layer);
        assert_int_equal(t.kernels[i].phase, expected[i].phase);
        assert_int_equal(t.kernels[i].name, expected[i].name);
        assert_int_equal(t.kernels[i].shape, shapes[i]);
    }
    pp_kernels_free(k);
}

static void copy(pp_kernels *k, int64_t launched, int64_t start, int64_t duration, uint32_t flags,
                 uint64_t bytes)
{
    pp_error err = {0};
    pp_kernel one = {
        .launched = launched, .start = start, .flags = PP_KERNEL_COPY | flags, .bytes = bytes};
    pp_kernel_set_duration(&one, duration);
    assert_int_equal(pp_kernels_add(k, &one, &err), 0);
}

/* Each is told where it was launched; the step, its pieces and its gap are as without. */
static void test_copies_are_no_kernels(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    told t = {.n = 0};
    pp_kernels *k = started();
    pp_kernels_watch(k, on_placed, &t);
    pp_piece pieces[] = {piece(7, F, 1010, 1100)};
    step(k, 2, 1000, 1200, pieces, 1);
    kernel(k, 1020, 1500, 500, 0);
    copy(k, 1050, 2000, 300, PP_COPY_FILL << PP_KERNEL_COPY_SHIFT, 4096);
    copy(k, 1150, 2300, 900,
         PP_COPY_D2H << PP_KERNEL_COPY_SHIFT | PP_COPY_PINNED << PP_KERNEL_MEMORY_SHIFT, 12);
    copy(k, 1160, 2300, 1, 7 << PP_KERNEL_COPY_SHIFT | 3 << PP_KERNEL_MEMORY_SHIFT, UINT64_MAX);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->count, 1);
    check(s, 0, 7, F, 1500, 2000, 500);
    assert_true(s->end == 2000 && s->gap == 0);
    assert_int_equal(t.n, 4);
    assert_false(t.kernels[0].copy);
    const pp_kernels_placed *fill = &t.kernels[1], *to_host = &t.kernels[2], *odd = &t.kernels[3];
    assert_true(fill->copy && fill->layer == 7 && fill->phase == F && fill->step == 2);
    assert_true(fill->type == PP_COPY_FILL && fill->memory == PP_COPY_UNKNOWN);
    assert_true(fill->bytes == 4096 && fill->start == 2000 && fill->end == 2300);
    assert_true(to_host->layer == 0 && to_host->phase == OTHER && to_host->bytes == 12);
    assert_true(to_host->type == PP_COPY_D2H && to_host->memory == PP_COPY_PINNED);
    assert_true(odd->type == PP_COPY_OTHER && odd->memory == PP_COPY_UNKNOWN && odd->bytes == 0);
    copy(k, 1100, 3000, 1, 0, 1); /* late */
    step(k, 3, 1200, 2 * LATER, NULL, 0);
    copy(k, 3 * LATER, 3 * LATER, 1, 0, 1); /* shows nothing of kernels */
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    kernel(k, 3 * LATER, 3 * LATER, 1, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(pp_kernels_what_is_missing(k).late, 0);
    pp_kernels_free(k);
}

/* Of minutes and of days: the ring has their times to far less than a millionth, and their other
 * flags as they are. */
static void test_long_kernels_and_copies(void **state)
{
    (void)state;
    static const int64_t durations[] = {UINT32_MAX, INT64_C(1) + UINT32_MAX, INT64_C(60000000001),
                                        INT64_C(86400000000000)};
    const uint32_t of_kernel = PP_KERNEL_COLLECTIVE | 4095U << PP_KERNEL_NAME_SHIFT;
    for (size_t i = 0; i < 4; i++) {
        const pp_step *s = NULL;
        told t = {.n = 0};
        pp_kernels *k = started();
        pp_kernels_watch(k, on_placed, &t);
        step(k, 2, 1000, 1200, NULL, 0);
        kernel(k, 1020, 1500, durations[i], of_kernel);
        copy(k, 1030, 1500, durations[i],
             PP_COPY_D2H << PP_KERNEL_COPY_SHIFT | PP_COPY_PINNED << PP_KERNEL_MEMORY_SHIFT, 12);
        kernel(k, 1040, 1500, durations[i] + 1, 0);
        assert_int_equal(next(k, &s), PP_PAIRING_STEP);
        assert_int_equal(t.n, 3);
        for (size_t j = 0; j < t.n; j++) {
            const int64_t lacks = durations[i] + 1 - (t.kernels[j].end - t.kernels[j].start);
            assert_true(lacks >= 0 && lacks <= 1 + durations[i] / 1000000000);
        }
        assert_true(t.kernels[0].name == 4095 && t.kernels[0].phase == PP_MARK_COMMUNICATION);
        assert_true(t.kernels[1].type == PP_COPY_D2H && t.kernels[1].memory == PP_COPY_PINNED);
        assert_true(t.kernels[2].name == 0 && t.kernels[2].phase == OTHER);
        assert_true(s->gap == 0 && s->end == t.kernels[2].end);
        pp_kernels_free(k);
    }
}

static void test_collectives_run_beside(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_piece pieces[] = {piece(1, B, 1010, 1100)};
    step(k, 2, 1000, 1200, pieces, 1);
    kernel(k, 1020, 1500, 500, 0);
    kernel(k, 1030, 1700, 900, PP_KERNEL_COLLECTIVE);
    kernel(k, 1040, 2000, 200, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->count, 2);
    assert_int_equal(s->end, 2200); /* what goes on is cut there */
    for (size_t i = 0; i < 2; i++) {
        bool ours = s->pieces[i].layer == 1;
        check(s, i, ours, ours ? B : PP_MARK_COMMUNICATION, ours ? 1500 : 1700, 2200,
              ours ? 700 : 500);
    }
    assert_int_equal(s->gap, 0);
    pp_kernels_free(k);
}

static void test_two_threads_and_streams(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_piece pieces[] = {piece(1, F, 1010, 1100), piece(2, F, 1050, 1060)};
    step(k, 2, 1000, 1200, pieces, 2);
    kernel(k, 1020, 1600, 500, 0);
    kernel(k, 1055, 1700, 600, 0); /* in the piece that began last; beside the other's kernel */
    kernel(k, 1070, 1650, 100, 0); /* within the first one's own */
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->count, 2);
    check(s, 0, 1, F, 1500, 2300, 500);
    check(s, 1, 2, F, 1700, 2300, 600);
    assert_int_equal(s->gap, 100);
    pp_kernels_free(k);
}

/* ---- several GPUs ---- */

static uint32_t on(unsigned gpu, unsigned thread)
{
    return gpu << PP_KERNEL_DEVICE_SHIFT | thread << PP_KERNEL_THREAD_SHIFT;
}

static pp_piece in_thread(pp_piece p, uint8_t thread, bool goes_on)
{
    p.thread = thread;
    p.goes_on = goes_on;
    return p;
}

/* A capture on two GPUs, whose time lines are at 1500 and 1800. */
static pp_kernels *started_on_two(void)
{
    const pp_step *s = NULL;
    pp_kernels *k = pp_kernels_new();
    event(k, PP_PAIRING_START, 0);
    step(k, 1, 0, 1000, NULL, 0);
    kernel(k, 900, 1100, 400, on(0, 1));
    kernel(k, 950, 1200, 600, on(1, 1));
    kernel(k, 1000 + LATER, 1000 + LATER, 1, on(0, 1));
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_true(s->gpu == 0 && s->end == 1500);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_true(s->gpu == 1 && s->end == 1800);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    return k;
}

/* A layer is on the GPU that ran it, a parent on both, one without kernels where it was last; a
 * call whose last piece is elsewhere ends with what there is of it. */
static void test_layers_of_two_gpus(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    told t = {.n = 0};
    pp_kernels *k = started_on_two();
    pp_kernels_watch(k, on_placed, &t);
    pp_piece pieces[] = {in_thread(piece(9, F, 1010, 1020), 1, true),
                         in_thread(piece(1, F, 1020, 1030), 1, false),
                         in_thread(piece(2, F, 1030, 1040), 1, false),
                         in_thread(piece(9, F, 1040, 1050), 1, false),
                         in_thread(piece(3, F, 1050, 1060), 1, false),
                         in_thread(piece(0, PP_MARK_DATA, 1070, 1080), 1, false)};
    step(k, 2, 1000, 1100, pieces, 6);
    kernel(k, 1015, 1500, 10, on(0, 1));
    kernel(k, 1025, 1510, 100, on(0, 1));
    kernel(k, 1035, 1800, 200, on(1, 1));
    kernel(k, 1045, 2000, 20, on(1, 1));
    kernel(k, 1090, 2020, 30, on(1, 1));
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_true(s->gpu == 0 && s->first && s->start == 1500 && s->end == 1610 && s->gap == 0);
    assert_int_equal(s->count, 4);
    check(s, 0, 9, F, 1500, 1510, 10);
    check(s, 1, 1, F, 1510, 1610, 100);
    assert_false(s->pieces[0].goes_on);
    assert_true(s->pieces[2].layer == 3 || s->pieces[3].layer == 3);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_true(s->gpu == 1 && !s->first && s->start == 1800 && s->end == 2050 && s->gap == 0);
    assert_int_equal(s->count, 4);
    check(s, 0, 2, F, 1800, 2000, 200);
    check(s, 1, 9, F, 2000, 2020, 20);
    check(s, 2, 0, PP_MARK_DATA, 2020, 2020, 0);
    check(s, 3, 0, OTHER, 2020, 2050, 30);
    assert_int_equal(t.n, 5);
    assert_true(t.kernels[1].gpu == 0 && t.kernels[1].layer == 1);
    assert_true(t.kernels[2].gpu == 1 && t.kernels[2].layer == 2);
    pp_piece again[] = {in_thread(piece(2, B, 1120, 1130), 1, false),
                        in_thread(piece(2, F, 1140, 1150), 1, false)};
    step(k, 3, 1100, 1200, again, 2);
    kernel(k, 1125, 2100, 10, on(1, 1));
    kernel(k, 1190, 2100, 10, on(0, 1));
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_true(s->gpu == 0 && s->count == 1 && s->pieces[0].phase == OTHER);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->count, 2);
    event(k, PP_PAIRING_STOP, 1200);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(s->gpu, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(s->gpu, 1);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    pp_kernels_free(k);
}

/* Autograd runs each GPU's backward in a thread of its own, and sums gradients in either. A thread
 * that made no mark is in no piece. */
static void test_threads_at_once(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started_on_two();
    pp_piece pieces[] = {in_thread(piece(1, B, 1010, 1100), 3, false),
                         in_thread(piece(2, B, 1020, 1080), 4, false), piece(8, B, 1110, 1150)};
    pp_error err = {0};
    pp_step one = {.number = 2,
                   .start = 1000,
                   .end = 1200,
                   .gap = -1,
                   .kernels = true,
                   .engine = {1 << 3 | 1 << 4},
                   .pieces = pieces,
                   .count = 3};
    assert_int_equal(pp_kernels_queue(k, PP_PAIRING_STEP, &one, &err), 0);
    kernel(k, 1030, 2000, 10, on(0, 3));
    kernel(k, 1040, 2000, 20, on(1, 4));
    kernel(k, 1050, 2010, 30, on(0, 4)); /* a copy to the other GPU, say */
    kernel(k, 1060, 2100, 40, on(0, PP_THREAD_STRANGER));
    kernel(k, 1120, 2200, 50, on(1, 3));
    kernel(k, 1130, 2300, 60, on(1, PP_THREAD_STRANGER));
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->count, 3);
    for (size_t i = 0; i < 3; i++) {
        const pp_piece *p = &s->pieces[i];
        assert_int_equal(p->busy, p->layer == 1 ? 10 : p->layer == 2 ? 30 : 40);
        assert_int_equal(p->phase, p->layer == 0 ? OTHER : B);
    }
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->count, 3);
    for (size_t i = 0; i < 3; i++) {
        const pp_piece *p = &s->pieces[i];
        assert_int_equal(p->busy, p->layer == 2 ? 20 : p->layer == 8 ? 50 : 60);
    }
    pp_kernels_free(k);
}

/* One that comes later begins in the middle of the capture; without threads the capture ends, and
 * nothing more of it is told. */
static void test_a_gpu_that_comes_later(void **state)
{
    (void)state;
    for (unsigned thread = 0; thread < 2; thread++) {
        const pp_step *s = NULL;
        pp_kernels *k = started();
        step(k, 2, 1000, 1100, NULL, 0);
        kernel(k, 1050, 2000, 10, on(0, thread));
        kernel(k, 1060, 2000, 10, on(1, thread));
        step(k, 3, 1100, 1200, NULL, 0);
        kernel(k, 1160, 2100, 10, on(1, thread));
        assert_int_equal(next(k, &s), thread ? PP_PAIRING_STEP : PP_PAIRING_STOP);
        assert_int_equal(s->gpu, 0);
        assert_int_equal(next(k, &s), thread ? PP_PAIRING_START : PP_PAIRING_NONE);
        if (thread) {
            assert_true(s->gpu == 1 && s->number == 2);
            assert_int_equal(next(k, &s), PP_PAIRING_STEP);
            assert_true(s->gpu == 0 && s->number == 3 && s->gap == s->end - s->start);
            assert_int_equal(next(k, &s), PP_PAIRING_STEP);
            assert_true(s->gpu == 1 && s->number == 3);
        }
        assert_int_equal(next(k, &s), PP_PAIRING_NONE);
        pp_kernels_free(k);
    }
}

static void test_losses_end_the_capture(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    step(k, 2, 1000, 1100, NULL, 0);
    pp_kernels_lost(k, 3);
    assert_true(pp_kernels_what_is_missing(k).lost == 3 &&
                pp_kernels_what_is_missing(k).steps == 1);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    kernel(k, 5000, 5000, 10, 0);
    kernel(k, 5000 + 2 * LATER, 5000 + 2 * LATER, 10, 0);
    step(k, 3, 4000, 6000, NULL, 0); /* it may lack kernels: only its end is believed */
    step(k, 4, 6000, 7000, NULL, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_int_equal(s->number, 3);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->number, 4);
    event(k, PP_PAIRING_STOP, 7000);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_false(pp_kernels_waiting(k));
    pp_kernels_free(k);
}

/* An agent that was held up sees two recordings at once; only the first one lost a kernel. */
static void test_losses_of_a_recording_end_with_it(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    step(k, 2, 1000, 1100, NULL, 0);
    event(k, PP_PAIRING_STOP, 1100);
    event(k, PP_PAIRING_START, 3000);
    step(k, 5, 3000, 3100, NULL, 0);
    step(k, 6, 3100, 3200, NULL, 0);
    kernel(k, 1050, 1600, 10, 0); /* of step 2, which had another one */
    kernel(k, 2000, 7, 0, PP_KERNEL_COMPLETE);
    kernel(k, 3150, 3150, 10, 0);
    kernel(k, 4000, 7, 0, PP_KERNEL_COMPLETE);
    pp_kernels_lost(k, 7);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_int_equal(s->number, 5);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->number, 6);
    assert_int_equal(s->gap, s->end - s->start - 10);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    step(k, 7, 3200, 3300, NULL, 0);
    pp_kernels_lost(k, 8); /* and this one is of the second */
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    pp_kernels_free(k);
}

/* The count is read as it is by now, and a recording's word of it as it was. */
static void test_losses_are_counted_once(void **state)
{
    (void)state;
    pp_kernels *k = started();
    pp_kernels_lost(k, 8);
    kernel(k, 2000, 7, 0, PP_KERNEL_COMPLETE);
    pp_kernels_lost(k, 8);
    assert_int_equal(pp_kernels_what_is_missing(k).lost, 8);
    assert_int_equal(pp_kernels_heeded(k), 8);
    pp_kernels_free(k);
}

static void test_impossible_kernels_are_losses(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    const pp_kernel bad[] = {
        {.launched = -1, .start = 5},
        {.launched = 5, .start = INT64_MAX},
        {.launched = 5, .start = 5, .duration = UINT32_MAX, .flags = 31 << PP_KERNEL_LONG_SHIFT}};
    for (size_t i = 0; i < 3; i++) {
        pp_error err = {0};
        pp_kernels *k = started();
        assert_int_equal(pp_kernels_add(k, &bad[i], &err), 0);
        assert_int_equal(next(k, &s), PP_PAIRING_STOP);
        pp_kernels_free(k);
    }
}

static void test_the_end_of_the_process(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    step(k, 2, 1000, 1100, NULL, 0);
    step(k, 3, 1100, 3 * LATER, NULL, 0); /* its kernels never came */
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    pp_kernels_finish(k);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    assert_int_equal(pp_kernels_what_is_missing(k).steps, 1);
    pp_kernels_free(k);

    for (int known = 0; known < 2; known++) {
        k = started();
        step(k, 2, LATER, 2 * LATER, NULL, 0);
        kernel(k, 2 * LATER + LATER / 2, 2 * LATER + LATER / 2, 1,
               0); /* another stream may be behind */
        if (known)
            kernel(k, 2 * LATER, 0, 0, PP_KERNEL_COMPLETE | PP_KERNEL_SO_FAR);
        pp_kernels_finish(k);
        assert_int_equal(next(k, &s), known ? PP_PAIRING_STEP : PP_PAIRING_STOP);
        assert_int_equal(pp_kernels_what_is_missing(k).steps, !known);
        pp_kernels_free(k);
    }

    k = started();
    step(k, 2, 1000, 4 * LATER, NULL, 0);
    kernel(k, 4 * LATER + 1, 4 * LATER + 1, 1, 0); /* one before may have come later */
    pp_kernels_finish(k);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    pp_kernels_free(k);

    k = started();
    step(k, 2, 1000, 4 * LATER, NULL, 0);
    kernel(k, 5 * LATER, 0, 0, PP_KERNEL_COMPLETE); /* it launched nothing */
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->gap, s->end - s->start - 1); /* the kernel that came with started() */
    pp_kernels_free(k);
}

static void test_what_another_agent_took(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = pp_kernels_new();
    pp_kernels_since(k, 2500);
    event(k, PP_PAIRING_START, 1000);
    for (int64_t i = 1; i < 5; i++)
        step(k, i, i * 1000, (i + 1) * 1000, NULL, 0);
    kernel(k, 2600, 2600, 10, 0); /* step 2 may have had more */
    kernel(k, LATER, LATER, 10, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_int_equal(s->number, 3);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->number, 4);
    pp_kernels_free(k);
}

static void test_what_comes_late_is_counted(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    kernel(k, 500, 600, 10, 0);
    assert_int_equal(pp_kernels_what_is_missing(k).late, 1);
    pp_kernels_free(k);

    /* Steps that wait may lack others of its stream; one that is whole sets the time line anew. */
    k = started();
    step(k, 2, 1000, 2 * LATER, NULL, 0);
    copy(k, 500, 600, 10, 0, 1);
    assert_true(pp_kernels_waiting(k));
    kernel(k, 500, 600, 10, 0);
    assert_false(pp_kernels_waiting(k));
    const pp_kernels_missing missing = pp_kernels_what_is_missing(k);
    assert_true(missing.late == 1 && missing.lost == 0 && missing.steps == 1);
    step(k, 3, 2 * LATER, 2 * LATER + 100, NULL, 0);
    step(k, 4, 2 * LATER + 100, 2 * LATER + 200, NULL, 0);
    kernel(k, 2 * LATER + 50, 2 * LATER + 50, 10, 0);
    kernel(k, 4 * LATER, 4 * LATER, 1, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->number, 4);
    pp_kernels_free(k);
}

/* One that is behind is awaited where few wait, until all have shown a later launch; not where many
 * do. */
static void test_a_stream_that_is_late(void **state)
{
    (void)state;
    for (int many = 0; many < 2; many++) {
        const pp_step *s = NULL;
        pp_kernels *k = started();
        step(k, 2, LATER * 2, LATER * 2 + 1000, NULL, 0);
        for (int64_t i = 0; i < (many ? PP_KERNELS_MAX / 4 : 1); i++)
            kernel(k, LATER * 2 + 1000 + LATER / 5, LATER * 2 + 1000 + LATER / 5, 1, 0);
        assert_int_equal(next(k, &s), many ? PP_PAIRING_STEP : PP_PAIRING_NONE);
        kernel(k, LATER * 2 + 500, LATER * 2 + 500, LATER / 5, 0);
        assert_int_equal(pp_kernels_what_is_missing(k).late, many);
        kernel(k, LATER * 3 + 1000, LATER * 3 + 1000, 1, 0);
        assert_int_equal(next(k, &s), many ? PP_PAIRING_STOP : PP_PAIRING_STEP);
        if (!many)
            check(s, 0, 0, OTHER, 1000 + LATER, LATER * 2 + 500 + LATER / 5, 1 + LATER / 5);
        pp_kernels_free(k);
    }
}

static void test_streams_that_have_shown_a_later_launch(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    const int64_t end = LATER * 2 + 1000;
    step(k, 2, LATER * 2, end, NULL, 0);
    kernel(k, end + LATER / 5, end + LATER / 5, 1, 0);
    kernel(k, end - 1, 0, 0, PP_KERNEL_COMPLETE | PP_KERNEL_SO_FAR);
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    pp_kernels_lost(k, 0);
    kernel(k, end, 0, 0, PP_KERNEL_COMPLETE | PP_KERNEL_SO_FAR);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    pp_kernels_free(k);
}

static void test_bounds(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    for (int64_t i = 0; i < PP_KERNELS_MAX + 1; i++)
        kernel(k, 2000 + i, 2000 + i, 1, i % 2 ? PP_KERNEL_COPY : 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    assert_int_equal(pp_kernels_what_is_missing(k).lost, 1 + PP_KERNELS_MAX / 2); /* no copies */
    pp_kernels_free(k);

    k = started();
    for (int64_t i = 0; i < PP_KERNELS_MAX_STEPS + 1; i++)
        step(k, 2 + i, 2 * LATER + i, 2 * LATER + i + 1, NULL, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    pp_kernels_free(k);
}

/* What was launched first on a stream that is behind runs last. */
static void test_a_stream_behind_another(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_piece pieces[] = {piece(1, F, 1010, 1100)};
    step(k, 2, 1000, 1200, pieces, 1);
    kernel(k, 1020, 6300, 100, 0);
    kernel(k, 1030, 2300, 4000, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_int_equal(s->count, 1);
    check(s, 0, 1, F, 1500, 6400, 4100);
    assert_int_equal(s->gap, 800);
    pp_kernels_free(k);
}

enum { IN_A_STEP = 100, LONGEST = 1 << 16 };

typedef struct placed_list {
    pp_kernels_placed kernels[IN_A_STEP];
    size_t n;
} placed_list;

static void on_listed(void *user, const pp_kernels_placed *kernel)
{
    placed_list *l = user;
    assert_true(l->n < IN_A_STEP);
    l->kernels[l->n++] = *kernel;
}

/* On another stream than the step before, which the GPU still had to end: it is told by its name,
 * and no step has its time. */
static void test_a_kernel_that_ran_before_its_step_began(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    placed_list all = {0};
    pp_kernels *k = started();
    pp_piece pieces[] = {piece(1, F, 1010, 1100)};
    pp_kernels_watch(k, on_listed, &all);
    step(k, 2, 1000, 1200, pieces, 1);
    kernel(k, 1020, 1200, 200, 0);
    kernel(k, 1030, 1500, 300, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    assert_true(s->start == 1500 && s->end == 1800);
    check(s, 0, 1, F, 1500, 1800, 300);
    assert_int_equal(s->gap, 0);
    assert_int_equal(all.n, 2);
    pp_kernels_free(k);
}

/* The ns of a step in which one of these ran: of a layer, or of all. */
static int64_t union_of(const placed_list *l, const pp_step *s, bool all, uint32_t layer)
{
    static bool ran[LONGEST];
    int64_t sum = 0;
    const int64_t length = s->end - s->start;
    assert_true(length < LONGEST);
    memset(ran, 0, sizeof ran);
    for (size_t i = 0; i < l->n; i++)
        for (int64_t at = l->kernels[i].start - s->start; at < l->kernels[i].end - s->start; at++)
            if (at >= 0 && at < length && (all || l->kernels[i].layer == layer))
                ran[at] = true;
    for (int64_t at = 0; at < length; at++)
        sum += ran[at];
    return sum;
}

static void check_step(const pp_step *s, const placed_list *l, int streams, bool collectives)
{
    int64_t busy = 0;
    assert_true(s->end >= s->start && s->gap >= 0 && s->gap <= s->end - s->start);
    for (size_t i = 0; i < s->count; i++) {
        const pp_piece *p = &s->pieces[i];
        assert_true(p->start >= s->start && p->end <= s->end && p->start <= p->end);
        assert_true(p->busy >= 0 && p->busy <= p->end - p->start);
        if (p->layer > 0)
            assert_int_equal(p->busy, union_of(l, s, false, p->layer));
        busy += p->busy;
    }
    if (!collectives)
        assert_int_equal(s->end - s->start - s->gap, union_of(l, s, true, 0));
    if (streams == 1)
        assert_true(busy <= s->end - s->start - s->gap);
    if (streams == 1 && !collectives)
        assert_int_equal(busy, s->end - s->start - s->gap);
}

/* Some 400 steps of up to 20 pieces, with kernels on so many streams in turn. */
static void launch_at_random(pp_kernels *k, int streams, bool collectives)
{
    int64_t host = 0;
    int64_t ends[4] = {0};
    event(k, PP_PAIRING_START, 0);
    for (int64_t number = 1; number < 400; number++) {
        pp_piece pieces[20];
        int64_t begun = host;
        int n = rand() % 20;
        for (int i = 0; i < n; i++) {
            int64_t start = host;
            for (int j = rand() % 4; j > 0; j--) {
                int64_t *end = &ends[rand() % streams];
                host += rand() % 50;
                *end = (*end > host ? *end : host) + rand() % 30;
                uint32_t duration = (uint32_t)(rand() % 80);
                kernel(k, host, *end, duration, rand() % 10 == 0 && collectives);
                *end += duration;
            }
            host += rand() % 30;
            pieces[i] = piece((uint32_t)i + 1, rand() % 2 ? F : B, start, host);
            host += rand() % 5;
        }
        step(k, number, begun, host, pieces, (size_t)n);
    }
    kernel(k, host + LATER, 0, 0, PP_KERNEL_COMPLETE);
}

/* Whatever comes: pieces lie in their step, a layer is busy where a kernel of it ran, and on one
 * stream the gaps and all that is busy are the step. A collective may go on into the next one. */
static void check_invariants(int streams, bool collectives)
{
    const pp_step *s = NULL;
    placed_list l = {.n = 0};
    pp_kernels *k = pp_kernels_new();
    srand(7);
    pp_kernels_watch(k, on_listed, &l);
    launch_at_random(k, streams, collectives);
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    int64_t end = s->end;
    for (int steps = 2; steps < 400; steps++) {
        l.n = 0;
        assert_int_equal(next(k, &s), PP_PAIRING_STEP);
        assert_int_equal(s->start, end);
        check_step(s, &l, streams, collectives);
        end = s->end;
    }
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    pp_kernels_free(k);
}

static void test_invariants(void **state)
{
    (void)state;
    for (int streams = 1; streams <= 4; streams++) {
        check_invariants(streams, false);
        check_invariants(streams, true);
    }
}

/* Graph 7 of region 1: triton_a of layer 2, a product of 3, triton_b of the region's, triton_a
 * of 2. */
static pp_graphs *compiled(void)
{
    static const char names[] = "triton_a\0triton_b\0nvjet_gemm"; /* 1, 2, 3 */
    const uint64_t a = pp_ring_hash("triton_a", 8);
    const pp_ring_launch launches[] = {{.name = a, .layer = 2},
                                       {.op = PP_OP_PRODUCT, .layer = 3},
                                       {.name = pp_ring_hash("triton_b", 8), .layer = 1},
                                       {.name = a, .layer = 2}};
    const pp_ring_graph graph = {.graph = 7, .region = 1, .count = 4};
    pp_error err = {0};
    pp_graphs *g = pp_graphs_new();
    assert_int_equal(pp_graphs_name(g, names, sizeof names, &err), 0);
    assert_int_equal(pp_graphs_add(g, &graph, launches, 3, &err), 0);
    return g;
}

static void step_with_runs(pp_kernels *k, pp_piece *pieces, size_t count, pp_graph_run *runs,
                           size_t run_count)
{
    pp_error err = {0};
    pp_step s = {.number = 2, .start = 1000, .end = 1100, .gap = -1, .kernels = true};
    s.pieces = pieces;
    s.count = count;
    s.runs = runs;
    s.run_count = run_count;
    assert_int_equal(pp_kernels_queue(k, PP_PAIRING_STEP, &s, &err), 0);
}

static void compiled_kernel(pp_kernels *k, int64_t launched, int64_t start, uint32_t duration,
                            uint32_t name)
{
    kernel(k, launched, start, duration, name << PP_KERNEL_NAME_SHIFT);
}

static void check_calls(const pp_step *s, const char *goes_on)
{
    assert_int_equal(s->count, strlen(goes_on));
    for (size_t i = 0; i < s->count; i++)
        assert_int_equal(s->pieces[i].goes_on, goes_on[i] == '+');
}

/* They cut the region's piece, each from where the one before it ended; several pieces of a run are
 * one call. */
static void test_layers_inside_of_a_region(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_graphs *g = compiled();
    pp_kernels_use_graphs(k, g);
    pp_piece pieces[] = {piece(1, F, 1010, 1060), piece(4, F, 1060, 1070)};
    pp_graph_run runs[] = {{.start = 1015, .end = 1050, .graph = 7}};
    step_with_runs(k, pieces, 2, runs, 1);
    compiled_kernel(k, 1012, 1500, 100, 3); /* before the run: the region's */
    compiled_kernel(k, 1016, 1600, 50, 1);
    compiled_kernel(k, 1020, 1660, 40, 3);
    compiled_kernel(k, 1030, 1700, 30, 2);
    compiled_kernel(k, 1040, 1740, 10, 1);
    compiled_kernel(k, 1065, 1760, 40, 1);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    check(s, 0, 1, F, 1500, 1600, 100);
    check(s, 1, 2, F, 1600, 1650, 50);
    check(s, 2, 3, F, 1650, 1700, 40);
    check(s, 3, 1, F, 1700, 1730, 30);
    check(s, 4, 2, F, 1730, 1750, 10);
    check(s, 5, 1, F, 1750, 1750, 0);
    check(s, 6, 4, F, 1750, 1800, 40);
    check_calls(s, "++-+---");
    assert_int_equal(pp_graphs_so_far(g).runs, 1);
    pp_kernels_free(k);
    pp_graphs_free(g);
}

/* What the GPU waits for before a run is the region's, within it the layer's whose kernel comes.
 * Two runs are two calls. */
static void test_a_gpu_that_waits_in_a_region(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_graphs *g = compiled();
    pp_kernels_use_graphs(k, g);
    pp_piece pieces[] = {piece(1, B, 1010, 3000)};
    pp_graph_run runs[] = {{.start = 1600, .end = 1900, .graph = 7},
                           {.start = 2600, .end = 2900, .graph = 7}};
    pp_error err = {0};
    pp_step whole = {.number = 2, .start = 1000, .end = 3100, .gap = -1, .kernels = true};
    whole.pieces = pieces;
    whole.count = 1;
    whole.runs = runs;
    whole.run_count = 2;
    assert_int_equal(pp_kernels_queue(k, PP_PAIRING_STEP, &whole, &err), 0);
    for (int64_t at = 1600; at < 3000; at += 1000) {
        compiled_kernel(k, at, at + 10, 50, 1);
        compiled_kernel(k, at + 100, at + 110, 50, 3);
        compiled_kernel(k, at + 200, at + 210, 50, 2);
        compiled_kernel(k, at + 250, at + 260, 20, 1);
    }
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    check(s, 0, 1, B, 1500, 1600, 0);
    check(s, 1, 2, B, 1600, 1660, 50);
    check(s, 2, 3, B, 1660, 1760, 50);
    check(s, 3, 1, B, 1760, 1860, 50);
    check(s, 4, 2, B, 1860, 1880, 20);
    check(s, 5, 1, B, 1880, 2600, 0);
    check(s, 6, 2, B, 2600, 2660, 50);
    check(s, 7, 3, B, 2660, 2760, 50);
    check(s, 8, 1, B, 2760, 2860, 50);
    check(s, 9, 2, B, 2860, 2880, 20);
    check(s, 10, 1, B, 2880, 3000, 0);
    check_calls(s, "++-+-++-+--");
    pp_kernels_free(k);
    pp_graphs_free(g);
}

/* Of a run that is another graph's all is the region's; as where a graph is replayed whole, the
 * order on the GPU counts. */
static void test_runs_that_do_not_fit_and_replays(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    pp_graphs *g = compiled();
    pp_kernels_use_graphs(k, g);
    pp_piece pieces[] = {piece(1, F, 1010, 1030), piece(1, F, 1040, 1060)};
    pp_graph_run runs[] = {{.start = 1012, .end = 1029, .graph = 7},
                           {.start = 1041, .end = 1059, .graph = 7}};
    step_with_runs(k, pieces, 2, runs, 2);
    compiled_kernel(k, 1020, 1500, 50, 1);
    compiled_kernel(k, 1021, 1550, 50, 1);
    for (int i = 3; i >= 0; i--) /* in one launch, and told in any order */
        compiled_kernel(k, 1050, 1600 + 50 * i, 50, (uint32_t[]){1, 3, 2, 1}[i]);
    assert_int_equal(next(k, &s), PP_PAIRING_STEP);
    check(s, 0, 1, F, 1500, 1600, 100);
    check(s, 1, 2, F, 1600, 1650, 50);
    check(s, 2, 3, F, 1650, 1700, 50);
    check(s, 3, 1, F, 1700, 1750, 50);
    check(s, 4, 2, F, 1750, 1800, 50);
    check(s, 5, 1, F, 1800, 1800, 0);
    assert_true(pp_graphs_so_far(g).runs == 2 && pp_graphs_so_far(g).unfit == 1);
    pp_kernels_free(k);
    pp_graphs_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_gpu_behind_the_host),
        cmocka_unit_test(test_the_host_behind_the_gpu),
        cmocka_unit_test(test_where_each_kernel_is),
        cmocka_unit_test(test_copies_are_no_kernels),
        cmocka_unit_test(test_long_kernels_and_copies),
        cmocka_unit_test(test_collectives_run_beside),
        cmocka_unit_test(test_layers_inside_of_a_region),
        cmocka_unit_test(test_a_gpu_that_waits_in_a_region),
        cmocka_unit_test(test_runs_that_do_not_fit_and_replays),
        cmocka_unit_test(test_two_threads_and_streams),
        cmocka_unit_test(test_a_stream_behind_another),
        cmocka_unit_test(test_a_kernel_that_ran_before_its_step_began),
        cmocka_unit_test(test_layers_of_two_gpus),
        cmocka_unit_test(test_threads_at_once),
        cmocka_unit_test(test_a_gpu_that_comes_later),
        cmocka_unit_test(test_losses_end_the_capture),
        cmocka_unit_test(test_losses_of_a_recording_end_with_it),
        cmocka_unit_test(test_losses_are_counted_once),
        cmocka_unit_test(test_impossible_kernels_are_losses),
        cmocka_unit_test(test_the_end_of_the_process),
        cmocka_unit_test(test_what_another_agent_took),
        cmocka_unit_test(test_what_comes_late_is_counted),
        cmocka_unit_test(test_a_stream_that_is_late),
        cmocka_unit_test(test_streams_that_have_shown_a_later_launch),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
