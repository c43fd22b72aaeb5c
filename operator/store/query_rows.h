/*
 * The rows of a query's answer as cells. A column's name begins with its section (query_sql.c).
 * What is nested comes as columns of its own, where rows of one key follow each other, or as a
 * column of records, each of which is a part of its row. Used by query.c only; does no I/O.
 */
#ifndef PP_OPERATOR_STORE_QUERY_ROWS_H
#define PP_OPERATOR_STORE_QUERY_ROWS_H

#include "common/buf.h"
#include "common/cell.h"
#include "operator/store/query.h"

#include <libpq-fe.h>

enum { PP_QUERY_MAX_CELLS = 96 };

/** What is the same of a column in all rows of an answer. */
typedef struct pp_query_column {
    pp_cell_section section;
    Oid type;
} pp_query_column;

typedef struct pp_query_rows {
    const char *const *parts; /**< names of what a record holds, the NULL last; NULL: none comes */
    int n_columns;            /**< 0: no row has come */
    pp_query_column columns[PP_QUERY_MAX_CELLS];
    pp_buf key;      /**< of the row before, as it came */
    PGresult *terms; /**< what completes records, by their first value; NULL: nothing does */
    int term;        /**< the row of it that was needed last */
    pp_buf texts;    /**< of a row's records, each with its NUL */
} pp_query_rows;

/** `parts` is borrowed, as long as the rows. */
void pp_query_rows_init(pp_query_rows *rows, const char *const *parts);
void pp_query_rows_done(pp_query_rows *rows);
/** The rows come again from the first on. */
void pp_query_rows_reset(pp_query_rows *rows);

/** Takes what is known of records' first value, which its first column is: its other columns
 * complete each record. Copies it. */
int pp_query_rows_terms(pp_query_rows *rows, const PGresult *terms, pp_error *err);

/** Hands on one row: at once what is new, then each further part of it, until `fn` wants no more,
 * which 1 says. -1 with what `fn` set, or PP_ERR_INTERNAL for a type that is not read. */
int pp_query_row(pp_query_rows *rows, const PGresult *r, int row, pp_query_row_fn fn, void *user,
                 pp_error *err);

#endif
