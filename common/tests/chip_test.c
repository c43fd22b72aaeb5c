/* Peaks of chips against their data sheets. */
#include "common/chip.h"
#include "common/tests/cmocka_all.h"

#include <math.h>

static const pp_chip h200 = {90, 132, 1980000, 3201000, 6144};
static const pp_chip a100 = {80, 108, 1410000, 1593000, 5120}; /* 80 GB, SXM */

static void near(double got, double expected, double percent)
{
    if (!(fabs(got - expected) <= percent / 100 * expected))
        fail_msg("%g, not %g", got, expected);
}

/* NVIDIA's data sheets: H200 4.8 TB/s, 67 TFLOP/s and, at 1830 MHz, 989; A100 2.04, 19.5, 312. */
static void as_data_sheets_have_them(void **state)
{
    (void)state;
    near(pp_chip_peak(&h200, PP_PEAK_MEMORY, 0), 4.8e12, 3);
    near(pp_chip_peak(&h200, PP_PEAK_FP32, 0), 67e12, 1);
    near(pp_chip_peak(&h200, PP_PEAK_TENSOR, 1830), 989.4e12, 0.1);
    near(pp_chip_peak(&a100, PP_PEAK_MEMORY, 0), 2.039e12, 1);
    near(pp_chip_peak(&a100, PP_PEAK_FP32, 0), 19.5e12, 1);
    near(pp_chip_peak(&a100, PP_PEAK_TENSOR, 0), 312e12, 1);
}

static void with_the_clock_that_it_had(void **state)
{
    (void)state;
    const double highest = pp_chip_peak(&h200, PP_PEAK_FP32, 0);
    near(pp_chip_peak(&h200, PP_PEAK_FP32, 990), highest / 2, 1e-6);
    near(pp_chip_peak(&h200, PP_PEAK_MEMORY, 990), pp_chip_peak(&h200, PP_PEAK_MEMORY, 0), 1e-6);
}

static void unknown_ones(void **state)
{
    (void)state;
    pp_chip chip = h200;
    chip.capability = 999; /* a chip of tomorrow: its memory is known all the same */
    assert_true(isnan(pp_chip_peak(&chip, PP_PEAK_FP32, 0)));
    assert_true(isnan(pp_chip_peak(&chip, PP_PEAK_TENSOR, 1000)));
    assert_true(pp_chip_peak(&chip, PP_PEAK_MEMORY, 0) > 0);
    chip = (pp_chip){0};
    for (int which = PP_PEAK_NONE; which < PP_PEAK_COUNT; which++)
        assert_true(isnan(pp_chip_peak(&chip, (pp_peak)which, 1000)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_data_sheets_have_them),
        cmocka_unit_test(with_the_clock_that_it_had),
        cmocka_unit_test(unknown_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
