/* Databases of a test's own on the Postgres that the tests share, and rows for each table of the
 * schema as any release had it. */
#ifndef PP_OPERATOR_STORE_TESTS_DATABASE_H
#define PP_OPERATOR_STORE_TESTS_DATABASE_H

#include <libpq-fe.h>
#include <stddef.h>

/** Made anew, empty, and connected to as the server's superuser. */
PGconn *database_make(const char *name);
/** As another role, which is made a login where it is not there. */
PGconn *database_open(const char *name, const char *role);
/** Makes the login where it is not there; `rights` as in CREATE ROLE, "" for none. */
void database_login(PGconn *conn, const char *role, const char *rights);

/** Migrations of the schema up to `version`, as a program that knows no more of them does; with all
 *  of them it is as at each connect. */
void database_migrate(PGconn *conn, size_t version);
/** A row at least for each table that `version` has, and so of each view, that are of a session of
 *  the namespace. Each holds a text that begins with "NS-", or its namespace. */
void database_fill(PGconn *conn, size_t version, const char *ns);

#endif
