/* Kernels of layers: summed over batches, told in results.json, and printed below the table's rows.
 */
#include "cli/results/results.h"
#include "cli/run/run_kernels.h"
#include "cli/tables/table.h"
#include "cli/terminal/names.h"
#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "estimate/activity/activity_builder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define TEXT(text) ((char *)(uintptr_t)(text))

/* ---- sums ---- */

typedef struct sums {
    pp_run_kernels *kernels;
    pp_activity_builder *activity;
} sums;

static sums begin(void)
{
    const sums s = {pp_run_kernels_new(), pp_activity_builder_new()};
    assert_non_null(s.kernels);
    assert_non_null(s.activity);
    return s;
}

static void end(sums *s)
{
    pp_run_kernels_free(s->kernels);
    pp_activity_builder_free(s->activity);
}

static pp_wire_layer layers[] = {{.id = 3, .name = TEXT("bot.0"), .type = TEXT("Linear")},
                                 {.id = 7, .name = TEXT("top"), .type = TEXT("Linear")}};

/* Of so many steps of 10 ms, and kernels of the two layers above. */
static pp_wire_batch batch_of(int64_t process, pp_strings *gpus, pp_wire_step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++)
        steps[i] = (pp_wire_step){.number = (int64_t)i,
                                  .start = PP_WIRE_TIME_MIN + (int64_t)i * 10 * MS,
                                  .duration = 10 * MS,
                                  .epoch = -1,
                                  .batch = -1,
                                  .gap = -1};
    return (pp_wire_batch){
        .process = {.id = process, .world_size = 1, .gpus = *gpus},
        .capture = {.start = PP_WIRE_TIME_MIN, .end = PP_WIRE_TIME_MIN + (int64_t)n * 10 * MS},
        .layers = layers,
        .layer_count = 2,
        .steps = steps,
        .step_count = n};
}

static void add(sums *s, const pp_wire_batch *batch)
{
    pp_error err = {0};
    assert_int_equal(pp_activity_builder_add(s->activity, batch, &err), 0);
    assert_int_equal(pp_run_kernels_add(s->kernels, batch, &err), 0);
}

static json_t *results_of(const char *gpu)
{
    return json_pack("{s:s, s:[{s:s, s:s, s:s}, {s:s, s:s, s:s}, {s:s, s:s, s:s}, {s:s, s:s, s:s}, "
                     "{s:s, s:s, s:s}]}",
                     "gpu", gpu, "items", "kind", "layer", "layer", "bot.0", "phase", "forward",
                     "kind", "layer", "layer", "top", "phase", "backward", "kind", "optimizer",
                     "layer", "", "phase", "optimizer", "kind", "idle", "layer", "", "phase",
                     "idle", "kind", "job", "layer", "", "phase", "idle");
}

static json_t *described(sums *s, const char *gpu)
{
    pp_error err = {0};
    json_t *of = results_of(gpu);
    assert_int_equal(
        pp_run_kernels_describe(s->kernels, pp_activity_builder_get(s->activity), of, &err), 0);
    return of;
}

enum { BOTTOM, TOP, OPTIMIZER, IDLE, JOB };

static const json_t *kernels_at(const json_t *gpu, size_t item)
{
    return json_object_get(json_array_get(json_object_get(gpu, "items"), item), "kernels");
}

static void check(const json_t *gpu, size_t item, size_t at, const char *name, double calls,
                  double ms)
{
    const json_t *kernel = json_array_get(kernels_at(gpu, item), at);
    assert_string_equal(pp_results_text(kernel, "name"), name);
    assert_true(fabs(json_number_value(json_object_get(kernel, "callsPerStep")) - calls) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(kernel, "millisecondsPerStep")) - ms) <
                1e-9);
}

static pp_strings gpu_a = {(char *[]){TEXT("GPU-a")}, 1}, gpu_b = {(char *[]){TEXT("GPU-b")}, 1};

/* Names and layers have other numbers in each batch. */
static void add_training(sums *s)
{
    pp_wire_step steps[3];
    pp_wire_batch one = batch_of(0, &gpu_a, steps, 2);
    one.kernels = (pp_wire_kernels){2,
                                    {(char *[]){TEXT("gemm"), TEXT("add")}, 2},
                                    (pp_wire_kernel[]){{3, PP_WIRE_FORWARD, 0, 4, 8 * MS},
                                                       {3, PP_WIRE_FORWARD, 1, 2, 1 * MS},
                                                       {0, PP_WIRE_OPTIMIZER, 1, 6, 3 * MS}},
                                    3};
    add(s, &one);
    layers[0].id = 9;
    pp_wire_batch other = batch_of(0, &gpu_a, steps, 3);
    other.kernels = (pp_wire_kernels){3,
                                      {(char *[]){TEXT("add"), TEXT(""), TEXT("gemm")}, 3},
                                      (pp_wire_kernel[]){{9, PP_WIRE_FORWARD, 0, 3, 9 * MS},
                                                         {9, PP_WIRE_FORWARD, 1, 5, 50 * MS},
                                                         {9, PP_WIRE_FORWARD, 2, 6, 12 * MS},
                                                         {7, PP_WIRE_BACKWARD, 2, 5, 5 * MS}},
                                      4};
    add(s, &other);
    layers[0].id = 3;
}

