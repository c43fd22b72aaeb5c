/* Statements that come often are prepared, on a real server, and what comes when it forgets them.
 */
#include "common/cleanup.h"
#include "common/error.h"
#include "common/tests/cmocka_all.h"
#include "operator/store/connection.h"
#include "operator/store/prepared.h"
#include "operator/store/tests/shared_postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LATE_MS = 100000 };

typedef struct fixture {
    uv_loop_t loop;
    pp_store_options options;
    pp_connection *connection;
    int waiting;
    int failed;
    int64_t got; /* the last row's first column */
    int64_t sum; /* of all rows */
    pp_error error;
} fixture;

typedef struct asking {
    pp_job job;
    fixture *f;
} asking;

static int on_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    (void)index;
    (void)err;
    fixture *f = ((asking *)job)->f;
    f->got = pp_row_int(r, row, 0, -1);
    f->sum += f->got;
    return 0;
}

static void on_done(pp_job *job, const pp_error *error)
{
    fixture *f = ((asking *)job)->f;
    f->waiting--;
    if (error) {
        f->failed++;
        f->error = *error;
    }
}

static void nothing(void *user)
{
    (void)user;
}

static void counted(void *user, unsigned retried, bool lost)
{
    (void)user;
    (void)retried;
    (void)lost;
}

static void left(void *user, const pp_job *job, const pp_error *error)
{
    (void)user;
    assert_null(job->prepares); /* those are the connection's own */
    (void)error;
}

/** Sends it; `argument` < 0: it has none. */
static void submit(fixture *f, const char *sql, int64_t argument)
{
    asking *a = calloc(1, sizeof *a);
    assert_non_null(a);
    a->f = f;
    a->job.row = on_row;
    a->job.done = on_done;
    pp_statement *s = pp_job_add(&a->job, sql);
    if (argument >= 0)
        pp_sql_int8(s, argument);
    f->waiting++;
    pp_connection_submit(f->connection, &a->job);
}

static void on_late(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("no answer");
}

