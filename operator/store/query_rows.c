#include "operator/store/query_rows.h"

#include "operator/store/statement.h"

#include <string.h>

enum { MAX_KEY_BYTES = 64 << 10, MAX_TEXT_BYTES = 64 << 20 };
/* From 1970 to 2000, where Postgres' times begin. */
#define POSTGRES_EPOCH INT64_C(946684800000000000)

/** Types of columns beside those of parameters. */
enum { OID_JSON = 114, OID_TIMESTAMPTZ = 1184, OID_RECORD_ARRAY = 2287, OID_JSONB = 3802 };

/** A row's cells as they are gathered. */
typedef struct cells {
    pp_cell at[PP_QUERY_MAX_CELLS];
    size_t n;
} cells;

void pp_query_rows_init(pp_query_rows *rows, const char *const *parts)
{
    *rows = (pp_query_rows){.parts = parts};
    pp_buf_init(&rows->key, MAX_KEY_BYTES);
    pp_buf_init(&rows->texts, MAX_TEXT_BYTES);
}

void pp_query_rows_done(pp_query_rows *rows)
{
    pp_buf_done(&rows->key);
    pp_buf_done(&rows->texts);
    PQclear(rows->terms);
    rows->terms = NULL;
}

void pp_query_rows_reset(pp_query_rows *rows)
{
    rows->n_columns = 0;
    pp_buf_reset(&rows->key);
    PQclear(rows->terms);
    rows->terms = NULL;
}

/* ---- columns ---- */

static pp_cell_section section_of(char mark)
{
    switch (mark) {
    case '@':
        return PP_CELL_VERSION;
    case '#':
        return PP_CELL_KEY;
    case '^':
        return PP_CELL_HEAD;
    case '+':
        return PP_CELL_NESTED;
    default:
        return PP_CELL_ROW;
    }
}

static int learn_columns(pp_query_rows *rows, const PGresult *r, pp_error *err)
{
    const int n = PQnfields(r);
    if (n > PP_QUERY_MAX_CELLS)
        return pp_error_set(err, PP_ERR_INTERNAL, "a row has %d columns", n);
    for (int i = 0; i < n; i++)
        rows->columns[i] = (pp_query_column){section_of(*PQfname(r, i)), PQftype(r, i)};
    rows->n_columns = n;
    return 0;
}

/* ---- values ---- */

static int64_t microseconds(int64_t us)
{
    return us > (INT64_MAX - POSTGRES_EPOCH) / 1000   ? INT64_MAX
           : us < (INT64_MIN + POSTGRES_EPOCH) / 1000 ? INT64_MIN
                                                      : us * 1000 + POSTGRES_EPOCH;
}

/* A value of n bytes, which a NUL follows, that is none of SQL's NULLs. */
static int read_value(const char *value, size_t n, Oid type, pp_cell *ret, pp_error *err)
{
    switch ((int)type) {
    case PP_SQL_BOOL:
        ret->type = PP_CELL_BOOL;
        ret->number = *value != 0;
        return 0;
    case PP_SQL_INT2:
    case PP_SQL_INT4:
    case PP_SQL_INT8:
        ret->type = PP_CELL_INT;
        ret->number = pp_sql_read_int(value, n);
        return 0;
    case PP_SQL_FLOAT8:
        ret->type = PP_CELL_FLOAT;
        ret->real = pp_sql_read_float(value);
        return 0;
    case PP_SQL_TEXT:
        ret->type = PP_CELL_TEXT;
        ret->text = value;
        return 0;
    case OID_JSON:
        ret->type = PP_CELL_JSON;
        ret->text = value;
        return 0;
    case OID_JSONB: /* a version comes first */
        ret->type = PP_CELL_JSON;
        ret->text = value + 1;
        return 0;
    case OID_TIMESTAMPTZ:
        ret->type = PP_CELL_TIME;
        ret->number = microseconds(pp_sql_read_int(value, n));
        return 0;
    default:
        return pp_error_set(err, PP_ERR_INTERNAL, "%s has a type that is not read", ret->name);
    }
}

