/* The statements of query.c. A column's name begins with where it belongs (query_sql.c). */
#ifndef PP_OPERATOR_STORE_QUERY_SQL_H
#define PP_OPERATOR_STORE_QUERY_SQL_H

#include "operator/store/query.h"

/** Before each query, in its transaction: reads only, so long at most ($1, text). */
extern const char pp_query_begin_sql[];

/** Its parameters, in this order; what a query has none of, it does not name. */
typedef struct pp_query_text {
    const char *sql;
    bool ns;           /**< $1, text */
    bool session;      /**< then session, text, and UID, text or NULL */
    bool workload;     /**< then its kind and its name, text */
    bool known;        /**< then the versions that the caller has, text[] */
    bool process;      /**< then pod, text or NULL, and process, integer or NULL */
    const char *keys;  /**< then the key behind which rows begin: 't' text, 'i' bigint */
    bool uid_is_first; /**< of the caller's key, which is not among `keys` */
    int64_t most;      /**< of `limit`, which is last, bigint; 0: there is none */
    /* Of a column of records, each of which is a part of its row: */
    const char *const *parts; /**< names of what one holds, the NULL last; NULL: there are none */
    const char *terms; /**< asked before `sql`, without parameters: what is known of the first
                            value of one, which its first column is; NULL: nothing */
} pp_query_text;

extern const pp_query_text pp_query_texts[PP_QUERY_KINDS];

#endif
