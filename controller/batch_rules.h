/* Whether a batch is taken from the agent that brought it. Pure. */
#ifndef PP_CONTROLLER_BATCH_RULES_H
#define PP_CONTROLLER_BATCH_RULES_H

#include "controller/session/session.h"

/** A batch, and what is known of its connection's pod and of the session that it names. */
typedef struct pp_batch_claim {
    bool pod_there;            /**< the pod of the token, by its UID */
    bool was_of;               /**< the pod was of a session with the batch's UID */
    bool eligible;             /**< the pod may be the session's; of no use without one */
    const pp_session *session; /**< NULL: there is none of that UID */
    bool end_stored;           /**< the session's end is in the store */
    bool replays;              /**< it is of layers that were replayed */
} pp_batch_claim;

/**
 * It is taken for the session that has the pod, and for one that had it and still waits for the
 * rest. Else `err` says why, with the wire's field: PP_ERR_GONE, PP_ERR_DENIED or PP_ERR_INVALID.
 */
int pp_batch_check(const pp_batch_claim *batch, pp_error *err);

#endif
