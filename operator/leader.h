/* Whether this replica leads: by the Lease, or always where there is none to hold. */
#ifndef PP_OPERATOR_LEADER_H
#define PP_OPERATOR_LEADER_H

#include "common/error.h"

typedef struct pp_operator pp_operator;

/** `released` comes once, after pp_kube_lease_release. */
int pp_leader_start(pp_operator *op, void (*released)(void *op), pp_error *err);

#endif
