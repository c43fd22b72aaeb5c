/* PM sampling from kernels and samples to estimates, against a known truth. */
#include "common/tests/cmocka_all.h"
#include "estimate/sampling/tests/sim.h"

#include <math.h>
#include <string.h>

static sim_config usual(uint64_t seed)
{
    sim_config c = sim_usual(seed);
    c.kernels = 200;
    c.length = 30;
    c.capture = 0.25;
    c.captures = 6;
    return c;
}

static pp_sampling_result *solved(const sim *s)
{
    pp_sampling_result *r = NULL;
    pp_error err = {0};
    if (pp_sampling_solve((const pp_sampling_sums *const *)s->captures, s->n_captures, &r, &err) <
        0)
        fail_msg("%s", err.message);
    return r;
}

/* Of items of at least 50 us, and of 10 to 50 us. */
static void check(const sim_config *c, double most, double most_short)
{
    sim s;
    sim_run(&s, c);
    pp_sampling_result *r = solved(&s);
    sim_score wide = sim_compare(&s, r, 50, 1e9);
    sim_score narrow = sim_compare(&s, r, 10, 50);
    print_message("lag %.2f us off; %.2f and %.2f points, p95 %.2f and %.2f; within two standard "
                  "errors %.2f and %.2f; closure %.3f points\n",
                  s.lag_error, wide.error, narrow.error, wide.p95, narrow.p95, wide.within,
                  narrow.within, 100 * r->closure[0]);
    assert_true(narrow.n > 50);
    assert_true(s.lag_error < 0.4);
    assert_true(wide.error <= most && narrow.error <= most_short);
    assert_true(narrow.within > 0.85 && (wide.n < 30 || wide.within > 0.85));
    for (int m = 0; m < SIM_BUSY; m++)
        assert_true(fabs(r->closure[m]) < 0.02 * r->held[m]);
    pp_sampling_result_free(r);
    sim_free(&s);
}

/* What is kept of many captures: merged ones tell the same, their standard errors too. */
static void test_merged_captures(void **state)
{
    (void)state;
    sim_config c = usual(9);
    c.captures = 12;
    sim s;
    sim_run(&s, &c);
    pp_sampling_result *apart = solved(&s);
    sim_score before = sim_compare(&s, apart, 10, 1e9);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(pp_sampling_sums_merge(s.captures[i], s.captures[i + 6], NULL), 0);
        pp_sampling_sums_free(s.captures[i + 6]);
        s.captures[i + 6] = NULL;
    }
    s.n_captures = 6;
    pp_sampling_result *merged = solved(&s);
    sim_score after = sim_compare(&s, merged, 10, 1e9);
    assert_int_equal(merged->n, apart->n);
    assert_int_equal(merged->windows, apart->windows);
    double most = 0;
    for (size_t i = 0; i < merged->n; i++)
        most = fmax(most, fabs(merged->items[i].mean[0] - apart->items[i].mean[0]));
    print_message("%.2f and %.2f points; %.4f at most from one to the other; z %.2f and %.2f\n",
                  before.error, after.error, 100 * most, before.z, after.z);
    assert_true(most < 1e-6);
    assert_true(fabs(after.z - before.z) < 0.2 * before.z);
    pp_sampling_result_free(apart);
    pp_sampling_result_free(merged);
    sim_free(&s);
}

/* Over some models: root mean square of error over standard error, of items of 10 us and more. */
static double z_of(sim_config c, double *ret_between)
{
    enum { MODELS = 4 };
    double squares = 0, n = 0;
    *ret_between = 0;
    for (uint64_t i = 0; i < MODELS; i++) {
        c.seed += 1000 * i;
        sim s;
        sim_run(&s, &c);
        pp_sampling_result *r = solved(&s);
        sim_score score = sim_compare(&s, r, 10, 1e9);
        squares += (double)score.n * score.z * score.z;
        n += (double)score.n;
        *ret_between += r->between[0] / MODELS;
        pp_sampling_result_free(r);
        sim_free(&s);
    }
    return sqrt(squares / n);
}

/* Neither too small nor too wide, whatever captures differ by. */
static void test_standard_errors_hold(void **state)
{
    (void)state;
    static const double differ[] = {0, 0.03, 0.1};
    for (size_t i = 0; i < sizeof differ / sizeof *differ; i++) {
        sim_config c = usual(41 + i);
        c.between = differ[i];
        double between, z = z_of(c, &between);
        print_message("captures differ by %g: z %.2f, told %.4f\n", differ[i], z, between);
        assert_true(z > 0.75 && z < 1.3);
        assert_true(differ[i] < 0.01 || fabs(between / differ[i] - 1) < 0.4);
    }
}

