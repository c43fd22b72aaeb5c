/*
 * One SQL statement with binary parameters, and reading of binary results. Nothing from outside
 * ever becomes part of an SQL text. Used by the files of this folder only.
 */
#ifndef PP_OPERATOR_STORE_STATEMENT_H
#define PP_OPERATOR_STORE_STATEMENT_H

#include "common/error.h"
#include "common/json.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PP_SQL_MAX_PARAMS = 104, PP_SQL_MAX_ARRAY = 4000000 };

/** Types of parameters, as in pg_type. */
typedef enum pp_sql_type {
    PP_SQL_BOOL = 16,
    PP_SQL_INT8 = 20,
    PP_SQL_INT2 = 21,
    PP_SQL_INT4 = 23,
    PP_SQL_TEXT = 25,
    PP_SQL_FLOAT8 = 701,
    PP_SQL_INT2_ARRAY = 1005,
    PP_SQL_INT4_ARRAY = 1007,
    PP_SQL_TEXT_ARRAY = 1009,
    PP_SQL_INT8_ARRAY = 1016,
    PP_SQL_FLOAT8_ARRAY = 1022,
} pp_sql_type;

typedef struct pp_statement {
    const char *sql;  /**< static */
    const char *name; /**< by which the server has it prepared; NULL: it is sent whole. Borrowed */
    bool streamed;    /**< rows are handed on one by one as they arrive */
    bool failed;      /**< a parameter could not be made: out of memory, or a text is too long */
    int n;
    size_t bytes; /**< of the parameters */
    Oid types[PP_SQL_MAX_PARAMS];
    char *values[PP_SQL_MAX_PARAMS]; /**< owned; NULL is SQL's */
    int lengths[PP_SQL_MAX_PARAMS];
} pp_statement;

void pp_statement_done(pp_statement *s);

/* Each appends one parameter; failures are kept in `failed`. */
void pp_sql_text(pp_statement *s, const char *text); /**< NULL: SQL's NULL */
void pp_sql_int8(pp_statement *s, int64_t value);
void pp_sql_int4(pp_statement *s, int64_t value);
void pp_sql_bool(pp_statement *s, bool value);
void pp_sql_float8(pp_statement *s, double value); /**< NaN: NULL */
void pp_sql_null(pp_statement *s, pp_sql_type type);

/* Arrays of n elements that get() reads out of an element of `base`, `stride` bytes apart. */
void pp_sql_ints(pp_statement *s, pp_sql_type array_type, const void *base, size_t n, size_t stride,
                 int64_t (*get)(const void *element));
void pp_sql_floats(pp_statement *s, const void *base, size_t n, size_t stride,
                   double (*get)(const void *element)); /**< NaN: NULL */
void pp_sql_texts(pp_statement *s, const void *base, size_t n, size_t stride,
                  const char *(*get)(const void *element)); /**< NULL: NULL */
void pp_sql_strings(pp_statement *s, const pp_strings *strings);

/* Reading a binary value of so many bytes: an integer of 2, 4 or 8, a number of 8. */
int64_t pp_sql_read_int(const void *data, size_t n);
double pp_sql_read_float(const void *data);

/* Reading a binary row; the column must have that type (a NULL reads as the default given). */
int64_t pp_row_int(const PGresult *r, int row, int column, int64_t if_null);
double pp_row_float(const PGresult *r, int row, int column); /**< NULL: NaN */
bool pp_row_bool(const PGresult *r, int row, int column);
const char *pp_row_text(const PGresult *r, int row, int column); /**< borrowed; NULL for NULL */

/** A view of a one-dimensional array without NULLs. */
typedef struct pp_row_array {
    const unsigned char *data; /**< elements, each with its length before it */
    size_t left;               /**< bytes */
    size_t count;
} pp_row_array;

/** -1 where the value is no such array; NULL gives an empty one. */
int pp_row_array_open(const PGresult *r, int row, int column, pp_row_array *ret, pp_error *err);
/** The next element's bytes, *ret_n of them, borrowed; NULL past the end, or where it is NULL. */
const unsigned char *pp_row_array_next(pp_row_array *a, size_t *ret_n);
/** The next integer of 2, 4 or 8 bytes; 0 past the end. */
int64_t pp_row_array_int(pp_row_array *a);
/** The next number of 8 bytes; NaN past the end. */
double pp_row_array_float(pp_row_array *a);
/** A text array into owned strings. */
int pp_row_strings(const PGresult *r, int row, int column, pp_strings *ret, pp_error *err);

#endif
