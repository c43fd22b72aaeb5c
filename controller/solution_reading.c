/*
 * Which time a sample may say something of. What is read from a GPU is of the time since the sample
 * before it, both late; solution_ticks.c finds by how much. Prometheus has the newest window that
 * an exporter had published by then: it was published up to a window before, and ended up to the
 * exporter's lag before that.
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
    pp_attribution_span time = {(r->window_ns ? stamp - r->window_ns : before) - r->most_ns,
                                stamp - r->least_ns};
    if (r->ticks.known) {
        const int64_t start = pp_ticks_range(&r->ticks, before).start_ns;
        const int64_t end = pp_ticks_range(&r->ticks, stamp).end_ns;
        time.start_ns = start > time.start_ns ? start : time.start_ns;
        time.end_ns = end < time.end_ns ? end : time.end_ns;
    }
    return time;
}

pp_attribution_span pp_reading_window(const pp_reading *r, const pp_attribution_metric *m, size_t i)
{
    if (!r->ticks.known)
        return pp_reading_time(r, m, i);
    const int64_t stamp = m->samples[i].stamp_ns;
    const int64_t before = i > 0 ? m->samples[i - 1].stamp_ns : stamp;
    return (pp_attribution_span){r->ticks.base_ns + llround(pp_ticks_end(&r->ticks, before)),
                                 r->ticks.base_ns + llround(pp_ticks_end(&r->ticks, stamp))};
}

bool pp_reading_again(const pp_reading *r, const pp_attribution_metric *m, size_t last, size_t i)
{
    const int64_t stamp = m->samples[i].stamp_ns;
    if (r->ticks.known)
        return pp_ticks_end(&r->ticks, stamp) <=
               pp_ticks_end(&r->ticks, m->samples[i - 1].stamp_ns);
    return last > 0 && stamp - m->samples[last].stamp_ns < r->apart_ns;
}

size_t pp_metric_first(const pp_attribution_metric *m, int64_t from)
{
    size_t low = 1;
    size_t high = m->n_samples;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (m->samples[middle].stamp_ns < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of windows: their values by how long they are, the replays in them, and what of products of
 * values and rates sums need. */
typedef struct sums {
    size_t n;
    double level, calls;
    double value, rate;
    double values, both, rates;
} sums;

static void add_window(sums *s, double value, double calls, double length)
{
    const double rate = calls / length;
    s->n++;
    s->level += value * length;
    s->calls += calls;
    s->value += value;
    s->rate += rate;
    s->values += value * value;
    s->both += value * rate;
    s->rates += rate * rate;
}

/* What a window weighs is its length, which is known where its end is; else the time that it may be
 * of says how many replays there are in as much. */
static void take_window(sums *s, const pp_dwells *d, const pp_dwell *w, const pp_reading *r,
                        const pp_attribution_metric *m, size_t i)
{
    const pp_attribution_span of = pp_reading_window(r, m, i);
    const double length = (double)(of.end_ns - of.start_ns);
    const double calls = pp_dwell_calls(d, w, (double)of.start_ns, (double)of.end_ns);
    if (r->ticks.known)
        add_window(s, m->samples[i].value, calls, length);
    else
        add_window(s, m->samples[i].value, calls / length, 1);
}

pp_windows pp_windows_of(const pp_dwells *d, const pp_attribution_metric *m, const pp_dwell *w,
                         const pp_reading *r)
{
    sums s = {0};
    size_t last = 0;
    for (size_t i = pp_metric_first(m, w->start_ns); i < m->n_samples; i++) {
        const pp_attribution_span time = pp_reading_time(r, m, i);
        if (time.end_ns > w->end_ns)
            break;
        const pp_attribution_span of = pp_reading_window(r, m, i);
        if (time.start_ns < w->start_ns || of.start_ns < w->start_ns || of.end_ns > w->end_ns ||
            pp_reading_again(r, m, last, i))
            continue;
        last = i;
        take_window(&s, d, w, r, m, i);
    }
    const double n = (double)s.n;
    if (s.n == 0 || s.calls <= 0)
        return (pp_windows){0};
    const double each = s.level / s.calls;
    if (!isfinite(each * each * s.rates) || !isfinite(s.values)) /* no share of anything */
        return (pp_windows){0};
    return (pp_windows){.n = s.n,
                        .value = s.value / n,
                        .rate = s.rate / n,
                        .each = each,
                        .squares = fmax(0, s.values - 2 * each * s.both + each * each * s.rates)};
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
