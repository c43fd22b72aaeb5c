/* How a GPU was used, of a training whose truth is known: means, quantiles and their errors over
 * many draws of it, what bounds it, and what is said where little was measured. */
#include "estimate/pattern/sum_error.h"
#include "estimate/pattern/usage.h"

#include "common/draw.h"
#include "common/tests/near.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define US 1000.0
#define T0 INT64_C(1769000000000000000)
#define GPU "GPU-a"

/* Its SMs run at 1,500 MHz, as its driver's readings say to 1 %. */
static const pp_chip h200 = {90, 132, 1980000, 3201000, 6144};
#define MEGAHERTZ 1500.0

enum { STEPS = 64, LAYERS = 4, ITEMS = LAYERS + 2, PIECES = STEPS * ITEMS, RUNS = 40 };

/* An item of the training: how long its kernels take in a step, and by how much that differs from
 * step to step; what its units do. */
typedef struct truth {
    pp_item_kind kind;
    const char *type;
    double us, sd;
    double tensor, fp32, dram, sm;
} truth;

/* 1,000 us of which 800 are busy. */
static const truth training[ITEMS] = {
    {PP_ITEM_LAYER, "Linear", 300, 10, 0.9, 0.1, 0.3, 0.98},
    {PP_ITEM_LAYER, "LayerNorm", 200, 8, 0, 0.2, 0.85, 0.9},
    {PP_ITEM_LAYER, "Linear", 100, 5, 0.8, 0.1, 0.2, 0.95},
    {PP_ITEM_LAYER, "Embedding", 80, 4, 0, 0.05, 0.3, 0.4},
    {PP_ITEM_OPTIMIZER, "", 120, 5, 0, 0.1, 0.9, 0.8},
    {PP_ITEM_DATA, "", 0, 0, 0, 0, 0, 0},
};
static const double step_us = 1000;

typedef struct world {
    pp_activity activity;
    pp_activity_process process;
    pp_activity_layer layers[LAYERS];
    pp_activity_batch batch;
    pp_activity_step steps[STEPS];
    pp_activity_interval intervals[PIECES];
    pp_activity_run runs[RUNS];
    char *gpus[1];
    pp_estimates estimates;
    pp_estimates_item items[ITEMS + 1];
    pp_estimate values[(ITEMS + 1) * PP_METRIC_COUNT];
    pp_activity_sample samples[100];
} world;

static uint64_t drawn;
static char names[LAYERS][8] = {"a", "b", "c", "d"};
static char model[] = "NVIDIA H200";
static char empty[] = "", gpu[] = GPU, instance[] = "agent";

