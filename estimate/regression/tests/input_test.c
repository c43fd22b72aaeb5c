/* Attribution as a function of its input: order, forms, limits, hostile data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above. */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/regression/tests/sim.h"

static pp_regression_result *solve(const pp_regression_input *in)
{
    pp_regression_result *r = NULL;
    pp_error err = {0};
    if (pp_regression_solve(in, &r, &err) < 0)
        fail_msg("%s", err.message);
    return r;
}

static sim *short_sim(uint64_t seed)
{
    sim_config c = sim_defaults(seed);
    c.duration = 60;
    c.layers = 5;
    return sim_new(&c);
}

static void shuffle(void *data, size_t n, size_t size, uint64_t *rng)
{
    unsigned char *p = data, spare[64];
    assert_true(size <= sizeof spare);
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(sim_uniform(rng) * (double)i);
        memcpy(spare, p + (i - 1) * size, size);
        memcpy(p + (i - 1) * size, p + j * size, size);
        memcpy(p + j * size, spare, size);
    }
}

/** Items in reverse: the intervals' indices follow. */
static void reverse_items(sim *s)
{
    size_t n = s->in.n_items;
    for (size_t i = 0; i < n / 2; i++) {
        pp_regression_item t = s->items[i];
        s->items[i] = s->items[n - 1 - i];
        s->items[n - 1 - i] = t;
    }
    for (size_t i = 0; i < s->in.n_intervals; i++)
        s->intervals[i].item = (uint32_t)(n - 1 - s->intervals[i].item);
}

static void order_of_arrival_changes_no_bit(void **state)
{
    (void)state;
    sim *s = short_sim(1);
    pp_regression_result *a = solve(&s->in);
    uint64_t rng = 5;
    size_t n = s->in.n_items;
    reverse_items(s);
    shuffle(s->intervals, s->in.n_intervals, sizeof *s->intervals, &rng);
    shuffle(s->steps, s->in.n_steps, sizeof *s->steps, &rng);
    for (size_t m = 0; m < s->in.n_metrics; m++)
        shuffle(s->samples[m], s->metrics[m].n_samples, sizeof **s->samples, &rng);
    pp_regression_metric first = s->metrics[0];
    memmove(s->metrics, s->metrics + 1, (s->in.n_metrics - 1) * sizeof first);
    s->metrics[s->in.n_metrics - 1] = first;
    pp_regression_result *b = solve(&s->in);
    assert_memory_equal(&a->lag_ns, &b->lag_ns, sizeof a->lag_ns);
    for (size_t i = 0; i < a->n_rows; i++)
        for (size_t m = 0; m < a->n_metrics; m++) {
            const pp_regression_estimate *x = pp_regression_get(a, i, m);
            const pp_regression_estimate *y =
                pp_regression_get(b, i < n ? n - 1 - i : i, (m + a->n_metrics - 1) % a->n_metrics);
            assert_memory_equal(&x->mean, &y->mean, sizeof x->mean);
            assert_memory_equal(&x->standard_error, &y->standard_error, sizeof x->mean);
            assert_memory_equal(&x->windows, &y->windows, sizeof x->mean);
        }
    pp_regression_result_free(a);
    pp_regression_result_free(b);
    sim_free(s);
}

static void repeated_samples_change_nothing(void **state)
{
    (void)state;
    sim *s = short_sim(2);
    pp_regression_result *a = solve(&s->in);
    pp_regression_metric *m = &s->metrics[2];
    pp_regression_sample *twice = malloc(2 * m->n_samples * sizeof *twice);
    assert_non_null(twice);
    memcpy(twice, m->samples, m->n_samples * sizeof *twice);
    memcpy(twice + m->n_samples, m->samples, m->n_samples * sizeof *twice);
    m->samples = twice;
    m->n_samples *= 2;
    pp_regression_result *b = solve(&s->in);
    assert_memory_equal(a->estimates, b->estimates,
                        a->n_rows * a->n_metrics * sizeof *a->estimates);
    free(twice);
    pp_regression_result_free(a);
    pp_regression_result_free(b);
    sim_free(s);
}

