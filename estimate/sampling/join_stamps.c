/*
 * The lag by which the driver stamps samples, and how that drifts.
 *
 * CUPTI puts two readings of the GPU's timer on the host's clock, those of kernels' records and
 * those of samples, each by a rate that it takes from what it has seen of both clocks. As a capture
 * begins it has just seen them; from there on the two go off from each other by the difference of
 * the rates. The timer goes on by 32 ns at a time: so what times between stamps have beyond
 * multiples of that tells each rate.
 */
#include "estimate/sampling/join_internal.h"

#include <math.h>

#define TICK 32.0       /* ns */
#define OFF_TICKS 2.0   /* ns: standard deviation from ticks; of times that are none it is 9.2 */
#define LONGEST 500e3   /* ns: in so long a time ... */
#define MOST_RATE 20e-6 /* ... a clock is off by less than half a tick */
#define LEAST_TIME 50e6 /* ns, in all */

#define TICKING 300.0     /* ns: what stamps of known drift are off by in all captures ... */
#define STAMPED 1000.0    /* ... and of unknown one */
#define DIFFER 250.0      /* ns: and by how much more in one capture than in others */
#define RATES_DIFFER 2e-6 /* CUPTI's two, where no ticks tell: on eight H200s by 1.8e-6 */
#define SET 150e6         /* ns: as near to its first sample a capture's clocks are compared ... */
#define SET_BEFORE 30e9   /* ... or before, where kernels ran already */
#define RAN_ALREADY 10e6  /* ns, before the first sample */

enum { LEAST = 200 };

/* Of times between stamps, ns, and what they have beyond ticks. */
typedef struct times {
    double n, runs, time, off;
    double time_time, time_off, off_off;
    bool broken; /* the one before did not count */
} times;

static void add_time(times *t, int64_t from, int64_t to)
{
    const double time = (double)(to - from);
    if (time <= 0 || time > LONGEST) {
        t->broken = true;
        return;
    }
    const double off = time - TICK * round(time / TICK);
    t->runs += t->broken || t->n == 0;
    t->broken = false;
    t->n++;
    t->time += time;
    t->off += off;
    t->time_time += time * time;
    t->time_off += time * off;
    t->off_off += off * off;
}

/* By how much their clock is faster than the timer. What a stamp is off by, the time before it has
 * too, with the other sign: only the ends of runs are left. False where they are no ticks. */
static bool find_rate(const times *t, double *ret, double *ret_stderr)
{
    if (t->n < LEAST || t->time < LEAST_TIME)
        return false;
    const double by = *ret = t->off / t->time;
    const double rest = t->off_off - 2 * by * t->time_off + by * by * t->time_time;
    *ret_stderr = sqrt(fmax(rest, 0) / t->n * t->runs) / t->time;
    return rest < OFF_TICKS * OFF_TICKS * t->n && fabs(by) < MOST_RATE;
}

bool pp_sampling_drift_by_ticks(const pp_sampling *f, double *ret, double *ret_stderr)
{
    times samples = {0}, kernels = {0};
    double of_samples, of_kernels, error_s, error_k;
    for (size_t i = 1; i < f->n_samples; i++)
        add_time(&samples, f->samples[i - 1].start, f->samples[i].start);
    for (size_t i = 1; i < f->n_kernels; i++)
        if (f->kernels[i].work == PP_SAMPLING_KERNEL &&
            f->kernels[i - 1].work == PP_SAMPLING_KERNEL)
            add_time(&kernels, f->kernels[i - 1].start, f->kernels[i].start);
        else
            kernels.broken = true; /* a copy's time may have been cut */
    if (!find_rate(&samples, &of_samples, &error_s) || !find_rate(&kernels, &of_kernels, &error_k))
        return false;
    *ret = of_samples - of_kernels;
    *ret_stderr = hypot(error_s, error_k);
    return true;
}

pp_sampling_line pp_sampling_line_of_stamps(const pp_sampling *f, const pp_sampling_clock *clock)
{
    const int64_t first = f->samples[0].start, last = f->samples[f->n_samples - 1].end;
    const double since = (double)(last - first) / 2;
    pp_sampling_line line = {.middle = first + (last - first) / 2,
                             .lag = (double)clock->likely,
                             .common_ns = STAMPED,
                             .stamped = true};
    double drift_stderr = RATES_DIFFER, unset = 0;
    if (pp_sampling_drift_by_ticks(f, &line.drift, &drift_stderr)) {
        const bool goes_on = (double)(f->kernels[0].start + clock->likely - first) < -RAN_ALREADY;
        line.lag += line.drift * since;
        line.common_ns = TICKING;
        unset = line.drift * (goes_on ? SET_BEFORE : SET);
    }
    line.drift_stderr = drift_stderr;
    line.stderr_ns = sqrt(DIFFER * DIFFER + unset * unset + pow(drift_stderr * since, 2));
    return line;
}
