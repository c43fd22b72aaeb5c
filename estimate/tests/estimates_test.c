/* From activity to rows: which time counts, what is told, and that order does not matter. */
#include "common/tests/near.h"
#include "common/wire.h"
#include "estimate/items/estimates.h"
#include "estimate/problem/problem.h"
#include "estimate/regression/tests/sim.h"
#include "estimate/sampled_values.h"
#include "estimate/solve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define S INT64_C(1000000000)
#define T0 (INT64_C(1769000000) * S)

static char gpu_a[] = "GPU-a";
static char gpu_b[] = "GPU-b";
static char *const list_a[] = {gpu_a};
static char *const list_b[] = {gpu_b};

/* One process on GPU-a with one layer; batches and steps are the test's. */
static pp_activity_process processes[] = {
    {.instance = (char *)(uintptr_t) "i1",
     .process = 0,
     .gpus = {(char **)(uintptr_t)list_a, 1},
     .world_size = 1},
    {.instance = (char *)(uintptr_t) "i1",
     .process = 1,
     .gpus = {(char **)(uintptr_t)list_a, 1},
     .world_size = 1},
    {.instance = (char *)(uintptr_t) "i1",
     .process = 2,
     .gpus = {(char **)(uintptr_t)list_b, 1},
     .world_size = 1},
};
static pp_activity_layer layers[] = {
    {0, 1, 10, (char *)(uintptr_t) "b", (char *)(uintptr_t) "Linear", {0}, 0},
    {0, 2, 20, (char *)(uintptr_t) "a", (char *)(uintptr_t) "Linear", {0}, 0},
    {0, 3, 30, (char *)(uintptr_t) "never", (char *)(uintptr_t) "Linear", {0}, 0},
    {1, 7, 20, (char *)(uintptr_t) "a", (char *)(uintptr_t) "Linear", {0}, 0},
};

static pp_activity base(void)
{
    return (pp_activity){.processes = processes, .n_processes = 3, .layers = layers, .n_layers = 4};
}

static pp_problem build(const pp_activity *a)
{
    pp_problem p = {0};
    pp_error err = {0};
    const pp_estimates_options options = {0};
    if (pp_problem_build(a, gpu_a, &options, &p, &err) < 0)
        fail_msg("%s", err.message);
    return p;
}

static void capture_is(const pp_problem *p, size_t i, int64_t from, int64_t to)
{
    assert_true(i < p->n_observed);
    assert_int_equal(p->observed[i].start_ns, T0 + from);
    assert_int_equal(p->observed[i].end_ns, T0 + to);
}

static void open_capture_counts_whole_steps(void **state)
{
    (void)state;
    pp_activity_batch batches[] = {{0, false, 1, T0, T0 + 5 * S, 0, false},
                                   {0, false, 1, T0 + 5 * S, T0 + 10 * S, 0, false}};
    pp_activity_step steps[] = {{0, 1, T0, 4 * S, -1}, {1, 2, T0 + 4 * S, 4 * S, -1}};
    pp_activity a = base();
    a.batches = batches;
    a.n_batches = 2;
    a.steps = steps;
    a.n_steps = 2;
    pp_problem p = build(&a);
    assert_int_equal(p.n_observed, 1);
    capture_is(&p, 0, 0, 8 * S);
    pp_problem_done(&p);
    batches[1].last = true;
    p = build(&a);
    capture_is(&p, 0, 0, 10 * S);
    pp_problem_done(&p);
}

static void missing_batch_leaves_a_gap(void **state)
{
    (void)state;
    pp_activity_batch batches[] = {{0, true, 1, T0 + 10 * S, T0 + 15 * S, 0, false},
                                   {0, false, 1, T0, T0 + 5 * S, 0, false}};
    pp_activity_step steps[] = {{0, 4, T0 + 11 * S, 4 * S, -1}, {1, 1, T0, 4 * S, -1}};
    pp_activity a = base();
    a.batches = batches;
    a.n_batches = 2;
    a.steps = steps;
    a.n_steps = 2;
    pp_problem p = build(&a);
    assert_int_equal(p.n_observed, 2);
    capture_is(&p, 0, 0, 4 * S);
    capture_is(&p, 1, 10 * S, 15 * S);
    pp_problem_done(&p);
}

static void lost_step_is_not_idle(void **state)
{
    (void)state;
    pp_activity_batch batches[] = {{0, true, 1, T0, T0 + 10 * S, 0, false}};
    pp_activity_step steps[] = {
        {0, 1, T0, 2 * S, -1}, {0, 3, T0 + 4 * S, 2 * S, -1}, {0, 4, T0 + 7 * S, 2 * S, -1}};
    pp_activity a = base();
    a.batches = batches;
    a.n_batches = 1;
    a.steps = steps;
    a.n_steps = 3;
    pp_problem p = build(&a);
    assert_int_equal(p.n_observed, 2);
    capture_is(&p, 0, 0, 2 * S);
    capture_is(&p, 1, 4 * S, 10 * S); /* the pause between steps 3 and 4 is idle */
    pp_problem_done(&p);
}

static void shared_gpu_needs_both_processes(void **state)
{
    (void)state;
    pp_activity_batch batches[] = {
        {0, true, 1, T0, T0 + 10 * S, 0, false},
        {0, true, 2, T0 + 20 * S, T0 + 30 * S, 0, false}, /* */
        {1, true, 1, T0 + 5 * S, T0 + 25 * S, 0, false},  /* alive until 25 s */
        {2, true, 1, T0 + 2 * S, T0 + 40 * S, 0, false},  /* of another GPU */
    };
    pp_activity a = base();
    a.batches = batches;
    a.n_batches = 4;
    pp_problem p = build(&a);
    assert_int_equal(p.n_observed, 2);
    capture_is(&p, 0, 0, 10 * S);
    capture_is(&p, 1, 20 * S, 30 * S);
    pp_problem_done(&p);
}

