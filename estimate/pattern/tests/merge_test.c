/* Usages of several sessions into one: errors that hold, ages, and what is never averaged. */
#include "estimate/pattern/merge.h"

#include "common/draw.h"
#include "common/tests/near.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DAY (INT64_C(86400) * 1000000000)
#define NOW (20000 * DAY)

static uint64_t drawn;

/* Of a normal distribution (Box and Muller). */
static double normal(void)
{
    const double u = ((double)(pp_draw(drawn++) >> 11) + 0.5) * 0x1p-53;
    const double v = ((double)(pp_draw(drawn++) >> 11) + 0.5) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

enum { RUNS = 4000, MOST = 8 };

/* Root mean square of the merged figure's error over what it says, of n with that error which
 * differ by `between`. */
static double z_of(size_t n, double error, double between)
{
    double sum = 0;
    for (int run = 0; run < RUNS; run++) {
        pp_figure figures[MOST];
        for (size_t i = 0; i < n; i++)
            figures[i] = (pp_figure){10 + hypot(error, between) * normal(), error};
        const pp_figure f = pp_figure_merge(figures, NULL, n);
        sum += pow(fmin(fabs(f.value - 10) / f.standard_error, 6), 2);
    }
    return sqrt(sum / RUNS);
}

static void test_errors_hold(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 8; n += 3) {
        const double alike = z_of(n, 0.3, 0), unlike = z_of(n, 0.1, 1);
        print_message("%zu sessions: z %.2f alike, %.2f where they differ\n", n, alike, unlike);
        assert_true(alike > 0.7 && alike < 1.1);
        if (n > 2) /* of two that differ nobody knows by how much */
            assert_true(unlike > 0.8 && unlike < 1.5);
    }
}

/* Root mean square of the errors that are said over that of those made, of n figures as above, of
 * which each counts by `age` less than the next. */
static double said_over_made(size_t n, double error, double between, double age)
{
    double said = 0, made = 0, weights[MOST];
    for (size_t i = 0; i < n; i++)
        weights[i] = pow(age, (double)(n - 1 - i));
    for (int run = 0; run < RUNS; run++) {
        pp_figure figures[MOST];
        for (size_t i = 0; i < n; i++)
            figures[i] = (pp_figure){10 + hypot(error, between) * normal(), error};
        const pp_figure f = pp_figure_merge(figures, weights, n);
        said += pow(f.standard_error, 2);
        made += pow(f.value - 10, 2);
    }
    return sqrt(said / made);
}

/* Old ones count less, and are no less apart. */
static void test_errors_hold_of_any_age(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 8; n += 3)
        for (int fours = 0; fours < 3; fours++) {
            const double age = pow(4, -fours);
            const double unlike = said_over_made(n, 0.5, 2.7, age);
            const double alike = said_over_made(n, 0.5, 0, age);
            print_message("%zu sessions, each counts %.2f of the next: %.2f of the error where "
                          "they differ, %.2f alike\n",
                          n, age, unlike, alike);
            assert_true(unlike > 0.9 && unlike < 1.15 && alike > 0.95 && alike < 1.6);
        }
}

/* However little one counts: so long ago, or so much less sure. */
static void test_weights_that_are_far_apart(void **state)
{
    (void)state;
    const pp_figure differ[] = {{100, 1}, {120, 1}}, constant[] = {{300, 100}, {100, 0}};
    for (int power = 0; power < 300; power += 3) {
        const double age = pow(10, -power);
        const double weights[] = {age, 1};
        const pp_figure a = pp_figure_merge(differ, weights, 2);
        const pp_figure b = pp_figure_merge(constant, weights, 2);
        assert_true(a.value >= 109 && a.value <= 120 + 1e-9 && a.standard_error > 0);
        assert_true(b.value >= 99 && b.value <= 201 && isfinite(b.standard_error));
    }
}

