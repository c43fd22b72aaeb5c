/*
 * What Regression makes of data that break an assumption of its: one JSON object per condition and
 * line. Each is to be right (1.5 points, 97 % within 3 standard errors) or withheld; confident and
 * wrong is more than 1 % of values beyond 5. Usage: regression-conditions [RUNS [CONDITION [SEED]]]
 * (default 40, all, 9000).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "estimate/regression/tests/conditions.h"

typedef struct totals {
    double reported, error, worst, z2, job;
    size_t n, within3, beyond5, silent; /* silent: runs that tell no layer */
} totals;

static int run_one(const sim_config *c, totals *t)
{
    sim *s = sim_new(c);
    pp_regression_result *r = NULL;
    pp_error err = {0};
    if (pp_regression_solve(&s->in, &r, &err) < 0) {
        (void)fprintf(stderr, "regression-conditions: %s\n", err.message);
        sim_free(s);
        return -1;
    }
    sim_score q;
    sim_score_of(s, r, &q);
    t->reported += q.reported;
    t->error += q.error * (double)q.n;
    t->worst = fmax(t->worst, q.worst);
    t->z2 += q.z2;
    t->n += q.n;
    t->within3 += q.within3;
    t->beyond5 += q.beyond5;
    t->silent += q.n == 0;
    t->job = fmax(t->job, q.job_error);
    pp_regression_result_free(r);
    sim_free(s);
    return 0;
}

static const char *verdict(double error, double within3, double beyond5, size_t n)
{
    if (n == 0)
        return "withheld";
    if (error <= 1.5 && within3 >= 0.97 && beyond5 < 0.01)
        return "right";
    return beyond5 < 0.01 ? "not right" : "confident and wrong";
}

static int condition_run(const sim_condition *v, int runs, uint64_t seed)
{
    totals t = {0};
    for (int i = 0; i < runs; i++) {
        sim_config c = sim_defaults(seed + (uint64_t)i);
        v->change(&c);
        if (run_one(&c, &t) < 0)
            return -1;
    }
    double n = (double)t.n, k = runs;
    double error = t.n ? t.error / n : 0, within3 = t.n ? (double)t.within3 / n : 0;
    double beyond5 = t.n ? (double)t.beyond5 / n : 0;
    printf("{\"condition\": \"%s\", \"runs\": %d, \"verdict\": \"%s\", \"reported_share\": %.3g, "
           "\"runs_without_a_value\": %zu, \"error_points\": %.3g, \"worst_points\": %.3g, "
           "\"rms_z\": %.3g, \"within_3_se\": %.4g, \"beyond_5_se\": %.3g, "
           "\"job_error_worst\": %.3g}\n",
           v->name, runs, verdict(error, within3, beyond5, t.n), t.reported / k, t.silent, error,
           t.worst, t.n ? sqrt(t.z2 / n) : 0, within3, beyond5, t.job);
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 40;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 9000;
    if (runs < 1 || runs > 100000) {
        (void)fprintf(stderr, "usage: regression-conditions [RUNS [CONDITION [SEED]]]\n");
        return 2;
    }
    for (size_t i = 0; i < sim_condition_count; i++) {
        if (argc > 2 && !strstr(sim_conditions[i].name, argv[2]))
            continue;
        if (condition_run(&sim_conditions[i], runs, seed) < 0)
            return 1;
    }
    return 0;
}
