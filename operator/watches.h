/*
 * The caches of sessions and pods that the watches fill, and the queue of sessions that are to be
 * looked at ("touched") because of what the watches or others saw.
 */
#ifndef PP_OPERATOR_WATCHES_H
#define PP_OPERATOR_WATCHES_H

#include "controller/session.h"
#include "operator/kube/client.h"
#include "operator/pod.h"

typedef struct pp_operator pp_operator;

extern const pp_kube_resource PP_PROFILESESSIONS;

/** What else wants to know of changes; called after the caches have them. */
typedef struct pp_watches_events {
    void (*hands)(pp_operator *op); /**< any pod may be another session's from now on */
    void (*pod)(pp_operator *op, const pp_pod *pod);
} pp_watches_events;

/** `events` is borrowed for as long as the process lives. */
int pp_watches_start(pp_operator *op, const pp_watches_events *events, pp_error *err);
/** Whether both first lists are in the caches. */
bool pp_watches_synced(const pp_operator *op);
/** The session that has the pod (pp_inject_holder); NULL: none. */
const pp_session *pp_watches_holder(const pp_operator *op, const pp_pod *pod);
/** The session with this UID in the cache; NULL: none. */
const pp_session *pp_watches_find_session(const pp_operator *op, const char *uid);
/** A session as the API has it, held against what the configuration allows; NULL on error. */
pp_session *pp_watches_decode_session(const pp_operator *op, const json_t *object, pp_error *err);
/** Looks at the session again, at once. */
void pp_watches_touch(pp_operator *op, const char *key);
/** The same in a moment, so that what comes in crowds (batches, pods) costs one look. */
void pp_watches_touch_soon(pp_operator *op, const char *key);
/** Looks at every session again, where this process leads. */
void pp_watches_touch_all(pp_operator *op);

#endif
