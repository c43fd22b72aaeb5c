#include "operator/store/connection.h"

#include "common/buf.h"
#include "operator/store/conninfo.h"
#include "operator/store/migrate.h"

#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_JOBS = 64,
    MAX_ATTEMPTS = 100, /* of one job: sent, and no answer or a conflict */
    MAX_MIGRATION = 4 << 20,
    TICK_MS = 1000,
};
#define WINDOW_BYTES ((size_t)8 << 20)

typedef enum phase {
    WAITING,    /* for the next attempt */
    RESOLVING,  /* host names */
    CONNECTING, /* PQconnectPoll */
    READING,    /* the schema's version, or the end of a migration */
    ENDING,     /* of the migrations' last transaction */
    READY,
    CLOSED,
} phase;

typedef struct list {
    pp_job *first;
    pp_job *last;
} list;

struct pp_connection {
    uv_loop_t *loop;
    const pp_store_options *options;
    pp_connection_events events;
    phase state;
    PGconn *conn;
    pp_conninfo_lookup *lookup;
    pp_conninfo info; /* of the attempt: the places that are left */
    int place;        /* of these, the one that libpq tries */
    uv_poll_t *poll;
    int poll_events;
    uv_timer_t timer; /* the next attempt; the attempt's limit; the stall watch */
    int64_t backoff_ns;
    uint64_t seed;
    uint64_t heard_ms;     /* loop time of the last bytes from the server */
    bool busy;             /* in on_poll: closing is left to its end */
    bool locked;           /* the last attempt got no lock for the schema */
    const char *migration; /* whose end is being read; NULL: the program's metrics' */
    int answered;          /* statements of `script` */
    PGresult *applied;
    pp_buf script;
    pp_prepared *prepared; /* of this server connection; NULL: nothing is */
    list waiting;
    list sent;
    size_t n_sent;
    size_t sent_bytes;
    char text[400];
};

/* Jobs */

/* Room for one more statement. */
static int grow(pp_job *job)
{
    if (job->n < job->room)
        return 0;
    const int room = job->room ? 2 * job->room : 4;
    pp_statement **statements =
        realloc(job->statements,
                (size_t)room * sizeof(pp_statement *)); /* NOLINT(bugprone-sizeof-expression) */
    if (!statements)
        return -1;
    job->statements = statements;
    job->room = room;
    return 0;
}

pp_statement *pp_job_add(pp_job *job, const char *sql)
{
    static pp_statement none;
    pp_statement *s = grow(job) == 0 ? calloc(1, sizeof(*s)) : NULL;
    if (!s) {
        job->failed = true;
        none = (pp_statement){.failed = true, .n = PP_SQL_MAX_PARAMS}; /* takes no parameter */
        return &none;
    }
    job->statements[job->n++] = s;
    s->sql = sql;
    return s;
}

void pp_job_free(pp_job *job)
{
    if (!job)
        return;
    if (job->release)
        job->release(job);
    for (int i = 0; i < job->n; i++) {
        pp_statement_done(job->statements[i]);
        free(job->statements[i]);
    }
    free(job->statements);
    free(job);
}

static void list_push(list *l, pp_job *job)
{
    job->next = NULL;
    if (l->last)
        l->last->next = job;
    else
        l->first = job;
    l->last = job;
}

static pp_job *list_shift(list *l)
{
    pp_job *job = l->first;
    if (job) {
        l->first = job->next;
        if (!l->first)
            l->last = NULL;
    }
    return job;
}

/* Puts `front` before `l`, emptying front. */
static void list_prepend(list *l, list *front)
{
    if (!front->first)
        return;
    front->last->next = l->first;
    if (!l->first)
        l->last = front->last;
    l->first = front->first;
    *front = (list){0};
}

static void end_job(pp_connection *c, pp_job *job, const pp_error *error)
{
    if (job->prepares) { /* nobody has submitted it */
        pp_job_free(job);
        return;
    }
    c->events.left(c->events.user, job, error);
    job->done(job, error);
    pp_job_free(job);
}

/* Whether it has been sent as often as it may be. */
static bool is_given_up(const pp_job *job)
{
    return job->attempts >= (job->max_attempts ? job->max_attempts : (unsigned)MAX_ATTEMPTS);
}