static void items_are_sorted_and_ran(void **state)
{
    (void)state;
    pp_activity_batch batches[] = {{0, true, 1, T0, T0 + 10 * S, 0, false},
                                   {1, true, 1, T0, T0 + 10 * S, 0, false}};
    pp_activity_interval intervals[] = {
        {0, 1, PP_PHASE_BACKWARD, T0, S, -1, false},
        {0, 1, PP_PHASE_FORWARD, T0 + S, S, -1, false},
        {0, 2, PP_PHASE_FORWARD, T0 + 2 * S, S, -1, true},
        {1, 7, PP_PHASE_FORWARD, T0 + 3 * S, S, -1, false},
        {0, 0, PP_PHASE_OPTIMIZER, T0 + 4 * S, S, -1, false},
        {0, 99, PP_PHASE_FORWARD, T0 + 5 * S, S, -1, false},
    };
    pp_activity a = base();
    a.batches = batches;
    a.n_batches = 2;
    a.intervals = intervals;
    a.n_intervals = 6;
    pp_problem p = build(&a);
    assert_int_equal(p.n_items, 4);
    assert_string_equal(p.names[0].layer, "");
    assert_int_equal(p.names[0].phase, PP_PHASE_OPTIMIZER);
    assert_string_equal(p.names[1].layer, "a");
    assert_int_equal(p.items[1].pieces, 2); /* both processes' */
    assert_int_equal(p.items[1].calls, 1);  /* of which one goes on */
    assert_int_equal(p.items[1].parameters, 20);
    assert_string_equal(p.names[2].layer, "b");
    assert_int_equal(p.names[2].phase, PP_PHASE_FORWARD);
    assert_int_equal(p.names[3].phase, PP_PHASE_BACKWARD);
    assert_int_equal(p.n_intervals, 5); /* layer 99 has no name */
    assert_int_equal(p.intervals[0].item, 3);
    pp_problem_done(&p);
}

static void every_phase_has_its_item(void **state)
{
    (void)state;
    pp_activity_batch batches[] = {{0, true, 1, T0, T0 + 10 * S, 0, false}};
    pp_activity_interval intervals[] = {
        {0, 1, PP_WIRE_FORWARD, T0, S, -1, false},
        {0, 1, PP_WIRE_RECOMPUTE, T0 + S, S, -1, false},
        {0, 0, PP_WIRE_OPTIMIZER, T0 + 2 * S, S, -1, false},
        {0, 0, PP_WIRE_ZERO_GRAD, T0 + 3 * S, S, -1, false},
        {0, 0, PP_WIRE_DATA, T0 + 4 * S, S, -1, false},
        {0, 0, PP_WIRE_COMMUNICATION, T0 + 5 * S, S, -1, false},
        {0, 0, PP_WIRE_OTHER, T0 + 6 * S, S, -1, false},
    };
    static const pp_phase phases[] = {PP_PHASE_OPTIMIZER, PP_PHASE_ZERO_GRAD,
                                      PP_PHASE_DATA,      PP_PHASE_COMMUNICATION,
                                      PP_PHASE_FORWARD,   PP_PHASE_RECOMPUTE};
    pp_activity a = base();
    a.batches = batches;
    a.n_batches = 1;
    a.intervals = intervals;
    a.n_intervals = 7;
    pp_problem p = build(&a);
    assert_int_equal(p.n_items, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(p.items[i].phase, phases[i]);
        assert_string_equal(p.items[i].layer, i < 4 ? "" : "b");
    }
    assert_int_equal(p.n_intervals, 6); /* phase other is the remainder */
    pp_problem_done(&p);
}

/* Two steps of 4 s: layer b (id 1) 0..2 s, an overlapping collective 1..3 s, then phase other. */
static pp_activity_batch busy_batches[] = {{0, true, 1, T0, T0 + 8 * S, 0, false}};
static pp_activity_step busy_steps[] = {{0, 1, T0, 4 * S, S}, {0, 2, T0 + 4 * S, 4 * S, S / 2}};
static pp_activity_interval busy_intervals[] = {
    {0, 1, PP_WIRE_FORWARD, T0, 2 * S, S, false},
    {0, 0, PP_WIRE_COMMUNICATION, T0 + S, 2 * S, 2 * S, false},
    {0, 0, PP_WIRE_OTHER, T0 + 3 * S, S / 2, S / 4, false},
    {0, 1, PP_WIRE_FORWARD, T0 + 4 * S, 2 * S, 3 * S / 2, false},
    {0, 0, PP_WIRE_COMMUNICATION, T0 + 5 * S, 2 * S, 2 * S, false},
    {0, 0, PP_WIRE_OTHER, T0 + 7 * S, S / 2, S / 4, false},
};

static pp_activity busy_activity(void)
{
    pp_activity a = base();
    a.batches = busy_batches;
    a.n_batches = 1;
    a.steps = busy_steps;
    a.n_steps = 2;
    a.intervals = busy_intervals;
    a.n_intervals = 6;
    return a;
}

static pp_estimates *solve_gpu(const pp_activity *a)
{
    pp_estimates *s = NULL;
    pp_error err = {0};
    const pp_estimates_options options = {0};
    if (pp_estimates_solve(a, gpu_a, &options, &s, &err) < 0)
        fail_msg("%s", err.message);
    return s;
}

static const pp_estimates_item *item_of(const pp_estimates *s, pp_item_kind kind)
{
    for (size_t i = 0; i < s->n_items; i++) {
        if (s->items[i].kind == kind)
            return &s->items[i];
    }
    fail_msg("no item of kind %s", pp_item_kind_name(kind));
    return NULL;
}

static void busy_is(const pp_estimates *s, pp_item_kind kind, int64_t ns, double idle)
{
    const pp_estimates_item *i = item_of(s, kind);
    assert_int_equal(i->busy_ns, ns);
    assert_float_equal(i->idle_share, idle, 1e-12);
    assert_null(i->busy_reason);
}

static void unknown_because(const pp_estimates *s, pp_item_kind kind, const char *reason)
{
    const pp_estimates_item *i = item_of(s, kind);
    assert_int_equal(i->busy_ns, -1);
    assert_true(isnan(i->idle_share));
    assert_string_equal(i->busy_reason, reason);
}

static const pp_estimate *estimate_of(const pp_estimates *s, pp_item_kind kind, pp_metric metric)
{
    for (size_t i = 0; i < s->n_estimates; i++)
        if (s->items[s->estimates[i].item].kind == kind && s->estimates[i].metric == metric)
            return &s->estimates[i];
    fail_msg("no estimate of %s", pp_item_kind_name(kind));
    return NULL;
}

