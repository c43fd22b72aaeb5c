/* Asks the API server whether what made a session's pods makes others. */
#ifndef PP_OPERATOR_PODS_OWNERS_ASK_H
#define PP_OPERATOR_PODS_OWNERS_ASK_H

#include "controller/session/owner.h"
#include "operator/kube/client.h"

typedef struct pp_runtime pp_runtime;
typedef struct pp_session pp_session;

/**
 * Asks the API server about those of which it is not known, or not for long, whether they make
 * another pod: one at a time, until one does. The session is looked at again with each answer.
 */
void pp_owners_ask(pp_runtime *runtime, const pp_session *session);

/** Where owners of this kind are found; NULL: of none that can be asked. */
const pp_kube_resource *pp_owners_resource(pp_owner_kind kind);

#endif
