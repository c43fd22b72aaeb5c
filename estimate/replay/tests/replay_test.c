/*
 * Values of replays on a simulated GPU whose windows come late: right within their standard errors,
 * and none where there is too little to say one.
 */
#include "common/tests/cmocka_all.h"
#include "common/tests/random.h"
#include "estimate/activity/activity_builder.h"
#include "estimate/replay/boundary_search.h"
#include "estimate/replay/dwell_length.h"
#include "estimate/solve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define T0 (INT64_C(1769000000) * S)
#define US 1000.0

enum { LAYERS = 3, METRICS = 2, SEGMENTS_MAX = 16384, WINDOW_MS = 100 };

static const pp_metric metrics[METRICS] = {PP_METRIC_SM_ACTIVE, PP_METRIC_DRAM_ACTIVE};

/* What each layer's kernels do, while they run; and what goes with its replays. */
static const double truth[LAYERS][METRICS] = {{0.62, 0.11}, {0.31, 0.57}, {0.90, 0.02}};
static const double behind[METRICS] = {0.93, 0.71};
static const double own_us[LAYERS] = {20, 40, 8};
static const double rest[METRICS] = {0.80, 0.25};

/* Of a step's time: a layer's kernels, and those of other code. */
#define LAYER_SHARE 0.1
#define REST_SHARE 0.05

/* A time in which the GPU does the same all along. */
typedef struct segment {
    int64_t start, end;
    double value[METRICS];
} segment;

typedef struct world {
    pp_activity_builder *builder;
    segment segments[SEGMENTS_MAX];
    size_t count;
    int64_t now;
    int64_t captures;
    double behind_us;     /* of what goes with a replay */
    double gap_us;        /* of a replay, in which the GPU is idle */
    double slows;         /* how much longer that is at a dwell's end than at its begin, in parts */
    double drift;         /* of the time of what goes with a replay, where the layer is replayed */
    bool unknown;         /* kernels are not recorded */
    bool none;            /* the layer has none */
    unsigned reason;      /* why layers are left out */
    const char *isolated; /* why none is replayed */
    double lost;          /* of the windows' value where a layer is replayed */
    double missing;       /* of the training's value, which it has less than its parts */
    int idle;             /* of a step, in which it waits for its host, in parts of 10 ms */
} world;

static const char *name_of(int layer)
{
    static const char *const names[] = {"a", "b", "c"};
    return names[layer];
}

static world new_world(void)
{
    return (world){.builder = pp_activity_builder_new(), .now = T0, .behind_us = 30, .gap_us = 5};
}

static void add_segment(world *w, int64_t length, const double *value)
{
    segment *last = w->count ? &w->segments[w->count - 1] : NULL;
    bool same = last != NULL;
    for (int m = 0; same && m < METRICS; m++)
        same = last->value[m] == value[m];
    if (same) {
        last->end = w->now += length;
        return;
    }
    assert_true(w->count < SEGMENTS_MAX);
    segment *s = &w->segments[w->count++];
    *s = (segment){.start = w->now, .end = w->now + length};
    memcpy(s->value, value, sizeof s->value);
    w->now += length;
}

static void give(world *w, pp_wire_batch *batch)
{
    static char *gpus[] = {(char *)(uintptr_t) "GPU-a"};
    pp_wire_layer layers[LAYERS];
    pp_error err = {0};
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (pp_wire_layer){.id = i + 1,
                                    .name = (char *)(uintptr_t)name_of(i),
                                    .type = (char *)(uintptr_t) "Linear",
                                    .forward_skip = w->reason};
    batch->process =
        (pp_wire_process){.gpus = {gpus, 1}, .isolated = (char *)(uintptr_t)w->isolated};
    batch->instance = (char *)(uintptr_t) "i";
    batch->layers = layers;
    batch->layer_count = LAYERS;
    batch->capture.last = true;
    batch->capture.id = w->captures++;
    assert_int_equal(pp_activity_builder_add(w->builder, batch, &err), 0);
    batch->layers = NULL;
}

/* One layer replayed for so long, or what goes with it alone, on a grid as agents send it. What is
 * rounded there is in the values too. */