static void test_figures(void **state)
{
    (void)state;
    const pp_figure unknown = {(double)NAN, (double)NAN}, two = {2, 0.1}, four = {4, 0.1},
                    unsure = {40, 20};
    assert_true(isnan(pp_figure_merge(&unknown, NULL, 1).value));
    const pp_figure one[] = {unknown, two};
    assert_near(pp_figure_merge(one, NULL, 2).value, 2, 1e-12);
    assert_near(pp_figure_merge(one, NULL, 2).standard_error, 0.1, 1e-12);
    const pp_figure differ[] = {two, four};
    assert_near(pp_figure_merge(differ, NULL, 2).value, 3, 1e-9);
    assert_true(pp_figure_merge(differ, NULL, 2).standard_error > 0.9);
    const pp_figure more[] = {two, two, unsure};
    assert_true(pp_figure_merge(more, NULL, 3).value < 2.1);
    const double weights[] = {1, 0.25};
    assert_near(pp_figure_merge(differ, weights, 2).value, 2.4, 0.05);
}

/* One GPU's. */
static pp_usage *usage(double step_ms, double sm, pp_usage_source source, bool busy)
{
    pp_usage *u = calloc(1, sizeof *u);
    assert_non_null(u);
    u->metrics = calloc(PP_METRIC_COUNT, sizeof *u->metrics);
    assert_non_null(u->metrics);
    u->steps = 100;
    u->busy = busy;
    u->undisturbed = true;
    u->step_ns = (pp_figure){step_ms * 1e6, step_ms * 1e3};
    u->step_sd_ns = step_ms * 1e4;
    u->idle = (pp_figure){0.2, 0.01};
    u->rates[PP_BOUND_TENSOR] = u->rates[PP_BOUND_FP32] = PP_UNKNOWN;
    u->rates[PP_BOUND_MEMORY] = (pp_figure){sm * 8, 0.1};
    u->bounds[PP_BOUND_MEMORY] = (pp_figure){0.8, 0.01};
    u->bounds[PP_BOUND_LAUNCH] = (pp_figure){0.2, 0.01};
    assert_int_equal(pp_usage_add_type(u, "Linear", true, (pp_figure){sm, 0.01}, NULL), 0);
    u->metrics[0] = (pp_usage_metric){.metric = PP_METRIC_SM_ACTIVE,
                                      .source = source,
                                      .mean = {sm, 0.01},
                                      .p50 = {sm, 0.01},
                                      .p95 = {(double)NAN, (double)NAN},
                                      .most = {sm, 0},
                                      .achieved = {sm * 10, 0.1},
                                      .peak = 10,
                                      .has_profile = true,
                                      .profile = {sm}};
    u->n_metrics = 1;
    return u;
}

static void free_all(pp_usage **all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pp_usage_free(all[i]);
}

/* A share that one session has none of, without doubt, says nothing of the next one's. */
static void test_none_does_not_outweigh_some(void **state)
{
    (void)state;
    const pp_figure some[] = {{0, 0}, {0.3, 0.05}}, three[] = {{0.28, 0.05}, {0, 0}, {0.3, 0.05}};
    pp_figure f = pp_figure_merge(some, NULL, 2);
    assert_near(f.value, 0.15, 0.01);
    assert_true(f.standard_error > 0.1 && f.standard_error < 0.2);
    f = pp_figure_merge(three, NULL, 3);
    assert_true(f.value > 0.15 && f.value < 0.23 && f.standard_error > 0.05);
    const pp_figure unsure[] = {{0.3, 0.3}, {0, 0}, {0.3, 0.3}, {0.3, 0.3}};
    f = pp_figure_merge(unsure, NULL, 4);
    assert_true(f.value > 0.2 && f.standard_error > 0.1);
    const pp_figure none[] = {{0, 0}, {0, 0}, {0, 0}};
    f = pp_figure_merge(none, NULL, 3);
    assert_true(f.value == 0 && f.standard_error == 0);
}

