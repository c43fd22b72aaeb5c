/*
 * Who may read and write by SQL, against a real Postgres: what is in the catalog is held against
 * the rules, so a table or a view that a migration forgets makes this fail.
 */
#include "common/tests/cmocka_all.h"
#include "operator/store/migrate.h"
#include "operator/store/tests/database.h"
#include "operator/store/tests/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All tables and views of the schema; a partition is its table's. */
#define RELATIONS                                                                                  \
    "FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', "   \
    "'v', 'm', 'f') AND NOT c.relispartition "
/* Those of which a reader sees a part. */
#define PARTLY                                                                                     \
    "FROM access_rule a JOIN pg_class c ON c.relname = a.relation WHERE a.rule IN ('namespace', "  \
    "'session', 'gpu', 'view') "

enum { MOST = 100 };

typedef struct access {
    PGconn *owner, *tenant, *nobody, *everybody;
    char names[MOST][64]; /* of PARTLY */
    size_t n;
} access_fixture;

static int views_have_their_readers_rights(PGconn *conn)
{
    return PQserverVersion(conn) >= 150000;
}

static void read_names(access_fixture *f)
{
    PGresult *r = PQexec(f->owner, views_have_their_readers_rights(f->owner)
                                       ? "SELECT a.relation " PARTLY "ORDER BY 1"
                                       : "SELECT a.relation " PARTLY "AND rule <> 'view'");
    assert_int_equal(PQresultStatus(r), PGRES_TUPLES_OK);
    f->n = (size_t)PQntuples(r);
    assert_in_range(f->n, 20, MOST);
    for (size_t i = 0; i < f->n; i++)
        (void)snprintf(f->names[i], sizeof f->names[i], "%s", PQgetvalue(r, (int)i, 0));
    PQclear(r);
}

static int setup(void **state)
{
    access_fixture *f = calloc(1, sizeof *f);
    f->owner = database_make("t_access");
    database_migrate(f->owner, pp_migrations_count);
    database_fill(f->owner, pp_migrations_count, "a");
    database_fill(f->owner, pp_migrations_count, "b");
    database_login(f->owner, "tenant_a", "IN ROLE precisionprobe_reader");
    database_login(f->owner, "team_a", "");
    database_login(f->owner, "tenant_none", "IN ROLE precisionprobe_reader");
    database_login(f->owner, "tenant_all", "IN ROLE precisionprobe_reader");
    sql_execute(f->owner, "GRANT team_a TO tenant_a; ANALYZE; INSERT INTO reader VALUES "
                          "('team_a', 'a'), ('tenant_all', '*'), ('tenant_gone', 'b')");
    f->tenant = database_open("t_access", "tenant_a");
    f->nobody = database_open("t_access", "tenant_none");
    f->everybody = database_open("t_access", "tenant_all");
    read_names(f);
    *state = f;
    return 0;
}

/* Roles are the server's: what a test hid is there again for those that follow. */
static void show_groups(PGconn *conn)
{
    sql_execute(conn,
                "DO $$ DECLARE hidden text; BEGIN FOR hidden IN SELECT rolname FROM pg_roles "
                "WHERE rolname ~ '^hidden_precisionprobe_' LOOP EXECUTE format('ALTER ROLE %I "
                "RENAME TO %I', hidden, substr(hidden, 8)); END LOOP; END $$");
}

static int teardown(void **state)
{
    access_fixture *f = *state;
    show_groups(f->owner);
    PQfinish(f->owner);
    PQfinish(f->tenant);
    PQfinish(f->nobody);
    PQfinish(f->everybody);
    free(f);
    return 0;
}

/* Rows in which the namespace shows. */
static long rows_of(PGconn *conn, const char *relation, const char *ns)
{
    char sql[256];
    (void)snprintf(
        sql, sizeof sql,
        "SELECT count(*) FROM %s x WHERE x::text ~ '[(,{/]%s[,)}/-]' OR x::text ~ 'job-%s'",
        relation, ns, ns);
    return sql_count(conn, sql);
}

static long all_rows(PGconn *conn, const char *relation)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", relation);
    return sql_count(conn, sql);
}

static void test_every_relation_has_its_rule(void **state)
{
    const access_fixture *f = *state;
    assert_string_equal(sql_ask(f->owner, "SELECT c.relname " RELATIONS
                                          "AND c.relname NOT IN (SELECT relation FROM "
                                          "access_rule)"),
                        "");
    assert_string_equal(sql_ask(f->owner, "SELECT relation FROM access_rule WHERE relation "
                                          "NOT IN (SELECT c.relname " RELATIONS ")"),
                        "");
    /* Of partitions, too. */
    assert_string_equal(sql_ask(f->owner,
                                "SELECT c.relname FROM pg_class c WHERE c.relnamespace = "
                                "'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT "
                                "c.relrowsecurity"),
                        "");
    assert_string_equal(sql_ask(f->owner,
                                "SELECT c.relname " RELATIONS
                                "AND c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_policy "
                                "WHERE polrelid = c.oid AND polname = 'readers')"),
                        "");
    if (views_have_their_readers_rights(f->owner))
        assert_string_equal(sql_ask(f->owner,
                                    "SELECT c.relname " RELATIONS
                                    "AND c.relkind = 'v' AND c.relname <> 'readable' AND "
                                    "'security_invoker=true' = ANY (c.reloptions) IS NOT TRUE"),
                            "");
    /* With its owner's rights runs what none but writers may call. */
    assert_string_equal(
        sql_ask(f->owner, "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = "
                          "'public'::regnamespace AND has_function_privilege('tenant_a', oid, "
                          "'EXECUTE')"),
        "");
}