/* No sample of the metric is there: records alone tell it. */
static void utilisation_is_what_records_say(void **state)
{
    (void)state;
    pp_activity a = busy_activity();
    pp_estimates *s = solve_gpu(&a);
    const pp_estimate *layer = estimate_of(s, PP_ITEM_LAYER, PP_METRIC_GPU_UTIL);
    assert_float_equal(layer->mean, 62.5, 1e-9);
    assert_float_equal(layer->standard_error, 0, 0);
    assert_int_equal(layer->method, PP_METHOD_RECORDS);
    assert_int_equal(layer->basis, PP_BASIS_ELAPSED);
    assert_null(layer->reason);
    assert_float_equal(estimate_of(s, PP_ITEM_OTHER, PP_METRIC_GPU_UTIL)->mean, 25, 1e-9);
    const pp_estimate *job = estimate_of(s, PP_ITEM_JOB, PP_METRIC_GPU_UTIL);
    assert_true(isnan(job->mean));
    assert_string_equal(job->reason, "no samples of this metric");
    assert_true(isnan(estimate_of(s, PP_ITEM_LAYER, PP_METRIC_SM_ACTIVE)->mean));
    pp_estimates_free(s);
}

static void busy_times_are_summed(void **state)
{
    (void)state;
    pp_activity a = busy_activity();
    pp_estimates *s = solve_gpu(&a);
    busy_is(s, PP_ITEM_LAYER, 5 * S / 2, 0.375);
    busy_is(s, PP_ITEM_COMMUNICATION, 4 * S, 0);
    busy_is(s, PP_ITEM_OTHER, S / 2, 0.75); /* 2 s of the steps are in no item */
    assert_int_equal(item_of(s, PP_ITEM_LAYER)->total_ns, 3 * S); /* shared, as ever */
    assert_int_equal(item_of(s, PP_ITEM_OTHER)->total_ns, 2 * S);
    assert_int_equal(s->step_ns, 8 * S);
    assert_int_equal(s->gap_ns, 3 * S / 2);
    unknown_because(s, PP_ITEM_IDLE, "not measured outside of steps");
    unknown_because(s, PP_ITEM_JOB, "known of the steps: gap_ns");
    pp_estimates_free(s);
}

/* Two steps of 4 s without a collective: the layer takes 4 s in all, 5/2 s of it busy; `other` the
 * rest, 1/2 s of it busy. */
static pp_estimates *without_waits(int64_t counted, int64_t steps)
{
    pp_activity_interval intervals[] = {busy_intervals[0], busy_intervals[2], busy_intervals[3],
                                        busy_intervals[5]};
    pp_activity a = busy_activity();
    pp_activity_run run = {0, T0 + 10 * S, steps * counted, steps};
    a.intervals = intervals;
    a.n_intervals = 4;
    a.runs = &run;
    a.n_runs = 1;
    return solve_gpu(&a);
}

/* Marks lengthen no item by more than the step, nor by more than its gaps. */
static void elapsed_times_have_a_least(void **state)
{
    (void)state;
    static const struct {
        int64_t counted, steps, layer, other;
    } cases[] = {
        {4 * S - S / 4, 20, 4 * S - S / 2, 4 * S - S / 2},
        {3 * S, 20, 5 * S / 2, 2 * S},
        {4 * S + S / 25, 20, 4 * S, 4 * S}, /* as long, but for noise */
        {5 * S, 20, 5 * S / 2, S / 2},      /* something else makes steps longer: all gaps */
        {3 * S, 5, 5 * S / 2, S / 2},       /* too few tell nothing */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_estimates *s = without_waits(cases[i].counted, cases[i].steps);
        assert_int_equal(item_of(s, PP_ITEM_LAYER)->least_ns, cases[i].layer);
        assert_int_equal(item_of(s, PP_ITEM_OTHER)->least_ns, cases[i].other);
        assert_int_equal(item_of(s, PP_ITEM_IDLE)->least_ns, -1);
        assert_int_equal(item_of(s, PP_ITEM_JOB)->least_ns, -1);
        assert_int_equal(s->captures, 1);
        assert_int_equal(s->first_step_ns, T0);
        assert_int_equal(s->last_step_ns, T0 + 8 * S);
        pp_estimates_free(s);
    }
}

/* A wait is shorter for what marks add before it: the step does not tell that, and all of a piece's
 * gaps may be theirs. */
static void waits_hide_what_marks_add(void **state)
{
    (void)state;
    pp_activity a = busy_activity(); /* with a collective */
    pp_activity_run run = {0, T0 + 10 * S, 20 * (4 * S - S / 4), 20};
    a.runs = &run;
    a.n_runs = 1;
    pp_estimates *s = solve_gpu(&a);
    for (size_t i = 0; i < s->n_items; i++) {
        const pp_item_kind kind = s->items[i].kind;
        const bool works = kind == PP_ITEM_LAYER || kind == PP_ITEM_OTHER;
        assert_int_equal(s->items[i].least_ns, works ? s->items[i].busy_ns : -1);
    }
    pp_estimates_free(s);
}

static void busy_times_are_of_observed_time(void **state)
{
    (void)state;
    pp_activity a = busy_activity();
    pp_activity_batch half = {0, true, 1, T0, T0 + 5 * S, 0, false};
    a.batches = &half;
    pp_estimates *s = solve_gpu(&a);
    /* 1.25 of both steps lie in it. */
    busy_is(s, PP_ITEM_LAYER, (S + 3 * S / 4) * 8 / 5, 1 - 1.75 / 3);
    busy_is(s, PP_ITEM_COMMUNICATION, 2 * S * 8 / 5, 0);
    assert_int_equal(s->observed_ns, 5 * S);
    assert_int_equal(s->step_ns, 8 * S);
    assert_int_equal(s->gap_ns, (S + S / 8) * 8 / 5);
    pp_estimates_free(s);
}

/* Two trainings take turns on a GPU, and are captured at times of their own, which have a tenth in
 * common: steps of 100 ms, of which a layer takes 80. */