static void test_two_sessions(void **state)
{
    (void)state;
    pp_usage *u[] = {usage(10, 0.5, PP_USAGE_LAYERS, true), usage(10, 0.5, PP_USAGE_LAYERS, true),
                     usage(12, 0.7, PP_USAGE_LAYERS, true)};
    assert_int_equal(pp_usage_add_type(u[2], "optimizer", false, (pp_figure){0.1, 0.01}, NULL), 0);
    const pp_merge_input in[] = {
        {"a", NOW - 2 * DAY, u[0]}, {"a", NOW - 2 * DAY, u[1]}, {"b", NOW - DAY, u[2]}};
    pp_usage *merged = NULL;
    assert_int_equal(pp_usage_merge(in, 3, NOW, &merged, NULL), 0);
    assert_int_equal(merged->steps, 300);
    assert_near(merged->step_ns.value, 11e6, 1e5); /* two GPUs are one session */
    assert_true(merged->step_ns.standard_error > 0.9e6);
    assert_near(merged->bounds[PP_BOUND_MEMORY].value, 0.8, 1e-12);
    assert_int_equal(merged->n_metrics, 1);
    assert_near(merged->metrics[0].mean.value, 0.6, 0.01);
    assert_near(merged->metrics[0].most.value, 0.7, 0);
    assert_near(merged->metrics[0].achieved.value, 6, 0.1);
    assert_near(merged->metrics[0].peak, 10, 0);
    assert_near(merged->rates[PP_BOUND_MEMORY].value, 4.8, 0.1);
    assert_true(isnan(merged->rates[PP_BOUND_TENSOR].value));
    assert_true(isnan(merged->metrics[0].p95.value));
    assert_near(merged->metrics[0].profile[0], 0.6, 0.01);
    assert_int_equal(merged->n_types, 2);
    assert_string_equal(merged->types[0].name, "Linear");
    assert_near(merged->types[1].share.value, 0.05, 0.02); /* no time in the other one */
    pp_usage_free(merged);
    free_all(u, 3);
}

/* Another release may have another table of peaks: the newest that is known is told. */
static void test_the_newest_peak(void **state)
{
    (void)state;
    static const double peaks[] = {9, 10, (double)NAN};
    pp_usage *u[3];
    pp_merge_input in[3];
    for (int i = 0; i < 3; i++) {
        u[i] = usage(10, 0.5, PP_USAGE_LAYERS, true);
        u[i]->metrics[0].peak = peaks[i];
        in[i] = (pp_merge_input){i == 0 ? "a" : i == 1 ? "b" : "c", NOW + i, u[i]};
    }
    pp_usage *merged = NULL;
    assert_int_equal(pp_usage_merge(in, 3, NOW + 3, &merged, NULL), 0);
    assert_near(merged->metrics[0].peak, 10, 0);
    pp_usage_free(merged);
    free_all(u, 3);
}

/* One session does not know what the next one's steps are like; two do. */
static void test_a_single_session(void **state)
{
    (void)state;
    pp_usage *u[] = {usage(10, 0.5, PP_USAGE_LAYERS, true), usage(10, 0.5, PP_USAGE_LAYERS, true)};
    u[0]->metrics[u[0]->n_metrics++] =
        (pp_usage_metric){.metric = PP_METRIC_GPU_MEM, .mean = {900, 1}, .peak = (double)NAN};
    const pp_merge_input in[] = {{"a", NOW, u[0]}, {"b", NOW, u[1]}};
    pp_usage *merged = NULL;
    assert_int_equal(pp_usage_merge(in, 1, NOW, &merged, NULL), 0);
    assert_near(merged->step_ns.standard_error, hypot(1e4, 2e5), 1);
    assert_near(merged->idle.standard_error, hypot(0.01, 0.02 * 0.8), 1e-9);
    assert_near(merged->bounds[PP_BOUND_LAUNCH].standard_error, hypot(0.01, 0.02 * 0.8), 1e-9);
    assert_near(merged->bounds[PP_BOUND_MEMORY].standard_error, hypot(0.01, 0.02 * 0.8), 1e-9);
    assert_near(merged->types[0].share.standard_error, hypot(0.01, 0.02 * 0.5), 1e-9);
    assert_near(merged->metrics[0].mean.standard_error, hypot(0.01, 0.02 * 0.5), 1e-9);
    assert_near(merged->metrics[0].achieved.standard_error, hypot(0.1, 0.02 * 5), 1e-9);
    assert_near(merged->rates[PP_BOUND_MEMORY].standard_error, 0.1, 1e-9);
    assert_near(merged->metrics[0].p50.standard_error, 0.01, 1e-9);
    assert_near(merged->metrics[1].mean.standard_error, 1, 1e-9);
    pp_usage_free(merged);
    assert_int_equal(pp_usage_merge(in, 2, NOW, &merged, NULL), 0);
    assert_true(merged->step_ns.standard_error < 2e4);
    pp_usage_free(merged);
    free_all(u, 2);
}