static void cells_tell_what_intervals_tell(void **state)
{
    (void)state;
    sim_config c = sim_defaults(3);
    sim *s = sim_new(&c);
    c.grid = true;
    sim *g = sim_new(&c);
    assert_true(g->in.n_intervals == 0 && g->in.n_cells > 0);
    pp_regression_result *a = solve(&s->in), *b = solve(&g->in);
    size_t n = 0;
    double off = 0;
    for (size_t i = 0; i < a->n_rows; i++) {
        assert_true(llabs(a->rows[i].time_ns - b->rows[i].time_ns) < 20000000);
        for (size_t m = 0; m < a->n_metrics; m++) {
            const pp_regression_estimate *x = pp_regression_get(a, i, m);
            const pp_regression_estimate *y = pp_regression_get(b, i, m);
            if (!x->identifiable || !y->identifiable || !(x->standard_error > 0))
                continue;
            off += fabs(x->mean - y->mean) / x->standard_error;
            n++;
        }
    }
    assert_true(n > 80);
    assert_true(off / (double)n < 0.25);
    pp_regression_result_free(a);
    pp_regression_result_free(b);
    sim_free(s);
    sim_free(g);
}

/** Cuts every run of forward layer 0 into slices of 2 ms that belong to it and to a twin in turn.
 */
static void twin_make(sim *s, pp_regression_interval **ret)
{
    size_t n = s->in.n_intervals, cap = n + 200000, k = 0;
    pp_regression_interval *out = malloc(cap * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) {
        pp_regression_interval v = s->intervals[i];
        if (v.item != 0) {
            out[k++] = v;
            continue;
        }
        for (int64_t at = v.start_ns, side = 0; at < v.end_ns && k < cap; at += 2000000, side++) {
            int64_t end = at + 2000000 < v.end_ns ? at + 2000000 : v.end_ns;
            out[k++] = (pp_regression_interval){at, end, side % 2 ? 1 : 0, 0};
        }
    }
    s->in.intervals = out;
    s->in.n_intervals = k;
    *ret = out;
}

/* Two layers that always run together have one value, under one name, and none of their own. */
static void what_cannot_be_told_apart_is_grouped(void **state)
{
    (void)state;
    sim *s = short_sim(4);
    pp_regression_interval *owned;
    /* Item 1, the activation after layer 0, becomes its twin with the same value. */
    twin_make(s, &owned);
    pp_regression_result *r = solve(&s->in);
    for (size_t m = 0; m < 5; m++) {
        const pp_regression_estimate *a = pp_regression_get(r, 0, m);
        const pp_regression_estimate *b = pp_regression_get(r, 1, m);
        assert_false(a->identifiable || b->identifiable);
        assert_true(isnan(a->mean) && isnan(b->standard_error));
        assert_true(a->group >= 0 && a->group == b->group);
        const pp_regression_group *g = &r->groups[a->group];
        assert_true(g->metric == m && g->phase == PP_PHASE_FORWARD);
        assert_true(strncmp(g->name, "net.", 4) == 0 && strchr(g->name, '+') != NULL);
        assert_true(g->n_members == 2);
        double off = fabs(g->estimate.mean - s->realised[m]) / g->estimate.standard_error;
        assert_true(off < 4);
        /* A substantial layer beside them keeps its own value. */
        assert_true(pp_regression_get(r, 4, m)->identifiable);
    }
    free(owned);
    pp_regression_result_free(r);
    sim_free(s);
}

