/*
 * Injected pods that run and are not heard from: named 45 s after they could have been, and
 * no longer once they are.
 */
#ifndef PP_OPERATOR_PODS_SILENT_H
#define PP_OPERATOR_PODS_SILENT_H

#include "common/wire.h"
#include "operator/cache/pod.h"

typedef struct pp_operator pp_operator;

int pp_silent_start(pp_operator *op, pp_error *err);
void pp_silent_stop(pp_operator *op);

/** A pod has come or changed. */
void pp_silent_pod_seen(pp_operator *op, const pp_pod *pod);
void pp_silent_pod_gone(pp_operator *op, const pp_pod *pod);

/** The pod's first agent has connected, or the last of them is gone. */
void pp_silent_connected(pp_operator *op, const char *pod_uid, bool connected);

/** The pod's agent has told of the hook. */
void pp_silent_told(pp_operator *op, const char *pod_uid, const pp_wire_hook *hook);

/** Why the pod is not heard from, where that has lasted for long enough to be said; borrowed for
 * this turn of the loop. NULL: nothing. */
const pp_session_pod_trouble *pp_silent_trouble(const pp_operator *op, const char *pod_uid);

/** Whether its agent runs and has not connected here: pp_silent_trouble says so in time. */
bool pp_silent_awaits_agent(const pp_operator *op, const char *pod_uid);

#endif
