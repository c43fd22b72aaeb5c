/* Layers that are told whole: why those in them are not told (docs/timing.md). */
#ifndef PP_ESTIMATE_ITEMS_ITEM_WHOLE_H
#define PP_ESTIMATE_ITEMS_ITEM_WHOLE_H

#include "estimate/items/estimates.h"

/** Sets `whole_reason` of the layers of which a process of the same GPU has told a reason. */
void pp_item_whole_fill(const pp_activity *activity, pp_estimates *estimates);

#endif
