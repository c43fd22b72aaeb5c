/* Waiting longer after each failure: doubling with full jitter, reset after a healthy while. */
#ifndef PP_OPERATOR_KUBE_BACKOFF_H
#define PP_OPERATOR_KUBE_BACKOFF_H

#include <stdint.h>

typedef struct pp_backoff {
    int64_t first_ms;
    int64_t max_ms;
    int64_t reset_ns; /**< back to first_ms when so long passed since the last failure */
    int64_t current_ms;
    int64_t last_ns;
    uint64_t random; /**< state of the generator */
} pp_backoff;

/** client-go's figures for watches: 0.8 s to 30 s, reset after 2 min. Seeds itself where seed is 0.
 */
void pp_backoff_init(pp_backoff *backoff, uint64_t seed);

/**
 * The delay before the next try in ms: random between the current step and twice it; then doubles
 * the step, up to half of max_ms. `now_ns` is monotonic.
 */
int64_t pp_backoff_next(pp_backoff *backoff, int64_t now_ns);

/** A number in [low, high) from the same generator. */
int64_t pp_backoff_random(pp_backoff *backoff, int64_t low, int64_t high);

#endif
