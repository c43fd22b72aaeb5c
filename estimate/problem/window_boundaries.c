#include "estimate/problem/window_boundaries.h"

#include <math.h>

#define MS 1e6
/* ns about the publication of a window: it is found no better, and reading all metrics takes 5 ms.
 */
#define UNSURE (20 * MS)

/* ns after the base up to which windows have ended that are published by then. */
static double read_until(const pp_boundaries *t, int64_t stamp)
{
    return (double)(stamp - t->base_ns) - t->late_ns;
}

pp_time_range pp_boundaries_range(const pp_boundaries *t, int64_t stamp)
{
    const double end = pp_boundaries_end(t, stamp);
    const double since = read_until(t, stamp) - end;
    const bool earlier = t->every_ns > 0 && since < UNSURE;
    const bool later = t->every_ns > 0 && since > t->every_ns - UNSURE;
    /* They are found to a step over what was looked at, and go astray by as much again beyond. */
    const double beyond = t->seen_ns > 0 ? fmax(0, fmax(-end, end - t->seen_ns)) / t->seen_ns : 0;
    const double off = PP_BOUNDARIES_STEP * (1 + beyond);
    return (pp_time_range){
        t->base_ns + llround(end - t->before_ns - off - (earlier ? t->every_ns : 0)),
        t->base_ns + llround(end + t->after_ns + off + (later ? t->every_ns : 0))};
}

double pp_boundaries_end(const pp_boundaries *t, int64_t stamp)
{
    const double read = read_until(t, stamp);
    return t->every_ns > 0 ? t->phase_ns + t->every_ns * floor((read - t->phase_ns) / t->every_ns)
                           : read;
}
