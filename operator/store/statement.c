#include "operator/store/statement.h"

#include <endian.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUE = 64 << 20 };

void pp_statement_done(pp_statement *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->values[i]);
    memset(s, 0, sizeof(*s));
}

/* A parameter of n bytes to be filled by the caller; NULL when it failed. */
static char *add(pp_statement *s, pp_sql_type type, size_t n)
{
    char *value = s->n < PP_SQL_MAX_PARAMS && n <= MAX_VALUE ? malloc(n + 1) : NULL;
    if (!value) {
        s->failed = true;
        return NULL;
    }
    value[n] = '\0';
    s->types[s->n] = (Oid)type;
    s->values[s->n] = value;
    s->lengths[s->n] = (int)n;
    s->n++;
    s->bytes += n;
    return value;
}

void pp_sql_null(pp_statement *s, pp_sql_type type)
{
    if (s->n >= PP_SQL_MAX_PARAMS) {
        s->failed = true;
        return;
    }
    s->types[s->n] = (Oid)type;
    s->values[s->n] = NULL;
    s->lengths[s->n] = 0;
    s->n++;
}

static char *put_int(char *p, int64_t value, size_t width)
{
    const uint64_t big = htobe64((uint64_t)value);
    memcpy(p, (const char *)&big + (8 - width), width);
    return p + width;
}

static char *put_float(char *p, double value)
{
    int64_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    return put_int(p, bits, 8);
}

void pp_sql_text(pp_statement *s, const char *text)
{
    if (!text) {
        pp_sql_null(s, PP_SQL_TEXT);
        return;
    }
    const size_t n = strlen(text);
    char *p = add(s, PP_SQL_TEXT, n);
    if (p)
        memcpy(p, text, n + 1); /* add() has room for the NUL, which is not sent */
}

void pp_sql_int8(pp_statement *s, int64_t value)
{
    char *p = add(s, PP_SQL_INT8, 8);
    if (p)
        put_int(p, value, 8);
}

void pp_sql_int4(pp_statement *s, int64_t value)
{
    char *p = value >= INT32_MIN && value <= INT32_MAX ? add(s, PP_SQL_INT4, 4) : NULL;
    if (p)
        put_int(p, value, 4);
    else
        s->failed = true;
}

void pp_sql_bool(pp_statement *s, bool value)
{
    char *p = add(s, PP_SQL_BOOL, 1);
    if (p)
        *p = value ? 1 : 0;
}

void pp_sql_float8(pp_statement *s, double value)
{
    if (isnan(value)) {
        pp_sql_null(s, PP_SQL_FLOAT8);
        return;
    }
    char *p = add(s, PP_SQL_FLOAT8, 8);
    if (p)
        put_float(p, value);
}

/* dimensions, has NULLs, element type, then length and lower bound of the one dimension */
static char *put_array_head(char *p, size_t n, bool nulls, pp_sql_type element)
{
    p = put_int(p, n ? 1 : 0, 4);
    p = put_int(p, nulls, 4);
    p = put_int(p, element, 4);
    if (n == 0)
        return p;
    p = put_int(p, (int64_t)n, 4);
    return put_int(p, 1, 4);
}

static char *add_array(pp_statement *s, pp_sql_type array, pp_sql_type element, size_t n,
                       size_t data, bool nulls)
{
    if (n > PP_SQL_MAX_ARRAY) {
        s->failed = true;
        return NULL;
    }
    char *p = add(s, array, (n ? 20 : 12) + 4 * n + data);
    return p ? put_array_head(p, n, nulls, element) : NULL;
}

void pp_sql_ints(pp_statement *s, pp_sql_type array_type, const void *base, size_t n, size_t stride,
                 int64_t (*get)(const void *element))
{
    const size_t width = array_type == PP_SQL_INT8_ARRAY   ? 8
                         : array_type == PP_SQL_INT4_ARRAY ? 4
                                                           : 2;
    const pp_sql_type element = width == 8 ? PP_SQL_INT8 : width == 4 ? PP_SQL_INT4 : PP_SQL_INT2;
    char *p = add_array(s, array_type, element, n, n * width, false);
    for (size_t i = 0; p && i < n; i++) {
        const int64_t value = get((const char *)base + i * stride);
        if (width < 8 && (value >> (8 * width - 1)) != 0 && (value >> (8 * width - 1)) != -1)
            s->failed = true;
        p = put_int(p, (int64_t)width, 4);
        p = put_int(p, value, width);
    }
}

void pp_sql_floats(pp_statement *s, const void *base, size_t n, size_t stride,
                   double (*get)(const void *element))
{
    size_t known = 0;
    for (size_t i = 0; i < n; i++)
        known += !isnan(get((const char *)base + i * stride));
    char *p = add_array(s, PP_SQL_FLOAT8_ARRAY, PP_SQL_FLOAT8, n, known * 8, known < n);
    for (size_t i = 0; p && i < n; i++) {
        const double value = get((const char *)base + i * stride);
        p = put_int(p, isnan(value) ? -1 : 8, 4);
        if (!isnan(value))
            p = put_float(p, value);
    }
}

