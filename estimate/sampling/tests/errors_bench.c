/*
 * Prints whether standard errors are right where the truth is known: for each condition a line of
 * JSON, over so many runs of models drawn anew; with `parts` one for each part of the solution that
 * is left out, too.
 *
 * usage: sampling-errors [RUNS [SEED [parts|whole [CONDITION]]]]
 *
 * CONDITION: a part of the names of those that are wanted.
 */
#include "estimate/sampling/tests/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct condition {
    const char *name;
    int captures;               /* 0: six */
    void (*set)(sim_config *c); /* NULL: nothing else is another */
} condition;

typedef struct total {
    double n, z2, within, error, between;
} total;

enum { CLASSES = 3 };
static const double bounds[CLASSES + 1] = {0, 10, 50, 1e9};

static void short_captures(sim_config *c)
{
    c->capture = 0.1;
}
static void launch_bound(sim_config *c)
{
    c->kernels = 85, c->length = 8, c->gap[0] = 5, c->gap[1] = 60;
}
static void changing_order(sim_config *c)
{
    c->shuffled = true;
}
static void side_by_side(sim_config *c)
{
    c->parallel = 7;
}
static void samples_lost(sim_config *c)
{
    c->lost = 0.05;
}
static void period_of_50(sim_config *c)
{
    c->period = 50;
}
static void short_kernels(sim_config *c)
{
    c->length = 6;
}
static void steady(sim_config *c)
{
    c->cv = 0;
}
static void differ(sim_config *c)
{
    c->between = 0.03;
}
static void clocks(sim_config *c)
{
    c->clocks = 0.02;
}
static void noisy(sim_config *c)
{
    c->noise = 0.02;
}

static void running_out(sim_config *c)
{
    c->tail = 0.3;
}
/* The clock is nobody's that is known, and drifts. */
static void by_data(sim_config *c)
{
    c->drift = 5e-6, c->stamped = c->rate = 0;
}
static void by_data_running_out(sim_config *c)
{
    by_data(c);
    c->tail = 0.1;
}

static void large(sim_config *c)
{
    c->kernels = 950, c->length = 15, c->spread = 1.1, c->period = 100, c->capture = 0.6;
}
static void large_and_launch_bound(sim_config *c)
{
    large(c);
    c->gap[0] = 5, c->gap[1] = 60;
}

/* Networks whose layers are alike: what is told of seven is in docs/sampling.md. */
static void alike(sim_config *c)
{
    large(c);
    c->alike = 120, c->unlike = 0.01;
}
static void alike_and_launch_bound(sim_config *c)
{
    large_and_launch_bound(c);
    c->alike = 120, c->unlike = 0.01;
}
static void alike_by_name(sim_config *c)
{
    large(c);
    c->alike = 120, c->unlike = 1;
}
static void alike_at_25(sim_config *c)
{
    alike(c);
    c->period = 25;
}

/* Memory is cleared before kernels of each layer, and nobody tells. */
static void cleared(sim_config *c)
{
    alike(c);
    c->alike = 24, c->pause = 1000, c->cleared = 4, c->clearing = 16, c->fill = 6, c->untold = true;
}
static void cleared_one(sim_config *c)
{
    cleared(c);
    c->cleared = 1;
}
/* The same gaps, and nothing runs in them. */
static void not_cleared(sim_config *c)
{
    cleared(c);
    c->fill = 0.01;
}
/* The host is late, and what an operation in place leaves is copied right before it. */
static void copied(sim_config *c)
{
    alike(c);
    c->length = 30, c->capture = 1.2, c->gap[0] = 20, c->gap[1] = 100;
    c->alike = 24, c->cleared = 3, c->clearing = 120, c->fill = 5, c->untold = true;
}