static void batches_are_added_up(void **state)
{
    (void)state;
    sums s = begin();
    add_training(&s);
    json_t *of = described(&s, "GPU-a");
    assert_int_equal(json_integer_value(json_object_get(of, "kernelSteps")), 5);
    assert_int_equal(json_array_size(kernels_at(of, BOTTOM)), 3);
    check(of, BOTTOM, 0, "gemm", 2, 4);
    check(of, BOTTOM, 1, "add", 1, 2);
    check(of, BOTTOM, 2, "", 1, 10);
    assert_int_equal(json_array_size(kernels_at(of, TOP)), 1);
    check(of, TOP, 0, "gemm", 1, 1);
    check(of, OPTIMIZER, 0, "add", 1.2, 0.6);
    assert_null(kernels_at(of, IDLE));
    assert_int_equal(json_array_size(kernels_at(of, JOB)), 3);
    check(of, JOB, 0, "gemm", 3, 5);
    check(of, JOB, 1, "add", 2.2, 2.6);
    check(of, JOB, 2, "", 1, 10);
    json_decref(of);
    end(&s);
}

/* Replays, batches without kernels, and steps' kernels that are of no step. */
static void what_is_no_training_adds_nothing(void **state)
{
    (void)state;
    sums s = begin();
    pp_wire_step steps[4];
    pp_wire_kernel row = {3, PP_WIRE_FORWARD, 0, 100, 100 * MS};
    add_training(&s);
    json_t *was = described(&s, "GPU-a");
    pp_wire_batch batch = batch_of(0, &gpu_a, steps, 4);
    add(&s, &batch);
    batch.kernels = (pp_wire_kernels){4, {(char *[]){TEXT("gemm")}, 1}, &row, 1};
    batch.capture.dwell = 2;
    add(&s, &batch);
    json_t *is = described(&s, "GPU-a");
    assert_true(json_equal(was, is));
    json_decref(was);
    json_decref(is);
    end(&s);
}

/* Two processes share one GPU; a third has its own. */
static void processes_count_where_they_ran(void **state)
{
    (void)state;
    sums s = begin();
    pp_wire_step steps[5];
    pp_wire_kernel row = {3, PP_WIRE_FORWARD, 0, 20, 30 * MS};
    add_training(&s);
    pp_wire_batch batch = batch_of(1, &gpu_a, steps, 5);
    batch.kernels = (pp_wire_kernels){5, {(char *[]){TEXT("gemm")}, 1}, &row, 1};
    add(&s, &batch);
    batch.process.id = 2;
    batch.process.gpus = gpu_b;
    add(&s, &batch);
    json_t *a = described(&s, "GPU-a"), *b = described(&s, "GPU-b"), *c = described(&s, "GPU-c");
    assert_int_equal(json_integer_value(json_object_get(a, "kernelSteps")), 10);
    check(a, BOTTOM, 0, "gemm", 3, 5);
    assert_int_equal(json_integer_value(json_object_get(b, "kernelSteps")), 5);
    check(b, BOTTOM, 0, "gemm", 4, 6);
    assert_int_equal(json_array_size(kernels_at(b, BOTTOM)), 1);
    assert_int_equal(json_array_size(kernels_at(b, TOP)), 0);
    PP_CLEANUP_JSON json_t *unchanged = results_of("GPU-c");
    assert_true(json_equal(c, unchanged));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    end(&s);
}

/* `n` names of so many bytes, each of them new, in a step of the first layer. */
static void add_names(sums *s, size_t first, size_t n, int bytes, int64_t ns)
{
    pp_wire_step step;
    pp_strings names = {calloc(n, sizeof(char *)), n};
    pp_wire_kernel *rows = calloc(n, sizeof *rows);
    assert_non_null(names.items);
    assert_non_null(rows);
    for (size_t i = 0; i < n; i++) {
        assert_true(asprintf(&names.items[i], "%0*zu", bytes, first + i) == bytes);
        rows[i] = (pp_wire_kernel){3, PP_WIRE_FORWARD, (int64_t)i, 1, ns + (int64_t)(first + i)};
    }
    pp_wire_batch batch = batch_of(0, &gpu_a, &step, 1);
    batch.kernels = (pp_wire_kernels){1, names, rows, n};
    add(s, &batch);
    pp_strings_free(&names);
    free(rows);
}

