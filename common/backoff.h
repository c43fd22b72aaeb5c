/*
 * Waiting longer after each failure: a random time between the step and twice it, while the step
 * doubles. Pure but for a seed.
 */
#ifndef PP_COMMON_BACKOFF_H
#define PP_COMMON_BACKOFF_H

#include <stdint.h>

typedef struct pp_backoff {
    int64_t first_ms;
    int64_t max_ms;
    int64_t step_ms; /**< of the next wait; 0: the first */
    uint64_t random; /**< state of the generator */
} pp_backoff;

/** Waits from first_ms to max_ms, which is at least twice that. Seed 0: the kernel gives one. */
void pp_backoff_init(pp_backoff *backoff, int64_t first_ms, int64_t max_ms, uint64_t seed);

/** The wait before the next try, in ms. The step stops at half of max_ms, so that the longest waits
 * are spread out too. */
int64_t pp_backoff_next(pp_backoff *backoff);

/** After a success: the next failure starts from the beginning. */
void pp_backoff_reset(pp_backoff *backoff);

/** A number in [low, high) from the same generator; low where there is none. */
int64_t pp_backoff_random(pp_backoff *backoff, int64_t low, int64_t high);

#endif
