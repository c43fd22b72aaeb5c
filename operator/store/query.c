#include "operator/store/query.h"

#include "common/buf.h"
#include "operator/store/connection.h"
#include "operator/store/query_sql.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    MAX_CELLS = 96,
    MAX_CANCELS = 2, /* at once: others need the pool's threads, and a server may not answer */
    MAX_KEY_BYTES = 64 << 10,
    ATTEMPTS = 2, /* the caller waits: one more where the connection broke */
};
#define SECOND INT64_C(1000000000)
/* From 1970 to 2000, where Postgres' times begin. */
#define POSTGRES_EPOCH (INT64_C(946684800) * SECOND)

/** Types of columns beside those of parameters. */
enum { OID_JSON = 114, OID_TIMESTAMPTZ = 1184, OID_JSONB = 3802 };

/** What is the same of a column in all rows of an answer. */
typedef struct column {
    pp_cell_section section;
    Oid type;
} column;

typedef struct read_call {
    pp_job job;
    pp_reader *reader;
    pp_query_id id;
    uint64_t who;
    int lane; /* whose connection has it; -1: it waits */
    bool cancelled;
    pp_query_row_fn row;
    pp_query_reset_fn reset;
    pp_query_done_fn done;
    void *user;
    int n_columns; /* 0: no row has come */
    column columns[MAX_CELLS];
    pp_buf key;                    /* of the row before, as it came */
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
    int open; /* connections not yet said to be closed */
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

/* ---- cells ---- */

static pp_cell_section section_of(char mark)
{
    switch (mark) {
    case '@':
        return PP_CELL_VERSION;
    case '#':
        return PP_CELL_KEY;
    case '^':
        return PP_CELL_HEAD;
    case '+':
        return PP_CELL_NESTED;
    default:
        return PP_CELL_ROW;
    }
}

static int64_t microseconds(int64_t us)
{
    return us > (INT64_MAX - POSTGRES_EPOCH) / 1000   ? INT64_MAX
           : us < (INT64_MIN + POSTGRES_EPOCH) / 1000 ? INT64_MIN
                                                      : us * 1000 + POSTGRES_EPOCH;
}

static int read_value(const PGresult *r, int row, int i, Oid type, pp_cell *ret, pp_error *err)
{
    switch ((int)type) {
    case PP_SQL_BOOL:
        ret->type = PP_CELL_BOOL;
        ret->number = pp_row_bool(r, row, i);
        return 0;
    case PP_SQL_INT2:
    case PP_SQL_INT4:
    case PP_SQL_INT8:
        ret->type = PP_CELL_INT;
        ret->number = pp_row_int(r, row, i, 0);
        return 0;
    case PP_SQL_FLOAT8:
        ret->type = PP_CELL_FLOAT;
        ret->real = pp_row_float(r, row, i);
        return 0;
    case PP_SQL_TEXT:
        ret->type = PP_CELL_TEXT;
        ret->text = PQgetvalue(r, row, i);
        return 0;
    case OID_JSON:
        ret->type = PP_CELL_JSON;
        ret->text = PQgetvalue(r, row, i);
        return 0;
    case OID_JSONB: /* a version comes first */
        ret->type = PP_CELL_JSON;
        ret->text = PQgetvalue(r, row, i) + 1;
        return 0;
    case OID_TIMESTAMPTZ:
        ret->type = PP_CELL_TIME;
        ret->number = microseconds(pp_row_int(r, row, i, 0));
        return 0;
    default:
        return pp_error_set(err, PP_ERR_INTERNAL, "column %s has a type that is not read",
                            PQfname(r, i));
    }
}

static int read_cell(const PGresult *r, int row, int i, const column *of, pp_cell *ret,
                     pp_error *err)
{
    const char *name = PQfname(r, i);
    *ret = (pp_cell){.section = of->section, .name = of->section == PP_CELL_ROW ? name : name + 1};
    return PQgetisnull(r, row, i) ? 0 : read_value(r, row, i, of->type, ret, err);
}

static int learn_columns(read_call *c, const PGresult *r, pp_error *err)
{
    const int n = PQnfields(r);
    if (n > MAX_CELLS)
        return pp_error_set(err, PP_ERR_INTERNAL, "a row has %d columns", n);
    for (int i = 0; i < n; i++)
        c->columns[i] = (column){section_of(*PQfname(r, i)), PQftype(r, i)};
    c->n_columns = n;
    return 0;
}

/* 1: the row has the key of the one before; 0: another, which is kept, or none. */
static int same_key(read_call *c, const PGresult *r, int row, pp_error *err)
{
    bool same = c->key.len > 0;
    size_t at = 0;
    for (int i = 0; same && i < c->n_columns; i++) {
        if (c->columns[i].section != PP_CELL_KEY)
            continue;
        const size_t n = (size_t)PQgetlength(r, row, i);
        same = at + n < c->key.len && memcmp(c->key.data + at, PQgetvalue(r, row, i), n + 1) == 0;
        at += n + 1;
    }
    if (same)
        return at == c->key.len;
    pp_buf_reset(&c->key);
    for (int i = 0; i < c->n_columns; i++) {
        if (c->columns[i].section == PP_CELL_KEY &&
            pp_buf_append(&c->key, PQgetvalue(r, row, i), (size_t)PQgetlength(r, row, i) + 1, err) <
                0)
            return -1;
    }
    return 0;
}

static int take_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    read_call *c = (read_call *)job;
    pp_cell cells[MAX_CELLS];
    size_t n = 0;
    if (index == 0) /* of what begins the transaction */
        return 0;
    if (c->cancelled)
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "nobody waits for it");
    if (!c->n_columns && learn_columns(c, r, err) < 0)
        return -1;
    const int same = same_key(c, r, row, err);
    for (int i = 0; same >= 0 && i < c->n_columns; i++) {
        const pp_cell_section section = c->columns[i].section;
        if (same && section != PP_CELL_KEY && section != PP_CELL_NESTED)
            continue;
        if (read_cell(r, row, i, &c->columns[i], &cells[n++], err) < 0)
            return -1;
    }
    return same < 0 ? -1 : c->row(c->user, cells, n, err);
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
    c->n_columns = 0;
    pp_buf_reset(&c->key);
    if (!c->cancelled)
        c->reset(c->user);
}

