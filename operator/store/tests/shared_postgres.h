/* The Postgres that the tests share, as `postgres start` has left it: PP_POSTGRES_STATE names it.
 */
#ifndef PP_OPERATOR_STORE_TESTS_SHARED_POSTGRES_H
#define PP_OPERATOR_STORE_TESTS_SHARED_POSTGRES_H

#include <stddef.h>

enum { SHARED_POSTGRES_CONNINFO = 512 /**< bytes of a connection string, and its NUL */ };

/** Connects as the server's superuser, to a database that nobody's rows are in. The test fails
 * where there is no server. */
void shared_postgres_conninfo(char out[SHARED_POSTGRES_CONNINFO]);
/** The same of a database of that name, which is made anew, empty. */
void shared_postgres_create(const char *name, char out[SHARED_POSTGRES_CONNINFO]);

#endif
