#include "estimate/achieved.h"

#include <math.h>

static const pp_chip *chip_of(const pp_activity *a, const char *gpu)
{
    static const pp_chip unknown = {0};
    for (size_t i = 0; i < a->n_processes; i++)
        if (a->processes[i].chip.capability > 0 && pp_activity_uses(a, (uint32_t)i, gpu))
            return &a->processes[i].chip;
    return &unknown;
}

/* Of the whole time, as the driver told it. */
static double clock_of_job(const pp_estimates *s)
{
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_estimate *e = &s->estimates[i];
        if (e->metric == PP_METRIC_SM_CLOCK && s->items[e->item].kind == PP_ITEM_JOB)
            return e->mean;
    }
    return (double)NAN;
}

/* While the item's kernels ran, where that was sampled. */
static double clock_of(const pp_estimates *s, uint32_t item, double of_job)
{
    const pp_estimate *e = pp_estimates_find(s, item, PP_METRIC_SM_CLOCK);
    return e && e->method == PP_METHOD_SAMPLING && e->mean > 0 ? e->mean : of_job;
}

void pp_achieved_fill(const pp_activity *activity, const char *gpu, pp_estimates *estimates)
{
    const pp_chip *chip = chip_of(activity, gpu);
    const double of_job = clock_of_job(estimates);
    for (size_t i = 0; i < estimates->n_estimates; i++) {
        pp_estimate *e = &estimates->estimates[i];
        const pp_peak which = pp_metric_get(e->metric)->peak;
        const bool clocked = which != PP_PEAK_MEMORY;
        const double mhz = clock_of(estimates, e->item, of_job);
        e->peak = pp_chip_peak(chip, which, 0);
        e->achieved = !clocked  ? e->mean * e->peak
                      : mhz > 0 ? e->mean * pp_chip_peak(chip, which, mhz)
                                : (double)NAN;
    }
}
