/* What follows from a session, and from a pod of it, at once. */
#ifndef PP_CONTROLLER_SESSION_SESSION_QUERY_H
#define PP_CONTROLLER_SESSION_SESSION_QUERY_H

#include "controller/session/session.h"

/** Succeeded or Failed. */
bool pp_session_phase_final(pp_session_phase phase);

/** "InvalidSpec", or "NotAllowed". */
const char *pp_session_invalid_reason(const pp_session *session);

/** Whether a pod carries this session's hook. */
bool pp_session_pod_injected(const pp_session *session, const pp_session_pod *pod);

/** Whether the pod takes part: a pod that ended without the hook does not matter any more. */
bool pp_session_pod_counts(const pp_session *session, const pp_session_pod *pod);

#endif
