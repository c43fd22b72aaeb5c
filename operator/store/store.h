/*
 * The result store: Postgres through libpq on the loop, in pipeline mode.
 *
 * Every call is one transaction. It copies what it needs, is queued (bounded), and its callback is
 * called exactly once, never before the call returns: after COMMIT, or with an error that trying
 * again would not cure, or with PP_ERR_UNAVAILABLE when the store is freed first. While Postgres
 * is away calls are kept and sent again after reconnecting, also those whose COMMIT nobody saw:
 * each is idempotent. Two connections: one for what the ingest waits for, in order; one for what is
 * large or slow (loads, solutions, samples, retention), in order too. Between the two there is no
 * order but that of the callbacks.
 *
 * A call returns -1 (and calls nothing) with PP_ERR_UNAVAILABLE when the queue is full, with
 * PP_ERR_INVALID for wrong arguments. Errors that callbacks get: PP_ERR_INVALID (the data is
 * refused by the database), PP_ERR_NOT_FOUND (session or target is not in the store),
 * PP_ERR_UNAVAILABLE (rights, schema, or given up), PP_ERR_TIMEOUT (cancelled), PP_ERR_NOMEM,
 * PP_ERR_TOO_LARGE.
 *
 * Callbacks run on the loop's thread; they may call the store and free it. Times are ns since
 * 1970. Schema: migrations/; applied at every connect by who may, under an advisory lock.
 */
#ifndef PP_OPERATOR_STORE_STORE_H
#define PP_OPERATOR_STORE_STORE_H

#include "common/error.h"
#include "common/wire.h"
#include "controller/session/session.h"
#include "estimate/activity/activity.h"
#include "estimate/items/estimates.h"
#include "estimate/pattern/workloads.h"
#include "estimate/times/ranks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

typedef struct pp_store pp_store;

typedef struct pp_store_options {
    const char *conninfo_file;  /**< libpq connection string or URI; or */
    const char *conninfo;       /**< the same as text */
    int64_t connect_timeout_ns; /**< 0: 10 s */
    int64_t stall_timeout_ns;   /**< no answer to what was sent: reconnect; 0: 120 s */
    int64_t backoff_min_ns;     /**< between attempts to connect, doubling; 0: 200 ms */
    int64_t backoff_max_ns;     /**< 0: 10 s */
    size_t max_queued_bytes;    /**< of what waits and is on its way; 0: 64 MiB */
    bool reads_only;            /**< of a reader's connections (query.h): nothing is migrated */
    /** Whether the schema may be brought up to date now; else an older one is waited with. NULL: it
     * may always. */
    bool (*may_migrate)(void *user);
    /** Called when `ready` or the text of the health changed; may be NULL. */
    void (*on_health)(void *user, bool ready, const char *text);
    /** What the database's owner is to put right, though all goes on; once for each text. May be
     *  NULL. */
    void (*on_warning)(void *user, const char *text);
    void *user;
} pp_store_options;

/** Starts to connect. The loop outlives the store. NULL on error. */
pp_store *pp_store_new(uv_loop_t *loop, const pp_store_options *options, pp_error *err);

/** Every outstanding call gets PP_ERR_UNAVAILABLE now; run the loop until the handles are closed.
 *  NULL is allowed. */
void pp_store_free(pp_store *store);

/** Whether it is not ready since somebody holds what a migration has to lock, which passes. */
bool pp_store_got_no_lock(const pp_store *store);

/** What waits for its next attempt to connect makes it now: `may_migrate` has become true. */
void pp_store_try_now(pp_store *store);

/** Whether both connections work; *ret_text (may be NULL) says how it stands, borrowed until the
 *  next turn of the loop. */
bool pp_store_ready(const pp_store *store, const char **ret_text);

