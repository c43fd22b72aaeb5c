/* An agent connects and sends batches: who is it, store, acknowledge. */
#ifndef PP_OPERATOR_INTAKE_H
#define PP_OPERATOR_INTAKE_H

#include "operator/http_server/server.h"
#include "operator/pod.h"

typedef struct pp_operator pp_operator;

void pp_intake_authorize(pp_operator *op, pp_http_id id, const char *token);
void pp_intake_connected(pp_operator *op, pp_http_id connection, const pp_http_identity *identity);
void pp_intake_batch(pp_operator *op, pp_http_id connection, pp_wire_batch *batch);
void pp_intake_disconnected(pp_operator *op, pp_http_id connection);
/** Tells every agent for which it has changed which session has its pod, and whether to sample. */
void pp_intake_tell(pp_operator *op);
/** Tells the pod's agents to end where only they are left of it. */
void pp_intake_tell_pod(pp_operator *op, const pp_pod *pod);
bool pp_intake_has_peer(const pp_operator *op, const char *pod_uid);
void pp_intake_forget_all(pp_operator *op);

#endif
