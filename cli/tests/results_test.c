/* Busy times in results.json, layers.csv and the table: what is not known is never 0. */
#include "cli/results/results.h"
#include "cli/tables/table.h"
#include "common/file.h"
#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS INT64_C(1000000)

/* Two steps; `known`: with how sure times are, and the busy times that kernel records give. */
static json_t *results(bool known)
{
    const char *why = known ? NULL : "another CUPTI client";
    const pp_time_error error = known ? (pp_time_error){1e5, 9} : (pp_time_error){NAN, NAN};
    pp_estimates_item items[] = {
        {.kind = PP_ITEM_LAYER,
         .phase = PP_PHASE_RECOMPUTE,
         .layer = (char *)(uintptr_t) "bot.0",
         .type = (char *)(uintptr_t) "Linear",
         .calls = 3,
         .total_ns = 8 * MS,
         .step_error = error,
         .least_ns = known ? 6 * MS : -1,
         .share = 0.8,
         .busy_ns = known ? 3 * MS : -1,
         .idle_share = known ? 0.625 : (double)NAN,
         .busy_reason = why,
         .whole_reason = known ? NULL : "it has \033 no names"},
        {.kind = PP_ITEM_DATA,
         .phase = PP_PHASE_DATA,
         .layer = (char *)(uintptr_t) "",
         .type = (char *)(uintptr_t) "",
         .parameters = -1,
         .total_ns = 2000000001,
         .least_ns = -1,
         .share = 0.2,
         .busy_ns = known ? 0 : -1,
         .idle_share = known ? 1 : (double)NAN,
         .busy_reason = why},
    };
    const pp_estimates s = {.gpu = (char *)(uintptr_t) "GPU-a",
                            .lag_ns = (double)NAN,
                            .lag_stderr_ns = (double)NAN,
                            .captures = 2,
                            .first_step_ns = 1000 * MS,
                            .last_step_ns = 4500 * MS,
                            .step_count = 2,
                            .step_mean_ns = 5e6,
                            .step_error = error,
                            .step_ns = 10 * MS,
                            .gap_ns = known ? 7 * MS : -1,
                            .items = items,
                            .n_items = 2};
    return json_pack("{s:[o]}", "gpus", pp_results_of_solution(&s));
}

static char *printed_in(const json_t *of, int columns)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    pp_table_print(of, f, &(pp_table_view){.columns = columns});
    (void)fclose(f);
    return text;
}

static char *printed(const json_t *of)
{
    return printed_in(of, 0);
}

/* layers.csv of the results; in *ret_read what results.json gives again. */
static char *written(const json_t *of, json_t **ret_read)
{
    pp_error err = {0};
    size_t length = 0;
    char folder[] = "/tmp/results-test-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pp_results_write(of, folder, &err), 0);
    assert_int_equal(pp_results_read(folder, ret_read, &err), 0);
    (void)snprintf(path, sizeof path, "%s/results.json", folder);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/layers.csv", folder);
    char *text = pp_file_read(path, 1 << 20, &length, &err);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_non_null(text);
    return text;
}

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in\n%s", part, text);
}

static void names_are_no_formulas(void **state)
{
    (void)state;
    json_t *of = results(true);
    json_t *read = NULL;
    json_t *items = json_object_get(json_array_get(json_object_get(of, "gpus"), 0), "items");
    (void)json_object_set_new(json_array_get(items, 0), "layer", json_string("=1+\"1\""));
    char *csv = written(of, &read);
    holds(csv, "\"layer\",\"'=1+\"\"1\"\"\",\"Linear\"");
    free(csv);
    json_decref(read);
    json_decref(of);
}

static void known_times_are_shown(void **state)
{
    (void)state;
    json_t *of = results(true);
    json_t *read = NULL;
    char *csv = written(of, &read);
    char *table = printed(read);
    holds(
        csv,
        ",share,busy_ns,busy_ms_per_step,idle_share,memory_peak_bytes,memory_live_bytes,sm_active");
    holds(csv,
          "\"layer\",\"bot.0\",\"Linear\",\"recompute\",0,3,8000000,4,3,0.8,3000000,1.5,0.625,");
    holds(csv, "\"data\",\"\",\"\",\"data\",,0,2000000001,1000,,0.2,0,0,1,");
    holds(table,
          "2 steps of 5.000±0.100 ms, in 70.0% of which no kernel ran, in 2 captures over 3.5 s\n");
    holds(table,
          "bot.0                    Linear recompute    1.50    ≤4.000  80.0%     1.500  ≤62.5%\n");
    holds(table,
          "\ncostliest layer: bot.0, at most 80.0 % of a step (3.000 to 4.000 ms); what bounds "
          "it is not known; more takes: data, 20.0 %\n");
    holds(table, "           1000.000  20.0%     0.000  100.0%\n");
    assert_null(strstr(table, "busy times"));
    free(csv);
    free(table);
    json_decref(of);
    json_decref(read);
}

