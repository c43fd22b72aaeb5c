/*
 * Whether Regression's quality finds what is wrong: runs that go wrong on purpose, their values
 * told all the same, and runs in which nothing does. A run is wrong where the values of a metric
 * err by more than 3 points; it is found where every such metric is in doubt. One JSON object per
 * case and line, then one of all. Usage: regression-quality [RUNS [SEED [CASE [-v]]]] (default 10,
 * 40000).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/regression/tests/conditions.h"
#include "estimate/regression/tests/scenarios.h"

#define WRONG 3.0 /* points */
#define JUDGED 5  /* four shares and GPU_UTIL; memory is no share */

typedef struct fault {
    const char *condition; /* of conditions.h or scenarios.h */
    unsigned without;      /* parts, beside that doubts are told only */
    double lag_error;      /* of the window */
    double tenant;         /* 0: the condition's */
    bool clean;            /* nothing is wrong */
} fault;

static const fault faults[] = {
    /* nothing is wrong */
    {"clean", 0, 0, 0, true},
    {"clean, kernels known", 0, 0, 0, true},
    {"stalls, work conserved", 0, 0, 0, true},
    {"stalls, 1 s steps, 100 ms windows", 0, 0, 0, true},
    {"lengths that raise values", 0, 0, 0, true},
    {"GPU_UTIL over 1 s, windows of 100 ms", 0, 0, 0, true},
    {"GPU_UTIL over 1/6 s, windows of 250 ms", 0, 0, 0, true},
    {"100.10 ms told as 100", 0, 0, 0, true},
    {"250.25 ms told as 250", 0, 0, 0, true},
    {"multiplexed counters", 0, 0, 0, true},
    {"read every 105 ms, of windows of 100 ms since", 0, 0, 0, true},
    {"12 captures of 10 s", 0, 0, 0, true},
    {"steady durations", 0, 0, 0, true},
    {"6 s steps", 0, 0, 0, true},
    {"40 layers, 6 s steps", 0, 0, 0, true},
    {"in step with collections, a tenth stalled by 150 ms", 0, 0, 0, true},
    {"20 % of scrapes lost, 4 captures, idle", 0, 0, 0, true},
    {"published 1 s late", 0, 0, 0, true},
    {"exporter started anew, away for 10 s", 0, 0, 0, true},
    {"activity on 10 ms cells", 0, 0, 0, true},
    {"a tenth of the stamps 5 ms late", 0, 0, 0, true},
    {"a tenth of the stamps 20 ms late", 0, 0, 0, true},
    {"window edges jitter by 10 ms", 0, 0, 0, true},
    /* the windows lie elsewhere */
    {"clean", 0, 0.05, 0, false},
    {"clean", 0, -0.1, 0, false},
    {"clean", 0, 0.2, 0, false},
    {"clean", 0, -0.5, 0, false},
    {"clean", 0, 1, 0, false},
    {"clean, kernels known", 0, 0.1, 0, false},
    {"clean, kernels known", 0, -0.3, 0, false},
    {"stalls, 1 s steps, 100 ms windows", 0, -0.1, 0, false},
    {"stalls, 1 s steps, 100 ms windows", 0, 0.3, 0, false},
    {"lengths that raise values", 0, 0.2, 0, false},
    {"read every 105 ms, of windows of 100 ms since", 0, 0.3, 0, false},
    {"12 captures of 10 s", 0, -0.3, 0, false},
    {"clean", PP_REGRESSION_OWN_WINDOWS, 0.1, 0, false},
    {"clean", PP_REGRESSION_OWN_WINDOWS, -0.5, 0, false},
    {"clean, kernels known", PP_REGRESSION_OWN_WINDOWS, -0.3, 0, false},
    {"clean, kernels known", PP_REGRESSION_OWN_WINDOWS, 0.5, 0, false},
    {"stalls, 1 s steps, 100 ms windows", PP_REGRESSION_OWN_WINDOWS, 0.3, 0, false},
    {"window edges jitter by 10 ms", PP_REGRESSION_OWN_WINDOWS, 0.2, 0, false},
    /* they have another period, or length */
    {"100.10 ms told as 100", PP_REGRESSION_PERIOD, 0, 0, false},
    {"100.25 ms told as 100", PP_REGRESSION_PERIOD, 0, 0, false},
    {"250.25 ms told as 250", PP_REGRESSION_PERIOD, 0, 0, false},
    {"GPU_UTIL over 1 s, windows of 100 ms", PP_REGRESSION_OWN_WINDOWS, 0, 0, false},
    {"GPU_UTIL over 1/6 s, windows of 250 ms", PP_REGRESSION_OWN_WINDOWS, 0, 0, false},
    {"multiplexed counters", PP_REGRESSION_OWN_WINDOWS, 0, 0, false},
    /* somebody else is there */
    {"a tenant's 20 points, kernels known", 0, 0, 0.05, false},
    {"a tenant's 20 points, kernels known", 0, 0, 0.1, false},
    {"a tenant's 20 points, kernels known", 0, 0, 0, false},
    {"a tenant's 20 points, kernels known", 0, 0, 0.4, false},
    /* layers are not what they are called, or stall */
    {"labels shuffled in each step", 0, 0, 0, false},
    {"the same, kernels not told", 0, 0, 0, false},
};

