/* Attribution against synthetic trainings: is it right, and does it know how right it is? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above. */
#include <cmocka.h>
#include <math.h>

#include "estimate/regression/tests/sim.h"

typedef struct totals {
    double reported, error, plain, z2, group_z2, end2, end_z2, job;
    size_t n, within3, groups, runs, known;
    double least_reported, most_error, most_end;
} totals;

static pp_regression_result *solve(const sim *s)
{
    pp_regression_result *r = NULL;
    pp_error err = {0};
    if (pp_regression_solve(&s->in, &r, &err) < 0)
        fail_msg("%s", err.message);
    return r;
}

static void run_add(const sim_config *config, totals *t)
{
    sim *s = sim_new(config);
    pp_regression_result *r = solve(s);
    sim_score q;
    sim_score_of(s, r, &q);
    t->runs++;
    t->reported += q.reported;
    t->error += q.error;
    t->plain += q.plain;
    t->z2 += q.z2;
    t->n += q.n;
    t->within3 += q.within3;
    t->group_z2 += q.group_z2;
    t->groups += q.groups;
    t->job = fmax(t->job, q.job_error);
    t->least_reported = fmin(t->least_reported, q.reported);
    t->most_error = fmax(t->most_error, q.error);
    if (r->lag_known) {
        t->known++;
        t->most_end = fmax(t->most_end, fabs(q.end_error));
        t->end_z2 += pow(q.end_error / (r->lag_se_ns / 1e6), 2);
    }
    pp_regression_result_free(r);
    sim_free(s);
}

/* Sanitizers look for other defects than statistical ones, at a tenth of the speed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static totals runs(sim_config config, int n)
{
    n = SANITIZED ? 1 : n;
    totals t = {.least_reported = 1};
    for (int i = 0; i < n; i++) {
        run_add(&config, &t);
        config.seed++;
    }
    print_message("reported %.3f (least %.3f), error %.2f (most %.2f), overlap mean %.1f, "
                  "z %.2f of %zu, within 3: %.4f, groups z %.2f of %zu, job %.4f, end %.2f ms\n",
                  t.reported / n, t.least_reported, t.error / n, t.most_error, t.plain / n,
                  sqrt(t.z2 / (double)t.n), t.n, (double)t.within3 / (double)t.n,
                  sqrt(t.group_z2 / (double)t.groups), t.groups, t.job, t.most_end);
    return t;
}

/** What is asked of every run of the main job, and of its errors' standard errors together. */
static void check_targets(const totals *t, double most_error)
{
    assert_int_equal(t->known, t->runs);
    assert_true(t->least_reported >= 0.8);
    assert_true(t->most_error <= most_error);
    assert_true((double)t->within3 >= (SANITIZED ? 0.95 : 0.97) * (double)t->n);
    /* The errors of one run go together more than those of several. */
    double slack = SANITIZED ? 0.3 : 0, z = sqrt(t->z2 / (double)t->n);
    assert_true(z > 0.8 - slack && z < 1.25 + slack);
    double group_z = sqrt(t->group_z2 / (double)t->groups);
    assert_true(group_z > 0.7 - slack && group_z < 1.4 + slack);
    assert_true(t->plain > 3 * t->error);
    assert_true(t->job < 0.02);
}

static void contended(void **state)
{
    (void)state;
    totals t = runs(sim_defaults(100), 6);
    check_targets(&t, 1.5);
    assert_true(t.most_end < 1.5);
}

static void short_steps(void **state)
{
    (void)state;
    sim_config c = sim_defaults(200);
    c.step = 1.5;
    totals t = runs(c, 4);
    check_targets(&t, 2.5);
}

static void long_steps(void **state)
{
    (void)state;
    sim_config c = sim_defaults(300);
    c.step = 6;
    totals t = runs(c, 3);
    check_targets(&t, 2);
}

static void steady_steps(void **state)
{
    (void)state;
    sim_config c = sim_defaults(400);
    c.contention = 0;
    totals t = runs(c, 4);
    check_targets(&t, 3);
}

