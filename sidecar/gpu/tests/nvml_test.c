/*
 * nvml.c with a library in the driver's place (nvml_double.c). NVML_DOUBLE says which make of it
 * the loader finds.
 */
#include "sidecar/gpu/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char table[] = "/tmp/nvml-table-XXXXXX";

static void write_table(const char *text)
{
    FILE *f = fopen(table, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static pp_nvml *open_nvml(const char *text)
{
    pp_error err = {0};
    pp_nvml *n = NULL;
    write_table(text);
    if (pp_nvml_open(&n, &err) < 0)
        fail_msg("%s", err.message);
    return n;
}

static pp_nvml_gpu *open_gpu(pp_nvml *n, const char *uuid)
{
    pp_error err = {0};
    pp_nvml_gpu *g = NULL;
    if (pp_nvml_gpu_open(n, uuid, &g, &err) < 0)
        fail_msg("%s", err.message);
    return g;
}

static void assert_near(double got, double wanted)
{
    if (!(fabs(got - wanted) < 1e-9))
        fail_msg("%g, not %g", got, wanted);
}

static void assert_no_gpm(const pp_nvml_reading *r)
{
    assert_true(isnan(r->values[PP_METRIC_SM_ACTIVE]) && isnan(r->values[PP_METRIC_SM_OCCUPANCY]));
    assert_true(isnan(r->values[PP_METRIC_DRAM_ACTIVE]) && isnan(r->values[PP_METRIC_FP32_ACTIVE]));
}

static void values_in_their_units(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a util=57 mem=2048 gpm=1 sm=80 occ=40 dram=20 fp32=10 "
                           "tensor=35 pcie=3\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    assert_true(pp_nvml_gpu_has_gpm(g));
    pp_nvml_gpu_read(g, &r);
    assert_no_gpm(&r); /* a window needs two ends */
    assert_near(r.values[PP_METRIC_GPU_UTIL], 57);
    assert_near(r.values[PP_METRIC_GPU_MEM], 2048);
    pp_nvml_gpu_read(g, &r);
    assert_near(r.values[PP_METRIC_SM_ACTIVE], 0.8);
    assert_near(r.values[PP_METRIC_SM_OCCUPANCY], 0.4);
    assert_near(r.values[PP_METRIC_DRAM_ACTIVE], 0.2);
    assert_near(r.values[PP_METRIC_FP32_ACTIVE], 0.1);
    assert_near(r.values[PP_METRIC_TENSOR_ACTIVE], 0.35);
    assert_near(r.values[PP_METRIC_PCIE_TX], 3 << 20);
    assert_true(isnan(r.values[PP_METRIC_PCIE_RX])); /* not offered */
    assert_true(isnan(r.values[PP_METRIC_POWER]));
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

/* The counter's energy by the time between two readings, a window or more apart. */
static void power_is_what_the_counter_says(void **state)
{
    (void)state;
    pp_nvml_reading first, r;
    pp_nvml *n = open_nvml("GPU-a gpm=1 mw=999000 mj=1000,3500,2000\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    pp_nvml_gpu_read(g, &first);
    assert_true(isnan(first.values[PP_METRIC_POWER])); /* one reading is no difference */
    usleep(PP_NVML_WINDOW_NS / 1000);
    pp_nvml_gpu_read(g, &r);
    const double seconds = (double)(r.stamp_ns - first.stamp_ns) / 1e9;
    if (!(fabs(r.values[PP_METRIC_POWER] * seconds - 2.5) < 0.1))
        fail_msg("%g W in %g s", r.values[PP_METRIC_POWER], seconds);
    usleep(PP_NVML_WINDOW_NS / 1000);
    pp_nvml_gpu_read(g, &r);
    assert_true(isnan(r.values[PP_METRIC_POWER])); /* a counter that went back began anew */
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

static void power_energy_and_clock(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a gpm=1 mw=512500 mj=1000,3500 mhz=1980,1755\nGPU-b gpm=0 mhz=0\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    pp_nvml_gpu_read(g, &r);
    assert_near(r.watts, 512.5);
    assert_near(r.joules, 1);
    assert_near(r.sm_mhz, 1980);
    pp_nvml_gpu_read(g, &r);
    assert_near(r.joules, 3.5);
    assert_near(r.sm_mhz, 1755);
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

/* Its counters are its own; power and clock are the whole GPU's. */
static void a_part_of_a_gpu(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a gpm=1 sm=90 mem=4096 mw=400000 mhz=1500\n"
                           "MIG-b instance=3 sm=20 occ=10 mem=512\n");
    const char *const names[] = {"MIG-b", "GPU-b"}; /* as NVML has it, and as CUDA does */
    for (int i = 0; i < 2; i++) {
        pp_nvml_gpu *g = open_gpu(n, names[i]);
        assert_true(pp_nvml_gpu_has_gpm(g));
        pp_nvml_gpu_read(g, &r);
        pp_nvml_gpu_read(g, &r);
        assert_near(r.values[PP_METRIC_SM_ACTIVE], 0.2);
        assert_near(r.values[PP_METRIC_SM_OCCUPANCY], 0.1);
        assert_near(r.values[PP_METRIC_GPU_MEM], 512);
        assert_near(r.watts, 400);
        assert_near(r.sm_mhz, 1500);
        pp_nvml_gpu_close(g);
    }
    pp_nvml_close(n);
}

static void each_window_is_its_own(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a gpm=1 sm=90,10,50\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    const double wanted[] = {0.1, 0.5, 0.9, 0.1};
    pp_nvml_gpu_read(g, &r);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int64_t before = r.stamp_ns;
        pp_nvml_gpu_read(g, &r);
        assert_near(r.values[PP_METRIC_SM_ACTIVE], wanted[i]);
        assert_true(r.stamp_ns >= before);
    }
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

static void an_idle_gpu_is_zero(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a gpm=1 sm=0 fp32=0\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    pp_nvml_gpu_read(g, &r);
    usleep(PP_NVML_WINDOW_NS / 1000);
    pp_nvml_gpu_read(g, &r);
    assert_near(r.values[PP_METRIC_SM_ACTIVE], 0);
    assert_near(r.values[PP_METRIC_FP32_ACTIVE], 0);
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

/* Asked faster than it refreshes a GPU answers with the sample before: zeros that mean nothing. The
 * next one then covers the time since the last that was new. */
static void a_repeated_sample_is_not_zero(void **state)
{
    (void)state;
    pp_nvml_reading first;
    pp_nvml_reading again;
    pp_nvml *n = NULL;
    pp_nvml_gpu *g = NULL;
    do { /* until both were within one window, however busy the machine is */
        pp_nvml_gpu_close(g);
        pp_nvml_close(n);
        n = open_nvml("GPU-a util=5 gpm=1 repeat=3 sm=80,40 occ=7 dram=8 fp32=9\n");
        g = open_gpu(n, "GPU-a");
        pp_nvml_gpu_read(g, &first);
        pp_nvml_gpu_read(g, &first);
        pp_nvml_gpu_read(g, &again);
    } while (again.stamp_ns - first.stamp_ns >= PP_NVML_WINDOW_NS);
    assert_near(first.values[PP_METRIC_SM_ACTIVE], 0.4);
    assert_no_gpm(&again);
    assert_near(again.values[PP_METRIC_GPU_UTIL], 5);
    pp_nvml_gpu_read(g, &again);
    assert_near(again.values[PP_METRIC_SM_ACTIVE], 0.8);
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

static void a_gpu_without_gpm(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a util=30 mem=5 gpm=0 sm=80\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    assert_false(pp_nvml_gpu_has_gpm(g));
    for (int i = 0; i < 3; i++) {
        pp_nvml_gpu_read(g, &r);
        assert_no_gpm(&r);
        assert_near(r.values[PP_METRIC_GPU_UTIL], 30);
        assert_near(r.values[PP_METRIC_GPU_MEM], 5);
    }
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

static void a_driver_that_goes(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a util=30 mem=5 gpm=1 lost=3 sm=80\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    pp_nvml_gpu_read(g, &r);
    pp_nvml_gpu_read(g, &r);
    assert_near(r.values[PP_METRIC_SM_ACTIVE], 0.8);
    for (int i = 0; i < 3; i++)
        pp_nvml_gpu_read(g, &r);
    assert_no_gpm(&r);
    assert_true(isnan(r.values[PP_METRIC_GPU_UTIL]) && isnan(r.values[PP_METRIC_GPU_MEM]));
    assert_true(r.stamp_ns > 0);
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

static void several_gpus(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_nvml_reading r;
    pp_nvml_gpu *none = NULL;
    pp_nvml *n = open_nvml("GPU-a gpm=1 sm=80\nGPU-b gpm=1 sm=30\nMIG-c gpm=0 util=1\n");
    pp_nvml_gpu *a = open_gpu(n, "GPU-a");
    pp_nvml_gpu *b = open_gpu(n, "GPU-b");
    pp_nvml_gpu *c = open_gpu(n, "MIG-c");
    for (int i = 0; i < 2; i++) {
        pp_nvml_gpu_read(b, &r);
        pp_nvml_gpu_read(c, &r);
        assert_near(r.values[PP_METRIC_GPU_UTIL], 1);
        pp_nvml_gpu_read(a, &r);
    }
    assert_near(r.values[PP_METRIC_SM_ACTIVE], 0.8);
    pp_nvml_gpu_read(b, &r);
    assert_near(r.values[PP_METRIC_SM_ACTIVE], 0.3);
    assert_int_equal(pp_nvml_gpu_open(n, "GPU-x", &none, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "GPU-x"));
    pp_nvml_gpu_close(b);
    pp_nvml_gpu_close(a);
    pp_nvml_gpu_close(c);
    pp_nvml_close(n);
}

static void values_past_a_whole_are_cut(void **state)
{
    (void)state;
    pp_nvml_reading r;
    pp_nvml *n = open_nvml("GPU-a gpm=1 sm=100.4 occ=-1 dram=nan fp32=inf\n");
    pp_nvml_gpu *g = open_gpu(n, "GPU-a");
    pp_nvml_gpu_read(g, &r);
    pp_nvml_gpu_read(g, &r);
    assert_near(r.values[PP_METRIC_SM_ACTIVE], 1);
    assert_true(isnan(r.values[PP_METRIC_SM_OCCUPANCY]) && isnan(r.values[PP_METRIC_DRAM_ACTIVE]) &&
                isnan(r.values[PP_METRIC_FP32_ACTIVE]));
    pp_nvml_gpu_close(g);
    pp_nvml_close(n);
}

static void refused(pp_error_code code, const char *words)
{
    pp_error err = {0};
    pp_nvml *n = NULL;
    assert_int_equal(pp_nvml_open(&n, &err), -1);
    assert_null(n);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.message, words));
}

static void a_driver_that_does_not_start(void **state)
{
    (void)state;
    write_table("init 9\n");
    refused(PP_ERR_INTERNAL, "code 9");
}

static void a_library_that_lacks_functions(void **state)
{
    (void)state;
    refused(PP_ERR_NOT_FOUND, "lacks functions");
}

static void no_library(void **state)
{
    (void)state;
    if (dlopen("libnvidia-ml.so.1", RTLD_NOW))
        skip(); /* a machine with a driver */
    refused(PP_ERR_NOT_FOUND, "there is no libnvidia-ml.so.1");
}

static const struct CMUnitTest full[] = {
    cmocka_unit_test(values_in_their_units),
    cmocka_unit_test(power_is_what_the_counter_says),
    cmocka_unit_test(power_energy_and_clock),
    cmocka_unit_test(a_part_of_a_gpu),
    cmocka_unit_test(each_window_is_its_own),
    cmocka_unit_test(an_idle_gpu_is_zero),
    cmocka_unit_test(a_repeated_sample_is_not_zero),
    cmocka_unit_test(a_gpu_without_gpm),
    cmocka_unit_test(a_driver_that_goes),
    cmocka_unit_test(several_gpus),
    cmocka_unit_test(values_past_a_whole_are_cut),
    cmocka_unit_test(a_driver_that_does_not_start),
};
static const struct CMUnitTest old[] = {cmocka_unit_test(a_gpu_without_gpm)};
static const struct CMUnitTest broken[] = {cmocka_unit_test(a_library_that_lacks_functions)};
static const struct CMUnitTest none[] = {cmocka_unit_test(no_library)};

int main(void)
{
    const char *make = getenv("NVML_DOUBLE");
    int failed = 0;
    int fd = mkstemp(table);
    if (!make || fd < 0 || setenv("PP_NVML_TABLE", table, 1) < 0)
        return EXIT_FAILURE;
    if (strcmp(make, "old") == 0)
        failed = cmocka_run_group_tests(old, NULL, NULL);
    else if (strcmp(make, "broken") == 0)
        failed = cmocka_run_group_tests(broken, NULL, NULL);
    else if (strcmp(make, "none") == 0)
        failed = cmocka_run_group_tests(none, NULL, NULL);
    else
        failed = cmocka_run_group_tests(full, NULL, NULL);
    (void)close(fd);
    (void)unlink(table);
    return failed;
}