static void forget_answers(pp_job *job)
{
    job->answered = 0;
    job->answering = false;
    job->failed = false;
    job->again = false;
    pp_error_clear(&job->error);
    if (job->reset)
        job->reset(job);
}

/* State */

static void say(pp_connection *c, const char *what, const char *detail)
{
    char text[sizeof(c->text)];
    (void)snprintf(text, sizeof(text), "%s%s%.300s", what, detail ? ": " : "",
                   detail ? detail : "");
    const size_t n = strcspn(text, "\n");
    text[n] = '\0';
    if (strcmp(text, c->text) == 0)
        return;
    memcpy(c->text, text, n + 1);
    c->events.changed(c->events.user);
}

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void stop_poll(pp_connection *c)
{
    if (!c->poll)
        return;
    uv_poll_stop(c->poll);
    uv_close((uv_handle_t *)c->poll, on_poll_closed);
    c->poll = NULL;
    c->poll_events = 0;
}

static void retry_later(pp_connection *c);

static void on_poll(uv_poll_t *handle, int status, int events);

/* Watches the connection's socket; `fresh` where libpq may have changed it. */
static int watch(pp_connection *c, int events, bool fresh)
{
    if (fresh)
        stop_poll(c);
    if (!c->poll) {
        c->poll = calloc(1, sizeof(*c->poll));
        if (!c->poll || uv_poll_init(c->loop, c->poll, PQsocket(c->conn)) != 0) {
            free(c->poll);
            c->poll = NULL;
            return -1;
        }
        c->poll->data = c;
    }
    if (events == c->poll_events)
        return 0;
    c->poll_events = events;
    return uv_poll_start(c->poll, events, on_poll) == 0 ? 0 : -1;
}

/* Jobs without a complete answer go back to the front of the queue, in their order. */
static void take_back(pp_connection *c)
{
    list again = {0};
    list given_up = {0};
    unsigned n = 0;
    for (pp_job *job = list_shift(&c->sent); job; job = list_shift(&c->sent)) {
        if (job->prepares) { /* what was prepared is gone with the connection */
            pp_job_free(job);
            continue;
        }
        n++;
        forget_answers(job);
        list_push(is_given_up(job) ? &given_up : &again, job);
    }
    c->n_sent = 0;
    c->sent_bytes = 0;
    list_prepend(&c->waiting, &again);
    if (n)
        c->events.counted(c->events.user, n, false);
    for (pp_job *job = list_shift(&given_up); job; job = list_shift(&given_up)) {
        pp_error err;
        pp_error_set(&err, PP_ERR_UNAVAILABLE, "given up after %u attempts", job->attempts);
        end_job(c, job, &err);
    }
}

static void drop(pp_connection *c)
{
    stop_poll(c);
    pp_conninfo_cancel(c->lookup);
    c->lookup = NULL;
    pp_conninfo_done(&c->info);
    PQclear(c->applied);
    c->applied = NULL;
    if (c->conn)
        PQfinish(c->conn);
    c->conn = NULL;
}

static void forget_prepared(pp_connection *c)
{
    pp_prepared_free(c->prepared);
    c->prepared = NULL;
}

/* The connection is of no use any more: say why, and try again after a while. */
static void lose(pp_connection *c, const char *what, const char *detail)
{
    const bool was_ready = c->state == READY;
    if (c->state == CLOSED)
        return;
    c->state = WAITING;
    say(c, what, detail); /* detail may live in conn */
    drop(c);
    if (was_ready)
        c->events.counted(c->events.user, 0, true);
    take_back(c);
    forget_prepared(c);
    if (c->state == WAITING)
        retry_later(c);
}

/* Pipeline */

static void push_sent(pp_connection *c, pp_job *job)
{
    list_push(&c->sent, job);
    c->n_sent++;
    c->sent_bytes += job->bytes;
}

/* Has the server prepare a statement: a transaction of its own, so that it fails alone. Without
 * memory it is not prepared. */
