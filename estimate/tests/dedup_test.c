#include "common/tests/cmocka_all.h"
#include "estimate/items/dedup.h"

#include <math.h>
#include <string.h>

#define NONE ((double)NAN)

static pp_sample_row row(int64_t at, double util, double mem, double sm)
{
    pp_sample_row r = {.first_ns = at, .last_ns = at, .windows = 1, .share = 0.5};
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        r.values[m] = NONE;
    r.values[PP_METRIC_GPU_UTIL] = util;
    r.values[PP_METRIC_GPU_MEM] = mem;
    r.values[PP_METRIC_SM_ACTIVE] = sm;
    memcpy(r.by_share, r.values, sizeof r.by_share);
    return r;
}

static void test_same(void **state)
{
    (void)state;
    static const struct {
        double util, mem, sm, tolerance;
        bool same;
    } cases[] = {
        {50, 1000, 0.5, 0, true},    {54.9, 1000, 0.5, 5, true},   {55.1, 1000, 0.5, 5, false},
        {50, 1050, 0.5, 5, true},    {50, 1051, 0.5, 5, false},    {50, 1000, 0.549, 5, true},
        {50, 1000, 0.551, 5, false}, {50, 1000, NONE, 100, false}, {50.01, 1000, 0.5, 0, false},
        {45.1, 951, 0.451, 5, true},
    };
    pp_sample_row a = row(1, 50, 1000, 0.5);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pp_sample_row b = row(2, cases[i].util, cases[i].mem, cases[i].sm);
        if (pp_dedup_same(&a, &b, cases[i].tolerance) != cases[i].same)
            fail_msg("case %zu", i);
    }
}

static void test_fold(void **state)
{
    (void)state;
    pp_sample_row last = row(10, 50, 1000, 0.5), next = row(20, 52, 1000, 0.5);
    const pp_sample_row first = last;
    next.share = 0.8;
    next.windows = 2;
    assert_true(pp_dedup_fold(&last, &first, &next, 5));
    assert_true(last.first_ns == 10 && last.last_ns == 20 && last.windows == 3);
    assert_true(fabs(last.share - 0.7) < 1e-12);
    assert_true(fabs(last.values[PP_METRIC_GPU_UTIL] - 154.0 / 3) < 1e-12);
    assert_true(isnan(last.values[PP_METRIC_DRAM_ACTIVE]));
    assert_true(fabs(last.by_share[PP_METRIC_GPU_UTIL] - (50 * 0.5 + 52 * 1.6) / 2.1) < 1e-12);
    assert_true(isnan(last.by_share[PP_METRIC_DRAM_ACTIVE]));
    pp_sample_row copy = last;
    assert_true(pp_dedup_fold(&last, &first, &next, 5)); /* seen twice counts once */
    assert_memory_equal(&copy, &last, sizeof copy);
    pp_sample_row overlapping = row(20, 50, 1000, 0.5);
    overlapping.last_ns = 30;
    assert_false(pp_dedup_fold(&last, &first, &overlapping, 5));
    pp_sample_row before = row(5, 50, 1000, 0.5);
    assert_false(pp_dedup_fold(&last, &first, &before, 5));
}

/* Whatever the values: only what was measured has to be the same. */
static void test_join(void **state)
{
    (void)state;
    pp_sample_row last = row(10, 0, 1000, 0), next = row(20, 100, 3000, 1);
    next.share = 1;
    assert_true(pp_dedup_join(&last, &next));
    assert_true(last.windows == 2 && last.share == 0.75 && last.last_ns == 20);
    assert_true(last.values[PP_METRIC_SM_ACTIVE] == 0.5);
    assert_true(fabs(last.by_share[PP_METRIC_SM_ACTIVE] - 2 / 3.0) < 1e-12);
    const pp_sample_row less = row(30, 50, 1000, NONE), more = row(30, 50, 1000, 0.5);
    const pp_sample_row copy = last;
    assert_false(pp_dedup_join(&last, &less));
    assert_memory_equal(&copy, &last, sizeof copy);
    pp_sample_row unmeasured = row(10, 50, 1000, NONE);
    assert_false(pp_dedup_join(&unmeasured, &more));
    assert_true(pp_dedup_join(&unmeasured, &less));
}

