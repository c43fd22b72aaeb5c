#include "common/tests/cmocka_all.h"
#include "sidecar/agent/kernel_sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { F = PP_MARK_FORWARD, B = PP_MARK_BACKWARD, OTHER = PP_MARK_OTHER };

static void add(pp_kernel_sums *s, uint32_t layer, uint8_t phase, uint32_t name, int64_t ns)
{
    pp_kernel_sums_add(
        s, &(pp_kernels_placed){
               .start = 100, .end = 100 + ns, .layer = layer, .phase = phase, .name = name});
}

static void name(pp_kernel_sums *s, const char *bytes, size_t n)
{
    pp_error err = {0};
    assert_int_equal(pp_kernel_sums_name(s, bytes, n, &err), 0);
}

static pp_wire_kernels copy_part(pp_kernel_sums *s, size_t room, size_t *at)
{
    pp_wire_kernels ret;
    pp_error err = {0};
    assert_int_equal(pp_kernel_sums_copy(s, room, at, &ret, &err), 0);
    return ret;
}

static pp_wire_kernels copy(pp_kernel_sums *s)
{
    size_t at = 0;
    pp_wire_kernels ret = copy_part(s, 1 << 24, &at);
    assert_true(at == SIZE_MAX);
    return ret;
}

static void done(pp_wire_kernels *k)
{
    pp_strings_free(&k->names);
    free(k->rows);
}

static void assert_row(const pp_wire_kernels *k, size_t i, const char *text,
                       const pp_wire_kernel *expected)
{
    const pp_wire_kernel *row = &k->rows[i];
    assert_true(i < k->count);
    assert_string_equal(k->names.items[row->name], text);
    assert_int_equal(row->layer, expected->layer);
    assert_int_equal(row->phase, expected->phase);
    assert_int_equal(row->count, expected->count);
    assert_int_equal(row->duration, expected->duration);
}

static void test_sums_of_steps(void **state)
{
    (void)state;
    static const char names[] = "_Z3addPf\0gemm";
    pp_kernel_sums *s = pp_kernel_sums_new();
    name(s, names, sizeof names);
    assert_int_equal(pp_kernel_sums_named(s), sizeof names);
    add(s, 2, F, 2, 30);
    add(s, 1, B, 2, 5);
    add(s, 2, F, 2, 40);
    add(s, 2, F, 1, 7);
    pp_kernel_sums_step(s, true);
    add(s, 2, F, 2, 1000); /* of a step that does not count */
    pp_kernel_sums_step(s, false);
    add(s, 2, F, 2, 2);
    add(s, 0, OTHER, 0, 3);
    add(s, 0, OTHER, 9, 4); /* a name that is not there */
    pp_kernel_sums_step(s, true);
    pp_wire_kernels k = copy(s);
    assert_int_equal(k.steps, 2);
    assert_int_equal(k.count, 4);
    assert_int_equal(k.names.count, 3);
    assert_row(&k, 0, "", &(pp_wire_kernel){0, PP_WIRE_OTHER, 0, 2, 7});
    assert_row(&k, 1, "gemm", &(pp_wire_kernel){1, PP_WIRE_BACKWARD, 0, 1, 5});
    assert_row(&k, 2, "add(float*)", &(pp_wire_kernel){2, PP_WIRE_FORWARD, 0, 1, 7});
    assert_row(&k, 3, "gemm", &(pp_wire_kernel){2, PP_WIRE_FORWARD, 0, 3, 72});
    done(&k);
    pp_kernel_sums_free(s);
}

/* Those of the step that comes next are not told, nor lost. */
static void test_told_between_steps(void **state)
{
    (void)state;
    pp_kernel_sums *s = pp_kernel_sums_new();
    name(s, "gemm", 5);
    add(s, 1, F, 1, 10);
    pp_kernel_sums_step(s, true);
    add(s, 1, F, 1, 200);
    pp_wire_kernels k = copy(s);
    assert_row(&k, 0, "gemm", &(pp_wire_kernel){1, PP_WIRE_FORWARD, 0, 1, 10});
    done(&k);
    pp_kernel_sums_clear(s);
    assert_int_equal(pp_kernel_sums_steps(s), 0);
    k = copy(s);
    assert_int_equal(k.count, 0);
    done(&k);
    pp_kernel_sums_step(s, true);
    k = copy(s);
    assert_int_equal(k.steps, 1);
    assert_row(&k, 0, "gemm", &(pp_wire_kernel){1, PP_WIRE_FORWARD, 0, 1, 200});
    done(&k);
    pp_kernel_sums_free(s);
}

static void test_names_may_be_anything(void **state)
{
    (void)state;
    static char long_name[3 * PP_WIRE_MAX_NAME];
    static const char names[] = "mm\0_Zno\0a\x1b[2J\xff\xc3\xa9\0";
    pp_kernel_sums *s = pp_kernel_sums_new();
    (void)memset(long_name, 'k', sizeof long_name - 1);
    memcpy(long_name + sizeof long_name - 5, "tail", 4);
    name(s, "ge", 2);             /* comes in two parts */
    name(s, names, sizeof names); /* the last of them is empty */
    name(s, long_name, sizeof long_name);
    for (uint32_t i = 1; i <= 5; i++)
        add(s, 1, F, i, 1);
    pp_kernel_sums_step(s, true);
    pp_wire_kernels k = copy(s);
    static const char *const expected[] = {"gemm", "_Zno", "a?[2J???", ""};
    for (size_t i = 0; i < 4; i++)
        assert_row(&k, i, expected[i], &(pp_wire_kernel){1, PP_WIRE_FORWARD, 0, 1, 1});
    const char *cut = k.names.items[k.rows[4].name];
    assert_int_equal(strlen(cut), PP_WIRE_MAX_NAME);
    assert_non_null(strstr(cut, "k...k"));
    assert_string_equal(cut + PP_WIRE_MAX_NAME - 4, "tail");
    done(&k);
    pp_kernel_sums_free(s);
}