static int send_prepare(pp_connection *c, pp_prepared_statement *s)
{
    pp_job *job = calloc(1, sizeof *job);
    int n = 0;
    if (!job)
        return 0;
    job->prepares = s;
    push_sent(c, job);
    const Oid *types = pp_prepared_types(s, &n);
    return PQsendPrepare(c->conn, pp_prepared_name(s), pp_prepared_sql(s), n, types) &&
                   PQpipelineSync(c->conn)
               ? 0
               : -1;
}

/* Those of a job's statements that come often, before the job. */
static int prepare_statements(pp_connection *c, pp_job *job)
{
    for (int i = 0; i < job->n; i++) {
        pp_statement *s = job->statements[i];
        pp_prepared_statement *due = pp_prepared_use(c->prepared, s, &s->name);
        if (due && send_prepare(c, due) < 0)
            return -1;
    }
    return 0;
}

static int send_statement(PGconn *conn, const pp_statement *s)
{
    int binary[PP_SQL_MAX_PARAMS];
    for (int i = 0; i < s->n; i++)
        binary[i] = 1;
    const char *const *values = (const char *const *)s->values;
    int sent = s->name
                   ? PQsendQueryPrepared(conn, s->name, s->n, values, s->lengths, binary, 1)
                   : PQsendQueryParams(conn, s->sql, s->n, s->types, values, s->lengths, binary, 1);
    return sent ? 0 : -1;
}

/* Rows one by one, where the statement whose answer comes next wants it. */
static void prepare_answer(pp_connection *c)
{
    const pp_job *job = c->sent.first;
    if (job && job->answered < job->n && job->statements[job->answered]->streamed)
        PQsetSingleRowMode(c->conn);
}

static int send_job(pp_connection *c, pp_job *job)
{
    if (prepare_statements(c, job) < 0) {
        job->attempts++;
        push_sent(c, job);
        return -1;
    }
    const bool first = !c->sent.first;
    job->attempts++;
    push_sent(c, job);
    for (int i = 0; i < job->n; i++) {
        if (send_statement(c->conn, job->statements[i]) < 0)
            return -1;
        if (first && i == 0)
            prepare_answer(c);
    }
    return PQpipelineSync(c->conn) ? 0 : -1;
}

/* Sends what the window allows. */
static void pump(pp_connection *c)
{
    if (c->state != READY)
        return;
    if (!c->sent.first)
        c->heard_ms = uv_now(c->loop);
    while (c->waiting.first && c->n_sent < WINDOW_JOBS &&
           (c->sent_bytes < WINDOW_BYTES || c->n_sent == 0)) {
        if (send_job(c, list_shift(&c->waiting)) < 0) {
            lose(c, "connection to Postgres lost", PQerrorMessage(c->conn));
            return;
        }
    }
    const int rc = PQflush(c->conn);
    if (rc < 0 || watch(c, UV_READABLE | (rc == 1 ? UV_WRITABLE : 0), false) < 0)
        lose(c, "connection to Postgres lost", PQerrorMessage(c->conn));
}

typedef enum verdict { REFUSED, CONFLICT, BROKEN } verdict;

static bool starts(const char *state, const char *prefix)
{
    return strncmp(state, prefix, strlen(prefix)) == 0;
}

/* By the SQLSTATE's class: is it the data, another transaction, or the server's health? */
static verdict judge(const char *s, pp_error_code *ret_code)
{
    *ret_code = PP_ERR_UNAVAILABLE;
    if (starts(s, "40") || strcmp(s, "55P03") == 0)
        return CONFLICT;
    if (starts(s, "08") || starts(s, "53") || starts(s, "58") || strcmp(s, "25006") == 0 ||
        (starts(s, "57") && strcmp(s, "57014") != 0))
        return BROKEN;
    if (strcmp(s, "57014") == 0)
        *ret_code = PP_ERR_TIMEOUT;
    else if (strcmp(s, "23503") == 0)
        *ret_code = PP_ERR_NOT_FOUND;
    else if (strcmp(s, "23505") == 0)
        *ret_code = PP_ERR_CONFLICT; /* a row of that key is there */
    else if (starts(s, "22") || starts(s, "23"))
        *ret_code = PP_ERR_INVALID;
    else if (strcmp(s, "54000") == 0)
        *ret_code = PP_ERR_TOO_LARGE;
    return REFUSED;
}