static void shared_gpu_tells_times_of_steps(void **state)
{
    (void)state;
    enum { CAPTURES = 10, STEPS = 20, ALL = 2 * CAPTURES * STEPS };
    static pp_activity_batch batches[2 * CAPTURES];
    static pp_activity_step steps[ALL];
    static pp_activity_interval intervals[ALL];
    const int64_t ms = S / 1000;
    pp_activity a = base();
    a.batches = batches;
    a.steps = steps;
    a.intervals = intervals;
    for (uint32_t process = 0; process < 2; process++)
        for (int capture = 0; capture < CAPTURES; capture++) {
            const uint32_t batch = (uint32_t)a.n_batches++;
            const int64_t at = T0 + capture * 10 * S + process * (2 * S - 200 * ms);
            batches[batch] =
                (pp_activity_batch){process, true, capture + 1, at, at + 2 * S, 0, false};
            for (int i = 0; i < STEPS; i++) {
                steps[a.n_steps++] = (pp_activity_step){batch, capture * STEPS + i,
                                                        at + i * 100 * ms, 100 * ms, 20 * ms};
                intervals[a.n_intervals++] = (pp_activity_interval){
                    batch, process ? 7 : 1, PP_PHASE_FORWARD, at + i * 100 * ms, 80 * ms, 80 * ms,
                    false};
            }
        }
    pp_estimates *s = solve_gpu(&a);
    /* Before the second comes, and once the first has gone, the other is all there is. */
    assert_int_equal(s->observed_ns, CAPTURES * 200 * ms + 2 * 1800 * ms);
    assert_int_equal(s->step_count, ALL);
    assert_near((double)s->step_ns / ALL, 1e8, 1e4);
    assert_near((double)s->gap_ns / ALL, 2e7, 1e4);
    double busy = 0;
    for (size_t i = 0; i < s->n_items; i++)
        busy += s->items[i].kind == PP_ITEM_LAYER ? (double)s->items[i].busy_ns / ALL : 0;
    assert_near(busy, 8e7, 1e4);
    pp_estimates_free(s);
}

static void busy_times_of_cells(void **state)
{
    (void)state;
    const int64_t ms = S / 1000;
    pp_activity_cell cells[] = {
        {0, 1, PP_WIRE_FORWARD, T0, 10 * ms, 8 * ms, 1, 4 * ms},
        {0, 1, PP_WIRE_FORWARD, T0 + 10 * ms, 10 * ms, 2 * ms, 1, ms},
        {0, 0, PP_WIRE_OTHER, T0 + 10 * ms, 10 * ms, 8 * ms, 1, 3 * ms},
        /* the last of its capture, which ends 2 ms later */
        {0, 1, PP_WIRE_FORWARD, T0 + 8 * S - 2 * ms, 10 * ms, 2 * ms, 1, 2 * ms}};
    pp_activity a = busy_activity();
    pp_activity_batch batch = a.batches[0];
    batch.end_ns = T0 + 8 * S;
    a.batches = &batch;
    a.n_intervals = 0;
    a.cells = cells;
    a.n_cells = 4;
    pp_estimates *s = solve_gpu(&a);
    busy_is(s, PP_ITEM_LAYER, 7 * ms, 1 - 7.0 / 12);
    assert_int_equal(item_of(s, PP_ITEM_OTHER)->busy_ns, 3 * ms);
    pp_estimates_free(s);
}

static void busy_times_of_a_part_stand_for_all(void **state)
{
    (void)state;
    pp_activity_interval intervals[6];
    memcpy(intervals, busy_intervals, sizeof(intervals));
    pp_activity_step steps[] = {busy_steps[0], busy_steps[1]};
    for (size_t i = 3; i < 6; i++)
        intervals[i].kernels_ns = -1;
    steps[1].gap_ns = -1;
    pp_activity a = busy_activity();
    a.intervals = intervals;
    a.steps = steps;
    pp_estimates *s = solve_gpu(&a);
    busy_is(s, PP_ITEM_LAYER, 2 * S, 0.5);
    busy_is(s, PP_ITEM_OTHER, S / 2, 0.75);
    assert_int_equal(s->gap_ns, 2 * S);
    pp_estimates_free(s);
}

static void unknown_busy_times_say_why(void **state)
{
    (void)state;
    pp_activity_interval intervals[6];
    memcpy(intervals, busy_intervals, sizeof(intervals));
    pp_activity_step step = busy_steps[0];
    for (size_t i = 0; i < 6; i++)
        intervals[i].kernels_ns = -1;
    step.gap_ns = -1;
    pp_activity a = busy_activity();
    a.intervals = intervals;
    a.steps = &step;
    a.n_steps = 1;
    pp_estimates *s = solve_gpu(&a);
    assert_int_equal(s->gap_ns, -1);
    unknown_because(s, PP_ITEM_LAYER, "no kernels were recorded");
    unknown_because(s, PP_ITEM_OTHER, "no kernels were recorded");
    pp_estimates_free(s);
    processes[0].kernels = (char *)(uintptr_t) "another CUPTI client";
    processes[2].kernels = (char *)(uintptr_t) "of another GPU";
    s = solve_gpu(&a);
    processes[0].kernels = processes[2].kernels = NULL;
    unknown_because(s, PP_ITEM_LAYER, "another CUPTI client");
    pp_estimates_free(s);
}

/* As many layers as a process may name, each in every phase of a layer. */
static void largest_model_is_solved(void **state)
{
    (void)state;
    enum { LAYERS = PP_WIRE_MAX_LAYERS, PHASES = 3, STEPS = 3 };
    static const uint8_t phases[PHASES] = {PP_WIRE_FORWARD, PP_WIRE_BACKWARD, PP_WIRE_RECOMPUTE};
    pp_activity_layer *many = calloc(LAYERS, sizeof(*many));
    char(*names)[16] = calloc(LAYERS, sizeof(*names));
    pp_activity_interval *intervals = calloc((size_t)LAYERS * PHASES * STEPS, sizeof(*intervals));
    pp_activity_step steps[STEPS];
    assert_true(many && names && intervals);
    pp_activity a = busy_activity();
    for (int i = 0; i < LAYERS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "net.%d", i);
        many[i] = (pp_activity_layer){0, i + 1, 1, names[i], names[i], {0}, 0};
    }
    a.n_intervals = 0;
    for (int i = 0; i < STEPS; i++) {
        const int64_t start = T0 + i * 2 * S;
        steps[i] = (pp_activity_step){0, i, start, 2 * S, -1};
        for (int k = 0; k < LAYERS * PHASES; k++)
            intervals[a.n_intervals++] = (pp_activity_interval){
                0, k % LAYERS + 1, phases[k / LAYERS], start + k * 100000, 100000, 50000, false};
    }
    pp_activity_sample samples[60];
    for (int i = 0; i < 60; i++)
        samples[i] =
            (pp_activity_sample){0, PP_METRIC_SM_ACTIVE, T0 + i * (S / 10), 0.3 + 0.01 * (i % 7)};
    a.layers = many;
    a.n_layers = LAYERS;
    a.steps = steps;
    a.n_steps = STEPS;
    a.intervals = intervals;
    a.gpus = (pp_strings){(char **)(uintptr_t)list_a, 1};
    a.samples = samples;
    a.n_samples = 60;
    pp_estimates *s = solve_gpu(&a);
    assert_int_equal(s->n_items, LAYERS * PHASES + 3);
    for (size_t i = 0; i < (size_t)LAYERS * PHASES; i++)
        assert_int_equal(s->items[i].busy_ns, STEPS * 50000);
    pp_estimates_free(s);
    free(many);
    free(names);
    free(intervals);
}

