/* Why a pod that matches is not injected. */
#ifndef PP_OPERATOR_EXPLAIN_H
#define PP_OPERATOR_EXPLAIN_H

#include "controller/session.h"
#include "operator/pod.h"

typedef struct pp_operator pp_operator;

/** Finds out, a few at a time; the session is looked at again then. */
void pp_explain_pod(pp_operator *op, const pp_session *session, const pp_pod *pod);

#endif
