/* What this process does for each session and its pods. */
#ifndef PP_OPERATOR_CACHE_SESSION_RUNTIME_H
#define PP_OPERATOR_CACHE_SESSION_RUNTIME_H

#include "controller/allowance.h"
#include "controller/samples/plan.h"
#include "controller/session/session.h"
#include "operator/cache/owners.h"
#include "operator/cache/refusals.h"
#include "operator/state/config.h"

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

typedef struct pp_operator pp_operator;

#define PP_RUNTIME_MAX_IDLE 16 /* captures of a pod without a training that are told apart */

/** One injected pod of a session, as far as this process has seen it. */
typedef struct pp_runtime_target {
    char pod_uid[64]; /**< key */
    bool row_written; /**< put_target was given to the store */
    bool row_placed;  /**< and it held node and address */
    pp_strings gpus;  /**< UUIDs that its processes named */
    pp_allowance allowance;
    int64_t rank;          /**< lowest of its processes; -1: unknown */
    bool open_capture;     /**< its last batch did not end a capture */
    int64_t last_batch_ns; /**< when the last batch was stored; 0: none yet */
    int64_t events;
    int64_t steps;
    int64_t dropped;
    int64_t epoch;
    int64_t batch;
    bool pm; /**< PM sampling told something of it */
    char pm_why[PP_SESSION_PM_WHY];
    int64_t replays; /**< of its layers */
    bool replaying;  /**< the last batch of a process of it is of replays */
    char isolated[PP_SESSION_ISOLATED_WHY];

    /* Its part in the session, as in pp_session_pod. */
    char *name; /**< of the pod; NULL: this process has not seen it */
    pp_owner_kind owner;
    char *owner_name; /**< NULL: nothing made it */
    int64_t lived_from_ns, lived_to_ns;
    int64_t heard_from_ns, heard_to_ns;
    pp_session_span idle[PP_RUNTIME_MAX_IDLE];
    size_t n_idle;
    bool is_idle;           /**< the last of these goes on */
    bool over;              /**< it was seen to have ended */
    unsigned turn;          /**< of the session's looks, the one that last saw it */
    char *refused_why;      /**< why its last refused batch was; NULL: none was */
    pp_session_clock clock; /**< its node's */
    UT_hash_handle hh;
} pp_runtime_target;

/** What this process is doing for one session. Rebuilt from the store after a restart. */
typedef struct pp_runtime {
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
    pp_runtime_target *targets;
    unsigned turn;        /**< counts the session's looks */
    pp_owners owners;     /**< of the pods that it profiles */
    pp_refusals refusals; /**< why pods that match are not injected */
    pp_plan *plan;
    bool asked;                 /**< Prometheus answered at least once */
    char prometheus_error[256]; /**< "": none */
    /** All there were, "": none yet. They stay: what was left out stays out of the results. */
    char prometheus_warning[448];
    int64_t prometheus_shift_ns;  /**< taken out of its stamps; whole ms */
    bool prometheus_clock_stored; /**< with what was measured */
    pp_strings shared;       /**< GPUs that several pods held at a time, as the exporter says */
    unsigned queries;        /**< to Prometheus, under way */
    bool solving;            /**< solutions are being made */
    bool unsolved;           /**< data came in since the last solution began: pp_runtime_unsolved */
    bool finalise;           /**< the next solution is the final one */
    int64_t known_ns;        /**< monotonic, when the session became known */
    int64_t solved_ns;       /**< monotonic, when the last solution ended */
    int64_t solve_took_ns;   /**< pp_runtime_solve_took */
    unsigned solve_failures; /**< in a row, while the store was reachable */
    char solve_error[256];   /**< of the last solution; "": it was made */
    int64_t trouble_since_ns[PP_TROUBLE_COUNT]; /**< as last decided */
    pp_selector_near *near;                     /**< where no pod matches; NULL: not looked for */
    int64_t near_after_ns;                      /**< monotonic: and is again from then on */
    bool collect;                               /**< Prometheus is to be asked */
    bool status_writing;                        /**< a status patch is under way */
    char stale_version[64]; /**< resourceVersion that our last patch replaced: wait for a newer */
    int64_t stale_until_ns; /**< monotonic: the version is taken again, whatever it is; 0: never */
    int64_t status_written_ns; /**< monotonic, the last time; 0: not yet */
    int64_t status_retry_ns;   /**< monotonic: the pause after a failed write ends */
    unsigned status_failures;
    bool awake; /**< in op->awake */
    struct pp_runtime *prev, *next;
    UT_hash_handle hh;
    UT_hash_handle by_key;
} pp_runtime;