static void unknown_gpu(void **state)
{
    (void)state;
    pp_activity a = base();
    pp_error err = {0};
    pp_estimates *s = NULL;
    const pp_estimates_options options = {0};
    assert_int_equal(pp_estimates_solve(&a, "GPU-none", &options, &s, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
}

/* A simulated training as the store would have it: one batch per capture. */
typedef struct stored {
    sim *from;
    pp_activity activity;
    pp_activity_layer layers[256];
    pp_activity_batch batches[64];
} stored;

static int by_process_and_id(const void *a, const void *b)
{
    return ((const pp_activity_layer *)a)->id - ((const pp_activity_layer *)b)->id;
}

/* The batch whose time holds t. */
static uint32_t batch_at(const stored *st, int64_t t)
{
    for (uint32_t i = 0; i + 1 < st->activity.n_batches; i++) {
        if (t < st->batches[i].end_ns)
            return i;
    }
    return (uint32_t)st->activity.n_batches - 1;
}

static void store(stored *st, const sim_config *config)
{
    st->from = sim_new(config);
    const pp_regression_input *in = &st->from->in;
    pp_activity *a = &st->activity;
    *a = base();
    a->layers = st->layers;
    a->n_layers = 0;
    for (size_t i = 0; i < in->n_items; i++) {
        if (in->items[i].phase == PP_PHASE_FORWARD || in->items[i].phase == PP_PHASE_BACKWARD)
            st->layers[a->n_layers++] = (pp_activity_layer){0,
                                                            (int32_t)i + 1,
                                                            5,
                                                            (char *)(uintptr_t)in->items[i].layer,
                                                            (char *)(uintptr_t) "Linear",
                                                            {0},
                                                            0};
    }
    qsort(st->layers, a->n_layers, sizeof(*st->layers), by_process_and_id);
    a->batches = st->batches;
    for (size_t i = 0; i < in->n_observed; i++)
        st->batches[a->n_batches++] = (pp_activity_batch){
            0, true, (int64_t)i, in->observed[i].start_ns, in->observed[i].end_ns, 0, false};
    a->steps = calloc(in->n_steps + 1, sizeof(*a->steps));
    for (size_t i = 0; i < in->n_steps; i++) {
        const uint32_t batch = batch_at(st, in->steps[i].start_ns);
        a->steps[a->n_steps++] =
            (pp_activity_step){batch, (int64_t)i, in->steps[i].start_ns,
                               in->steps[i].end_ns - in->steps[i].start_ns, -1};
    }
    a->intervals = calloc(in->n_intervals + 1, sizeof(*a->intervals));
    for (size_t i = 0; i < in->n_intervals; i++) {
        const pp_regression_interval *v = &in->intervals[i];
        const pp_phase phase = in->items[v->item].phase;
        a->intervals[a->n_intervals++] =
            (pp_activity_interval){batch_at(st, v->start_ns),
                                   phase == PP_PHASE_OPTIMIZER ? 0 : (int32_t)v->item + 1,
                                   (uint8_t)phase,
                                   v->start_ns,
                                   v->end_ns - v->start_ns,
                                   -1,
                                   false};
    }
    a->gpus = (pp_strings){(char **)(uintptr_t)list_a, 1};
    a->samples = calloc(in->n_metrics * in->metrics[0].n_samples * 2 + 1, sizeof(*a->samples));
    for (size_t m = 0; m < in->n_metrics; m++) {
        pp_metric metric = PP_METRIC_COUNT;
        if (pp_metric_from_name(in->metrics[m].name, &metric) < 0)
            metric = (pp_metric)m;
        for (size_t i = 0; i < in->metrics[m].n_samples; i++)
            a->samples[a->n_samples++] =
                (pp_activity_sample){0, PP_METRIC_SM_ACTIVE, in->metrics[m].samples[i].stamp_ns,
                                     in->metrics[m].samples[i].value};
        break; /* the first metric is a share: it stands for sm_active */
    }
}

static void discard(stored *st)
{
    free(st->activity.steps);
    free(st->activity.intervals);
    free(st->activity.samples);
    sim_free(st->from);
}

static pp_estimates *solve_within(const pp_activity *a, bool job_only, double tolerance)
{
    pp_estimates *s = NULL;
    pp_error err = {0};
    const pp_estimates_options options = {.attribution = {.window_ns = S / 4, .scrape_ns = S / 4},
                                          .metrics = 1U << PP_METRIC_SM_ACTIVE,
                                          .tolerance_percent = tolerance,
                                          .method = job_only ? PP_METHOD_JOB : PP_METHOD_AUTO};
    if (pp_estimates_solve(a, gpu_a, &options, &s, &err) < 0)
        fail_msg("%s: %s", err.field, err.message);
    return s;
}

static pp_estimates *solve(const pp_activity *a, bool job_only)
{
    return solve_within(a, job_only, 5);
}

static sim_config small(void)
{
    sim_config c = sim_defaults(7);
    c.duration = 60;
    c.window = c.scrape = 0.25;
    return c;
}

static size_t count_known(const pp_estimates *s, pp_item_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_estimates; i++)
        n += s->items[s->estimates[i].item].kind == kind && !isnan(s->estimates[i].mean);
    return n;
}

static void training_becomes_rows(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    store(&st, &config);
    pp_estimates *s = solve(&st.activity, false);
    assert_string_equal(s->gpu, gpu_a);
    assert_int_equal(s->step_count, st.activity.n_steps);
    assert_true(s->windows > 100 && s->samples >= s->windows);
    assert_int_equal(s->items[s->n_items - 1].kind, PP_ITEM_JOB);
    assert_int_equal(s->items[s->n_items - 2].kind, PP_ITEM_IDLE);
    assert_int_equal(s->n_estimates, s->n_items);
    assert_int_equal(count_known(s, PP_ITEM_JOB), 1);
    assert_true(count_known(s, PP_ITEM_LAYER) >= 4);
    double share = 0;
    int64_t folded = 0;
    for (size_t i = 0; i + 2 < s->n_items; i++)
        share += s->items[i].share;
    assert_true(fabs(share - 1) < 0.01);
    for (size_t i = 0; i < s->n_estimates; i++)
        assert_true(isnan(s->estimates[i].mean) == (s->estimates[i].reason != NULL));
    for (size_t i = 0; i < s->n_sample_rows; i++) {
        const pp_sample_row *row = &s->sample_rows[i].row;
        assert_true(row->share > 0 && row->share <= 1 && row->windows >= 1);
        folded += row->windows;
    }
    assert_true(folded > (int64_t)s->n_sample_rows);
    int64_t windows = 0;
    for (size_t i = 0; i + 1 < s->n_items; i++)
        windows += s->items[i].windows;
    assert_int_equal(windows, folded); /* every window of every item is in one row */
    pp_estimates_free(s);
    discard(&st);
}

/* An item's means of a metric, from its rows: over windows, and by the item's share of them. */
static void means_of(const pp_estimates *s, uint32_t item, pp_metric metric, double *over_windows,
                     double *by_share)
{
    double n = 0, sum = 0, share = 0, weighted = 0;
    for (size_t i = 0; i < s->n_sample_rows; i++) {
        const pp_sample_row *row = &s->sample_rows[i].row;
        if (s->sample_rows[i].item != item)
            continue;
        n += (double)row->windows;
        sum += (double)row->windows * row->values[metric];
        share += (double)row->windows * row->share;
        weighted += (double)row->windows * row->share * row->by_share[metric];
    }
    *over_windows = sum / n;
    *by_share = weighted / share;
}

/* The row of the item that stands for a window. */
static const pp_sample_row *row_of(const pp_estimates *s, const pp_estimates_sample *window)
{
    for (size_t i = 0; i < s->n_sample_rows; i++) {
        const pp_sample_row *row = &s->sample_rows[i].row;
        if (s->sample_rows[i].item == window->item && row->first_ns <= window->row.first_ns &&
            row->last_ns >= window->row.first_ns)
            return row;
    }
    fail_msg("no row stands for a window of item %u", window->item);
    return NULL;
}

/* Root mean square of what an item's windows are apart from their rows. */
static double spread_of(const pp_estimates *each, const pp_estimates *rows, uint32_t item)
{
    double n = 0, sum = 0;
    for (size_t i = 0; i < each->n_sample_rows; i++) {
        const pp_estimates_sample *window = &each->sample_rows[i];
        if (window->item != item)
            continue;
        const double apart = window->row.values[PP_METRIC_SM_ACTIVE] -
                             row_of(rows, window)->values[PP_METRIC_SM_ACTIVE];
        sum += apart * apart;
        n++;
    }
    return n > 0 ? sqrt(sum / n) : 0;
}

static void check_means(const pp_estimates *each, const pp_estimates *folded)
{
    for (uint32_t i = 0; i + 1 < each->n_items; i++) {
        double mean, by_share, folded_mean, folded_by_share;
        means_of(each, i, PP_METRIC_SM_ACTIVE, &mean, &by_share);
        means_of(folded, i, PP_METRIC_SM_ACTIVE, &folded_mean, &folded_by_share);
        if (isnan(mean)) /* it never ran */
            continue;
        assert_true(fabs(folded_mean - mean) < 1e-12);
        assert_true(fabs(folded_by_share - by_share) < 1e-12);
    }
}

/* Of rows, against one for each window: 95 % of them, and no mean. */
static void what_folding_costs(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    double spread = 0;
    store(&st, &config);
    pp_estimates *each = solve_within(&st.activity, false, 0);
    int64_t windows = 0;
    for (size_t i = 0; i + 1 < each->n_items; i++)
        windows += each->items[i].windows;
    assert_int_equal(each->n_sample_rows, windows); /* of a tolerance of 0 */
    assert_true(each->samples_error < 1e-12 && each->samples_spread < 1e-12);
    pp_estimates *folded = solve_within(&st.activity, false, 5);
    assert_true((double)folded->n_sample_rows <= 0.05 * (double)windows);
    assert_true(folded->samples_error < 1e-9);
    check_means(each, folded);
    for (uint32_t i = 0; i + 1 < each->n_items; i++)
        spread = fmax(spread, spread_of(each, folded, i));
    assert_true(spread > 0.01 && fabs(folded->samples_spread - spread) < 1e-6);
    pp_estimates_free(each);
    pp_estimates_free(folded);
    discard(&st);
}

/* A tolerance of 0 folds nothing, not even windows that read the same as the one before. */
static void windows_that_read_the_same(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    store(&st, &config);
    for (size_t i = 0; i < st.activity.n_samples; i++)
        st.activity.samples[i].value = st.activity.samples[i].value > 0.4 ? 0.8 : 0.2;
    pp_estimates *s = solve_within(&st.activity, false, 0);
    size_t windows = 0, same = 0;
    for (size_t i = 0; i + 1 < s->n_items; i++)
        windows += (size_t)s->items[i].windows;
    for (size_t i = 1; i < s->n_sample_rows; i++)
        same += s->sample_rows[i].item == s->sample_rows[i - 1].item &&
                pp_dedup_same(&s->sample_rows[i].row, &s->sample_rows[i - 1].row, 0);
    assert_int_equal(s->n_sample_rows, windows);
    assert_true(windows > 100 && same > 10);
    pp_estimates_free(s);
    discard(&st);
}

/* Where it is small, runs are not folded: rows are of 24 windows at least, and of 47 at most. */
static void runs_of_windows(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    store(&st, &config);
    pp_estimates *s = solve_within(&st.activity, false, 1e-9);
    for (size_t i = 0; i < s->n_sample_rows; i++) {
        const int64_t windows = s->sample_rows[i].row.windows;
        const int64_t of_item = s->items[s->sample_rows[i].item].windows;
        assert_in_range(windows, of_item < 24 ? of_item : 24, 47);
    }
    pp_estimates_free(s);
    discard(&st);
}

/* A training on the CPU: times of its layers, and no value. */
static void no_gpu_gives_times(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    store(&st, &config);
    const pp_strings gpus = st.activity.processes[0].gpus;
    st.activity.processes[0].gpus = (pp_strings){0};
    st.activity.gpus = (pp_strings){0};
    st.activity.n_samples = 0;
    pp_estimates *s = NULL;
    const pp_estimates_options options = {.metrics = PP_METRIC_ALL, .tolerance_percent = 5};
    assert_int_equal(pp_estimates_solve(&st.activity, "", &options, &s, NULL), 0);
    assert_string_equal(s->gpu, "");
    assert_int_equal(s->step_count, st.activity.n_steps);
    assert_int_equal(count_known(s, PP_ITEM_JOB), 0);
    size_t timed = 0;
    for (size_t i = 0; i < s->n_items; i++)
        timed += s->items[i].kind == PP_ITEM_LAYER && s->items[i].total_ns > 0;
    assert_true(timed >= 4);
    unknown_because(s, PP_ITEM_LAYER, "no GPU");
    pp_estimates_free(s);
    st.activity.processes[0].gpus = gpus;
    discard(&st);
}

/* Two that work at the same time, of which one was watched for longer. */
static void without_a_gpu_each_has_its_own_time(void **state)
{
    (void)state;
    pp_activity_process both[2] = {processes[0], processes[1]};
    pp_activity_batch batches[] = {{0, true, 1, T0, T0 + 10 * S, 0, false},
                                   {1, true, 1, T0 + 4 * S, T0 + 8 * S, 0, false}};
    pp_activity_step steps[] = {{0, 1, T0, 10 * S, -1}, {1, 1, T0 + 4 * S, 4 * S, -1}};
    pp_activity_interval intervals[] = {{0, 2, PP_PHASE_FORWARD, T0 + S, 6 * S, -1, false},
                                        {1, 7, PP_PHASE_FORWARD, T0 + 5 * S, 2 * S, -1, false}};
    pp_activity a = base();
    both[0].gpus = both[1].gpus = (pp_strings){0};
    a.processes = both;
    a.n_processes = 2;
    a.batches = batches;
    a.n_batches = 2;
    a.steps = steps;
    a.n_steps = 2;
    a.intervals = intervals;
    a.n_intervals = 2;
    pp_estimates *s = NULL;
    const pp_estimates_options options = {.metrics = PP_METRIC_ALL, .tolerance_percent = 5};
    assert_int_equal(pp_estimates_solve(&a, "", &options, &s, NULL), 0);
    assert_int_equal(s->step_count, 2);
    assert_int_equal(s->step_ns, 14 * S);
    assert_int_equal(s->observed_ns, 14 * S);
    assert_int_equal(s->first_step_ns, T0);
    assert_int_equal(s->last_step_ns, T0 + 10 * S);
    assert_string_equal(s->items[0].layer, "a");
    assert_int_equal(s->items[0].total_ns, 8 * S);
    assert_int_equal(s->items[0].calls, 2);
    assert_int_equal(batches[1].start_ns, T0 + 4 * S); /* it is left as it was */
    pp_estimates_free(s);
}

/* Memory in use is a level of the GPU: each layer that ran holds the job's average. */
static void memory_is_the_jobs(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    store(&st, &config);
    pp_activity *a = &st.activity;
    const size_t n = a->n_samples; /* there is room for twice as many; gpu_mem sorts first */
    memmove(a->samples + n, a->samples, n * sizeof(*a->samples));
    for (size_t i = 0; i < n; i++) {
        a->samples[i].metric = PP_METRIC_GPU_MEM;
        a->samples[i].value = 9000 + 100 * a->samples[n + i].value;
    }
    a->n_samples = 2 * n;
    pp_estimates *s = NULL;
    const pp_estimates_options options = {.attribution = {.window_ns = S / 4, .scrape_ns = S / 4},
                                          .metrics =
                                              1U << PP_METRIC_SM_ACTIVE | 1U << PP_METRIC_GPU_MEM,
                                          .tolerance_percent = 5};
    assert_int_equal(pp_estimates_solve(a, gpu_a, &options, &s, NULL), 0);
    double job = (double)NAN;
    size_t held = 0;
    for (size_t i = 0; i < s->n_estimates; i++) {
        if (s->items[s->estimates[i].item].kind == PP_ITEM_JOB &&
            s->estimates[i].metric == PP_METRIC_GPU_MEM)
            job = s->estimates[i].mean;
    }
    assert_true(job > 9000 && job < 9100);
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_estimate *e = &s->estimates[i];
        if (e->metric != PP_METRIC_GPU_MEM || s->items[e->item].kind != PP_ITEM_LAYER)
            continue;
        assert_true(e->mean == job);
        assert_int_equal(e->method, PP_METHOD_JOB);
        assert_null(e->group_name);
        held++;
    }
    assert_true(held >= 4);
    pp_estimates_free(s);
    discard(&st);
}

