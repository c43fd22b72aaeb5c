#include "cli/run/texts.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

static int compare_texts(const void *a, const void *b)
{
    return strcmp(a, b);
}

void pp_texts_done(pp_texts *t)
{
    tdestroy(t->tree, free);
    t->tree = NULL;
}

const char *pp_texts_find(const pp_texts *t, const char *text)
{
    char *const *found = tfind(text, &t->tree, compare_texts);
    return found ? *found : NULL;
}

const char *pp_texts_hold(pp_texts *t, const char *text, pp_error *err)
{
    const char *held = pp_texts_find(t, text);
    char *copy = held ? NULL : strdup(text);
    if (held)
        return held;
    if (copy && tsearch(copy, &t->tree, compare_texts))
        return copy;
    free(copy);
    (void)pp_error_nomem(err);
    return NULL;
}
