/* The table of metrics: what lists, tables and the wire are made from it. */
#include "estimate/metric.h"

#include "common/wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_what_pm_sampling_tells(void **state)
{
    (void)state;
    /* Running agents and stored rows have them in this order. */
    const pp_metric order[] = {PP_METRIC_SM_ACTIVE, PP_METRIC_SM_OCCUPANCY, PP_METRIC_DRAM_ACTIVE,
                               PP_METRIC_FP32_ACTIVE};
    for (int i = 0; i < PP_WIRE_FINE_METRICS; i++)
        assert_int_equal(pp_metric_sampled(i), order[i]);
    assert_int_equal(pp_metric_sampled(PP_WIRE_FINE_METRICS), PP_METRIC_COUNT);
}

static void test_columns_of_a_table(void **state)
{
    (void)state;
    const char *const headings[] = {"SMActive", "SMOcc.", "DRAM", "FP32", "GPUUtil"};
    int n = 0;
    for (pp_metric m; (m = pp_metric_in_column(n)) < PP_METRIC_COUNT; n++)
        assert_string_equal(pp_metric_get(m)->heading, headings[n]);
    assert_int_equal(n, sizeof headings / sizeof *headings);
}

static void test_each_is_whole(void **state)
{
    (void)state;
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)i);
        pp_metric found = PP_METRIC_COUNT;
        assert_int_equal(pp_metric_from_name(info->spec_name, &found), 0);
        assert_int_equal(found, i);
        assert_int_equal(pp_metric_from_name(info->column, &found), 0);
        assert_int_equal(found, i);
        assert_true(*info->heading && (isnan(info->max) || info->max * info->shown == 100));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_pm_sampling_tells),
        cmocka_unit_test(test_columns_of_a_table),
        cmocka_unit_test(test_each_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
