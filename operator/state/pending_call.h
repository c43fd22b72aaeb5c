/*
 * What belongs to a call that a stop cancels without an answer (those of the API server and of
 * Prometheus): what was not freed by then is freed with the operator.
 */
#ifndef PP_OPERATOR_STATE_PENDING_CALL_H
#define PP_OPERATOR_STATE_PENDING_CALL_H

#include <stddef.h>

typedef struct pp_operator pp_operator;

/** Head of a call's struct. */
typedef struct pp_pending_call {
    pp_operator *op;
    void (*release)(void *context); /**< frees what it holds besides itself; NULL: nothing */
    struct pp_pending_call *prev, *next;
} pp_pending_call;

/** `size` bytes, zeroed, that begin with a pp_pending_call; NULL without memory. */
void *pp_pending_call_new(pp_operator *op, size_t size, void (*release)(void *context));
/** NULL is allowed. */
void pp_pending_call_free(void *context);
/** Those of calls that were cancelled. */
void pp_pending_call_free_all(pp_operator *op);

#endif
