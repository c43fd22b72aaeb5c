/* From an agent's batches to an activity: everything once, in the order that a solution needs. */
#include "common/tests/cmocka_all.h"
#include "estimate/activity/activity_builder.h"
#include "estimate/solve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define S INT64_C(1000000000)
#define T0 (INT64_C(1769000000) * S)

static pp_wire_batch *decode(const char *text)
{
    pp_error err = {0};
    pp_wire_batch *batch = NULL;
    json_t *object = json_loads(text, 0, NULL);
    if (!object || pp_wire_batch_decode(object, &batch, &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    json_decref(object);
    return batch;
}

static const char first[] =
    "{\"type\":\"batch\",\"session\":\"s\",\"instance\":\"i\",\"seq\":0,"
    "\"process\":{\"id\":0,\"rank\":0,\"worldSize\":1,\"gpus\":[\"GPU-a\"],\"hostname\":\"h\","
    "\"python\":\"3\",\"torch\":\"2\",\"clock\":\"host\",\"model\":\"M\"},"
    "\"stretch\":{\"id\":0,\"start\":1769000000000000000,\"end\":1769000002000000000,"
    "\"last\":false},"
    "\"layers\":[{\"id\":2,\"name\":\"b\",\"type\":\"ReLU\",\"parameters\":0},"
    "{\"id\":1,\"name\":\"a\",\"type\":\"Linear\",\"parameters\":6}],"
    "\"steps\":{\"number\":[4],\"start\":[1769000000000000000],\"duration\":[2000000000],"
    "\"epoch\":[0],\"batch\":[4]},"
    "\"intervals\":{\"layer\":[1,2],\"phase\":[0,0],\"step\":[4,0],"
    "\"start\":[1769000000000000000,500000000],\"duration\":[500000000,250000000]},"
    "\"dropped\":0,\"cost\":{\"nanoseconds\":1,\"marks\":4}}";

static void test_batches_are_gathered(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    batch->capture.start += 2 * S;
    batch->capture.end += 2 * S;
    batch->steps[0].start += 2 * S;
    batch->steps[0].number++;
    free(batch->process.batch);
    batch->process.batch = strdup("8x16 float32"); /* is known only now */
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    pp_wire_batch_free(batch);
    const pp_activity *a = pp_activity_builder_get(b);
    assert_int_equal(a->n_processes, 1);
    assert_string_equal(a->processes[0].instance, "i");
    assert_string_equal(a->processes[0].gpus.items[0], "GPU-a");
    assert_string_equal(a->processes[0].model, "M");
    assert_string_equal(a->processes[0].digest, "");
    assert_string_equal(a->processes[0].batch, "8x16 float32");
    assert_int_equal(a->n_layers, 2);
    assert_int_equal(a->layers[0].id, 1);
    assert_string_equal(a->layers[0].name, "a");
    assert_string_equal(a->layers[1].type, "ReLU");
    assert_int_equal(a->n_batches, 2);
    assert_int_equal(a->batches[1].start_ns, T0 + 2 * S);
    assert_int_equal(a->n_steps, 2);
    assert_int_equal(a->steps[1].batch, 1);
    assert_int_equal(a->steps[1].number, 5);
    assert_int_equal(a->n_intervals, 4);
    assert_int_equal(a->intervals[1].start_ns, T0 + S / 2);
    assert_int_equal(a->intervals[1].layer, 2);
    assert_int_equal(a->intervals[1].kernels_ns, -1);
    assert_int_equal(a->steps[0].gap_ns, -1);
    assert_string_equal(a->processes[0].kernels, "");
    pp_activity_builder_free(b);
}

/* A batch that knows its busy times says nothing against one that does not. */
static void test_busy_times_are_taken(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    free(batch->process.kernels);
    batch->process.kernels = strdup("another CUPTI client");
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    batch->process.kernels[0] = '\0';
    batch->intervals[0].kernels = 7;
    batch->steps[0].gap = 9;
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    pp_wire_batch_free(batch);
    const pp_activity *a = pp_activity_builder_get(b);
    assert_string_equal(a->processes[0].kernels, "another CUPTI client");
    assert_int_equal(a->intervals[0].kernels_ns, -1);
    assert_int_equal(a->intervals[2].kernels_ns, 7);
    assert_int_equal(a->steps[1].gap_ns, 9);
    pp_activity_builder_free(b);
}

static void test_cells_get_their_times(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    pp_wire_cell cells[] = {{3, 1, 4000000, 2, PP_WIRE_BACKWARD, 3000000}};
    batch->grid = (pp_wire_grid){.start = T0, .cell = 10000000, .cells = cells, .count = 1};
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    batch->grid = (pp_wire_grid){0};
    pp_wire_batch_free(batch);
    const pp_activity *a = pp_activity_builder_get(b);
    assert_int_equal(a->n_cells, 1);
    assert_int_equal(a->cells[0].start_ns, T0 + 30000000);
    assert_int_equal(a->cells[0].width_ns, 10000000);
    assert_int_equal(a->cells[0].busy_ns, 4000000);
    assert_int_equal(a->cells[0].kernels_ns, 3000000);
    assert_int_equal(a->cells[0].phase, PP_WIRE_BACKWARD);
    pp_activity_builder_free(b);
}

/* What no solution can hold is left out, so that a long run ends with the results of its beginning.
 */
static void test_too_much_is_cut(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    pp_wire_step *own = batch->steps;
    batch->step_count = PP_WIRE_MAX_STEPS;
    batch->steps = calloc(batch->step_count, sizeof *batch->steps);
    for (size_t i = 0; i <= PP_REGRESSION_MAX_STEPS / PP_WIRE_MAX_STEPS; i++)
        assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    free(batch->steps);
    batch->steps = own;
    batch->step_count = 1;
    pp_wire_batch_free(batch);
    const pp_activity *a = pp_activity_builder_get(b);
    assert_true(a->truncated);
    assert_int_equal(a->n_steps, PP_REGRESSION_MAX_STEPS);
    pp_activity_builder_free(b);
}

/* A batch's memory is taken whole or not at all, and its steps with it. */
static void test_too_much_memory_is_left_out(void **state)
{
    (void)state;
    enum { FIT = PP_ACTIVITY_MAX_MEMORY / PP_WIRE_MAX_MEMORY };
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    batch->memory = (pp_wire_memory){
        .steps = 3,
        .rows = calloc(PP_WIRE_MAX_MEMORY, sizeof *batch->memory.rows),
        .count = PP_WIRE_MAX_MEMORY,
    };
    for (size_t i = 0; i < FIT + 2; i++)
        assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    const pp_activity *a = pp_activity_builder_get(b);
    assert_int_equal(a->n_memory, (size_t)FIT * PP_WIRE_MAX_MEMORY);
    assert_int_equal(a->processes[0].memory_steps, 3 * FIT);
    pp_activity_builder_free(b);

    b = pp_activity_builder_new();
    batch->memory.steps = PP_WIRE_MAX_COUNT;
    batch->memory.count = 1;
    const int64_t fit = INT64_MAX / PP_WIRE_MAX_COUNT;
    for (int64_t i = 0; i < fit + 2; i++)
        assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    a = pp_activity_builder_get(b);
    assert_int_equal(a->n_memory, fit);
    assert_int_equal(a->processes[0].memory_steps, fit * PP_WIRE_MAX_COUNT);
    pp_activity_builder_free(b);
    pp_wire_batch_free(batch);
}

static void test_samples_are_solved(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    pp_wire_batch_free(batch);
    for (int i = -10; i < 40; i++) {
        const int64_t at = T0 + i * (S / 10);
        assert_int_equal(pp_activity_builder_sample(b, "GPU-a", PP_METRIC_SM_ACTIVE, at, 0.5, &err),
                         0);
        assert_int_equal(pp_activity_builder_sample(b, "GPU-b", PP_METRIC_SM_ACTIVE, at, 0.9, &err),
                         0);
    }
    const pp_activity *a = pp_activity_builder_get(b);
    assert_int_equal(a->gpus.count, 2);
    assert_int_equal(a->n_samples, 100);
    pp_estimates *solution = NULL;
    const pp_estimates_options options = {
        .attribution = {.window_ns = S / 10, .scrape_ns = S / 10, .max_lag_ns = S / 5}};
    assert_int_equal(pp_estimates_solve(a, "GPU-a", &options, &solution, &err), 0);
    bool found = false;
    for (size_t i = 0; i < solution->n_estimates; i++) {
        const pp_estimate *e = &solution->estimates[i];
        if (solution->items[e->item].kind != PP_ITEM_JOB || e->metric != PP_METRIC_SM_ACTIVE)
            continue;
        found = true;
        assert_float_equal(e->mean, 0.5, 1e-6);
    }
    assert_true(found);
    (void)pp_estimates_free(solution);
    pp_activity_builder_free(b);
}

static const pp_estimate *estimate_of(const pp_estimates *s, pp_item_kind kind, const char *layer,
                                      pp_metric metric)
{
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_estimates_item *item = &s->items[s->estimates[i].item];
        if (item->kind == kind && strcmp(item->layer, layer) == 0 &&
            s->estimates[i].metric == metric)
            return &s->estimates[i];
    }
    fail_msg("no estimate of %s", layer);
    return NULL;
}

static pp_estimates *solve(pp_activity_builder *b, bool pm_only, unsigned metrics)
{
    pp_estimates *s = NULL;
    pp_error err = {0};
    const pp_estimates_options options = {.attribution = {.window_ns = S, .scrape_ns = S},
                                          .metrics = metrics,
                                          .method = pm_only ? PP_METHOD_SAMPLING : PP_METHOD_AUTO};
    if (pp_estimates_solve(pp_activity_builder_get(b), "GPU-a", &options, &s, &err) < 0)
        fail_msg("%s", err.message);
    return s;
}

static pp_wire_pm_row pm(int64_t layer, pp_wire_phase phase, int64_t sm, int64_t dram)
{
    return (pp_wire_pm_row){.layer = layer,
                            .phase = phase,
                            .kernels = 7,
                            .mean = {sm, -1, dram, -1},
                            .error = {10000, -1, 20000, -1}};
}

/* What the batch's process has told by now, as a batch of its own. */
static void tell(pp_activity_builder *b, pp_wire_batch *batch, const char *gpu,
                 pp_wire_pm_row *rows, size_t n)
{
    static char *sources[] = {(char *)(uintptr_t) "sm", (char *)(uintptr_t) "",
                              (char *)(uintptr_t) "dram", (char *)(uintptr_t) ""};
    pp_error err = {0};
    pp_wire_batch one = *batch;
    one.step_count = one.interval_count = 0;
    one.capture.start = one.capture.end;
    one.pm = (pp_wire_pm){.gpu = (char *)(uintptr_t)gpu,
                          .sources = {sources, PP_WIRE_PM_LEAST},
                          .rows = rows,
                          .count = n};
    assert_int_equal(pp_activity_builder_add(b, &one, &err), 0);
}

static void test_pm_values_are_taken(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    pp_wire_pm_row before[] = {pm(1, PP_WIRE_FORWARD, 900000, -1),
                               pm(2, PP_WIRE_FORWARD, 900000, 900000)};
    pp_wire_pm_row now[] = {pm(1, PP_WIRE_FORWARD, 500000, 250000),
                            pm(0, PP_WIRE_OTHER, 125000, -1),
                            pm(2, PP_WIRE_BACKWARD, 750000, -1) /* has no time in any batch */};
    tell(b, batch, "GPU-a", before, 2);
    tell(b, batch, "GPU-a", now, 3);
    assert_int_equal(pp_activity_builder_get(b)->n_batches, 1);
    pp_estimates *s = solve(b, true, 0);
    const pp_estimate *e = estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE);
    assert_true(e->mean == 0.5 && e->standard_error == 0.01 && e->windows == 7);
    assert_int_equal(e->method, PP_METHOD_SAMPLING);
    assert_string_equal(e->source, "sm");
    assert_null(e->reason);
    e = estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_DRAM_ACTIVE);
    assert_true(e->mean == 0.25);
    assert_string_equal(e->source, "dram");
    assert_true(estimate_of(s, PP_ITEM_OTHER, "", PP_METRIC_SM_ACTIVE)->mean == 0.125);
    e = estimate_of(s, PP_ITEM_LAYER, "b", PP_METRIC_SM_ACTIVE);
    assert_true(isnan(e->mean) && !e->source && e->method == PP_METHOD_NONE);
    assert_string_equal(e->reason, "PM sampling told nothing of it");
    pp_estimates_free(s);

    s = solve(b, false, 1U << PP_METRIC_SM_ACTIVE); /* only what was asked for */
    assert_true(estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE)->mean == 0.5);
    for (size_t i = 0; i < s->n_estimates; i++)
        assert_int_equal(s->estimates[i].metric, PP_METRIC_SM_ACTIVE);
    pp_estimates_free(s);

    /* Another process was sampled on the GPU: neither has seen itself alone. */
    batch->process.id = 1;
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    tell(b, batch, "GPU-b", now, 3);
    s = solve(b, true, 0);
    assert_true(estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE)->mean == 0.5);
    pp_estimates_free(s);
    tell(b, batch, "GPU-a", now, 3);
    s = solve(b, true, 0);
    assert_true(isnan(estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE)->mean));
    pp_estimates_free(s);
    pp_wire_batch_free(batch);
    pp_activity_builder_free(b);
}

