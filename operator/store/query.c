#include "operator/store/query.h"

#include "operator/store/connection.h"
#include "operator/store/query_rows.h"
#include "operator/store/query_sql.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    MAX_CANCELS = 2, /* at once: others need the pool's threads, and a server may not answer */
    ATTEMPTS = 2,    /* the caller waits: one more where the connection broke */
    AGAIN_MS = 500,  /* until what should have ended is asked to end once more */
};
#define SECOND INT64_C(1000000000)

typedef struct read_call {
    pp_job job;
    pp_reader *reader;
    pp_query_id id;
    uint64_t who;
    int lane; /* whose connection has it; -1: it waits */
    bool cancelled;
    bool enough; /* no further row is wanted */
    pp_query_row_fn row;
    pp_query_reset_fn reset;
    pp_query_done_fn done;
    void *user;
    pp_query_rows rows;
    struct read_call *prev, *next; /* of those that wait */
} read_call;

/** A query's end, asked for in the database: on another thread, since that connects, and waits. */
typedef struct cancelling {
    uv_work_t work;
    pp_reader *reader;
    int lane;
    PGcancel *cancel;
} cancelling;

struct pp_reader {
    uv_loop_t *loop;
    pp_store_options options; /* of its connections */
    size_t max_waiting;
    char timeout[32]; /* as Postgres takes it */
    int n;
    int open; /* connections not yet said to be closed, and the timer */
    uv_timer_t again;
    pp_connection *connections[PP_READER_MAX_CONNECTIONS];
    read_call *running[PP_READER_MAX_CONNECTIONS];
    bool held[PP_READER_MAX_CONNECTIONS]; /* a cancelling is under way, which may come late */
    int cancels;                          /* of these */
    read_call *waiting;
    size_t n_waiting;
    pp_query_id last_id;
    bool closing;
    bool pumping;
};

/* ---- rows ---- */

static void end_in_database(pp_reader *reader, int lane);

/* What is left of it is not read, and not asked for again. */
static int stop_reading(read_call *c, pp_error *err)
{
    c->enough = true;
    c->job.max_attempts = 1;
    end_in_database(c->reader, c->lane);
    return pp_error_set(err, PP_ERR_UNAVAILABLE, "no more is wanted");
}

static int take_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    read_call *c = (read_call *)job;
    if (index == 0) /* of what begins the transaction */
        return 0;
    if (c->cancelled)
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "nobody waits for it");
    if (index < job->n - 1)
        return row == 0 ? pp_query_rows_terms(&c->rows, r, err) : 0;
    const int rc = pp_query_row(&c->rows, r, row, c->row, c->user, err);
    return rc > 0 ? stop_reading(c, err) : rc;
}

/* ---- queue ---- */

static int running_of(const pp_reader *reader, uint64_t who)
{
    int n = 0;
    for (int i = 0; i < reader->n; i++)
        n += reader->running[i] && reader->running[i]->who == who;
    return n;
}

static size_t waiting_of(const pp_reader *reader, uint64_t who)
{
    size_t n = 0;
    for (const read_call *c = reader->waiting; c; c = c->next)
        n += c->who == who;
    return n;
}

/* The first that may run: each leaves one connection to others, so that the queries of one that
 * take long keep nobody waiting. */
static read_call *next_call(const pp_reader *reader)
{
    const int most = reader->n > 1 ? reader->n - 1 : 1;
    for (read_call *c = reader->waiting; c; c = c->next) {
        if (!c->who || running_of(reader, c->who) < most)
            return c;
    }
    return NULL;
}

static bool may_wait(const pp_reader *reader, uint64_t who)
{
    return reader->n_waiting < reader->max_waiting &&
           (!who || waiting_of(reader, who) < (reader->max_waiting + 1) / 2);
}

static void pump(pp_reader *reader)
{
    if (reader->pumping || reader->closing)
        return;
    reader->pumping = true;
    for (int i = 0; i < reader->n && reader->waiting; i++) {
        if (reader->running[i] || reader->held[i] || !pp_connection_ready(reader->connections[i]))
            continue;
        read_call *c = next_call(reader);
        if (!c)
            break;
        DL_DELETE(reader->waiting, c);
        reader->n_waiting--;
        c->lane = i;
        reader->running[i] = c;
        pp_connection_submit(reader->connections[i], &c->job);
    }
    reader->pumping = false;
}

static void on_reset(pp_job *job)
{
    read_call *c = (read_call *)job;
    pp_query_rows_reset(&c->rows);
    if (!c->cancelled && !c->enough)
        c->reset(c->user);
}

static void on_release(pp_job *job)
{
    pp_query_rows_done(&((read_call *)job)->rows);
}

static void on_done(pp_job *job, const pp_error *error)
{
    read_call *c = (read_call *)job;
    pp_reader *reader = c->reader;
    reader->running[c->lane] = NULL;
    if (!c->cancelled)
        c->done(c->user, c->enough ? NULL : error);
    pump(reader);
}