static void dwell(world *w, int layer, int64_t number, bool background, int64_t length)
{
    const double own = background ? 0 : own_us[layer];
    const double goes = w->behind_us * (background ? 1 : 1 + w->drift);
    const int64_t begun = w->now;
    const size_t cells = (size_t)(length / (10 * MS));
    pp_wire_cell *grid = calloc(2 * cells, sizeof *grid);
    for (size_t i = 0; i < cells; i++) {
        const double gap = w->gap_us * (1 + w->slows * (double)i / (double)cells);
        const int64_t calls = (int64_t)(10 * 1000 / (own + goes + gap));
        const int64_t busy = w->none ? 0 : (int64_t)((double)calls * own * US);
        const int64_t with = (int64_t)((double)calls * goes * US);
        double value[METRICS];
        grid[2 * i] =
            (pp_wire_cell){(int64_t)i, 0, 10 * MS - busy, 0, PP_WIRE_OTHER, w->unknown ? -1 : with};
        grid[2 * i + 1] = (pp_wire_cell){(int64_t)i, layer + 1,       busy,
                                         calls,      PP_WIRE_FORWARD, w->unknown ? -1 : busy};
        for (int m = 0; m < METRICS; m++)
            value[m] = (double)calls * (own * truth[layer][m] + goes * behind[m]) / 10000 -
                       (background ? 0 : w->lost);
        add_segment(w, 10 * MS, value);
    }
    if (length % (10 * MS))
        add_segment(w, length % (10 * MS), (double[METRICS]){0});
    pp_wire_batch batch = {
        .capture = {.start = begun, .end = w->now, .dwell = number, .background = background},
        .grid = {.start = begun, .cell = 10 * MS, .cells = grid, .count = 2 * cells}};
    give(w, &batch);
    free(grid);
}

static double training_value(int m)
{
    double sum = REST_SHARE * rest[m];
    for (int i = 0; i < LAYERS; i++)
        sum += LAYER_SHARE * truth[i][m];
    return sum;
}

/* Steps of the training: 10 ms and what it waits. Each layer has 3 of them, in as many calls as
 * take its kernels 1 ms, and other code the last one. */
static void train(world *w, int64_t length)
{
    enum { PIECES = LAYERS + 1 };
    const int64_t each = (1 + w->idle) * 10 * MS;
    const size_t n = (size_t)(length / each);
    pp_wire_step *steps = calloc(n, sizeof *steps);
    pp_wire_cell *grid = calloc(n * PIECES, sizeof *grid);
    double value[METRICS];
    for (size_t i = 0; i < n; i++) {
        steps[i] = (pp_wire_step){.number = (int64_t)i,
                                  .start = w->now + (int64_t)i * each,
                                  .duration = each,
                                  .gap = each - 10 * MS};
        const int64_t cell = (int64_t)i * (1 + w->idle);
        for (int k = 0; k < LAYERS; k++)
            grid[i * PIECES + (size_t)k + 1] = (pp_wire_cell){
                cell, k + 1, 3 * MS, (int64_t)(1000 / own_us[k]), PP_WIRE_FORWARD, MS};
        grid[i * PIECES] = (pp_wire_cell){cell, 0, MS, 1, PP_WIRE_OTHER, MS / 2};
    }
    for (int m = 0; m < METRICS; m++)
        value[m] = (training_value(m) - w->missing) / (1 + w->idle);
    pp_wire_batch batch = {
        .capture = {.start = w->now, .end = w->now + length},
        .steps = steps,
        .step_count = n,
        .grid = {.start = w->now, .cell = 10 * MS, .cells = grid, .count = n * PIECES}};
    give(w, &batch);
    free(steps);
    free(grid);
    add_segment(w, length, value);
}

static double mean_of(const world *w, int m, int64_t from, int64_t to)
{
    double sum = 0;
    for (size_t i = 0; i < w->count; i++) {
        const segment *s = &w->segments[i];
        const int64_t begin = from > s->start ? from : s->start;
        const int64_t end = to < s->end ? to : s->end;
        sum += end > begin ? s->value[m] * (double)(end - begin) : 0;
    }
    return sum / (double)(to - from);
}

/* Windows on a grid of the driver's own, read `lag` later, with some noise. */
static void sample(world *w, int64_t lag, double noise)
{
    uint64_t random = 7;
    pp_error err = {0};
    for (int64_t end = T0 + 137 * MS; end + lag <= w->now; end += WINDOW_MS * MS) {
        for (int m = 0; m < METRICS; m++) {
            const double value =
                mean_of(w, m, end - WINDOW_MS * MS, end) + noise * sim_normal(&random);
            assert_int_equal(
                pp_activity_builder_sample(w->builder, "GPU-a", metrics[m], end + lag, value, &err),
                0);
        }
    }
}

/* A driver whose windows are not quite as long as what lies between two readings of it: what is
 * read is of the time between the ends of the latest two windows that were published then. */