static void a_missing_metric_leaves_the_others(void **state)
{
    (void)state;
    sim *s = short_sim(6);
    pp_regression_result *a = solve(&s->in);
    s->metrics[1].n_samples = 0;
    s->metrics[3].n_samples /= 2;
    pp_regression_result *b = solve(&s->in);
    size_t own = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        assert_int_equal(pp_regression_get(b, i, 1)->method, PP_METHOD_NONE);
        const pp_regression_estimate *x = pp_regression_get(a, i, 0);
        const pp_regression_estimate *y = pp_regression_get(b, i, 0);
        if (x->identifiable && y->identifiable) {
            assert_true(fabs(x->mean - y->mean) < 2 * x->standard_error + 1e-3);
            own++;
        }
    }
    assert_true(own >= 8);
    assert_int_equal(b->fits[1].job.method, PP_METHOD_NONE);
    assert_true(isnan(b->fits[1].job.mean));
    assert_int_equal(b->fits[3].job.method, PP_METHOD_JOB);
    pp_regression_result_free(a);
    pp_regression_result_free(b);
    sim_free(s);
}

static void bad_samples_are_dropped_and_counted(void **state)
{
    (void)state;
    sim *s = short_sim(7);
    pp_regression_result *a = solve(&s->in);
    const double bad[] = {
        (double)NAN, (double)INFINITY, -(double)INFINITY, 9223372036854775794.0, 1e300, -0.5, 1.5};
    size_t n = sizeof bad / sizeof bad[0];
    pp_regression_metric *m = &s->metrics[0];
    pp_regression_sample *more = malloc((m->n_samples + n + 1) * sizeof *more);
    assert_non_null(more);
    memcpy(more, m->samples, m->n_samples * sizeof *more);
    for (size_t i = 0; i < n; i++)
        more[m->n_samples + i] =
            (pp_regression_sample){m->samples[10 * i].stamp_ns + 50000000, bad[i]};
    more[m->n_samples + n] = (pp_regression_sample){INT64_MIN, 0.5};
    m->samples = more;
    m->n_samples += n + 1;
    pp_regression_result *b = solve(&s->in);
    assert_int_equal(b->fits[0].dropped_samples, n + 1);
    assert_memory_equal(a->estimates, b->estimates,
                        a->n_rows * a->n_metrics * sizeof *a->estimates);
    free(more);
    pp_regression_result_free(a);
    pp_regression_result_free(b);
    sim_free(s);
}

static void values_stay_within_the_range(void **state)
{
    (void)state;
    sim_config c = sim_defaults(8);
    c.duration = 60;
    c.noise = 0.05;
    c.cv = 0.2;
    c.idle = 0.4;
    sim *s = sim_new(&c);
    pp_regression_result *r = solve(&s->in);
    for (size_t i = 0; i < r->n_rows; i++)
        for (size_t m = 0; m < 5; m++) {
            const pp_regression_estimate *e = pp_regression_get(r, i, m);
            double range = m == 4 ? 100 : 1;
            assert_true(isnan(e->mean) || (e->mean >= 0 && e->mean <= range));
            assert_true(isnan(e->mean) || e->standard_error <= 0.05 * range);
            assert_true(isnan(e->mean) == !e->identifiable);
            assert_true(e->method == (e->identifiable ? PP_METHOD_REGRESSION : PP_METHOD_NONE));
        }
    for (size_t g = 0; g < r->n_groups; g++)
        if (r->groups[g].metric < 4)
            assert_true(r->groups[g].estimate.mean >= 0 && r->groups[g].estimate.mean <= 1);
    pp_regression_result_free(r);
    sim_free(s);
}

static void idle_memory_and_closure(void **state)
{
    (void)state;
    sim_config c = sim_defaults(9);
    c.idle = 0.8;
    c.whole_percent = true;
    sim *s = sim_new(&c);
    pp_regression_result *r = solve(&s->in);
    const pp_regression_estimate *idle = pp_regression_get(r, r->n_items + 1, 0);
    /* Noise below zero is cut off, so that idle reads a little above it. */
    assert_true(idle->identifiable && idle->mean < 0.005);
    assert_int_equal(r->rows[r->n_items + 1].phase, PP_PHASE_IDLE);
    assert_true(fabs(r->rows[r->n_items + 1].share - 0.21) < 0.05);
    for (size_t m = 0; m < 5; m++) {
        assert_true(fabs(r->fits[m].closure) < 0.005 * (m == 4 ? 100 : 1));
        assert_true(r->fits[m].r2 > 0.9);
        assert_true(fabs(r->fits[m].step_variation - 0.05) < 0.025);
    }
    assert_true(fabs(r->fits[5].job.mean - 1437) < 1e-6);
    for (size_t i = 0; i < r->n_items; i++) {
        const pp_regression_estimate *e = pp_regression_get(r, i, 5);
        if (e->identifiable)
            assert_true(fabs(e->mean - 1437) < 1);
    }
    assert_true(pp_regression_get(r, 0, 5)->identifiable);
    pp_regression_result_free(r);
    sim_free(s);
}

