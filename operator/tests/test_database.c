#include "operator/tests/test_database.h"

#include "common/tests/cmocka_all.h"

#include <string.h>
#include <unistd.h>

static void execute(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", PQerrorMessage(conn), sql);
    PQclear(r);
}

void test_database_execute(const test_database *db, const char *sql)
{
    execute(db->direct, sql);
}

/* Of the Postgres, as operator/store/tests/postgres has left it. */
static void read_base(char *out, int size)
{
    char path[512] = "";
    FILE *state = fopen(getenv("PP_POSTGRES_STATE"), "r");
    assert_non_null(state);
    assert_non_null(fgets(path, sizeof path - 16, state));
    (void)fclose(state);
    path[strcspn(path, "\n")] = '\0';
    memcpy(path + strlen(path), "/conninfo", sizeof "/conninfo");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(out, size, file));
    out[strcspn(out, "\n")] = '\0';
    (void)fclose(file);
}

static void create(const char *base, const char *name)
{
    char sql[128];
    PGconn *conn = PQconnectdb(base);
    (void)snprintf(sql, sizeof sql, "DROP DATABASE IF EXISTS %s WITH (FORCE)", name);
    execute(conn, sql);
    (void)snprintf(sql, sizeof sql, "CREATE DATABASE %s", name);
    execute(conn, sql);
    PQfinish(conn);
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
    char base[256];
    char conninfo[512];
    read_base(base, sizeof base);
    create(base, name);
    (void)snprintf(conninfo, sizeof conninfo, "%s dbname=%s", base, name);
    (void)snprintf(db->conninfo_path, sizeof db->conninfo_path, "/tmp/pp-%s-%d", name,
                   (int)getpid());
    FILE *file = fopen(db->conninfo_path, "w");
    assert_non_null(file);
    (void)fputs(conninfo, file);
    (void)fclose(file);
    db->direct = PQconnectdb(conninfo);
    execute(db->direct, "SET timezone = 'UTC'");
    open_store(db, api);
}

void test_database_done(test_database *db, api_server *api)
{
    pp_store_free(api->op.store);
    api->config.postgres.conninfo_file = NULL;
    PQfinish(db->direct);
    (void)unlink(db->conninfo_path);
}
