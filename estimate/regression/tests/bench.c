/*
 * How right attribution is on simulated trainings, beside the plain overlap-weighted mean: one JSON
 * object per scenario and line. Usage: regression-bench [RUNS [SCENARIO]] (default 50, all).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "estimate/regression/tests/scenarios.h"

typedef struct totals {
    double reported, least, error, worst, bias, plain, z2, group_z2, job, end2, seconds;
    size_t n, within3, groups, known;
    double within3_worst;
} totals;

static double cpu_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int run_one(const sim_config *c, totals *t)
{
    sim *s = sim_new(c);
    pp_regression_result *r = NULL;
    pp_error err = {0};
    double start = cpu_seconds();
    if (pp_regression_solve(&s->in, &r, &err) < 0) {
        (void)fprintf(stderr, "regression-bench: %s\n", err.message);
        sim_free(s);
        return -1;
    }
    t->seconds += cpu_seconds() - start;
    sim_score q;
    sim_score_of(s, r, &q);
    t->reported += q.reported;
    t->least = fmin(t->least, q.reported);
    t->error += q.error * (double)q.n;
    t->worst = fmax(t->worst, q.error);
    t->bias += q.bias * (double)q.n;
    t->plain += q.plain * (double)q.n;
    t->z2 += q.z2;
    t->n += q.n;
    t->within3 += q.within3;
    if (q.n > 0)
        t->within3_worst = fmin(t->within3_worst, (double)q.within3 / (double)q.n);
    t->group_z2 += q.group_z2;
    t->groups += q.groups;
    t->job = fmax(t->job, q.job_error);
    t->known += r->lag_known;
    t->end2 += r->lag_known ? q.end_error * q.end_error : 0;
    pp_regression_result_free(r);
    sim_free(s);
    return 0;
}

static void number(const char *name, double value, bool known)
{
    if (known && isfinite(value))
        printf(", \"%s\": %.4g", name, value);
    else
        printf(", \"%s\": null", name);
}

static int scenario_run(const sim_scenario *v, int runs)
{
    totals t = {.least = 1, .within3_worst = 1};
    for (int i = 0; i < runs; i++) {
        sim_config c = sim_defaults(5000 + (uint64_t)i);
        v->change(&c);
        if (run_one(&c, &t) < 0)
            return -1;
    }
    double n = (double)t.n, k = runs;
    printf("{\"scenario\": \"%s\", \"runs\": %d, \"lag_known\": %zu", v->name, runs, t.known);
    number("reported_share", t.reported / k, true);
    number("reported_share_least", t.least, true);
    number("error_points", t.error / n, t.n > 0);
    number("error_points_worst_run", t.worst, t.n > 0);
    number("bias_points", t.bias / n, t.n > 0);
    number("overlap_mean_error_points", t.plain / n, t.n > 0);
    number("rms_z", sqrt(t.z2 / n), t.n > 0);
    number("within_3_se", (double)t.within3 / n, t.n > 0);
    number("within_3_se_worst_run", t.within3_worst, t.n > 0);
    number("groups_per_run", (double)t.groups / k, true);
    number("rms_z_groups", sqrt(t.group_z2 / (double)t.groups), t.groups > 0);
    number("job_error_worst", t.job, true);
    number("window_end_rms_ms", sqrt(t.end2 / (double)t.known), t.known > 0);
    number("solve_seconds", t.seconds / k, true);
    printf("}\n");
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 50;
    if (runs < 1 || runs > 100000) {
        (void)fprintf(stderr, "usage: regression-bench [RUNS [SCENARIO]]\n");
        return 2;
    }
    for (size_t i = 0; i < sim_scenario_count; i++) {
        if (argc > 2 && !strstr(sim_scenarios[i].name, argv[2]))
            continue;
        if (scenario_run(&sim_scenarios[i], runs) < 0)
            return 1;
    }
    return 0;
}
