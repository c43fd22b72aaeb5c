/* Steps between captures: their number, their length, and which samples are of them alone. */
#include "common/tests/cmocka_all.h"
#include "estimate/items/estimates.h"
#include "estimate/problem/counted_steps.h"

#include <math.h>

#define S INT64_C(1000000000)
#define T0 (INT64_C(1700000000) * S)

enum { N_BATCHES = 4, STEPS = 5 };

/* Captures of five steps of 20 ms each: of process 0 at 0 and 10 s, of process 1 at 2 and 22 s. */
typedef struct fixture {
    pp_activity activity;
    pp_activity_batch batches[N_BATCHES + 1];
    pp_activity_step steps[N_BATCHES * STEPS];
    pp_replay_runs dwells;
    pp_time_range dwell;
    pp_counted_steps counted;
} fixture;

static void put_capture(fixture *f, uint32_t i, uint32_t process, int64_t number, int64_t at)
{
    const int64_t step = S / 50;
    f->batches[i] = (pp_activity_batch){.process = process,
                                        .last = true,
                                        .capture = (int64_t)i,
                                        .start_ns = T0 + at,
                                        .end_ns = T0 + at + STEPS * step};
    for (int64_t k = 0; k < STEPS; k++)
        f->steps[i * STEPS + (uint32_t)k] =
            (pp_activity_step){i, number + k, T0 + at + k * step, step, -1};
}

static void set_up(fixture *f)
{
    *f = (fixture){0};
    put_capture(f, 0, 0, 1, 0);
    put_capture(f, 1, 1, 100, 2 * S);
    put_capture(f, 2, 0, 1001, 10 * S);
    put_capture(f, 3, 1, 1100, 22 * S);
    f->activity = (pp_activity){.batches = f->batches,
                                .n_batches = N_BATCHES,
                                .steps = f->steps,
                                .n_steps = N_BATCHES * STEPS};
}

static void find(fixture *f, const bool *uses)
{
    pp_error err = {0};
    pp_marked_step *marked = NULL;
    size_t n = 0;
    assert_int_equal(pp_marked_steps_collect(&f->activity, uses, &marked, &n, &err), 0);
    assert_int_equal(
        pp_counted_steps_find(&f->activity, uses, marked, n, &f->dwells, &f->counted, &err), 0);
    free(marked);
}

static void between_two_captures(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 995);
    assert_int_equal(f.counted.ns, 10 * S - S / 10);
    assert_true(fabs(pp_counted_step_ns(&f.counted) - 9.9e9 / 995) < 1);
    pp_counted_steps_done(&f.counted);
}

/* The order in which batches were stored says nothing. */
static void of_each_process_its_own(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    const pp_activity_step first = f.steps[0];
    f.steps[0] = f.steps[N_BATCHES * STEPS - 1];
    f.steps[N_BATCHES * STEPS - 1] = first;
    find(&f, (const bool[]){true, true});
    assert_int_equal(f.counted.steps, 995 + 995);
    assert_int_equal(f.counted.ns, 9 * S + 9 * S / 10 + 19 * S + 9 * S / 10);
    assert_int_equal(f.counted.count, 1); /* they overlap */
    pp_counted_steps_done(&f.counted);
}

static void replays_are_no_steps(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    f.dwell = (pp_time_range){T0 + 15 * S, T0 + 16 * S};
    f.dwells = (pp_replay_runs){.spans = &f.dwell, .n_spans = 1};
    find(&f, (const bool[]){true, true});
    assert_int_equal(f.counted.steps, 995);
    pp_counted_steps_done(&f.counted);
}

/* One capture goes on, numbers that fall, a step that ends within the next: nothing was counted. */
static void what_was_not_counted(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    put_capture(&f, 2, 0, 6, 10 * S);
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 0);
    assert_true(isnan(pp_counted_step_ns(&f.counted)));
    pp_counted_steps_done(&f.counted);
    put_capture(&f, 2, 0, 1001, 10 * S);
    f.steps[STEPS - 1].duration_ns = 11 * S;
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 0);
    pp_counted_steps_done(&f.counted);
}

/* Steps 3 and 4 of the first capture are missing: their marks were lost. */
static void lost_ones_are_not_counted(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    f.steps[2] = f.steps[4];
    f.activity.n_steps = 3;
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 0);
    assert_int_equal(f.counted.count, 0);
    pp_counted_steps_done(&f.counted);
}