/* Sum of squares of error over standard error of what is no layer's; *ret_n: of how many values. */
static double z2_without_layer(const sim *s, const pp_sampling_result *r, double *ret_n)
{
    double sum = 0;
    for (size_t i = 0; i < s->n_items; i++)
        for (size_t k = 0; k < r->n && s->items[i].layer == 0; k++)
            for (int m = 0; m < SIM_BUSY && r->items[k].layer == 0; m++) {
                const pp_sampling_item *e = &r->items[k];
                if (e->phase != s->items[i].phase)
                    continue;
                sum += pow((e->mean[m] - s->items[i].mean[m]) / e->stderr_of[m], 2);
                ++*ret_n;
            }
    return sum;
}

/* What ran in one capture of eight is not told the better by the seven others. */
static void test_captures_without_an_item_tell_nothing_of_it(void **state)
{
    (void)state;
    double n = 0, sum = 0;
    for (uint64_t seed = 61; seed < 69; seed++) {
        sim_config c = usual(seed);
        c.captures = 8;
        c.clocks = 0.05;
        c.late = c.kernels / 5;
        sim s;
        sim_run(&s, &c);
        pp_sampling_result *r = solved(&s);
        sum += z2_without_layer(&s, r, &n);
        pp_sampling_result_free(r);
        sim_free(&s);
    }
    print_message("z %.2f of %.0f values\n", sqrt(sum / n), n);
    assert_true(n == 48 && sqrt(sum / n) > 0.5 && sqrt(sum / n) < 1.6);
}

static void test_kernels_back_to_back(void **state)
{
    (void)state;
    sim_config c = usual(1);
    check(&c, 1, 1.5);
}

static void test_launch_bound(void **state)
{
    (void)state;
    sim_config c = usual(2);
    c.kernels = 85;
    c.length = 12;
    c.gap[0] = 5;
    c.gap[1] = 60;
    check(&c, 1, 1);
}

/* A short capture of a large network at a long period: samples decide less than they leave open.
 * Where gaps are taken for what may have any value, kernels of 10 to 50 us err by 4.4 points. */
static void test_one_short_capture(void **state)
{
    (void)state;
    sim_config c = usual(5);
    c.kernels = 950, c.length = 15, c.spread = 1.1, c.period = 100;
    c.gap[0] = 5, c.gap[1] = 60;
    c.capture = 0.6, c.captures = 1;
    sim s;
    sim_run(&s, &c);
    pp_sampling_result *r = solved(&s);
    sim_score narrow = sim_compare(&s, r, 10, 50);
    print_message("%.2f points, z %.2f\n", narrow.error, narrow.z);
    assert_true(narrow.n > 300 && narrow.error < 1.8 && narrow.z < 1.3);
    pp_sampling_result_free(r);
    sim_free(&s);
}

/* A kernel has fewer parts where all have more than there is room for. */
static void test_steps_of_thousands_of_kernels(void **state)
{
    (void)state;
    sim_config c = usual(6);
    c.kernels = 4000, c.length = 20, c.capture = 1, c.captures = 2;
    sim s;
    sim_run(&s, &c);
    pp_sampling_result *r = solved(&s);
    sim_score wide = sim_compare(&s, r, 50, 1e9), narrow = sim_compare(&s, r, 10, 50);
    print_message("%zu columns; %.2f and %.2f points, z %.2f and %.2f\n", r->n_columns, wide.error,
                  narrow.error, wide.z, narrow.z);
    assert_true(r->n_columns <= PP_SAMPLING_MAX_COLUMNS);
    assert_true(wide.error < 2 && narrow.error < 3);
    pp_sampling_result_free(r);
    sim_free(&s);
}

static void test_changing_order_and_lost_samples(void **state)
{
    (void)state;
    sim_config c = usual(3);
    c.shuffled = true;
    c.lost = 0.05;
    check(&c, 1, 1.5);
}

static void test_kernels_side_by_side(void **state)
{
    (void)state;
    sim_config c = usual(4);
    c.parallel = 9;
    check(&c, 1, 2);
}

static sim_config judged(uint64_t seed)
{
    sim_config c = usual(seed);
    c.judged = true;
    return c;
}

/* Between kernels, too, where a sample fits. */
static sim_config launch_bound(uint64_t seed)
{
    sim_config c = judged(seed);
    c.kernels = 85;
    c.length = 12;
    c.gap[0] = 5;
    c.gap[1] = 60;
    return c;
}

