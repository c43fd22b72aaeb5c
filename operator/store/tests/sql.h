/* SQL that a test sends by itself, beside the store. Where it fails, so does the test. */
#ifndef PP_OPERATOR_STORE_TESTS_SQL_H
#define PP_OPERATOR_STORE_TESTS_SQL_H

#include <libpq-fe.h>
#include <stdbool.h>

PGconn *sql_connect(const char *conninfo);
void sql_execute(PGconn *conn, const char *sql);
/** The result as text, columns with "|", rows with "\n"; valid until the next one. */
const char *sql_ask(PGconn *conn, const char *sql);
/** The one integer that is asked for. */
long sql_count(PGconn *conn, const char *sql);
/** Whether the server denies it, for want of a right or by a policy. */
bool sql_denies(PGconn *conn, const char *sql);

#endif
