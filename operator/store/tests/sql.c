#include "operator/store/tests/sql.h"

#include "common/tests/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PGconn *sql_connect(const char *conninfo)
{
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(conn));
    sql_execute(conn, "SET client_min_messages = warning");
    return conn;
}

void sql_execute(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    PQclear(r);
}

const char *sql_ask(PGconn *conn, const char *sql)
{
    static char text[1 << 18];
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < PQntuples(r); i++) {
        for (int j = 0; j < PQnfields(r); j++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s",
                                  j   ? "|"
                                  : i ? "\n"
                                      : "",
                                  PQgetisnull(r, i, j) ? "NULL" : PQgetvalue(r, i, j));
            assert_true(n < sizeof text);
        }
    }
    PQclear(r);
    return text;
}

long sql_count(PGconn *conn, const char *sql)
{
    return strtol(sql_ask(conn, sql), NULL, 10);
}

bool sql_denies(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const bool denied = state && strcmp(state, "42501") == 0;
    PQclear(r);
    return denied;
}
