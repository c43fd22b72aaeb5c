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
                   (int)PP_WIRE_DOUBT_TENANT == (int)PP_SAMPLING_TENANT &&
                   (int)PP_WIRE_DOUBT_SHIFTED == (int)PP_SAMPLING_SHIFTED,
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

static void add_quality(const pp_sampling_quality *q, pp_wire_pm_closure *to)
{
    to->explained = clipped(q->explained);
    to->miss = millionths(q->miss);
    to->items = (int64_t)q->items;
    to->items_z = large_millionths(q->items_z);
    to->gap = clipped(q->gap);
    to->gap_error = millionths(q->gap_stderr);
    to->doubt = (int64_t)q->doubt;
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
        if (held < 0 || difference < 0)
            continue;
        pp_wire_pm_closure *c = &to->closures[to->closure_count++];
        *c = (pp_wire_pm_closure){.metric = m,
                                  .held = held,
                                  .difference = r->closure[m] < 0 ? -difference : difference,
                                  .noise = millionths(r->noise[m])};
        add_quality(&r->quality[m], c);
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
    return add_closures(e->result, to, err);
}