static void check_doubts(const sim_config *c, pp_sampling_doubt expected)
{
    sim s;
    sim_run(&s, c);
    pp_sampling_result *r = solved(&s);
    for (int m = 0; m < SIM_BUSY; m++) {
        const pp_sampling_quality *q = &r->quality[m];
        print_message("explained %.3f, %.0f items, z %.2f, gap %.4f +- %.4f\n", q->explained,
                      q->items, q->items_z, q->gap, q->gap_stderr);
        assert_int_equal(q->doubt, expected);
        if (expected != PP_SAMPLING_FITS)
            continue;
        assert_true(q->explained > 0.95);
        assert_true(q->items > 100 && q->items_z > 0.3 && q->items_z < 2);
    }
    pp_sampling_result_free(r);
    sim_free(&s);
}

/* What speaks against values is found, and nothing where nothing does. */
static void test_doubts(void **state)
{
    (void)state;
    sim_config c = judged(21);
    check_doubts(&c, PP_SAMPLING_FITS);
    c.wrong = 30;
    sim s;
    sim_run(&s, &c);
    assert_int_equal(s.n_captures, 0); /* at such a lag none is taken */
    sim_free(&s);
    c = launch_bound(22);
    check_doubts(&c, PP_SAMPLING_FITS);
    c.tenant = 0.03;
    check_doubts(&c, PP_SAMPLING_TENANT);
    c = launch_bound(23);
    c.dealt = true;
    check_doubts(&c, PP_SAMPLING_UNEXPLAINED);
}

/* Fills of gradients between kernels are activity, and the process's own. Untold, they look like
 * somebody else's. */
static void test_fills_are_no_gaps(void **state)
{
    (void)state;
    sim_config c = launch_bound(25);
    c.fills = 4;
    c.fill = 40;
    c.captures = 10;
    check_doubts(&c, PP_SAMPLING_FITS);
    sim s;
    sim_run(&s, &c);
    pp_sampling_result *r = solved(&s);
    const sim_score score = sim_compare(&s, r, 10, 1e9);
    print_message("%.2f points, %.2f within two standard errors\n", score.error, score.within);
    assert_true(score.error < 0.2 && score.within > 0.85);
    pp_sampling_result_free(r);
    sim_free(&s);
    c.untold = true;
    check_doubts(&c, PP_SAMPLING_TENANT);
    c.untold = false;
    c.tenant = 0.03; /* which is still seen beside them */
    check_doubts(&c, PP_SAMPLING_TENANT);
}

/* What a copy engine does beside kernels leaves their values as they are. */
static void test_copies_beside_kernels(void **state)
{
    (void)state;
    sim_config c = launch_bound(26);
    sim without, with;
    sim_run(&without, &c);
    c.engine = 20;
    sim_run(&with, &c);
    pp_sampling_result *r[] = {solved(&without), solved(&with)};
    const sim_score a = sim_compare(&without, r[0], 10, 1e9), b = sim_compare(&with, r[1], 10, 1e9);
    print_message("%.3f points, %.3f beside copies; %.2f within two standard errors\n", a.error,
                  b.error, b.within);
    assert_int_equal(r[0]->n, r[1]->n);
    assert_true(b.error < a.error + 0.1 && b.within > 0.85);
    assert_int_equal(r[1]->quality[0].doubt, PP_SAMPLING_FITS);
    pp_sampling_result_free(r[0]);
    pp_sampling_result_free(r[1]);
    sim_free(&without);
    sim_free(&with);
}

/* The first capture has none before it. */
static void test_one_capture_is_not_judged(void **state)
{
    (void)state;
    sim_config c = launch_bound(24);
    c.captures = 1;
    sim s;
    sim_run(&s, &c);
    pp_sampling_result *r = solved(&s);
    assert_true(isnan(r->quality[0].explained) && isnan(r->quality[0].items_z));
    assert_true(fabs(r->quality[0].gap) < 0.001 && r->quality[0].gap_stderr < 0.001);
    assert_int_equal(r->quality[0].doubt, PP_SAMPLING_FITS);
    pp_sampling_result_free(r);
    sim_free(&s);
}

/* What the samples say nothing of keeps the prior's width, however many captures say nothing. */
/* Root mean square of the clock's error over its standard error, and the largest error, GHz. */
static double clock_z(const sim *s, const pp_sampling_result *r, double *ret_worst)
{
    double z2 = 0;
    *ret_worst = 0;
    assert_int_equal(s->n_items, r->n);
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < s->n_items; k++) {
            const pp_sampling_item *e = &r->items[i];
            const sim_item *t = &s->items[k];
            if (e->layer != t->layer || e->phase != t->phase)
                continue;
            const double off = fabs(e->mean[PP_SAMPLING_CLOCK] - t->mean[PP_SAMPLING_CLOCK]);
            z2 += pow(off / e->stderr_of[PP_SAMPLING_CLOCK], 2);
            *ret_worst = t->kernel >= 10 ? fmax(*ret_worst, off) : *ret_worst;
        }
    return sqrt(z2 / (double)r->n);
}