/* How often, of 1, a bound is said to lead by more than two errors, where two have the same share
 * on average: where one has more the other has less. Sessions are so many days apart. */
static double sure_of_no_lead(int n, int64_t days)
{
    static const char *const names[MOST] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    int sure = 0;
    for (int run = 0; run < RUNS; run++) {
        pp_usage *u[MOST];
        pp_merge_input in[MOST];
        for (int i = 0; i < n; i++) {
            const double part = 0.5 + 0.02 * normal();
            u[i] = usage(10, 0.5, PP_USAGE_LAYERS, true);
            u[i]->bounds[PP_BOUND_MEMORY] = (pp_figure){part, 0.002};
            u[i]->bounds[PP_BOUND_LAUNCH] = (pp_figure){1 - part, 0.002};
            in[i] = (pp_merge_input){names[i], NOW - i * days * DAY, u[i]};
        }
        pp_usage *merged = NULL;
        pp_figure lead;
        assert_int_equal(pp_usage_merge(in, (size_t)n, NOW, &merged, NULL), 0);
        (void)pp_usage_bound(merged, &lead);
        sure += lead.value > 2 * lead.standard_error;
        pp_usage_free(merged);
        free_all(u, (size_t)n);
    }
    return (double)sure / RUNS;
}

/* As often as of a normal distribution, 4.55 %, however few sessions there are; of unlike ages less
 * often, since then it is less known how far they are apart. */
static void test_the_lead_of_shares_of_one_whole(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n += 3)
        for (int64_t days = 0; days <= 45; days += 45) {
            const double sure = sure_of_no_lead(n, days);
            print_message("%d sessions, %d days apart: sure of a lead that is none: %.1f %%\n", n,
                          (int)days, 100 * sure);
            assert_true((sure > 0.025 || days > 0) && sure < 0.065);
        }
}

static void test_old_sessions_count_less(void **state)
{
    (void)state;
    pp_usage *u[] = {usage(10, 0.5, PP_USAGE_LAYERS, true), usage(20, 0.5, PP_USAGE_LAYERS, true)};
    const pp_merge_input in[] = {{"b", NOW, u[1]}, {"a", NOW - 2 * PP_MERGE_HALF_LIFE, u[0]}};
    pp_usage *merged = NULL;
    assert_int_equal(pp_usage_merge(in, 2, NOW, &merged, NULL), 0);
    assert_near(merged->step_ns.value, 18e6, 0.1e6);
    pp_usage_free(merged);
    free_all(u, 2);
}

static void test_what_is_not_alike(void **state)
{
    (void)state;
    pp_usage *u[] = {usage(10, 0.5, PP_USAGE_WINDOWS, true), usage(10, 0.9, PP_USAGE_LAYERS, true),
                     usage(10, 0.1, PP_USAGE_LAYERS, false)};
    const pp_merge_input in[] = {
        {"c", NOW - 3 * DAY, u[2]}, {"a", NOW - 2 * DAY, u[0]}, {"b", NOW - DAY, u[1]}};
    pp_usage *merged = NULL;
    assert_int_equal(pp_usage_merge(in, 3, NOW, &merged, NULL), 0);
    assert_true(merged->busy);
    assert_int_equal(merged->steps, 200); /* none of elapsed time */
    assert_int_equal(merged->metrics[0].source, PP_USAGE_LAYERS);
    assert_near(merged->metrics[0].mean.value, 0.9, 1e-9);
    pp_usage_free(merged);
    u[0]->steps = 0;
    const pp_merge_input nothing[] = {{"a", NOW, u[0]}};
    pp_error err = {0};
    assert_int_equal(pp_usage_merge(nothing, 1, NOW, &merged, &err), -1);
    assert_int_equal(err.code, PP_ERR_INVALID);
    assert_null(merged);
    free_all(u, 3);
}

