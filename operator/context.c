#include "operator/context.h"

#include "operator/state.h"

#include <stdlib.h>
#include <utlist.h>

void *pp_context_new(pp_operator *op, size_t size, void (*release)(void *context))
{
    pp_context *context = calloc(1, size);
    if (!context)
        return NULL;
    context->op = op;
    context->release = release;
    DL_APPEND(op->contexts, context);
    return context;
}

void pp_context_free(void *context)
{
    pp_context *c = context;
    if (!c)
        return;
    DL_DELETE(c->op->contexts, c);
    if (c->release)
        c->release(c);
    free(c);
}

void pp_context_free_all(pp_operator *op)
{
    while (op->contexts)
        pp_context_free(op->contexts);
}