/* Those that are not told apart are none of them, however long they take. */
static void an_item_has_twenty_names(void **state)
{
    (void)state;
    sums s = begin();
    pp_wire_step step;
    pp_wire_kernel row = {3, PP_WIRE_FORWARD, 0, 1, 1000};
    pp_wire_batch batch = batch_of(0, &gpu_a, &step, 1);
    batch.kernels = (pp_wire_kernels){1, {(char *[]){TEXT("")}, 1}, &row, 1};
    add(&s, &batch);
    add_names(&s, 100, 25, 3, 0);
    json_t *of = described(&s, "GPU-a");
    assert_int_equal(json_array_size(kernels_at(of, BOTTOM)), PP_RUN_KERNELS_OF_ITEM + 1);
    for (int i = 0; i < PP_RUN_KERNELS_OF_ITEM; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "%d", 124 - i);
        check(of, BOTTOM, (size_t)i, name, 0.5, (124 - i) / 2e6);
    }
    check(of, BOTTOM, PP_RUN_KERNELS_OF_ITEM, "", 3, (1000 + 100 + 101 + 102 + 103 + 104) / 2e6);
    json_decref(of);
    end(&s);
}

/* The time of all of them stays; names that come too late are not told, whatever they take. */
static void limited(int bytes, size_t held)
{
    enum { EACH = 4096 };
    sums s = begin();
    size_t n = 0;
    for (; n < held + EACH; n += EACH)
        add_names(&s, n, EACH, bytes, 0);
    add_names(&s, n, 1, bytes, 1000 * MS);
    json_t *of = described(&s, "GPU-a");
    const double steps = json_number_value(json_object_get(of, "kernelSteps"));
    const json_t *all = kernels_at(of, BOTTOM);
    double calls = 0;
    size_t i;
    json_t *kernel;
    json_array_foreach((json_t *)(uintptr_t)all, i, kernel)
    {
        calls += json_number_value(json_object_get(kernel, "callsPerStep"));
        assert_true(strtoul(pp_results_text(kernel, "name"), NULL, 10) < held);
    }
    assert_true(fabs(calls * steps - (double)(n + 1)) < 1e-3);
    assert_int_equal(strtoul(pp_results_text(json_array_get(all, 0), "name"), NULL, 10), held - 1);
    json_decref(of);
    end(&s);
}

static void names_are_limited(void **state)
{
    (void)state;
    limited(12, PP_RUN_KERNELS_MAX_ROWS);
    limited(1023, PP_RUN_KERNELS_MAX_TEXT / 1024);
}

/* One may be cut within a character. */
static void names_need_not_be_utf8(void **state)
{
    (void)state;
    sums s = begin();
    pp_wire_step step;
    pp_wire_kernel row = {3, PP_WIRE_FORWARD, 0, 1, MS};
    pp_wire_batch batch = batch_of(0, &gpu_a, &step, 1);
    batch.kernels = (pp_wire_kernels){1, {(char *[]){TEXT("a\xffz")}, 1}, &row, 1};
    add(&s, &batch);
    json_t *of = described(&s, "GPU-a");
    check(of, BOTTOM, 0, "a?z", 1, 1);
    json_decref(of);
    end(&s);
}

/* ---- the table ---- */

static char *printed(const json_t *results, int columns, int kernels)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    pp_table_print(results, f, &(pp_table_view){columns, kernels});
    (void)fclose(f);
    char *copy = strdup(text); /* gcc takes what the stream has written for a local's address */
    free(text);
    return copy;
}

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in\n%s", part, text);
}

/* A layer whose kernels take 3, 2 and 1 ms of a step. */
static json_t *table_of(const char *layer, const char *const names[3])
{
    json_t *kernels = json_array();
    for (int i = 0; i < 3; i++)
        (void)json_array_append_new(kernels,
                                    json_pack("{s:s, s:f, s:f}", "name", names[i], "callsPerStep",
                                              2.0 + i, "millisecondsPerStep", 3.0 - i));
    return json_pack("{s:[{s:s, s:i, s:[{s:s, s:s, s:s, s:s, s:f, s:o}]}]}", "gpus", "gpu", "GPU-a",
                     "steps", 1, "items", "kind", "layer", "layer", layer, "type", "Linear",
                     "phase", "forward", "millisecondsPerStep", 6.5, "kernels", kernels);
}

