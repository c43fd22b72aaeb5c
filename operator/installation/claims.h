/*
 * Other installations of the operator in the cluster: whether one that came first watches what this
 * one does. Then this one stays idle, and says so, until that one is gone.
 */
#ifndef PP_OPERATOR_INSTALLATION_CLAIMS_H
#define PP_OPERATOR_INSTALLATION_CLAIMS_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_operator pp_operator;

/** `changed` is called whenever pp_claims_clear may have changed. Without a Lease nothing is
 * claimed, and the operator takes itself for the only one. */
int pp_claims_start(pp_operator *op, void (*changed)(pp_operator *op), pp_error *err);
void pp_claims_stop(pp_operator *op);

/** Whether the first list is there, or will not be. */
bool pp_claims_synced(const pp_operator *op);
/** Whether this installation may act: its claim is seen, and none goes before it. */
bool pp_claims_clear(const pp_operator *op);

/** Which installation goes before, and what to do; false: none does. */
bool pp_claims_rival(const pp_operator *op, char *out, size_t size);

#endif
