/*
 * Keys to be worked on, on a libuv loop: a key waits at most once, is never worked on twice at the
 * same time, and when added while it is worked on it comes again after. Failures wait 5 ms to
 * 1000 s per key, doubling.
 */
#ifndef PP_OPERATOR_KUBE_WORKQUEUE_H
#define PP_OPERATOR_KUBE_WORKQUEUE_H

#include "common/error.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

typedef struct pp_workqueue pp_workqueue;

typedef struct pp_workqueue_options {
    /** Starts work on a key (borrowed for the call); pp_workqueue_done must follow, now or later.
     */
    void (*process)(void *user, const char *key);
    void *user;
    unsigned concurrency; /**< keys worked on at once; 0: 1 */
    size_t max_keys;      /**< known at once, more are refused; 0: 100,000 */
} pp_workqueue_options;

pp_workqueue *pp_workqueue_new(uv_loop_t *loop, const pp_workqueue_options *options, pp_error *err);

/** Stops without further callbacks; may be called from process. Run the loop until closed. */
void pp_workqueue_free(pp_workqueue *queue);

/** Adds a key; process is called from the loop, never from here. PP_ERR_TOO_LARGE when full. */
int pp_workqueue_add(pp_workqueue *queue, const char *key, pp_error *err);

/**
 * Adds it after delay_ms; of two delays for one key the earlier wins. A plain add meanwhile leaves
 * the delay standing, so a wake-up is never lost.
 */
int pp_workqueue_add_after(pp_workqueue *queue, const char *key, int64_t delay_ms, pp_error *err);

/** Adds it after its backoff and counts a failure. */
int pp_workqueue_retry(pp_workqueue *queue, const char *key, pp_error *err);

/** Its failures are forgotten: the work succeeded. */
void pp_workqueue_forget(pp_workqueue *queue, const char *key);

/** The work on a key that process was given has ended (well or not). */
void pp_workqueue_done(pp_workqueue *queue, const char *key);

/** Keys that wait to be worked on, delayed ones not counted. */
size_t pp_workqueue_depth(const pp_workqueue *queue);

/** For how long the first of these has waited, ns; 0: none waits. */
int64_t pp_workqueue_oldest_ns(const pp_workqueue *queue);

/** The delay before try number failures + 1, in ms: 5 ms doubled, at most 1000 s. */
int64_t pp_workqueue_backoff_ms(unsigned failures);

#endif
