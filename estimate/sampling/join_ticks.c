/* How fast two clocks go against each other that both tell ticks of one timer. */
#include "estimate/sampling/join_internal.h"

#include <math.h>

#define TICK 32.0     /* ns: of the GPU's timer, which kernels and samples are stamped by */
#define OFF_TICKS 3.0 /* ns: standard deviation from multiples of it; of any times it is 9.2 */
#define LONGEST 1e6   /* ns: in so long a time clocks do not differ by half a tick */

enum { LEAST = 200 };

/* Of a clock that tells times of the timer, which it takes to be slower or faster. */
typedef struct rate {
    double n, time, off; /* ns: times between stamps, and what these have beyond ticks */
    double time_time, time_off, off_off;
} rate;

static void add_time(rate *r, int64_t from, int64_t to)
{
    const double time = (double)(to - from);
    if (time <= 0 || time > LONGEST)
        return;
    const double off = time - TICK * round(time / TICK);
    r->n++;
    r->time += time;
    r->off += off;
    r->time_time += time * time;
    r->time_off += time * off;
    r->off_off += off * off;
}

/* ns of the clock for each of the timer, less one; false where its times are no ticks. */
static bool is_rate(const rate *r, double *ret)
{
    if (r->n < LEAST)
        return false;
    const double by = *ret = r->off / r->time;
    const double rest = r->off_off - 2 * by * r->time_off + by * by * r->time_time;
    return rest < OFF_TICKS * OFF_TICKS * r->n;
}

bool pp_sampling_drift_by_ticks(const pp_sampling *f, double *ret)
{
    rate samples = {0}, kernels = {0};
    double of_samples, of_kernels;
    for (size_t i = 1; i < f->n_samples; i++)
        add_time(&samples, f->samples[i - 1].start, f->samples[i].start);
    for (size_t i = 1; i < f->n_kernels; i++)
        if (f->kernels[i].work == PP_SAMPLING_KERNEL &&
            f->kernels[i - 1].work == PP_SAMPLING_KERNEL)
            add_time(&kernels, f->kernels[i - 1].start, f->kernels[i].start);
    if (!is_rate(&samples, &of_samples) || !is_rate(&kernels, &of_kernels))
        return false;
    *ret = of_samples - of_kernels;
    return true;
}
