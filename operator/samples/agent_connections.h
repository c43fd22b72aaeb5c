/* An agent connects and sends batches: who is it, store, acknowledge. */
#ifndef PP_OPERATOR_SAMPLES_AGENT_CONNECTIONS_H
#define PP_OPERATOR_SAMPLES_AGENT_CONNECTIONS_H

#include "operator/cache/pod.h"
#include "operator/http_server/server.h"

typedef struct pp_operator pp_operator;

void pp_connections_authorize(pp_operator *op, pp_http_id id, const char *token);
void pp_connections_connected(pp_operator *op, pp_http_id connection,
                              const pp_http_identity *identity);
/** Whose connection is to go for an agent of this pod, where there are as many as may be: of those
 * whose pods no session has the one that came first, where a session has this one; 0: nobody's. */
pp_http_id pp_connections_displace(pp_operator *op, const pp_http_identity *identity);
void pp_connections_batch(pp_operator *op, pp_http_id connection, pp_wire_batch *batch);
/** An agent says what time it is there. */
void pp_connections_time(pp_operator *op, pp_http_id connection, const pp_wire_time *answer);
/** An agent says what it sees of the hook in its pod. */
void pp_connections_hook(pp_operator *op, pp_http_id connection, const pp_wire_hook *hook);
void pp_connections_disconnected(pp_operator *op, pp_http_id connection);
/** Tells the agents of the session's pods whether to sample, where that has changed. */
void pp_connections_tell_session(pp_operator *op, const char *session_uid);
/** Tells every agent which session has its pod, and whether to sample, where that has changed. */
void pp_connections_tell_all(pp_operator *op);
/** Tells the pod's agents which session has it now. */
void pp_connections_pod_moved(pp_operator *op, const pp_pod *pod);
/** Tells the pod's agents to end where only they are left of it. */
void pp_connections_pod_changed(pp_operator *op, const pp_pod *pod);
bool pp_connections_has_peer(const pp_operator *op, const char *pod_uid);
void pp_connections_forget_all(pp_operator *op);

#endif
