/* Steps on the host's clock and kernels go in, steps in the GPU's time come out. */
#include "sidecar/agent/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { F = PP_MARK_FORWARD, B = PP_MARK_BACKWARD, OTHER = PP_MARK_OTHER };

#define LATER INT64_C(1000000000) /* past what a step waits for */

static void kernel(pp_kernels *k, int64_t launched, int64_t start, uint32_t duration,
                   uint32_t flags)
{
    pp_error err = {0};
    pp_kernel one = {.launched = launched,
                     .start = start,
                     .duration = duration,
                     .flags = flags,
                     .shape = (uint64_t)launched * 3};
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
    assert_int_equal(pp_kernels_late(k), 0);
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

static void copy(pp_kernels *k, int64_t launched, int64_t start, uint32_t duration, uint32_t flags,
                 uint64_t bytes)
{
    pp_error err = {0};
    pp_kernel one = {.launched = launched,
                     .start = start,
                     .duration = duration,
                     .flags = PP_KERNEL_COPY | flags,
                     .bytes = bytes};
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
    copy(k, 1160, 2300, 1, 15 << PP_KERNEL_COPY_SHIFT | 15 << PP_KERNEL_MEMORY_SHIFT, UINT64_MAX);
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
    assert_int_equal(pp_kernels_late(k), 0);
    pp_kernels_free(k);
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

static void test_losses_end_the_capture(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    step(k, 2, 1000, 1100, NULL, 0);
    pp_kernels_lost(k, 1);
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

static void test_impossible_kernels_are_losses(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    const pp_kernel bad[] = {{.launched = -1, .start = 5}, {.launched = 5, .start = INT64_MAX}};
    for (size_t i = 0; i < 2; i++) {
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
    pp_kernels_free(k);

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
    pp_kernels *k = started();
    kernel(k, 500, 600, 10, 0);
    assert_int_equal(pp_kernels_late(k), 1);
    pp_kernels_free(k);
}

static void test_bounds(void **state)
{
    (void)state;
    const pp_step *s = NULL;
    pp_kernels *k = started();
    for (int64_t i = 0; i < PP_KERNELS_MAX + 1; i++)
        kernel(k, 2000 + i, 2000 + i, 1, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    pp_kernels_free(k);

    k = started();
    for (int64_t i = 0; i < PP_KERNELS_MAX_STEPS + 1; i++)
        step(k, 2 + i, 2 * LATER + i, 2 * LATER + i + 1, NULL, 0);
    assert_int_equal(next(k, &s), PP_PAIRING_STOP);
    pp_kernels_free(k);
}

/* Whatever comes: pieces lie in their step, busy in the piece, and on one stream the gaps and all
 * that is busy are the step. A collective may go on into the next one. */
static void check_invariants(bool collectives)
{
    srand(7);
    pp_kernels *k = pp_kernels_new();
    event(k, PP_PAIRING_START, 0);
    int64_t host = 0;
    int64_t gpu = 0;
    for (int64_t number = 1; number < 400; number++) {
        pp_piece pieces[20];
        int64_t begun = host;
        int n = rand() % 20;
        for (int i = 0; i < n; i++) {
            int64_t start = host;
            for (int j = rand() % 4; j > 0; j--) {
                host += rand() % 50;
                gpu = (gpu > host ? gpu : host) + rand() % 30;
                uint32_t duration = (uint32_t)(rand() % 80);
                kernel(k, host, gpu, duration, rand() % 10 == 0 && collectives);
                gpu += duration;
            }
            host += rand() % 30;
            pieces[i] = piece((uint32_t)i + 1, rand() % 2 ? F : B, start, host);
            host += rand() % 5;
        }
        step(k, number, begun, host, pieces, (size_t)n);
    }
    kernel(k, host + LATER, 0, 0, PP_KERNEL_COMPLETE);
    const pp_step *s = NULL;
    int64_t end = -1;
    assert_int_equal(next(k, &s), PP_PAIRING_START);
    end = s->end;
    for (int steps = 2; steps < 400; steps++) {
        assert_int_equal(next(k, &s), PP_PAIRING_STEP);
        assert_int_equal(s->start, end);
        assert_true(s->end >= s->start && s->gap >= 0 && s->gap <= s->end - s->start);
        end = s->end;
        int64_t busy = 0;
        for (size_t i = 0; i < s->count; i++) {
            const pp_piece *p = &s->pieces[i];
            assert_true(p->start >= s->start && p->end <= s->end && p->start <= p->end);
            assert_true(p->busy >= 0 && p->busy <= p->end - p->start);
            busy += p->busy;
        }
        assert_true(busy <= s->end - s->start - s->gap);
        if (!collectives)
            assert_int_equal(busy, s->end - s->start - s->gap);
    }
    assert_int_equal(next(k, &s), PP_PAIRING_NONE);
    pp_kernels_free(k);
}

static void test_invariants(void **state)
{
    (void)state;
    check_invariants(false);
    check_invariants(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_gpu_behind_the_host),
        cmocka_unit_test(test_the_host_behind_the_gpu),
        cmocka_unit_test(test_where_each_kernel_is),
        cmocka_unit_test(test_copies_are_no_kernels),
        cmocka_unit_test(test_collectives_run_beside),
        cmocka_unit_test(test_two_threads_and_streams),
        cmocka_unit_test(test_losses_end_the_capture),
        cmocka_unit_test(test_losses_of_a_recording_end_with_it),
        cmocka_unit_test(test_impossible_kernels_are_losses),
        cmocka_unit_test(test_the_end_of_the_process),
        cmocka_unit_test(test_what_another_agent_took),
        cmocka_unit_test(test_what_comes_late_is_counted),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