static void kernels_are_below_their_row(void **state)
{
    (void)state;
    static const char *const names[] = {"void gemm<float>(int, (anonymous namespace)::A)",
                                        "triton_poi_fused_0", ""};
    PP_CLEANUP_JSON json_t *of = table_of("bot.0", names);
    PP_CLEANUP_FREE char *all = printed(of, 0, 20), *two = printed(of, 0, 2),
                         *none = printed(of, 0, 0);
    holds(all,
          "     calls   ms/step   share  kernel (share: of the row's time of kernels)\nbot.0 ");
    holds(all, "\n        2.00     3.000   50.0%  gemm<float>\n"
               "        3.00     2.000   33.3%  triton_poi_fused_0\n"
               "        4.00     1.000   16.7%  (not told apart)\n");
    holds(two, "  33.3%  triton_poi_fused_0\n");
    assert_null(strstr(two, "not told apart"));
    assert_null(strstr(none, "gemm"));
    assert_null(strstr(none, "share: of"));
    assert_null(strstr(all, "kernels are not known"));
}

/* What stands behind a share, to the end of the line. */
static char *name_behind(const char *text, const char *share)
{
    const char *name = strstr(text, share);
    assert_non_null(name);
    name += strlen(share);
    return strndup(name, strcspn(name, "\n"));
}

/* Names of elementwise kernels, as torch 2.6 has them: alike but for a functor in the middle. */
static void names_stay_apart_on_a_narrow_terminal(void **state)
{
    (void)state;
#define ELEMENTWISE(functor)                                                                       \
    "void at::native::vectorized_elementwise_kernel<4, at::native::" functor                       \
    "<float>, std::array<char*, 3ul> >(int, at::native::" functor                                  \
    "<float>, std::array<char*, 3ul>)"
    static const char *const names[] = {ELEMENTWISE("CUDAFunctor_add"),
                                        ELEMENTWISE("CUDAFunctor_mul"), "gemm"};
    PP_CLEANUP_JSON json_t *of = table_of("bot.0", names);
    PP_CLEANUP_FREE char *wide = printed(of, 400, 3);
    holds(wide, "50.0%  at::native::vectorized_elementwise_kernel<4, "
                "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >\n");
    for (int columns = 60; columns < 130; columns++) {
        PP_CLEANUP_FREE char *narrow = printed(of, columns, 3);
        PP_CLEANUP_FREE char *one = name_behind(narrow, "50.0%  ");
        PP_CLEANUP_FREE char *other = name_behind(narrow, "33.3%  ");
        if (strcmp(one, other) == 0 || !strstr(one, "…") || pp_name_places(one) != columns - 32 ||
            pp_name_places(other) != columns - 32)
            fail_msg("%d columns:\n%s", columns, narrow);
        holds(narrow, "16.7%  gemm\n");
    }
}

/* Each of two rows has one of them: what tells it from the other's is shown, and the same below
 * both. */
static void names_are_cut_alike(void **state)
{
    (void)state;
    static const char *const some[] = {ELEMENTWISE("CUDAFunctor_add"), "gemm", ""};
    static const char *const others[] = {ELEMENTWISE("CUDAFunctor_mul"),
                                         ELEMENTWISE("CUDAFunctor_add"), ""};
    PP_CLEANUP_JSON json_t *of = table_of("bot.0", some), *more = table_of("bot.1", others);
    json_t *items = json_object_get(json_array_get(json_object_get(of, "gpus"), 0), "items");
    (void)json_array_extend(
        items, json_object_get(json_array_get(json_object_get(more, "gpus"), 0), "items"));
    PP_CLEANUP_FREE char *narrow = printed(of, 90, 3);
    PP_CLEANUP_FREE char *one = name_behind(narrow, "50.0%  ");
    const char *second = strstr(narrow, "bot.1 ");
    PP_CLEANUP_FREE char *other = name_behind(second, "50.0%  ");
    PP_CLEANUP_FREE char *again = name_behind(second, "33.3%  ");
    assert_string_equal(one, again);
    assert_string_not_equal(one, other);
    assert_non_null(strstr(one, "…"));
}