static double normal(void)
{
    const double u = ((double)(pp_draw(drawn++) >> 11) + 0.5) * 0x1p-53;
    const double v = ((double)(pp_draw(drawn++) >> 11) + 0.5) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static char *copy(const char *text)
{
    static char all[ITEMS][16];
    for (int i = 0; i < ITEMS; i++)
        if (strcmp(all[i], text) == 0 || !all[i][0]) {
            (void)snprintf(all[i], sizeof all[i], "%s", text);
            return all[i];
        }
    return NULL;
}

static void add_steps(world *w)
{
    pp_activity *a = &w->activity;
    double at = 0;
    for (int s = 0; s < STEPS; s++) {
        const double begin = at, length = 1200 + 10 * normal(); /* marks lengthen it */
        double busy = 0;
        for (int i = 0; i < ITEMS; i++) {
            const double us = training[i].us + training[i].sd * normal();
            if (training[i].us <= 0)
                continue;
            w->intervals[a->n_intervals++] =
                (pp_activity_interval){.layer = i < LAYERS ? i + 1 : 0,
                                       .phase = i < LAYERS ? PP_PHASE_FORWARD : PP_PHASE_OPTIMIZER,
                                       .start_ns = T0 + (int64_t)((begin + busy) * US),
                                       .duration_ns = (int64_t)(us * US),
                                       .kernels_ns = (int64_t)(us * US)};
            w->items[i].busy_ns += (int64_t)(us * US);
            w->items[i].total_ns += (int64_t)(us * US);
            busy += us;
        }
        w->steps[s] = (pp_activity_step){.number = s,
                                         .start_ns = T0 + (int64_t)(begin * US),
                                         .duration_ns = (int64_t)(length * US),
                                         .gap_ns = (int64_t)((length - busy) * US)};
        w->items[ITEMS - 1].total_ns += (int64_t)((length - busy) * US);
        w->estimates.step_ns += w->steps[s].duration_ns;
        w->estimates.gap_ns += w->steps[s].gap_ns;
        at += length;
    }
    w->batch = (pp_activity_batch){.last = true, .start_ns = T0, .end_ns = T0 + (int64_t)(at * US)};
    a->n_steps = STEPS;
}

/* Runs of 50 steps in which nothing is marked; us by which such steps differ. */
static double steps_differ = 20;

static void add_runs(world *w)
{
    for (int i = 0; i < RUNS; i++) {
        const double us = 50 * step_us + sqrt(50.0) * steps_differ * normal();
        w->runs[i] = (pp_activity_run){.duration_ns = (int64_t)(us * US), .steps = 50};
        w->estimates.counted_ns += w->runs[i].duration_ns;
        w->estimates.counted_steps += 50;
    }
    w->activity.n_runs = RUNS;
}

static void add_value(world *w, uint32_t item, pp_metric metric, double value, double error)
{
    w->values[w->estimates.n_estimates++] = (pp_estimate){.item = item,
                                                          .metric = metric,
                                                          .mean = value + error * normal(),
                                                          .standard_error = error,
                                                          .basis = PP_BASIS_BUSY,
                                                          .group_mean = (double)NAN};
}

static void add_values(world *w, double error)
{
    for (uint32_t i = 0; i + 1 < ITEMS; i++) {
        add_value(w, i, PP_METRIC_TENSOR_ACTIVE, training[i].tensor, error);
        add_value(w, i, PP_METRIC_FP32_ACTIVE, training[i].fp32, error);
        add_value(w, i, PP_METRIC_DRAM_ACTIVE, training[i].dram, error);
        add_value(w, i, PP_METRIC_SM_ACTIVE, training[i].sm, error);
    }
    add_value(w, ITEMS, PP_METRIC_SM_CLOCK, MEGAHERTZ, 0.01 * MEGAHERTZ);
}

static world *make(double error)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->gpus[0] = gpu;
    w->process = (pp_activity_process){.instance = instance,
                                       .gpus = {.items = w->gpus, .count = 1},
                                       .gpu_model = model,
                                       .chip = h200,
                                       .world_size = 1};
    w->activity = (pp_activity){.processes = &w->process,
                                .n_processes = 1,
                                .layers = w->layers,
                                .n_layers = LAYERS,
                                .batches = &w->batch,
                                .n_batches = 1,
                                .steps = w->steps,
                                .intervals = w->intervals,
                                .runs = w->runs,
                                .gpus = {.items = w->gpus, .count = 1},
                                .samples = w->samples};
    for (int i = 0; i < ITEMS; i++) {
        w->items[i] = (pp_estimates_item){.kind = training[i].kind,
                                          .phase = i < LAYERS      ? PP_PHASE_FORWARD
                                                   : i + 1 < ITEMS ? PP_PHASE_OPTIMIZER
                                                                   : PP_PHASE_DATA,
                                          .layer = i < LAYERS ? names[i] : empty,
                                          .type = copy(training[i].type)};
        if (i < LAYERS)
            w->layers[i] =
                (pp_activity_layer){.id = i + 1, .name = names[i], .type = w->items[i].type};
    }
    w->items[ITEMS - 1].idle_share = 1;
    w->items[ITEMS] = (pp_estimates_item){.kind = PP_ITEM_JOB, .layer = empty, .type = empty};
    w->estimates = (pp_estimates){.gpu = gpu,
                                  .items = w->items,
                                  .n_items = ITEMS + 1,
                                  .estimates = w->values,
                                  .step_count = STEPS};
    add_steps(w);
    add_runs(w);
    add_values(w, error);
    w->estimates.step_mean_ns = (double)w->estimates.step_ns / STEPS;
    return w;
}

