/* The figures of the process as a whole, as Prometheus sees them (docs/metrics.md). */
#ifndef PP_OPERATOR_METERS_H
#define PP_OPERATOR_METERS_H

#include "operator/http_server/metrics.h"

typedef struct pp_operator pp_operator;

typedef struct pp_meters {
    pp_metrics *registry;
    /* counted where it happens */
    pp_meter *injected;
    pp_meter *injection_refused;
    pp_meter *batches;
    pp_meter *events;
    pp_meter *samples;
    pp_meter *solutions;
    pp_meter *reconciles;
    pp_meter *status_failures;
    /* read from their owners at each rendering */
    pp_meter *leading;
    pp_meter *sessions;
    pp_meter *pods;
    pp_meter *queue;
    pp_meter *kube_lists[2]; /**< of sessions, of pods */
    pp_meter *kube_watches[2];
    pp_meter *kube_changes[2];
    pp_meter *kube_errors[2];
    pp_meter *kube_events_sent;
    pp_meter *kube_events_dropped;
    pp_meter *store_up;
    pp_meter *prometheus_up;
    pp_meter *store_committed;
    pp_meter *store_failed;
    pp_meter *store_retried;
    pp_meter *store_lost;
    pp_meter *store_calls;
    pp_meter *store_bytes;
} pp_meters;

/** Makes op->meters in a registry of their own. */
int pp_meters_make(pp_operator *op, pp_error *err);

#endif
