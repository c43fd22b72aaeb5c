/* What makes a session's pods (Jobs, Deployments, ...), and whether it will make others. */
#ifndef PP_OPERATOR_CACHE_OWNERS_H
#define PP_OPERATOR_CACHE_OWNERS_H

#include "controller/session/session.h"
#include "operator/cache/pod.h"

/** Zeroed, it is empty. */
typedef struct pp_owners {
    pp_session_owner *items; /**< their names are owned */
    int64_t *asked_ns;       /**< monotonic, of each; 0: not yet */
    size_t count;
    bool asking; /**< one is being asked */
} pp_owners;

/** Remembers what made a pod that the session profiles; more than 64 are not told apart. */
void pp_owners_note(pp_owners *owners, const pp_pod *pod);
/** Pods are there: what was known of pods to come is worth nothing any more. */
void pp_owners_forget(pp_owners *owners);
/** Which of them is to be asked at this time, and `again_ns` when it is another's turn; -1: none.
 */
int pp_owners_next(const pp_owners *owners, int64_t now_ns, int64_t *again_ns);
void pp_owners_done(pp_owners *owners);
#endif