/* `host_wait_us`: of each step. */
static pp_usage *find(world *w, double host_wait_us)
{
    const pp_usage_input in = {.activity = &w->activity, .estimates = &w->estimates};
    w->process.waited_ns = (int64_t)(host_wait_us * US) * STEPS;
    pp_usage *u = NULL;
    assert_int_equal(pp_usage_find(&in, &u, NULL), 0);
    return u;
}

static const pp_usage_metric *metric_of(const pp_usage *u, pp_metric metric)
{
    for (size_t i = 0; i < u->n_metrics; i++)
        if (u->metrics[i].metric == metric)
            return &u->metrics[i];
    return NULL;
}

static double true_mean(pp_metric metric)
{
    double sum = 0;
    for (int i = 0; i < ITEMS; i++)
        sum += training[i].us / step_us *
               (metric == PP_METRIC_SM_ACTIVE     ? training[i].sm
                : metric == PP_METRIC_DRAM_ACTIVE ? training[i].dram
                                                  : training[i].tensor);
    return sum;
}

/* ---- errors, over many draws ---- */

typedef struct score {
    const char *name;
    double squares, bias;
    int n;
} score;

static void add(score *s, pp_figure f, double truth_)
{
    assert_true(f.standard_error > 0);
    s->squares += pow((f.value - truth_) / f.standard_error, 2);
    s->bias += f.value - truth_;
    s->n++;
}

static void check_errors(void)
{
    enum { DRAWS = 400 };
    score step = {.name = "step"}, idle = {.name = "idle"}, sm = {.name = "SMActive"},
          dram = {.name = "DRAMActive"}, type = {.name = "Linear"}, p95 = {.name = "p95"},
          bytes = {.name = "bytes/s"}, flop = {.name = "FLOP/s"},
          bound_bytes = {.name = "bytes/s, bound"}, bound_flop = {.name = "FLOP/s, bound"};
    const double bandwidth = pp_chip_peak(&h200, PP_PEAK_MEMORY, 0);
    const double tensor = pp_chip_peak(&h200, PP_PEAK_TENSOR, MEGAHERTZ);
    for (int i = 0; i < DRAWS; i++) {
        world *w = make(0.01);
        pp_usage *u = find(w, 0);
        add(&step, u->step_ns, step_us * US);
        add(&idle, u->idle, 0.2);
        add(&sm, metric_of(u, PP_METRIC_SM_ACTIVE)->mean, true_mean(PP_METRIC_SM_ACTIVE));
        add(&dram, metric_of(u, PP_METRIC_DRAM_ACTIVE)->mean, true_mean(PP_METRIC_DRAM_ACTIVE));
        add(&type, u->types[0].share, 0.4);
        add(&p95, metric_of(u, PP_METRIC_TENSOR_ACTIVE)->p95, 0.9);
        add(&bytes, metric_of(u, PP_METRIC_DRAM_ACTIVE)->achieved,
            true_mean(PP_METRIC_DRAM_ACTIVE) * bandwidth);
        add(&flop, metric_of(u, PP_METRIC_TENSOR_ACTIVE)->achieved,
            true_mean(PP_METRIC_TENSOR_ACTIVE) * tensor);
        add(&bound_bytes, u->rates[PP_BOUND_MEMORY], (200 * 0.85 + 120 * 0.9) / 320 * bandwidth);
        add(&bound_flop, u->rates[PP_BOUND_TENSOR], (300 * 0.9 + 100 * 0.8) / 400 * tensor);
        pp_usage_free(u);
        free(w);
    }
    const score *all[] = {&step, &idle,  &sm,   &dram,        &type,
                          &p95,  &bytes, &flop, &bound_bytes, &bound_flop};
    for (size_t i = 0; i < 10; i++) {
        const double z = sqrt(all[i]->squares / all[i]->n);
        print_message("%s: z %.2f, bias %.4g\n", all[i]->name, z, all[i]->bias / all[i]->n);
        assert_true(z > 0.8 && z < 1.25);
    }
}

/* Also where it is the step, above all, that shares are not known by. */
static void test_errors_hold(void **state)
{
    (void)state;
    check_errors();
    steps_differ = 300;
    check_errors();
    steps_differ = 20;
}