static void job_only_says_no_layer(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    store(&st, &config);
    pp_estimates *s = solve(&st.activity, true);
    assert_int_equal(count_known(s, PP_ITEM_JOB), 1);
    assert_int_equal(count_known(s, PP_ITEM_LAYER), 0);
    for (size_t i = 0; i + 1 < s->n_estimates; i++)
        assert_null(s->estimates[i].group_name);
    pp_estimates_free(s);
    discard(&st);
}

/* Windows that all read the same tell no lag, and no layer, however long they are sampled. */
static void same_windows_are_told(void **state)
{
    (void)state;
    static const double values[] = {0, 0.97, 1, -1}; /* the last: at random */
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        stored st = {0};
        const sim_config config = small();
        store(&st, &config);
        for (size_t i = 0; i < st.activity.n_samples; i++)
            st.activity.samples[i].value =
                values[v] < 0 ? (double)(i * 7919 % 1009) / 1009 : values[v];
        pp_estimates *s = solve(&st.activity, false);
        size_t layers_told = 0;
        for (size_t i = 0; i < s->n_estimates; i++) {
            const pp_estimate *e = &s->estimates[i];
            if (s->items[e->item].kind == PP_ITEM_JOB)
                assert_true(values[v] < 0 || fabs(e->mean - values[v]) < 1e-9);
            if (s->items[e->item].kind != PP_ITEM_LAYER)
                continue;
            assert_true(isnan(e->mean));
            assert_string_equal(e->reason,
                                values[v] < 0 ? "the exporter's lag could not be told from the data"
                                              : "its values did not vary");
            layers_told++;
        }
        assert_true(layers_told >= 4);
        pp_estimates_free(s);
        discard(&st);
    }
}

