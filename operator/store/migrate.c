#include "operator/store/migrate.h"

#include <stdlib.h>
#include <string.h>

/* The lock's key is ours alone; a second process waits here until the first has committed. */
static const char begin_text[] =
    "BEGIN;"
    "SELECT pg_advisory_xact_lock(7738142, 0);"
    "CREATE TABLE IF NOT EXISTS schema_migration ("
    "version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, "
    "applied_at timestamptz NOT NULL DEFAULT now());"
    "SELECT version, name, checksum FROM schema_migration ORDER BY version";

const char *pp_migrate_begin(void)
{
    return begin_text;
}

static int check(const PGresult *applied, int row, const pp_migration *known, size_t n,
                 pp_error *err)
{
    const long version = strtol(PQgetvalue(applied, row, 0), NULL, 10);
    if (version > (long)n)
        return pp_error_set(err, PP_ERR_CONFLICT,
                            "the database has schema version %ld, this program knows %zu: it needs "
                            "a newer release",
                            version, n);
    /* Nothing past the known ones is looked at: versions are unique, and in order. */
    if (row >= (int)n || version != row + 1 ||
        strcmp(PQgetvalue(applied, row, 2), known[row].checksum) != 0)
        return pp_error_set(
            err, PP_ERR_CONFLICT, "migration %ld (%s) of the database is not this program's %s",
            version, PQgetvalue(applied, row, 1), row < (int)n ? known[row].name : "history");
    return 0;
}

int pp_migrate_next(const PGresult *applied, const pp_migration *known, size_t n, pp_buf *out,
                    pp_error *err)
{
    const int rows = PQntuples(applied);
    /* The newest first: a newer schema is said to be newer even where its history differs. */
    for (int i = rows - 1; i >= 0; i--) {
        if (check(applied, i, known, n, err) < 0)
            return -1;
    }
    if (rows == (int)n)
        return pp_buf_printf(out, err, "COMMIT") < 0 ? -1 : 0;
    const pp_migration *m = &known[rows];
    if (pp_buf_printf(out, err,
                      "%s\n;INSERT INTO schema_migration (version, name, checksum) "
                      "VALUES (%d, '%s', '%s'); COMMIT",
                      m->sql, m->version, m->name, m->checksum) < 0)
        return -1;
    return 1;
}