/* Lags beyond one window have their like at every window's distance: several minima. */
static void lags_are_found(void **state)
{
    (void)state;
    const double delays[] = {0.55, 0.02, 0.2, 0.24, 0.4};
    for (size_t i = 0; i < (SANITIZED ? 1 : sizeof delays / sizeof delays[0]); i++) {
        sim_config c = sim_defaults(500 + i);
        c.delay = delays[i];
        c.drift = 3e-3;
        sim *s = sim_new(&c);
        pp_regression_result *r = solve(s);
        sim_score q;
        sim_score_of(s, r, &q);
        assert_true(r->lag_known && r->grid);
        assert_true(fabs(q.end_error) < 1.5);
        assert_true(fabs(q.end_error) < 4 * r->lag_se_ns / 1e6);
        /* Publication jitters by up to 10 ms on top of its delay. */
        double publish = r->publish_lag_ns / 1e9;
        assert_true(fabs(publish - c.delay - 0.005) < 0.012 + r->publish_lag_half_ns / 1e9);
        assert_true(r->fits[0].r2 > 0.95);
        pp_regression_result_free(r);
        sim_free(s);
    }
}

/* Publications jitter around the moment of the scrapes: the clock does not tell what was read. */
static void jittered_publication(void **state)
{
    (void)state;
    sim_config c = sim_defaults(4);
    c.delay_jitter = 0.1;
    totals t = runs(c, 4);
    check_targets(&t, 2);
}

/* A stamp is when a scrape starts: what it reads may be of a window that ended later. */
static void values_read_after_their_stamps(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1400);
    c.delay = 0;
    c.read_late = 0.1;
    totals t = runs(c, 6);
    assert_int_equal(t.known, t.runs);
    assert_true((double)t.within3 >= 0.95 * (double)t.n);
    assert_true(t.most_error < 4 && t.job < 0.02);
}

/* Scrapes in step with collections tell little of when these are published, and what a busy machine
 * delays tells something wrong. */
static void scrapes_in_step_and_stalled(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1500);
    c.drift = 0;
    c.read_late = 0.004;
    c.stalls = 0.1;
    c.stall = 0.15;
    totals t = runs(c, 8);
    assert_true(t.known + 1 >= t.runs);
    assert_true((double)t.within3 >= 0.95 * (double)t.n);
    assert_true(t.job < 0.03);
}

/* An exporter takes its time however short its windows are. */
static void published_windows_later(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1600);
    c.delay = 1;
    totals t = runs(c, 4);
    check_targets(&t, 1.5);
}

/* Later than was searched for: not known, and not the lag at the end of the search. */
static void published_too_late(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1700);
    c.delay = 2.2;
    totals t = runs(c, 6);
    assert_int_equal(t.known, 0);
}

static void slow_scrapes(void **state)
{
    (void)state;
    sim_config c = sim_defaults(700);
    c.scrape = 1;
    totals t = runs(c, 4);
    check_targets(&t, 3);
}

static void fast_scrapes_without_hints(void **state)
{
    (void)state;
    sim_config c = sim_defaults(800);
    c.scrape = 0.1;
    c.no_hints = true;
    totals t = runs(c, 3);
    check_targets(&t, 1.5);
}

static void lost_scrapes_idle_and_gaps(void **state)
{
    (void)state;
    sim_config c = sim_defaults(900);
    c.lost = 0.25;
    c.idle = 0.5;
    c.captures = 4;
    totals t = runs(c, 4);
    check_targets(&t, 2.5);
}

/* Prometheus or the network was away, or the exporter was started anew: then its windows lie on
 * another grid, and the first read 0. */
static void pauses_of_scrapes(void **state)
{
    (void)state;
    static const struct {
        double outage, window;
        bool restart;
        int runs;
    } cases[] = {{30, 0.25, false, 1}, {10, 0.25, true, 1}, {2, 0.25, true, 1}, {10, 1, true, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sim_config c = sim_defaults(1500 + 10 * i);
        c.outage = cases[i].outage;
        c.restart = cases[i].restart;
        c.zeros = cases[i].restart ? 8 : 0;
        c.window = c.scrape = cases[i].window;
        c.duration = cases[i].window < 1 ? 135 : 600;
        totals t = runs(c, cases[i].runs);
        check_targets(&t, 3);
    }
}

static void one_second_windows(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1000);
    c.window = c.scrape = 1;
    c.duration = 300;
    totals t = runs(c, 3);
    check_targets(&t, 3);
}

