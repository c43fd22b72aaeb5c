/*
 * Which time a sample may say something of. What is read from a GPU is of the time since the sample
 * before it, both late; boundary_search.c finds by how much. Prometheus has the newest window that
 * an exporter had published by then: it was published up to a window before, and ended up to the
 * exporter's lag before that.
 */
#include "estimate/problem/sample_coverage.h"

#include <math.h>

/* Of a window: samples so far apart are not of the same one, though scrapes come a little early. */
#define APART 0.9
/* Standard errors of the lag, and of a window what publications are early or late by. */
#define LAG_ERRORS 3
#define JITTER 0.1

static int64_t lag_of(const pp_regression_options *o)
{
    return o->max_lag_ns ? o->max_lag_ns : pp_regression_max_lag(o->window_ns);
}

pp_coverage pp_coverage_of(const pp_estimates_options *options)
{
    const pp_regression_options *o = &options->attribution;
    if (!options->scraped)
        return (pp_coverage){.most_ns = lag_of(o)};
    return (pp_coverage){.window_ns = o->window_ns,
                         .most_ns = o->window_ns + lag_of(o),
                         .apart_ns = llround(APART * (double)o->window_ns)};
}

void pp_coverage_narrow(pp_coverage *r, const pp_regression_result *result)
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

pp_time_range pp_coverage_time(const pp_coverage *r, const pp_regression_metric *m, size_t i)
{
    const int64_t stamp = m->samples[i].stamp_ns;
    const int64_t before = i > 0 ? m->samples[i - 1].stamp_ns : stamp;
    pp_time_range time = {(r->window_ns ? stamp - r->window_ns : before) - r->most_ns,
                          stamp - r->least_ns};
    if (r->ticks.known) {
        const int64_t start = pp_boundaries_range(&r->ticks, before).start_ns;
        const int64_t end = pp_boundaries_range(&r->ticks, stamp).end_ns;
        time.start_ns = start > time.start_ns ? start : time.start_ns;
        time.end_ns = end < time.end_ns ? end : time.end_ns;
    }
    return time;
}

pp_time_range pp_coverage_window(const pp_coverage *r, const pp_regression_metric *m, size_t i)
{
    if (!r->ticks.known)
        return pp_coverage_time(r, m, i);
    const int64_t stamp = m->samples[i].stamp_ns;
    const int64_t before = i > 0 ? m->samples[i - 1].stamp_ns : stamp;
    return (pp_time_range){r->ticks.base_ns + llround(pp_boundaries_end(&r->ticks, before)),
                           r->ticks.base_ns + llround(pp_boundaries_end(&r->ticks, stamp))};
}

bool pp_coverage_again(const pp_coverage *r, const pp_regression_metric *m, size_t last, size_t i)
{
    const int64_t stamp = m->samples[i].stamp_ns;
    if (r->ticks.known)
        return pp_boundaries_end(&r->ticks, stamp) <=
               pp_boundaries_end(&r->ticks, m->samples[i - 1].stamp_ns);
    return last > 0 && stamp - m->samples[last].stamp_ns < r->apart_ns;
}

size_t pp_coverage_first(const pp_regression_metric *m, int64_t from)
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
static void take_window(sums *s, const pp_replay_runs *d, const pp_replay_run *w,
                        const pp_coverage *r, const pp_regression_metric *m, size_t i)
{
    const pp_time_range of = pp_coverage_window(r, m, i);
    const double length = (double)(of.end_ns - of.start_ns);
    const double calls = pp_replay_run_calls(d, w, (double)of.start_ns, (double)of.end_ns);
    if (r->ticks.known)
        add_window(s, m->samples[i].value, calls, length);
    else
        add_window(s, m->samples[i].value, calls / length, 1);
}

pp_windows pp_coverage_windows(const pp_replay_runs *d, const pp_regression_metric *m,
                               const pp_replay_run *w, const pp_coverage *r)
{
    sums s = {0};
    size_t last = 0;
    for (size_t i = pp_coverage_first(m, w->start_ns); i < m->n_samples; i++) {
        const pp_time_range time = pp_coverage_time(r, m, i);
        if (time.end_ns > w->end_ns)
            break;
        const pp_time_range of = pp_coverage_window(r, m, i);
        if (time.start_ns < w->start_ns || of.start_ns < w->start_ns || of.end_ns > w->end_ns ||
            pp_coverage_again(r, m, last, i))
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
