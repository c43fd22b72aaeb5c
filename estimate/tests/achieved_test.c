/* Shares of a peak as bytes and FLOP per second: of the chip, at the clock that was measured. */
#include "common/tests/cmocka_all.h"
#include "estimate/items/achieved.h"

#include <math.h>

enum { JOB, LAYER, ITEMS };

static char gpu[] = "GPU-a";
static char other[] = "GPU-b";
static char *of_gpu[] = {gpu};
static char *of_other[] = {other};

typedef struct fixture {
    pp_activity activity;
    pp_activity_process processes[2];
    pp_estimates_item items[ITEMS];
    pp_estimate estimates[5];
    pp_estimates s;
} fixture;

/* An H200 whose SMs ran at half of their clock; another GPU's process says that it is none. */
static void set_up(fixture *f)
{
    *f = (fixture){.processes = {{.gpus = {of_other, 1}, .chip = {80, 1, 1, 1, 1}},
                                 {.gpus = {of_gpu, 1}, .chip = {90, 132, 1980000, 3201000, 6144}}},
                   .items = {{.kind = PP_ITEM_JOB}, {.kind = PP_ITEM_LAYER}},
                   .estimates = {{.item = LAYER, .metric = PP_METRIC_DRAM_ACTIVE, .mean = 0.5},
                                 {.item = LAYER, .metric = PP_METRIC_TENSOR_ACTIVE, .mean = 0.5},
                                 {.item = LAYER, .metric = PP_METRIC_SM_ACTIVE, .mean = 0.5},
                                 {.item = LAYER, .metric = PP_METRIC_SM_CLOCK, .mean = 123},
                                 {.item = JOB, .metric = PP_METRIC_SM_CLOCK, .mean = 990}}};
    f->activity = (pp_activity){.processes = f->processes, .n_processes = 2};
    f->s = (pp_estimates){.items = f->items,
                          .n_items = ITEMS,
                          .estimates = f->estimates,
                          .n_estimates = sizeof f->estimates / sizeof *f->estimates};
}

static bool is_near(double got, double expected)
{
    return fabs(got - expected) < 1e-9 * expected;
}

static void of_the_peak(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    pp_achieved_fill(&f.activity, gpu, &f.s);
    const double memory = 2 * 3201e6 * 6144 / 8;
    const double tensor = 2.0 * 2048 * 132 * 1980e6;
    assert_true(is_near(f.estimates[0].peak, memory));
    assert_true(is_near(f.estimates[0].achieved, memory / 2));
    assert_true(is_near(f.estimates[1].peak, tensor));
    assert_true(is_near(f.estimates[1].achieved, tensor / 2 / 2));
    assert_true(isnan(f.estimates[2].peak) && isnan(f.estimates[2].achieved));
}

/* No clock: bytes are known, FLOPs are not. No chip, no mean: nothing. */
static void of_what_is_not_known(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    f.s.n_estimates = 4;
    pp_achieved_fill(&f.activity, gpu, &f.s);
    assert_true(f.estimates[0].achieved > 0);
    assert_true(f.estimates[1].peak > 0 && isnan(f.estimates[1].achieved));
    set_up(&f);
    f.estimates[0].mean = (double)NAN;
    pp_achieved_fill(&f.activity, gpu, &f.s);
    assert_true(f.estimates[0].peak > 0 && isnan(f.estimates[0].achieved));
    set_up(&f);
    f.processes[1].chip = (pp_chip){0};
    pp_achieved_fill(&f.activity, gpu, &f.s);
    for (size_t i = 0; i < f.s.n_estimates; i++)
        assert_true(isnan(f.estimates[i].peak) && isnan(f.estimates[i].achieved));
}

/* The job's clock is of all items alike; one that was sampled is the item's own. */
static void of_the_clocks(void **state)
{
    (void)state;
    fixture f;
    pp_rate rates[ITEMS];
    set_up(&f);
    f.s.gpu = gpu;
    f.estimates[0] = (pp_estimate){
        .item = JOB, .metric = PP_METRIC_SM_CLOCK, .mean = 990, .standard_error = 9.9};
    f.estimates[1] = (pp_estimate){
        .item = LAYER, .metric = PP_METRIC_SM_CLOCK, .mean = 1980, .method = PP_METHOD_SAMPLING};
    f.s.n_estimates = 2; /* as solved: as many of each item */
    const double tensor = 2.0 * 2048 * 132 * 1980e6;
    pp_achieved_rates(&f.activity, &f.s, PP_METRIC_TENSOR_ACTIVE, rates);
    assert_true(is_near(rates[JOB].peak, tensor) && is_near(rates[JOB].value, tensor / 2));
    assert_true(is_near(rates[JOB].error, tensor / 200) && rates[JOB].of_job);
    assert_true(is_near(rates[LAYER].value, tensor) && !(rates[LAYER].error > 0));
    assert_false(rates[LAYER].of_job);
    pp_achieved_rates(&f.activity, &f.s, PP_METRIC_DRAM_ACTIVE, rates);
    assert_true(is_near(rates[LAYER].value, rates[LAYER].peak) && !(rates[LAYER].error > 0));
    pp_achieved_rates(&f.activity, &f.s, PP_METRIC_SM_ACTIVE, rates);
    assert_true(isnan(rates[LAYER].peak) && isnan(rates[LAYER].value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_the_peak),
        cmocka_unit_test(of_what_is_not_known),
        cmocka_unit_test(of_the_clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