/* The hook's stamps and the windows' edges are a little off: errors must say so. */
static void inexact_stamps(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1100);
    c.late_marks = 0.005;
    c.edge_jitter = 0.01;
    totals t = runs(c, 4);
    assert_true(t.least_reported >= 0.8);
    assert_true((double)t.within3 >= 0.95 * (double)t.n);
    assert_true(sqrt(t.z2 / (double)t.n) < 1.5);
}

static size_t reported(const pp_regression_result *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_items; i++)
        for (size_t m = 0; m < r->n_metrics; m++) {
            const pp_regression_estimate *e = pp_regression_get(r, i, m);
            n += e->identifiable || !isnan(e->mean);
        }
    return n;
}

static void fifteen_second_windows_report_no_layer(void **state)
{
    (void)state;
    double square = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        sim_config c = sim_defaults(1200 + seed);
        sim_score q;
        c.window = c.scrape = 15;
        c.step = 2 + (double)seed * 0.8;
        sim *s = sim_new(&c);
        pp_regression_result *r = solve(s);
        assert_int_equal(reported(r), 0);
        assert_int_equal(r->n_groups, 0);
        sim_score_of(s, r, &q);
        square += q.job_error * q.job_error;
        for (size_t m = 0; m < r->n_metrics; m++) {
            assert_int_equal(r->fits[m].job.method, PP_METHOD_JOB);
            assert_true(r->fits[m].job.windows >= 6);
        }
        pp_regression_result_free(r);
        sim_free(s);
    }
    /* Eight windows cover most of the time, not all: the worst metric's mean is off by 1 %. */
    assert_true(sqrt(square / 6) < 0.015);
}

/* As exporters and Prometheus are set up by default: only averages, whose errors say how few of
 * the windows were seen. */
static void slow_intervals_give_averages(void **state)
{
    (void)state;
    static const struct {
        double window, scrape, outage;
    } cases[] = {{30, 30, 0}, {30, 15, 0}, {15, 30, 0}, {15, 15, 90}, {1, 15, 0}, {1, 30, 0}};
    double square = 0;
    size_t n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sim_config c = sim_defaults(1600 + i);
        c.window = cases[i].window;
        c.scrape = cases[i].scrape;
        c.outage = cases[i].outage;
        c.duration = 600;
        sim *s = sim_new(&c);
        pp_regression_result *r = solve(s);
        assert_int_equal(reported(r), 0);
        assert_int_equal(r->n_groups, 0);
        for (size_t m = 0; m < SIM_METRICS - 1; m++) {
            const pp_regression_estimate *job = &r->fits[m].job;
            assert_int_equal(job->method, PP_METHOD_JOB);
            assert_int_equal(r->fits[m].dropped_samples, 0);
            double z = (job->mean - s->job[m]) / job->standard_error;
            assert_true(fabs(z) < 4);
            square += z * z;
            n++;
        }
        pp_regression_result_free(r);
        sim_free(s);
    }
    double z = sqrt(square / (double)n);
    print_message("z of the averages %.2f\n", z);
    assert_true(z > 0.4 && z < 1.3);
}

static void steps_below_the_window_report_no_layer(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 1; seed++) {
        sim_config c = sim_defaults(1300 + seed);
        c.window = c.scrape = 1;
        c.step = 0.05;
        c.duration = 90;
        sim *s = sim_new(&c);
        pp_regression_result *r = solve(s);
        sim_score q;
        sim_score_of(s, r, &q);
        assert_int_equal(reported(r), 0);
        for (size_t g = 0; g < r->n_groups; g++)
            assert_true(r->groups[g].n_members > 1);
        if (q.groups > 0)
            assert_true(sqrt(q.group_z2 / (double)q.groups) < 2);
        assert_true(q.job_error < 0.02);
        pp_regression_result_free(r);
        sim_free(s);
    }
}