/* Kernels that slow the SMs' clock down, as products of matrices do by 15 % on an H200, with time
 * beside them at full speed: a sample's share is of cycles. */
static void test_clocks_that_differ(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        sim s;
        sim_config c = launch_bound(24);
        c.slower = 0.3;
        c.clockless = !told;
        sim_run(&s, &c);
        pp_sampling_result *r = solved(&s);
        const sim_score wide = sim_compare(&s, r, 50, 1e9), narrow = sim_compare(&s, r, 10, 50);
        print_message("%s: %.2f and %.2f points, p95 %.2f and %.2f, z %.2f and %.2f\n",
                      told ? "told" : "not told", wide.error, narrow.error, wide.p95, narrow.p95,
                      wide.z, narrow.z);
        if (told) {
            double worst;
            const double z = clock_z(&s, r, &worst);
            print_message("the clock: z %.2f, %.3f GHz at most\n", z, worst);
            assert_true(wide.error < 0.3 && narrow.error < 0.5);
            assert_true(narrow.z < 1.25 && wide.z < 1.25);
            assert_true(z < 1.3 && worst < 0.03);
        } else {
            assert_true(narrow.error > 1); /* what it is for */
        }
        pp_sampling_result_free(r);
        sim_free(&s);
    }
}

enum { LATE_RUNS = 4 };

/* Behind a kernel the clock is as slow for some us more: that is none of the kernel's time. */
static void test_a_clock_that_recovers_late(void **state)
{
    (void)state;
    for (int recovers = 0; recovers < 2; recovers++) {
        double error[2] = {0}, z2[3] = {0}, most = 0;
        for (uint64_t seed = 25; seed < 25 + LATE_RUNS; seed++) {
            sim s;
            sim_config c = launch_bound(seed);
            c.kernels = 40, c.length = 40, c.gap[0] = 40, c.gap[1] = 120, c.period = 100;
            c.slower = 0.3, c.recovers = recovers ? 8 : 0;
            sim_run(&s, &c);
            pp_sampling_result *r = solved(&s);
            const sim_score scores[] = {sim_compare(&s, r, 50, 1e9), sim_compare(&s, r, 10, 50)};
            double worst;
            z2[2] += pow(clock_z(&s, r, &worst), 2) / LATE_RUNS;
            most = fmax(most, worst);
            for (int i = 0; i < 2; i++) {
                error[i] += scores[i].error / LATE_RUNS;
                z2[i] += scores[i].z * scores[i].z / LATE_RUNS;
            }
            pp_sampling_result_free(r);
            sim_free(&s);
        }
        print_message("%s: %.2f and %.2f points, z %.2f and %.2f; the clock: z %.2f, %.3f GHz\n",
                      recovers ? "late" : "at once", error[0], error[1], sqrt(z2[0]), sqrt(z2[1]),
                      sqrt(z2[2]), most);
        assert_true(error[0] < 0.3 && error[1] < 0.5 && z2[0] < 1.5 && z2[1] < 1.5);
        assert_true(z2[2] < 1.5 * 1.5 && most < 0.1); /* else the clock: z 15, 0.26 GHz */
    }
}

static void test_ignorance_is_told(void **state)
{
    (void)state;
    double widest[2] = {0};
    for (int i = 0; i < 2; i++) {
        sim s;
        sim_config c = usual(5);
        c.length = 2;
        c.spread = 0.1;
        c.gap[0] = c.gap[1] = 0.7;
        c.captures = i ? 8 : 1;
        c.capture = 0.06;
        c.drift = 0, c.stamped = 0.5; /* data tell the lag of these to some us */
        sim_run(&s, &c);
        pp_sampling_result *r = solved(&s);
        sim_score score = sim_compare(&s, r, 0, 10);
        for (size_t k = 0; k < r->n; k++)
            widest[i] = fmax(widest[i], r->items[k].stderr_of[0]);
        print_message(
            "lag %.2f us off; %zu values, %.2f points, %.2f within two standard errors, z %.2f, "
            "widest %.3f\n",
            s.lag_error, score.n, score.error, score.within, score.z, widest[i]);
        assert_true(score.n > 100 && score.within > 0.7 && score.z < 2);
        pp_sampling_result_free(r);
        sim_free(&s);
    }
    assert_true(widest[0] > 0.05);
}

