/* What the files of the store share: a call is a job that knows its store and its caller. */
#ifndef PP_OPERATOR_STORE_INTERNAL_H
#define PP_OPERATOR_STORE_INTERNAL_H

#include "operator/store/connection.h"
#include "operator/store/store.h"

/** Numbers in process.chip, in pp_chip's order. */
enum { PP_STORE_CHIP = 5 };

/** A row's array of these, as process.chip has them; NULL, a row of an older program, leaves `ret`.
 */
int pp_store_take_chip(const PGresult *r, int row, int column, pp_chip *ret, pp_error *err);

/** Which connection: what the ingest waits for, or what is large or slow. */
typedef enum pp_lane { PP_LANE_INGEST, PP_LANE_BULK, PP_LANES } pp_lane;

struct pp_store {
    pp_store_options options;
    char *conninfo;
    char *conninfo_file;
    pp_connection *lanes[PP_LANES];
    int open_lanes; /**< not yet said to be closed */
    bool closing;
    bool was_ready;
    char text[512];
    pp_store_counters counters;
    pp_strings warnings; /**< that were told */
};

/** A call with nothing to say but whether it worked; others put it first in a struct of theirs. */
typedef struct pp_call {
    pp_job job;
    pp_store_done_fn done;
    void *user;
} pp_call;

/** A zeroed call of `size` bytes (at least pp_call's) whose end is `ended`; NULL: calls `done`.
 *  NULL when out of memory. */
void *pp_call_new(size_t size, void (*ended)(pp_job *job, const pp_error *error), void *user,
                  pp_error *err);

/** Queues the call, or frees it and returns -1. */
int pp_call_submit(pp_store *store, pp_lane lane, void *call, pp_error *err);

/*
 * The statements of the calls, for a job that carries several of them in its one transaction. What
 * they are given has been checked.
 */
/** `sql` inserts the session, in the order of its fields. */
void pp_store_add_session(pp_job *job, const char *sql, const pp_store_session *session);
void pp_store_add_target(pp_job *job, const pp_store_target *target);
void pp_store_add_batch(pp_job *job, const char *session_uid, const char *pod_uid,
                        const pp_wire_batch *batch, const pp_store_clock *clock);
/** `first` and `last`: their stamps' range; `source`: where the samples come from. */
void pp_store_add_samples(pp_job *job, const pp_strings *gpus, const pp_activity_sample *samples,
                          size_t n, const char *source, int64_t first, int64_t last);
/** At most `most`, each consistent, and over at most 400 days; says their stamps' range. */
int pp_store_check_samples(const pp_strings *gpus, const pp_activity_sample *samples, size_t n,
                           size_t most, int64_t *ret_first, int64_t *ret_last, pp_error *err);
int pp_store_add_solution(pp_job *job, const char *session_uid, const char *pod_uid,
                          const pp_estimates *solution, const pp_usage *usage, const char *source,
                          bool final, pp_error *err);
/** Behind the solution, in its transaction: it stands and falls with it. */
int pp_store_add_usage(pp_job *job, const char *session_uid, const char *pod_uid, const char *gpu,
                       const pp_usage *usage, pp_error *err);
/** Lets two jobs that solved the same target follow each other; each row of it is to be skipped. */
void pp_store_lock_target(pp_job *job, const char *session_uid, const char *pod_uid);
/** For jobs whose rows nobody reads: that of a lock. */
int pp_store_skip_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err);
int pp_store_add_ranks(pp_job *job, const char *session_uid, const char *pod_uid,
                       const pp_ranks *ranks, bool final, pp_error *err);
void pp_store_add_finish(pp_job *job, const char *session_uid, const char *phase,
                         int64_t finished_ns);

/** PP_ERR_INVALID unless the text is there. */
int pp_store_need(const char *text, const char *what, pp_error *err);

#endif
