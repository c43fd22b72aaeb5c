/* Where the host waited, over a run's batches, and below its table. */
#include "cli/results/results.h"
#include "cli/run/run_waits.h"
#include "cli/tables/table_waits.h"
#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(text) ((char[]){text})

static void add(pp_run_waits *w, pp_wire_batch *batch)
{
    pp_error err = {0};
    assert_int_equal(pp_run_waits_add(w, batch, &err), 0);
}

static json_t *described(const pp_run_waits *w)
{
    pp_error err = {0};
    json_t *results = json_object();
    assert_int_equal(pp_run_waits_describe(w, results, &err), 0);
    return results;
}

static const json_t *call_at(const json_t *results, size_t i)
{
    return json_array_get(json_object_get(json_object_get(results, "hostWaits"), "calls"), i);
}

static double number(const json_t *call, const char *key)
{
    return json_number_value(json_object_get(call, key));
}

static void check_near(double value, double expected)
{
    assert_true(fabs(value - expected) < 1e-9);
}

static char *printed(const json_t *results)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    pp_table_waits_print(to, results);
    (void)fclose(to);
    return text;
}

/* The same layer has another number in another batch, and the same line another place. */
static void test_sums(void **state)
{
    (void)state;
    pp_run_waits *w = pp_run_waits_new();
    pp_wire_layer first[] = {{.id = 3, .name = TEXT("bot.0")}},
                  second[] = {{.id = 9, .name = TEXT("bot.0")}};
    pp_wire_wait rows[] = {{3, PP_WIRE_FORWARD, 0, 1, 41, 10, 10, 30000000},
                           {0, PP_WIRE_OTHER, 1, 0, 7, 1, 1, 5000000}};
    pp_wire_wait more[] = {{9, PP_WIRE_FORWARD, 0, 0, 41, 10, 10, 10000000}};
    pp_wire_batch one = {.layers = first, .layer_count = 1};
    one.waits = (pp_wire_waits){10,
                                {(char *[]){TEXT("item"), TEXT("bool")}, 2},
                                {(char *[]){TEXT("/a/train.py"), TEXT("/b/train.py")}, 2},
                                rows,
                                2};
    pp_wire_batch two = {.layers = second, .layer_count = 1};
    two.waits = (pp_wire_waits){
        10, {(char *[]){TEXT("item")}, 1}, {(char *[]){TEXT("/b/train.py")}, 1}, more, 1};
    add(w, &one);
    add(w, &two);
    two.capture.dwell = 1; /* of replays */
    add(w, &two);
    PP_CLEANUP_JSON json_t *results = described(w);
    assert_int_equal(number(json_object_get(results, "hostWaits"), "steps"), 20);
    const json_t *item = call_at(results, 0), *other = call_at(results, 1);
    assert_string_equal(pp_results_text(item, "layer"), "bot.0");
    assert_string_equal(pp_results_text(item, "phase"), "forward");
    assert_string_equal(pp_results_text(item, "file"), "/b/train.py");
    check_near(number(item, "callsPerStep"), 1);
    check_near(number(item, "shareOfSteps"), 1);
    check_near(number(item, "millisecondsPerStep"), 2);
    check_near(number(other, "shareOfSteps"), 0.05);
    assert_int_equal(json_object_set_new(results, "gpus", json_pack("[{s:s}]", "gpu", "GPU-a")), 0);
    char *text = printed(results);
    assert_string_equal(
        text,
        "\nhost waits: item() in /b/train.py:41 (layer bot.0, forward): 1.0 calls a step, "
        "2.000 ms of a step\n"
        "host waits: bool() in /a/train.py:7 (other): 0.050 calls a step (in 5.0% of steps), "
        "0.250 ms of a step\n"
        "(the GPU works while the host waits for it: what that costs is host synchronization in "
        "\"bound by\")\n");
    free(text);
    assert_int_equal(json_object_set_new(results, "gpus", json_pack("[{s:s}]", "gpu", "")), 0);
    text = printed(results);
    assert_null(strstr(text, "(the GPU works"));
    free(text);
    pp_run_waits_free(w);
}

static void test_none(void **state)
{
    (void)state;
    pp_run_waits *w = pp_run_waits_new();
    pp_wire_batch batch = {.waits.steps = 5};
    add(w, &batch);
    PP_CLEANUP_JSON json_t *results = described(w);
    assert_int_equal(json_object_size(results), 0);
    char *text = printed(results);
    assert_string_equal(text, "");
    free(text);
    pp_run_waits_free(w);
}

/* Those of least time are told together. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 130 };
    pp_run_waits *w = pp_run_waits_new();
    pp_wire_wait rows[N];
    for (int i = 0; i < N; i++)
        rows[i] = (pp_wire_wait){0, PP_WIRE_OTHER, 0, 0, i + 1, 1, 1, 1000000 * (i + 1)};
    pp_wire_batch batch = {
        .waits = {1, {(char *[]){TEXT("item")}, 1}, {(char *[]){TEXT("")}, 1}, rows, N}};
    add(w, &batch);
    PP_CLEANUP_JSON json_t *results = described(w);
    const json_t *rest = call_at(results, PP_RUN_WAITS_TOLD);
    assert_string_equal(pp_results_text(rest, "call"), "");
    check_near(number(rest, "millisecondsPerStep"), 30 * 31 / 2.0);
    assert_null(call_at(results, PP_RUN_WAITS_TOLD + 1));
    char *text = printed(results);
    assert_non_null(
        strstr(text, "\nhost waits: item() (other): 1.0 calls a step, 130.000 ms of a step\n"));
    assert_non_null(strstr(text, "host waits: elsewhere: 7503.000 ms of a step\n"));
    free(text);
    pp_run_waits_free(w);
}

/* Names are the training's to choose: a terminal gets no control characters. */
static void test_control_characters(void **state)
{
    (void)state;
    pp_run_waits *w = pp_run_waits_new();
    pp_wire_wait row = {0, PP_WIRE_OTHER, 0, 0, 1, 1, 1, 1};
    pp_wire_batch batch = {
        .waits = {
            1, {(char *[]){TEXT("it\x1bm")}, 1}, {(char *[]){TEXT("a\x9b\x1b.py")}, 1}, &row, 1}};
    add(w, &batch);
    PP_CLEANUP_JSON json_t *results = described(w);
    char *text = printed(results);
    assert_null(strchr(text, '\x1b'));
    free(text);
    pp_run_waits_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
