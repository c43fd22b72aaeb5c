/* Estimates as the wire has them, of samplers that tell the truth and of others. */
#include "common/tests/cmocka_all.h"
#include "sidecar/agent/estimates.h"

#include <math.h>
#include <string.h>

#define UNKNOWN ((double)NAN)

static pp_sampling_item items[] = {
    {.layer = 3,
     .phase = PP_WIRE_BACKWARD,
     .kernels = 70,
     .mean = {0.5, 0, UNKNOWN, 0.25},
     .stderr_of = {0.01, 0.002, UNKNOWN, UNKNOWN}},
};
static const pp_sampling_result result = {.items = items,
                                          .n = 1,
                                          .windows = 80000,
                                          .held = {0.4, 0.25, UNKNOWN, 11, UNKNOWN},
                                          .closure = {-0.0123456, 0.001, UNKNOWN, 0},
                                          .noise = {0.02, UNKNOWN, UNKNOWN, 0.5},
                                          .quality = {{.explained = 0.97,
                                                       .miss = 0.015,
                                                       .items = 80,
                                                       .items_z = 5000,
                                                       .gap = -0.0001,
                                                       .gap_stderr = 0.0002,
                                                       .doubt = PP_SAMPLING_UNEXPLAINED},
                                                      {.explained = UNKNOWN},
                                                      {.explained = UNKNOWN},
                                                      {.explained = -0.5,
                                                       .miss = UNKNOWN,
                                                       .items = 0,
                                                       .items_z = UNKNOWN,
                                                       .gap = UNKNOWN,
                                                       .gap_stderr = UNKNOWN}}};

static pp_samples_header sampler_of(uint32_t period, const char *chip)
{
    pp_samples_header h = {
        .period = period, .gpu = "GPU-1", .sources = {"sm", "", "dram"}, .cpu = 3000000000};
    (void)snprintf(h.chip, sizeof h.chip, "%s", chip);
    return h;
}

static pp_monitor_estimates estimates_of(const pp_samples_header *sampler)
{
    return (pp_monitor_estimates){.result = &result,
                                  .sampler = sampler,
                                  .windows = 4,
                                  .failed = 1,
                                  .failure = "",
                                  .sampled = 6000000000,
                                  .lag_guess = -1390000,
                                  .lag = -1400000,
                                  .lag_stderr = 31};
}

/* As told, in a batch that is fit for the wire. */
static pp_wire_batch *tell(const pp_monitor_estimates *e)
{
    pp_error err = {0};
    pp_wire_batch *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->layers = calloc(1, sizeof *b->layers);
    assert_non_null(b->layers);
    b->layer_count = 1;
    b->layers[0] = (pp_wire_layer){.id = 3, .name = strdup("a"), .type = strdup("A")};
    b->session = strdup("s");
    b->instance = strdup("i");
    b->process =
        (pp_wire_process){.world_size = 1, .hostname = strdup("h"), .clock = strdup("kernels")};
    b->capture.start = b->capture.end = INT64_C(1769000000000000000);
    assert_int_equal(pp_estimates_tell(e, &b->pm, &err), 0);
    pp_buf text;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    if (pp_wire_batch_encode(b, &text, &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    pp_buf_done(&text);
    return b;
}

static void test_all_is_told(void **state)
{
    (void)state;
    const pp_samples_header sampler = sampler_of(30000, "GH100");
    const pp_monitor_estimates e = estimates_of(&sampler);
    pp_wire_batch *b = tell(&e);
    const pp_wire_pm *f = &b->pm;
    assert_string_equal(f->gpu, "GPU-1");
    assert_string_equal(f->sources.items[2], "dram");
    assert_int_equal(f->count, 1);
    static const int64_t mean[] = {500000, 0, -1, 250000}, error[] = {10000, 2000, -1, -1};
    assert_true(f->rows[0].layer == 3 && f->rows[0].phase == PP_WIRE_BACKWARD);
    assert_int_equal(f->rows[0].kernels, 70);
    assert_memory_equal(f->rows[0].mean, mean, sizeof mean);
    assert_memory_equal(f->rows[0].error, error, sizeof error);
    const pp_wire_pm_sampling *s = &f->sampling;
    assert_string_equal(s->chip, "GH100");
    assert_true(s->period == 30000 && s->times == 4 && s->failed == 1 && s->samples == 80000);
    assert_true(s->sampled == 6000000000 && s->sampler_cpu == 3000000000);
    assert_true(s->lag == -1400000 && s->lag_error == 31);
    /* Of the third no sample was held out; the last one's cannot be. */
    static const pp_wire_pm_closure closures[] = {{0, 400000, -12346, 20000},
                                                  {1, 250000, 1000, -1}};
    /* And quality is of all that are known. */
    static const pp_wire_pm_quality qualities[] = {
        {0, 970000, 15000, 80, 1000000000, 0, 200, PP_WIRE_DOUBT_UNEXPLAINED},
        {3, 0, -1, 0, -1, -1, -1, 0},
        {4, 0, 0, 0, 0, 0, 0, 0}};
    assert_int_equal(f->quality_count, 3);
    assert_memory_equal(f->qualities, qualities, sizeof qualities);
    assert_int_equal(f->closure_count, 2);
    assert_memory_equal(f->closures, closures, sizeof closures);
    pp_wire_batch_free(b);
}

/* What cannot be is not told, and its values are all the same. */
static void test_samplers_that_lie(void **state)
{
    (void)state;
    pp_samples_header lies[] = {sampler_of(0, "GH100"),     sampler_of(UINT32_MAX, "GH100"),
                                sampler_of(25000, "GH100"), sampler_of(25000, "GH100"),
                                sampler_of(25000, "GH100"), sampler_of(25000, "GH100")};
    const int64_t lags[] = {0, 0, 0, 0, INT64_MAX, INT64_MIN};
    lies[2].cpu = -1;
    lies[3].cpu = INT64_MAX;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        pp_monitor_estimates e = estimates_of(&lies[i]);
        e.lag = lags[i];
        pp_wire_batch *b = tell(&e);
        assert_int_equal(b->pm.sampling.period, 0);
        assert_null(b->pm.sampling.chip);
        assert_int_equal(b->pm.rows[0].mean[0], 500000);
        assert_int_equal(b->pm.closure_count, 2);
        pp_wire_batch_free(b);
    }
}

static void test_chips_that_are_none(void **state)
{
    (void)state;
    static const char *const chips[] = {"", "GH100\n", "'; DROP TABLE fine", "\xff"};
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        const pp_samples_header sampler = sampler_of(25000, chips[i]);
        const pp_monitor_estimates e = estimates_of(&sampler);
        pp_wire_batch *b = tell(&e);
        assert_null(b->pm.sampling.chip);
        assert_int_equal(b->pm.sampling.period, 25000);
        pp_wire_batch_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_told),
        cmocka_unit_test(test_samplers_that_lie),
        cmocka_unit_test(test_chips_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