/* A GPU that was not sampled says why, unless others' values of it are there. */
static void test_why_nothing_was_sampled(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_activity_builder *b = pp_activity_builder_new();
    pp_wire_batch *batch = decode(first);
    assert_int_equal(pp_activity_builder_add(b, batch, &err), 0);
    pp_wire_batch one = *batch;
    one.step_count = one.interval_count = 0;
    one.pm.why = (char *)(uintptr_t) "no CUPTI is loaded";
    assert_int_equal(pp_activity_builder_add(b, &one, &err), 0);
    assert_int_equal(pp_activity_builder_get(b)->n_batches, 1);
    pp_estimates *s = solve(b, true, 0);
    const pp_estimate *e = estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE);
    assert_true(isnan(e->mean));
    assert_string_equal(e->reason, "the GPU was not sampled: no CUPTI is loaded");
    e = estimate_of(s, PP_ITEM_JOB, "", PP_METRIC_SM_ACTIVE);
    assert_string_equal(e->reason, "no samples of this metric");
    pp_estimates_free(s);

    s = solve(b, false, 0); /* what windows lack is another matter */
    e = estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE);
    assert_string_equal(e->reason, "no samples of this metric");
    pp_estimates_free(s);

    pp_wire_pm_row now[] = {pm(1, PP_WIRE_FORWARD, 500000, 250000)};
    tell(b, batch, "GPU-a", now, 1);
    s = solve(b, true, 0);
    assert_true(estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE)->mean == 0.5);
    e = estimate_of(s, PP_ITEM_LAYER, "b", PP_METRIC_SM_ACTIVE);
    assert_string_equal(e->reason, "PM sampling told nothing of it");
    pp_estimates_free(s);

    batch->process.id = 1; /* it was sampled, though for two */
    tell(b, batch, "GPU-a", now, 1);
    s = solve(b, true, 0);
    e = estimate_of(s, PP_ITEM_LAYER, "a", PP_METRIC_SM_ACTIVE);
    assert_string_equal(e->reason, "PM sampling told nothing of it");
    pp_estimates_free(s);
    pp_wire_batch_free(batch);
    pp_activity_builder_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_are_gathered),
        cmocka_unit_test(test_busy_times_are_taken),
        cmocka_unit_test(test_cells_get_their_times),
        cmocka_unit_test(test_too_much_is_cut),
        cmocka_unit_test(test_too_much_memory_is_left_out),
        cmocka_unit_test(test_samples_are_solved),
        cmocka_unit_test(test_pm_values_are_taken),
        cmocka_unit_test(test_why_nothing_was_sampled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
