/*
 * The operator's other replicas: each is told of a session that is about to be created, before the
 * API server may store it. Else a pod that is reviewed by another replica than its session was (API
 * servers are several, and a replica that stops sends them to another) would find no session there.
 */
#ifndef PP_OPERATOR_INSTALLATION_REPLICAS_H
#define PP_OPERATOR_INSTALLATION_REPLICAS_H

#include "common/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct pp_operator pp_operator;

/** The endpoints of the operator's Service are watched; nothing where there is no Lease, and so no
 * other replica. */
int pp_replicas_start(pp_operator *op, pp_error *err);
void pp_replicas_stop(pp_operator *op);

/** Whether they are known, or will not be. */
bool pp_replicas_synced(const pp_operator *op);

/** Each has heard, or was waited for long enough. */
typedef void (*pp_replicas_told_fn)(pp_operator *op, uint64_t id);

/**
 * Tells all of them of the session, of that namespace and as its review has it (borrowed), and
 * calls `told` once with `id`: at once where there is nobody to tell, never once the operator
 * stops.
 */
void pp_replicas_tell(pp_operator *op, const char *ns, const json_t *session,
                      pp_replicas_told_fn told, uint64_t id);

#endif