static void test_a_tenant_reads_its_own(void **state)
{
    const access_fixture *f = *state;
    for (size_t i = 0; i < f->n; i++) {
        const char *name = f->names[i];
        const long own = rows_of(f->owner, name, "a");
        if (own < 1 || rows_of(f->owner, name, "b") < 1)
            fail_msg("%s has no rows: database.c is to have one of each table", name);
        if (rows_of(f->tenant, name, "a") != own || all_rows(f->tenant, name) != own)
            fail_msg("%s: %ld of its %ld rows, and %ld of others", name,
                     rows_of(f->tenant, name, "a"), own, rows_of(f->tenant, name, "b"));
        if (all_rows(f->nobody, name) != 0)
            fail_msg("%s: who may read no namespace reads it", name);
        if (all_rows(f->everybody, name) != all_rows(f->owner, name))
            fail_msg("%s: who may read all does not", name);
    }
    assert_true(all_rows(f->tenant, "metric") > 0);
    assert_string_equal(sql_ask(f->tenant, "SELECT namespace FROM readable"), "a");
    assert_string_equal(sql_ask(f->nobody, "SELECT namespace FROM readable"), "");
}

static void test_nothing_else_tells_of_others(void **state)
{
    const access_fixture *f = *state;
    assert_true(sql_denies(f->everybody, "SELECT * FROM reader"));
    assert_true(sql_denies(f->everybody, "SELECT * FROM metric_sample_20474"));
    assert_true(sql_count(f->owner, "SELECT count(*) FROM pg_stats WHERE schemaname = "
                                    "'public' AND tablename = 'session'") > 0);
    /* Values that statistics hold; those of tables that are nobody's are no secret. */
    assert_string_equal(sql_ask(f->tenant,
                                "SELECT DISTINCT tablename FROM pg_stats WHERE schemaname = "
                                "'public' AND tablename NOT IN (SELECT relation FROM access_rule "
                                "WHERE rule = 'all')"),
                        "");
    assert_string_equal(sql_ask(f->tenant, "SELECT count(*) FROM pg_stats WHERE tablename "
                                           "LIKE 'metric_sample%'"),
                        "0");
    /* A function that tells what it is asked about is asked about what may be read alone. */
    sql_execute(f->tenant,
                "CREATE FUNCTION pg_temp.told(t text) RETURNS boolean COST 0.0001 LANGUAGE "
                "plpgsql AS $$ BEGIN IF t LIKE 'b%' THEN RAISE 'it was told of %', t; END IF; "
                "RETURN true; END $$");
    sql_execute(f->tenant, "SELECT FROM session WHERE pg_temp.told(namespace)");
    sql_execute(f->tenant, "SELECT FROM target WHERE pg_temp.told(namespace)");
    sql_execute(f->tenant, "SELECT FROM item WHERE pg_temp.told(layer)");
    sql_execute(f->tenant, "SELECT FROM metric_sample WHERE pg_temp.told(gpu_uuid)");
    if (views_have_their_readers_rights(f->owner))
        sql_execute(f->tenant, "SELECT FROM result_detail WHERE pg_temp.told(layer)");
}

static void test_readers_write_nothing(void **state)
{
    const access_fixture *f = *state;
    assert_string_equal(sql_ask(f->owner,
                                "SELECT c.relname " RELATIONS
                                "AND has_table_privilege('tenant_all', c.oid, 'INSERT, UPDATE, "
                                "DELETE, TRUNCATE, REFERENCES, TRIGGER')"),
                        "");
    assert_true(sql_denies(f->everybody, "DELETE FROM session"));
    assert_true(sql_denies(f->everybody, "UPDATE reader SET namespace = '*'"));
    assert_true(sql_denies(f->everybody, "SELECT metric_sample_drop(1, 1)"));
    assert_true(sql_denies(f->everybody, "SELECT metric_sample_partitions(1, 1)"));
}

/* Rows as of another namespace's are no way round: a writer is trusted with all. */
static void test_writers_do_not_say_who_reads(void **state)
{
    const access_fixture *f = *state;
    database_login(f->owner, "some_writer", "IN ROLE precisionprobe_writer");
    PGconn *writer = database_open("t_access", "some_writer");
    for (size_t i = 0; i < f->n; i++)
        assert_int_equal(all_rows(writer, f->names[i]), all_rows(f->owner, f->names[i]));
    assert_true(sql_denies(writer, "INSERT INTO reader VALUES ('some_writer', '*')"));
    assert_true(sql_denies(writer, "UPDATE access_rule SET rule = 'all'"));
    assert_true(sql_denies(writer, "DROP TABLE session"));
    assert_true(sql_denies(writer, "CREATE TABLE mine ()") || /* 14: everybody may, in public */
                !views_have_their_readers_rights(f->owner));
    PQfinish(writer);
}

