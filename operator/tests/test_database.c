#include "operator/tests/test_database.h"

#include "common/tests/cmocka_all.h"
#include "operator/store/tests/shared_postgres.h"
#include "operator/store/tests/sql.h"

#include <unistd.h>

void test_database_execute(const test_database *db, const char *sql)
{
    sql_execute(db->direct, sql);
}

void test_database_refuse(const test_database *db, bool refuse)
{
    char conninfo[SHARED_POSTGRES_CONNINFO], sql[256];
    shared_postgres_conninfo(conninfo);
    PGconn *beside = sql_connect(conninfo); /* nobody can disallow what he is connected to */
    (void)snprintf(sql, sizeof sql, "ALTER DATABASE %s ALLOW_CONNECTIONS %s", PQdb(db->direct),
                   refuse ? "false" : "true");
    sql_execute(beside, sql);
    PQfinish(beside);
    if (refuse)
        sql_execute(db->direct, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                "WHERE datname = current_database() AND pid <> pg_backend_pid()");
}

static bool is_ready(void *user)
{
    return pp_store_ready(((api_server *)user)->op.store, NULL);
}

static void open_store(test_database *db, api_server *api)
{
    pp_error err = {0};
    const pp_store_options options = {.conninfo_file = db->conninfo_path};
    api->config.postgres.conninfo_file = db->conninfo_path;
    api->op.store = pp_store_new(api->op.loop, &options, &err);
    assert_non_null(api->op.store);
    assert_true(api_server_run(api, is_ready, api));
}

void test_database_make(test_database *db, const char *name, api_server *api)
{
    char conninfo[SHARED_POSTGRES_CONNINFO];
    shared_postgres_create(name, conninfo);
    (void)snprintf(db->conninfo_path, sizeof db->conninfo_path, "/tmp/pp-%s-%d", name,
                   (int)getpid());
    FILE *file = fopen(db->conninfo_path, "w");
    assert_non_null(file);
    (void)fputs(conninfo, file);
    (void)fclose(file);
    db->direct = sql_connect(conninfo);
    sql_execute(db->direct, "SET timezone = 'UTC'");
    open_store(db, api);
}

void test_database_done(test_database *db, api_server *api)
{
    pp_store_free(api->op.store);
    api->config.postgres.conninfo_file = NULL;
    PQfinish(db->direct);
    (void)unlink(db->conninfo_path);
}
