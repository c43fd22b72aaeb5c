#include "sidecar/agent/batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define T0 INT64_C(1769000000000000000)
#define MS INT64_C(1000000)

static int name_layer(void *user, uint32_t id, pp_wire_layer *ret, pp_error *err)
{
    (void)user;
    (void)err;
    ret->name = strdup(id == 1 ? "one" : "other");
    ret->type = strdup("Linear");
    return 0;
}

/* Cuts, and encodes with the checks of the wire format. */
static pp_wire_batch *cut(pp_batcher *b, bool last, int64_t *ret_events)
{
    pp_error err = {0};
    pp_wire_batch *batch = calloc(1, sizeof *batch);
    assert_int_equal(pp_batcher_cut(b, last, name_layer, NULL, batch, ret_events, &err), 0);
    batch->session = strdup("s");
    batch->instance = strdup("i");
    batch->process.world_size = 1;
    batch->process.hostname = strdup("h");
    batch->process.clock = strdup("host");
    pp_buf text;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    if (pp_wire_batch_encode(batch, &text, &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    pp_buf_done(&text);
    return batch;
}

static void add(pp_batcher *b, int64_t number, int64_t start, int64_t end, pp_piece *pieces,
                size_t count)
{
    pp_error err = {0};
    pp_step step = {.number = number,
                    .start = start,
                    .end = end,
                    .epoch = -1,
                    .batch = 4,
                    .gap = 33,
                    .pieces = pieces,
                    .count = count};
    assert_int_equal(pp_batcher_add(b, &step, &err), 0);
}

/* A dwell says so in each of its batches, has no timeline, and the next capture is none. */
static void test_a_dwell(void **state)
{
    (void)state;
    pp_batcher *b = pp_batcher_new();
    int64_t events = 0;
    pp_piece pieces[600];
    for (int i = 0; i < 600; i++)
        pieces[i] = (pp_piece){.start = i, .end = i + 1, .layer = 1, .phase = 0, .busy = 1};
    for (int background = 0; background < 2; background++) {
        pp_batcher_timeline(b, 8);
        pp_batcher_start(b, 7, 0, T0);
        pp_batcher_dwell(b, 5, background);
        add(b, 1, 0, 600, pieces, 600);
        pp_wire_batch *batch = cut(b, false, &events);
        assert_int_equal(batch->capture.dwell, 5);
        assert_int_equal(batch->capture.background, background);
        assert_int_equal(batch->grid.cell, PP_WIRE_CELL_MAX); /* no interval of each */
        pp_wire_batch_free(batch);
        add(b, 2, 600, 700, NULL, 0);
        batch = cut(b, true, &events);
        assert_int_equal(batch->capture.dwell, 5);
        pp_wire_batch_free(batch);
    }
    pp_batcher_timeline(b, 8);
    pp_batcher_start(b, 8, 0, T0);
    pp_batcher_dwell(b, 0, false);
    add(b, 1, 0, 600, pieces, 600);
    pp_wire_batch *batch = cut(b, true, &events);
    assert_true(batch->capture.dwell == 0 && !batch->capture.background);
    assert_int_equal(batch->interval_count, 600);
    pp_wire_batch_free(batch);
    pp_batcher_free(b);
}

static void test_intervals_and_spans(void **state)
{
    (void)state;
    pp_batcher *b = pp_batcher_new();
    pp_piece pieces[] = {{.start = 110, .end = 120, .layer = 1, .phase = 0, .busy = 8},
                         {.start = 130, .end = 150, .layer = 1, .phase = 1, .busy = -1},
                         {.start = 160, .end = 170, .layer = 0, .phase = 2}};
    int64_t events;
    pp_batcher_start(b, 3, 100, T0);
    add(b, 7, 100, 200, pieces, 3);
    pp_wire_batch *batch = cut(b, false, &events);
    assert_int_equal(events, 3);
    assert_int_equal(batch->capture.id, 3);
    assert_int_equal(batch->capture.start, T0 + 100);
    assert_int_equal(batch->capture.monotonic, 100);
    assert_int_equal(batch->capture.end, T0 + 200);
    assert_false(batch->capture.last);
    assert_int_equal(batch->layer_count, 1);
    assert_int_equal(batch->interval_count, 3);
    assert_int_equal(batch->intervals[1].start, T0 + 130);
    assert_int_equal(batch->intervals[1].duration, 20);
    assert_int_equal(batch->intervals[1].kernels, -1);
    assert_int_equal(batch->intervals[1].step, 7);
    assert_int_equal(batch->steps[0].epoch, -1);
    assert_int_equal(batch->intervals[0].kernels, 8);
    assert_int_equal(batch->steps[0].gap, 33);
    assert_int_equal(batch->grid.cell, 0);
    pp_wire_batch_free(batch);
    /* The next begins where this one ended; the last may be empty. */
    batch = cut(b, true, &events);
    assert_int_equal(batch->capture.start, T0 + 200);
    assert_int_equal(batch->capture.monotonic, 200);
    assert_int_equal(batch->capture.end, T0 + 200);
    assert_true(batch->capture.last);
    assert_int_equal(events, 0);
    pp_wire_batch_free(batch);
    pp_batcher_free(b);
}

static void test_many_pieces_become_a_grid(void **state)
{
    (void)state;
    enum { N = 5000 };
    pp_piece *pieces = calloc(N, sizeof *pieces);
    int64_t events;
    pp_batcher *b = pp_batcher_new();
    pp_batcher_start(b, 1, 0, T0);
    int64_t busy[2] = {0}, kernels = 0;
    for (int i = 0; i < N; i++) { /* over one second, 200 us apart, 50 to 149 us long */
        int64_t start = i * INT64_C(200000);
        pieces[i] = (pp_piece){.start = start,
                               .end = start + 50000 + (i * 7919) % 100000,
                               .layer = (uint32_t)(1 + i % 2)};
        busy[i % 2] += pieces[i].end - pieces[i].start;
        pieces[i].busy = i % 2 ? (pieces[i].end - pieces[i].start) / 3 : -1;
        kernels += i % 2 ? pieces[i].busy : 0;
    }
    add(b, 1, 0, 1000 * MS, pieces, N);
    pp_wire_batch *batch = cut(b, false, &events);
    assert_int_equal(events, N);
    assert_int_equal(batch->grid.cell, 10 * MS);
    assert_int_equal(batch->interval_count, 0);
    int64_t sums[2] = {0}, calls = 0, ran = 0;
    for (size_t i = 0; i < batch->grid.count; i++) {
        sums[batch->grid.cells[i].layer - 1] += batch->grid.cells[i].busy;
        calls += batch->grid.cells[i].calls;
        ran += batch->grid.cells[i].layer == 2 ? batch->grid.cells[i].kernels : 0;
        assert_true(batch->grid.cells[i].layer == 2 || batch->grid.cells[i].kernels == -1);
    }
    assert_int_equal(ran, kernels);
    assert_int_equal(sums[0], busy[0]);
    assert_int_equal(sums[1], busy[1]);
    assert_int_equal(calls, N);
    pp_wire_batch_free(batch);
    pp_batcher_free(b);
    free(pieces);
}

/* The first steps of a capture are a timeline; the rest, as fast, is sums. */
static void test_a_timeline_comes_first(void **state)
{
    (void)state;
    enum { N = 1000, STEPS = 3 };
    pp_piece pieces[N];
    int64_t events;
    pp_batcher *b = pp_batcher_new();
    pp_batcher_timeline(b, STEPS);
    for (int capture = 0; capture < 2; capture++) {
        pp_batcher_start(b, capture, 0, T0);
        for (int s = 0; s < STEPS + 2; s++) {
            for (int i = 0; i < N; i++)
                pieces[i] = (pp_piece){.start = s * 10 * MS + i * 1000,
                                       .end = s * 10 * MS + i * 1000 + 500,
                                       .layer = 1};
            assert_int_equal(pp_batcher_fits(b, N), s != STEPS);
            if (s == 1 || s == STEPS) { /* at a second's end, and where the timeline ends */
                pp_wire_batch *batch = cut(b, false, &events);
                assert_int_equal(batch->grid.cell, 0);
                assert_int_equal(batch->interval_count, (s == 1 ? 1 : STEPS - 1) * N);
                pp_wire_batch_free(batch);
            }
            add(b, s, s * 10 * MS, (s + 1) * 10 * MS, pieces, N);
        }
        pp_wire_batch *rest = cut(b, true, &events);
        assert_int_equal(rest->grid.cell, 10 * MS);
        assert_int_equal(rest->step_count, 2);
        pp_wire_batch_free(rest);
    }
    pp_batcher_free(b);
}

static void test_a_piece_over_many_cells(void **state)
{
    (void)state;
    enum { N = 3000 };
    pp_piece *pieces = calloc(N, sizeof *pieces);
    int64_t events;
    pp_batcher *b = pp_batcher_new();
    pp_batcher_start(b, 1, 5 * MS, T0);
    pieces[0] = (pp_piece){.start = 8 * MS, .end = 45 * MS, .layer = 1}; /* cells of 5 + 10 n */
    for (int i = 1; i < N; i++)
        pieces[i] = (pp_piece){.start = 100 * MS, .end = 100 * MS, .layer = 2};
    add(b, 1, 5 * MS, 105 * MS, pieces, N);
    pp_wire_batch *batch = cut(b, false, &events);
    static const int64_t expected[] = {7, 10, 10, 10};
    assert_true(batch->grid.count >= 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(batch->grid.cells[i].cell, i);
        assert_int_equal(batch->grid.cells[i].busy, expected[i] * MS);
        assert_int_equal(batch->grid.cells[i].calls, 0);
    }
    assert_int_equal(batch->grid.cells[4].calls, 1); /* it ends where the fifth begins */
    pp_wire_batch_free(batch);
    pp_batcher_free(b);
    free(pieces);
}

static void test_batches_stay_small(void **state)
{
    (void)state;
    pp_piece *pieces = calloc(8000, sizeof *pieces);
    for (int i = 0; i < 8000; i++)
        pieces[i] = (pp_piece){.start = 10, .end = 20, .layer = 1};
    pp_batcher *b = pp_batcher_new();
    pp_batcher_start(b, 1, 0, T0);
    assert_true(pp_batcher_fits(b, 1000000)); /* alone, any step must fit */
    add(b, 1, 0, 100000 * MS, pieces, 8000);
    assert_true(pp_batcher_fits(b, 4000));
    assert_false(pp_batcher_fits(b, 4001));
    assert_int_equal(pp_batcher_steps(b), 1);
    pp_batcher_free(b);
    free(pieces);
}

static void test_a_grid_without_end_is_refused(void **state)
{
    (void)state;
    pp_error err = {0};
    int64_t events;
    pp_piece *pieces = calloc(20000, sizeof *pieces);
    for (int i = 0; i < 20000; i++)
        pieces[i] = (pp_piece){.layer = 1};
    pp_batcher *b = pp_batcher_new();
    pp_batcher_start(b, 1, 0, T0);
    add(b, 1, 0, INT64_C(86400000) * MS, pieces, 20000);
    pp_wire_batch batch = {0};
    assert_int_equal(pp_batcher_cut(b, false, name_layer, NULL, &batch, &events, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_int_equal(pp_batcher_steps(b), 0);
    for (size_t i = 0; i < batch.layer_count; i++) {
        free(batch.layers[i].name);
        free(batch.layers[i].type);
    }
    free(batch.layers);
    free(batch.steps);
    pp_batcher_free(b);
    free(pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dwell),
        cmocka_unit_test(test_intervals_and_spans),
        cmocka_unit_test(test_many_pieces_become_a_grid),
        cmocka_unit_test(test_a_timeline_comes_first),
        cmocka_unit_test(test_a_piece_over_many_cells),
        cmocka_unit_test(test_batches_stay_small),
        cmocka_unit_test(test_a_grid_without_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
