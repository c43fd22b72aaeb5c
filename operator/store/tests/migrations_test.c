/* The schema of each release, with rows in every table, brought to today's: against a real
 * Postgres. */
#include "common/tests/cmocka_all.h"
#include "operator/store/migrate.h"
#include "operator/store/tests/database.h"
#include "operator/store/tests/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_every_version),
        cmocka_unit_test(test_who_could_read_reads_on),
    };
    return cmocka_run_group_tests_name("migrations", tests, NULL, NULL);
}
