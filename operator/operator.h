/*
 * The operator's parts and what they share. main.c reads arguments and configuration; operator.c
 * wires the parts and starts and stops them in order; each other file is one duty:
 *
 *   tls.c        the serving certificate: kept in a Secret, renewed, told to the webhook
 *   admission.c  a pod is created: which session, which patch
 *   intake.c     an agent connects and sends batches: who is it, store, acknowledge
 *   collect.c    raw samples from Prometheus into the store
 *   record.c     sessions, pods and their figures to and from the store
 *   solve.c      activity + samples -> estimates, on the thread pool
 *   explain.c    why a pod that matches is not injected
 *   reconcile.c  one session's observation -> controller's decision -> carried out
 *
 * Everything runs on one libuv loop; only solve.c uses the thread pool, on copies. Decisions are
 * controller/'s; these files only carry things to and fro.
 */
#ifndef PP_OPERATOR_OPERATOR_H
#define PP_OPERATOR_OPERATOR_H

#include "common/error.h"
#include "controller/inject.h"
#include "controller/plan.h"
#include "controller/session.h"
#include "operator/config.h"
#include "operator/http_client/http_client.h"
#include "operator/http_server/certificates.h"
#include "operator/http_server/metrics.h"
#include "operator/http_server/server.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "operator/kube/informer.h"
#include "operator/kube/lease.h"
#include "operator/kube/token_review.h"
#include "operator/kube/workqueue.h"
#include "operator/pod.h"
#include "operator/prometheus/prometheus.h"
#include "operator/store/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>
#include <uv.h>

typedef struct pp_operator pp_operator;
typedef struct pp_work pp_work;

/**
 * Head of what belongs to a call that a stop cancels without an answer (those of the API server and
 * of Prometheus): what was not freed by then is freed with the operator.
 */
typedef struct pp_context {
    pp_operator *op;
    void (*release)(void *context); /**< frees what it holds besides itself; NULL: nothing */
    struct pp_context *prev, *next;
} pp_context;

extern const pp_kube_resource PP_PROFILESESSIONS;
extern const pp_kube_resource PP_DEPLOYMENTS;

/** One injected pod of a session, as far as this process has seen it. */
typedef struct pp_work_target {
    char pod_uid[64];      /**< key */
    bool row_written;      /**< put_target was given to the store */
    bool row_placed;       /**< and it held node and address */
    pp_strings gpus;       /**< UUIDs that its processes named */
    int64_t rank;          /**< lowest of its processes; -1: unknown */
    bool open_stretch;     /**< its last batch did not end a stretch */
    int64_t last_batch_ns; /**< when the last batch was stored; 0: none yet */
    int64_t events;
    int64_t steps;
    int64_t dropped;
    int64_t epoch;
    int64_t batch;
    UT_hash_handle hh;
} pp_work_target;

/** What this process is doing for one session. Rebuilt from the store after a restart. */
struct pp_work {
    char uid[64];    /**< key */
    uint64_t serial; /**< tells it from an earlier work for the same session */
    char *key;       /**< "namespace/name" */
    pp_operator *op;
    bool sampling;    /**< as last decided */
    bool decided;     /**< `sampling` holds a decision */
    bool row_written; /**< put_session of row_generation and row_phase was given to the store */
    bool restored;    /**< what the store knows has been read */
    bool stats_dirty; /**< the store holds more than `stats` */
    bool stats_loading;
    int64_t stats_loaded_ns; /**< monotonic */
    unsigned deliveries;     /**< batches on their way into the store */
    int64_t row_generation;
    pp_session_phase row_phase;
    pp_session_stats stats;
    pp_work_target *targets;
    pp_plan *plan;
    bool asked;                 /**< Prometheus answered at least once */
    char prometheus_error[256]; /**< "": none */
    unsigned queries;           /**< to Prometheus, under way */
    bool solving;               /**< solutions are being made */
    bool unsolved;              /**< data came in since the last solution began */
    bool finalise;              /**< the next solution is the final one */
    int64_t solved_ns;          /**< monotonic, when the last solution ended */
    int64_t solve_took_ns;
    unsigned solve_failures; /**< in a row, while the store was reachable */
    char solve_error[256];   /**< of the last solution; "": it was made */
    bool collect;            /**< Prometheus is to be asked */
    bool status_writing;     /**< a status patch is under way */
    char stale_version[64];  /**< resourceVersion that our last patch replaced: wait for a newer */
    int64_t status_after_ns; /**< monotonic: figures alone are written from then on */
    int64_t status_retry_ns; /**< monotonic: the pause after a failed write ends */
    unsigned status_failures;
    UT_hash_handle hh;
};

/** One agent's connection. */
typedef struct pp_peer {
    pp_http_id connection; /**< key */
    pp_http_identity identity;
    char session_uid[64];
    UT_hash_handle hh;
    UT_hash_handle by_pod; /**< the same pod may have several */
} pp_peer;

/** Counters and gauges of the process as a whole. */
typedef struct pp_operator_meters {
    pp_metrics *registry;
    pp_meter *leading;
    pp_meter *sessions;
    pp_meter *pods;
    pp_meter *injected;
    pp_meter *injection_refused;
    pp_meter *batches;
    pp_meter *events;
    pp_meter *samples;
    pp_meter *solutions;
    pp_meter *reconciles;
    pp_meter *reconcile_errors;
    pp_meter *agents;
} pp_operator_meters;

