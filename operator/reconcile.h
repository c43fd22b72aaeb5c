/* One session's observation -> controller's decision -> carried out. */
#ifndef PP_OPERATOR_RECONCILE_H
#define PP_OPERATOR_RECONCILE_H

typedef struct pp_operator pp_operator;

/** Takes a turn of the session "namespace/name". */
void pp_reconcile(pp_operator *op, const char *key);

#endif