/* Whether any of its statements was sent by the name of a prepared one. */
static bool has_named(const pp_job *job)
{
    for (int i = 0; i < job->n; i++) {
        if (job->statements[i]->name)
            return true;
    }
    return false;
}

/* Returns -1 where the connection has to go. */
static int take_failure(pp_connection *c, pp_job *job, const PGresult *r)
{
    const char *sqlstate = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    pp_error_code code = PP_ERR_UNAVAILABLE;
    const verdict v = sqlstate ? judge(sqlstate, &code) : BROKEN;
    if (v == BROKEN) {
        lose(c, "Postgres", message ? message : PQerrorMessage(c->conn));
        return -1;
    }
    const bool lost = pp_prepared_is_lost(sqlstate) && has_named(job);
    if (lost)
        pp_prepared_give_up(c->prepared);
    if (!job->failed) {
        job->failed = true;
        job->again = (v == CONFLICT || lost) && !is_given_up(job);
        pp_error_set(&job->error, code, "%s (SQLSTATE %s)", message, sqlstate);
    }
    return 0;
}

static void take_rows(pp_job *job, const PGresult *r)
{
    for (int i = 0; job->row && !job->failed && i < PQntuples(r); i++) {
        if (job->row(job, job->answered, r, i, &job->error) < 0)
            job->failed = true;
    }
}

/* The transaction of the first job on its way has ended. */
static void end_transaction(pp_connection *c)
{
    pp_job *job = list_shift(&c->sent);
    c->n_sent--;
    c->sent_bytes -= job->bytes;
    if (job->prepares) { /* else it is sent whole, and if anything is wrong with it that says so */
        pp_prepared_set(job->prepares, !job->failed);
        pp_job_free(job);
    } else if (job->failed && job->again) {
        list front = {0};
        forget_answers(job);
        list_push(&front, job);
        list_prepend(&c->waiting, &front);
        c->events.counted(c->events.user, 1, false);
    } else {
        const pp_error error = job->error;
        end_job(c, job, job->failed ? &error : NULL);
    }
    if (c->state == READY)
        prepare_answer(c);
}

/* Returns -1 where the connection went. */
static int take_result(pp_connection *c, const PGresult *r)
{
    pp_job *job = c->sent.first;
    switch (PQresultStatus(r)) {
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE:
    case PGRES_COMMAND_OK:
        job->answering = true;
        take_rows(job, r);
        return 0;
    case PGRES_PIPELINE_ABORTED:
        job->answering = true;
        return 0;
    case PGRES_PIPELINE_SYNC:
        end_transaction(c);
        return c->state == READY ? 0 : -1;
    default:
        job->answering = true;
        return take_failure(c, job, r);
    }
}

static void take_results(pp_connection *c)
{
    while (c->state == READY && c->sent.first && !PQisBusy(c->conn)) {
        PGresult *r = PQgetResult(c->conn);
        if (r) {
            const int rc = take_result(c, r);
            PQclear(r);
            if (rc < 0)
                return;
        } else if (c->sent.first->answering) {
            c->sent.first->answering = false;
            c->sent.first->answered++;
            prepare_answer(c);
        } else if (PQstatus(c->conn) != CONNECTION_OK) {
            break;
        }
    }
    if (c->state == READY && PQstatus(c->conn) != CONNECTION_OK)
        lose(c, "connection to Postgres lost", PQerrorMessage(c->conn));
}

/* Migrations: simple queries, before the pipeline begins */

static void begin_migration(pp_connection *c)
{
    c->state = READING;
    if (!PQsendQuery(c->conn, pp_migrate_begin()))
        lose(c, "cannot read the schema's version", PQerrorMessage(c->conn));
}

static void become_ready(pp_connection *c)
{
    uv_timer_stop(&c->timer);
    if (!PQenterPipelineMode(c->conn)) {
        lose(c, "no pipeline mode", PQerrorMessage(c->conn));
        return;
    }
    c->prepared = pp_prepared_new();
    c->state = READY;
    c->backoff_ns = 0;
    c->locked = false;
    say(c, "connected", NULL);
}

static void on_tick(uv_timer_t *timer);

/* The connection may carry jobs, and is watched while it does. */
static void begin_work(pp_connection *c)
{
    become_ready(c);
    if (c->state == READY)
        uv_timer_start(&c->timer, on_tick, TICK_MS, TICK_MS);
}

