/*
 * Reading results, on connections of their own: what is slow or asked for often here keeps the
 * store's writes waiting for nothing. Each query is one read-only transaction of one snapshot, with
 * a limit on its time; so many run at once, so many wait. Nothing is migrated here: before the
 * schema is there, queries fail.
 */
#ifndef PP_OPERATOR_STORE_QUERY_H
#define PP_OPERATOR_STORE_QUERY_H

#include "common/cell.h"
#include "common/error.h"
#include "common/json.h"

#include <stdint.h>
#include <uv.h>

typedef struct pp_reader pp_reader;

/** Names one query of one reader; 0 names none. */
typedef uint64_t pp_query_id;

enum { PP_READER_MAX_CONNECTIONS = 16, PP_QUERY_MAX_KEYS = 8 };

typedef struct pp_reader_options {
    const char *conninfo_file;  /**< libpq connection string or URI; or */
    const char *conninfo;       /**< the same as text */
    int64_t connect_timeout_ns; /**< 0: 10 s */
    int connections;            /**< 1 to PP_READER_MAX_CONNECTIONS */
    size_t max_waiting;         /**< queries beside those that run */
    int64_t timeout_ns;         /**< of a query in the database; at least 1 ms */
} pp_reader_options;

/** Starts to connect. The loop outlives the reader. NULL on error. */
pp_reader *pp_reader_new(uv_loop_t *loop, const pp_reader_options *options, pp_error *err);
/** Every query ends with PP_ERR_UNAVAILABLE now; run the loop until the handles are closed. NULL is
 *  allowed. */
void pp_reader_free(pp_reader *reader);
/** Whether any connection works. */
bool pp_reader_ready(const pp_reader *reader);

/** What is read, and the keys of its rows (docs/results.md has the views). */
typedef enum pp_query_kind {
    PP_QUERY_SESSIONS_OF, /**< those of a namespace, the latest first: created (us), UID */
    PP_QUERY_SESSIONS,    /**< of all namespaces: the same */
    PP_QUERY_SESSION,     /**< one, with its pods: no keys */
    PP_QUERY_LAYERS,      /**< UID of the session, pod, GPU, kind, layer, phase */
    PP_QUERY_QUALITY,     /**< UID, pod, GPU, method, process (-1: none), metric */
    PP_QUERY_KERNELS,     /**< UID, pod, process, layer, phase, kernel */
    PP_QUERY_WAITS,       /**< UID, pod, process, layer, phase, call, file, line */
    PP_QUERY_COPIES,      /**< UID, pod, process, layer, phase, type, memory */
    PP_QUERY_RANKS,       /**< UID, workload's kind and name, rank, pod, process */
    PP_QUERY_RANK_ITEMS,  /**< the same, and layer, phase */
    PP_QUERY_TIMELINE,    /**< UID, pod, process, begin of the step (ns), its number */
    PP_QUERY_PATTERNS,    /**< of a namespace: the pattern's name */
    PP_QUERY_PATTERN,     /**< one, whole: no keys */
    PP_QUERY_WORKLOADS,   /**< with the newest of the sessions `known`, the newest first: no keys */
    PP_QUERY_WORKLOAD,    /**< in one session, as a mean over its GPUs: no keys. `limit` layers are
                               told apart, those that take most time; the rest is summed */
    PP_QUERY_KINDS,
} pp_query_kind;

/** Rows of a page at most, whatever `limit` is, so that one more says that others follow; 0: it has
 * no pages. */
int64_t pp_query_most(pp_query_kind kind);

/** Whether rows of versions that are `known` are left out. */
bool pp_query_has_versions(pp_query_kind kind);

/** A row's key, or a part of it. */
typedef struct pp_query_key {
    const char *text; /**< NULL: an integer */
    int64_t number;
} pp_query_key;

/** Texts are borrowed during the call. */
typedef struct pp_query {
    pp_query_kind kind;
    uint64_t who;              /**< for whom: nobody has all connections, where there are several,
                                    nor more than half of the places to wait; 0: not counted so */
    const char *ns;            /**< needed but for PP_QUERY_SESSIONS and PP_QUERY_WORKLOADS */
    const char *session;       /**< its name, or the pattern's, but for lists */
    const char *uid;           /**< of the session; NULL: the latest of that name */
    const char *workload_kind; /**< of PP_QUERY_WORKLOAD, as is its name */
    const char *workload_name;
    const char *pod;           /**< of the timeline: its UID; NULL: the first */
    int64_t process;           /**< of the timeline; -1: the first */
    int64_t limit;             /**< rows, pp_query_most at most; one more where others follow */
    const pp_strings *known;   /**< versions whose rows the caller has: they are not read. Of
                                    PP_QUERY_WORKLOADS UIDs of sessions */
    const pp_query_key *after; /**< only rows behind this key; as many parts as it has */
    size_t n_after;            /**< 0: from the first on */
} pp_query;

/** The rows come in the order of their keys. What goes on with the row before comes with what is
 * nested alone. -1 ends the query with *err; 1 ends it well: no more is wanted, nor read. */
typedef int (*pp_query_row_fn)(void *user, const pp_cell *cells, size_t n, pp_error *err);
/** The rows so far count for nothing: they come again. */
typedef void (*pp_query_reset_fn)(void *user);
/** error is NULL on success; borrowed. Without any row there is no such session. */
typedef void (*pp_query_done_fn)(void *user, const pp_error *error);

/**
 * Starts a query; its callbacks come from the loop, `done` last and once. -1 with
 * PP_ERR_UNAVAILABLE where too many wait, PP_ERR_INVALID for wrong arguments. Errors that `done`
 * gets: PP_ERR_UNAVAILABLE (the database is away, or has no schema), PP_ERR_TIMEOUT (it took too
 * long), PP_ERR_INTERNAL, PP_ERR_NOMEM, and what `row` set.
 */
int pp_reader_query(pp_reader *reader, const pp_query *query, pp_query_row_fn row,
                    pp_query_reset_fn reset, pp_query_done_fn done, void *user, pp_query_id *ret_id,
                    pp_error *err);

/** No callback comes any more, and what runs in the database is cancelled there, soon. Unknown and
 * finished ids are fine. */
void pp_reader_cancel(pp_reader *reader, pp_query_id id);

#endif
