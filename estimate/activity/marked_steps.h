/* The steps that captures marked, in the order in which they ran. */
#ifndef PP_ESTIMATE_ACTIVITY_MARKED_STEPS_H
#define PP_ESTIMATE_ACTIVITY_MARKED_STEPS_H

#include "estimate/activity/activity.h"
#include "estimate/regression/regression.h"

typedef struct pp_marked_step {
    uint32_t process;
    int64_t capture; /**< the capture's, of this process */
    bool ended;      /**< all of its capture is known, to the end */
    int64_t number;
    pp_time_range span;
} pp_marked_step;

/**
 * The steps of the processes with uses[process], by process, capture and start; those in which
 * layers were replayed are not among them. The caller frees *ret, which is NULL after an error.
 */
int pp_marked_steps_collect(const pp_activity *activity, const bool *uses, pp_marked_step **ret,
                            size_t *ret_n, pp_error *err);

#endif
