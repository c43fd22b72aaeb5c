/* The schema of each release, with rows in every table, brought to today's: against a real
 * Postgres. */
#include "common/tests/cmocka_all.h"
#include "operator/store/migrate.h"
#include "operator/store/store.h"
#include "operator/store/tests/database.h"
#include "operator/store/tests/shared_postgres.h"
#include "operator/store/tests/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All that the schema is made of, a line each; partitions follow from rows. */
static const char schema_sql[] =
    "SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    "pg_get_expr(d.adbin, d.adrelid), c.relrowsecurity::text || coalesce(c.reloptions::text, '') "
    "|| c.relacl::text "
    "FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT "
    "a.attisdropped LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
    "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT "
    "c.relispartition UNION ALL "
    "SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL, "
    "NULL, NULL FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND NOT (SELECT "
    "relispartition FROM pg_class WHERE oid = conrelid) UNION ALL "
    "SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid), NULL, NULL, NULL, "
    "NULL FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE c.relnamespace = "
    "'public'::regnamespace AND NOT c.relispartition UNION ALL "
    "SELECT 'view', viewname, definition, NULL, NULL, NULL, NULL FROM pg_views WHERE schemaname = "
    "'public' UNION ALL "
    "SELECT 'policy', tablename, policyname, roles::text, NULL, qual, cmd FROM pg_policies UNION "
    "ALL SELECT 'function', proname, prosrc, prosecdef::text, NULL, proacl::text, NULL FROM "
    "pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2, 3";

/* Tables whose rows migrations leave where they are. */
static const char tables_sql[] =
    "SELECT string_agg(format('SELECT %%L, count(*) FROM %%I', relname, relname), ' UNION ALL ' "
    "ORDER BY relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN "
    "('r', 'p') AND NOT relispartition AND relname NOT IN ('schema_migration', 'metric'%s)";

static char *counts_of(PGconn *conn, const char *sql)
{
    char *text = strdup(sql_ask(conn, sql));
    assert_non_null(text);
    return text;
}

/* Every view of results that can have a row has one. */
static void check_views(PGconn *conn, size_t version)
{
    static const struct {
        size_t since;
        const char *view;
    } views[] = {{1, "latest_session"},    {1, "result"},         {1, "result_detail"},
                 {1, "result_quality"},    {11, "result_kernel"}, {12, "result_rank"},
                 {12, "result_rank_item"}, {13, "result_wait"},   {14, "result_copy"}};
    char sql[128];
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", views[i].view);
        const long n = sql_count(conn, sql);
        if ((n > 0) != (version >= views[i].since))
            fail_msg("from version %zu: %s has %ld rows", version, views[i].view, n);
    }
    assert_string_equal(sql_ask(conn, "SELECT method FROM estimate"),
                        version < 9 ? "regression" : "direct");
    if (version >= 15 && version < 24) /* what the GPU was is known from its process */
        assert_string_equal(sql_ask(conn, "SELECT chip FROM usage"),
                            "{90,132,1980000,3201000,6144}");
}

static void from_version(size_t version, const char *schema)
{
    char tables[1024];
    PGconn *conn = database_make("t_from");
    database_migrate(conn, version);
    database_fill(conn, version, "a");
    (void)snprintf(tables, sizeof tables, tables_sql, version < 15 ? ", 'pattern'" : "");
    char *sql = counts_of(conn, tables);
    char *before = counts_of(conn, sql);
    database_migrate(conn, pp_migrations_count);
    char *after = counts_of(conn, sql);
    if (strcmp(before, after) != 0)
        fail_msg("from version %zu: %s, then %s", version, before, after);
    check_views(conn, version);
    const char *now = sql_ask(conn, schema_sql);
    if (strcmp(now, schema) != 0) {
        size_t at = 0;
        while (now[at] == schema[at])
            at++;
        fail_msg("from version %zu the schema is another one: %.200s, not %.200s", version,
                 now + at, schema + at);
    }
    free(sql);
    free(before);
    free(after);
    PQfinish(conn);
}

static void test_from_every_version(void **state)
{
    (void)state;
    PGconn *conn = database_make("t_from");
    database_migrate(conn, pp_migrations_count);
    char *schema = counts_of(conn, schema_sql);
    PQfinish(conn);
    assert_non_null(strstr(schema, "policy|item|readers"));
    for (size_t version = 1; version <= pp_migrations_count; version++)
        from_version(version, schema);
    free(schema);
}