static int add_cell(cells *out, const PGresult *r, int row, int i, const pp_query_column *of,
                    pp_error *err)
{
    const char *name = PQfname(r, i);
    pp_cell *cell = &out->at[out->n++];
    *cell = (pp_cell){.section = of->section, .name = of->section == PP_CELL_ROW ? name : name + 1};
    return PQgetisnull(r, row, i) ? 0
                                  : read_value(PQgetvalue(r, row, i),
                                               (size_t)PQgetlength(r, row, i), of->type, cell, err);
}

/* ---- keys ---- */

/* 1: the row has the key of the one before; 0: another, which is kept, or none. */
static int same_key(pp_query_rows *rows, const PGresult *r, int row, pp_error *err)
{
    bool same = rows->key.len > 0;
    size_t at = 0;
    for (int i = 0; same && i < rows->n_columns; i++) {
        if (rows->columns[i].section != PP_CELL_KEY)
            continue;
        const size_t n = (size_t)PQgetlength(r, row, i);
        same = at + n < rows->key.len &&
               memcmp(rows->key.data + at, PQgetvalue(r, row, i), n + 1) == 0;
        at += n + 1;
    }
    if (same)
        return at == rows->key.len;
    pp_buf_reset(&rows->key);
    for (int i = 0; i < rows->n_columns; i++) {
        if (rows->columns[i].section == PP_CELL_KEY &&
            pp_buf_append(&rows->key, PQgetvalue(r, row, i), (size_t)PQgetlength(r, row, i) + 1,
                          err) < 0)
            return -1;
    }
    return 0;
}

/* ---- records ---- */

/** What is left of a record as it came: how many values, then of each its type, its length (-1:
 * NULL) and its bytes (record_send of Postgres' rowtypes.c). */
typedef struct record {
    const unsigned char *data;
    size_t left;
} record;

static int64_t take_int(record *in)
{
    const int64_t value = pp_sql_read_int(in->data, 4);
    in->data += 4;
    in->left -= 4;
    return value;
}

/* The text of a record, which no NUL follows there, kept until the next row. */
static const char *keep_text(pp_buf *texts, const unsigned char *text, size_t n, pp_error *err)
{
    const size_t at = texts->len;
    if (pp_buf_append(texts, text, n, err) < 0 || pp_buf_append(texts, "", 1, err) < 0)
        return NULL;
    return texts->data + at;
}

static int read_part(pp_buf *texts, record *in, pp_cell *ret, pp_error *err)
{
    if (in->left < 8)
        return pp_error_set(err, PP_ERR_INTERNAL, "a record ends before its end");
    const Oid type = (Oid)take_int(in);
    const int64_t n = take_int(in);
    if (n < 0)
        return 0;
    if ((size_t)n > in->left)
        return pp_error_set(err, PP_ERR_INTERNAL, "a record ends before its end");
    const char *value = (const char *)in->data;
    if (type == PP_SQL_TEXT)
        value = keep_text(texts, in->data, (size_t)n, err);
    in->data += n;
    in->left -= (size_t)n;
    return value ? read_value(value, (size_t)n, type, ret, err) : -1;
}

static int add_record(pp_query_rows *rows, record in, cells *out, pp_error *err)
{
    const int64_t n = in.left < 4 ? 0 : take_int(&in);
    const char *const *name = rows->parts;
    for (int64_t i = 0; i < n; i++, name++) {
        if (!name || !*name || out->n == PP_QUERY_MAX_CELLS)
            return pp_error_set(err, PP_ERR_INTERNAL, "a record has %lld values", (long long)n);
        pp_cell *cell = &out->at[out->n++];
        *cell = (pp_cell){.section = PP_CELL_NESTED, .name = *name};
        if (read_part(&rows->texts, &in, cell, err) < 0)
            return -1;
    }
    return 0;
}