static void read_driver(world *w, double every, double cadence, double noise)
{
    const double late = 41e6;
    uint64_t random = 11;
    int64_t before = 0;
    pp_error err = {0};
    for (double at = 0; T0 + (int64_t)at < w->now; at += cadence) {
        const int64_t end = T0 + (int64_t)(every * floor((at - late - 37e6) / every) + 37e6);
        for (int m = 0; m < METRICS && before > T0 && end > before; m++) {
            const double value = mean_of(w, m, before, end) + noise * sim_normal(&random);
            assert_int_equal(pp_activity_builder_sample(w->builder, "GPU-a", metrics[m],
                                                        T0 + (int64_t)at, value, &err),
                             0);
        }
        before = end;
    }
}

/* An exporter that measures back to back, publishes `late` after, and is read now and then. */
typedef struct exporter {
    int64_t window, late, scrape;
} exporter;

static void scrape(world *w, const exporter *e, double noise)
{
    pp_error err = {0};
    for (int64_t stamp = T0 + 41 * MS; stamp < w->now + 2 * S; stamp += e->scrape) {
        const int64_t number = (stamp - e->late - T0 - 137 * MS) / e->window;
        const int64_t end = T0 + 137 * MS + number * e->window;
        for (int m = 0; m < METRICS && number > 0; m++) {
            uint64_t random = (uint64_t)(number * METRICS + m) * 0x9e3779b97f4a7c15U;
            const double value = mean_of(w, m, end - e->window, end) + noise * sim_normal(&random);
            assert_int_equal(
                pp_activity_builder_sample(w->builder, "GPU-a", metrics[m], stamp, value, &err), 0);
        }
    }
}

static pp_estimates *solve_as(world *w, const pp_estimates_options *options)
{
    pp_estimates *s = NULL;
    pp_error err = {0};
    if (pp_estimates_solve(pp_activity_builder_get(w->builder), "GPU-a", options, &s, &err) < 0)
        fail_msg("%s", err.message);
    return s;
}

static pp_estimates *solve(world *w, bool only)
{
    const pp_estimates_options options = {.attribution = {.window_ns = WINDOW_MS * MS,
                                                          .scrape_ns = WINDOW_MS * MS,
                                                          .max_lag_ns = 200 * MS,
                                                          .max_standard_error = 0.05},
                                          .metrics = 1U << metrics[0] | 1U << metrics[1],
                                          .method = only ? PP_METHOD_REPLAY : PP_METHOD_AUTO};
    return solve_as(w, &options);
}

/* Of windows that come through Prometheus; as a session's are solved. */
static pp_estimates *solve_scraped(world *w, int64_t window, int64_t interval)
{
    const pp_estimates_options options = {
        .attribution = {.window_ns = window, .scrape_ns = interval, .max_standard_error = 0.05},
        .metrics = 1U << metrics[0] | 1U << metrics[1],
        .method = PP_METHOD_REPLAY,
        .scraped = true};
    return solve_as(w, &options);
}

static const pp_estimate *find(const pp_estimates *s, pp_item_kind kind, const char *layer, int m)
{
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_estimates_item *item = &s->items[s->estimates[i].item];
        if (s->estimates[i].metric == metrics[m] && item->kind == kind &&
            strcmp(item->layer, layer) == 0)
            return &s->estimates[i];
    }
    fail_msg("no estimate of %s", layer);
    return NULL;
}

static world with_dwells(int64_t length)
{
    world w = new_world();
    train(&w, 2 * S);
    for (int i = 0; i < LAYERS; i++) {
        dwell(&w, i, i + 1, true, length);
        train(&w, 10 * MS);
        dwell(&w, i, i + 1, false, length);
    }
    train(&w, 2 * S);
    return w;
}

static world usual(void)
{
    return with_dwells(800 * MS);
}

static void check_values(pp_estimates *s, double most, double least_windows, double most_windows)
{
    for (int i = 0; i < LAYERS; i++) {
        for (int m = 0; m < METRICS; m++) {
            const pp_estimate *e = find(s, PP_ITEM_LAYER, name_of(i), m);
            assert_int_equal(e->method, PP_METHOD_REPLAY);
            assert_string_equal(e->source, "replays");
            assert_null(e->reason);
            const double off = fabs(e->mean - truth[i][m]);
            if (off > most || off > 3 * e->standard_error || e->standard_error > 0.05)
                fail_msg("%s: %g +- %g, not %g", name_of(i), e->mean, e->standard_error,
                         truth[i][m]);
            if (e->windows < least_windows || e->windows > most_windows)
                fail_msg("%g windows", e->windows);
        }
    }
    pp_estimates_free(s);
}

static void values_are_right(world *w, double most)
{
    check_values(solve(w, true), most, 4, 7);
}

static void values_are_the_layers_own(void **state)
{
    (void)state;
    static const int64_t lags[] = {0, 40 * MS, 90 * MS};
    for (size_t i = 0; i < sizeof lags / sizeof *lags; i++) {
        world w = usual();
        sample(&w, lags[i], 0);
        values_are_right(&w, 1e-6);
        pp_activity_builder_free(w.builder);
    }
}

