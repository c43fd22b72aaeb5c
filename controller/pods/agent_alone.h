/* Whether nothing but the agent is left of a pod, so that it has to end it. Pure. */
#ifndef PP_CONTROLLER_PODS_AGENT_ALONE_H
#define PP_CONTROLLER_PODS_AGENT_ALONE_H

#include <jansson.h>
#include <stdbool.h>

/** True where the agent is an ordinary container, and all others have ended and the kubelet will
 * not start them again. A native sidecar is no such case: the kubelet ends it. */
bool pp_agent_is_alone(const json_t *pod);

#endif
