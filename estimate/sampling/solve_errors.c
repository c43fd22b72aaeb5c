/* Standard errors of items from what they come from. */
#include "estimate/sampling/solve_internal.h"

#include <math.h>

/* Of a value: by so much a kernel's may differ from one capture to the next, with the clocks, the
 * caches and the data, where one capture alone cannot tell by how much it does. */
#define UNSEEN 0.01

/* What all items say of an item's variance counts as much as so many captures more. */
#define POOLED 4.0

enum { ROUNDS = 8 };

/* Variance of values from capture to capture as a share of their squares, beyond what samples
 * leave open: a line through 0 of the excess over the squares, weighted by what each excess may
 * scatter by at that line. */
static double find_between(const pp_sampling_causes *c, size_t n, double captures)
{
    double between = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double xy = 0, xx = 0;
        for (size_t i = 0; i < n; i++) {
            const double x = c[i].mean * c[i].mean / captures;
            const double variance = c[i].samples + between * x;
            if (variance <= 0)
                continue;
            xy += x * (c[i].captures - c[i].samples) / (variance * variance);
            xx += x * x / (variance * variance);
        }
        between = xx > 0 ? fmax(0, xy / xx) : 0;
    }
    return between;
}

double pp_sampling_errors(const pp_sampling_causes *causes, size_t n, size_t captures, double *ret)
{
    const double count = (double)captures;
    const bool several = captures > 1;
    const double between = several ? find_between(causes, n, count) : UNSEEN * UNSEEN;
    for (size_t i = 0; i < n; i++) {
        const pp_sampling_causes *c = &causes[i];
        double variance = c->samples + between * c->mean * c->mean / count;
        if (several)
            variance = (POOLED * variance + (count - 1) * c->captures) / (POOLED + count - 1);
        ret[i] = sqrt(variance + c->edges);
    }
    return sqrt(between);
}
