#include "estimate/replay/dwell_length.h"

#define SECOND INT64_C(1000000000)
#define UNKNOWN_DWELL (10 * SECOND)

enum { DWELL_WINDOWS = 6 };

static int64_t lag_of(const pp_regression_options *o)
{
    return o->max_lag_ns ? o->max_lag_ns : pp_regression_max_lag(o->window_ns);
}

int64_t pp_replay_length_least(const pp_regression_options *o, bool sure)
{
    const int64_t every = o->scrape_ns > o->window_ns ? o->scrape_ns : o->window_ns;
    return o->window_ns == 0 ? 0 : 2 * o->window_ns + every + (sure ? lag_of(o) : 0);
}

int64_t pp_replay_length(const pp_regression_options *o)
{
    if (o->window_ns == 0)
        return UNKNOWN_DWELL;
    const int64_t every = o->scrape_ns > o->window_ns ? o->scrape_ns : o->window_ns;
    return 2 * o->window_ns + lag_of(o) + DWELL_WINDOWS * every;
}
