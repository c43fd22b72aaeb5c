/*
 * How right attribution is on simulated trainings, beside the plain overlap-weighted mean: one JSON
 * object per scenario and line. Usage: regression-bench [RUNS [SCENARIO]] (default 50, all).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "estimate/regression/tests/sim.h"

typedef struct scenario {
    const char *name;
    void (*change)(sim_config *c);
} scenario;

typedef struct totals {
    double reported, least, error, worst, bias, plain, z2, group_z2, job, end2, seconds;
    size_t n, within3, groups, known;
    double within3_worst;
} totals;

static void main_job(sim_config *c)
{
    (void)c;
}

static void short_phases(sim_config *c)
{
    c->short_phases = true;
}

static void step_1500_ms(sim_config *c)
{
    c->step = 1.5;
}

static void step_6_s(sim_config *c)
{
    c->step = 6;
}

static void steady_durations(sim_config *c)
{
    c->contention = 0;
}

static void delay_beyond_window(sim_config *c)
{
    c->delay = 0.4;
}

static void delay_jitter_100_ms(sim_config *c)
{
    c->delay_jitter = 0.1;
}

static void scrapes_of_100_ms(sim_config *c)
{
    c->scrape = 0.1;
}

static void scrapes_of_1_s(sim_config *c)
{
    c->scrape = 1;
}

static void no_hints(sim_config *c)
{
    c->no_hints = true;
}

static void in_step_and_stalled(sim_config *c)
{
    c->drift = 0;
    c->read_late = 0.004;
    c->stalls = 0.1;
    c->stall = 0.15;
}

static void read_100_ms_late(sim_config *c)
{
    c->delay = 0;
    c->read_late = 0.1;
}

static void published_1_s_late(sim_config *c)
{
    c->delay = 1;
}

static void lost_scrapes_gaps_idle(sim_config *c)
{
    c->lost = 0.2;
    c->captures = 4;
    c->idle = 0.5;
}

static void cells_of_10_ms(sim_config *c)
{
    c->grid = true;
}

static void whole_percent(sim_config *c)
{
    c->whole_percent = true;
}

static void late_marks_5_ms(sim_config *c)
{
    c->late_marks = 0.005;
}

static void late_marks_20_ms(sim_config *c)
{
    c->late_marks = 0.02;
}

static void window_edges_10_ms(sim_config *c)
{
    c->edge_jitter = 0.01;
}

static void window_edges_50_ms(sim_config *c)
{
    c->edge_jitter = 0.05;
}

static void windows_of_1_s(sim_config *c)
{
    c->window = c->scrape = 1;
    c->duration = 300;
}

static void windows_of_15_s(sim_config *c)
{
    c->window = c->scrape = 15;
}

static void step_50_ms_windows_1_s(sim_config *c)
{
    c->window = c->scrape = 1;
    c->step = 0.05;
}

static void forty_layers(sim_config *c)
{
    c->layers = 40;
    c->step = 6;
}

static void twenty_seconds(sim_config *c)
{
    c->duration = 20;
}

static void scrapes_pause(sim_config *c)
{
    c->outage = 30;
}

static void exporter_restarts(sim_config *c)
{
    c->outage = 10;
    c->restart = true;
    c->zeros = 2;
}

static void one_hour(sim_config *c)
{
    c->duration = 3600;
}

static const scenario scenarios[] = {
    {"main job: 3 s steps, 250 ms windows, 135 s", main_job},
    {"zero_grad, data and communication of 3 ms each", short_phases},
    {"1.5 s steps", step_1500_ms},
    {"6 s steps", step_6_s},
    {"steady durations", steady_durations},
    {"published 0.4 s late", delay_beyond_window},
    {"publication jitters by 100 ms", delay_jitter_100_ms},
    {"scraped every 100 ms", scrapes_of_100_ms},
    {"scraped every 1 s", scrapes_of_1_s},
    {"no hints", no_hints},
    {"in step with collections, a tenth stalled by 150 ms", in_step_and_stalled},
    {"read 100 ms late", read_100_ms_late},
    {"published 1 s late", published_1_s_late},
    {"20 % of scrapes lost, 4 captures, idle", lost_scrapes_gaps_idle},
    {"no scrape for 30 s", scrapes_pause},
    {"exporter started anew, away for 10 s", exporter_restarts},
    {"activity on 10 ms cells", cells_of_10_ms},
    {"GPU_UTIL in whole percent", whole_percent},
    {"a tenth of the stamps 5 ms late", late_marks_5_ms},
    {"a tenth of the stamps 20 ms late", late_marks_20_ms},
    {"window edges jitter by 10 ms", window_edges_10_ms},
    {"window edges jitter by 50 ms", window_edges_50_ms},
    {"1 s windows, 300 s", windows_of_1_s},
    {"15 s windows", windows_of_15_s},
    {"50 ms steps, 1 s windows", step_50_ms_windows_1_s},
    {"40 layers, 6 s steps", forty_layers},
    {"20 s only", twenty_seconds},
    {"one hour", one_hour},
};

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

static int scenario_run(const scenario *v, int runs)
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
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (argc > 2 && !strstr(scenarios[i].name, argv[2]))
            continue;
        if (scenario_run(&scenarios[i], runs) < 0)
            return 1;
    }
    return 0;
}
