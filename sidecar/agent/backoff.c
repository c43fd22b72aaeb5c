#include "sidecar/agent/backoff.h"

enum { AT_ONCE_MS = 20, AT_ONCE_MAX = 8 };

int64_t pp_backoff_next(pp_backoff *b, int retry_after, uint64_t random)
{
    if (retry_after == 0 && b->at_once < AT_ONCE_MAX) {
        b->at_once++;
        return AT_ONCE_MS;
    }
    b->ms = b->ms ? b->ms * 2 : PP_BACKOFF_MIN_MS;
    if (b->ms > PP_BACKOFF_MAX_MS)
        b->ms = PP_BACKOFF_MAX_MS;
    int64_t wait =
        PP_BACKOFF_MIN_MS + (int64_t)(random % (uint64_t)(b->ms - PP_BACKOFF_MIN_MS + 1));
    return retry_after > 0 && retry_after * INT64_C(1000) > wait ? retry_after * INT64_C(1000)
                                                                 : wait;
}

void pp_backoff_reset(pp_backoff *b)
{
    *b = (pp_backoff){0};
}
