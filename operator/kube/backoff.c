#include "operator/kube/backoff.h"

#include "common/json.h"

#include <string.h>
#include <sys/random.h>

enum { FIRST_MS = 800, MAX_MS = 30 * 1000 };
static const int64_t RESET_NS = INT64_C(120) * 1000000000;

void pp_backoff_init(pp_backoff *backoff, uint64_t seed)
{
    *backoff = (pp_backoff){.first_ms = FIRST_MS, .max_ms = MAX_MS, .reset_ns = RESET_NS};
    backoff->random = seed;
    if (!seed && getrandom(&backoff->random, sizeof backoff->random, 0) < 0)
        backoff->random = (uint64_t)pp_time_monotonic();
}

/* splitmix64: spreads clients out in time, guards nothing. */
static uint64_t next_random(pp_backoff *backoff)
{
    uint64_t z = backoff->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t pp_backoff_random(pp_backoff *backoff, int64_t low, int64_t high)
{
    if (high <= low)
        return low;
    return low + (int64_t)(next_random(backoff) % (uint64_t)(high - low));
}

int64_t pp_backoff_next(pp_backoff *backoff, int64_t now_ns)
{
    if (backoff->current_ms == 0 || now_ns - backoff->last_ns > backoff->reset_ns)
        backoff->current_ms = backoff->first_ms;
    backoff->last_ns = now_ns;
    int64_t step = backoff->current_ms;
    /* The step stops at half the maximum, so that the longest delays are still spread out. */
    backoff->current_ms = 2 * step < backoff->max_ms / 2 ? 2 * step : backoff->max_ms / 2;
    return pp_backoff_random(backoff, step, 2 * step);
}