/* Layers that are known together alone have one error, which their sum has in full. */
static void test_errors_of_a_group(void **state)
{
    (void)state;
    enum { DRAWS = 200 };
    static char group[] = "a and others";
    const double error = 0.1;
    double sum = 0, busy = 0, dram = 0, at_step = 0;
    for (int i = 0; i < ITEMS; i++) {
        at_step += training[i].us * training[i].dram / step_us;
        busy += i < LAYERS ? training[i].us : 0;
        dram += i < LAYERS ? training[i].us * training[i].dram : 0;
    }
    for (int draw = 0; draw < DRAWS; draw++) {
        world *w = make(0.0001);
        const double mean = dram / busy + error * normal();
        for (size_t i = 0; i < w->estimates.n_estimates; i++) {
            pp_estimate *e = &w->values[i];
            if (e->metric != PP_METRIC_DRAM_ACTIVE || e->item >= LAYERS)
                continue;
            e->mean = e->standard_error = (double)NAN;
            e->group_name = group;
            e->group_mean = mean;
            e->group_standard_error = error;
        }
        pp_usage *u = find(w, 0);
        const pp_figure m = metric_of(u, PP_METRIC_DRAM_ACTIVE)->mean;
        sum += pow((m.value - at_step) / m.standard_error, 2);
        pp_usage_free(u);
        free(w);
    }
    print_message("z of a group's: %.2f\n", sqrt(sum / DRAWS));
    assert_true(sqrt(sum / DRAWS) > 0.8 && sqrt(sum / DRAWS) < 1.25);
}

/* Layers as near to the line as each other are on one side of it together; those that are known are
 * where they are. */
static void test_doubts_go_together(void **state)
{
    (void)state;
    pp_sum_chance alike[24], both[] = {{0.5, 1}, {0.2, 0.5}, {0.3, 0}};
    for (int i = 0; i < 24; i++)
        alike[i] = (pp_sum_chance){0.03, 0.84};
    assert_near(pp_sum_of_chances_variance(alike, 24), 0.72 * 0.72 * 0.84 * 0.16, 1e-12);
    assert_near(pp_sum_of_chances_variance(both, 3), 0.2 * 0.2 * 0.25, 1e-12);
    pp_sum_chance steps[] = {{0.1, 0.25}, {0.1, 0.75}}; /* none, one or both: 1/4, 1/2, 1/4 */
    assert_near(pp_sum_of_chances_variance(steps, 2), 0.005, 1e-12);
}

/* ---- what is told ---- */

static void test_what_is_told(void **state)
{
    (void)state;
    world *w = make(0.005);
    pp_usage *u = find(w, 0);
    assert_true(u->busy && u->undisturbed);
    assert_int_equal(u->steps, RUNS * 50);
    assert_near(u->step_sd_ns, 10 * US, 4 * US);
    assert_int_equal(u->n_types, 4);
    assert_string_equal(u->types[0].name, "Linear");
    assert_true(u->types[0].layer);
    assert_string_equal(u->types[2].name, "optimizer");
    assert_false(u->types[2].layer);
    const pp_usage_metric *dram = metric_of(u, PP_METRIC_DRAM_ACTIVE);
    assert_int_equal(dram->source, PP_USAGE_LAYERS);
    assert_near(dram->p50.value, 0.3, 0.03);
    assert_true(dram->has_profile);
    /* The first 300 us of 1,000, 10 more or less, are Linear's; of a marked step, of 1,200. */
    for (int i = 0; i < 250 * PP_USAGE_BINS / 1000; i++)
        assert_near(dram->profile[i], training[0].dram, 0.02);
    assert_near(dram->profile[PP_USAGE_BINS - 1], 0, 0.01);
    double sum = 0;
    for (int i = 0; i < PP_USAGE_BINS; i++)
        sum += dram->profile[i] / PP_USAGE_BINS;
    assert_near(sum, dram->mean.value, 1e-5);
    assert_null(metric_of(u, PP_METRIC_POWER));
    assert_null(metric_of(u, PP_METRIC_FP16_ACTIVE));
    assert_near(metric_of(u, PP_METRIC_GPU_UTIL)->mean.value, 80, 2);
    pp_usage_free(u);
    free(w);
}

