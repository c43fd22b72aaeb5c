#include "estimate/items/item_index.h"

#include <stdlib.h>
#include <string.h>

typedef struct pp_item_name {
    pp_phase phase;
    const char *layer; /* "": the phase is the step's */
    size_t item;
} pp_item_name;

static int compare(const void *a, const void *b)
{
    const pp_item_name *x = a, *y = b;
    return x->phase != y->phase ? (x->phase < y->phase ? -1 : 1) : strcmp(x->layer, y->layer);
}

int pp_item_index_make(const pp_estimates *s, pp_item_index *ret, pp_error *err)
{
    *ret = (pp_item_index){.names = calloc(s->n_items + 1, sizeof *ret->names)};
    if (!ret->names)
        return pp_error_nomem(err);
    for (size_t i = 0; i < s->n_items; i++)
        if (s->items[i].kind != PP_ITEM_JOB && s->items[i].kind != PP_ITEM_IDLE)
            ret->names[ret->n++] = (pp_item_name){s->items[i].phase, s->items[i].layer, i};
    qsort(ret->names, ret->n, sizeof *ret->names, compare);
    return 0;
}

void pp_item_index_done(pp_item_index *index)
{
    free(index->names);
    *index = (pp_item_index){0};
}

size_t pp_item_index_find(const pp_item_index *index, const char *layer, pp_phase phase)
{
    const pp_item_name key = {.phase = phase, .layer = layer};
    const pp_item_name *found =
        bsearch(&key, index->names, index->n, sizeof *index->names, compare);
    return found ? found->item : SIZE_MAX;
}
