#include "estimate/items/estimates.h"

#include <stdlib.h>

#include "common/wire.h"

static const char *const kind_names[] = {"layer",         "optimizer", "zero_grad", "data",
                                         "communication", "other",     "idle",      "job"};
_Static_assert((int)PP_PHASE_INFERENCE == (int)PP_WIRE_INFERENCE,
               "phases have the numbers of the wire");

const char *pp_item_kind_name(pp_item_kind kind)
{
    return kind_names[kind];
}

const char *pp_phase_name(pp_phase phase)
{
    return phase == PP_PHASE_IDLE ? "idle" : pp_wire_phase_name((pp_wire_phase)phase);
}

pp_estimates *pp_estimates_free(pp_estimates *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n_items; i++) {
        free(s->items[i].layer);
        free(s->items[i].type);
    }
    for (size_t i = 0; i < s->n_estimates; i++) {
        free(s->estimates[i].group_name);
        free(s->estimates[i].source);
    }
    free(s->gpu);
    free(s->kernels);
    free(s->isolated);
    free(s->pm);
    free(s->items);
    free(s->estimates);
    free(s->fits);
    free(s->sample_rows);
    free(s);
    return NULL;
}

pp_estimate *pp_estimates_find(const pp_estimates *s, size_t item, pp_metric metric)
{
    const size_t each = s->n_items ? s->n_estimates / s->n_items : 0;
    for (size_t i = item * each; i < (item + 1) * each; i++)
        if (s->estimates[i].metric == metric)
            return &s->estimates[i];
    return NULL;
}