/* Estimates do not depend on the order of the captures but for rounding. */
static void test_order_does_not_matter(void **state)
{
    (void)state;
    sim s;
    sim_config c = usual(6);
    c.kernels = 60;
    c.captures = 3;
    sim_run(&s, &c);
    pp_sampling_result *first = solved(&s);
    pp_sampling_sums *spare = s.captures[0];
    s.captures[0] = s.captures[2];
    s.captures[2] = spare;
    pp_sampling_result *again = solved(&s);
    assert_int_equal(first->n, again->n);
    for (size_t i = 0; i < first->n; i++)
        for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
            assert_true(fabs(first->items[i].mean[m] - again->items[i].mean[m]) < 1e-9);
            assert_true(fabs(first->items[i].stderr_of[m] - again->items[i].stderr_of[m]) < 1e-9);
        }
    pp_sampling_result_free(first);
    pp_sampling_result_free(again);
    sim_free(&s);
}

static void test_a_metric_that_is_not_offered(void **state)
{
    (void)state;
    sim s;
    sim_config c = usual(7);
    c.kernels = 60;
    c.captures = 1;
    c.missing = 3;
    sim_run(&s, &c);
    pp_sampling_result *r = solved(&s);
    for (size_t i = 0; i < r->n; i++) {
        assert_true(isnan(r->items[i].mean[2]) && isnan(r->items[i].stderr_of[2]));
        assert_true(isfinite(r->items[i].mean[1]));
    }
    assert_true(isnan(r->held[2]));
    pp_sampling_result_free(r);
    sim_free(&s);
}

/* What is blank in some captures is known from the others, as it is where those were all. */
static void test_a_metric_that_is_blank_for_a_while(void **state)
{
    (void)state;
    sim s;
    sim_config c = usual(8);
    c.kernels = 60;
    c.missing = 3;
    c.blank = 2;
    sim_run(&s, &c);
    pp_sampling_result *r = solved(&s);
    sim_score score = sim_compare(&s, r, 10, 1e9);
    print_message("%zu values, %.2f points, %.2f within two standard errors\n", score.n,
                  score.error, score.within);
    assert_true(score.n > 60 && score.error < 0.5 && score.within > 0.85);
    assert_true(fabs(r->closure[2]) < 0.02 * r->held[2]);

    pp_sampling_result *others = NULL;
    assert_int_equal(pp_sampling_solve((const pp_sampling_sums *const *)s.captures + 2,
                                       s.n_captures - 2, &others, NULL),
                     0);
    for (size_t i = 0; i < r->n; i++) { /* but for weights by all of the time */
        assert_true(fabs(r->items[i].mean[2] - others->items[i].mean[2]) < 0.002);
        const double ratio = r->items[i].stderr_of[2] / others->items[i].stderr_of[2];
        assert_true(ratio > 0.9 && ratio < 1.1);
    }
    assert_true(fabs(r->noise[2] / others->noise[2] - 1) < 0.01);
    assert_true(r->windows > others->windows * 4 / 3);
    pp_sampling_result_free(others);
    pp_sampling_result_free(r);
    sim_free(&s);
}

/* A metric that nearly no sample has takes none of them from the others. */
static void test_a_metric_that_comes_now_and_then(void **state)
{
    (void)state;
    sim s;
    sim_config c = usual(8);
    c.kernels = 60;
    c.captures = 2;
    c.missing = 3;
    c.rare = 0.1;
    sim_run(&s, &c);
    pp_sampling_result *r = solved(&s);
    assert_true((double)r->windows > 0.8 * 2 * c.capture * 1e6 / c.period);
    for (size_t i = 0; i < r->n; i++)
        assert_true(isnan(r->items[i].mean[2]) && isfinite(r->items[i].mean[1]));
    pp_sampling_result_free(r);
    sim_free(&s);
}

/* Mean errors of items of 10 to 50 us, and of shorter ones, in three captures of which little is
 * sampled; without what kernels alike tell of each other, too. */
static void measure_alike(double unlike, double with[2], double without[2])
{
    static const double from[] = {10, 0}, to[] = {50, 10};
    sim_config c = sim_usual(35);
    c.kernels = 700, c.length = 15, c.period = 100, c.captures = 3, c.capture = 0.4;
    c.alike = 120, c.unlike = unlike;
    sim s;
    sim_run(&s, &c);
    assert_int_equal(s.n_captures, 3);
    for (int pooled = 0; pooled < 2; pooled++) {
        pp_sampling_result *r = NULL;
        pp_error err = {0};
        assert_int_equal(pp_sampling_solve_without(pooled ? 0 : PP_SAMPLING_ALIKE,
                                                   (const pp_sampling_sums *const *)s.captures, 3,
                                                   &r, &err),
                         0);
        for (int i = 0; i < 2; i++) {
            const sim_score score = sim_compare(&s, r, from[i], to[i]);
            (pooled ? with : without)[i] = score.error;
            assert_true(score.n > 50 && score.within > 0.75);
        }
        pp_sampling_result_free(r);
    }
    print_message("%.2f and %.2f points, %.2f and %.2f without\n", with[0], with[1], without[0],
                  without[1]);
    sim_free(&s);
}