typedef struct pp_tls pp_tls;

struct pp_operator {
    uv_loop_t *loop;
    const pp_config *config;
    pp_http_client *http;
    pp_kube_client *kube;
    pp_kube_informer *sessions; /**< of pp_session */
    pp_kube_informer *pods;     /**< of pp_pod */
    pp_workqueue *queue;        /**< keys of sessions */
    pp_kube_lease *lease;
    pp_kube_recorder *recorder;
    pp_kube_reviewer *reviewer;
    pp_http_server *server;
    pp_store *store;
    pp_prometheus *prometheus;
    pp_metric_source source;
    pp_operator_meters meters;
    pp_tls *tls;
    json_t *owner;      /**< ownerReference to the operator's Deployment; NULL: none */
    char *ca_bundle;    /**< PEM that agents trust; NULL: no certificate yet */
    char *endpoint;     /**< wss://... for agents */
    char identity[128]; /**< of this process: host name and random digits */
    pp_buf version;     /**< the API server's own words about itself */
    bool native_sidecar;
    bool leading;
    int64_t serving_since_ns; /**< when this process began to lead, ns since 1970 */
    bool stopping;
    bool failed; /**< stopped because of an error */
    uint64_t works_made;
    pp_work *works;
    pp_peer *peers;
    pp_peer *peers_by_pod;
    pp_context *contexts;
    unsigned inquiries; /**< of explain.c, under way */
    uv_timer_t tick;    /**< collects and solves what is due */
    uv_timer_t retention;
};

/* operator.c */
int pp_operator_start(pp_operator *op, uv_loop_t *loop, const pp_config *config, pp_error *err);
/** Begins a clean stop: nothing new is taken, the Lease is handed over, handles are closed. */
void pp_operator_stop(pp_operator *op);
/** After the loop has run out. */
void pp_operator_done(pp_operator *op);
/** The work of a session, made when there is none; NULL without memory. */
pp_work *pp_operator_work(pp_operator *op, const pp_session *session);
pp_work *pp_operator_find_work(pp_operator *op, const char *uid);
/** The same, but only the very work that has this serial: for what outlives a turn of the loop. */
pp_work *pp_operator_same_work(pp_operator *op, const char *uid, uint64_t serial);
void pp_operator_drop_work(pp_operator *op, pp_work *work);
pp_work_target *pp_work_get_target(pp_work *work, const char *pod_uid);
/** The session with this UID in the cache; NULL: none. */
const pp_session *pp_operator_find_session(const pp_operator *op, const char *uid);
/** Looks at the session again, at once. */
void pp_operator_touch(pp_operator *op, const char *key);
/** The same in a moment, so that what comes in crowds (batches, pods) costs one look. */
void pp_operator_touch_soon(pp_operator *op, const char *key);
/** `size` bytes, zeroed, that begin with a pp_context; NULL without memory. */
void *pp_context_new(pp_operator *op, size_t size, void (*release)(void *context));
void pp_context_free(void *context);
/** What injection needs to know of us. */
void pp_operator_inject_options(const pp_operator *op, pp_inject_options *ret);

/* tls.c: `ready` is called once, when there is a certificate; later renewals go to op->server. */
typedef void (*pp_tls_ready_fn)(pp_operator *op, const char *certificate, const char *key);
int pp_tls_start(pp_operator *op, pp_tls_ready_fn ready, pp_error *err);
void pp_tls_stop(pp_operator *op);

/* admission.c */
void pp_admission_review(pp_operator *op, pp_http_id id, const pp_http_review *review);

/* intake.c */
void pp_intake_authorize(pp_operator *op, pp_http_id id, const char *token);
void pp_intake_connected(pp_operator *op, pp_http_id connection, const pp_http_identity *identity);
void pp_intake_batch(pp_operator *op, pp_http_id connection, pp_wire_batch *batch);
void pp_intake_disconnected(pp_operator *op, pp_http_id connection);
/** Tells the agents of a session whether to sample. */
void pp_intake_tell(pp_operator *op, const char *session_uid, bool sampling);
bool pp_intake_has_peer(const pp_operator *op, const char *pod_uid);
void pp_intake_forget_all(pp_operator *op);

/* record.c: what the store keeps of sessions and their pods, to and from */
int pp_record_session(pp_work *work, const pp_session *session,
                      const pp_session_decision *decision);
void pp_record_target(pp_work *work, const pp_pod *pod);
/** Reads what an earlier process left; work->restored is set and the session looked at again. */
void pp_record_restore(pp_work *work);
void pp_record_load_stats(pp_work *work);

/* explain.c: finds out why a matching pod is not injected; the session is looked at again then */
void pp_explain_pod(pp_operator *op, const pp_session *session, const pp_pod *pod);

/* collect.c */
void pp_collect_tick(pp_work *work);

/* solve.c */
void pp_solve_tick(pp_work *work);

/* reconcile.c */
void pp_reconcile(pp_operator *op, const char *key);

#endif
