/* Prints how right PM sampling is where the truth is known: a line of JSON for each model. */
#include "estimate/sampling/tests/sim.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void print_class(const sim *s, const pp_sampling_result *r, double from, double to)
{
    sim_score c = sim_compare(s, r, from, to);
    if (c.n)
        (void)printf(", \"%g us\": {\"values\": %zu, \"error\": %.2f, \"p95\": %.2f, "
                     "\"within_2_se\": %.3f, \"z\": %.2f}",
                     from, c.n, c.error, c.p95, c.within, c.z);
}

static void measure(const char *name, const sim_config *c)
{
    sim s;
    pp_sampling_result *r = NULL;
    pp_error err = {0};
    double begun = now();
    sim_run(&s, c);
    double joined = now();
    if (pp_sampling_solve((const pp_sampling_sums *const *)s.captures, s.n_captures, &r, &err) <
        0) {
        (void)printf("{\"model\": \"%s\", \"error\": \"%s\"}\n", name, err.message);
        sim_free(&s);
        return;
    }
    (void)printf("{\"model\": \"%s\", \"seconds\": %.1f, \"columns\": %zu, \"pairs\": %zu, "
                 "\"lag_error_us\": %.2f, \"closure\": %.4f",
                 name, c->capture * c->captures, s.captures[0]->n, s.captures[0]->n_pairs,
                 s.lag_error, 100 * r->closure[0]);
    print_class(&s, r, 50, 1e9);
    print_class(&s, r, 10, 50);
    print_class(&s, r, 0, 10);
    (void)printf(", \"cpu_s\": [%.2f, %.2f]}\n", joined - begun, now() - joined);
    (void)fflush(stdout);
    pp_sampling_result_free(r);
    sim_free(&s);
}

int main(void)
{
    sim_config c = sim_usual(1);
    c.kernels = 85, c.length = 8, c.gap[0] = 5, c.gap[1] = 60;
    measure("launch-bound, 85 kernels", &c);
    c.kernels = 650, c.length = 25, c.gap[0] = 0.7, c.gap[1] = 1.2;
    measure("650 kernels", &c);
    c.captures = 40;
    measure("650 kernels, 20 s", &c);
    c.captures = 10;
    c.kernels = 600, c.length = 40;
    measure("600 kernels", &c);
    c.shuffled = true;
    measure("600 kernels in changing order", &c);
    c.shuffled = false;
    c.parallel = 7;
    measure("600 kernels, some side by side", &c);
    c.parallel = 0;
    c.lost = 0.05;
    measure("600 kernels, samples lost", &c);
    c.lost = 0;
    c.period = 50;
    measure("600 kernels, 50 us", &c);
    c.period = 25;
    c.kernels = 400, c.length = 6;
    measure("400 short kernels", &c);
    c = sim_usual(1);
    c.kernels = 900, c.length = 20, c.alike = 120, c.unlike = 0.01;
    measure("900 kernels of layers that are alike", &c);
    c.kernels = 3000, c.alike = 330;
    measure("3,000 kernels of layers that are alike", &c);
    return 0;
}
