#include "estimate/items/achieved.h"

#include <math.h>

/* ---- the SMs' clock, in MHz ---- */

typedef struct sm_clock {
    double mhz, error; /* NaN: not known */
    bool of_job;
} sm_clock;

/* Of the whole time, as the driver told it. */
static sm_clock clock_of_job(const pp_estimates *s)
{
    for (size_t i = 0; i < s->n_estimates; i++) {
        const pp_estimate *e = &s->estimates[i];
        if (e->metric == PP_METRIC_SM_CLOCK && s->items[e->item].kind == PP_ITEM_JOB)
            return (sm_clock){e->mean, e->standard_error, true};
    }
    return (sm_clock){(double)NAN, (double)NAN, true};
}

/* While the item's kernels ran, where that was sampled. */
static sm_clock clock_of(const pp_estimates *s, uint32_t item, sm_clock of_job)
{
    const pp_estimate *e = pp_estimates_find(s, item, PP_METRIC_SM_CLOCK);
    return e && e->method == PP_METHOD_SAMPLING && e->mean > 0
               ? (sm_clock){e->mean, e->standard_error, false}
               : of_job;
}

/* ---- rates ---- */

static pp_rate rate_of(const pp_chip *chip, pp_peak which, sm_clock clock)
{
    pp_rate r = {.peak = pp_chip_peak(chip, which, 0), .value = (double)NAN, .error = (double)NAN};
    if (which == PP_PEAK_MEMORY) {
        r.value = r.peak;
        r.error = r.peak * 0; /* of the driver's figures; NaN stays */
    } else if (clock.mhz > 0) {
        r.value = pp_chip_peak(chip, which, clock.mhz);
        r.error = r.value * clock.error / clock.mhz;
        r.of_job = clock.of_job;
    }
    return r;
}

void pp_achieved_rates(const pp_activity *activity, const pp_estimates *estimates, pp_metric metric,
                       pp_rate *ret)
{
    const pp_chip *chip = pp_activity_chip(activity, estimates->gpu);
    const pp_peak which = pp_metric_get(metric)->peak;
    const sm_clock of_job = clock_of_job(estimates);
    for (size_t i = 0; i < estimates->n_items; i++)
        ret[i] = rate_of(chip, which, clock_of(estimates, (uint32_t)i, of_job));
}

void pp_achieved_fill(const pp_activity *activity, const char *gpu, pp_estimates *estimates)
{
    const pp_chip *chip = pp_activity_chip(activity, gpu);
    const sm_clock of_job = clock_of_job(estimates);
    for (size_t i = 0; i < estimates->n_estimates; i++) {
        pp_estimate *e = &estimates->estimates[i];
        const pp_rate rate =
            rate_of(chip, pp_metric_get(e->metric)->peak, clock_of(estimates, e->item, of_job));
        e->peak = rate.peak;
        e->achieved = e->mean * rate.value;
    }
}
