/* Why a pod that matches is not injected. */
#ifndef PP_OPERATOR_PODS_EXPLAIN_H
#define PP_OPERATOR_PODS_EXPLAIN_H

#include "controller/session/session.h"
#include "operator/cache/pod.h"

typedef struct pp_runtime pp_runtime;

/**
 * Fills what is known of why the pod is not injected for the work's session (texts are borrowed
 * until the session's next look). What is not known is found out, a few pods at a time; the session
 * is looked at again then.
 */
void pp_explain_pod(pp_runtime *runtime, const pp_session *session, const pp_pod *pod,
                    pp_session_pod *view);

#endif
