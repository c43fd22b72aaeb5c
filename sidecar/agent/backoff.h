/* When to connect again: policy without I/O. */
#ifndef PP_AGENT_BACKOFF_H
#define PP_AGENT_BACKOFF_H

#include <stdint.h>

#define PP_BACKOFF_MIN_MS 200
#define PP_BACKOFF_MAX_MS 10000

typedef struct pp_backoff {
    int64_t ms;  /**< 0: none yet */
    int at_once; /**< attempts in a row that the server asked for at once */
} pp_backoff;

/**
 * ms to wait before the next attempt. Doubles from 200 ms to 10 s with full jitter (`random` is any
 * random number). retry_after is what the server asked for, in s, or -1: 0 means at once (another
 * replica will do), which is done a few times in a row and then backs off like anything else.
 */
int64_t pp_backoff_next(pp_backoff *backoff, int retry_after, uint64_t random);

/** A connection held: the next failure starts from the beginning. */
void pp_backoff_reset(pp_backoff *backoff);

#endif
