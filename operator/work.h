/* What this process does for each session and its pods. */
#ifndef PP_OPERATOR_WORK_H
#define PP_OPERATOR_WORK_H

#include "controller/plan.h"
#include "controller/session.h"

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

typedef struct pp_operator pp_operator;

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
    bool fine; /**< fine sampling told something of it */
    char fine_why[PP_SESSION_FINE_WHY];
    int64_t replays; /**< of its layers */
    bool replaying;  /**< the last batch of a process of it is of replays */
    char isolated[PP_SESSION_ISOLATED_WHY];
    UT_hash_handle hh;
} pp_work_target;

/** What this process is doing for one session. Rebuilt from the store after a restart. */
typedef struct pp_work {
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
    /** All there were, "": none yet. They stay: what was left out stays out of the results. */
    char prometheus_warning[448];
    pp_strings shared; /**< GPUs that several pods held at a time, as the exporter says */
    unsigned queries;  /**< to Prometheus, under way */
    bool solving;      /**< solutions are being made */
    bool unsolved;     /**< data came in since the last solution began */
    bool finalise;     /**< the next solution is the final one */
    int64_t solved_ns; /**< monotonic, when the last solution ended */
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
} pp_work;

/** The work of a session, made when there is none; NULL without memory. */
pp_work *pp_work_get(pp_operator *op, const pp_session *session);
/** NULL: there is none. */
pp_work *pp_work_find(const pp_operator *op, const char *uid);
/** The same, but only the very work that has this serial: for what outlives a turn of the loop. */
pp_work *pp_work_same(const pp_operator *op, const char *uid, uint64_t serial);
void pp_work_drop(pp_work *work);
void pp_work_drop_all(pp_operator *op);
/** Made when there is none; NULL without memory. */
pp_work_target *pp_work_get_target(pp_work *work, const char *pod_uid);

#endif