/* What brings the schema a step further, into c->script. -1: there is nothing to send. */
static int choose_step(pp_connection *c, pp_error *err)
{
    pp_buf_reset(&c->script);
    c->migration = NULL;
    c->answered = 0;
    if (!c->applied)
        return pp_error_set(err, PP_ERR_INTERNAL, "no answer");
    const int version = PQntuples(c->applied);
    const int rc = pp_migrate_next(c->applied, pp_migrations, pp_migrations_count, &c->script, err);
    if (rc == 1)
        c->migration = pp_migrations[version].name;
    if (rc == 1 && c->options->may_migrate && !c->options->may_migrate(c->options->user))
        return pp_error_set(err, PP_ERR_UNAVAILABLE,
                            "the database has version %d, this program %zu: the replica that leads "
                            "migrates, and this one does not lead",
                            version, pp_migrations_count);
    return rc < 0 ? -1 : 0;
}

static void end_reading(pp_connection *c)
{
    pp_error err = {0};
    if (c->state == ENDING && !c->migration) {
        begin_work(c);
        return;
    }
    if (c->state == ENDING) {
        begin_migration(c);
        return;
    }
    const int rc = choose_step(c, &err);
    PQclear(c->applied);
    c->applied = NULL;
    c->state = ENDING;
    if (rc < 0)
        lose(c, "schema", err.message);
    else if (!PQsendQuery(c->conn, c->script.data))
        lose(c, "cannot migrate the schema", PQerrorMessage(c->conn));
}

static void lose_reading(pp_connection *c, const PGresult *r)
{
    const char *sqlstate = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    char statement[120], text[300];
    c->locked = sqlstate && strcmp(sqlstate, "55P03") == 0;
    if (c->locked && c->state == READING) {
        lose(c, "schema", "another connection has been migrating it for a minute");
    } else if (c->locked) {
        pp_migrate_statement(c->script.data, c->answered, statement, sizeof statement);
        (void)snprintf(text, sizeof text,
                       "%.60s got no lock within 2 s, since another transaction holds it, and is "
                       "to be tried again: %s",
                       c->migration ? c->migration : "the last step", statement);
        lose(c, "cannot migrate", text);
    } else {
        lose(c, c->state == READING ? "cannot read the schema's version" : "cannot migrate",
             PQresultErrorMessage(r));
    }
}

static void read_migration(pp_connection *c)
{
    while ((c->state == READING || c->state == ENDING) && !PQisBusy(c->conn)) {
        PGresult *r = PQgetResult(c->conn);
        if (!r) {
            end_reading(c);
            continue;
        }
        if (PQresultStatus(r) != PGRES_TUPLES_OK && PQresultStatus(r) != PGRES_COMMAND_OK) {
            lose_reading(c, r);
            PQclear(r);
            return;
        }
        c->answered += c->state == ENDING;
        PQclear(c->applied);
        c->applied = c->state == READING ? r : NULL; /* the last one is the list */
        if (c->state != READING)
            PQclear(r);
    }
}

/* Connecting */

static void on_connect_timeout(uv_timer_t *timer)
{
    pp_connection *c = timer->data;
    lose(c, "cannot connect to Postgres", "no answer in time");
}

/* Notices are of no interest, but for warnings of the schema's own functions. */
static void on_notice(void *user, const PGresult *r)
{
    const pp_connection *c = user;
    const char *severity = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    if (c->state == ENDING && severity && text && strcmp(severity, "WARNING") == 0 &&
        c->events.warned)
        c->events.warned(c->events.user, text);
}

static void on_place_timeout(uv_timer_t *timer);

/* libpq's own limit is for who waits in PQconnectdb. */
static void wait_for_place(pp_connection *c)
{
    const int64_t own = pp_conninfo_patience(&c->info);
    const int64_t patience = own ? own : c->options->connect_timeout_ns;
    uv_timer_start(&c->timer, on_place_timeout, (uint64_t)(patience / 1000000), 0);
}

/* libpq may have gone on to another. Whether it has. */
static bool note_place(pp_connection *c)
{
    const int place = pp_conninfo_place(&c->info, c->conn);
    if (place < 0 || place == c->place)
        return false;
    c->place = place;
    return true;
}