static void bounds_are_shown(void **state)
{
    (void)state;
    json_t *of = results(true), *read = NULL;
    json_t *items = json_object_get(json_array_get(json_object_get(of, "gpus"), 0), "items");
    (void)json_object_set_new(json_array_get(items, 0), "bound", json_string("Memory"));
    (void)json_object_set_new(json_array_get(items, 0), "boundLikely", json_real(0.93));
    free(written(of, &read));
    char *table = printed(read);
    holds(table, "   idle bound\n");
    holds(table, "≤62.5% Memory? \n");
    holds(table, "; perhaps bound by memory bandwidth (93.0 % sure); more");
    holds(table, "100.0% -       \n");
    free(table);
    json_decref(of);
    json_decref(read);
}

/* In MiB; beside a file's bytes. */
static void memory_is_shown(void **state)
{
    (void)state;
    json_t *of = results(true), *read = NULL;
    json_t *items = json_object_get(json_array_get(json_object_get(of, "gpus"), 0), "items");
    char *table = printed(of);
    assert_null(strstr(table, "MiB"));
    free(table);
    (void)json_object_set_new(json_array_get(items, 0), "memoryPeakBytes", json_integer(3 << 20));
    (void)json_object_set_new(json_array_get(items, 0), "memoryLiveBytes",
                              json_integer(-(1 << 19)));
    char *csv = written(of, &read);
    holds(csv, ",idle_share,memory_peak_bytes,memory_live_bytes,");
    holds(csv, ",3145728,-524288,");
    table = printed(read);
    holds(table, "   idle  peak MiB  live MiB\n");
    holds(table, "≤62.5%       3.0      -0.5\n");
    holds(table, "100.0%         -         -\n");
    free(table);
    free(csv);
    json_decref(of);
    json_decref(read);
}

/* One layer of the model "names", and one that takes no time, which is counted. */
static void names_are_whole_or_lose_their_middle(void **state)
{
    (void)state;
    static const char row[] =
        "{\"kind\": \"layer\", \"layer\": \"%s\", \"type\": \"Linear\", \"phase\": "
        "\"forward\", \"calls\": 6, \"millisecondsPerStep\": %s, \"share\": 0.5}";
    char one[512], other[512], none[512];
    (void)snprintf(one, sizeof one, row, "base_model.model.model.layers.0.self_attn.q_proj", "1.5");
    (void)snprintf(other, sizeof other, row, "base_model.model.model.layers.1.self_attn.q_proj",
                   "1.25");
    (void)snprintf(none, sizeof none, row, "base_model.model.model.layers.1.self_attn.drop",
                   "0.0001");
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "{\"gpus\": [{\"gpu\": \"\", \"steps\": 3, \"items\": [%s, %s, %s]}]}", one,
                   other, none);
    json_t *of = json_loads(text, 0, NULL);
    assert_non_null(of);
    char *whole = printed(of), *wide = printed_in(of, 400), *narrow = printed_in(of, 100);
    assert_memory_equal(wide, whole, strlen(whole)); /* on a terminal the answer comes once more */
    assert_true(strncmp(wide + strlen(whole), "\ncostliest layer: base", 22) == 0);
    holds(whole, "base_model.model.model.layers.0.self_attn.q_proj Linear forward      2.00     "
                 "1.500  50.0%");
    holds(whole, "not listed: 1 row of layers that take less than a microsecond of a step\n");
    assert_null(strstr(whole, "self_attn.drop"));
    holds(narrow, "base_model.model.mod….0.self_attn.q_proj Linear");
    holds(narrow, "base_model.model.mod….1.self_attn.q_proj Linear");
    free(whole);
    free(wide);
    free(narrow);
    json_decref(of);
}

static void unknown_times_are_not_zero(void **state)
{
    (void)state;
    json_t *of = results(false);
    json_t *read = NULL;
    char *csv = written(of, &read);
    char *table = printed(read);
    const json_t *gpu = json_array_get(json_object_get(read, "gpus"), 0);
    const json_t *item = json_array_get(json_object_get(gpu, "items"), 0);
    assert_true(json_is_null(json_object_get(gpu, "gapNs")));
    assert_true(json_is_null(json_object_get(item, "busyNs")));
    assert_true(json_is_null(json_object_get(item, "busyMillisecondsPerStep")));
    assert_true(json_is_null(json_object_get(item, "idleShare")));
    assert_string_equal(json_string_value(json_object_get(item, "busyReason")),
                        "another CUPTI client");
    holds(csv, "\"recompute\",0,3,8000000,4,,0.8,,,,");
    holds(table, "2 steps of 5.000 ms, in 2 captures over 3.5 s\n");
    holds(table, "recompute    1.50     4.000  80.0%         -       -\n");
    holds(table, "\nbusy times are not known: another CUPTI client\n");
    assert_string_equal(json_string_value(json_object_get(item, "wholeReason")),
                        "it has \033 no names");
    holds(table, "\ntold whole: bot.0: it has ? no names\n");
    free(csv);
    free(table);
    json_decref(of);
    json_decref(read);
}