/* Dashboards go on: who had been granted what he reads before there were policies reads it all. */
static void test_who_could_read_reads_on(void **state)
{
    (void)state;
    PGconn *owner = database_make("t_from");
    database_login(owner, "old_reader", "");
    database_login(owner, "new_reader", "IN ROLE precisionprobe_reader");
    database_migrate(owner, 15);
    database_fill(owner, 15, "a");
    sql_execute(owner, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO old_reader");
    database_migrate(owner, pp_migrations_count);
    assert_string_equal(sql_ask(owner, "SELECT * FROM reader"), "old_reader|*");
    PGconn *reader = database_open("t_from", "old_reader");
    assert_string_equal(sql_ask(reader, "SELECT layer FROM result_detail"), "a-layer");
    assert_string_equal(sql_ask(reader, "SELECT count(*) FROM metric_sample"), "1");
    PQfinish(reader);
    reader = database_open("t_from", "new_reader");
    assert_string_equal(sql_ask(reader, "SELECT count(*) FROM session"), "0");
    PQfinish(reader);
    PQfinish(owner);
}

/* The texts of statements are told apart as the server does, whatever they quote. */
static void test_a_migrations_statements(void **state)
{
    (void)state;
    pp_buf sql;
    pp_error err = {0};
    char last[32], behind[32];
    PGconn *conn = database_make("t_from");
    pp_buf_init(&sql, 4 << 20);
    for (int rc = 1; rc == 1;) {
        int n = 0;
        PGresult *r = PQexec(conn, pp_migrate_begin());
        pp_buf_reset(&sql);
        rc = pp_migrate_next(r, pp_migrations, pp_migrations_count, &sql, &err);
        PQclear(r);
        assert_int_equal(PQsendQuery(conn, sql.data), 1);
        while ((r = PQgetResult(conn))) {
            assert_int_not_equal(PQresultStatus(r), PGRES_FATAL_ERROR);
            PQclear(r);
            n++;
        }
        pp_migrate_statement(sql.data, n - 1, last, sizeof last);
        pp_migrate_statement(sql.data, n, behind, sizeof behind);
        assert_string_equal(last, "COMMIT");
        assert_string_equal(behind, "");
    }
    pp_buf_done(&sql);
    PQfinish(conn);
}

/* A store beside who reads and writes. */
typedef struct beside {
    uv_loop_t loop;
    uv_timer_t wake; /* so that a turn of the loop ends */
    pp_store *store;
    PGconn *direct;
    bool may_migrate;
    char said[1024];
} beside;

static void on_health(void *user, bool ready, const char *text)
{
    (void)ready;
    (void)snprintf(((beside *)user)->said, sizeof((beside *)user)->said, "%s", text);
}

static bool may_migrate(void *user)
{
    return ((beside *)user)->may_migrate;
}

static void on_wake(uv_timer_t *timer)
{
    (void)timer;
}

/* On a database whose schema is of this version. */
static void beside_open(beside *b, const char *name, size_t version)
{
    char conninfo[SHARED_POSTGRES_CONNINFO];
    pp_error err = {0};
    *b = (beside){.direct = database_make(name), .may_migrate = true};
    database_migrate(b->direct, version);
    database_fill(b->direct, version, "a");
    shared_postgres_conninfo(conninfo);
    const size_t n = strlen(conninfo);
    (void)snprintf(conninfo + n, sizeof conninfo - n, " dbname=%s", name);
    const pp_store_options options = {
        .conninfo = conninfo, .on_health = on_health, .may_migrate = may_migrate, .user = b};
    uv_loop_init(&b->loop);
    uv_timer_init(&b->loop, &b->wake);
    uv_timer_start(&b->wake, on_wake, 20, 20);
    b->store = pp_store_new(&b->loop, &options, &err);
    assert_non_null(b->store);
}

static void beside_close_store(beside *b)
{
    pp_store_free(b->store);
    b->store = NULL;
    uv_close((uv_handle_t *)&b->wake, NULL);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->loop), 0);
}