static void limits_are_the_callers(void **state)
{
    (void)state;
    sim *s = short_sim(10);
    s->in.options.max_standard_error = 1e-6;
    s->metrics[4].max_standard_error = 90;
    pp_regression_result *r = solve(&s->in);
    for (size_t i = 0; i < r->n_rows; i++)
        assert_false(pp_regression_get(r, i, 0)->identifiable);
    /* However lax the limit, what only the prior says is not reported. */
    assert_true(pp_regression_get(r, 0, 4)->identifiable);
    size_t least = 0;
    for (size_t i = 0; i < r->n_items; i++)
        least = r->rows[i].time_ns < r->rows[least].time_ns ? i : least;
    assert_true(r->rows[least].share < 1e-3);
    assert_false(pp_regression_get(r, least, 4)->identifiable);
    pp_regression_result_free(r);
    sim_free(s);
}

static void few_windows_report_nothing(void **state)
{
    (void)state;
    sim_config c = sim_defaults(11);
    c.duration = 7;
    sim *s = sim_new(&c);
    pp_regression_result *r = solve(&s->in);
    for (size_t i = 0; i < r->n_rows; i++)
        for (size_t m = 0; m < r->n_metrics; m++)
            assert_false(pp_regression_get(r, i, m)->identifiable);
    assert_int_equal(r->fits[0].job.method, PP_METHOD_JOB);
    pp_regression_result_free(r);
    sim_free(s);
}

/* Of a session of which no window was read, what was measured before and behind it says nothing. */
static void other_times_are_not_the_jobs(void **state)
{
    (void)state;
    sim *s = short_sim(13);
    pp_regression_input in = s->in;
    pp_regression_sample *samples[SIM_METRICS];
    pp_regression_metric metrics[SIM_METRICS];
    const int64_t session = s->captures[0].end_ns - s->captures[0].start_ns;
    memcpy(metrics, s->metrics, sizeof metrics);
    for (size_t m = 0; m < SIM_METRICS; m++) {
        samples[m] = malloc(metrics[m].n_samples * sizeof *samples[m]);
        assert_non_null(samples[m]);
        memcpy(samples[m], metrics[m].samples, metrics[m].n_samples * sizeof *samples[m]);
        for (size_t i = 0; i < metrics[m].n_samples; i++)
            samples[m][i].stamp_ns += session + 10000000000LL;
        metrics[m].samples = samples[m];
    }
    in.metrics = metrics;
    pp_regression_result *r = solve(&in);
    for (size_t m = 0; m < SIM_METRICS; m++) {
        assert_int_equal(r->fits[m].job.method, PP_METHOD_NONE);
        assert_true(isnan(r->fits[m].job.mean));
        assert_true(r->fits[m].outside);
        free(samples[m]);
    }
    pp_regression_result_free(r);
    r = solve(&s->in);
    assert_int_equal(r->fits[0].job.method, PP_METHOD_JOB);
    assert_false(r->fits[0].outside);
    pp_regression_result_free(r);
    sim_free(s);
}

/* A clock that falls for seconds now and then: of what a mean of it may be off by, steps say
 * nothing.
 */