void pp_sql_texts(pp_statement *s, const void *base, size_t n, size_t stride,
                  const char *(*get)(const void *element))
{
    size_t bytes = 0;
    bool nulls = false;
    for (size_t i = 0; i < n; i++) {
        const char *text = get((const char *)base + i * stride);
        bytes += text ? strlen(text) : 0;
        nulls |= !text;
    }
    char *p = add_array(s, PP_SQL_TEXT_ARRAY, PP_SQL_TEXT, n, bytes, nulls);
    for (size_t i = 0; p && i < n; i++) {
        const char *text = get((const char *)base + i * stride);
        const size_t len = text ? strlen(text) : 0;
        p = put_int(p, text ? (int64_t)len : -1, 4);
        if (text)
            memcpy(p, text, len); /* NOLINT(bugprone-not-null-terminated-result): a binary array */
        p += len;
    }
}

static const char *get_string(const void *element)
{
    return *(char *const *)element;
}

void pp_sql_strings(pp_statement *s, const pp_strings *strings)
{
    pp_sql_texts(s, strings->items, strings->count, sizeof(char *), get_string);
}

int64_t pp_sql_read_int(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value << 8 | p[i];
    if (n < 8 && (value >> (8 * n - 1)) != 0)
        value |= UINT64_MAX << (8 * n);
    return (int64_t)value;
}

double pp_sql_read_float(const void *data)
{
    const int64_t bits = pp_sql_read_int(data, 8);
    double value = 0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int64_t pp_row_int(const PGresult *r, int row, int column, int64_t if_null)
{
    const int n = PQgetlength(r, row, column);
    if (PQgetisnull(r, row, column) || (n != 2 && n != 4 && n != 8))
        return if_null;
    return pp_sql_read_int(PQgetvalue(r, row, column), (size_t)n);
}

double pp_row_float(const PGresult *r, int row, int column)
{
    if (PQgetisnull(r, row, column) || PQgetlength(r, row, column) != 8)
        return (double)NAN;
    return pp_sql_read_float(PQgetvalue(r, row, column));
}

bool pp_row_bool(const PGresult *r, int row, int column)
{
    return !PQgetisnull(r, row, column) && *PQgetvalue(r, row, column) != 0;
}

const char *pp_row_text(const PGresult *r, int row, int column)
{
    return PQgetisnull(r, row, column) ? NULL : PQgetvalue(r, row, column);
}

int pp_row_array_open(const PGresult *r, int row, int column, pp_row_array *ret, pp_error *err)
{
    *ret = (pp_row_array){0};
    if (PQgetisnull(r, row, column))
        return 0;
    const unsigned char *p = (const unsigned char *)PQgetvalue(r, row, column);
    const size_t n = (size_t)PQgetlength(r, row, column);
    if (n >= 12 && pp_sql_read_int(p, 4) == 0)
        return 0;
    if (n < 20 || pp_sql_read_int(p, 4) != 1 || pp_sql_read_int(p + 4, 4) != 0 ||
        pp_sql_read_int(p + 12, 4) < 0)
        return pp_error_set(err, PP_ERR_INTERNAL, "column %s is no plain array",
                            PQfname(r, column));
    *ret =
        (pp_row_array){.data = p + 20, .left = n - 20, .count = (size_t)pp_sql_read_int(p + 12, 4)};
    return 0;
}

const unsigned char *pp_row_array_next(pp_row_array *a, size_t *ret_n)
{
    if (a->left < 4)
        return NULL;
    const int64_t n = pp_sql_read_int(a->data, 4);
    if (n < 0 || (size_t)n > a->left - 4)
        return NULL;
    const unsigned char *p = a->data + 4;
    a->data += 4 + (size_t)n;
    a->left -= 4 + (size_t)n;
    *ret_n = (size_t)n;
    return p;
}

int64_t pp_row_array_int(pp_row_array *a)
{
    size_t n = 0;
    const unsigned char *p = pp_row_array_next(a, &n);
    return p && n <= 8 ? pp_sql_read_int(p, n) : 0;
}

double pp_row_array_float(pp_row_array *a)
{
    size_t n = 0;
    const unsigned char *p = pp_row_array_next(a, &n);
    return p && n == 8 ? pp_sql_read_float(p) : (double)NAN;
}

int pp_row_strings(const PGresult *r, int row, int column, pp_strings *ret, pp_error *err)
{
    pp_row_array a;
    if (pp_row_array_open(r, row, column, &a, err) < 0)
        return -1;
    for (size_t i = 0; i < a.count; i++) {
        size_t n = 0;
        const unsigned char *p = pp_row_array_next(&a, &n);
        char *text = p ? strndup((const char *)p, n) : NULL;
        const int rc = text ? pp_strings_add(ret, text, err) : pp_error_nomem(err);
        free(text);
        if (rc < 0)
            return -1;
    }
    return 0;
}