/* Turns the loop until this answers `answer`; 1 min. */
static void beside_await(beside *b, const char *sql, const char *answer)
{
    const uint64_t end = uv_hrtime() + UINT64_C(60000000000);
    while (strcmp(sql_ask(b->direct, sql), answer) != 0) {
        uv_run(&b->loop, UV_RUN_ONCE);
        if (uv_hrtime() > end)
            fail_msg("%s: %s, and the store: %s", sql, sql_ask(b->direct, sql), b->said);
    }
}

static void beside_await_said(beside *b, const char *text)
{
    const uint64_t end = uv_hrtime() + UINT64_C(60000000000);
    while (!strstr(b->said, text)) {
        uv_run(&b->loop, UV_RUN_ONCE);
        if (uv_hrtime() > end)
            fail_msg("the store: %s, not %s", b->said, text);
    }
}

static const char waiting_sql[] =
    "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
    "WHERE a.datname = current_database() AND NOT l.granted AND l.locktype = 'relation'";
static const char version_sql[] = "SELECT max(version) FROM schema_migration";

/* As pg_dump, of a table that the next migration alters. */
static void test_a_reader_delays_a_migration(void **state)
{
    (void)state;
    beside b;
    char all[16];
    (void)snprintf(all, sizeof all, "%zu", pp_migrations_count);
    beside_open(&b, "t_locked", 20);
    PGconn *reader = database_open("t_locked", "probe");
    sql_execute(reader, "BEGIN; SELECT count(*) FROM attribution");
    sql_execute(b.direct, "SET statement_timeout = '30s'");
    beside_await(&b, waiting_sql, "t");
    /* What comes behind the migration goes on all the same. */
    sql_execute(b.direct, "UPDATE attribution SET revision = 7");
    beside_await_said(&b,
                      "cannot migrate: 0021_sample_by_share got no lock within 2 s, since another "
                      "transaction holds it, and is to be tried again: ALTER TABLE attribution");
    assert_string_equal(sql_ask(b.direct, version_sql), "20");
    sql_execute(reader, "COMMIT");
    beside_await(&b, version_sql, all);
    assert_string_equal(sql_ask(b.direct, "SELECT revision FROM attribution"), "7");
    beside_await_said(&b, "connected");
    beside_close_store(&b);
    PQfinish(reader);
    PQfinish(b.direct);
}

/* Of a program that ends meanwhile nothing is left that waits, for which others would have to. */
static void test_nothing_is_left_waiting(void **state)
{
    (void)state;
    beside b;
    beside_open(&b, "t_locked", 20);
    PGconn *reader = database_open("t_locked", "probe");
    sql_execute(reader, "BEGIN; SELECT count(*) FROM attribution");
    beside_await(&b, waiting_sql, "t");
    beside_close_store(&b);
    const uint64_t end = uv_hrtime() + UINT64_C(30000000000);
    while (strcmp(sql_ask(b.direct, waiting_sql), "f") != 0) {
        assert_true(uv_hrtime() < end);
        usleep(20000);
    }
    sql_execute(reader, "COMMIT");
    PQfinish(reader);
    PQfinish(b.direct);
}

static void test_who_may_not_migrate_waits(void **state)
{
    (void)state;
    beside b;
    char all[16];
    (void)snprintf(all, sizeof all, "%zu", pp_migrations_count);
    beside_open(&b, "t_waits", 20);
    b.may_migrate = false;
    beside_await_said(&b, "the replica that leads migrates, and this one does not lead");
    assert_string_equal(sql_ask(b.direct, version_sql), "20");
    assert_false(pp_store_ready(b.store, NULL));
    b.may_migrate = true;
    pp_store_try_now(b.store);
    beside_await(&b, version_sql, all);
    beside_await_said(&b, "connected");
    beside_close_store(&b);
    PQfinish(b.direct);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_every_version),
        cmocka_unit_test(test_who_could_read_reads_on),
        cmocka_unit_test(test_a_migrations_statements),
        cmocka_unit_test(test_a_reader_delays_a_migration),
        cmocka_unit_test(test_nothing_is_left_waiting),
        cmocka_unit_test(test_who_may_not_migrate_waits),
    };
    return cmocka_run_group_tests_name("migrations", tests, NULL, NULL);
}