/* A value of PM sampling for a layer of the training. */
static void add_pm(stored *st, pp_activity_pm *value, char *source)
{
    static char *sources[1];
    sources[0] = source;
    st->activity.sources = (pp_strings){sources, 1};
    *value = (pp_activity_pm){.layer = st->layers[0].id,
                              .phase = PP_PHASE_FORWARD,
                              .metric = PP_METRIC_SM_ACTIVE,
                              .mean = 0.5,
                              .standard_error = 0.01,
                              .kernels = 100};
    st->activity.pm = value;
    st->activity.n_pm = 1;
}

/* They fill the pieces; between these nothing runs. */
static void know_kernels(pp_activity *a)
{
    for (size_t k = 0; k < a->n_steps; k++)
        a->steps[k].gap_ns = a->steps[k].duration_ns;
    for (size_t i = 0; i < a->n_intervals; i++) {
        pp_activity_interval *v = &a->intervals[i];
        v->kernels_ns = v->duration_ns;
        for (size_t k = 0; k < a->n_steps; k++) {
            pp_activity_step *step = &a->steps[k];
            if (v->start_ns >= step->start_ns && v->start_ns < step->start_ns + step->duration_ns)
                step->gap_ns -= v->duration_ns;
        }
    }
}

/* What windows take for somebody else's work counts where nobody has looked closer. */
static void gaps_that_were_seen_overrule_windows(void **state)
{
    (void)state;
    char source[] = "sm__cycles_active";
    for (int looked = 0; looked < 2; looked++) {
        stored st = {0};
        pp_activity_pm value;
        sim_config config = small();
        config.tenant = 0.2;
        config.idle = 0.1;
        store(&st, &config);
        know_kernels(&st.activity);
        add_pm(&st, &value, source);
        processes[0].pm_saw_gaps = looked;
        pp_estimates *s = solve(&st.activity, false);
        processes[0].pm_saw_gaps = false;
        assert_int_equal(s->shared, !looked);
        assert_int_equal(count_known(s, PP_ITEM_LAYER), looked);
        assert_int_equal(s->n_fits, 1);
        if (looked)
            assert_null(s->fits[0].doubt);
        else
            assert_string_equal(s->fits[0].doubt, pp_doubt_tenant);
        pp_estimates_free(s);
        discard(&st);
    }
}

