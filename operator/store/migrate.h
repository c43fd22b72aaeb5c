/*
 * The schema's migrations, embedded in the program: what to send when, decided from what the
 * database says. No I/O of its own.
 */
#ifndef PP_OPERATOR_STORE_MIGRATE_H
#define PP_OPERATOR_STORE_MIGRATE_H

#include "common/buf.h"
#include "common/error.h"

#include <libpq-fe.h>
#include <stddef.h>

typedef struct pp_migration {
    int version;
    const char *name;     /**< file name */
    const char *checksum; /**< SHA-256 of the file, hex */
    const char *sql;
} pp_migration;

/** In order of version, from 1 without a gap; generated from migrations/. */
extern const pp_migration pp_migrations[];
extern const size_t pp_migrations_count;

/** First text: begins a transaction, takes the lock and reads what was applied. It waits a minute
 * at most for who migrates meanwhile; what follows in the transaction waits for each of its locks a
 * moment only, since others queue behind it. */
const char *pp_migrate_begin(void);

/**
 * `applied` holds version, name and checksum as text, by version. Puts the rest of the transaction
 * into *out: the next migration, or the program's metrics and its end. Returns 1 when a migration
 * is in it (begin again afterwards), 0 when the schema is up to date, -1 where the schema is not
 * ours: newer than this program, or another history.
 */
int pp_migrate_next(const PGresult *applied, const pp_migration *known, size_t n, pp_buf *out,
                    pp_error *err);

/** How the statement begins that comes behind `before` others in the text: for people, at most a
 * line of it. */
void pp_migrate_statement(const char *sql, int before, char *out, size_t size);

#endif
