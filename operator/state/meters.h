/* The figures of the process as a whole, as Prometheus sees them (docs/metrics.md). */
#ifndef PP_OPERATOR_STATE_METERS_H
#define PP_OPERATOR_STATE_METERS_H

#include "controller/samples/clock_offset.h"
#include "controller/session/session.h"
#include "operator/http_server/metrics.h"
#include "operator/kube/client.h"
#include "operator/state/rights.h"

typedef struct pp_operator pp_operator;

enum { PP_METERS_CODES = 22 }; /* of the API server's answers: those told apart */

typedef struct pp_meters {
    pp_metrics *registry;
    /* counted where it happens */
    pp_meter *injected;
    pp_meter *injection_refused;
    pp_meter *batches;
    pp_meter *events;
    pp_meter *clock_refused[PP_CLOCK_VERDICTS]; /**< batches; none of PP_CLOCK_TAKEN */
    pp_meter *samples;
    pp_meter *solutions;
    pp_meter *reconcile_seconds;
    pp_meter *turn_seconds;
    pp_meter *status_failures;
    pp_meter *kube_requests[PP_KUBE_VERBS][PP_METERS_CODES]; /**< NULL: none was seen */
    pp_meter *sessions[PP_SESSION_PHASES];
    /* read from their owners at each rendering */
    pp_meter *leading;
    pp_meter *pods;
    pp_meter *queue;
    pp_meter *queue_oldest;
    pp_meter *kube_lists[2]; /**< of sessions, of pods */
    pp_meter *kube_watches[2];
    pp_meter *kube_changes[2];
    pp_meter *kube_errors[2];
    pp_meter *kube_events_sent;
    pp_meter *kube_events_dropped;
    pp_meter *idle;
    pp_meter *denied[PP_RIGHT_COUNT];
    pp_meter *workloads; /**< set by workload_metrics.c, as are those below */
    pp_meter *workloads_left_out;
    pp_meter *workloads_without_layers;
    pp_meter *workload_read_failures;
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

/** Adds which program this is. */
int pp_meters_add_build(pp_metrics *registry, const char *version, const char *architecture,
                        pp_error *err);

/** The cache has `now` in place of `before`; NULL: it came, or went. */
void pp_meters_session(pp_meters *meters, const pp_session *before, const pp_session *now);

/** As pp_kube_answered_fn; `user` is pp_meters. */
void pp_meters_request(void *user, pp_kube_verb verb, int status);

#endif