typedef struct pp_store_counters {
    uint64_t committed;   /**< transactions */
    uint64_t failed;      /**< calls that ended with an error */
    uint64_t retried;     /**< sent again after a lost connection or a conflict */
    uint64_t disconnects; /**< connections lost */
    size_t queued;        /**< calls that wait or are on their way */
    size_t queued_bytes;
} pp_store_counters;

void pp_store_get_counters(const pp_store *store, pp_store_counters *ret);

/** error is NULL on success; borrowed. A call with this callback may leave it NULL. */
typedef void (*pp_store_done_fn)(void *user, const pp_error *error);

/** Texts are borrowed during the call. */
typedef struct pp_store_session {
    const char *uid;
    const char *ns;
    const char *name;
    const char *spec; /**< JSON text */
    const char *method;
    const char *phase;
    int64_t created_ns;
} pp_store_session;

/** Inserts or updates; a session that is finished stays as it is. */
int pp_store_put_session(pp_store *store, const pp_store_session *session, pp_store_done_fn done,
                         void *user, pp_error *err);

/** Texts are borrowed during the call; NULL: not known (uids, ns, names and kind are needed). */
typedef struct pp_store_target {
    const char *session_uid;
    const char *pod_uid;
    const char *ns;
    const char *pod_name;
    const char *container;
    const char *node;
    const char *host_name; /**< NULL keeps what a batch said */
    const char *ip;
    const char *workload_kind;
    const char *workload_name;
    double cpu_request; /**< cores; NaN: none */
} pp_store_target;

/** Inserts or updates what describes it; never its counters. A known value is not unlearnt. */
int pp_store_put_target(pp_store *store, const pp_store_target *target, pp_store_done_fn done,
                        void *user, pp_error *err);

/** `inserted` is false where the batch was there already and nothing changed. */
typedef void (*pp_store_batch_fn)(void *user, bool inserted, const pp_error *error);

/** What a batch adds to its target's `events`: its intervals but those that go on, or its grid's
 * calls; nothing where it is of replays. */
int64_t pp_store_count_events(const pp_wire_batch *batch);

/** Which clock a batch's stamps were on; they are on the operator's when it is stored. */
typedef struct pp_store_clock {
    int64_t now_ns;   /**< when it came, on the operator's clock */
    int64_t shift_ns; /**< taken out of its stamps already */
    int64_t began_ns; /**< when its first step began, for the session's beginning; 0: it has none */
    bool known;       /**< ahead_ns and bound_ns are: the node's clock less the operator's */
    int64_t ahead_ns, bound_ns;
} pp_store_clock;

/** Stores a batch and advances the target's and the process' counters, once. `clock` may be NULL:
 * it comes now, by the database's clock, and nothing is known of the node's. */
int pp_store_put_batch(pp_store *store, const char *session_uid, const char *pod_uid,
                       const pp_wire_batch *batch, const pp_store_clock *clock,
                       pp_store_batch_fn done, void *user, pp_error *err);

/** How far Prometheus' clock is ahead of the operator's, and what is taken out of the stamps of raw
 * samples wherever they are held against this session's activity. They are stored as they came. */
int pp_store_put_prometheus_clock(pp_store *store, const char *session_uid, int64_t shift_ns,
                                  int64_t ahead_ns, int64_t bound_ns, pp_store_done_fn done,
                                  void *user, pp_error *err);

/**
 * Stores raw samples; those that are there stay. At most 100,000 in a call, over at most 400 days;
 * a sample that is not finite is refused. Makes the days' partitions.
 */
int pp_store_put_samples(pp_store *store, const pp_strings *gpus, const pp_activity_sample *samples,
                         size_t n, pp_store_done_fn done, void *user, pp_error *err);

/** On success *activity is the caller's (take it and leave NULL, or leave it to be freed). */
typedef void (*pp_store_load_fn)(void *user, pp_activity **activity, const pp_error *error);

/**
 * Everything needed to solve a target: its activity, and the samples of its GPUs from `before_ns`
 * before its first to `after_ns` after its last observed moment, their stamps on the operator's
 * clock. Bounded: see `truncated`.
 */
