/*
 * Leader election over a coordination.k8s.io Lease, as client-go does it: 15 s lease, 10 s to
 * renew, 2 s between tries; another holder is judged by what we see change on our own monotonic
 * clock, never by the times written in the Lease.
 *
 * A lease is no fence: for a moment two may believe to lead. Writes must be idempotent.
 */
#ifndef PP_OPERATOR_KUBE_LEASE_H
#define PP_OPERATOR_KUBE_LEASE_H

#include "operator/kube/client.h"

#include <stdbool.h>

typedef struct pp_kube_lease pp_kube_lease;

typedef struct pp_kube_lease_options {
    const char *ns;            /**< NULL: the client's */
    const char *name;          /**< needed */
    const char *identity;      /**< needed; unique per process, e.g. pod name and random digits */
    const json_t *owner;       /**< an ownerReference for the Lease that we create, or NULL */
    const json_t *labels;      /**< that the Lease is to bear besides others; NULL: none */
    const json_t *annotations; /**< the same */
    int64_t lease_ms;          /**< 0: 15,000 */
    int64_t renew_deadline_ms; /**< 0: 10,000; below lease_ms */
    int64_t retry_ms;          /**< 0: 2,000; below renew_deadline_ms */
    void (*on_started)(void *user); /**< we lead now */
    void (*on_stopped)(void *user); /**< we lead no more; a new term may begin later */
    void (*on_leader)(void *user,
                      const char *identity); /**< somebody (maybe we) leads; may be NULL */
    void (*on_error)(void *user,
                     const pp_error *error); /**< a failed try, for the log; may be NULL */
    void (*on_released)(void *user);         /**< after pp_kube_lease_release; may be NULL */
    void *user;
} pp_kube_lease_options;

/** Starts trying at once; the client outlives it. NULL on error. */
pp_kube_lease *pp_kube_lease_new(pp_kube_client *client, const pp_kube_lease_options *options,
                                 pp_error *err);

/**
 * Stops for good; calls on_stopped where we led, hands the Lease over (empty holderIdentity) and
 * then calls on_released, at the latest after 5 s.
 */
void pp_kube_lease_release(pp_kube_lease *lease);

/** Stops without callbacks and without a hand-over; may be called from a callback. */
void pp_kube_lease_free(pp_kube_lease *lease);

#endif
