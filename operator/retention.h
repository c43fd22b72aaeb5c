/* While this replica leads: old rows go, and what the store holds open by mistake is finished. */
#ifndef PP_OPERATOR_RETENTION_H
#define PP_OPERATOR_RETENTION_H

typedef struct pp_operator pp_operator;

/** Starts op->retention. */
void pp_retention_start(pp_operator *op);

#endif
