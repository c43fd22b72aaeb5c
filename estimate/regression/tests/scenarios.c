/* Trainings, exporters and scrapes as they come, in which Regression is to be right. */
#include "estimate/regression/tests/scenarios.h"

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

const sim_scenario sim_scenarios[] = {
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

const size_t sim_scenario_count = sizeof sim_scenarios / sizeof sim_scenarios[0];
