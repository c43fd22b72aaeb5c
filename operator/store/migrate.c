#include "operator/store/migrate.h"

#include "common/metric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The version from which on access_settle() is there. */
enum { ACCESS = 16 };

/* The lock's key is ours alone; a second process waits here until the first has committed, but not
 * for so long that its own side has gone. While a statement of a migration waits for a lock, all
 * that comes after it waits, too, the leader's writes among it: so it gives way soon. Longer than
 * deadlock_timeout (1 s), by which an autovacuum gives way to it. */
static const char begin_text[] =
    "BEGIN;"
    "SET LOCAL lock_timeout = '60s';"
    "SELECT pg_advisory_xact_lock(7738142, 0);"
    "SET LOCAL lock_timeout = '2s';"
    /* IF NOT EXISTS asks for the right to create, which a writer lacks, even where it exists. */
    "DO $$ BEGIN IF to_regclass(quote_ident(current_schema()) || '.schema_migration') IS NULL THEN "
    "CREATE TABLE schema_migration ("
    "version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, "
    "applied_at timestamptz NOT NULL DEFAULT now()); END IF; END $$;"
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

static int put_text(pp_buf *out, const char *text, const char *behind, pp_error *err)
{
    return text ? pp_buf_printf(out, err, "'%s'%s", text, behind)
                : pp_buf_printf(out, err, "NULL%s", behind);
}

/* The table of metrics is the program's: its texts hold no quote. */
static int put_metrics(pp_buf *out, pp_error *err)
{
    if (pp_buf_printf(
            out, err,
            "INSERT INTO metric (name, spec_name, unit, peak_unit, per_step, sampled) VALUES ") < 0)
        return -1;
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        const pp_metric_info *m = pp_metric_get((pp_metric)i);
        if (pp_buf_printf(out, err, "%s(", i ? ", " : "") < 0 ||
            put_text(out, m->column, ", ", err) < 0 || put_text(out, m->spec_name, ", ", err) < 0 ||
            put_text(out, m->unit, ", ", err) < 0 ||
            put_text(out, pp_peak_unit(m->peak), ", ", err) < 0 ||
            put_text(out, m->per_step, ", ", err) < 0 ||
            pp_buf_printf(out, err, "nullif(%d, 0))", i < PP_METRIC_SAMPLED_COUNT ? i + 1 : 0) < 0)
            return -1;
    }
    return pp_buf_printf(
        out, err,
        " ON CONFLICT (name) DO UPDATE SET (spec_name, unit, peak_unit, per_step, sampled) = "
        "(excluded.spec_name, excluded.unit, excluded.peak_unit, "
        "excluded.per_step, excluded.sampled) "
        "WHERE metric IS DISTINCT FROM excluded; SELECT metric_columns(); SELECT access_settle(); "
        "COMMIT");
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
        return put_metrics(out, err) < 0 ? -1 : 0;
    const pp_migration *m = &known[rows];
    /* What a migration makes is never there without its policies. */
    if (pp_buf_printf(out, err,
                      "%s\n;%sINSERT INTO schema_migration (version, name, checksum) "
                      "VALUES (%d, '%s', '%s'); COMMIT",
                      m->sql, m->version >= ACCESS ? "SELECT access_settle();" : "", m->version,
                      m->name, m->checksum) < 0)
        return -1;
    return 1;
}

/* Behind what begins here and may hold semicolons: a comment, a quoted text or name, a body between
 * dollars; else behind the one character. */
static const char *skip(const char *s)
{
    char tag[64];
    const char *end = NULL;
    if (strncmp(s, "--", 2) == 0)
        return s + strcspn(s, "\n");
    if (*s == '\'' || *s == '"') {
        end = strchr(s + 1, *s);
        return end ? end + 1 : s + strlen(s);
    }
    const size_t n = *s == '$' ? strcspn(s + 1, "$ ;\n") + 2 : 0;
    if (n == 0 || n >= sizeof tag || s[n - 1] != '$')
        return s + 1;
    (void)snprintf(tag, n + 1, "%s", s);
    end = strstr(s + n, tag);
    return end ? end + n : s + strlen(s);
}

static const char *statement_start(const char *s)
{
    while (*s && (strchr(" \n;", *s) || strncmp(s, "--", 2) == 0))
        s = skip(s);
    return s;
}

void pp_migrate_statement(const char *sql, int before, char *out, size_t size)
{
    const char *s = statement_start(sql);
    for (int i = 0; i < before && *s; i++) {
        while (*s && *s != ';')
            s = skip(s);
        s = statement_start(s);
    }
    (void)snprintf(out, size, "%.*s", (int)strcspn(s, "\n;"), s);
}