static void test_kernels_that_are_alike_tell_of_each_other(void **state)
{
    (void)state;
    double with[2], without[2];
    measure_alike(0.01, with, without);
    assert_true(with[0] < 0.75 * without[0] && with[1] < 0.75 * without[1]);
}

/* Of layers that are alike the lag of a layer earlier explains as much, and by chance more: the
 * likely lag decides. */
static void test_layers_that_are_alike_are_not_taken_for_each_other(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t seed = 5500; seed < 5510; seed++) {
        sim s;
        sim_config c = sim_usual(seed);
        c.kernels = 384, c.length = 20, c.spread = 0.8, c.period = 100;
        c.captures = 1, c.capture = 0.4, c.alike = 12, c.unlike = 0.005;
        sim_run(&s, &c);
        assert_int_equal(s.n_captures, 1);
        worst = fmax(worst, s.lag_error);
        sim_free(&s);
    }
    print_message("lags at most %.2f us off\n", worst);
    assert_true(worst < 5);
}

/* How far the lag is off, of kernels that run out over up to so much of them; us, of the worst. */
static double lag_of(double tail, double drift, bool stamped)
{
    double worst = 0;
    for (uint64_t seed = 5600; seed < 5604; seed++) {
        sim s;
        sim_config c = sim_usual(seed);
        c.kernels = 367, c.length = 300, c.spread = 1.2, c.period = 100;
        c.captures = 1, c.capture = 2, c.drift = drift, c.tail = tail;
        c.stamped = stamped ? 0.2 : 0;
        sim_run(&s, &c);
        assert_int_equal(s.n_captures, 1);
        assert_int_equal(s.captures[0]->stamped, stamped && drift == 0);
        assert_true(!s.captures[0]->stamped || s.captures[0]->lag_common == 1000);
        worst = fmax(worst, s.lag_error);
        sim_free(&s);
    }
    print_message("%.2f: lags at most %.2f us off%s\n", tail, worst, stamped ? ", stamped" : "");
    return worst;
}

/* A kernel is recorded to its last block's end, and runs out before: by samples alone the lag comes
 * out many us too short. By their stamps it does not. */
static void test_kernels_that_run_out(void **state)
{
    (void)state;
    assert_true(lag_of(0.001, 0, false) < 1.5);
    assert_true(lag_of(0.3, 0, false) > 5);
    assert_true(lag_of(0.3, 0, true) < 0.5);
    assert_true(lag_of(0.001, 5e-6, true) < 1.5); /* a clock that nothing sets passes by */
}

/* Kernels' records go off from the stamps as a capture goes on, and samples do: by how much their
 * ticks tell. */
static void test_records_that_drift(void **state)
{
    (void)state;
    static const struct {
        double kernels, samples, period;
    } cases[] = {{6e-6, 0, 100}, {-6e-6, 0, 100}, {3e-6, -3e-6, 85}, {6e-6, 6e-6, 85}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim s;
        sim_config c = sim_usual(5610 + i);
        c.kernels = 200, c.length = 30, c.period = cases[i].period, c.captures = 2, c.capture = 2;
        c.rate = cases[i].kernels, c.drift = cases[i].samples, c.stamped = 0.2;
        sim_run(&s, &c);
        assert_int_equal(s.n_captures, 2);
        for (size_t g = 0; g < s.n_captures; g++)
            assert_true(s.captures[g]->stamped && s.captures[g]->lag_common == 300);
        pp_sampling_result *r = solved(&s);
        const sim_score brief = sim_compare(&s, r, 10, 50);
        print_message("%+.0f and %+.0f ppm: lags %.2f us off, error %.2f, z %.2f\n", 1e6 * c.rate,
                      1e6 * c.drift, s.lag_error, brief.error, brief.z);
        assert_true(s.lag_error < 0.6); /* 6 us where the drift is not known */
        assert_true(brief.error < 0.8 && brief.z < 1.25);
        pp_sampling_result_free(r);
        sim_free(&s);
    }
}

