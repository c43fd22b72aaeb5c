/* An estimate's items by what they are called. */
#ifndef PP_ESTIMATE_ITEMS_ITEM_INDEX_H
#define PP_ESTIMATE_ITEMS_ITEM_INDEX_H

#include "estimate/items/estimates.h"

/** Names are borrowed from the estimates. */
typedef struct pp_item_index {
    struct pp_item_name *names; /**< owned; sorted */
    size_t n;
} pp_item_index;

/** All items but idle time and the job. */
int pp_item_index_make(const pp_estimates *estimates, pp_item_index *ret, pp_error *err);
void pp_item_index_done(pp_item_index *index);

/** The number of a layer's item in a phase, or of the step's own phase (`layer` ""); n_items of the
 * estimates or more: there is none. */
size_t pp_item_index_find(const pp_item_index *index, const char *layer, pp_phase phase);

#endif
