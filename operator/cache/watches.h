/*
 * The caches of sessions and pods that the watches fill, and the queue of sessions that are to be
 * looked at ("touched") because of what the watches or others saw.
 */
#ifndef PP_OPERATOR_CACHE_WATCHES_H
#define PP_OPERATOR_CACHE_WATCHES_H

#include "controller/session/session.h"
#include "operator/cache/pod.h"
#include "operator/kube/client.h"

typedef struct pp_operator pp_operator;

extern const pp_kube_resource PP_PROFILESESSIONS;

/** What else wants to know of changes; called after the caches have them. */
typedef struct pp_watches_events {
    void (*moved)(pp_operator *op, const pp_pod *pod); /**< another session has it now, or none */
    void (*pod)(pp_operator *op, const pp_pod *pod);   /**< the pod itself has changed */
    void (*seen)(pp_operator *op, const pp_pod *pod);  /**< it has come, or changed */
    void (*gone)(pp_operator *op, const pp_pod *pod);
    void (*session)(pp_operator *op, const pp_session *session); /**< it has come, or changed */
} pp_watches_events;

/** `events` is borrowed for as long as the process lives. */
int pp_watches_start(pp_operator *op, const pp_watches_events *events, pp_error *err);
/** Whether both first lists are in the caches. */
bool pp_watches_synced(const pp_operator *op);
/** A session as the API has it, held against what the configuration allows; NULL on error. */
pp_session *pp_watches_decode_session(const pp_operator *op, const json_t *object, pp_error *err);
/** Looks at the session again, at once. */
void pp_watches_enqueue(pp_operator *op, const char *key);
/** The same in a moment, so that what comes in crowds (batches, pods) costs one look. */
void pp_watches_enqueue_soon(pp_operator *op, const char *key);
/** Looks at the pod's sessions again in a moment. */
void pp_watches_enqueue_pod(pp_operator *op, const pp_pod *pod);
/** Looks at every session again, where this process leads. */
void pp_watches_enqueue_all(pp_operator *op);

#endif