/* Of two solutions of the same captures, sums over items of 10 us and more: what a metric differs
 * by, what the lag's error leads to expect, and the product of the two. */
typedef struct shifts {
    double is, expected, both;
} shifts;

static void add_shifts(const sim *s, const pp_sampling_result *wrong,
                       const pp_sampling_result *right, int m, double ns, shifts *ret)
{
    assert_int_equal(wrong->n, right->n);
    for (size_t i = 0; i < right->n; i++)
        for (size_t k = 0; k < s->n_items; k++) {
            const pp_sampling_item *was = &right->items[i];
            const double off = wrong->items[i].mean[m] - was->mean[m];
            const double expected = was->per_ns[m] * ns;
            if (s->items[k].layer != was->layer || s->items[k].phase != was->phase ||
                s->items[k].kernel < 10)
                continue;
            ret->is += off * off;
            ret->expected += expected * expected;
            ret->both += off * expected;
        }
}

typedef struct lag_case {
    const char *name;
    int kernels;
    double length, gap[2], slower;
} lag_case;

static pp_sampling_result *solved_with_lag_off(const lag_case *of, uint64_t seed, double us, sim *s)
{
    sim_config c = usual(seed);
    c.kernels = of->kernels, c.length = of->length, c.gap[0] = of->gap[0], c.gap[1] = of->gap[1];
    c.slower = of->slower, c.captures = 2, c.cv = c.drift = 0;
    c.stamped = 1e-6, c.wrong = us;
    sim_run(s, &c);
    return solved(s);
}

static void check_shifts(const char *name, const char *of, const shifts *sums)
{
    const double as_much = sqrt(sums->is / sums->expected);
    const double together = sums->both / sqrt(sums->is * sums->expected);
    print_message("%s, %s: %.2f of what is expected, correlation %.2f\n", name, of, as_much,
                  together);
    assert_true(as_much > 0.6 && as_much < 1.6 && together > 0.3);
}