static void noise_is_in_their_errors(void **state)
{
    (void)state;
    world w = usual();
    sample(&w, 40 * MS, 0.002);
    values_are_right(&w, 0.05);
    pp_activity_builder_free(w.builder);
}

/* Clocks that are not the same in both dwells are seen by the kernels that run in both. */
static void drift_is_in_their_errors(void **state)
{
    (void)state;
    static const double drifts[] = {-0.01, 0.01};
    for (size_t i = 0; i < sizeof drifts / sizeof *drifts; i++) {
        world w = new_world();
        w.drift = drifts[i];
        train(&w, 2 * S);
        for (int k = 0; k < LAYERS; k++) {
            dwell(&w, k, k + 1, true, 800 * MS);
            dwell(&w, k, k + 1, false, 800 * MS);
        }
        train(&w, 2 * S);
        sample(&w, 40 * MS, 0);
        values_are_right(&w, 0.05);
        pp_activity_builder_free(w.builder);
    }
}

/* A host that is slower now than before: replays come further apart within one dwell. */
static world with_uneven_dwells(int turns)
{
    world w = new_world();
    w.gap_us = 20;
    train(&w, 2 * S);
    for (int i = 0; i < turns * LAYERS; i++) {
        w.slows = 2 + i % 5;
        dwell(&w, i % LAYERS, i % LAYERS + 1, true, 803 * MS);
        w.slows = 9 - i % 4;
        dwell(&w, i % LAYERS, i % LAYERS + 1, false, 809 * MS);
    }
    train(&w, 2 * S);
    return w;
}

static void replays_need_not_be_even(void **state)
{
    (void)state;
    static const double everies[] = {99.87e6, 100e6, 100.24e6};
    for (size_t i = 0; i < sizeof everies / sizeof *everies; i++) {
        world w = with_uneven_dwells(2);
        read_driver(&w, everies[i], 105.6e6, 0.0005);
        check_values(solve(&w, true), 0.05, 6, 14);
        pp_activity_builder_free(w.builder);
    }
}

static pp_boundaries ticks_of(world *w)
{
    const pp_estimates_options options = {.attribution = {.max_lag_ns = 200 * MS},
                                          .metrics = 1U << metrics[0] | 1U << metrics[1]};
    pp_problem p = {0};
    pp_error err = {0};
    assert_int_equal(
        pp_problem_build(pp_activity_builder_get(w->builder), "GPU-a", &options, &p, &err), 0);
    p.reading.window_ns = 0;
    assert_int_equal(pp_boundaries_find(&p, &err), 0);
    const pp_boundaries found = p.reading.ticks;
    pp_problem_done(&p);
    return found;
}

/* Ends of windows are found where values tell them, also over minutes, and are not where they are
 * noise or few. */
