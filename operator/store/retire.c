/* The end of a session, and of what is past its retention. */
#include "common/time.h"
#include "operator/store/store_internal.h"

static const char finish_sql[] =
    "UPDATE session s SET phase = $2, finished_at = to_timestamp($3::bigint / 1e9), "
    "first_step_ns = t.first_ns, last_step_ns = t.last_ns "
    "FROM (SELECT min(first_ns) AS first_ns, max(last_ns) AS last_ns FROM target "
    " WHERE session_uid = $1) t "
    "WHERE s.uid = $1 AND s.finished_at IS NULL";

void pp_store_add_finish(pp_job *job, const char *session_uid, const char *phase,
                         int64_t finished_ns)
{
    pp_statement *s = pp_job_add(job, finish_sql);
    pp_sql_text(s, session_uid);
    pp_sql_text(s, phase);
    pp_sql_int8(s, finished_ns);
}

int pp_store_finish(pp_store *store, const char *session_uid, const char *phase,
                    int64_t finished_ns, pp_store_done_fn done, void *user, pp_error *err)
{
    if (pp_store_need(session_uid, "session", err) < 0 || pp_store_need(phase, "phase", err) < 0)
        return -1;
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return -1;
    call->done = done;
    pp_store_add_finish(&call->job, session_uid, phase, finished_ns);
    return pp_call_submit(store, PP_LANE_INGEST, call, err);
}

enum {
    MAX_BATCHES = 500,
    MAX_SAMPLE_ROWS = 5000,
    MAX_KERNEL_ROWS = 5000,
    MAX_WAIT_ROWS = 5000,
    MAX_COPY_ROWS = 5000,
    MAX_SESSIONS = 1,
    MAX_PARTITIONS = 10
};

#define DATABASE_NS "(extract(epoch FROM now()) * 1000000000)::bigint"
/* $1: our clock (ns), $2: an age; NULL: nothing is due. What is deleted is gone for good: so it has
 * to be old by the database's clock, too. */
#define DUE_NS "(least($1::bigint, " DATABASE_NS ") - $2::bigint)"
#define DUE_AT "to_timestamp(" DUE_NS " / 1e9)"

/* Of sessions that ended before what is due. $3: at most so many rows. */
/* By the key's index, session after session: most that are due have nothing left. */
#define DELETE_OF(table)                                                                           \
    "WITH gone AS (DELETE FROM " table " WHERE ctid = ANY (ARRAY (SELECT a.ctid FROM session s "   \
    "CROSS JOIN LATERAL (SELECT ctid FROM " table " WHERE session_uid = s.uid LIMIT $3) a "        \
    "WHERE s.finished_at < " DUE_AT " LIMIT $3)) RETURNING 1) SELECT count(*) FROM gone"
static const char activity_sql[] = DELETE_OF("activity");
static const char rows_sql[] = DELETE_OF("sample");
static const char kernels_sql[] = DELETE_OF("kernel");
static const char waits_sql[] = DELETE_OF("host_wait");
static const char copies_sql[] = DELETE_OF("gpu_copy");
/* A session goes when its activity and rows are gone, so that no deletion is a large one. */
static const char sessions_sql[] =
    "WITH gone AS (DELETE FROM session WHERE uid IN (SELECT s.uid FROM session s "
    "WHERE s.finished_at < " DUE_AT " "
    "AND NOT EXISTS (SELECT 1 FROM activity a WHERE a.session_uid = s.uid) "
    "AND NOT EXISTS (SELECT 1 FROM sample a WHERE a.session_uid = s.uid) "
    "AND NOT EXISTS (SELECT 1 FROM kernel a WHERE a.session_uid = s.uid) "
    "AND NOT EXISTS (SELECT 1 FROM host_wait a WHERE a.session_uid = s.uid) "
    "AND NOT EXISTS (SELECT 1 FROM gpu_copy a WHERE a.session_uid = s.uid) "
    "ORDER BY s.finished_at LIMIT $3) RETURNING 1) SELECT count(*) FROM gone";
