/* Assumptions of Regression, each broken by itself. */
#include "estimate/regression/tests/conditions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clean(sim_config *c)
{
    (void)c;
}

static void clean_kernels(sim_config *c)
{
    c->kernels = true;
    c->contention = 0.2;
}

static void stalls(sim_config *c)
{
    c->kernels = true;
}

static void short_windows(sim_config *c)
{
    c->window = c->scrape = 0.1;
    c->step = 1;
}

static void stalls_100_ms(sim_config *c)
{
    c->kernels = true;
    short_windows(c);
}

static void stalls_untold(sim_config *c)
{
    stalls_100_ms(c);
    c->kernels_untold = true;
}

static void lengths(sim_config *c)
{
    c->lengths = 0.3;
    c->rise = 0.5;
    c->contention = 0.2;
}

static void util_of_1_s(sim_config *c)
{
    c->util_period = 1;
    short_windows(c);
}

static void util_of_a_sixth(sim_config *c)
{
    c->util_period = 1.0 / 6;
}

static void window_100_10_ms(sim_config *c)
{
    c->window = 0.1001;
    c->scrape = c->window_hint = 0.1;
    c->step = 1;
}

static void window_100_25_ms(sim_config *c)
{
    c->window = 0.10025;
    c->scrape = c->window_hint = 0.1;
    c->step = 1;
}

static void window_250_25_ms(sim_config *c)
{
    c->window = 0.25025;
    c->scrape = c->window_hint = 0.25;
}

static void tenant_kernels(sim_config *c)
{
    c->tenant = 0.2;
    c->kernels = true;
}

static void multiplexed(sim_config *c)
{
    c->multiplexed = true;
}

static void throttled(sim_config *c)
{
    c->throttle = 0.3;
    c->contention = 0.2;
}

static void shuffled(sim_config *c)
{
    c->shuffled = true;
}

/* A lag that is wrong by a layer's length deals all values to the layers' neighbours. */
static void even(sim_config *c)
{
    c->even = true;
    c->layers = 3;
    c->step = 1.2;
}

static void captures_of_10_s(sim_config *c)
{
    c->captures = 12;
    c->duration = 120;
    short_windows(c);
}

static void one_of_4_s(sim_config *c)
{
    c->duration = 4;
    c->step = 0.5;
    c->window = c->scrape = 0.1;
}

static void since_before(sim_config *c)
{
    c->since_before = true;
    c->kernels = true;
    c->contention = 0.2;
    c->window = 0.1;
    c->scrape = 0.105;
    c->scrape_jitter = 0.005;
    c->step = 1;
}

/* The driver's two clocks: of windows, and of the timer that takes them over. */
static void two_clocks(sim_config *c)
{
    since_before(c);
    c->scrape = 0.1035;
    c->delay = 0.01;
    c->delay_jitter = 0.003;
    c->taken_every = 0.10014;
}

/* As long a run as somebody waits for, of a training that hardly varies. */
static void two_clocks_steady(sim_config *c)
{
    two_clocks(c);
    c->taken_spread = 0.8;
    c->window = 0.10003;
    c->window_hint = 0.1;
    c->duration = 60;
    c->step = 0.7;
    c->layers = 5;
    c->contention = 0;
}

/* Most layers leave most of a metric alone, so that most windows are exactly as told. */
static void two_clocks_sparse(sim_config *c)
{
    two_clocks_steady(c);
    c->sparse = 0.8;
    c->noise = 0.0005;
}

/* As on an H200, where products run at a lower clock than what is beside them. */
static void clocks(sim_config *c)
{
    two_clocks(c);
    c->clocks = 0.15;
}

static void clocks_half(sim_config *c)
{
    clocks(c);
    c->slow = 0.5;
}

static void clocks_near(sim_config *c)
{
    clocks_half(c);
    c->clocks = 0.05;
}

const sim_condition sim_conditions[] = {
    {"clean", clean, SIM_RIGHT, false},
    {"clean, kernels known", clean_kernels, SIM_RIGHT, false},
    {"stalls, work conserved", stalls, SIM_RIGHT, true},
    {"stalls, 1 s steps, 100 ms windows", stalls_100_ms, SIM_RIGHT, false},
    {"the same, kernels not told", stalls_untold, SIM_EITHER, false},
    {"lengths that raise values", lengths, SIM_RIGHT, true},
    {"GPU_UTIL over 1 s, windows of 100 ms", util_of_1_s, SIM_RIGHT, false},
    {"GPU_UTIL over 1/6 s, windows of 250 ms", util_of_a_sixth, SIM_RIGHT, false},
    {"100.10 ms told as 100", window_100_10_ms, SIM_RIGHT, false},
    {"100.25 ms told as 100", window_100_25_ms, SIM_RIGHT, true},
    {"250.25 ms told as 250", window_250_25_ms, SIM_RIGHT, false},
    {"a tenant's 20 points, kernels known", tenant_kernels, SIM_WITHHELD, false},
    {"multiplexed counters", multiplexed, SIM_RIGHT, true},
    {"throttled by 30 % in spells", throttled, SIM_EITHER, false},
    {"labels shuffled in each step", shuffled, SIM_WITHHELD, false},
    {"layers of equal lengths that never vary", even, SIM_WITHHELD, false},
    {"read every 105 ms, of windows of 100 ms since", since_before, SIM_RIGHT, true},
    {"taken over by a timer of 100.14 ms", two_clocks, SIM_RIGHT, false},
    {"taken over by a timer that varies, 60 s, steady", two_clocks_steady, SIM_RIGHT, true},
    {"the same, each metric of few layers", two_clocks_sparse, SIM_RIGHT, false},
    {"a quarter of the layers at a clock 15 % lower", clocks, SIM_RIGHT, true},
    {"half of the layers at a clock 15 % lower", clocks_half, SIM_RIGHT, false},
    {"half of the layers at a clock 5 % lower", clocks_near, SIM_RIGHT, false},
    {"12 captures of 10 s", captures_of_10_s, SIM_RIGHT, false},
    {"4 s in all", one_of_4_s, SIM_WITHHELD, false},
};

const size_t sim_condition_count = sizeof sim_conditions / sizeof sim_conditions[0];

int sim_conditions_main(int argc, char **argv,
                        int (*run)(const sim_condition *v, int runs, uint64_t seed))
{
    const int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 40;
    const uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 9000;
    if (runs < 1 || runs > 100000) {
        (void)fprintf(stderr, "usage: %s [RUNS [CONDITION [SEED]]]\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < sim_condition_count; i++) {
        if (argc > 2 && !strstr(sim_conditions[i].name, argv[2]))
            continue;
        if (run(&sim_conditions[i], runs, seed) < 0)
            return 1;
    }
    return 0;
}