static void ends_of_windows_are_found(void **state)
{
    (void)state;
    static const struct {
        int turns;
        double every, noise;
        bool known;
    } cases[] = {{2, 100.1e6, 0.001, true}, {24, 99.93e6, 0.001, true}, {2, 100.1e6, 0.3, false},
                 {5, 100.1e6, 0.3, false},  {24, 100.1e6, 0.3, false},  {1, 100.1e6, 0.001, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w = with_uneven_dwells(cases[i].turns);
        read_driver(&w, cases[i].every, 105.6e6, cases[i].noise);
        const pp_boundaries found = ticks_of(&w);
        assert_int_equal(found.known, cases[i].known);
        const double length = (double)(w.now - T0);
        if (found.known)
            assert_true(fabs(found.every_ns - cases[i].every) < 40e6 * 100e6 / length);
        pp_activity_builder_free(w.builder);
    }
}

/* Dwells of one layer of which some have no kernel, and others no window. */
static void without_kernels_is_no_value(void **state)
{
    (void)state;
    world w = new_world();
    train(&w, 2 * S);
    dwell(&w, 0, 1, true, 800 * MS);
    dwell(&w, 0, 1, false, 30 * MS);
    w.none = true;
    dwell(&w, 0, 1, false, 800 * MS);
    w.none = false;
    dwell(&w, 1, 2, true, 800 * MS);
    dwell(&w, 1, 2, false, 800 * MS);
    train(&w, 2 * S);
    sample(&w, 40 * MS, 0);
    pp_estimates *s = solve(&w, true);
    for (int m = 0; m < METRICS; m++) {
        const pp_estimate *e = find(s, PP_ITEM_LAYER, "a", m);
        assert_true(isnan(e->mean) && isnan(e->standard_error));
        assert_string_equal(e->reason, "too few metric windows lie within its replays");
        assert_true(isfinite(s->closures[m].difference));
        assert_true(isfinite(find(s, PP_ITEM_LAYER, "b", m)->mean));
    }
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* What goes with the replays takes a tenth longer where the layer has used the cache: warps are
 * there all the time, and memory moves or does not. */
static void what_goes_along_takes_longer(void **state)
{
    (void)state;
    world w = new_world();
    w.drift = 0.1;
    train(&w, 2 * S);
    dwell(&w, 1, 1, true, 800 * MS);
    dwell(&w, 1, 1, false, 800 * MS);
    train(&w, 2 * S);
    sample(&w, 40 * MS, 0);
    pp_estimates *s = solve(&w, true);
    const pp_estimate *active = find(s, PP_ITEM_LAYER, "b", 0);
    const pp_estimate *memory = find(s, PP_ITEM_LAYER, "b", 1);
    assert_true(fabs(active->mean - truth[1][0]) < 1e-6);
    assert_true(active->standard_error > 0.4 * 0.1 * w.behind_us * behind[0] / own_us[1]);
    const double moved = 0.1 * w.behind_us / own_us[1];
    assert_true(fabs(memory->mean - truth[1][1] - moved * (behind[1] - 0.5)) < 1e-6);
    assert_true(memory->standard_error > 0.29 * moved && memory->standard_error < 0.05);
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* Windows of an exporter, read less often than they are published, as often, and much more often;
 * and without a word on how long they are. What is read twice counts once. */
static void windows_of_an_exporter(void **state)
{
    (void)state;
    static const struct {
        exporter e;
        int64_t dwell;
        double least, most;
    } cases[] = {
        {{250 * MS, 97 * MS, 250 * MS}, 5 * S, 11, 13},
        {{250 * MS, 97 * MS, 100 * MS}, 5 * S, 9, 13},
        {{250 * MS, 1400 * MS, 70 * MS}, 5 * S, 9, 13},
        {{250 * MS, 97 * MS, 600 * MS}, 5 * S, 4, 6},
        {{1000 * MS, 300 * MS, 1000 * MS}, 12 * S, 6, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const exporter *e = &cases[i].e;
        for (int known = 0; known < 2; known++) {
            world w = with_dwells(cases[i].dwell);
            scrape(&w, e, 0.0001);
            check_values(solve_scraped(&w, known ? e->window : 0, known ? e->scrape : 0), 0.02,
                         known || e->scrape <= e->window ? cases[i].least : 2, cases[i].most);
            pp_activity_builder_free(w.builder);
        }
    }
}

/* As long as it is by itself a dwell holds six windows, and what is too short holds none. */
static void a_dwell_is_long_enough(void **state)
{
    (void)state;
    static const exporter some[] = {
        {250 * MS, 97 * MS, 250 * MS}, {250 * MS, 97 * MS, 1 * S}, {1 * S, 2 * S, 1 * S}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const exporter *e = &some[i];
        const pp_regression_options o = {.window_ns = e->window, .scrape_ns = e->scrape};
        world w = with_dwells(pp_replay_length(&o) / (10 * MS) * (10 * MS));
        scrape(&w, e, 0.0001);
        check_values(solve_scraped(&w, e->window, e->scrape), 0.02, 5, 7);
        pp_activity_builder_free(w.builder);
        w = with_dwells(2 * e->window + pp_regression_max_lag(e->window) + e->scrape / 2);
        scrape(&w, e, 0.0001);
        pp_estimates *s = solve_scraped(&w, e->window, e->scrape);
        assert_string_equal(find(s, PP_ITEM_LAYER, "a", 0)->reason,
                            "too few metric windows lie within its replays");
        pp_estimates_free(s);
        pp_activity_builder_free(w.builder);
    }
    assert_int_equal(pp_replay_length(&(pp_regression_options){0}), 10 * S);
    assert_int_equal(pp_replay_length_least(&(pp_regression_options){0}, true), 0);
    const pp_regression_options slow = {.window_ns = S, .scrape_ns = 15 * S, .max_lag_ns = 4 * S};
    assert_int_equal(pp_replay_length_least(&slow, false), 17 * S);
    assert_int_equal(pp_replay_length_least(&slow, true), 21 * S);
}

/* A lag that is known leaves less in doubt; one that is not, or is of no window, as much. */
static void a_known_lag_narrows(void **state)
{
    (void)state;
    const pp_estimates_options o = {.attribution = {.window_ns = S}, .scraped = true};
    const pp_regression_sample sample = {T0, 0};
    const pp_regression_metric m = {.samples = &sample, .n_samples = 1};
    pp_regression_result result = {.lag_known = true,
                                   .publish_lag_ns = 0.4e9,
                                   .publish_lag_half_ns = 0.05e9,
                                   .lag_se_ns = 1e7};
    pp_coverage r = pp_coverage_of(&o);
    pp_time_range before = pp_coverage_time(&r, &m, 0);
    assert_int_equal(before.start_ns, T0 - 2 * S - 2500 * MS);
    assert_int_equal(before.end_ns, T0);
    pp_coverage_narrow(&r, &result);
    pp_time_range after = pp_coverage_time(&r, &m, 0);
    assert_int_equal(after.start_ns, T0 - 2 * S - 580 * MS);
    assert_int_equal(after.end_ns, T0 - 220 * MS);
    result.publish_lag_ns = 2.4e9; /* at most what may be */
    r = pp_coverage_of(&o);
    pp_coverage_narrow(&r, &result);
    assert_int_equal(pp_coverage_time(&r, &m, 0).start_ns, before.start_ns);
    result.lag_known = false;
    r = pp_coverage_of(&o);
    pp_coverage_narrow(&r, &result);
    assert_int_equal(pp_coverage_time(&r, &m, 0).end_ns, before.end_ns);
}

/* What an exporter shows late is of a dwell long after its end, and no training's average. */
static void late_windows_are_not_the_training(void **state)
{
    (void)state;
    const exporter e = {250 * MS, 1400 * MS, 250 * MS};
    world w = with_dwells(5 * S);
    train(&w, 20 * S);
    scrape(&w, &e, 0.0001);
    pp_estimates *s = solve_scraped(&w, e.window, e.scrape);
    assert_int_equal(s->n_closures, METRICS);
    for (int m = 0; m < METRICS; m++) {
        const pp_hold_out *c = &s->closures[m];
        assert_true(fabs(find(s, PP_ITEM_JOB, "", m)->mean - training_value(m)) < 0.001);
        assert_true(fabs(c->held - training_value(c->metric == metrics[0] ? 0 : 1)) < 0.001);
        assert_true(c->windows > 20 && c->windows < 50);
    }
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

static int64_t calls_of(const char *layer)
{
    return (int64_t)(1000 / own_us[layer[0] - 'a']);
}

/* Steps, times and averages are the training's alone. */
static void dwells_are_not_the_training(void **state)
{
    (void)state;
    world w = usual();
    sample(&w, 40 * MS, 0.0001);
    pp_estimates *s = solve(&w, true);
    assert_int_equal(s->observed_ns, 4 * S + 3 * 10 * MS);
    assert_int_equal(s->step_count, 403);
    for (int m = 0; m < METRICS; m++) {
        const pp_estimate *e = find(s, PP_ITEM_JOB, "", m);
        assert_int_equal(e->method, PP_METHOD_JOB);
        assert_true(fabs(e->mean - training_value(m)) < 0.001);
    }
    for (size_t i = 0; i < s->n_items; i++) {
        if (s->items[i].kind == PP_ITEM_LAYER)
            assert_int_equal(s->items[i].calls, 403 * calls_of(s->items[i].layer));
    }
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* What comes between two dwells is: windows of it are. */
static void between_dwells_is_the_training(void **state)
{
    (void)state;
    world w = new_world();
    dwell(&w, 0, 1, true, S);
    train(&w, 10 * S);
    dwell(&w, 0, 1, false, S);
    sample(&w, 40 * MS, 0.0001);
    pp_estimates *s = solve(&w, true);
    const pp_estimate *e = find(s, PP_ITEM_JOB, "", 0);
    assert_true(e->windows > 0.9 * 10 * S / (WINDOW_MS * MS));
    assert_true(fabs(e->mean - training_value(0)) < 0.001);
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

static void reason_is(world *w, const char *reason)
{
    sample(w, 40 * MS, 0);
    pp_estimates *s = solve(w, true);
    const pp_estimate *e = find(s, PP_ITEM_LAYER, "a", 0);
    assert_true(isnan(e->mean) && isnan(e->standard_error));
    assert_string_equal(e->reason, reason);
    pp_estimates_free(s);
    pp_activity_builder_free(w->builder);
}

static void too_little_is_no_value(void **state)
{
    (void)state;
    world w = new_world(); /* too short for windows */
    train(&w, S);
    dwell(&w, 0, 1, true, 800 * MS);
    dwell(&w, 0, 1, false, 300 * MS);
    train(&w, S);
    reason_is(&w, "too few metric windows lie within its replays");

    w = new_world(); /* nobody knows what goes with it */
    train(&w, S);
    dwell(&w, 1, 2, true, 800 * MS);
    dwell(&w, 0, 1, false, 800 * MS);
    train(&w, S);
    reason_is(&w, "too few metric windows lie within its replays");

    w = new_world();
    train(&w, S);
    dwell(&w, 1, 2, false, 800 * MS);
    train(&w, S);
    reason_is(&w, "it was not replayed");

    w = new_world();
    w.unknown = true;
    train(&w, S);
    dwell(&w, 0, 1, true, 800 * MS);
    dwell(&w, 0, 1, false, 800 * MS);
    train(&w, S);
    reason_is(&w, "its kernels were not recorded while it was replayed");

    w = new_world();
    w.behind_us = 3000; /* the layer is a half percent of the time */
    train(&w, S);
    dwell(&w, 0, 1, true, 800 * MS);
    dwell(&w, 0, 1, false, 800 * MS);
    train(&w, S);
    sample(&w, 40 * MS, 0.001);
    pp_estimates *s = solve(&w, true);
    assert_string_equal(find(s, PP_ITEM_LAYER, "a", 0)->reason,
                        "its standard error is above the limit");
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

static void what_the_hook_says_is_the_reason(void **state)
{
    (void)state;
    world w = new_world();
    train(&w, S);
    w.reason = 4; /* comes while the session runs */
    train(&w, S);
    reason_is(&w, "there is too little memory to replay it");

    w = new_world();
    w.isolated = "compiled code";
    train(&w, S);
    sample(&w, 40 * MS, 0);
    pp_estimates *s = solve(&w, true);
    assert_string_equal(find(s, PP_ITEM_LAYER, "a", 0)->reason, "compiled code");
    assert_string_equal(find(s, PP_ITEM_OTHER, "", 0)->reason, "compiled code");
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* The GPU's memory is no layer's; the job's is known all the same. */
static void other_metrics_are_not_told(void **state)
{
    (void)state;
    world w = usual();
    pp_error err = {0};
    for (int64_t at = T0 + S; at < w.now; at += WINDOW_MS * MS)
        assert_int_equal(
            pp_activity_builder_sample(w.builder, "GPU-a", PP_METRIC_GPU_MEM, at, 7, &err), 0);
    const pp_estimates_options options = {
        .attribution = {.window_ns = WINDOW_MS * MS, .max_lag_ns = 200 * MS},
        .metrics = 1U << PP_METRIC_GPU_MEM,
        .method = PP_METHOD_REPLAY};
    pp_estimates *s = solve_as(&w, &options);
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_estimate *e = &s->estimates[i];
        if (s->items[e->item].kind == PP_ITEM_JOB)
            assert_true(e->mean == 7);
        else
            assert_string_equal(e->reason, "replays do not tell this metric");
    }
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* What is left of a step is known together, and all together give the windows that were held out.
 */
static void all_together_are_the_training(void **state)
{
    (void)state;
    world w = usual();
    sample(&w, 40 * MS, 0.0005);
    pp_estimates *s = solve(&w, true);
    assert_int_equal(s->n_closures, METRICS);
    for (int m = 0; m < METRICS; m++) {
        const pp_hold_out *c = &s->closures[m];
        const int k = c->metric == metrics[0] ? 0 : 1;
        assert_true(c->windows > 10);
        assert_true(fabs(c->held - training_value(k)) < 0.001);
        assert_true(fabs(c->difference) < 0.02 * c->held);
        const pp_estimate *e = find(s, PP_ITEM_OTHER, "", m);
        assert_true(isnan(e->mean));
        assert_string_equal(e->group_name, "other");
        assert_true(fabs(e->group_mean - rest[m]) < 3 * e->group_standard_error);
        assert_true(e->group_standard_error < 0.15);
    }
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* Windows that are held out have fewer steps than those from which what is left is known. */
static void a_slower_host_is_no_error(void **state)
{
    (void)state;
    world w = new_world();
    w.gap_us = 20;
    w.slows = 8;
    train(&w, 40 * MS);
    for (int i = 0; i < 24; i++) {
        w.idle = i % 2 ? 1 : 0;
        train(&w, 100 * MS);
    }
    for (int k = 0; k < 2 * LAYERS; k++) {
        dwell(&w, k % LAYERS, k % LAYERS + 1, true, 800 * MS);
        dwell(&w, k % LAYERS, k % LAYERS + 1, false, 800 * MS);
    }
    train(&w, 100 * MS);
    read_driver(&w, 100e6, 100e6, 0);
    pp_estimates *s = solve(&w, true);
    assert_int_equal(s->n_closures, METRICS);
    for (int m = 0; m < METRICS; m++) {
        const int k = s->closures[m].metric == metrics[0] ? 0 : 1;
        /* Either the slower ones or the faster ones. */
        assert_true(fabs(s->closures[m].held / training_value(k) - 0.75) > 0.15);
        if (fabs(s->closures[m].difference) > 0.06 * s->closures[m].held)
            fail_msg("%g of %g, %d windows", s->closures[m].difference, s->closures[m].held,
                     (int)s->closures[m].windows);
    }
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* Parts that are more than the whole do not close: what is left cannot be less than nothing. */
static void parts_that_are_too_large_show(void **state)
{
    (void)state;
    world w = new_world();
    w.missing = 0.06;
    train(&w, 2 * S);
    for (int i = 0; i < LAYERS; i++) {
        dwell(&w, i, i + 1, true, 800 * MS);
        dwell(&w, i, i + 1, false, 800 * MS);
    }
    train(&w, 2 * S);
    sample(&w, 40 * MS, 0.0001);
    pp_estimates *s = solve(&w, true);
    assert_int_equal(s->n_closures, METRICS);
    for (int m = 0; m < METRICS; m++) {
        const int k = s->closures[m].metric == metrics[0] ? 0 : 1;
        const double over = w.missing - REST_SHARE * rest[k];
        assert_true(fabs(s->closures[m].difference - over) < 0.002);
        const pp_estimate *e = find(s, PP_ITEM_OTHER, "", k);
        assert_true(e->group_mean == 0 && e->group_standard_error > 0.9 * over / REST_SHARE);
    }
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* Less than nothing is nothing, and wrong by as much. */
static void what_cannot_be_is_in_their_errors(void **state)
{
    (void)state;
    world w = new_world();
    w.lost = 0.01;
    train(&w, 2 * S);
    dwell(&w, 2, 1, true, 800 * MS);
    dwell(&w, 2, 1, false, 800 * MS);
    train(&w, 2 * S);
    sample(&w, 40 * MS, 0);
    pp_estimates *s = solve(&w, true);
    const pp_estimate *e = find(s, PP_ITEM_LAYER, "c", 1);
    const double told = truth[2][1] - w.lost * (own_us[2] + w.behind_us + w.gap_us) / own_us[2];
    assert_true(told < -0.01 && e->mean == 0 && e->standard_error > -0.99 * told);
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

/* Sampled values are better; others, from windows of the training, are not. */
static void pm_goes_before(void **state)
{
    (void)state;
    static char *sources[] = {(char *)(uintptr_t) "sm", (char *)(uintptr_t) "",
                              (char *)(uintptr_t) "", (char *)(uintptr_t) ""};
    world w = usual();
    sample(&w, 40 * MS, 0.0001);
    pp_wire_pm_row row = {1, PP_WIRE_FORWARD, 9, {640000, -1, -1, -1}, {1000, -1, -1, -1}};
    pp_wire_batch batch = {.capture = {.start = w.now, .end = w.now},
                           .pm = {.gpu = (char *)(uintptr_t) "GPU-a",
                                  .sources = {sources, PP_WIRE_PM_LEAST},
                                  .rows = &row,
                                  .count = 1}};
    give(&w, &batch);
    pp_estimates *s = solve(&w, false);
    assert_true(find(s, PP_ITEM_LAYER, "a", 0)->mean == 0.64);
    assert_int_equal(find(s, PP_ITEM_LAYER, "a", 1)->method, PP_METHOD_REPLAY);
    assert_int_equal(find(s, PP_ITEM_LAYER, "b", 0)->method, PP_METHOD_REPLAY);
    assert_null(find(s, PP_ITEM_LAYER, "b", 0)->group_name);
    pp_estimates_free(s);
    pp_activity_builder_free(w.builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_layers_own),
        cmocka_unit_test(noise_is_in_their_errors),
        cmocka_unit_test(drift_is_in_their_errors),
        cmocka_unit_test(replays_need_not_be_even),
        cmocka_unit_test(ends_of_windows_are_found),
        cmocka_unit_test(without_kernels_is_no_value),
        cmocka_unit_test(what_goes_along_takes_longer),
        cmocka_unit_test(windows_of_an_exporter),
        cmocka_unit_test(a_dwell_is_long_enough),
        cmocka_unit_test(a_known_lag_narrows),
        cmocka_unit_test(late_windows_are_not_the_training),
        cmocka_unit_test(dwells_are_not_the_training),
        cmocka_unit_test(between_dwells_is_the_training),
        cmocka_unit_test(too_little_is_no_value),
        cmocka_unit_test(what_the_hook_says_is_the_reason),
        cmocka_unit_test(other_metrics_are_not_told),
        cmocka_unit_test(all_together_are_the_training),
        cmocka_unit_test(a_slower_host_is_no_error),
        cmocka_unit_test(parts_that_are_too_large_show),
        cmocka_unit_test(what_cannot_be_is_in_their_errors),
        cmocka_unit_test(pm_goes_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