/* To the first of the places that are left that will have us. */
static void connect_to_places(pp_connection *c)
{
    c->place = 0;
    c->conn = PQconnectStartParams((const char *const *)c->info.keywords,
                                   (const char *const *)c->info.values, 0);
    if (!c->conn || PQstatus(c->conn) == CONNECTION_BAD) {
        lose(c, "cannot connect to Postgres", c->conn ? PQerrorMessage(c->conn) : "out of memory");
        return;
    }
    c->state = CONNECTING;
    (void)note_place(c);
    wait_for_place(c);
    if (watch(c, UV_WRITABLE, true) < 0)
        lose(c, "cannot watch the socket", NULL);
}

/* One is silent: libpq would wait for it until the kernel gives up. */
static void on_place_timeout(uv_timer_t *timer)
{
    pp_connection *c = timer->data;
    pp_error err = {0};
    const int next = c->place + 1;
    if (next >= pp_conninfo_places(&c->info)) {
        lose(c, "cannot connect to Postgres", "no answer in time");
    } else if (pp_conninfo_skip(&c->info, next, &err) < 0) {
        lose(c, "cannot connect to Postgres", err.message);
    } else {
        char text[128];
        (void)snprintf(text, sizeof text, "%.100s is silent: the next is tried", PQhost(c->conn));
        say(c, "cannot connect to Postgres", text);
        stop_poll(c);
        PQfinish(c->conn);
        connect_to_places(c);
    }
}

static void go_on_connecting(pp_connection *c)
{
    const PostgresPollingStatusType status = PQconnectPoll(c->conn);
    if (note_place(c))
        wait_for_place(c);
    switch (status) {
    case PGRES_POLLING_READING:
        if (watch(c, UV_READABLE, true) < 0)
            lose(c, "cannot watch the socket", NULL);
        return;
    case PGRES_POLLING_WRITING:
        if (watch(c, UV_WRITABLE, true) < 0)
            lose(c, "cannot watch the socket", NULL);
        return;
    case PGRES_POLLING_OK:
        PQsetNoticeReceiver(c->conn, on_notice, c);
        stop_poll(c);
        pp_conninfo_done(&c->info);
        if (PQsetnonblocking(c->conn, 1) != 0) {
            lose(c, "cannot connect to Postgres", PQerrorMessage(c->conn));
            return;
        }
        if (c->options->reads_only) {
            begin_work(c);
            return;
        }
        /* The other process may be migrating: waiting for it is no stalled connection. */
        uv_timer_start(&c->timer, on_connect_timeout,
                       (uint64_t)(c->options->stall_timeout_ns / 1000000), 0);
        begin_migration(c);
        return;
    default:
        lose(c, "cannot connect to Postgres", PQerrorMessage(c->conn));
    }
}

/* After anything in READING or ENDING: flush, and wait for what is needed. */
static void go_on_reading(pp_connection *c)
{
    if (c->state != READING && c->state != ENDING)
        return;
    const int rc = PQflush(c->conn);
    if (rc < 0 || watch(c, UV_READABLE | (rc == 1 ? UV_WRITABLE : 0), false) < 0)
        lose(c, "connection to Postgres lost", PQerrorMessage(c->conn));
}

static void consume(pp_connection *c)
{
    c->heard_ms = uv_now(c->loop);
    if (!PQconsumeInput(c->conn)) {
        /* What came before the end may hold answers, and the server's reason. */
        if (c->state == READY)
            take_results(c);
        if (c->state != WAITING && c->state != CLOSED)
            lose(c, "connection to Postgres lost", PQerrorMessage(c->conn));
        return;
    }
    if (c->state == READY)
        take_results(c);
    else
        read_migration(c);
}

static void destroy(pp_connection *c);

static void on_poll(uv_poll_t *handle, int status, int events)
{
    pp_connection *c = handle->data;
    c->busy = true;
    if (c->state == CONNECTING) {
        go_on_connecting(c);
    } else if (status < 0) {
        lose(c, "connection to Postgres lost", uv_strerror(status));
    } else if (events & UV_READABLE) {
        consume(c);
    }
    go_on_reading(c);
    pump(c);
    c->busy = false;
    if (c->state == CLOSED)
        destroy(c);
}