typedef struct totals {
    size_t runs, wrong, found; /* runs; wrong ones; of these, found */
    size_t fine, alarms; /* runs whose lag is told and that are not wrong, and which are in doubt */
    size_t untold;       /* the lag was not known: nothing is told */
} totals;

static void change(const char *name, sim_config *c)
{
    for (size_t i = 0; i < sim_condition_count; i++)
        if (strcmp(sim_conditions[i].name, name) == 0) {
            sim_conditions[i].change(c);
            return;
        }
    for (size_t i = 0; i < sim_scenario_count; i++)
        if (strcmp(sim_scenarios[i].name, name) == 0) {
            sim_scenarios[i].change(c);
            return;
        }
    abort();
}

static void print_metric(size_t m, double error, const pp_regression_metric_fit *f)
{
    const pp_regression_prediction *p = &f->prediction;
    (void)fprintf(stderr,
                  "  %zu: error %5.2f of %.1f ms doubt %d r2 %.3f noise %.3f rest %.3f auto %+.2f "
                  "| explained "
                  "%.3f miss/expected %.2f items %zu z %.2f | shift %.3f +- %.3f ms moves %.2f\n",
                  m, error, (double)f->window_ns / 1e6, (int)f->doubt, f->r2, f->noise, f->rest,
                  f->autocorrelation, p->explained, p->miss / p->expected, p->items, p->items_z,
                  f->shift_ns / 1e6, f->shift_se_ns / 1e6, f->shift_moves);
}

/* Of the metrics that err by more than 3 points, whether all are in doubt; of none, whether one is.
 */
static void judge(const sim *s, const pp_regression_result *r, bool loud, totals *t)
{
    size_t wrong = 0, found = 0, doubted = 0;
    t->runs++;
    if (!r->lag_known) {
        t->untold++;
        return;
    }
    for (size_t m = 0; m < JUDGED; m++) {
        const double error = sim_metric_error(s, r, m);
        const bool doubt = r->fits[m].doubt != PP_REGRESSION_FITS;
        wrong += error > WRONG;
        found += error > WRONG && doubt;
        doubted += doubt;
        if (loud)
            print_metric(m, error, &r->fits[m]);
    }
    t->wrong += wrong > 0;
    t->found += wrong > 0 && found == wrong;
    t->fine += wrong == 0;
    t->alarms += wrong == 0 && doubted > 0;
}

static int fault_run(const fault *f, uint64_t seed, bool loud, totals *t)
{
    sim_config c = sim_defaults(seed);
    pp_regression_result *r = NULL;
    pp_error err = {0};
    change(f->condition, &c);
    if (f->tenant > 0)
        c.tenant = f->tenant;
    sim *s = sim_new(&c);
    s->in.options.without = f->without | PP_REGRESSION_DOUBTS;
    s->in.options.lag_error_ns = (int64_t)(f->lag_error * c.window * 1e9);
    const int rc = pp_regression_solve(&s->in, &r, &err);
    if (rc == 0)
        judge(s, r, loud, t);
    else
        (void)fprintf(stderr, "regression-quality: %s\n", err.message);
    pp_regression_result_free(r);
    sim_free(s);
    return rc;
}

static void print_totals(const char *name, const fault *f, const totals *t)
{
    printf("{\"case\": \"%s\", \"without\": %u, \"lag_error\": %.3g, \"tenant\": %.3g, "
           "\"runs\": %zu, \"lag_not_known\": %zu, \"wrong\": %zu, \"found\": %zu, "
           "\"not_wrong\": %zu, \"in_doubt\": %zu}\n",
           name, f->without, f->lag_error, f->tenant, t->runs, t->untold, t->wrong, t->found,
           t->fine, t->alarms);
    (void)fflush(stdout);
}

static void add(totals *to, const totals *from)
{
    to->runs += from->runs;
    to->wrong += from->wrong;
    to->found += from->found;
    to->fine += from->fine;
    to->alarms += from->alarms;
    to->untold += from->untold;
}

int main(int argc, char **argv)
{
    const int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 40000;
    totals faulty = {0}, clean = {0};
    if (runs < 1 || runs > 100000) {
        (void)fprintf(stderr, "usage: regression-quality [RUNS [SEED [CASE [-v]]]]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        totals t = {0};
        if (argc > 3 && !strstr(faults[i].condition, argv[3]))
            continue;
        for (int k = 0; k < runs; k++)
            if (fault_run(&faults[i], seed + i * 1000 + (uint64_t)k, argc > 4, &t) < 0)
                return 1;
        print_totals(faults[i].condition, &faults[i], &t);
        add(faults[i].clean ? &clean : &faulty, &t);
    }
    print_totals("all that are faulty", &(fault){0}, &faulty);
    print_totals("all that are clean", &(fault){0}, &clean);
    return 0;
}