static const condition conditions[] = {
    {"one capture", 1, NULL},
    {"two captures", 2, NULL},
    {"four captures", 4, NULL},
    {"ten captures", 10, NULL},
    {"forty short captures", 40, short_captures},
    {"launch-bound", 0, launch_bound},
    {"layers in changing order", 0, changing_order},
    {"kernels side by side", 0, side_by_side},
    {"one sample in twenty lost", 0, samples_lost},
    {"50 us between samples", 0, period_of_50},
    {"short kernels", 0, short_kernels},
    {"values alike in each step", 0, steady},
    {"noise of 2 points", 0, noisy},
    {"captures differ by 3 %", 0, differ},
    {"two captures, which differ by 3 %", 2, differ},
    {"captures differ by 2 %, all kernels alike", 0, clocks},
    {"kernels run out over up to 0.3 of their length", 0, running_out},
    {"lag by the data", 0, by_data},
    {"lag by the data, kernels run out over up to 0.1 of their length", 0, by_data_running_out},
    {"950 kernels, 100 us between samples, one capture", 1, large},
    {"the same, three captures", 3, large},
    {"950 kernels, 100 us between samples, launch-bound, one capture", 1, large_and_launch_bound},
    {"the same, three captures", 3, large_and_launch_bound},
    {"950 kernels of layers that are alike, 100 us between samples, one capture", 1, alike},
    {"layers that are alike, three captures", 3, alike},
    {"layers that are alike, ten captures", 10, alike},
    {"layers that are alike, 25 us between samples, three captures", 3, alike_at_25},
    {"layers that are alike, launch-bound, one capture", 1, alike_and_launch_bound},
    {"layers that are alike, launch-bound, three captures", 3, alike_and_launch_bound},
    {"950 kernels of the same names that are not alike, three captures", 3, alike_by_name},
    {"fills that nobody tells in four gaps of a layer, one capture", 1, cleared},
    {"fills that nobody tells in four gaps of a layer, three captures", 3, cleared},
    {"fills that nobody tells in one gap of a layer, one capture", 1, cleared_one},
    {"copies that nobody tells at the ends of long gaps, one capture", 1, copied},
    {"copies that nobody tells at the ends of long gaps, three captures", 3, copied},
    {"four gaps of a layer without fills, one capture", 1, not_cleared},
};

/* What may be left out; "" is all of it. */
static const struct {
    const char *name;
    unsigned bit;
} parts[] = {
    {"", 0},
    {"links of parts", PP_SAMPLING_LINKS},
    {"gaps by their samples", PP_SAMPLING_GAPS},
    {"the prior's scale", PP_SAMPLING_SCALE},
    {"columns that samples decide", PP_SAMPLING_DECIDED},
    {"captures in standard errors", PP_SAMPLING_BETWEEN},
    {"the lag in standard errors", PP_SAMPLING_LAG},
    {"kernels that are alike", PP_SAMPLING_ALIKE},
    {"gaps in which something ran", PP_SAMPLING_WORK},
};
enum { PARTS = sizeof parts / sizeof *parts };

static void add_scores(const sim *s, unsigned without, total *totals)
{
    pp_sampling_result *r = NULL;
    pp_error err = {0};
    if (pp_sampling_solve_without(without, (const pp_sampling_sums *const *)s->captures,
                                  s->n_captures, &r, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    for (int i = 0; i < CLASSES; i++) {
        const sim_score score = sim_compare(s, r, bounds[i], bounds[i + 1]);
        const double n = (double)score.n;
        if (n == 0)
            continue;
        totals[i].n += n;
        totals[i].z2 += n * score.z * score.z;
        totals[i].within += n * score.within;
        totals[i].error += n * score.error;
        totals[i].between += n * r->between[0];
    }
    pp_sampling_result_free(r);
}

static void add_run(const sim_config *c, size_t n, total totals[][CLASSES])
{
    sim s;
    sim_run(&s, c);
    for (size_t i = 0; i < n; i++)
        add_scores(&s, parts[i].bit, totals[i]);
    sim_free(&s);
}

static void print(const condition *c, const char *without, const total *totals)
{
    (void)printf("{\"condition\": \"%s\"", c->name);
    if (*without)
        (void)printf(", \"without\": \"%s\"", without);
    for (int i = CLASSES; i-- > 0;) {
        const total *t = &totals[i];
        if (t->n > 0)
            (void)printf(", \"%g us\": {\"values\": %.0f, \"error\": %.2f, \"within_2_se\": %.3f, "
                         "\"z\": %.2f, \"between\": %.4f}",
                         bounds[i], t->n, t->error / t->n, t->within / t->n, sqrt(t->z2 / t->n),
                         t->between / t->n);
    }
    (void)printf("}\n");
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    const long runs = argc > 1 ? strtol(argv[1], NULL, 10) : 3;
    const long seed = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
    const size_t n = argc > 3 && strcmp(argv[3], "parts") == 0 ? PARTS : 1;
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        total totals[PARTS][CLASSES] = {0};
        if (argc > 4 && !strstr(conditions[i].name, argv[4]))
            continue;
        for (long run = 0; run < runs; run++) {
            sim_config c = sim_usual((uint64_t)(seed + run + 1000 * (long)i));
            c.kernels = 200, c.length = 30, c.capture = 0.25, c.drift = 0;
            c.stamped = 0.3, c.rate = 2e-6; /* as on H200s */
            c.captures = conditions[i].captures ? conditions[i].captures : 6;
            if (conditions[i].set)
                conditions[i].set(&c);
            add_run(&c, n, totals);
        }
        for (size_t p = 0; p < n; p++)
            print(&conditions[i], parts[p].name, totals[p]);
    }
    return 0;
}