static void on_changed(void *user)
{
    pump(user);
}

static void on_counted(void *user, unsigned retried, bool lost)
{
    (void)user;
    (void)retried;
    (void)lost;
}

static void on_left(void *user, const pp_job *job, const pp_error *error)
{
    (void)user;
    (void)job;
    (void)error;
}

/* ---- queries ---- */

static void add_key(pp_statement *s, char type, const pp_query_key *key, bool descending)
{
    if (type == 't')
        pp_sql_text(s, key ? key->text : "");
    else
        pp_sql_int8(s, key ? key->number : descending ? INT64_MAX : INT64_MIN);
}

static bool has_text(const char *text)
{
    return text && *text;
}

static int add_parameters(pp_statement *s, const pp_query_text *t, const pp_query *q, pp_error *err)
{
    const size_t keys = strlen(t->keys), skipped = t->uid_is_first ? 1 : 0;
    if ((t->ns && !has_text(q->ns)) || (t->session && !has_text(q->session)) ||
        (q->n_after && q->n_after != keys + skipped) || (t->most && q->limit < 1))
        return pp_error_set(err, PP_ERR_INVALID, "a query lacks what it needs");
    if (t->ns)
        pp_sql_text(s, q->ns);
    if (t->session) {
        pp_sql_text(s, q->session);
        pp_sql_text(s, q->uid);
    }
    if (t->workload) {
        pp_sql_text(s, q->workload_kind);
        pp_sql_text(s, q->workload_name);
    }
    if (t->known)
        pp_sql_strings(s, q->known);
    if (t->process) {
        pp_sql_text(s, q->pod);
        if (q->process < 0)
            pp_sql_null(s, PP_SQL_INT8);
        else
            pp_sql_int8(s, q->process);
    }
    for (size_t i = 0; i < keys; i++)
        add_key(s, t->keys[i], q->n_after ? &q->after[i + skipped] : NULL, !t->session);
    if (t->most)
        pp_sql_int8(s, (q->limit < t->most ? q->limit : t->most) + 1);
    return s->failed ? pp_error_nomem(err) : 0;
}

int64_t pp_query_most(pp_query_kind kind)
{
    return pp_query_texts[kind].most;
}

bool pp_query_has_versions(pp_query_kind kind)
{
    return pp_query_texts[kind].known;
}

static int add_statements(read_call *c, const pp_query *q, pp_error *err)
{
    const pp_query_text *t = &pp_query_texts[q->kind];
    pp_sql_text(pp_job_add(&c->job, pp_query_begin_sql), c->reader->timeout);
    if (t->terms)
        (void)pp_job_add(&c->job, t->terms);
    pp_statement *s = pp_job_add(&c->job, t->sql);
    s->streamed = true;
    const int rc = add_parameters(s, t, q, err);
    return rc == 0 && c->job.failed ? pp_error_nomem(err) : rc;
}

int pp_reader_query(pp_reader *reader, const pp_query *query, pp_query_row_fn row,
                    pp_query_reset_fn reset, pp_query_done_fn done, void *user, pp_query_id *ret_id,
                    pp_error *err)
{
    if (reader->closing || !may_wait(reader, query->who))
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "too many queries wait");
    read_call *c = calloc(1, sizeof *c);
    if (!c)
        return pp_error_nomem(err);
    *c = (read_call){.job = {.row = take_row,
                             .reset = on_reset,
                             .done = on_done,
                             .release = on_release,
                             .max_attempts = ATTEMPTS},
                     .reader = reader,
                     .who = query->who,
                     .lane = -1,
                     .row = row,
                     .reset = reset,
                     .done = done,
                     .user = user};
    pp_query_rows_init(&c->rows, pp_query_texts[query->kind].parts);
    if (add_statements(c, query, err) < 0) {
        pp_job_free(&c->job);
        return -1;
    }
    c->id = ++reader->last_id;
    *ret_id = c->id;
    DL_APPEND(reader->waiting, c);
    reader->n_waiting++;
    pump(reader);
    return 0;
}

static void free_reader(pp_reader *reader);

static void ask_to_end(uv_work_t *work)
{
    char why[256];
    (void)PQcancel(((cancelling *)work)->cancel, why, sizeof why);
}

static void on_asked_to_end(uv_work_t *work, int status)
{
    cancelling *c = (cancelling *)work;
    pp_reader *reader = c->reader;
    (void)status;
    reader->held[c->lane] = false;
    reader->cancels--;
    PQfreeCancel(c->cancel);
    free(c);
    if (reader->closing && reader->open == 0 && reader->cancels == 0)
        free_reader(reader);
    else
        pump(reader);
}

/* A server takes no notice of it before the query has come, or between two of its statements. */
static void on_again(uv_timer_t *timer)
{
    pp_reader *reader = timer->data;
    for (int i = 0; i < reader->n; i++) {
        const read_call *c = reader->running[i];
        if (c && (c->cancelled || c->enough))
            end_in_database(reader, i);
    }
}

