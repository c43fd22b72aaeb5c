/* Which bound a kernel has by what its units did: each, none, and what lies near the line. */
#include "estimate/items/item_bounds.h"

#include "common/tests/near.h"

#include <math.h>

static const pp_bound_unit none = {(double)NAN, (double)NAN};

static void bound(double tensor, double fp32, double memory, double error, bool least,
                  double ret[PP_BOUND_COUNT])
{
    const pp_bound_unit units[] = {{tensor, error}, {fp32, error}, {memory, error}};
    pp_bound_of_units(units, least, ret);
    double sum = 0;
    for (int i = 0; i < PP_BOUND_COUNT; i++) {
        assert_true(ret[i] >= 0 && ret[i] <= 1);
        sum += ret[i];
    }
    assert_near(sum, 1, 1e-12);
}

static void test_each(void **state)
{
    (void)state;
    double p[PP_BOUND_COUNT];
    bound(0.8, 0.1, 0.4, 0.02, false, p);
    assert_true(p[PP_BOUND_TENSOR] > 0.999);
    bound(0, 0.7, 0.3, 0.02, false, p);
    assert_true(p[PP_BOUND_FP32] > 0.999);
    bound(0.1, 0.1, 0.9, 0.02, false, p);
    assert_true(p[PP_BOUND_MEMORY] > 0.999);
    bound(0.3, 0.2, 0.4, 0.02, false, p);
    assert_true(p[PP_BOUND_LATENCY] > 0.999);
}

static void test_near_the_line(void **state)
{
    (void)state;
    double p[PP_BOUND_COUNT];
    bound(0, 0, 0.6, 0.05, false, p);
    assert_near(p[PP_BOUND_MEMORY], 0.5, 1e-12);
    assert_near(p[PP_BOUND_LATENCY], 0.5, 1e-12);
    bound(0, 0, 0.65, 0.05, false, p);
    assert_near(p[PP_BOUND_MEMORY], 0.8413447, 1e-6);
    bound(0.8, 0, 0.8, 0.02, false, p);
    assert_near(p[PP_BOUND_TENSOR], p[PP_BOUND_MEMORY], 1e-12);
    bound(0, 0, 0.62, 0, false, p);
    assert_near(p[PP_BOUND_MEMORY], 0.9772499, 1e-6); /* known to a hundredth at best */
}

/* Where several may be over the line, that none is is less likely. */
static void test_several_near_the_line(void **state)
{
    (void)state;
    double p[PP_BOUND_COUNT];
    bound(0, 0.6, 0.6, 0.03, false, p);
    assert_near(p[PP_BOUND_LATENCY], 0.25, 1e-12);
    assert_near(p[PP_BOUND_FP32], 0.375, 1e-12);
    bound(0.6, 0.6, 0.6, 0.03, false, p);
    assert_near(p[PP_BOUND_LATENCY], 0.125, 1e-12);
}

/* A unit that was not measured may have been the bound, unless another is seen to be. */
static void test_not_measured(void **state)
{
    (void)state;
    double p[PP_BOUND_COUNT];
    pp_bound_unit units[] = {none, {0.1, 0.01}, {0.2, 0.01}};
    pp_bound_of_units(units, false, p);
    assert_near(p[PP_BOUND_UNKNOWN], 1, 1e-12);
    units[2].value = 0.9;
    pp_bound_of_units(units, false, p);
    assert_true(p[PP_BOUND_MEMORY] > 0.999);
    units[1] = units[2] = none;
    pp_bound_of_units(units, false, p);
    assert_near(p[PP_BOUND_UNKNOWN], 1, 1e-12);
}

/* Of a mean over time that may hold idle time only what is above the line is known. */
static void test_lower_limits(void **state)
{
    (void)state;
    double p[PP_BOUND_COUNT];
    bound(0.3, 0.2, 0.4, 0.02, true, p);
    assert_true(p[PP_BOUND_UNKNOWN] > 0.999);
    bound(0.3, 0.2, 0.8, 0.02, true, p);
    assert_true(p[PP_BOUND_MEMORY] > 0.999);
}

/* Each by its values over the time in which its kernels ran, as sure as these are. */
static void test_items(void **state)
{
    (void)state;
    enum { PRODUCT, COPY, SLOW, UNMEASURED, LOADER, JOB, ITEMS, VALUES = 3 * 3 };
    static char layer[] = "layer", empty[] = "";
    pp_estimates_item items[ITEMS] = {[COPY] = {.idle_share = 0.5},
                                      [LOADER] = {.kind = PP_ITEM_DATA},
                                      [JOB] = {.kind = PP_ITEM_JOB}};
    static const pp_metric metrics[] = {PP_METRIC_TENSOR_ACTIVE, PP_METRIC_FP32_ACTIVE,
                                        PP_METRIC_DRAM_ACTIVE};
    static const double means[3][3] = {{0.9, 0.1, 0.3}, {0.05, 0.05, 0.4}, {0.3, 0.2, 0.59}};
    pp_estimate values[VALUES];
    for (uint32_t i = 0; i < ITEMS; i++)
        items[i].layer = i < LOADER ? layer : empty;
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = (pp_estimate){.item = i / 3,
                                  .metric = metrics[i % 3],
                                  .mean = means[i / 3][i % 3],
                                  .standard_error = 0.02,
                                  .basis = i / 3 == COPY ? PP_BASIS_ELAPSED : PP_BASIS_BUSY,
                                  .group_mean = (double)NAN};
    pp_estimates e = {.items = items, .n_items = ITEMS, .estimates = values, .n_estimates = VALUES};
    assert_int_equal(pp_item_bounds_fill(&e, NULL), 0);
    assert_int_equal(items[PRODUCT].bound, PP_BOUND_TENSOR);
    assert_true(items[PRODUCT].bound_likely > 0.999);
    assert_int_equal(items[COPY].bound, PP_BOUND_MEMORY); /* 0.4 of a time that idles by half */
    assert_int_equal(items[SLOW].bound, PP_BOUND_LATENCY);
    assert_near(items[SLOW].bound_likely, 0.6914625,
                1e-6); /* half a standard error from the line */
    assert_int_equal(items[UNMEASURED].bound, PP_BOUND_UNKNOWN);
    assert_int_equal(items[LOADER].bound, PP_BOUND_DATA);
    assert_true(isnan(items[JOB].bound_likely));
    for (uint32_t i = 0; i < 3; i++) { /* what a group has says nothing of one in it */
        pp_estimate *of = &values[SLOW * 3 + i];
        of->group_name = layer;
        of->group_mean = of->mean;
        of->group_standard_error = 0.001;
        of->mean = of->standard_error = (double)NAN;
    }
    assert_int_equal(pp_item_bounds_fill(&e, NULL), 0);
    assert_int_equal(items[SLOW].bound, PP_BOUND_UNKNOWN);
    assert_int_equal(items[PRODUCT].bound, PP_BOUND_TENSOR);
    e.gap_ns = -1; /* nobody knows when kernels ran */
    assert_int_equal(pp_item_bounds_fill(&e, NULL), 0);
    assert_int_equal(items[COPY].bound, PP_BOUND_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_near_the_line),
        cmocka_unit_test(test_several_near_the_line),
        cmocka_unit_test(test_not_measured),
        cmocka_unit_test(test_lower_limits),
        cmocka_unit_test(test_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
