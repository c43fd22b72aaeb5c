/* Standard errors of items from what they come from. */
#include "estimate/sampling/solve_internal.h"

#include <math.h>

/* Of a value: by so much a kernel's may differ from one capture to the next, with the clocks, the
 * caches and the data, where one capture alone cannot tell by how much it does. */
#define UNSEEN 0.01

/* What all items say of an item's variance counts as much as so many captures more. */
#define POOLED 4.0

/* An item that is in so many captures, each as long, tells how they differ. */
#define LEAST_CAPTURES 1.5

enum { ROUNDS = 8 };

/* Variance of values from capture to capture as a share of their squares, beyond what samples
 * leave open: a line through 0 of the excess over the squares, weighted by what each excess may
 * scatter by at that line. NaN where no item is in several captures. */
static double find_between(const pp_sampling_causes *c, size_t n)
{
    double between = (double)NAN;
    for (int round = 0; round < ROUNDS; round++) {
        double xy = 0, xx = 0;
        for (size_t i = 0; i < n; i++) {
            const double x = c[i].mean * c[i].mean / c[i].count;
            const double variance = c[i].samples + (round ? between * x : 0);
            /* Where the prior decides captures move nothing, whatever they differ by. */
            if (c[i].count < LEAST_CAPTURES || variance <= 0 || c[i].prior > c[i].samples)
                continue;
            xy += x * (c[i].captures - c[i].samples) / (variance * variance);
            xx += x * x / (variance * variance);
        }
        if (xx <= 0)
            return (double)NAN;
        between = fmax(0, xy / xx);
    }
    return between;
}

double pp_sampling_errors(const pp_sampling_causes *causes, size_t n, double *ret)
{
    const double found = find_between(causes, n);
    const double between = isnan(found) ? UNSEEN * UNSEEN : found;
    for (size_t i = 0; i < n; i++) {
        const pp_sampling_causes *c = &causes[i];
        const double more = c->count - 1;
        double variance = c->samples + between * c->mean * c->mean / c->count;
        if (c->count >= LEAST_CAPTURES)
            variance = (POOLED * variance + more * c->captures) / (POOLED + more);
        ret[i] = sqrt(variance + c->prior + c->lag + c->clock);
    }
    return sqrt(between);
}
