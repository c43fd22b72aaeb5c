/* Kernels that slow the SMs' clock down. */
#include "estimate/sampling/join_internal.h"

#include <math.h>

#define LEAST_IDLE 10 /* samples that tell how fast the clock is where nothing runs */

typedef struct overlap {
    size_t from; /* kernels before have ended */
    double start, end;
} overlap;

/* ns of a sample in which the i-th kernel runs. */
static double in_kernel(const pp_sampling *f, size_t i, const overlap *o)
{
    const double start = fmax(o->start, (double)f->kernels[i].start);
    return fmin(o->end, (double)f->kernels[i].end) - start;
}

/* Where the next sample lies; returns whether it meets a kernel. */
static bool move_on(const pp_sampling *f, const pp_sampling_line *line,
                    const pp_sampling_sample *sample, overlap *o)
{
    o->start = (double)pp_sampling_shifted(line, sample->start);
    o->end = (double)pp_sampling_shifted(line, sample->end);
    while (o->from < f->n_kernels && (double)f->kernels[o->from].end <= o->start)
        o->from++;
    return o->from < f->n_kernels && (double)f->kernels[o->from].start < o->end;
}

static double idle_clock(const pp_sampling *f, const pp_sampling_line *line)
{
    overlap o = {0};
    double sum = 0, n = 0;
    for (size_t i = 0; i < f->n_samples; i++) {
        const double clock = (double)f->samples[i].values[PP_SAMPLING_CLOCK];
        if (move_on(f, line, &f->samples[i], &o) || isnan(clock))
            continue;
        sum += clock;
        n++;
    }
    return n >= LEAST_IDLE ? sum / n : (double)NAN;
}

void pp_sampling_find_slower(const pp_sampling *f, const pp_sampling_line *line, double *ret)
{
    const double idle = idle_clock(f, line);
    overlap o = {0};
    for (size_t k = 0; k < f->n_kernels; k++)
        ret[k] = 0;
    for (size_t i = 0; i < f->n_samples; i++) {
        const double slower = idle - (double)f->samples[i].values[PP_SAMPLING_CLOCK];
        if (!move_on(f, line, &f->samples[i], &o) || isnan(slower))
            continue;
        for (size_t k = o.from; k < f->n_kernels && (double)f->kernels[k].start < o.end; k++)
            ret[k] += fmax(0, in_kernel(f, k, &o)) * slower;
    }
}
