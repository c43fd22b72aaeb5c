/*
 * Injected pods that do not start: named, their controllers' next pods left alone, and, where the
 * configuration lets us, deleted once so that these next ones come.
 */
#ifndef PP_OPERATOR_PODS_STUCK_H
#define PP_OPERATOR_PODS_STUCK_H

#include "controller/injection/inject.h"
#include "controller/pods/unprobed.h"
#include "operator/cache/pod.h"

typedef struct pp_operator pp_operator;

int pp_stuck_start(pp_operator *op, pp_error *err);
void pp_stuck_stop(pp_operator *op);

/** A pod has come or changed. */
void pp_stuck_pod_seen(pp_operator *op, const pp_pod *pod);
void pp_stuck_pod_gone(pp_operator *op, const pp_pod *pod);

/** What keeps the pod, where it has lasted long enough to be said; borrowed for this turn of the
 * loop. NULL: nothing. */
const pp_session_pod_trouble *pp_stuck_trouble(const pp_operator *op, const char *pod_uid);

/** Why a pod that is about to be created is left alone for others of its controller; NULL: it is
 * not. */
const pp_inject_refusal *pp_stuck_unprobed(const pp_operator *op, const char *ns,
                                           const json_t *pod);

/** Its controller's pods are created without the probe from now on, for until_ns - now. */
void pp_stuck_leave_alone(pp_operator *op, const pp_unprobed_owner *owner);

/** The controller whose pods the API server lately refused with the probe, of those that this
 * session is to have; NULL: none. */
const pp_unprobed_owner *pp_stuck_refused(const pp_operator *op, const pp_session *session);

#endif
