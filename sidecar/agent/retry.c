#include "sidecar/agent/retry.h"

enum { FIRST_MS = 200, MAX_MS = 10000, AT_ONCE_MS = 20, AT_ONCE_MAX = 8 };

void pp_retry_init(pp_retry *r, uint64_t seed)
{
    r->at_once = 0;
    pp_backoff_init(&r->backoff, FIRST_MS, MAX_MS, seed);
}

int64_t pp_retry_next(pp_retry *r, int retry_after)
{
    if (retry_after == 0 && r->at_once < AT_ONCE_MAX) {
        r->at_once++;
        return AT_ONCE_MS;
    }
    int64_t wait = pp_backoff_next(&r->backoff), asked = retry_after * INT64_C(1000);
    return asked > wait ? asked : wait;
}

void pp_retry_reset(pp_retry *r)
{
    r->at_once = 0;
    pp_backoff_reset(&r->backoff);
}
