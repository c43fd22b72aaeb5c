/* Copies and fills, over a run's batches, and below its table. */
#include "cli/results/results.h"
#include "cli/run/run_copies.h"
#include "cli/tables/table_copies.h"
#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(text) ((char[]){text})

static void add(pp_run_copies *c, pp_wire_batch *batch)
{
    pp_error err = {0};
    assert_int_equal(pp_run_copies_add(c, batch, &err), 0);
}

static json_t *described(const pp_run_copies *c)
{
    pp_error err = {0};
    json_t *results = json_object();
    assert_int_equal(pp_run_copies_describe(c, results, &err), 0);
    return results;
}

static const json_t *item_at(const json_t *results, size_t i)
{
    return json_array_get(json_object_get(json_object_get(results, "copies"), "items"), i);
}

static void check_near(const json_t *item, const char *key, double expected)
{
    assert_true(fabs(json_number_value(json_object_get(item, key)) - expected) < 1e-9);
}

static char *printed(const json_t *results)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    pp_table_copies_print(to, results);
    (void)fclose(to);
    return text;
}

/* The same layer has another number in another batch. */
static void test_sums(void **state)
{
    (void)state;
    pp_run_copies *c = pp_run_copies_new();
    pp_wire_layer first[] = {{.id = 3, .name = TEXT("bot.0")}},
                  second[] = {{.id = 9, .name = TEXT("bot.0")}};
    pp_wire_copy rows[] = {
        {3, PP_WIRE_FORWARD, PP_WIRE_H2D, PP_WIRE_PINNED, 10, 500000000, 30000000},
        {0, PP_WIRE_OTHER, PP_WIRE_FILL, 0, 1, 2000000, 0}};
    pp_wire_copy more[] = {
        {9, PP_WIRE_FORWARD, PP_WIRE_H2D, PP_WIRE_PINNED, 10, 300000000, 10000000},
        {9, PP_WIRE_FORWARD, PP_WIRE_H2D, PP_WIRE_PAGEABLE, 20, 1000, 20000}};
    pp_wire_batch one = {.layers = first, .layer_count = 1, .copies = {10, rows, 2}};
    pp_wire_batch two = {.layers = second, .layer_count = 1, .copies = {10, more, 2}};
    add(c, &one);
    add(c, &two);
    two.capture.dwell = 1; /* of replays */
    add(c, &two);
    PP_CLEANUP_JSON json_t *results = described(c);
    check_near(json_object_get(results, "copies"), "steps", 20);
    const json_t *item = item_at(results, 0);
    assert_string_equal(pp_results_text(item, "layer"), "bot.0");
    assert_string_equal(pp_results_text(item, "phase"), "forward");
    assert_string_equal(pp_results_text(item, "type"), "h2d");
    assert_string_equal(pp_results_text(item, "memory"), "pinned");
    check_near(item, "perStep", 1);
    check_near(item, "bytesPerStep", 40e6);
    check_near(item, "millisecondsPerStep", 2);
    check_near(item, "gigabytesPerSecond", 20);
    assert_null(json_object_get(item_at(results, 2), "gigabytesPerSecond"));
    char *text = printed(results);
    assert_string_equal(
        text, "\ncopies: host to device, pinned (layer bot.0, forward): 1.0 a step, 40 MB "
              "at 20 GB/s, 2.000 ms of a step\n"
              "copies: host to device, pageable (layer bot.0, forward): 1.0 a step, 50 B "
              "at 50 MB/s, 0.001 ms of a step\n"
              "copies: fill (other): 0.050 a step, 100 kB, 0.000 ms of a step\n");
    free(text);
    pp_run_copies_free(c);
}

static void test_none(void **state)
{
    (void)state;
    pp_run_copies *c = pp_run_copies_new();
    pp_wire_batch batch = {.copies.steps = 5};
    add(c, &batch);
    PP_CLEANUP_JSON json_t *results = described(c);
    assert_int_equal(json_object_size(results), 0);
    char *text = printed(results);
    assert_string_equal(text, "");
    free(text);
    pp_run_copies_free(c);
}

/* Those of least time are told together; names are the training's to choose. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 130 };
    pp_run_copies *c = pp_run_copies_new();
    pp_wire_layer layers[N];
    pp_wire_copy rows[N];
    char names[N][16];
    for (int i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "\x1b%d", i);
        layers[i] = (pp_wire_layer){.id = i + 1, .name = names[i]};
        rows[i] = (pp_wire_copy){i + 1, PP_WIRE_BACKWARD, PP_WIRE_D2D, 0, 1, 10, 1000000 * (i + 1)};
    }
    pp_wire_batch batch = {.layers = layers, .layer_count = N, .copies = {1, rows, N}};
    add(c, &batch);
    PP_CLEANUP_JSON json_t *results = described(c);
    const json_t *rest = item_at(results, PP_RUN_COPIES_TOLD);
    assert_string_equal(pp_results_text(rest, "type"), "");
    check_near(rest, "millisecondsPerStep", 30 * 31 / 2.0);
    check_near(rest, "bytesPerStep", 300);
    assert_null(item_at(results, PP_RUN_COPIES_TOLD + 1));
    char *text = printed(results);
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "copies: others: 1.24 kB, 7750.000 ms of a step\n"));
    free(text);
    pp_run_copies_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