static void on_release(pp_job *job)
{
    pp_buf_done(&((read_call *)job)->key);
}

static void on_done(pp_job *job, const pp_error *error)
{
    read_call *c = (read_call *)job;
    pp_reader *reader = c->reader;
    reader->running[c->lane] = NULL;
    if (!c->cancelled)
        c->done(c->user, error);
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

static int add_statements(read_call *c, const pp_query *q, pp_error *err)
{
    const pp_query_text *t = &pp_query_texts[q->kind];
    pp_sql_text(pp_job_add(&c->job, pp_query_begin_sql), c->reader->timeout);
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
    pp_buf_init(&c->key, MAX_KEY_BYTES);
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

/* Its connection carries nothing else until that is over: it would end what is not meant. Where it
 * cannot be asked for, the query's time in the database is limited all the same. */
static void cancel_running(pp_reader *reader, int lane)
{
    reader->running[lane]->cancelled = true;
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
        if (reader->running[i] && reader->running[i]->id == id)
            cancel_running(reader, i);
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
    if (reader->open == 0 && reader->cancels == 0) {
        free_reader(reader);
        return;
    }
    for (int i = 0; i < reader->n; i++)
        pp_connection_close(reader->connections[i]);
}

bool pp_reader_ready(const pp_reader *reader)
{
    for (int i = 0; i < reader->n; i++) {
        if (pp_connection_ready(reader->connections[i]))
            return true;
    }
    return false;
}
