#include "estimate/items/item_whole.h"

#include <string.h>

/* In the words of docs/results.md, by the numbers of pp_whole_reason. */
static const char *const reasons[] = {
    NULL,
    "there are more than 4,096 layers: it stands for those in it",
    "the session leaves layers out, has a depth or no Forward",
    "no kernels were recorded",
    "it was compiled of a function, whose modules' names are not known",
    "the compiler tells nothing of its kernels: torch before 2.6, or another backend than Inductor",
    "of compiled code nothing was recorded: it came from a cache, or launches in no one order",
    "compiled code in it serves several modules of a class, or was more than is kept",
    "other kernels ran than the compiler has recorded",
};

void pp_item_whole_fill(const pp_activity *activity, pp_estimates *estimates)
{
    for (size_t l = 0; l < activity->n_layers; l++) {
        const pp_activity_layer *layer = &activity->layers[l];
        const unsigned reason = layer->whole_reason;
        if (reason == 0 || reason >= sizeof reasons / sizeof *reasons ||
            !pp_activity_uses(activity, layer->process, estimates->gpu))
            continue;
        for (size_t i = 0; i < estimates->n_items; i++) {
            pp_estimates_item *item = &estimates->items[i];
            if (item->kind == PP_ITEM_LAYER && strcmp(item->layer, layer->name) == 0)
                item->whole_reason = reasons[reason];
        }
    }
}