/* A batch was lost, so that one capture was given a second number. */
static void nothing_behind_a_capture_without_an_end(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    f.batches[0].last = false;
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 0);
    pp_counted_steps_done(&f.counted);
    f.activity.n_batches = N_BATCHES + 1; /* its last one came, without a step */
    f.batches[N_BATCHES] = f.batches[0];
    f.batches[N_BATCHES].last = true;
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 995);
    pp_counted_steps_done(&f.counted);
}

/* 500 W, but 100 W in captures and in the second behind one: what a step takes is of the 500. */
static void a_rate_of_steps_without_marks(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    find(&f, (const bool[]){true, false});
    const pp_estimates_options options = {
        .attribution = {.window_ns = S / 10, .scrape_ns = S / 10}};
    const pp_coverage reading = pp_coverage_of(&options);
    pp_regression_sample samples[120];
    pp_regression_metric power = {.name = "power", .min = (double)NAN, .max = (double)NAN};
    power.samples = samples;
    for (int64_t at = 0; at < 110; at++)
        samples[power.n_samples++] =
            (pp_regression_sample){T0 + at * S / 10, at <= 12 || at > 100 ? 100.0 : 500.0};
    const double step = pp_counted_step_ns(&f.counted) / 1e9;
    double told = pp_counted_steps_amount(&f.counted, &reading, &power, 77);
    assert_true(fabs(told - 500 * step) < 1e-9);
    power.n_samples = 15; /* too few of them say nothing of a capture */
    told = pp_counted_steps_amount(&f.counted, &reading, &power, 77);
    assert_true(fabs(told - 77 * step) < 1e-9);
    pp_counted_steps_done(&f.counted);
}

/* Ten runs of 50 steps of 20 ms of process 0, of which one has a pause of a minute; one of process
 * 1, whose steps are as long. Numbers between captures are not asked then. */
static void runs_say_it_best(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    pp_activity_run runs[11];
    for (int64_t i = 0; i < 10; i++)
        runs[9 - i] = (pp_activity_run){0, T0 + S / 10 + i * S, i == 5 ? 61 * S : S, 50};
    for (int64_t i = 6; i < 10; i++)
        runs[9 - i].start_ns += 60 * S;
    runs[10] = (pp_activity_run){1, T0 + 5 * S, S, 50};
    f.activity.runs = runs;
    f.activity.n_runs = 11;
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 450);
    assert_int_equal(f.counted.ns, 9 * S);
    assert_int_equal(f.counted.paused, 50);
    assert_int_equal(f.counted.count, 2); /* before and behind the pause */
    assert_int_equal(f.counted.between[1].start_ns, T0 + S / 10 + 66 * S);
    pp_counted_steps_done(&f.counted);
    find(&f, (const bool[]){true, true});
    assert_int_equal(f.counted.steps, 500);
    pp_counted_steps_done(&f.counted);
    f.activity.n_runs = 0;
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 995);
    pp_counted_steps_done(&f.counted);
}

/* A training that stops often, for as long as its steps take: that is how it is. */
static void a_median_that_is_slow(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    pp_activity_run runs[] = {
        {0, T0, S, 10}, {0, T0 + S, S, 100}, {0, T0 + 2 * S, S, 10}, {0, T0 + 3 * S, 2 * S, 90}};
    f.activity.runs = runs;
    f.activity.n_runs = 4;
    find(&f, (const bool[]){true, false});
    assert_int_equal(f.counted.steps, 190); /* 10 and 22 ms; 100 ms is a pause beside 22 */
    assert_int_equal(f.counted.paused, 20);
    pp_counted_steps_done(&f.counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_two_captures),
        cmocka_unit_test(of_each_process_its_own),
        cmocka_unit_test(replays_are_no_steps),
        cmocka_unit_test(what_was_not_counted),
        cmocka_unit_test(a_rate_of_steps_without_marks),
        cmocka_unit_test(lost_ones_are_not_counted),
        cmocka_unit_test(runs_say_it_best),
        cmocka_unit_test(a_median_that_is_slow),
        cmocka_unit_test(nothing_behind_a_capture_without_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