static void test_bounds(void **state)
{
    (void)state;
    world *w = make(0.005);
    pp_usage *u = find(w, 0);
    double sum = 0;
    for (int i = 0; i < PP_BOUND_COUNT; i++)
        sum += u->bounds[i].value;
    assert_near(sum, 1, 1e-9);
    assert_near(u->bounds[PP_BOUND_TENSOR].value, 0.4, 0.02);
    assert_near(u->bounds[PP_BOUND_MEMORY].value, 0.32, 0.02);
    assert_near(u->bounds[PP_BOUND_LATENCY].value, 0.08, 0.01);
    assert_near(u->bounds[PP_BOUND_DATA].value, 0.2, 0.02); /* all that is idle is there */
    pp_figure lead;
    assert_int_equal(pp_usage_bound(u, &lead), PP_BOUND_TENSOR);
    assert_near(lead.value, 0.08, 0.03);
    pp_usage_free(u);
    free(w);
}

/* What is idle in layers is the launches', but for what the host has waited before. */
static void test_whose_idle_time_it_is(void **state)
{
    (void)state;
    world *w = make(0.005);
    w->items[ITEMS - 1].total_ns = 0;
    for (int i = 0; i < LAYERS; i++) {
        w->items[i].total_ns *= 2;
        w->items[i].idle_share = 0.5;
    }
    pp_usage *u = find(w, 0);
    assert_near(u->bounds[PP_BOUND_LAUNCH].value, 0.2, 0.02);
    assert_near(u->bounds[PP_BOUND_SYNCHRONIZATION].value, 0, 1e-9);
    pp_usage_free(u);
    u = find(w, 150);
    assert_near(u->bounds[PP_BOUND_SYNCHRONIZATION].value, 0.15, 0.01);
    assert_near(u->bounds[PP_BOUND_LAUNCH].value, 0.05, 0.02);
    pp_usage_free(u);
    u = find(w, 700);
    assert_near(u->bounds[PP_BOUND_SYNCHRONIZATION].value, 0.2, 0.02);
    assert_near(u->bounds[PP_BOUND_LAUNCH].value, 0, 1e-9);
    pp_usage_free(u);
    free(w);
}

/* Communication takes of a step what others' kernels leave of the time in which any ran, however
 * long its own ran beside these. */
static void test_what_is_exposed(void **state)
{
    (void)state;
    for (int times = 1; times <= 3; times += 2) {
        world *w = make(0.005);
        w->items[ITEMS - 2].kind = PP_ITEM_COMMUNICATION; /* 120 us of kernels, alone on the GPU */
        w->items[ITEMS - 2].phase = PP_PHASE_COMMUNICATION;
        w->items[ITEMS - 2].busy_ns *= times;
        pp_usage *u = find(w, 0);
        assert_near(u->bounds[PP_BOUND_COMMUNICATION].value, 0.12, 0.005);
        pp_usage_free(u);
        free(w);
    }
}

/* Where others' kernels fill the time by what they overlap, ranks still say what was waited for. */
static void test_what_ranks_waited(void **state)
{
    (void)state;
    world *w = make(0.005);
    w->items[ITEMS - 2].kind = PP_ITEM_COMMUNICATION;
    w->items[ITEMS - 2].phase = PP_PHASE_COMMUNICATION;
    for (int i = 0; i < LAYERS; i++)
        w->items[i].busy_ns = w->items[i].busy_ns * 5 / 4;
    pp_rank one = {.process = 0, .steps = STEPS, .wait_ns = 60 * US};
    const pp_ranks ranks = {.ranks = &one, .n = 1};
    const pp_usage_input in = {
        .activity = &w->activity, .estimates = &w->estimates, .ranks = &ranks};
    pp_usage *u = NULL;
    assert_int_equal(pp_usage_find(&in, &u, NULL), 0);
    assert_near(u->bounds[PP_BOUND_COMMUNICATION].value, 0.06, 0.01);
    pp_usage_free(u);
    free(w);
}

/* ---- of peaks ---- */