static void wait_all(fixture *f)
{
    uv_timer_t late;
    uv_timer_init(&f->loop, &late);
    uv_timer_start(&late, on_late, LATE_MS, 0);
    while (f->waiting)
        uv_run(&f->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&late, NULL);
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static int64_t ask(fixture *f, const char *sql, int64_t argument)
{
    submit(f, sql, argument);
    wait_all(f);
    if (f->failed)
        fail_msg("%s", f->error.message);
    return f->got;
}

static int start(void **state)
{
    static char conninfo[SHARED_POSTGRES_CONNINFO];
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    shared_postgres_conninfo(conninfo);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->options = (pp_store_options){.conninfo = conninfo,
                                    .backoff_min_ns = 20000000,
                                    .backoff_max_ns = 300000000,
                                    .connect_timeout_ns = INT64_C(60) * 1000000000,
                                    .stall_timeout_ns = INT64_C(60) * 1000000000,
                                    .max_queued_bytes = 1 << 20};
    const pp_connection_events events = {nothing, counted, left, nothing, NULL, f};
    f->connection = pp_connection_new(&f->loop, &f->options, &events, &f->error);
    assert_non_null(f->connection);
    *state = f;
    return 0;
}

static int stop(void **state)
{
    fixture *f = *state;
    pp_connection_close(f->connection);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

static const char plus_sql[] = "SELECT $1 + 1";
static const char minus_sql[] = "SELECT $1 - 1";
static const char count_sql[] = "SELECT count(*) FROM pg_prepared_statements";

static void test_what_comes_often_is_prepared_once(void **state)
{
    fixture *f = *state;
    assert_int_equal(ask(f, plus_sql, 1), 2);
    assert_int_equal(ask(f, count_sql, -1), 0);
    for (int i = 0; i < 20; i++)
        submit(f, plus_sql, i);
    wait_all(f);
    for (int64_t i = 0; i < 20; i++)
        assert_int_equal(ask(f, plus_sql, i), i + 1);
    assert_int_equal(ask(f, count_sql, -1), 1);
}

/** As behind a pooler, whose next server connection does not have them. */
static void test_a_server_that_forgets_is_asked_in_full(void **state)
{
    fixture *f = *state;
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(ask(f, plus_sql, i), i + 1);
    assert_int_equal(ask(f, count_sql, -1), 1);
    submit(f, "DEALLOCATE ALL", -1);
    f->sum = 0;
    for (int i = 0; i < 10; i++) /* all on their way by name */
        submit(f, plus_sql, i);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(f->sum, 55); /* each once, in whatever order they were sent again */
    assert_int_equal(ask(f, count_sql, -1), 0);
}

/* What a connection that has used `before` first calls a statement with one parameter. */
static void name_of(const char *before, const char *sql, char *out, size_t size)
{
    const char *ready;
    pp_prepared *p = pp_prepared_new();
    const pp_statement first = {.sql = before, .n = 1, .types = {PP_SQL_INT8}};
    const pp_statement s = {.sql = sql, .n = 1, .types = {PP_SQL_INT8}};
    pp_prepared_statement *due = NULL;
    if (before)
        (void)pp_prepared_use(p, &first, &ready);
    for (int i = 0; i < 10 && !due; i++)
        due = pp_prepared_use(p, &s, &ready);
    assert_non_null(due);
    (void)snprintf(out, size, "%s", pp_prepared_name(due));
    pp_prepared_free(p);
}

/** A pooler may bring a connection to what another process has prepared: the same name has to be
 * the same statement, in whatever order it was met. */
static void test_names_are_the_statements(void **state)
{
    (void)state;
    char name[32], again[32], other[32];
    name_of(NULL, plus_sql, name, sizeof name);
    name_of(minus_sql, plus_sql, again, sizeof again);
    name_of(NULL, minus_sql, other, sizeof other);
    assert_string_equal(name, again);
    assert_string_not_equal(name, other);
}

/** A pooler's server connection may have another's statement of that name. */
static void test_a_name_that_is_taken(void **state)
{
    fixture *f = *state;
    static char prepare[128];
    char name[32];
    name_of(NULL, plus_sql, name, sizeof name);
    (void)snprintf(prepare, sizeof prepare, "PREPARE %s AS SELECT 7::bigint", name);
    (void)ask(f, prepare, -1);
    for (int64_t i = 0; i < 10; i++)
        assert_int_equal(ask(f, plus_sql, i), i + 1);
}

static void test_a_plan_that_is_out_of_date(void **state)
{
    fixture *f = *state;
    static const char sql[] = "SELECT * FROM changing WHERE a = $1";
    (void)ask(f, "DROP TABLE IF EXISTS changing", -1);
    (void)ask(f, "CREATE TABLE changing (a bigint)", -1);
    (void)ask(f, "INSERT INTO changing VALUES (5)", -1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(ask(f, sql, 5), 5);
    (void)ask(f, "ALTER TABLE changing ADD b bigint", -1);
    assert_int_equal(ask(f, sql, 5), 5);
}

/** It fails as it did, each time, and nothing else with it. */
static void test_a_statement_that_cannot_be_prepared(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        submit(f, "SELECT $1 + nobody FROM nowhere", i);
        submit(f, plus_sql, i);
    }
    wait_all(f);
    assert_int_equal(f->failed, 6);
    assert_int_equal(f->got, 6);
    assert_non_null(strstr(f->error.message, "nowhere"));
}

#define ON_SERVER(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(test_what_comes_often_is_prepared_once),
        ON_SERVER(test_a_server_that_forgets_is_asked_in_full),
        cmocka_unit_test(test_names_are_the_statements),
        ON_SERVER(test_a_name_that_is_taken),
        ON_SERVER(test_a_plan_that_is_out_of_date),
        ON_SERVER(test_a_statement_that_cannot_be_prepared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