static void many_layers_are_bundled(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1400);
    c.layers = 45;
    c.step = 6;
    totals t = runs(c, 1);
    assert_true(t.least_reported > 0.6);
    assert_true((double)t.within3 >= 0.96 * (double)t.n);
    double z = sqrt(t.z2 / (double)t.n);
    assert_true(z > 0.8 && z < 1.3);
}

/* Of what is a share of cycles, whose items' clocks differ, values stay and standard errors grow.
 */
static void clocks_widen_errors(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1700);
    c.kernels = true;
    c.contention = 0.2;
    c.window = c.scrape = 0.1;
    c.step = 1;
    c.duration = 60;
    c.clocks = 0.2;
    c.slow = 0.5;
    sim *s = sim_new(&c);
    pp_regression_result *r = solve(s);
    s->in.options.without = PP_REGRESSION_CLOCKS;
    pp_regression_result *before = solve(s);
    print_message("clocks differ by %.3f\n", r->clock_spread);
    assert_true(r->clock_spread > 0.03 && r->clock_spread < 0.12);
    assert_true(before->clock_spread == 0);
    size_t wider = 0, n = 0;
    for (size_t i = 0; i < r->n_items; i++)
        for (size_t m = 0; m < SIM_METRICS; m++) {
            const pp_regression_estimate *a = pp_regression_get(before, i, m);
            const pp_regression_estimate *b = pp_regression_get(r, i, m);
            if (!a->identifiable || !b->identifiable)
                continue;
            assert_true(b->mean == a->mean);
            assert_true(b->standard_error >= a->standard_error);
            assert_true(s->metrics[m].of_cycles || b->standard_error == a->standard_error);
            wider += b->standard_error > 1.2 * a->standard_error;
            n += s->metrics[m].of_cycles;
        }
    print_message("%zu of %zu standard errors are wider\n", wider, n);
    assert_true(n > 30 && wider > n / 2);
    for (size_t g = 0; g < r->n_groups; g++)
        assert_true(r->groups[g].estimate.identifiable);
    pp_regression_result_free(before);
    pp_regression_result_free(r);
    sim_free(s);
}

/* Values that vary from step to step do not pass for clocks. */
static void one_clock_is_none_that_differs(void **state)
{
    (void)state;
    sim_config c = sim_defaults(1701);
    c.kernels = true;
    c.contention = 0.2;
    c.cv = 0.1;
    sim *s = sim_new(&c);
    pp_regression_result *r = solve(s);
    assert_true(r->lag_known);
    assert_true(r->clock_spread == 0);
    pp_regression_result_free(r);
    sim_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contended),
        cmocka_unit_test(short_steps),
        cmocka_unit_test(long_steps),
        cmocka_unit_test(steady_steps),
        cmocka_unit_test(lags_are_found),
        cmocka_unit_test(jittered_publication),
        cmocka_unit_test(values_read_after_their_stamps),
        cmocka_unit_test(scrapes_in_step_and_stalled),
        cmocka_unit_test(published_windows_later),
        cmocka_unit_test(published_too_late),
        cmocka_unit_test(slow_scrapes),
        cmocka_unit_test(fast_scrapes_without_hints),
        cmocka_unit_test(lost_scrapes_idle_and_gaps),
        cmocka_unit_test(pauses_of_scrapes),
        cmocka_unit_test(one_second_windows),
        cmocka_unit_test(inexact_stamps),
        cmocka_unit_test(fifteen_second_windows_report_no_layer),
        cmocka_unit_test(slow_intervals_give_averages),
        cmocka_unit_test(steps_below_the_window_report_no_layer),
        cmocka_unit_test(many_layers_are_bundled),
        cmocka_unit_test(clocks_widen_errors),
        cmocka_unit_test(one_clock_is_none_that_differs),
    };
    return cmocka_run_group_tests_name("attribution accuracy", tests, NULL, NULL);
}