static void levels_have_errors_of_their_spells(void **state)
{
    (void)state;
    enum { DRAWS = 40, SPELL = 8 };
    sim_config c = sim_defaults(14);
    c.duration = 180;
    c.step = 0.3;
    c.layers = 2;
    sim *s = sim_new(&c);
    pp_regression_metric level = s->metrics[5];
    pp_regression_sample *samples = malloc(level.n_samples * sizeof *samples);
    assert_non_null(samples);
    memcpy(samples, level.samples, level.n_samples * sizeof *samples);
    level.samples = samples;
    level.job_only = true;
    pp_regression_input in = s->in;
    in.metrics = &level;
    in.n_metrics = 1;
    double z2 = 0;
    uint64_t rng = 77;
    for (int k = 0; k < DRAWS; k++) {
        double now = 1980;
        for (size_t i = 0; i < level.n_samples; i++) {
            if (sim_uniform(&rng) < 1.0 / SPELL)
                now = sim_uniform(&rng) < 0.5 ? 1980 : 1700;
            samples[i].value = now - 5 * sim_uniform(&rng);
        }
        pp_regression_result *r = solve(&in);
        z2 += pow((r->fits[0].job.mean - 1837.5) / r->fits[0].job.standard_error, 2) / DRAWS;
        pp_regression_result_free(r);
    }
    print_message("z of a level's mean: %.2f\n", sqrt(z2));
    assert_true(sqrt(z2) > 0.7 && sqrt(z2) < 1.5);
    free(samples);
    sim_free(s);
}

static void nothing_in_nothing_out(void **state)
{
    (void)state;
    pp_regression_input in = {0};
    pp_regression_result *r = solve(&in);
    assert_int_equal(r->n_rows, 2);
    assert_int_equal(r->n_groups + r->n_windows, 0);
    assert_false(r->lag_known);
    pp_regression_result_free(r);
    assert_null(pp_regression_result_free(NULL));

    /* Samples without activity: the job's mean is all there is; and the reverse. */
    sim *s = short_sim(12);
    pp_regression_input only = s->in;
    only.n_intervals = only.n_steps = only.n_observed = 0;
    r = solve(&only);
    assert_int_equal(r->fits[0].job.method, PP_METHOD_JOB);
    assert_false(pp_regression_get(r, 0, 0)->identifiable);
    pp_regression_result_free(r);
    only = s->in;
    only.n_metrics = 0;
    r = solve(&only);
    assert_true(r->rows[0].time_ns > 0 && r->rows[0].occurrences == s->in.n_steps);
    pp_regression_result_free(r);
    sim_free(s);
}

static void refused(const pp_regression_input *in, pp_error_code code, const char *field)
{
    pp_regression_result *r = NULL;
    pp_error err = {0};
    assert_true(pp_regression_solve(in, &r, &err) < 0);
    assert_null(r);
    assert_int_equal(err.code, code);
    assert_string_equal(err.field, field);
}

static void wrong_input_is_refused(void **state)
{
    (void)state;
    sim *s = short_sim(13);
    pp_regression_input in = s->in;
    in.n_items = PP_REGRESSION_MAX_ITEMS + 1;
    refused(&in, PP_ERR_TOO_LARGE, "items");
    in = s->in;
    in.n_intervals = PP_REGRESSION_MAX_INTERVALS + 1;
    refused(&in, PP_ERR_TOO_LARGE, "intervals");
    in = s->in;
    in.intervals = NULL;
    refused(&in, PP_ERR_INVALID, "intervals");
    in = s->in;
    in.options.max_lag_ns = -1;
    refused(&in, PP_ERR_INVALID, "options.max_lag");
    in = s->in;
    in.options.max_standard_error = (double)NAN;
    refused(&in, PP_ERR_INVALID, "options.max_standard_error");
    s->metrics[0].min = 1;
    s->metrics[0].max = 0;
    refused(&s->in, PP_ERR_INVALID, "metrics");
    s->metrics[0].min = 0;
    s->metrics[0].max = 1;
    s->metrics[1].name = s->metrics[0].name;
    refused(&s->in, PP_ERR_INVALID, "metrics");
    s->metrics[1].name = "other";
    s->items[1] = s->items[0];
    refused(&s->in, PP_ERR_INVALID, "items");
    s->items[1].phase = PP_PHASE_IDLE;
    refused(&s->in, PP_ERR_INVALID, "items");
    sim_free(s);
}