/* What a GPU did before and after, for whomever. */
static void test_a_gpu_is_ones_own_for_a_time(void **state)
{
    const access_fixture *f = *state;
    sql_execute(f->owner, "INSERT INTO metric_sample VALUES ('a-gpu', 'sm_active', "
                          "'prometheus', 1768999999999999999, 1), ('a-gpu', 'sm_active', "
                          "'prometheus', 1769000100000000001, 1)");
    assert_int_equal(all_rows(f->tenant, "metric_sample"), 1);
    sql_execute(f->owner, "UPDATE session SET prometheus_shift_ns = 1 WHERE uid = 'a-s'");
    assert_int_equal(all_rows(f->tenant, "metric_sample"), 2);
    sql_execute(f->owner, "UPDATE session SET prometheus_shift_ns = 0 WHERE uid = 'a-s'; "
                          "DELETE FROM metric_sample WHERE value = 1");
}

/* A table without a rule is seen by nobody. */
static void test_what_comes_later(void **state)
{
    const access_fixture *f = *state;
    sql_execute(f->owner, "CREATE TABLE later (session_uid text); INSERT INTO later VALUES "
                          "('a-s'), ('b-s')");
    assert_true(sql_denies(f->tenant, "SELECT * FROM later"));
    sql_execute(f->owner, "INSERT INTO access_rule VALUES ('later', 'session'); "
                          "SELECT access_settle(); SELECT access_settle()");
    assert_string_equal(sql_ask(f->tenant, "SELECT * FROM later"), "a-s");
    sql_execute(f->owner, "DELETE FROM access_rule WHERE relation = 'later'; DROP TABLE later");
}

/* What the schema's code said. */
static void on_notice(void *user, const PGresult *r)
{
    char *said = user;
    (void)snprintf(said + strlen(said), 1024 - strlen(said), "%s\n",
                   PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY));
}

/* As managed databases are: groups are the server's, and whoever migrates may make none. */
static void test_without_the_right_to_make_groups(void **state)
{
    const access_fixture *f = *state;
    char said[1024] = "";
    database_login(f->owner, "plain_owner", "");
    database_login(f->owner, "plain_reader", "");
    sql_execute(f->owner,
                "ALTER ROLE precisionprobe_writer RENAME TO hidden_precisionprobe_writer");
    sql_execute(f->owner,
                "ALTER ROLE precisionprobe_reader RENAME TO hidden_precisionprobe_reader");
    PQfinish(database_make("t_managed"));
    sql_execute(f->owner, "ALTER DATABASE t_managed OWNER TO plain_owner");
    PGconn *owner = database_open("t_managed", "plain_owner");
    PQsetNoticeReceiver(owner, on_notice, said);
    database_migrate(owner, pp_migrations_count);
    assert_non_null(strstr(said, "the role precisionprobe_writer is not there"));
    assert_non_null(strstr(said, "CREATE ROLE precisionprobe_reader NOLOGIN"));
    database_fill(owner, pp_migrations_count, "a");
    database_fill(owner, pp_migrations_count, "b");
    /* Grants of one's own do the same. */
    sql_execute(owner, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain_reader; "
                       "REVOKE ALL ON reader FROM plain_reader; "
                       "INSERT INTO reader VALUES ('plain_reader', 'b')");
    PGconn *reader = database_open("t_managed", "plain_reader");
    assert_string_equal(sql_ask(reader, "SELECT uid FROM session"), "b-s");
    assert_string_equal(sql_ask(reader, "SELECT layer FROM item"), "b-layer");
    /* And groups that come later have their rights at the next connect. */
    show_groups(f->owner);
    said[0] = '\0';
    database_migrate(owner, pp_migrations_count);
    if (views_have_their_readers_rights(owner))
        assert_string_equal(said, "");
    assert_int_equal(sql_count(owner, "SELECT has_table_privilege('precisionprobe_reader', "
                                      "'item', 'SELECT')::int"),
                     1);
    PQfinish(reader);
    PQfinish(owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_relation_has_its_rule),
        cmocka_unit_test(test_a_tenant_reads_its_own),
        cmocka_unit_test(test_nothing_else_tells_of_others),
        cmocka_unit_test(test_readers_write_nothing),
        cmocka_unit_test(test_writers_do_not_say_who_reads),
        cmocka_unit_test(test_a_gpu_is_ones_own_for_a_time),
        cmocka_unit_test(test_what_comes_later),
        cmocka_unit_test(test_without_the_right_to_make_groups),
    };
    return cmocka_run_group_tests_name("access", tests, setup, teardown);
}