static pp_usage *trains(const char *name, const char *digest, const char *batch)
{
    pp_usage *u = usage(10, 0.5, PP_USAGE_LAYERS, true);
    assert_int_equal(pp_models_add(&u->models, name, digest, batch, NULL), 0);
    return u;
}

/* Takes the usages, of sessions by the first letter of their names; the names of those kept. */
static const char *kept(pp_usage **all, const char *const *names, size_t n, pp_merge_left expected)
{
    static char text[64];
    pp_merge_input in[8];
    pp_merge_left others = {-1, -1};
    size_t left = n, at = 0;
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++)
        in[i] = (pp_merge_input){names[i], NOW + names[i][0] * DAY, all[i]};
    assert_int_equal(pp_merge_select(in, &left, &others, NULL), 0);
    for (size_t i = 0; i < left; i++)
        text[at++] = in[i].session[0];
    text[at] = '\0';
    assert_int_equal(others.other_models, expected.other_models);
    assert_int_equal(others.other_gpus, expected.other_gpus);
    free_all(all, n);
    return text;
}

static void test_another_model_begins_anew(void **state)
{
    (void)state;
    static const char *const four[] = {"a", "b", "c", "d"};
    pp_usage *same[] = {trains("M", "1", "8"), trains("M", "1", "8"), trains("M", "1", "8"),
                        trains("M", "1", "8")};
    assert_string_equal(kept(same, four, 4, (pp_merge_left){0, 0}), "abcd");
    pp_usage *back[] = {trains("M", "1", "8"), trains("M", "2", "8"), trains("M", "1", "16"),
                        trains("M", "1", "8")}; /* what it was before, too */
    assert_string_equal(kept(back, four, 4, (pp_merge_left){2, 0}), "ad");
    pp_usage *unknown[] = {trains("M", "1", "8"), trains("M", "", "8"), trains("N", "", "8"),
                           trains("M", "", "8")};
    assert_string_equal(kept(unknown, four, 4, (pp_merge_left){2, 0}), "bd");
    static const char *const backwards[] = {"d", "c", "b", "a"};
    pp_usage *newest[] = {trains("N", "1", "8"), trains("N", "1", "8"), trains("M", "1", "8"),
                          trains("M", "1", "8")};
    assert_string_equal(kept(newest, backwards, 4, (pp_merge_left){2, 0}), "dc");
    pp_usage *nothing[] = {trains("M", "1", "8"), trains("N", "1", "8"), trains("M", "1", "8"),
                           trains("", "", "")};
    nothing[1]->steps = nothing[3]->steps = 0; /* the newest has no step, and none of that counts */
    assert_string_equal(kept(nothing, four, 4, (pp_merge_left){0, 0}), "abcd");
}

/* Shares of elapsed time are no part of what is averaged, and so of what is counted. */
static void test_other_times_are_left_out(void **state)
{
    (void)state;
    static const char *const all[] = {"a", "b", "c", "c"};
    pp_usage *u[] = {trains("M", "1", "8"), trains("M", "1", "8"), trains("M", "1", "8"),
                     trains("M", "1", "8")};
    u[0]->busy = u[2]->busy = false;
    assert_string_equal(kept(u, all, 4, (pp_merge_left){0, 0}), "bc");
    pp_usage *elapsed[] = {trains("M", "1", "8"), trains("M", "1", "8")};
    elapsed[1]->busy = false;
    assert_string_equal(kept(elapsed, all, 2, (pp_merge_left){0, 0}), "b");
}

/* Pipeline stages: what a session's GPUs train is one set, whatever GPU has which. */
static void test_sessions_of_several_models(void **state)
{
    (void)state;
    static const char *const gpus[] = {"a", "a", "b", "b", "c", "c", "c"};
    pp_usage *u[] = {trains("S", "1", "8"), trains("S", "2", ""), trains("S", "1", "8"),
                     trains("S", "3", ""),  trains("S", "2", ""), trains("S", "1", "8"),
                     trains("S", "2", "")};
    const pp_merge_input in[] = {{"a", NOW, u[0]}, {"a", NOW, u[1]}};
    pp_usage *merged = NULL;
    assert_int_equal(pp_usage_merge(in, 2, NOW, &merged, NULL), 0);
    assert_int_equal(merged->models.n, 2);
    assert_string_equal(merged->models.items[1].digest, "2");
    pp_usage_free(merged);
    assert_string_equal(kept(u, gpus, 7, (pp_merge_left){1, 0}), "aaccc");
}