static void test_what_it_is_of_a_peak(void **state)
{
    (void)state;
    world *w = make(0);
    pp_usage *u = find(w, 0);
    assert_string_equal(u->gpu.model, "NVIDIA H200");
    assert_memory_equal(&u->gpu.chip, &h200, sizeof h200);
    const pp_usage_metric *tensor = metric_of(u, PP_METRIC_TENSOR_ACTIVE);
    assert_true(tensor->peak == pp_chip_peak(&h200, PP_PEAK_TENSOR, 0)); /* at 1,980 MHz */
    assert_true(metric_of(u, PP_METRIC_DRAM_ACTIVE)->peak ==
                pp_chip_peak(&h200, PP_PEAK_MEMORY, 0));
    assert_true(isnan(metric_of(u, PP_METRIC_SM_ACTIVE)->peak));
    assert_true(isnan(metric_of(u, PP_METRIC_SM_ACTIVE)->achieved.value));
    assert_true(isnan(u->rates[PP_BOUND_FP32].value)); /* it bounds nothing */
    pp_usage_free(u);
    w->estimates.n_estimates--; /* the clock */
    u = find(w, 0);
    tensor = metric_of(u, PP_METRIC_TENSOR_ACTIVE);
    assert_true(tensor->peak > 0 && isnan(tensor->achieved.value));
    assert_true(isnan(u->rates[PP_BOUND_TENSOR].value) && u->rates[PP_BOUND_MEMORY].value > 0);
    pp_usage_free(u);
    w->process.chip = (pp_chip){0};
    u = find(w, 0);
    const pp_usage_metric *dram = metric_of(u, PP_METRIC_DRAM_ACTIVE);
    assert_true(isnan(dram->peak) && isnan(dram->achieved.value));
    assert_true(isnan(u->rates[PP_BOUND_MEMORY].value) && dram->mean.value > 0);
    pp_usage_free(u);
    free(w);
}

static void set_values(world *w, pp_metric metric, double value)
{
    for (size_t i = 0; i < w->estimates.n_estimates; i++)
        if (w->values[i].metric == metric)
            w->values[i].mean = value;
}

static pp_figure tensor_rate(world *w)
{
    pp_usage *u = find(w, 0);
    const pp_figure rate = u->rates[PP_BOUND_TENSOR];
    pp_usage_free(u);
    return rate;
}

/* The job's clock is off for all layers alike, and how much of the time each takes matters where
 * they differ. */
static void test_how_sure_a_rate_is(void **state)
{
    (void)state;
    world *w = make(0);
    pp_estimate *clock = &w->values[w->estimates.n_estimates - 1];
    assert_int_equal(clock->metric, PP_METRIC_SM_CLOCK);
    clock->standard_error = 0.1 * clock->mean;
    pp_figure rate = tensor_rate(w);
    assert_near(rate.standard_error / rate.value, 0.1, 0.002);
    clock->standard_error = 0;
    rate = tensor_rate(w);
    assert_true(rate.standard_error > 1e-5 * rate.value);
    set_values(w, PP_METRIC_TENSOR_ACTIVE, 0.9);
    rate = tensor_rate(w);
    assert_true(rate.standard_error < 1e-9 * rate.value);
    free(w);
}

/* Of windows the job's average. */
static void test_windows_of_a_peak(void **state)
{
    (void)state;
    world *w = make(0);
    for (size_t i = 0; i < w->estimates.n_estimates; i++)
        if (w->values[i].metric == PP_METRIC_TENSOR_ACTIVE)
            w->values[i].mean = (double)NAN;
    add_value(w, ITEMS, PP_METRIC_TENSOR_ACTIVE, 0.5, 0);
    w->values[w->estimates.n_estimates - 1].standard_error = 0.02;
    pp_usage *u = find(w, 0);
    const pp_usage_metric *m = metric_of(u, PP_METRIC_TENSOR_ACTIVE);
    const double of_one = pp_chip_peak(&h200, PP_PEAK_TENSOR, w->values[20].mean);
    assert_int_equal(w->values[20].metric, PP_METRIC_SM_CLOCK);
    assert_int_equal(m->source, PP_USAGE_WINDOWS);
    assert_near(m->achieved.value / of_one, 0.5, 1e-9);
    assert_near(m->achieved.standard_error / of_one,
                hypot(0.02, 0.5 * 0.01 * MEGAHERTZ / w->values[20].mean), 1e-9);
    pp_usage_free(u);
    free(w);
}