static void on_tick(uv_timer_t *timer)
{
    pp_connection *c = timer->data;
    const int64_t limit = c->options->stall_timeout_ns / 1000000;
    if (c->state == READY && c->sent.first && (int64_t)(uv_now(c->loop) - c->heard_ms) > limit)
        lose(c, "connection to Postgres lost", "no answer in time");
}

static void on_resolved(void *user, pp_conninfo *info, const pp_error *error)
{
    pp_connection *c = user;
    c->lookup = NULL;
    if (error) {
        lose(c, "cannot connect to Postgres", error->message);
        return;
    }
    c->info = *info;
    connect_to_places(c);
}

static void on_attempt(uv_timer_t *timer)
{
    pp_connection *c = timer->data;
    pp_error err = {0};
    c->state = RESOLVING;
    uv_timer_start(&c->timer, on_connect_timeout,
                   (uint64_t)(c->options->connect_timeout_ns / 1000000), 0);
    c->lookup = pp_conninfo_resolve(c->loop, c->options->conninfo, c->options->conninfo_file,
                                    on_resolved, c, &err);
    if (!c->lookup)
        lose(c, "cannot connect to Postgres", err.message);
}

/* Doubling, with full jitter above the least wait. */
static void retry_later(pp_connection *c)
{
    const int64_t least = c->options->backoff_min_ns;
    c->backoff_ns = c->backoff_ns ? c->backoff_ns * 2 : least;
    if (c->backoff_ns > c->options->backoff_max_ns)
        c->backoff_ns = c->options->backoff_max_ns;
    c->seed = c->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint64_t spread = c->backoff_ns > least ? (uint64_t)(c->backoff_ns - least) : 0;
    const uint64_t wait = (uint64_t)least + (spread ? (c->seed >> 11) % spread : 0);
    uv_timer_start(&c->timer, on_attempt, wait / 1000000, 0);
}

/* Life */

pp_connection *pp_connection_new(uv_loop_t *loop, const pp_store_options *options,
                                 const pp_connection_events *events, pp_error *err)
{
    pp_connection *c = calloc(1, sizeof(*c));
    if (!c) {
        pp_error_nomem(err);
        return NULL;
    }
    c->loop = loop;
    c->options = options;
    c->events = *events;
    c->seed = uv_hrtime() ^ (uintptr_t)c;
    pp_buf_init(&c->script, MAX_MIGRATION);
    uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    (void)snprintf(c->text, sizeof(c->text), "connecting");
    uv_timer_start(&c->timer, on_attempt, 0, 0);
    return c;
}

static void on_timer_closed(uv_handle_t *handle)
{
    pp_connection *c = handle->data;
    const pp_connection_events events = c->events;
    pp_buf_done(&c->script);
    free(c);
    events.closed(events.user);
}

static void destroy(pp_connection *c)
{
    drop(c);
    forget_prepared(c);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

void pp_connection_close(pp_connection *c)
{
    pp_error err;
    if (c->state == CLOSED)
        return;
    c->state = CLOSED;
    pp_error_set(&err, PP_ERR_UNAVAILABLE, "the store is closed");
    list_prepend(&c->waiting, &c->sent);
    for (pp_job *job = list_shift(&c->waiting); job; job = list_shift(&c->waiting))
        end_job(c, job, &err);
    if (!c->busy)
        destroy(c);
}

bool pp_connection_got_no_lock(const pp_connection *c)
{
    return c->locked;
}

void pp_connection_try_now(pp_connection *c)
{
    if (c->state == WAITING)
        uv_timer_start(&c->timer, on_attempt, 0, 0);
}

void pp_connection_submit(pp_connection *c, pp_job *job)
{
    list_push(&c->waiting, job);
    if (!c->busy)
        pump(c);
}

bool pp_connection_ready(const pp_connection *c)
{
    return c->state == READY;
}

PGcancel *pp_connection_canceller(const pp_connection *c)
{
    return c->state == READY ? PQgetCancel(c->conn) : NULL;
}

const char *pp_connection_text(const pp_connection *c)
{
    return c->text;
}
