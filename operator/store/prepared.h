/*
 * Which statements a connection's server has prepared. A batch's statement takes the server longer
 * to plan than to carry out, so one that comes often is prepared, once a connection. Behind a
 * pooler that gives each transaction another server connection none can be: pp_prepared_give_up
 * then. Used by connection.c only; does no I/O.
 */
#ifndef PP_OPERATOR_STORE_PREPARED_H
#define PP_OPERATOR_STORE_PREPARED_H

#include "operator/store/statement.h"

typedef struct pp_prepared pp_prepared;

/** One text, with the types that its parameters had first. */
typedef struct pp_prepared_statement pp_prepared_statement;

/** NULL without memory. */
pp_prepared *pp_prepared_new(void);
/** NULL is allowed, here and below: nothing is prepared then. */
void pp_prepared_free(pp_prepared *p);

/** Counts one use of the statement. `ret_name`: its name where the server has it, else NULL; lives
 * as long as the table. Returns what has to be prepared now, so that the name may come later:
 * borrowed, NULL for nothing. */
pp_prepared_statement *pp_prepared_use(pp_prepared *p, const pp_statement *s,
                                       const char **ret_name);

const char *pp_prepared_name(const pp_prepared_statement *s);
const char *pp_prepared_sql(const pp_prepared_statement *s);
/** The types of its parameters; as many as *ret_n. */
const Oid *pp_prepared_types(const pp_prepared_statement *s, int *ret_n);

/** The server has prepared it, or has refused to: it is sent whole then. */
void pp_prepared_set(pp_prepared_statement *s, bool ready);

/** Whether an error of this SQLSTATE says that a prepared statement is not there, is another's, or
 * has become out of date. */
bool pp_prepared_is_lost(const char *sqlstate);
/** From now on every statement is sent whole. */
void pp_prepared_give_up(pp_prepared *p);

#endif
