/* A pod is created: which session, which patch. A session is created: which pods wait for it. */
#ifndef PP_OPERATOR_PODS_ADMISSION_H
#define PP_OPERATOR_PODS_ADMISSION_H

#include "controller/injection/inject.h"
#include "controller/session/session.h"
#include "operator/http_server/server.h"

typedef struct pp_operator pp_operator;

int pp_admission_start(pp_operator *op, pp_error *err);
/** Pods that wait are not answered any more. */
void pp_admission_stop(pp_operator *op);
void pp_admission_review(pp_operator *op, pp_http_id id, const pp_http_review *review);
/** The watch has brought a session. */
void pp_admission_session_came(pp_operator *op, const pp_session *session);
/** What injection needs to know of us, and of the pod's namespace (NULL: it does not matter). */
void pp_admission_options(const pp_operator *op, const char *ns, pp_inject_options *ret);

#endif
