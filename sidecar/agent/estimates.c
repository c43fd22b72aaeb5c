#include "sidecar/agent/estimates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)PP_WIRE_PM_METRICS == (int)PP_SAMPLING_METRICS, "one is the other's");

static int64_t millionths(double value)
{
    return isfinite(value) && value >= 0 && value < 10 ? (int64_t)(value * 1e6 + 0.5) : -1;
}

static int add_rows(const pp_sampling_result *r, pp_wire_pm *to, pp_error *err)
{
    to->rows = calloc(r->n + 1, sizeof *to->rows);
    if (!to->rows)
        return pp_error_nomem(err);
    for (size_t i = 0; i < r->n; i++) {
        const pp_sampling_item *item = &r->items[i];
        pp_wire_pm_row *row = &to->rows[to->count++];
        *row = (pp_wire_pm_row){.layer = item->layer,
                                .phase = (pp_wire_phase)item->phase,
                                .kernels = (int64_t)item->kernels};
        for (int m = 0; m < PP_WIRE_PM_METRICS; m++) {
            row->mean[m] = millionths(item->mean[m]);
            row->error[m] = millionths(item->stderr_of[m]);
        }
    }
    return 0;
}

static bool is_possible(const pp_samples_header *h, int64_t lag)
{
    return h->period >= PP_WIRE_PERIOD_MIN && h->period <= PP_WIRE_PERIOD_MAX && h->cpu >= 0 &&
           h->cpu <= PP_WIRE_MAX_COUNT && lag >= -PP_WIRE_TIME_MAX && lag <= PP_WIRE_TIME_MAX;
}

static int add_sampling(const pp_monitor_estimates *e, pp_wire_pm_sampling *to, pp_error *err)
{
    const pp_samples_header *h = e->sampler;
    if (!is_possible(h, e->lag))
        return 0;
    *to = (pp_wire_pm_sampling){.period = h->period,
                                .times = (int64_t)e->windows,
                                .failed = (int64_t)e->failed,
                                .sampled = e->sampled,
                                .samples = (int64_t)e->result->windows,
                                .lag = e->lag,
                                .lag_error = e->lag_stderr,
                                .sampler_cpu = h->cpu};
    if (!pp_wire_is_id(h->chip, PP_WIRE_MAX_VERSION))
        return 0;
    to->chip = strdup(h->chip);
    return to->chip ? 0 : pp_error_nomem(err);
}

_Static_assert((int)PP_WIRE_DOUBT_UNEXPLAINED == (int)PP_SAMPLING_UNEXPLAINED &&
                   (int)PP_WIRE_DOUBT_TENANT == (int)PP_SAMPLING_TENANT,
               "one is the other's");

/* A number of at most 1000, in millionths; -1: not known. */
static int64_t large_millionths(double value)
{
    return isfinite(value) && value >= 0 ? (int64_t)(fmin(value, 1000) * 1e6 + 0.5) : -1;
}

static int64_t clipped(double value)
{
    return isfinite(value) ? millionths(fmax(value, 0)) : -1;
}

/* Metrics that are not known are left out. */
static int add_qualities(const pp_sampling_result *r, pp_wire_pm *to, pp_error *err)
{
    to->qualities = calloc(PP_WIRE_PM_METRICS, sizeof *to->qualities);
    if (!to->qualities)
        return pp_error_nomem(err);
    for (int m = 0; m < PP_WIRE_PM_METRICS; m++) {
        const pp_sampling_quality *q = &r->quality[m];
        if (!isfinite(r->noise[m]) || m == PP_SAMPLING_CLOCK)
            continue;
        to->qualities[to->quality_count++] =
            (pp_wire_pm_quality){.metric = m,
                                 .explained = clipped(q->explained),
                                 .miss = millionths(q->miss),
                                 .items = (int64_t)q->items,
                                 .items_z = large_millionths(q->items_z),
                                 .gap = clipped(q->gap),
                                 .gap_error = millionths(q->gap_stderr),
                                 .doubt = (int64_t)q->doubt};
    }
    return 0;
}

/* Metrics of which no sample was held out are left out. */
static int add_closures(const pp_sampling_result *r, pp_wire_pm *to, pp_error *err)
{
    to->closures = calloc(PP_WIRE_PM_METRICS, sizeof *to->closures);
    if (!to->closures)
        return pp_error_nomem(err);
    for (int m = 0; m < PP_WIRE_PM_METRICS; m++) {
        const int64_t held = millionths(r->held[m]);
        const int64_t difference = millionths(fabs(r->closure[m]));
        if (held < 0 || difference < 0 || m == PP_SAMPLING_CLOCK)
            continue;
        to->closures[to->closure_count++] =
            (pp_wire_pm_closure){.metric = m,
                                 .held = held,
                                 .difference = r->closure[m] < 0 ? -difference : difference,
                                 .noise = millionths(r->noise[m])};
    }
    return 0;
}

int pp_estimates_tell(const pp_monitor_estimates *e, pp_wire_pm *to, pp_error *err)
{
    to->gpu = strdup(e->sampler->gpu);
    if (!to->gpu)
        return pp_error_nomem(err);
    for (int m = 0; m < PP_WIRE_PM_METRICS; m++)
        if (pp_strings_add(&to->sources, e->sampler->sources[m], err) < 0)
            return -1;
    if (add_rows(e->result, to, err) < 0 || add_sampling(e, &to->sampling, err) < 0)
        return -1;
    return add_closures(e->result, to, err) < 0 ? -1 : add_qualities(e->result, to, err);
}