/** What is asked of Prometheus for a session, and until when, by the intervals that are configured;
 * those that are not may be as long as is usual (plan.h). */
void pp_runtime_plan_options(const pp_config *config, unsigned metrics, pp_plan_options *ret);

/** The work of a session, made when there is none; NULL without memory. */
pp_runtime *pp_runtime_get(pp_operator *op, const pp_session *session);
/** NULL: there is none. */
pp_runtime *pp_runtime_find(const pp_operator *op, const char *uid);
/** The same, but only the very work that has this serial: for what outlives a turn of the loop. */
pp_runtime *pp_runtime_same(const pp_operator *op, const char *uid, uint64_t serial);
/** By "namespace/name"; NULL: there is none. */
pp_runtime *pp_runtime_of_key(const pp_operator *op, const char *key);
/** From now on it is looked at with each tick, until nothing is to be collected or solved. */
void pp_runtime_wake(pp_runtime *runtime);
/** Data came in that no solution has. */
void pp_runtime_unsolved(pp_runtime *runtime);
/** What the last solution took, ns; 0: there will be no other. op->solves_took_ns has all of them.
 */
void pp_runtime_solve_took(pp_runtime *runtime, int64_t took_ns);
/** Calls fn for those that are awake; it may drop the one that it is called for. */
void pp_runtime_each_awake(pp_operator *op, void (*fn)(pp_runtime *runtime));
void pp_runtime_drop(pp_runtime *runtime);
void pp_runtime_drop_all(pp_operator *op);
/** Takes note of how the pod stands now, on this process' clock. */
void pp_runtime_see(pp_runtime_target *target, const pp_session_pod *pod, int64_t now_ns);
/** The same of what the store holds: the pod's first observed moment (0: none) on its own clock. */
void pp_runtime_restore(pp_runtime_target *target, int64_t first_ns, int64_t now_ns);
/** Why a batch of the pod was refused. */
void pp_runtime_refused(pp_runtime *runtime, const char *pod_uid, const char *why);
/** What differs between a session's status and what is decided. */
/** It collects until its duration is over: its figures are read for people alone, and nothing is
 * decided by the next batch. */
bool pp_runtime_is_steady(const pp_runtime *runtime, const pp_session *session);

typedef enum pp_status_news {
    PP_STATUS_FIGURES,   /**< figures that tell nothing */
    PP_STATUS_TEXTS,     /**< what else matters */
    PP_STATUS_CONDITION, /**< a condition's status or reason */
    PP_STATUS_PHASE,
} pp_status_news;
/** How long its writing has to wait, ns; 0: it may be written now. Only a phase waits for nothing
 * but the pause after a failure: conditions may follow what an agent says, in turns. The more
 * `sessions` are under way, the further apart one's writes are, so that all of them together cost
 * the API server no more than 10 writes of figures a second, 30 of texts and 100 of conditions; but
 * a condition waits for 20 s at most, and a text for 60. */
int64_t pp_runtime_status_wait(const pp_runtime *runtime, pp_status_news news, size_t sessions,
                               int64_t now_ns);
/** Made when there is none; NULL without memory. */
pp_runtime_target *pp_runtime_get_target(pp_runtime *runtime, const char *pod_uid);

#endif
