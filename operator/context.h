/*
 * What belongs to a call that a stop cancels without an answer (those of the API server and of
 * Prometheus): what was not freed by then is freed with the operator.
 */
#ifndef PP_OPERATOR_CONTEXT_H
#define PP_OPERATOR_CONTEXT_H

#include <stddef.h>

typedef struct pp_operator pp_operator;

/** Head of a call's struct. */
typedef struct pp_context {
    pp_operator *op;
    void (*release)(void *context); /**< frees what it holds besides itself; NULL: nothing */
    struct pp_context *prev, *next;
} pp_context;

/** `size` bytes, zeroed, that begin with a pp_context; NULL without memory. */
void *pp_context_new(pp_operator *op, size_t size, void (*release)(void *context));
/** NULL is allowed. */
void pp_context_free(void *context);
/** Those of calls that were cancelled. */
void pp_context_free_all(pp_operator *op);

#endif