static void test_gpus_alike(void **state)
{
    (void)state;
    const pp_chip pcie = {90, 114, 1755000, 1593000, 5120};
    const pp_usage_gpu a = {"NVIDIA H200", h200}, untold = {"", h200},
                       other = {"NVIDIA H100", h200}, slower = {"NVIDIA H200", pcie},
                       unknown = {"", {0}}, part = {"NVIDIA H200 MIG 1g.18gb", {0}};
    assert_true(pp_usage_gpu_alike(&a, &a) && pp_usage_gpu_alike(&a, &untold));
    assert_true(pp_usage_gpu_alike(&unknown, &unknown) && pp_usage_gpu_alike(&part, &part));
    assert_false(pp_usage_gpu_alike(&a, &other) || pp_usage_gpu_alike(&a, &slower));
    assert_false(pp_usage_gpu_alike(&a, &unknown) || pp_usage_gpu_alike(&part, &unknown));
    assert_false(pp_usage_gpu_alike(&slower, &untold));
}

/* ---- where little was measured ---- */

static void test_elapsed_times(void **state)
{
    (void)state;
    world *w = make(0.005);
    w->estimates.gap_ns = -1;
    for (int i = 0; i < ITEMS; i++)
        w->items[i].busy_ns = -1;
    for (size_t i = 0; i < w->estimates.n_estimates; i++)
        w->values[i].basis = PP_BASIS_ELAPSED;
    for (size_t i = 0; i < w->activity.n_intervals; i++)
        w->intervals[i].kernels_ns = -1;
    pp_usage *u = find(w, 0);
    assert_false(u->busy);
    assert_true(isnan(u->idle.value));
    assert_near(u->bounds[PP_BOUND_LATENCY].value, 0, 0);
    assert_true(u->bounds[PP_BOUND_TENSOR].value > 0.3); /* at least */
    assert_near(u->bounds[PP_BOUND_DATA].value, 1.0 / 3, 0.02);
    assert_null(metric_of(u, PP_METRIC_GPU_UTIL));
    pp_usage_free(u);
    free(w);
}

/* Without a value of most of the time a metric is told by its windows, if there are any. */
static void test_windows(void **state)
{
    (void)state;
    world *w = make(0.005);
    for (size_t i = 0; i < w->estimates.n_estimates; i++)
        if (w->values[i].metric == PP_METRIC_SM_ACTIVE && w->values[i].item == 0)
            w->values[i].mean = (double)NAN;
    pp_usage *u = find(w, 0);
    assert_null(metric_of(u, PP_METRIC_SM_ACTIVE));
    pp_usage_free(u);
    add_value(w, ITEMS, PP_METRIC_SM_ACTIVE, 0.7, 0.01);
    add_value(w, ITEMS, PP_METRIC_GPU_MEM, 5000, 1);
    for (int i = 0; i < 100; i++)
        w->samples[i] =
            (pp_activity_sample){.metric = i % 2 ? PP_METRIC_GPU_MEM : PP_METRIC_SM_ACTIVE,
                                 .stamp_ns = T0 + i * 100,
                                 .value = i % 2 ? 4000 + i : i / 100.0};
    w->activity.n_samples = 100;
    w->samples[99].stamp_ns = T0 - 1; /* before anything was observed */
    u = find(w, 0);
    const pp_usage_metric *sm = metric_of(u, PP_METRIC_SM_ACTIVE);
    assert_int_equal(sm->source, PP_USAGE_WINDOWS);
    assert_false(sm->has_profile);
    assert_near(sm->p50.value, 0.49, 1e-9);
    assert_near(sm->p95.value, 0.931, 1e-9);
    assert_near(sm->p50.standard_error, 0.98 * 0.5 / sqrt(50), 0.002);
    assert_true(isnan(sm->most.value));
    const pp_usage_metric *memory = metric_of(u, PP_METRIC_GPU_MEM);
    assert_near(memory->most.value, 4097, 0);
    pp_usage_free(u);
    /* A layer was replayed from the 40th sample's time on: what came then is none of the training.
     */
    pp_activity_batch two[] = {w->batch, {.start_ns = T0 + 4000, .end_ns = T0 + 5000, .dwell = 1}};
    w->activity.batches = two;
    w->activity.n_batches = 2;
    u = find(w, 0);
    assert_near(metric_of(u, PP_METRIC_SM_ACTIVE)->p50.value, 0.19, 1e-9);
    assert_near(metric_of(u, PP_METRIC_GPU_MEM)->most.value, 4039, 0);
    pp_usage_free(u);
    free(w);
}

