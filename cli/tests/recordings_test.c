/* Recorded runs, solved again: the same results, to the last digit (recordings/README.md). */
#include "cli/recording/recording.h"
#include "cli/recording/solve.h"
#include "cli/results/results.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/tests/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int take_batch(void *user, const pp_wire_batch *batch, pp_error *err)
{
    return pp_activity_builder_add(user, batch, err);
}

static int take_solution(void *user, const pp_estimates *solution, pp_error *err)
{
    (void)err;
    return json_array_append_new(user, pp_results_of_solution(solution));
}

/* As files have them: what is behind the twelfth digit was never written. */
static json_t *as_written(json_t *value)
{
    PP_CLEANUP_FREE char *text = json_dumps(value, JSON_REAL_PRECISION(12));
    json_t *again = json_loads(text, 0, NULL);
    json_decref(value);
    return again;
}

/* As an operator solves whose exporter is collected, and scraped, every 250 ms. */
static pp_estimates_options of_cluster(void)
{
    return (pp_estimates_options){.method = PP_METHOD_AUTO,
                                  .tolerance_percent = 5,
                                  .scraped = true,
                                  .attribution = {.window_ns = 250000000,
                                                  .scrape_ns = 250000000,
                                                  .max_standard_error = 0.05}};
}

static json_t *solve(const char *folder, const char *method, pp_estimates_options options)
{
    pp_error err = {0};
    pp_activity_builder *activity = pp_activity_builder_new();
    json_t *gpus = json_array();
    assert_int_equal(pp_method_from_spec_name(method, &options.method), 0);
    if (pp_recording_batches(folder, take_batch, activity, &err) < 0 ||
        pp_recording_samples(folder, activity, &err) < 0 ||
        pp_solve(pp_activity_builder_get(activity), &options, take_solution, gpus, &err) < 0)
        fail_msg("%s: %s %s", folder, err.field, err.message);
    pp_activity_builder_free(activity);
    return as_written(gpus);
}

/* What does not follow from batches and samples, and what is only counted. */
static void leave_out_unsolved(json_t *gpus)
{
    static const char *const keys[] = {"device", "fine", "kernelSteps"};
    size_t i, j;
    json_t *gpu, *item;
    json_array_foreach(gpus, i, gpu)
    {
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            (void)json_object_del(gpu, keys[k]);
        json_array_foreach(json_object_get(gpu, "items"), j, item)(void)
            json_object_del(item, "kernels");
    }
}

/* Says which value differs first. */
static void compare(const json_t *was, const json_t *is, const char *path)
{
    char deeper[512];
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)was, key, value)
    {
        (void)snprintf(deeper, sizeof deeper, "%s/%s", path, key);
        compare(value, json_object_get(is, key), deeper);
    }
    json_array_foreach(was, i, value)
    {
        (void)snprintf(deeper, sizeof deeper, "%s/%zu", path, i);
        compare(value, json_array_get(is, i), deeper);
    }
    if (json_equal(was, is))
        return;
    PP_CLEANUP_FREE char *a = json_dumps(was, JSON_ENCODE_ANY);
    PP_CLEANUP_FREE char *b = is ? json_dumps(is, JSON_ENCODE_ANY) : NULL;
    fail_msg("%s: was %s, is %s", path, a, b ? b : "missing");
}

/* The results that were kept; `folder` is where they are. */
static json_t *read_results(const char *name, char folder[512])
{
    pp_error err = {0};
    json_t *results = NULL;
    (void)snprintf(folder, 512, PP_SOURCE_DIR "/cli/tests/recordings/%s", name);
    assert_int_equal(pp_results_read(folder, &results, &err), 0);
    return results;
}

static void solved_again(const char *name, pp_estimates_options options, size_t least_values)
{
    char folder[512];
    PP_CLEANUP_JSON json_t *results = read_results(name, folder);
    json_t *was = json_object_get(results, "gpus");
    PP_CLEANUP_JSON json_t *is =
        solve(folder, pp_json_get_string(results, "method", NULL), options);
    leave_out_unsolved(was);
    compare(was, is, name);
    assert_true(json_array_size(pp_json_get(json_array_get(was, 0), "items", NULL)) >=
                least_values);
}

static void test_regression(void **state)
{
    (void)state;
    solved_again("regression", pp_solve_defaults(), 10);
}

static void test_sampling(void **state)
{
    (void)state;
    solved_again("sampling", pp_solve_defaults(), 40);
}

static void test_h200(void **state)
{
    (void)state;
    solved_again("h200", pp_solve_defaults(), 20);
}

static void test_replay(void **state)
{
    (void)state;
    solved_again("replay", pp_solve_defaults(), 20);
}

static void test_demo(void **state)
{
    (void)state;
    solved_again("demo", of_cluster(), 20);
}

/* Values of layers that are known by themselves. */
static size_t count_values(const char *name)
{
    char folder[512];
    PP_CLEANUP_JSON json_t *results = read_results(name, folder);
    size_t n = 0, i;
    json_t *item, *value;
    const char *metric;
    const json_t *gpu = json_array_get(json_object_get(results, "gpus"), 0);
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        const char *kind = pp_json_get_string(item, "kind", NULL);
        json_object_foreach(json_object_get(item, "metrics"), metric, value) n +=
            strcmp(kind, "layer") == 0 && json_is_number(json_object_get(value, "mean"));
    }
    return n;
}

static void test_scrapes_in_step(void **state)
{
    (void)state;
    solved_again("in_step", of_cluster(), 20);
    assert_true(count_values("in_step") + 10 > count_values("demo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regression), cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_h200),       cmocka_unit_test(test_replay),
        cmocka_unit_test(test_demo),       cmocka_unit_test(test_scrapes_in_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