/* A short name that stands for more text than there is memory. */
static void test_a_name_without_end(void **state)
{
    (void)state;
    char text[1000] = "_Z1f1TI1aS0_E";
    for (int i = 1; i < 100; i++) {
        static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        char of[3] = {digits[i % 36], '\0', '\0'};
        if (i >= 36) {
            of[0] = digits[i / 36];
            of[1] = digits[i % 36];
        }
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "S_IS%s_S%s_E", of, of);
    }
    pp_kernel_sums *s = pp_kernel_sums_new();
    name(s, text, strlen(text) + 1);
    add(s, 1, F, 1, 1);
    pp_kernel_sums_step(s, true);
    pp_wire_kernels k = copy(s);
    assert_row(&k, 0, text, &(pp_wire_kernel){1, PP_WIRE_FORWARD, 0, 1, 1});
    done(&k);
    pp_kernel_sums_free(s);
}

/* Each row once, the steps once, and each part within its room. */
static void test_told_in_parts(void **state)
{
    (void)state;
    enum { LAYERS = 1000, NAMES = 3 };
    static const char names[] = "gemm\0relu\0add";
    pp_kernel_sums *s = pp_kernel_sums_new();
    name(s, names, sizeof names);
    for (uint32_t i = 0; i < LAYERS * NAMES; i++)
        add(s, 1 + i / NAMES, F, 1 + i % NAMES, i + 1);
    pp_kernel_sums_step(s, true);
    size_t at = 0, rows = 0, parts = 0;
    int64_t steps = 0, ns = 0;
    while (at != SIZE_MAX) {
        pp_wire_kernels k = copy_part(s, 200000, &at);
        assert_true(k.count > 0 && k.count < LAYERS);
        steps += k.steps;
        rows += k.count;
        for (size_t i = 0; i < k.count; i++)
            ns += k.rows[i].duration;
        parts++;
        done(&k);
    }
    assert_true(parts > 3 && rows == LAYERS * NAMES && steps == 1);
    assert_int_equal(ns, LAYERS * NAMES * (LAYERS * NAMES + 1) / 2);
    pp_kernel_sums_free(s);
}

static void test_no_longer_than_the_wire_takes(void **state)
{
    (void)state;
    pp_kernel_sums *s = pp_kernel_sums_new();
    name(s, "gemm", 5);
    for (int i = 0; i < 30000; i++)
        add(s, 1, F, 1, 4000000000);
    pp_kernel_sums_step(s, true);
    pp_wire_kernels k = copy(s);
    assert_true(k.rows[0].duration == PP_WIRE_MAX_DURATION);
    done(&k);
    pp_kernel_sums_free(s);
}

/* None rather than some of them. */
static void test_too_many_rows_tell_nothing(void **state)
{
    (void)state;
    pp_kernel_sums *s = pp_kernel_sums_new();
    name(s, "gemm", 5);
    for (uint32_t i = 0; i <= PP_KERNEL_SUMS_MAX; i++)
        add(s, i + 1, F, 1, 1);
    pp_kernel_sums_step(s, true);
    pp_wire_kernels k = copy(s);
    assert_int_equal(k.count, 0);
    assert_true(pp_kernel_sums_over(s));
    done(&k);
    pp_kernel_sums_clear(s);
    add(s, 1, F, 1, 1);
    pp_kernel_sums_step(s, true);
    k = copy(s);
    assert_int_equal(k.count, 1);
    done(&k);
    pp_kernel_sums_free(s);
}

static void test_impossible_durations(void **state)
{
    (void)state;
    enum { STEPS = 3, KERNELS = 5 };
    pp_kernel_sums *s = pp_kernel_sums_new();
    for (int i = 0; i < STEPS; i++) {
        for (int j = 0; j < KERNELS; j++)
            add(s, 1, F, 0, INT64_MAX / 2);
        pp_kernel_sums_step(s, true);
    }
    pp_wire_kernels told = copy(s);
    assert_row(&told, 0, "",
               &(pp_wire_kernel){.layer = 1,
                                 .phase = PP_WIRE_FORWARD,
                                 .count = STEPS * KERNELS,
                                 .duration = PP_WIRE_MAX_DURATION});
    done(&told);
    pp_kernel_sums_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_steps),
        cmocka_unit_test(test_told_between_steps),
        cmocka_unit_test(test_names_may_be_anything),
        cmocka_unit_test(test_a_name_without_end),
        cmocka_unit_test(test_told_in_parts),
        cmocka_unit_test(test_no_longer_than_the_wire_takes),
        cmocka_unit_test(test_impossible_durations),
        cmocka_unit_test(test_too_many_rows_tell_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
