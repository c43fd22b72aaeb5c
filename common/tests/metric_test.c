/* The table of metrics: what lists, tables and the wire are made from it. */
#include "common/metric.h"

#include "common/file.h"
#include "common/wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_what_pm_sampling_tells(void **state)
{
    (void)state;
    /* Running agents and stored rows have them in this order. */
    const pp_metric order[] = {PP_METRIC_SM_ACTIVE,     PP_METRIC_SM_OCCUPANCY,
                               PP_METRIC_DRAM_ACTIVE,   PP_METRIC_FP32_ACTIVE,
                               PP_METRIC_TENSOR_ACTIVE, PP_METRIC_SM_CLOCK};
    for (int i = 0; i < PP_WIRE_PM_METRICS; i++)
        assert_int_equal(order[i], i);
    assert_int_equal(sizeof order / sizeof *order, PP_WIRE_PM_METRICS);
}

static void test_columns_of_a_table(void **state)
{
    (void)state;
    const char *const headings[] = {"SMActive", "SMOcc.", "DRAM", "FP32", "Tensor", "GPUUtil"};
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
        assert_true(*info->heading && *info->unit);
        assert_int_equal(info->kind == PP_METRIC_SHARE, !isnan(info->max));
        assert_int_equal(info->kind == PP_METRIC_RATE, info->per_step != NULL);
        assert_true(isnan(info->max) || (info->min == 0 && info->max * info->shown == 100));
        assert_int_equal(i < PP_METRIC_SAMPLED_COUNT, info->cupti[0] != NULL);
        assert_true(!info->gpm.id || info->gpm.scale > 0);
    }
}

/* No two metrics are one and the same to an exporter or to GPM. */
static void test_sources_are_no_others(void **state)
{
    (void)state;
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        const pp_metric_info *a = pp_metric_get((pp_metric)i);
        for (int j = 0; j < i; j++) {
            const pp_metric_info *b = pp_metric_get((pp_metric)j);
            assert_true(!*a->dcgm.name || strcmp(a->dcgm.name, b->dcgm.name) != 0);
            assert_true(!*a->amd.name || strcmp(a->amd.name, b->amd.name) != 0);
            assert_true(!a->gpm.id || a->gpm.id != b->gpm.id);
        }
    }
}

static void test_an_exporters_series(void **state)
{
    (void)state;
    pp_metric_source dcgm, amd;
    pp_metric found = PP_METRIC_COUNT;
    double value = 0;
    assert_int_equal(pp_metric_preset("dcgm", &dcgm, NULL), 0);
    assert_int_equal(pp_metric_preset("amd", &amd, NULL), 0);
    assert_int_equal(pp_metric_preset("other", &amd, NULL), -1);
    assert_string_equal(dcgm.uuid_label, "UUID");
    assert_int_equal(pp_metric_of_series(&dcgm, "DCGM_FI_DEV_POWER_USAGE", &found), 0);
    assert_int_equal(found, PP_METRIC_POWER);
    assert_int_equal(pp_metric_of_series(&dcgm, "", &found), -1);
    assert_true(pp_metric_convert(&amd, PP_METRIC_TENSOR_ACTIVE, 42, &value) && value == 0.42);
    assert_true(pp_metric_convert(&dcgm, PP_METRIC_PCIE_TX, 5e10, &value) && value == 5e10);
    assert_false(pp_metric_convert(&dcgm, PP_METRIC_POWER, -1, &value));
    assert_false(pp_metric_convert(&dcgm, PP_METRIC_POWER, NAN, &value));
}

/* What is missed where a session asks for all there is, and where it names some. */
static void test_what_is_expected(void **state)
{
    (void)state;
    const unsigned power = 1U << PP_METRIC_POWER;
    char names[256];
    pp_metric_names(pp_metric_expected(PP_METRIC_ALL), names, sizeof names);
    assert_string_equal(names, "SMActive, SMOccupancy, DRAMActive, FP32Active, GPUUtil, GPUMem");
    assert_int_equal(pp_metric_expected(power), power);
}

/* All of them may be asked for. */
static void test_the_schema_takes_all(void **state)
{
    (void)state;
    char expected[64];
    char *text =
        pp_file_read(PP_SOURCE_DIR "/crds/profilesession.yaml", (size_t)1 << 22, NULL, NULL);
    assert_non_null(text);
    const char *list = strstr(text, "                metrics:\n");
    assert_non_null(list);
    const char *limit = strstr(list, "maxItems: ");
    (void)snprintf(expected, sizeof expected, "maxItems: %d\n", PP_METRIC_COUNT);
    assert_non_null(limit);
    assert_memory_equal(limit, expected, strlen(expected));
    free(text);
}

/* Lists that are written by hand have each of them. */
static void test_lists_have_each(void **state)
{
    (void)state;
    static const char *const paths[] = {PP_SOURCE_DIR "/crds/profilesession.yaml",
                                        PP_SOURCE_DIR "/docs/prometheus.md"};
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        char *text = pp_file_read(paths[k], (size_t)1 << 22, NULL, NULL);
        assert_non_null(text);
        for (int i = 0; i < PP_METRIC_COUNT; i++) {
            const pp_metric_info *info = pp_metric_get((pp_metric)i);
            if (!strstr(text, info->spec_name))
                fail_msg("%s lacks %s", paths[k], info->spec_name);
            if (k == 1 && *info->dcgm.name && !strstr(text, info->dcgm.name))
                fail_msg("%s lacks %s", paths[k], info->dcgm.name);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_pm_sampling_tells), cmocka_unit_test(test_columns_of_a_table),
        cmocka_unit_test(test_each_is_whole),          cmocka_unit_test(test_sources_are_no_others),
        cmocka_unit_test(test_an_exporters_series),    cmocka_unit_test(test_what_is_expected),
        cmocka_unit_test(test_lists_have_each),        cmocka_unit_test(test_the_schema_takes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
