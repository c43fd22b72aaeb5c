/*
 * One connection to Postgres that carries jobs: a job is a list of statements that are one
 * transaction (in pipeline mode everything up to a Sync is one). Jobs run in order. A job that was
 * on its way when the connection broke is sent again, so jobs must be idempotent.
 */
#ifndef PP_OPERATOR_STORE_CONNECTION_H
#define PP_OPERATOR_STORE_CONNECTION_H

#include "operator/store/prepared.h"
#include "operator/store/statement.h"
#include "operator/store/store.h"

typedef struct pp_job pp_job;
struct pp_job {
    pp_job *next;
    pp_statement **statements;
    int n;
    int room;
    size_t bytes;
    unsigned attempts;
    unsigned max_attempts;           /**< then it is given up; 0: as many as any */
    pp_prepared_statement *prepares; /**< it only has the server prepare this; connection.c's own */
    int answered;                    /**< statements whose answers are complete */
    bool answering;                  /**< a result of the next one has been seen */
    bool failed;                     /**< with `error`; the transaction is aborted */
    bool again;                      /**< the failure may pass: send it again */
    pp_error error;
    /** A row of statement `index`. May be NULL. Failing ends the job with that error. */
    int (*row)(pp_job *job, int index, const PGresult *r, int row, pp_error *err);
    /** Forget what rows said: the job is sent again. May be NULL. */
    void (*reset)(pp_job *job);
    /** Called once; then the job is freed with `free`. */
    void (*done)(pp_job *job, const pp_error *error);
    /** Frees what the job owns besides its statements. May be NULL. */
    void (*release)(pp_job *job);
};

/** The next statement of a job, never NULL; where there is no memory, the job fails. */
pp_statement *pp_job_add(pp_job *job, const char *sql);
void pp_job_free(pp_job *job);

typedef struct pp_connection pp_connection;

typedef struct pp_connection_events {
    void (*changed)(void *user); /**< ready or text changed */
    /** Jobs were sent again, the connection was lost. */
    void (*counted)(void *user, unsigned retried, bool lost);
    /** A job left: its bytes are free again. Called before its own `done`. */
    void (*left)(void *user, const pp_job *job, const pp_error *error);
    void (*closed)(void *user); /**< the last thing said */
    /** The schema's own code warned, while it was brought up to date. May be NULL. */
    void (*warned)(void *user, const char *text);
    void *user;
} pp_connection_events;

/** The options' texts are borrowed for the connection's life. Starts to connect. */
pp_connection *pp_connection_new(uv_loop_t *loop, const pp_store_options *options,
                                 const pp_connection_events *events, pp_error *err);
/** All jobs end with an error now; `closed` is said from the loop, then the memory is freed. */
void pp_connection_close(pp_connection *c);
/** Whether the schema could not be brought up to date, since somebody holds what that has to lock.
 */
bool pp_connection_got_no_lock(const pp_connection *c);

/** Makes the next attempt to connect now, where it waits for that. */
void pp_connection_try_now(pp_connection *c);
/** Takes the job over. */
void pp_connection_submit(pp_connection *c, pp_job *job);
bool pp_connection_ready(const pp_connection *c);
/** What ends the server's work for this connection (PQcancel), whatever it then is: to be freed
 * with PQfreeCancel. NULL: there is no connection, or no memory. */
PGcancel *pp_connection_canceller(const pp_connection *c);
const char *pp_connection_text(const pp_connection *c);

#endif
