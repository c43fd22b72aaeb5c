/* What the parts of the glue share: the edges, and what is known of the process and its cluster. */
#ifndef PP_OPERATOR_STATE_STATE_H
#define PP_OPERATOR_STATE_STATE_H

#include "common/metric.h"
#include "controller/match_index.h"
#include "controller/samples/clock_offset.h"
#include "operator/http_client/http_client.h"
#include "operator/http_server/server.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "operator/kube/informer.h"
#include "operator/kube/lease.h"
#include "operator/kube/token_review.h"
#include "operator/kube/workqueue.h"
#include "operator/prometheus/prometheus.h"
#include "operator/state/config.h"
#include "operator/state/meters.h"
#include "operator/state/rights.h"
#include "operator/state/turns.h"
#include "operator/store/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct pp_operator {
    uv_loop_t *loop;
    const pp_config *config;
    pp_http_client *http;
    pp_kube_client *kube;
    pp_kube_informer *sessions; /**< of pp_session */
    pp_kube_informer *pods;     /**< of pp_pod */
    pp_match_index *matches;    /**< which of these pods are of which session */
    struct pp_limits *limits;   /**< what bounds pods in each namespace; NULL: not watched yet */
    struct pp_limits_watch *limits_watch;
    struct pp_stuck *stuck;                         /**< pods that do not start */
    struct pp_silent *silent;                       /**< pods that are not heard from */
    struct pp_creations *creations;                 /**< pods that could not be created */
    pp_workqueue *queue;                            /**< keys of sessions */
    const struct pp_watches_events *watches_events; /**< whom the watches tell */
    pp_kube_lease *lease;
    pp_kube_recorder *recorder;
    pp_kube_reviewer *reviewer;
    pp_http_server *server;
    pp_store *store;
    pp_prometheus *prometheus;
    int64_t prometheus_failed_ns; /**< monotonic, when it last did not answer; 0: it does */
    bool prometheus_refused;      /**< it was a session's query, not the question for its time */
    pp_clock prometheus_clock;
    bool prometheus_told_time; /**< or could not */
    int64_t store_told_ns;     /**< monotonic, when the log last said how the store stands */
    pp_metric_source source;
    pp_meters meters;
    pp_turns turns;
    struct pp_results *results; /**< the HTTP API; NULL: it is not served */
    struct pp_tls *tls;
    struct pp_admission *admission;
    json_t *owner;                  /**< ownerReference to the operator's Deployment; NULL: none */
    json_t *labels;                 /**< of the Deployment's pods; NULL: not known */
    char *ca_bundle;                /**< PEM that agents trust; NULL: no certificate yet */
    char *endpoint;                 /**< wss://... for agents */
    struct pp_addresses *addresses; /**< of the Service that it names; NULL: it names none */
    char identity[128];             /**< of this process: host name and random digits */
    bool native_sidecar;
    bool holds_lease;
    struct pp_replicas *replicas; /**< the others of this installation; NULL: there are none */
    struct pp_claims *claims;     /**< of other installations; NULL: none are looked for */
    bool idle;                    /**< one of them goes before this one */
    bool leading;                 /**< holds the Lease and is not idle */
    int64_t serving_since_ns;     /**< when this process began to lead, ns since 1970 */
    bool draining;    /**< on the way to stopping: reviews are answered, nothing else begins */
    bool handed_over; /**< the Lease, or it could not be */
    bool stopping;
    bool failed; /**< stopped because of an error */
    uint64_t works_made;
    struct pp_runtime *runtimes; /**< by UID of the session */
    struct pp_runtime *runtimes_by_key;
    struct pp_runtime *awake; /**< those with something to collect or to solve */
    struct pp_solves *solves;
    int64_t solves_took_ns; /**< the last solutions of all runtimes: pp_runtime_solve_took */
    struct pp_peer *peers;  /**< of agent_connections.c */
    struct pp_pod_peers *peers_by_pod;
    struct pp_pending_call *contexts;
    unsigned inquiries; /**< of explain.c, under way */
    uv_timer_t drain;   /**< until reviews end */
    uv_timer_t tick;    /**< collects and solves what is due */
    unsigned ticks;
    uv_timer_t retention;
    bool clocks_told; /**< of retention.c: the database's is another one */
    struct pp_workload_metrics *workload_metrics; /**< NULL: none are exported */
    struct pp_patterns_left *patterns_left;       /**< of patterns.c; NULL: none */
    bool old_patterns_due;                        /**< of old_patterns.c */
    uv_timer_t recall; /**< of leader.c: how long agents are kept without the Lease */
    pp_rights rights;
    char rights_told[256]; /**< what the last Event about them said is missing */
    bool rights_news;      /**< sessions have not said so yet */
    uv_timer_t rights_timer;
};

#endif
