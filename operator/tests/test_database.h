/* A database of a test's own, on the Postgres that the tests share, and the store of an operator in
 * it. */
#ifndef PP_OPERATOR_TESTS_TEST_DATABASE_H
#define PP_OPERATOR_TESTS_TEST_DATABASE_H

#include "operator/tests/api_server.h"

#include <libpq-fe.h>
#include <stdbool.h>

typedef struct test_database {
    PGconn *direct; /* beside the store's; its time zone is UTC */
    char conninfo_path[64];
} test_database;

/** Makes it anew, empty, and the operator's store in it, whose tables are there then. */
void test_database_make(test_database *db, const char *name, api_server *api);
/** Frees the store, too. The database stays. */
void test_database_done(test_database *db, api_server *api);
/** The test fails where the statements do. */
void test_database_execute(const test_database *db, const char *sql);
/** Ends all other connections, and lets none in; or lets them in again. */
void test_database_refuse(const test_database *db, bool refuse);

#endif