/* Values that creep must not be folded for ever into the first. */
static void test_drift(void **state)
{
    (void)state;
    pp_sample_row last = row(0, 0, 1000, 0.5), first = last;
    int rows = 1;
    int64_t windows = 0;
    double sum = 0;
    for (int i = 1; i < 100; i++) {
        pp_sample_row next = row(i, i, 1000, 0.5);
        if (pp_dedup_fold(&last, &first, &next, 5))
            continue;
        windows += last.windows;
        sum += (double)last.windows * last.values[PP_METRIC_GPU_UTIL];
        last = first = next;
        rows++;
    }
    assert_int_equal(rows, 17); /* steps of 6 points */
    sum += (double)last.windows * last.values[PP_METRIC_GPU_UTIL];
    assert_true(fabs(sum - 4950) < 1e-9); /* and the mean is that of all windows */
    assert_int_equal(windows + last.windows, 100);
}

static void test_names(void **state)
{
    (void)state;
    pp_metric metric;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        assert_int_equal(pp_metric_from_name(pp_metric_get((pp_metric)m)->spec_name, &metric), 0);
        assert_int_equal(metric, m);
        assert_int_equal(pp_metric_from_name(pp_metric_get((pp_metric)m)->column, &metric), 0);
        assert_int_equal(metric, m);
    }
    assert_int_equal(pp_metric_from_name("powers", &metric), -1);
    char text[24];
    pp_metric_names(PP_METRIC_ALL, text, sizeof text); /* cut, not overrun */
    assert_int_equal(strlen(text), sizeof text - 1);
    pp_metric_names(1U << PP_METRIC_GPU_MEM | 1U << PP_METRIC_SM_ACTIVE, text, sizeof text);
    assert_string_equal(text, "SMActive, GPUMem");
}

static void test_convert(void **state)
{
    (void)state;
    pp_metric_source dcgm, amd;
    pp_error err = {0};
    assert_int_equal(pp_metric_preset("dcgm", &dcgm, NULL), 0);
    assert_int_equal(pp_metric_preset("amd", &amd, NULL), 0);
    assert_int_equal(pp_metric_preset("intel", &dcgm, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
    static const struct {
        bool amd;
        pp_metric metric;
        double raw, value; /* NaN: dropped */
    } cases[] = {
        {false, PP_METRIC_GPU_UTIL, 97, 97},
        {false, PP_METRIC_GPU_UTIL, 9223372036854775794.0, NONE},
        {false, PP_METRIC_GPU_UTIL, 2147483632, NONE},
        {false, PP_METRIC_GPU_MEM, 9223372036854775794.0, NONE},
        {false, PP_METRIC_GPU_MEM, 140737488355328.0, NONE},
        {false, PP_METRIC_GPU_MEM, 81559, 81559},
        {false, PP_METRIC_GPU_MEM, -1, NONE},
        {false, PP_METRIC_SM_ACTIVE, 0.432, 0.432},
        {false, PP_METRIC_SM_ACTIVE, 1.004, 1},
        {false, PP_METRIC_SM_ACTIVE, 43.2, NONE},
        {false, PP_METRIC_SM_ACTIVE, -0.5, NONE},
        {false, PP_METRIC_SM_ACTIVE, (double)INFINITY, NONE},
        {false, PP_METRIC_SM_ACTIVE, NONE, NONE},
        {true, PP_METRIC_SM_ACTIVE, 43, 0.43},
        {true, PP_METRIC_GPU_UTIL, 43, 43},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = -1;
        bool kept =
            pp_metric_convert(cases[i].amd ? &amd : &dcgm, cases[i].metric, cases[i].raw, &value);
        if (kept == isnan(cases[i].value) || (kept && fabs(value - cases[i].value) > 1e-12))
            fail_msg("case %zu: %d %g", i, kept, value);
    }
    pp_metric metric;
    assert_int_equal(pp_metric_of_series(&dcgm, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", &metric), 0);
    assert_int_equal(metric, PP_METRIC_FP32_ACTIVE);
    assert_int_equal(pp_metric_of_series(&amd, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", &metric), -1);
    assert_int_equal(pp_metric_of_series(&amd, "", &metric), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),  cmocka_unit_test(test_fold),  cmocka_unit_test(test_join),
        cmocka_unit_test(test_drift), cmocka_unit_test(test_names), cmocka_unit_test(test_convert),
    };
    return cmocka_run_group_tests_name("dedup", tests, NULL, NULL);
}
