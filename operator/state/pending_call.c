#include "operator/state/pending_call.h"

#include "operator/state/state.h"

#include <stdlib.h>
#include <utlist.h>

void *pp_pending_call_new(pp_operator *op, size_t size, void (*release)(void *context))
{
    pp_pending_call *context = calloc(1, size);
    if (!context)
        return NULL;
    context->op = op;
    context->release = release;
    DL_APPEND(op->contexts, context);
    return context;
}

void pp_pending_call_free(void *context)
{
    pp_pending_call *c = context;
    if (!c)
        return;
    DL_DELETE(c->op->contexts, c);
    if (c->release)
        c->release(c);
    free(c);
}

void pp_pending_call_free_all(pp_operator *op)
{
    while (op->contexts)
        pp_pending_call_free(op->contexts);
}
