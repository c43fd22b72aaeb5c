/* What the added containers ask for. */
#ifndef PP_CONTROLLER_INJECTION_INJECT_RESOURCES_H
#define PP_CONTROLLER_INJECTION_INJECT_RESOURCES_H

#include "controller/injection/inject_turn.h"

/** `resources` of the agent, and of a container that runs before the trainer at this index of
 * spec.containers; new references. */
json_t *pp_inject_agent_resources(const pp_inject_turn *turn);
json_t *pp_inject_early_resources(const pp_inject_turn *turn, size_t trainer);

#endif
