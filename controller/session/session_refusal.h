/* Pods without the hook, and pods in trouble: which is named, and why. */
#ifndef PP_CONTROLLER_SESSION_SESSION_REFUSAL_H
#define PP_CONTROLLER_SESSION_SESSION_REFUSAL_H

#include "controller/session/session_turn.h"

/** The first pod that is not injected, where it is known why; NULL: none. */
const pp_session_pod *pp_session_first_refused(const pp_session_turn *turn);

/** The first injected pod that has a trouble; NULL: none. */
const pp_session_pod *pp_session_first_troubled(const pp_session_turn *turn);

/** An injected pod's trouble; NULL: none. */
const pp_session_pod_trouble *pp_session_trouble_of(const pp_session_turn *turn,
                                                    const pp_session_pod *pod);

/** The reason that the status gave for a pod before; NULL: it was not listed. */
const char *pp_session_previous_reason(const pp_session *session, const char *uid);

/** Says why the pod is not injected; returns the reason, NULL: not known yet. */
const char *pp_session_describe_refusal(const pp_session *session, const pp_session_pod *pod,
                                        char *out, size_t size);

#endif