static void closures_are_shown(void **state)
{
    (void)state;
    json_t *of = results(true);
    json_t *gpu = json_array_get(json_object_get(of, "gpus"), 0);
    char *table = printed(of);
    assert_null(strstr(table, "closure"));
    free(table);
    (void)json_object_set_new(gpu, "closure",
                              json_pack("{s:{s:f, s:f}, s:{s:n, s:n}, s:{s:f, s:f}}", "SMActive",
                                        "held", 0.5, "difference", -0.0123, "SMOccupancy", "held",
                                        "difference", "DRAMActive", "held", 0.25, "difference",
                                        0.0005));
    table = printed(of);
    holds(table, "\nclosure, points: SMActive -1.23, DRAMActive +0.05 (all rows");
    assert_null(strstr(table, "SMOccupancy +"));
    free(table);
    (void)json_object_set_new(gpu, "closure",
                              json_pack("{s:{s:f}}", "FP32Active", "difference", 0.02));
    table = printed(of);
    holds(table, "\nclosure, points: FP32Active +2.00 (all rows");
    free(table);
    json_decref(of);
}

static void quality_is_shown(void **state)
{
    (void)state;
    json_t *of = results(true);
    json_t *gpu = json_array_get(json_object_get(of, "gpus"), 0);
    (void)json_object_set_new(gpu, "quality",
                              json_pack("{s:{s:f, s:n}, s:{s:f, s:s}, s:{s:n, s:s}}", "SMActive",
                                        "explained", 0.987, "doubt", "FP32Active", "explained",
                                        0.31, "doubt", "windows differ", "DRAMActive", "explained",
                                        "untold", "its values did not vary"));
    (void)json_object_set_new(gpu, "fine",
                              json_pack("[{s:{s:{s:f, s:s}}}]", "closure", "TensorActive",
                                        "explained", 0.5, "doubt", "others use the GPU"));
    char *table = printed(of);
    holds(table, "\nheld out and predicted: TensorActive 50.0% of its variance\n"
                 "TensorActive of layers is not told by PM sampling: others use the GPU\n"
                 "held out and predicted: SMActive 98.7%, FP32Active 31.0% of its variance\n"
                 "FP32Active of layers is not told: windows differ\n"
                 "DRAMActive of layers is not told: its values did not vary\n");
    free(table);
    json_decref(of);
}

/* Metrics that no layer has a value of, and of which quality says nothing. */
static void untold_metrics_have_their_reason(void **state)
{
    (void)state;
    json_t *of = results(true);
    json_t *gpu = json_array_get(json_object_get(of, "gpus"), 0);
    json_t *item = json_array_get(json_object_get(gpu, "items"), 0);
    (void)json_object_set_new(
        item, "metrics",
        json_pack("{s:{s:n, s:s}, s:{s:f}, s:{s:n, s:s}, s:{s:n, s:s}, s:{s:n, s:f, s:s}}",
                  "SMActive", "mean", "reason", "nothing was told", "SMOccupancy", "mean", 0.5,
                  "DRAMActive", "mean", "reason", "nothing was told", "FP32Active", "mean",
                  "reason", "windows differ", "TensorActive", "mean", "groupMean", 0.5, "reason",
                  "it has company"));
    (void)json_object_set_new(gpu, "quality",
                              json_pack("{s:{s:s}}", "FP32Active", "doubt", "windows differ"));
    char *table = printed(of);
    holds(table, "\nFP32Active of layers is not told: windows differ\n"
                 "SMActive, DRAMActive of layers: nothing was told\n");
    assert_null(strstr(table, "it has company"));
    free(table);
    (void)json_object_set_new(of, "method", json_string("Job"));
    table = printed(of);
    assert_null(strstr(table, "nothing was told"));
    free(table);
    json_decref(of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_no_formulas),
        cmocka_unit_test(bounds_are_shown),
        cmocka_unit_test(memory_is_shown),
        cmocka_unit_test(known_times_are_shown),
        cmocka_unit_test(names_are_whole_or_lose_their_middle),
        cmocka_unit_test(unknown_times_are_not_zero),
        cmocka_unit_test(closures_are_shown),
        cmocka_unit_test(quality_is_shown),
        cmocka_unit_test(untold_metrics_have_their_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