int pp_store_load(pp_store *store, const char *session_uid, const char *pod_uid, int64_t before_ns,
                  int64_t after_ns, pp_store_load_fn done, void *user, pp_error *err);

/** Replaces the target's solution for the solution's GPU, and how that was used (NULL: not known),
 *  and counts its revision up. A final one is replaced only by a final one. */
int pp_store_put_solution(pp_store *store, const char *session_uid, const char *pod_uid,
                          const pp_estimates *solution, const pp_usage *usage, bool final,
                          pp_store_done_fn done, void *user, pp_error *err);

/** Replaces what is stored of the target's processes side by side. Nothing is kept of one that is
 *  alone in its pod and its job. What was put with `final` is replaced only by the same. */
int pp_store_put_ranks(pp_store *store, const char *session_uid, const char *pod_uid,
                       const pp_ranks *ranks, bool final, pp_store_done_fn done, void *user,
                       pp_error *err);

/** A finished session of one pod that was gathered elsewhere, in the making. */
typedef struct pp_store_import pp_store_import;

/** Texts are borrowed during the call; the session's phase is the one that it ended with. `source`
 *  says where its samples come from; static. NULL on error. */
pp_store_import *pp_store_import_new(const pp_store_session *session, const pp_store_target *target,
                                     const char *source, pp_error *err);
/** NULL is allowed. */
void pp_store_import_free(pp_store_import *import);
void pp_store_import_batch(pp_store_import *import, const pp_wire_batch *batch);
/** Any number of samples, over at most 400 days. */
int pp_store_import_samples(pp_store_import *import, const pp_activity *activity, pp_error *err);
int pp_store_import_solution(pp_store_import *import, const pp_estimates *solution,
                             const pp_usage *usage, pp_error *err);
int pp_store_import_ranks(pp_store_import *import, const pp_ranks *ranks, pp_error *err);

/** All of it in one transaction. `inserted` is false where a session of that UID is there already:
 *  then nothing changes. Takes the import over, also on failure. */
int pp_store_import_submit(pp_store *store, pp_store_import *import, int64_t finished_ns,
                           pp_store_batch_fn done, void *user, pp_error *err);

/** One target, as in pp_session_pod. */
typedef struct pp_store_target_stats {
    char *pod_uid;
    pp_strings gpus;
    int64_t rank;              /**< lowest of its processes; -1: unknown */
    bool open_capture;         /**< the last batch of a process did not end its capture */
    int64_t last_batch_ns;     /**< when the last batch was stored; 0: none yet */
    int64_t first_ns;          /**< start of its first sampled step; 0: none yet */
    int64_t began_ns;          /**< the same, as it counts for the session's beginning */
    int64_t last_ns;           /**< end of its last one */
    int64_t observed_first_ns; /**< what its batches cover; 0: none yet */
    int64_t observed_last_ns;
    int64_t events, steps, dropped; /**< steps: of the process that has fewest */
    int64_t epoch, batch;           /**< -1: unknown */
    bool pm;                        /**< PM sampling told something of it */
    char pm_why[PP_SESSION_PM_WHY]; /**< why it tells nothing, or nothing more; "": not known */
    int64_t paused_ns;              /**< held for replays, of the process that was held longest */
    int64_t replays;                /**< of its layers */
    bool replaying;                 /**< the last batch of a process is of replays */
    char isolated[PP_SESSION_ISOLATED_WHY]; /**< why layers are not replayed; "": no reason */
    int64_t clock_shift_ns;                 /**< taken out of the stamps of its latest batch */
    int64_t clock_ahead_ns; /**< its node's clock less the operator's, as measured last */
    int64_t clock_bound_ns; /**< within this; 0: it was not measured */
} pp_store_target_stats;