static int64_t wild_time(uint64_t *rng)
{
    double u = sim_uniform(rng);
    if (u < 0.05)
        return INT64_MIN;
    if (u < 0.1)
        return INT64_MAX;
    if (u < 0.15)
        return -1;
    if (u < 0.2)
        return (int64_t)(sim_uniform(rng) * 9e18);
    return 1769000000000000000LL + (int64_t)(sim_uniform(rng) * 3e10);
}

static double wild_value(uint64_t *rng)
{
    const double odd[] = {(double)NAN, (double)INFINITY, 1e308, -1e308, 0, 1, 1e-320};
    double u = sim_uniform(rng);
    return u < 0.3 ? odd[(size_t)(u / 0.3 * 7)] : sim_uniform(rng);
}

enum { WILD = 60 };

typedef struct wild {
    pp_regression_interval intervals[WILD];
    pp_regression_cell cells[WILD];
    pp_time_range steps[WILD], captures[WILD];
    pp_regression_sample samples[3][WILD];
    pp_regression_metric metrics[3];
} wild;

static void wild_fill(wild *w, uint64_t *rng)
{
    for (size_t i = 0; i < WILD; i++) {
        w->intervals[i] = (pp_regression_interval){
            wild_time(rng), wild_time(rng), (uint32_t)(sim_uniform(rng) * 5), wild_time(rng)};
        w->cells[i] = (pp_regression_cell){
            wild_time(rng), (int64_t)(sim_uniform(rng) * 1.2e7), (int64_t)(sim_uniform(rng) * 1e7),
            (uint32_t)(sim_uniform(rng) * 5), (int64_t)(sim_uniform(rng) * 2e7 - 5e6)};
        w->steps[i] = (pp_time_range){wild_time(rng), wild_time(rng)};
        w->captures[i] = (pp_time_range){wild_time(rng), wild_time(rng)};
        for (size_t m = 0; m < 3; m++)
            w->samples[m][i] = (pp_regression_sample){wild_time(rng), wild_value(rng)};
    }
    static const char *const names[] = {"a", "b", "c"};
    for (size_t m = 0; m < 3; m++)
        w->metrics[m] = (pp_regression_metric){.name = names[m],
                                               .min = m == 2 ? (double)NAN : 0,
                                               .max = m == 2 ? (double)NAN : 1,
                                               .job_only = m == 1,
                                               .samples = w->samples[m],
                                               .n_samples = WILD};
}

/* No input may crash it, hang it, or make it report what is not a number within the range. */
static void hostile_input_is_survived(void **state)
{
    (void)state;
    static const pp_regression_item items[] = {
        {"x", PP_PHASE_FORWARD}, {"x", PP_PHASE_BACKWARD}, {"y", PP_PHASE_FORWARD}, {"", 2}};
    static wild w;
    uint64_t rng = 77;
    for (int round = 0; round < 300; round++) {
        wild_fill(&w, &rng);
        pp_regression_input in = {.items = items,
                                  .n_items = 4,
                                  .intervals = w.intervals,
                                  .n_intervals = WILD,
                                  .cells = w.cells,
                                  .n_cells = WILD,
                                  .kernels_known = round % 2 == 0,
                                  .steps = w.steps,
                                  .n_steps = WILD,
                                  .observed = w.captures,
                                  .n_observed = round % 3 ? WILD : 1,
                                  .metrics = w.metrics,
                                  .n_metrics = 3};
        in.options.window_ns = round % 4 ? (int64_t)(sim_uniform(&rng) * 1e9) : 0;
        in.options.max_lag_ns = round % 5 ? 0 : 1000000000000000LL;
        pp_regression_result *r = solve(&in);
        for (size_t i = 0; i < r->n_rows; i++) {
            assert_true(r->rows[i].time_ns >= 0);
            for (size_t m = 0; m < 2; m++) {
                const pp_regression_estimate *e = pp_regression_get(r, i, m);
                assert_true(!e->identifiable || (e->mean >= 0 && e->mean <= 1));
            }
        }
        pp_regression_result_free(r);
    }
}

