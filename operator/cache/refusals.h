/* Why pods are not injected for one session: what was found out of each, and what is being asked.
 * No I/O and no clock. */
#ifndef PP_OPERATOR_CACHE_REFUSALS_H
#define PP_OPERATOR_CACHE_REFUSALS_H

#include "controller/injection/inject.h"

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

/** Of one pod. */
typedef struct pp_refusal {
    char pod_uid[64]; /**< key */
    bool asking;      /**< the answer is on its way */
    int64_t again_ns; /**< monotonic: it could not be asked, and is not before then; 0: it can be */
    pp_inject_refusal why; /**< reason "": not known yet */
    unsigned turn;         /**< when it was last wanted */
    UT_hash_handle hh;
} pp_refusal;

/** Zeroed, it is empty. */
typedef struct pp_refusals {
    pp_refusal *by_pod;
    unsigned turn;
} pp_refusals;

/** Begins a look at the session's pods. */
void pp_refusals_begin(pp_refusals *refusals);
/** Of this pod, made where there is none; NULL without memory. */
pp_refusal *pp_refusals_get(pp_refusals *refusals, const char *pod_uid);
/** NULL: nobody has wanted it, or the pod has gone since. */
pp_refusal *pp_refusals_find(const pp_refusals *refusals, const char *pod_uid);
/** Ends the look: what was not wanted in it is forgotten. */
void pp_refusals_end(pp_refusals *refusals);
void pp_refusals_done(pp_refusals *refusals);

#endif
