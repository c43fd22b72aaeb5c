/*
 * Whether PM sampling's quality finds what is wrong: runs that go wrong on purpose and runs in
 * which nothing does. A run is wrong where the values of a metric err by more than 3 points, over
 * items of 10 us and more; it is found where every such metric is in doubt, or no capture is taken
 * at all. One JSON object per case and line, then one of all. Usage: sampling-quality [RUNS [SEED
 * [CASE [-v]]]] (default 5, 1000).
 */
#include "estimate/sampling/tests/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRONG 3.0 /* points */

typedef struct fault {
    const char *name;
    int kernels;
    double length, gap[2];
    double wrong, tenant;
    bool dealt, parallel;
} fault;

static const fault faults[] = {
    {"back to back", 600, 40, {0.7, 1.2}, 0, 0, false, false},
    {"short kernels", 400, 8, {0.7, 1.2}, 0, 0, false, false},
    {"launch-bound", 85, 8, {5, 60}, 0, 0, false, false},
    {"side by side", 600, 40, {0.7, 1.2}, 0, 0, false, true},
    {"back to back, lag 30 us off", 600, 40, {0.7, 1.2}, 30, 0, false, false},
    {"back to back, lag -30 us off", 600, 40, {0.7, 1.2}, -30, 0, false, false},
    {"back to back, lag 200 us off", 600, 40, {0.7, 1.2}, 200, 0, false, false},
    {"short kernels, lag 30 us off", 400, 8, {0.7, 1.2}, 30, 0, false, false},
    {"short kernels, lag 200 us off", 400, 8, {0.7, 1.2}, 200, 0, false, false},
    {"launch-bound, lag 30 us off", 85, 8, {5, 60}, 30, 0, false, false},
    {"launch-bound, lag -200 us off", 85, 8, {5, 60}, -200, 0, false, false},
    {"back to back, a tenant's 5 points", 600, 40, {0.7, 1.2}, 0, 0.05, false, false},
    {"back to back, a tenant's 20 points", 600, 40, {0.7, 1.2}, 0, 0.2, false, false},
    {"launch-bound, a tenant's 5 points", 85, 8, {5, 60}, 0, 0.05, false, false},
    {"launch-bound, a tenant's 20 points", 85, 8, {5, 60}, 0, 0.2, false, false},
    {"back to back, names dealt anew", 600, 40, {0.7, 1.2}, 0, 0, true, false},
    {"launch-bound, names dealt anew", 85, 8, {5, 60}, 0, 0, true, false},
};

typedef struct totals {
    size_t runs, untold; /* untold: no capture could be joined */
    size_t wrong, found, fine, alarms;
} totals;

static double error_of(const sim *s, const pp_sampling_result *r, int m)
{
    double sum = 0, weight = 0;
    for (size_t i = 0; i < s->n_items; i++) {
        const sim_item *t = &s->items[i];
        for (size_t k = 0; k < r->n && t->kernel >= 10; k++)
            if (r->items[k].layer == t->layer && r->items[k].phase == t->phase) {
                sum += t->time * fabs(r->items[k].mean[m] - t->mean[m]);
                weight += t->time;
            }
    }
    return 100 * sum / weight;
}

static void judge(const sim *s, const pp_sampling_result *r, bool loud, totals *t)
{
    size_t wrong = 0, found = 0, doubted = 0;
    for (int m = 0; m < SIM_BUSY; m++) {
        const pp_sampling_quality *q = &r->quality[m];
        const double error = error_of(s, r, m);
        wrong += error > WRONG;
        found += error > WRONG && q->doubt != PP_SAMPLING_FITS;
        doubted += q->doubt != PP_SAMPLING_FITS;
        if (loud)
            (void)fprintf(
                stderr,
                "  %d: error %.2f doubt %d explained %.3f miss %.4f noise %.4f items %.0f "
                "z %.2f gap %.4f +- %.4f\n",
                m, error, (int)q->doubt, q->explained, q->miss, r->noise[m], q->items, q->items_z,
                q->gap, q->gap_stderr);
    }
    t->wrong += wrong > 0;
    t->found += wrong > 0 && found == wrong;
    t->fine += wrong == 0;
    t->alarms += wrong == 0 && doubted > 0;
}

static int fault_run(const fault *f, uint64_t seed, bool loud, totals *t)
{
    sim_config c = sim_usual(seed);
    pp_sampling_result *r = NULL;
    sim s;
    c.judged = true;
    c.kernels = f->kernels;
    c.length = f->length;
    c.gap[0] = f->gap[0];
    c.gap[1] = f->gap[1];
    c.wrong = f->wrong;
    c.tenant = f->tenant;
    c.dealt = f->dealt;
    c.parallel = f->parallel ? 7 : 0;
    c.captures = 6;
    sim_run(&s, &c);
    t->runs++;
    t->untold += s.n_captures == 0;
    const int rc = s.n_captures == 0
                       ? 0
                       : pp_sampling_solve((const pp_sampling_sums *const *)s.captures,
                                           s.n_captures, &r, NULL);
    if (r)
        judge(&s, r, loud, t);
    pp_sampling_result_free(r);
    sim_free(&s);
    return rc;
}

static void print_totals(const char *name, const totals *t)
{
    (void)printf("{\"case\": \"%s\", \"runs\": %zu, \"not_joined\": %zu, \"wrong\": %zu, "
                 "\"found\": %zu, \"not_wrong\": %zu, \"in_doubt\": %zu}\n",
                 name, t->runs, t->untold, t->wrong, t->found, t->fine, t->alarms);
    (void)fflush(stdout);
}

static void add(totals *to, const totals *from)
{
    to->runs += from->runs;
    to->untold += from->untold;
    to->wrong += from->wrong;
    to->found += from->found;
    to->fine += from->fine;
    to->alarms += from->alarms;
}

int main(int argc, char **argv)
{
    const int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 5;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    totals faulty = {0}, clean = {0};
    if (runs < 1 || runs > 100000) {
        (void)fprintf(stderr, "usage: sampling-quality [RUNS [SEED [CASE [-v]]]]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const fault *f = &faults[i];
        totals t = {0};
        if (argc > 3 && !strstr(f->name, argv[3]))
            continue;
        for (int k = 0; k < runs; k++)
            if (fault_run(f, seed + i * 1000 + (uint64_t)k, argc > 4, &t) < 0)
                return 1;
        print_totals(f->name, &t);
        add(f->wrong == 0 && f->tenant == 0 && !f->dealt ? &clean : &faulty, &t);
    }
    print_totals("all that are faulty", &faulty);
    print_totals("all that are clean", &clean);
    return 0;
}