/* What is told of a lag's error is what it does, to half as much again: more is of second order. */
static void test_what_a_wrong_lag_does_is_known(void **state)
{
    (void)state;
    static const lag_case cases[] = {{"back to back", 150, 30, {0.7, 1.2}, 0},
                                     {"launch-bound", 85, 12, {5, 60}, 0},
                                     {"clocks that differ", 150, 30, {0.7, 1.2}, 0.3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        shifts shares = {0}, clocks = {0};
        for (uint64_t seed = 60; seed < 64; seed++) {
            sim right, wrong;
            const double us = seed % 2 ? 0.3 : -0.3;
            pp_sampling_result *was = solved_with_lag_off(&cases[k], seed, 0, &right);
            pp_sampling_result *is = solved_with_lag_off(&cases[k], seed, us, &wrong);
            for (int m = 0; m < SIM_BUSY; m++)
                add_shifts(&right, is, was, m, 1000 * us, &shares);
            add_shifts(&right, is, was, PP_SAMPLING_CLOCK, 1000 * us, &clocks);
            pp_sampling_result_free(is);
            pp_sampling_result_free(was);
            sim_free(&right);
            sim_free(&wrong);
        }
        check_shifts(cases[k].name, "shares", &shares);
        if (cases[k].slower > 0)
            check_shifts(cases[k].name, "clocks", &clocks);
    }
}

/* Of a capture whose data would go by themselves: after others by stamps it stays with these. */
static void test_stamps_are_kept_to(void **state)
{
    (void)state;
    enum { RUNS = 24 };
    size_t stamped[2] = {0};
    for (int after = 0; after < 2; after++)
        for (uint64_t seed = 5600; seed < 5600 + RUNS; seed++) {
            sim s;
            sim_config c = usual(seed);
            c.captures = 1, c.drift = 0, c.stamped = 2.5, c.by_stamps = after;
            sim_run(&s, &c);
            stamped[after] += s.captures[0]->stamped;
            sim_free(&s);
        }
    print_message("%zu of %d by stamps, %zu after others\n", stamped[0], RUNS, stamped[1]);
    assert_true(stamped[0] > 0 && stamped[1] > stamped[0] && stamped[1] < RUNS);
}

/* Where a name and a shape say nothing of a kernel's values, that is seen. */
static void test_kernels_that_are_alike_by_name_alone(void **state)
{
    (void)state;
    double with[2], without[2];
    measure_alike(1, with, without);
    assert_true(with[0] < 1.15 * without[0] && with[1] < 1.15 * without[1]);
}

/* A network of 40 equal layers, one capture, of samples that are longer than most kernels. */
static sim_config many_layers(uint64_t seed)
{
    sim_config c = sim_usual(seed);
    c.kernels = 960, c.length = 15, c.spread = 1.1, c.period = 100, c.captures = 1, c.capture = 0.6;
    c.alike = 24, c.unlike = 0.01;
    c.pause = 1000;
    c.stamped = 0.3, c.rate = 2e-6, c.drift = 0;
    return c;
}

/* Of items of 10 to 50 us, over four networks. */
static sim_score score_layers(unsigned without, int cleared, double fill)
{
    sim_score sum = {0};
    for (uint64_t seed = 50; seed < 54; seed++) {
        sim s;
        sim_config c = many_layers(seed);
        c.cleared = cleared, c.clearing = 16, c.fill = fill, c.untold = true;
        sim_run(&s, &c);
        pp_sampling_result *r = NULL;
        pp_error err = {0};
        assert_int_equal(pp_sampling_solve_without(
                             without, (const pp_sampling_sums *const *)s.captures, 1, &r, &err),
                         0);
        const sim_score one = sim_compare(&s, r, 10, 50);
        sum.error += one.error / 4;
        sum.z += one.z * one.z / 4;
        pp_sampling_result_free(r);
        sim_free(&s);
    }
    sum.z = sqrt(sum.z);
    return sum;
}

/* How a kernel rises and runs out is the same in all layers: what is off of it does not average
 * out. */
static void test_the_course_of_kernels_that_are_alike_is_one(void **state)
{
    (void)state;
    const sim_score score = score_layers(0, 0, 0), alone = score_layers(PP_SAMPLING_ALIKE, 0, 0);
    print_message("%.2f points, z %.2f; each by itself %.2f, %.2f\n", score.error, score.z,
                  alone.error, alone.z);
    assert_true(score.error < 0.4 * alone.error);
    assert_true(score.z > 0.7 && score.z < 1.2);
}

/* No gap by itself tells of a fill, and all that are alike do. */
static void test_fills_that_nobody_tells_come_in_each_layer(void **state)
{
    (void)state;
    const sim_score found = score_layers(0, 4, 6), held = score_layers(PP_SAMPLING_WORK, 4, 6);
    print_message("%.2f points, z %.2f; where gaps are held for empty %.2f, %.2f\n", found.error,
                  found.z, held.error, held.z);
    assert_true(found.error < 0.6 * held.error);
    assert_true(found.z > 0.7 && found.z < 1.2 && held.z > 3);
}

static void test_nothing_to_solve(void **state)
{
    (void)state;
    pp_sampling_result *r = NULL;
    pp_error err = {0};
    const pp_sampling_sums empty = {.known = {true}};
    const pp_sampling_sums *one[] = {&empty};
    assert_int_equal(pp_sampling_solve(one, 1, &r, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
    assert_int_equal(pp_sampling_solve(NULL, 0, &r, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged_captures),
        cmocka_unit_test(test_kernels_back_to_back),
        cmocka_unit_test(test_standard_errors_hold),
        cmocka_unit_test(test_captures_without_an_item_tell_nothing_of_it),
        cmocka_unit_test(test_launch_bound),
        cmocka_unit_test(test_one_short_capture),
        cmocka_unit_test(test_steps_of_thousands_of_kernels),
        cmocka_unit_test(test_changing_order_and_lost_samples),
        cmocka_unit_test(test_kernels_side_by_side),
        cmocka_unit_test(test_doubts),
        cmocka_unit_test(test_fills_are_no_gaps),
        cmocka_unit_test(test_copies_beside_kernels),
        cmocka_unit_test(test_one_capture_is_not_judged),
        cmocka_unit_test(test_clocks_that_differ),
        cmocka_unit_test(test_a_clock_that_recovers_late),
        cmocka_unit_test(test_ignorance_is_told),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_a_metric_that_is_not_offered),
        cmocka_unit_test(test_a_metric_that_is_blank_for_a_while),
        cmocka_unit_test(test_a_metric_that_comes_now_and_then),
        cmocka_unit_test(test_kernels_that_are_alike_tell_of_each_other),
        cmocka_unit_test(test_kernels_that_are_alike_by_name_alone),
        cmocka_unit_test(test_layers_that_are_alike_are_not_taken_for_each_other),
        cmocka_unit_test(test_kernels_that_run_out),
        cmocka_unit_test(test_records_that_drift),
        cmocka_unit_test(test_stamps_are_kept_to),
        cmocka_unit_test(test_what_a_wrong_lag_does_is_known),
        cmocka_unit_test(test_the_course_of_kernels_that_are_alike_is_one),
        cmocka_unit_test(test_fills_that_nobody_tells_come_in_each_layer),
        cmocka_unit_test(test_nothing_to_solve),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
