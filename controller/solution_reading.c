/*
 * Which time a sample may say something of. What is read from a GPU is of the time since the sample
 * before it. Prometheus has the newest window that an exporter had published by then: it was
 * published up to a window before, and ended up to the exporter's lag before that.
 */
#include "controller/solution_internal.h"

#include <math.h>

#define SECOND INT64_C(1000000000)
#define UNKNOWN_DWELL (10 * SECOND)
/* Of a window: samples so far apart are not of the same one, though scrapes come a little early. */
#define APART 0.9
/* Standard errors of the lag, and of a window what publications are early or late by. */
#define LAG_ERRORS 3
#define JITTER 0.1

enum { DWELL_WINDOWS = 6 };

static int64_t lag_of(const pp_attribution_options *o)
{
    return o->max_lag_ns ? o->max_lag_ns : pp_attribution_max_lag(o->window_ns);
}

pp_reading pp_reading_of(const pp_solution_options *options)
{
    const pp_attribution_options *o = &options->attribution;
    if (!options->scraped)
        return (pp_reading){.most_ns = lag_of(o)};
    return (pp_reading){.window_ns = o->window_ns,
                        .most_ns = o->window_ns + lag_of(o),
                        .apart_ns = llround(APART * (double)o->window_ns)};
}

void pp_reading_narrow(pp_reading *r, const pp_attribution_result *result)
{
    if (r->window_ns == 0 || !result->lag_known || !isfinite(result->publish_lag_ns))
        return;
    const double doubt = result->publish_lag_half_ns + LAG_ERRORS * result->lag_se_ns +
                         JITTER * (double)r->window_ns;
    const int64_t least = llround(result->publish_lag_ns - doubt);
    const int64_t most = llround(result->publish_lag_ns + doubt) + r->window_ns;
    if (least > r->least_ns)
        r->least_ns = least;
    if (most < r->most_ns)
        r->most_ns = most;
}

pp_attribution_span pp_reading_time(const pp_reading *r, const pp_attribution_metric *m, size_t i)
{
    const int64_t stamp = m->samples[i].stamp_ns;
    const int64_t before = i > 0 ? m->samples[i - 1].stamp_ns : stamp;
    return (pp_attribution_span){(r->window_ns ? stamp - r->window_ns : before) - r->most_ns,
                                 stamp - r->least_ns};
}

bool pp_reading_again(const pp_reading *r, int64_t before, int64_t stamp)
{
    return stamp - before < r->apart_ns;
}

int64_t pp_solution_dwell_least(const pp_attribution_options *o, bool sure)
{
    const int64_t every = o->scrape_ns > o->window_ns ? o->scrape_ns : o->window_ns;
    return o->window_ns == 0 ? 0 : 2 * o->window_ns + every + (sure ? lag_of(o) : 0);
}

int64_t pp_solution_dwell(const pp_attribution_options *o)
{
    if (o->window_ns == 0)
        return UNKNOWN_DWELL;
    const int64_t every = o->scrape_ns > o->window_ns ? o->scrape_ns : o->window_ns;
    return 2 * o->window_ns + lag_of(o) + DWELL_WINDOWS * every;
}