static void test_nothing(void **state)
{
    (void)state;
    world *w = make(0.005);
    w->estimates.step_count = 0;
    pp_usage *u = find(w, 0);
    assert_int_equal(u->steps, 0);
    assert_int_equal(u->n_metrics, 0);
    pp_usage_free(u);
    free(w);
}

/* More types than are told apart: the rest is one, and nothing is lost. */
static void test_many_types(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static pp_estimates_item items[MANY];
    static char types[MANY][8];
    world *w = make(0.005);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(types[i], sizeof types[i], "T%d", i);
        items[i] = (pp_estimates_item){.kind = PP_ITEM_LAYER,
                                       .layer = types[i],
                                       .type = types[i],
                                       .busy_ns = STEPS * (i + 1) * 100};
    }
    w->estimates.items = items;
    w->estimates.n_items = MANY;
    w->estimates.n_estimates = 0;
    pp_usage *u = find(w, 0);
    assert_int_equal(u->n_types, PP_USAGE_TYPES + 1);
    assert_string_equal(u->types[0].name, "T99");
    assert_string_equal(u->types[PP_USAGE_TYPES].name, "");
    double sum = 0;
    for (size_t i = 0; i < u->n_types; i++)
        sum += u->types[i].share.value;
    assert_near(sum, MANY * (MANY + 1) / 2.0 * 100 / u->step_ns.value, 1e-9);
    pp_usage_free(u);
    free(w);
}

static char *text(const char *of)
{
    return (char *)(uintptr_t)of;
}

/* Of the GPU's processes that say what they train; one that says nothing is none of these. */
static void test_models(void **state)
{
    (void)state;
    world *w = make(0);
    char other_gpu[] = "GPU-b", *other[] = {other_gpu};
    const pp_activity_process mine = w->process;
    pp_activity_process processes[] = {mine, mine, mine, mine, mine};
    processes[0].model = text("B");
    processes[0].digest = text("0123456789abcdef");
    processes[0].batch = text("8x16 float32");
    processes[1] = processes[0]; /* a rank that trains the same */
    processes[2].model = text("A");
    processes[3].model = text("?");
    processes[4] = processes[0];
    processes[4].model = text("C");
    processes[4].gpus = (pp_strings){other, 1};
    w->activity.processes = processes;
    w->activity.n_processes = 5;
    pp_usage *u = find(w, 0);
    assert_int_equal(u->models.n, 2);
    assert_string_equal(u->models.items[0].name, "A");
    assert_string_equal(u->models.items[0].digest, "");
    assert_string_equal(u->models.items[1].name, "B");
    assert_string_equal(u->models.items[1].digest, "0123456789abcdef");
    assert_string_equal(u->models.items[1].batch, "8x16 float32");
    pp_usage_free(u);
    processes[0] = processes[1] = processes[2] = mine;
    u = find(w, 0);
    assert_int_equal(u->models.n, 1);
    assert_string_equal(u->models.items[0].name, "");
    pp_usage_free(u);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_hold),
        cmocka_unit_test(test_errors_of_a_group),
        cmocka_unit_test(test_doubts_go_together),
        cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_whose_idle_time_it_is),
        cmocka_unit_test(test_what_is_exposed),
        cmocka_unit_test(test_what_ranks_waited),
        cmocka_unit_test(test_elapsed_times),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_many_types),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_what_it_is_of_a_peak),
        cmocka_unit_test(test_how_sure_a_rate_is),
        cmocka_unit_test(test_windows_of_a_peak),
        cmocka_unit_test(test_gpus_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
