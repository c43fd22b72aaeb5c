#include "operator/store/tests/shared_postgres.h"

#include "common/tests/cmocka_all.h"
#include "operator/store/tests/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_line(const char *path, char *out, int size)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        fail_msg("%s: run by ctest, which starts Postgres", path ? path : "PP_POSTGRES_STATE");
    assert_non_null(fgets(out, size, file));
    (void)fclose(file);
    out[strcspn(out, "\n")] = '\0';
}

void shared_postgres_conninfo(char out[SHARED_POSTGRES_CONNINFO])
{
    char folder[256];
    char path[sizeof folder + 16];
    read_line(getenv("PP_POSTGRES_STATE"), folder, sizeof folder);
    (void)snprintf(path, sizeof path, "%s/conninfo", folder);
    read_line(path, out, SHARED_POSTGRES_CONNINFO);
}

void shared_postgres_create(const char *name, char out[SHARED_POSTGRES_CONNINFO])
{
    char sql[128];
    shared_postgres_conninfo(out);
    PGconn *conn = sql_connect(out);
    (void)snprintf(sql, sizeof sql, "DROP DATABASE IF EXISTS %s WITH (FORCE)", name);
    sql_execute(conn, sql);
    (void)snprintf(sql, sizeof sql, "CREATE DATABASE %s", name);
    sql_execute(conn, sql);
    PQfinish(conn);
    const size_t n = strlen(out);
    const int more = snprintf(out + n, SHARED_POSTGRES_CONNINFO - n, " dbname=%s", name);
    assert_true(more > 0 && n + (size_t)more < SHARED_POSTGRES_CONNINFO);
}
