/* What is asked of the API server at the start: our own Deployment and the server's version.
 */
#ifndef PP_OPERATOR_INSTALLATION_CLUSTER_H
#define PP_OPERATOR_INSTALLATION_CLUSTER_H

#include "common/error.h"

typedef struct pp_operator pp_operator;

/** `error`: the server's version is not known, so nothing may be injected yet: ask again. */
typedef void (*pp_cluster_fn)(pp_operator *op, const pp_error *error);

/** Fills op->owner and op->native_sidecar, then calls `done`, unless the operator is stopping. */
int pp_cluster_ask(pp_operator *op, pp_cluster_fn done, pp_error *err);

#endif