/* Its connection carries nothing else until that is over: it would end what is not meant. Where it
 * cannot be asked for, the query's time in the database is limited all the same. */
static void end_in_database(pp_reader *reader, int lane)
{
    if (!reader->closing)
        uv_timer_start(&reader->again, on_again, AGAIN_MS, 0);
    if (reader->held[lane] || reader->cancels >= MAX_CANCELS)
        return;
    PGcancel *cancel = pp_connection_canceller(reader->connections[lane]);
    cancelling *c = cancel ? calloc(1, sizeof *c) : NULL;
    if (c) {
        *c = (cancelling){.reader = reader, .lane = lane, .cancel = cancel};
        if (uv_queue_work(reader->loop, &c->work, ask_to_end, on_asked_to_end) == 0) {
            reader->held[lane] = true;
            reader->cancels++;
            return;
        }
    }
    free(c);
    PQfreeCancel(cancel);
}

void pp_reader_cancel(pp_reader *reader, pp_query_id id)
{
    for (int i = 0; i < reader->n; i++) {
        if (!reader->running[i] || reader->running[i]->id != id)
            continue;
        reader->running[i]->cancelled = true;
        end_in_database(reader, i);
    }
    for (read_call *c = reader->waiting; c; c = c->next) {
        if (c->id != id)
            continue;
        DL_DELETE(reader->waiting, c);
        reader->n_waiting--;
        pp_job_free(&c->job);
        return;
    }
}

/* ---- life ---- */

static void free_reader(pp_reader *reader)
{
    free((char *)(uintptr_t)reader->options.conninfo);
    free((char *)(uintptr_t)reader->options.conninfo_file);
    free(reader);
}

static void on_closed(void *user)
{
    pp_reader *reader = user;
    if (--reader->open == 0 && reader->closing && reader->cancels == 0)
        free_reader(reader);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_closed(handle->data);
}

static int set_options(pp_reader *reader, const pp_reader_options *o, pp_error *err)
{
    if (!o->conninfo == !o->conninfo_file || o->connections < 1 ||
        o->connections > PP_READER_MAX_CONNECTIONS || o->timeout_ns < 1000000)
        return pp_error_set(err, PP_ERR_INVALID, "the reader's options are not valid");
    reader->max_waiting = o->max_waiting;
    (void)snprintf(reader->timeout, sizeof reader->timeout, "%lldms",
                   (long long)(o->timeout_ns / 1000000));
    reader->options = (pp_store_options){
        .conninfo = o->conninfo ? strdup(o->conninfo) : NULL,
        .conninfo_file = o->conninfo_file ? strdup(o->conninfo_file) : NULL,
        .connect_timeout_ns = o->connect_timeout_ns ? o->connect_timeout_ns : 10 * SECOND,
        .stall_timeout_ns = o->timeout_ns + 10 * SECOND,
        .backoff_min_ns = SECOND / 5,
        .backoff_max_ns = 10 * SECOND,
        .reads_only = true,
    };
    return reader->options.conninfo || reader->options.conninfo_file ? 0 : pp_error_nomem(err);
}

pp_reader *pp_reader_new(uv_loop_t *loop, const pp_reader_options *options, pp_error *err)
{
    pp_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        pp_error_nomem(err);
        return NULL;
    }
    reader->loop = loop;
    if (set_options(reader, options, err) < 0) {
        free_reader(reader);
        return NULL;
    }
    uv_timer_init(loop, &reader->again);
    reader->again.data = reader;
    reader->open++;
    const pp_connection_events events = {on_changed, on_counted, on_left, on_closed, NULL, reader};
    for (; reader->n < options->connections; reader->n++) {
        reader->connections[reader->n] = pp_connection_new(loop, &reader->options, &events, err);
        if (!reader->connections[reader->n]) {
            pp_reader_free(reader);
            return NULL;
        }
        reader->open++;
    }
    return reader;
}

void pp_reader_free(pp_reader *reader)
{
    const pp_error closed = {.code = PP_ERR_UNAVAILABLE, .message = "the reader is closed"};
    if (!reader || reader->closing)
        return;
    reader->closing = true;
    while (reader->waiting) {
        read_call *c = reader->waiting;
        DL_DELETE(reader->waiting, c);
        c->done(c->user, &closed);
        pp_job_free(&c->job);
    }
    reader->n_waiting = 0;
    for (int i = 0; i < reader->n; i++)
        pp_connection_close(reader->connections[i]);
    uv_close((uv_handle_t *)&reader->again, on_timer_closed);
}

bool pp_reader_ready(const pp_reader *reader)
{
    for (int i = 0; i < reader->n; i++) {
        if (pp_connection_ready(reader->connections[i]))
            return true;
    }
    return false;
}