/* Overloads have the same name without their arguments. */
static void overloads_keep_their_arguments(void **state)
{
    (void)state;
    static const char *const names[] = {"void scale(float*)", "void scale(double*)", "gemm(int)"};
    PP_CLEANUP_JSON json_t *of = table_of("bot.0", names);
    PP_CLEANUP_FREE char *text = printed(of, 0, 3), *two = printed(of, 0, 1);
    holds(text, "50.0%  void scale(float*)\n");
    holds(text, "33.3%  void scale(double*)\n");
    holds(two, "50.0%  scale\n");
    PP_CLEANUP_FREE char *terminal = printed(of, 120, 3);
    assert_memory_equal(terminal, text, strlen(text));
#define LONG "scale(unsigned int, unsigned int, unsigned int, unsigned int, "
    static const char *const longer[] = {LONG "float*)", LONG "double*)", ""};
    PP_CLEANUP_JSON json_t *others = table_of("bot.0", longer);
    PP_CLEANUP_FREE char *cut = printed(others, 80, 3);
    PP_CLEANUP_FREE char *one = name_behind(cut, "50.0%  ");
    assert_int_equal(pp_name_places(one), 80 - 32);
}

/* results.json may hold anything. */
static void nothing_hostile_is_printed(void **state)
{
    (void)state;
    static const char *const names[] = {"a\x1b[2J\x07\x7f\r\nb",
                                        "c\xc2\x9b"
                                        "31md",
                                        "\xc3\xa9\xc2\xa0"};
    PP_CLEANUP_JSON json_t *of = table_of("l\x1b]0;x\x07", names);
    PP_CLEANUP_FREE char *text = printed(of, 0, 3);
    for (const char *c = text; *c; c++)
        assert_true(*c == '\n' || ((unsigned char)*c >= ' ' && *c != 0x7f));
    assert_null(strstr(text, "\xc2\x9b"));
    holds(text, "\nl?]0;x? ");
    holds(text, "50.0%  a?[2J????b\n");
    holds(text, "33.3%  c?31md\n");
    holds(text, "16.7%  \xc3\xa9\xc2\xa0\n");
    json_t *item =
        json_array_get(json_object_get(json_array_get(json_object_get(of, "gpus"), 0), "items"), 0);
    (void)json_object_set_new(
        item, "kernels",
        json_pack("[n, i, {s:i, s:s}, []]", 3, "name", 5, "millisecondsPerStep", "x"));
    PP_CLEANUP_FREE char *wrong = printed(of, 60, 3);
    holds(wrong, "        0.00     0.000       -  (not told apart)\n");
}

static void unknown_kernels_have_their_reason(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    PP_CLEANUP_JSON json_t *of = table_of("bot.0", names);
    json_t *item =
        json_array_get(json_object_get(json_array_get(json_object_get(of, "gpus"), 0), "items"), 0);
    (void)json_object_set_new(item, "kernels", json_array());
    PP_CLEANUP_FREE char *plain = printed(of, 0, 3), *unasked = printed(of, 0, 0);
    holds(plain, "\nkernels are not known\n");
    assert_null(strstr(plain, "share: of"));
    assert_null(strstr(unasked, "kernels are not known"));
    (void)json_object_set_new(item, "busyReason", json_string("another CUPTI client"));
    PP_CLEANUP_FREE char *reason = printed(of, 0, 3);
    holds(reason, "\nkernels are not known: another CUPTI client\n");
}

static void names_in_short(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"void f<int>(int, char*)", "f<int>"},
        {"f<(bool)1>", "f<(bool)1>"},
        {"void (anonymous namespace)::f<(int)3>(void (*)(int))",
         "(anonymous namespace)::f<(int)3>"},
        {"(anonymous namespace)", "(anonymous namespace)"},
        {"a::(anonymous namespace)", "a::(anonymous namespace)"},
        {"a::operator()", "a::operator()"},
        {"a::operator()(int)", "a::operator()"},
        {"void ", ""},
        {"voids(int)", "voids"},
        {"(int)", "(int)"},
        {")", ")"},
        {"a)(b)", "a)"},
        {"a(b))", "a(b))"},
        {"triton_poi_fused_0", "triton_poi_fused_0"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_FREE char *name = pp_name_of_kernel(cases[i][0]);
        assert_string_equal(name, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_added_up),
        cmocka_unit_test(what_is_no_training_adds_nothing),
        cmocka_unit_test(processes_count_where_they_ran),
        cmocka_unit_test(an_item_has_twenty_names),
        cmocka_unit_test(names_are_limited),
        cmocka_unit_test(names_need_not_be_utf8),
        cmocka_unit_test(kernels_are_below_their_row),
        cmocka_unit_test(names_stay_apart_on_a_narrow_terminal),
        cmocka_unit_test(names_are_cut_alike),
        cmocka_unit_test(overloads_keep_their_arguments),
        cmocka_unit_test(nothing_hostile_is_printed),
        cmocka_unit_test(unknown_kernels_have_their_reason),
        cmocka_unit_test(names_in_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