static const char partitions_sql[] =
    "SELECT CASE WHEN $2::bigint IS NULL THEN 0::bigint ELSE metric_sample_drop(" DUE_NS ", $3) "
    "END";
static const char ahead_sql[] = "SELECT $1::bigint - " DATABASE_NS;

typedef struct retire_call {
    pp_call call;
    pp_store_retired_fn done;
    pp_store_retired retired;
    int64_t submitted_ns; /* monotonic: the call may have waited for the database */
} retire_call;

static int retire_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    static const int64_t limits[] = {MAX_BATCHES,   MAX_SAMPLE_ROWS, MAX_KERNEL_ROWS, MAX_WAIT_ROWS,
                                     MAX_COPY_ROWS, MAX_SESSIONS,    MAX_PARTITIONS};
    (void)err;
    const retire_call *c = (const retire_call *)job;
    pp_store_retired *out = &((retire_call *)job)->retired;
    int64_t *const counts[] = {&out->batches,   &out->sample_rows, &out->kernel_rows,
                               &out->wait_rows, &out->copy_rows,   &out->sessions,
                               &out->partitions};
    if (index == job->n - 1) {
        out->ahead_ns = pp_row_int(r, row, 0, 0) + pp_time_monotonic() - c->submitted_ns;
        return 0;
    }
    *counts[index] = pp_row_int(r, row, 0, 0);
    out->more |= *counts[index] >= limits[index];
    return 0;
}

static void retire_reset(pp_job *job)
{
    ((retire_call *)job)->retired = (pp_store_retired){0};
}

static void retire_ended(pp_job *job, const pp_error *error)
{
    const retire_call *c = (const retire_call *)job;
    c->done(c->call.user, error ? NULL : &c->retired, error);
}

static void add_limit(pp_job *job, const char *sql, int64_t age, int64_t now, int64_t most)
{
    pp_statement *s = pp_job_add(job, sql);
    pp_sql_int8(s, now);
    if (age > 0)
        pp_sql_int8(s, age);
    else
        pp_sql_null(s, PP_SQL_INT8);
    pp_sql_int4(s, most);
}

/* The sooner of two ages, where 0 is never. */
static int64_t sooner(int64_t a, int64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

int pp_store_retire(pp_store *store, const pp_store_retention *in, int64_t now_ns,
                    pp_store_retired_fn done, void *user, pp_error *err)
{
    if (in->activity < 0 || in->samples < 0 || in->results < 0)
        return pp_error_set(err, PP_ERR_INVALID, "a retention is negative");
    retire_call *c = pp_call_new(sizeof(*c), retire_ended, user, err);
    if (!c)
        return -1;
    c->done = done;
    c->submitted_ns = pp_time_monotonic();
    c->call.job.row = retire_row;
    c->call.job.reset = retire_reset;
    add_limit(&c->call.job, activity_sql, sooner(in->activity, in->results), now_ns, MAX_BATCHES);
    add_limit(&c->call.job, rows_sql, sooner(in->samples, in->results), now_ns, MAX_SAMPLE_ROWS);
    add_limit(&c->call.job, kernels_sql, in->results, now_ns, MAX_KERNEL_ROWS);
    add_limit(&c->call.job, waits_sql, in->results, now_ns, MAX_WAIT_ROWS);
    add_limit(&c->call.job, copies_sql, in->results, now_ns, MAX_COPY_ROWS);
    add_limit(&c->call.job, sessions_sql, in->results, now_ns, MAX_SESSIONS);
    add_limit(&c->call.job, partitions_sql, in->samples, now_ns, MAX_PARTITIONS);
    pp_sql_int8(pp_job_add(&c->call.job, ahead_sql), now_ns);
    return pp_call_submit(store, PP_LANE_BULK, c, err);
}
