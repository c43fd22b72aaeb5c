/*
 * What each part of Regression is worth: all conditions and scenarios, each part left out in turn.
 * One JSON object per part and line: in how many cases values are right, withheld, or wrong, which
 * cases it turns, and what the values come to. Usage: regression-ablation [RUNS [SEED [PART]]]
 * (default 4, 80000, all).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/regression/tests/conditions.h"
#include "estimate/regression/tests/scenarios.h"
#include "estimate/regression/tests/totals.h"

enum { CASES_MAX = 64 };

static const struct {
    const char *name;
    unsigned bit;
} parts[] = {
    {"nothing", 0},
    {"the collections' period", PP_REGRESSION_PERIOD},
    {"grids of an exporter started anew", PP_REGRESSION_RESTARTS},
    {"matching of scrapes by values", PP_REGRESSION_MATCHING},
    {"lags held against each other", PP_REGRESSION_RIVALS},
    {"a metric's own windows", PP_REGRESSION_OWN_WINDOWS},
    {"draws of each step", PP_REGRESSION_DRAWS},
    {"draws that a step's items have in common", PP_REGRESSION_COMMON},
    {"values of the steps that were", PP_REGRESSION_REALISED},
    {"the prior", PP_REGRESSION_PRIOR},
    {"bounds", PP_REGRESSION_BOUNDS},
    {"the sandwich", PP_REGRESSION_SANDWICH},
    {"the lag's standard error", PP_REGRESSION_LAG_ERROR},
    {"few windows", PP_REGRESSION_FEW_WINDOWS},
    {"groups", PP_REGRESSION_GROUPS},
    {"the job's mean by the fit", PP_REGRESSION_JOB},
    {"doubts", PP_REGRESSION_DOUBTS},
    {"clocks that differ", PP_REGRESSION_CLOCKS},
};

typedef struct test_case {
    const char *name;
    void (*change)(sim_config *c);
    const char *verdict; /* with all parts */
} test_case;

/* The hour takes as long as all others together. */
static size_t cases_list(test_case *cases)
{
    size_t n = 0;
    for (size_t i = 0; i < sim_condition_count; i++)
        cases[n++] = (test_case){sim_conditions[i].name, sim_conditions[i].change, NULL};
    for (size_t i = 0; i < sim_scenario_count && n < CASES_MAX; i++)
        if (strcmp(sim_scenarios[i].name, "one hour") != 0)
            cases[n++] = (test_case){sim_scenarios[i].name, sim_scenarios[i].change, NULL};
    return n;
}

static int case_run(const test_case *v, unsigned without, int runs, uint64_t seed, sim_totals *t)
{
    pp_error err = {0};
    for (int i = 0; i < runs; i++) {
        sim_config c = sim_defaults(seed + (uint64_t)i);
        v->change(&c);
        if (sim_totals_run(t, &c, without, &err) < 0) {
            (void)fprintf(stderr, "regression-ablation: %s: %s\n", v->name, err.message);
            return -1;
        }
    }
    return 0;
}

static void print_part(const char *name, const size_t counts[4], const sim_totals *t)
{
    const double n = t->n ? (double)t->n : 1, k = t->runs;
    printf("{\"without\": \"%s\", \"right\": %zu, \"withheld\": %zu, \"not_right\": %zu, "
           "\"wrong\": %zu, \"reported_share\": %.3g, \"groups\": %.3g, \"error_points\": %.3g, "
           "\"rms_z\": %.3g, \"within_3_se\": %.4g, \"beyond_5_se\": %.3g, "
           "\"job_error_worst\": %.3g, \"seconds\": %.3g, \"turned\": [",
           name, counts[0], counts[1], counts[2], counts[3], t->reported / k, t->grouped / k,
           t->error / n, sqrt(t->z2 / n), (double)t->within3 / n, (double)t->beyond5 / n, t->job,
           t->seconds / k);
}

static size_t index_of(const char *verdict)
{
    static const char *const verdicts[] = {"right", "withheld", "not right"};
    for (size_t i = 0; i < 3; i++)
        if (strcmp(verdict, verdicts[i]) == 0)
            return i;
    return 3;
}

static int part_run(size_t part, test_case *cases, size_t n, int runs, uint64_t seed)
{
    size_t counts[4] = {0}, turned[CASES_MAX], n_turned = 0;
    const char *verdicts[CASES_MAX];
    sim_totals all = {0};
    for (size_t i = 0; i < n; i++) {
        sim_totals t = {0};
        if (case_run(&cases[i], parts[part].bit, runs, seed + 100 * i, &t) < 0)
            return -1;
        sim_totals_add(&all, &t);
        verdicts[i] = sim_totals_verdict(&t);
        counts[index_of(verdicts[i])]++;
        if (parts[part].bit == 0)
            cases[i].verdict = verdicts[i];
        else if (strcmp(verdicts[i], cases[i].verdict) != 0)
            turned[n_turned++] = i;
    }
    print_part(parts[part].name, counts, &all);
    for (size_t i = 0; i < n_turned; i++)
        printf("%s\"%s: %s\"", i ? ", " : "", cases[turned[i]].name, verdicts[turned[i]]);
    printf("]}\n");
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    const int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 80000;
    test_case cases[CASES_MAX];
    const size_t n = cases_list(cases);
    if (runs < 1 || runs > 100) {
        (void)fprintf(stderr, "usage: regression-ablation [RUNS [SEED [PART]]]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (i > 0 && argc > 3 && !strstr(parts[i].name, argv[3]))
            continue;
        if (part_run(i, cases, n, runs, seed) < 0)
            return 1;
    }
    return 0;
}