typedef struct pp_store_stats {
    bool known; /**< the session is in the store */
    /** All but samples_complete, which the store cannot know. */
    pp_session_stats session;
    int64_t prometheus_shift_ns;    /**< as pp_store_put_prometheus_clock was told last */
    pp_store_target_stats *targets; /**< by pod_uid */
    size_t n_targets;
} pp_store_stats;

/** *stats is borrowed for the call. */
typedef void (*pp_store_stats_fn)(void *user, const pp_store_stats *stats, const pp_error *error);

/** How a session stands in the store. `after_ns`: samples are looked for that long after its last
 *  observed moment. */
int pp_store_load_stats(pp_store *store, const char *session_uid, int64_t after_ns,
                        pp_store_stats_fn done, void *user, pp_error *err);

/** Final phase, time, first and last step. The first call wins; an unknown session is no error. */
int pp_store_finish(pp_store *store, const char *session_uid, const char *phase,
                    int64_t finished_ns, pp_store_done_fn done, void *user, pp_error *err);

/** *usages are sorted, and the store's; NULL with an error. */
typedef void (*pp_store_usages_fn)(void *user, const pp_workload_usages *usages,
                                   const pp_error *error);

/** How GPUs were used by the workloads of a session, in the newest of all their sessions that
 *  Succeeded: at most 16 of each, of 64 GPUs. */
int pp_store_load_usages(pp_store *store, const char *session_uid, pp_store_usages_fn done,
                         void *user, pp_error *err);

/** Replaces the patterns of these workloads, but those that know of a later session. */
int pp_store_put_patterns(pp_store *store, const pp_patterns *patterns, pp_store_done_fn done,
                          void *user, pp_error *err);

/** Borrowed for the call. */
typedef void (*pp_store_uids_fn)(void *user, const pp_strings *uids, const pp_error *error);

/** UIDs of sessions (at most 10,000, oldest first) of a namespace (NULL: of all) that are not
 *  finished: those whose object is gone are to be finished. */
int pp_store_load_unfinished(pp_store *store, const char *ns, pp_store_uids_fn done, void *user,
                             pp_error *err);

/** Which of these workloads ("NAMESPACE/KIND/NAME", of which none holds a slash) have neither a
 *  pattern nor a usage of a GPU, in the given order. `workloads` is borrowed during the call. */
int pp_store_load_without_results(pp_store *store, const pp_strings *workloads,
                                  pp_store_uids_fn done, void *user, pp_error *err);

/** UIDs of the newest sessions that Succeeded, of each workload of a namespace (NULL: of all), at
 *  most 1,000: of these pp_store_load_usages() tells all workloads. */
int pp_store_load_pattern_sessions(pp_store *store, const char *ns, pp_store_uids_fn done,
                                   void *user, pp_error *err);

/** Ages, ns; 0: for ever. */
typedef struct pp_store_retention {
    int64_t activity; /**< since the session's end */
    int64_t samples;  /**< raw samples since their day's end; sample rows since the session's end */
    int64_t results;  /**< since the session's end: the session with all that is its own */
} pp_store_retention;

/** What one call deleted. */
typedef struct pp_store_retired {
    int64_t batches;
    int64_t sample_rows;
    int64_t kernel_rows;
    int64_t wait_rows;
    int64_t copy_rows;
    int64_t sessions;
    int64_t partitions; /**< days of raw samples */
    bool more;          /**< a bound was reached: call again */
    int64_t ahead_ns;   /**< `now_ns`' clock less the database's, within the transaction's length */
} pp_store_retired;

typedef void (*pp_store_retired_fn)(void *user, const pp_store_retired *retired,
                                    const pp_error *error);

/** Deletes what is past its retention at `now_ns`, and by the database's clock: a bounded piece per
 *  call. A day of raw samples that somebody reads is left to a later one. */
int pp_store_retire(pp_store *store, const pp_store_retention *retention, int64_t now_ns,
                    pp_store_retired_fn done, void *user, pp_error *err);

#endif
