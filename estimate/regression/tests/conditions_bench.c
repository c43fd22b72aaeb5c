/*
 * What Regression makes of data that break an assumption of its: one JSON object per condition and
 * line. Each is to be right (1.5 points, 97 % within 3 standard errors) or withheld; confident and
 * wrong is more than 1 % of values beyond 5. Usage: regression-conditions [RUNS [CONDITION [SEED]]]
 * (default 40, all, 9000).
 */
#include <math.h>
#include <stdio.h>

#include "estimate/regression/tests/conditions.h"
#include "estimate/regression/tests/totals.h"

static int condition_run(const sim_condition *v, int runs, uint64_t seed)
{
    sim_totals t = {0};
    pp_error err = {0};
    for (int i = 0; i < runs; i++) {
        sim_config c = sim_defaults(seed + (uint64_t)i);
        v->change(&c);
        if (sim_totals_run(&t, &c, 0, &err) < 0) {
            (void)fprintf(stderr, "regression-conditions: %s\n", err.message);
            return -1;
        }
    }
    const double n = t.n ? (double)t.n : 1, k = runs;
    printf("{\"condition\": \"%s\", \"runs\": %d, \"verdict\": \"%s\", \"reported_share\": %.3g, "
           "\"runs_without_a_value\": %zu, \"error_points\": %.3g, \"worst_points\": %.3g, "
           "\"rms_z\": %.3g, \"within_3_se\": %.4g, \"beyond_5_se\": %.3g, "
           "\"job_error_worst\": %.3g, \"misread\": %.3g, \"clocks_found\": %.3g}\n",
           v->name, runs, sim_totals_verdict(&t), t.reported / k, t.silent, t.error / n, t.worst,
           sqrt(t.z2 / n), (double)t.within3 / n, (double)t.beyond5 / n, t.job,
           t.windows ? (double)t.misread / (double)t.windows : 0, (double)t.clocks / k);
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    return sim_conditions_main(argc, argv, condition_run);
}
