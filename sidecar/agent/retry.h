/* When to connect again: policy without I/O. */
#ifndef PP_AGENT_RETRY_H
#define PP_AGENT_RETRY_H

#include "common/backoff.h"

typedef struct pp_retry {
    pp_backoff backoff;
    int at_once; /**< attempts in a row that the server asked for at once */
} pp_retry;

/** Seed 0: the kernel gives one. */
void pp_retry_init(pp_retry *retry, uint64_t seed);

/**
 * ms to wait before the next attempt: 0.2 to 10 s, longer after each. retry_after is what the
 * server asked for, in s, or -1: 0 means at once, since the token is known to be good by now
 * (docs/wire.md). That is done a few times in a row and then backs off like anything else, so that
 * no server is tried without a pause for ever.
 */
int64_t pp_retry_next(pp_retry *retry, int retry_after);

/** A connection held: the next failure starts from the beginning. */
void pp_retry_reset(pp_retry *retry);

#endif