static pp_usage *on(const char *model, int64_t multiprocessors)
{
    pp_usage *u = trains("M", "1", "8");
    (void)snprintf(u->gpu.model, sizeof u->gpu.model, "%s", model);
    if (multiprocessors > 0)
        u->gpu.chip = (pp_chip){90, multiprocessors, 1, 1, 1};
    return u;
}

/* Shares of unlike peaks, and steps on unlike GPUs, are no sample of one thing. */
static void test_other_gpus_are_left_out(void **state)
{
    (void)state;
    static const char *const four[] = {"a", "b", "c", "d"};
    pp_usage *moved[] = {on("H100", 114), on("H200", 132), on("H100", 114), on("H200", 132)};
    assert_string_equal(kept(moved, four, 4, (pp_merge_left){0, 2}), "bd");
    pp_usage *untold[] = {on("", 132), on("", 0), on("H100", 132), on("H200", 132)};
    assert_string_equal(kept(untold, four, 4, (pp_merge_left){0, 2}), "ad");
    pp_usage *unknown[] = {on("H200", 132), on("", 0), on("", 132), on("", 0)};
    assert_string_equal(kept(unknown, four, 4, (pp_merge_left){0, 2}), "bd");
    pp_usage *both[] = {on("H100", 114), on("H200", 132), trains("N", "1", "8"), on("H200", 132)};
    assert_string_equal(kept(both, four, 4, (pp_merge_left){1, 1}), "bd");
    pp_usage *nothing[] = {on("H100", 114), on("H200", 132), on("H200", 132), on("H100", 114)};
    nothing[0]->steps = nothing[3]->steps = 0;
    assert_string_equal(kept(nothing, four, 4, (pp_merge_left){0, 0}), "bc");
}

/* A session on unlike GPUs counts by those that are as most of the newest one's. */
static void test_unlike_gpus_of_one_session(void **state)
{
    (void)state;
    static const char *const gpus[] = {"a", "a", "b", "b", "b", "c"};
    pp_usage *most[] = {on("H200", 132), on("H100", 114), on("H100", 114), on("H200", 132),
                        on("H100", 114)};
    assert_string_equal(kept(most, gpus, 5, (pp_merge_left){0, 0}), "abb");
    static const char *const both[] = {"a", "b", "b"};
    pp_usage *as_many[] = {on("H100", 114), on("H100", 114), on("H200", 132)};
    assert_string_equal(kept(as_many, both, 3, (pp_merge_left){0, 1}), "b");
    pp_usage *names[] = {on("A", 0), on("A", 0), on("B", 0)};
    assert_string_equal(kept(names, both, 3, (pp_merge_left){0, 1}), "b");
    pp_usage *alone[] = {on("H200", 132), on("H100", 114), on("H100", 114),
                         on("H100", 114), on("H100", 114), on("H200", 132)};
    assert_string_equal(kept(alone, gpus, 6, (pp_merge_left){0, 1}), "ac");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_hold),
        cmocka_unit_test(test_errors_hold_of_any_age),
        cmocka_unit_test(test_weights_that_are_far_apart),
        cmocka_unit_test(test_the_lead_of_shares_of_one_whole),
        cmocka_unit_test(test_other_times_are_left_out),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_the_newest_peak),
        cmocka_unit_test(test_a_single_session),
        cmocka_unit_test(test_none_does_not_outweigh_some),
        cmocka_unit_test(test_two_sessions),
        cmocka_unit_test(test_old_sessions_count_less),
        cmocka_unit_test(test_what_is_not_alike),
        cmocka_unit_test(test_another_model_begins_anew),
        cmocka_unit_test(test_sessions_of_several_models),
        cmocka_unit_test(test_other_gpus_are_left_out),
        cmocka_unit_test(test_unlike_gpus_of_one_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
