#include "common/backoff.h"

#include "common/time.h"

#include <sys/random.h>

void pp_backoff_init(pp_backoff *b, int64_t first_ms, int64_t max_ms, uint64_t seed)
{
    *b = (pp_backoff){.first_ms = first_ms, .max_ms = max_ms, .random = seed};
    if (!seed && getrandom(&b->random, sizeof b->random, GRND_NONBLOCK) < 0)
        b->random = (uint64_t)pp_time_monotonic(); /* jitter only: any number will do */
}

/* splitmix64: spreads clients out in time, guards nothing. */
static uint64_t next_random(pp_backoff *b)
{
    uint64_t z = b->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t pp_backoff_random(pp_backoff *b, int64_t low, int64_t high)
{
    if (high <= low)
        return low;
    return low + (int64_t)(next_random(b) % (uint64_t)(high - low));
}

int64_t pp_backoff_next(pp_backoff *b)
{
    int64_t step = b->step_ms ? b->step_ms : b->first_ms;
    b->step_ms = 2 * step < b->max_ms / 2 ? 2 * step : b->max_ms / 2;
    return pp_backoff_random(b, step, 2 * step);
}

void pp_backoff_reset(pp_backoff *b)
{
    b->step_ms = 0;
}