/** Memory of a process: flat but for a page that it takes, and `after` once it is gone. */
static void memory_fill(sim *s, double after)
{
    const size_t memory = SIM_METRICS - 1, n = s->metrics[memory].n_samples;
    assert_true(isnan(s->metrics[memory].min));
    for (size_t i = 0; i < n; i++) {
        pp_regression_sample *v = &s->samples[memory][i];
        v->value = v->stamp_ns > s->captures[0].end_ns ? after : i < n / 6 ? 6931.875 : 6931.9375;
    }
}

/* What varies by nothing while items run has no say in where windows lie, whatever it does behind
 * that. */
static void what_changes_behind_the_training_tells_no_lag(void **state)
{
    (void)state;
    sim *s = short_sim(12);
    s->captures[0].end_ns -= 2000000000;
    memory_fill(s, 6931.9375);
    pp_regression_result *stays = solve(&s->in);
    memory_fill(s, 618.375);
    pp_regression_result *falls = solve(&s->in);
    assert_true(stays->lag_known && falls->lag_known);
    assert_memory_equal(&stays->lag_ns, &falls->lag_ns, sizeof stays->lag_ns);
    assert_memory_equal(&stays->lag_se_ns, &falls->lag_se_ns, sizeof stays->lag_se_ns);
    pp_regression_result_free(stays);
    pp_regression_result_free(falls);
    sim_free(s);
}

static void overlapping_items_share_the_time(void **state)
{
    (void)state;
    const pp_regression_item items[] = {{"a", PP_PHASE_FORWARD}, {"b", PP_PHASE_BACKWARD}};
    const int64_t t = 1769000000000000000LL;
    const pp_regression_interval v[] = {{t, t + 1000, 0, 0},
                                        {t + 500, t + 1500, 1, 0},
                                        {t + 3000, t + 2000, 0, 0},
                                        {t + 10, t + 10, 0, 0}};
    const pp_time_range step = {t, t + 2000};
    /* Two captures back to back are one: batches come that way. */
    const pp_time_range capture[] = {{t + 1200, t + 4000}, {t, t + 1200}};
    pp_regression_input in = {.items = items,
                              .n_items = 2,
                              .intervals = v,
                              .n_intervals = 4,
                              .steps = &step,
                              .n_steps = 1,
                              .observed = capture,
                              .n_observed = 2};
    pp_regression_result *r = solve(&in);
    assert_int_equal(r->rows[0].time_ns, 750);
    assert_int_equal(r->rows[1].time_ns, 750);
    assert_int_equal(r->rows[2].time_ns, 500);
    assert_int_equal(r->rows[3].time_ns, 2000);
    assert_int_equal(r->dropped_intervals, 1);
    assert_int_equal(r->rows[1].occurrences, 1);
    pp_regression_result_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_arrival_changes_no_bit),
        cmocka_unit_test(repeated_samples_change_nothing),
        cmocka_unit_test(cells_tell_what_intervals_tell),
        cmocka_unit_test(what_cannot_be_told_apart_is_grouped),
        cmocka_unit_test(a_missing_metric_leaves_the_others),
        cmocka_unit_test(bad_samples_are_dropped_and_counted),
        cmocka_unit_test(values_stay_within_the_range),
        cmocka_unit_test(idle_memory_and_closure),
        cmocka_unit_test(limits_are_the_callers),
        cmocka_unit_test(few_windows_report_nothing),
        cmocka_unit_test(other_times_are_not_the_jobs),
        cmocka_unit_test(levels_have_errors_of_their_spells),
        cmocka_unit_test(nothing_in_nothing_out),
        cmocka_unit_test(wrong_input_is_refused),
        cmocka_unit_test(hostile_input_is_survived),
        cmocka_unit_test(what_changes_behind_the_training_tells_no_lag),
        cmocka_unit_test(overlapping_items_share_the_time),
    };
    return cmocka_run_group_tests_name("attribution input", tests, NULL, NULL);
}