int pp_query_rows_terms(pp_query_rows *rows, const PGresult *terms, pp_error *err)
{
    PQclear(rows->terms);
    rows->terms = PQcopyResult(terms, PG_COPYRES_ATTRS | PG_COPYRES_TUPLES);
    rows->term = PQntuples(terms) - 1;
    return rows->terms ? 0 : pp_error_nomem(err);
}

/* The row of the terms that knows a record's first value; -1: none. Records name them in the order
 * of the terms, mostly, so that is looked at first which follows the last. */
static int find_term(pp_query_rows *rows, const pp_cell *first)
{
    const int n = rows->terms ? PQntuples(rows->terms) : 0;
    for (int i = 1; first->type == PP_CELL_TEXT && i <= n; i++) {
        const int row = (rows->term + i) % n;
        if (strcmp(PQgetvalue(rows->terms, row, 0), first->text) != 0)
            continue;
        rows->term = row;
        return row;
    }
    return -1;
}

/* Completes the record that begins with cell `first`. */
static int add_terms(pp_query_rows *rows, size_t first, cells *out, pp_error *err)
{
    const int n = rows->terms && first < out->n ? PQnfields(rows->terms) : 0;
    const int row = n ? find_term(rows, &out->at[first]) : -1;
    for (int i = 1; i < n; i++) {
        if (out->n == PP_QUERY_MAX_CELLS)
            return pp_error_set(err, PP_ERR_INTERNAL, "a record has too many values");
        pp_cell *cell = &out->at[out->n++];
        *cell = (pp_cell){.section = PP_CELL_NESTED, .name = PQfname(rows->terms, i)};
        if (row >= 0 && !PQgetisnull(rows->terms, row, i) &&
            read_value(PQgetvalue(rows->terms, row, i), (size_t)PQgetlength(rows->terms, row, i),
                       PQftype(rows->terms, i), cell, err) < 0)
            return -1;
    }
    return 0;
}

/* Room for the texts of all records of a value, so that none moves when the next is kept. */
static int make_room(pp_buf *texts, const PGresult *r, int row, int i, pp_error *err)
{
    pp_buf_reset(texts);
    return pp_buf_reserve(texts, (size_t)PQgetlength(r, row, i), err);
}

/* ---- rows ---- */

/* The row's cells go out with its first record, each further one alone. */
static int hand_on_records(pp_query_rows *rows, const PGresult *r, int row, int i, cells *out,
                           pp_query_row_fn fn, void *user, pp_error *err)
{
    pp_row_array records;
    if (pp_row_array_open(r, row, i, &records, err) < 0 ||
        make_room(&rows->texts, r, row, i, err) < 0)
        return -1;
    if (records.count == 0)
        return fn(user, out->at, out->n, err);
    for (size_t k = 0; k < records.count; k++) {
        const size_t first = out->n;
        record one = {0};
        one.data = pp_row_array_next(&records, &one.left);
        if (add_record(rows, one, out, err) < 0 || add_terms(rows, first, out, err) < 0)
            return -1;
        const int rc = fn(user, out->at, out->n, err);
        if (rc != 0)
            return rc;
        out->n = 0;
    }
    return 0;
}

int pp_query_row(pp_query_rows *rows, const PGresult *r, int row, pp_query_row_fn fn, void *user,
                 pp_error *err)
{
    cells out;
    int records = -1;
    out.n = 0;
    if (!rows->n_columns && learn_columns(rows, r, err) < 0)
        return -1;
    const int same = same_key(rows, r, row, err);
    if (same < 0)
        return -1;
    for (int i = 0; i < rows->n_columns; i++) {
        const pp_query_column *of = &rows->columns[i];
        if (same && of->section != PP_CELL_NESTED)
            continue;
        if (of->type == OID_RECORD_ARRAY)
            records = i;
        else if (add_cell(&out, r, row, i, of, err) < 0)
            return -1;
    }
    return records < 0 ? fn(user, out.at, out.n, err)
                       : hand_on_records(rows, r, row, records, &out, fn, user, err);
}