static uint64_t shuffle_state = 42;

static void shuffle(void *base_, size_t n, size_t size)
{
    char *bytes = base_;
    char swap[64];
    for (size_t i = n; i > 1; i--) {
        const size_t j = (size_t)(sim_uniform(&shuffle_state) * (double)i);
        memcpy(swap, bytes + (i - 1) * size, size);
        memcpy(bytes + (i - 1) * size, bytes + j * size, size);
        memcpy(bytes + j * size, swap, size);
    }
}

static void order_does_not_matter(void **state)
{
    (void)state;
    stored st = {0};
    const sim_config config = small();
    store(&st, &config);
    pp_estimates *a = solve(&st.activity, false);
    shuffle(st.activity.intervals, st.activity.n_intervals, sizeof(*st.activity.intervals));
    shuffle(st.activity.steps, st.activity.n_steps, sizeof(*st.activity.steps));
    pp_estimates *b = solve(&st.activity, false);
    assert_int_equal(a->n_estimates, b->n_estimates);
    for (size_t i = 0; i < a->n_estimates; i++) {
        assert_memory_equal(&a->estimates[i].mean, &b->estimates[i].mean, sizeof(double));
        assert_memory_equal(&a->estimates[i].standard_error, &b->estimates[i].standard_error,
                            sizeof(double));
    }
    assert_int_equal(a->n_sample_rows, b->n_sample_rows);
    for (size_t i = 0; i < a->n_sample_rows; i++) {
        assert_int_equal(a->sample_rows[i].item, b->sample_rows[i].item);
        assert_memory_equal(&a->sample_rows[i].row, &b->sample_rows[i].row, sizeof(pp_sample_row));
    }
    pp_estimates_free(a);
    pp_estimates_free(b);
    discard(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_capture_counts_whole_steps),
        cmocka_unit_test(missing_batch_leaves_a_gap),
        cmocka_unit_test(lost_step_is_not_idle),
        cmocka_unit_test(shared_gpu_needs_both_processes),
        cmocka_unit_test(items_are_sorted_and_ran),
        cmocka_unit_test(every_phase_has_its_item),
        cmocka_unit_test(utilisation_is_what_records_say),
        cmocka_unit_test(busy_times_are_summed),
        cmocka_unit_test(elapsed_times_have_a_least),
        cmocka_unit_test(waits_hide_what_marks_add),
        cmocka_unit_test(busy_times_are_of_observed_time),
        cmocka_unit_test(shared_gpu_tells_times_of_steps),
        cmocka_unit_test(busy_times_of_cells),
        cmocka_unit_test(busy_times_of_a_part_stand_for_all),
        cmocka_unit_test(unknown_busy_times_say_why),
        cmocka_unit_test(largest_model_is_solved),
        cmocka_unit_test(unknown_gpu),
        cmocka_unit_test(training_becomes_rows),
        cmocka_unit_test(what_folding_costs),
        cmocka_unit_test(runs_of_windows),
        cmocka_unit_test(windows_that_read_the_same),
        cmocka_unit_test(no_gpu_gives_times),
        cmocka_unit_test(without_a_gpu_each_has_its_own_time),
        cmocka_unit_test(memory_is_the_jobs),
        cmocka_unit_test(job_only_says_no_layer),
        cmocka_unit_test(same_windows_are_told),
        cmocka_unit_test(gaps_that_were_seen_overrule_windows),
        cmocka_unit_test(order_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
