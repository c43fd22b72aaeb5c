/* Nodes' clocks that are wrong. */
#ifndef PP_CONTROLLER_SESSION_SESSION_CLOCKS_H
#define PP_CONTROLLER_SESSION_SESSION_CLOCKS_H

#include "controller/session/session_turn.h"

/** Sets ClockSkewed where a node's clock is wrong. */
void pp_session_say_clocks(pp_session_turn *turn);

/** The first pod whose batches are refused now for its node's clock, or whose agent that shuts out,
 * and why; NULL: none. */
const pp_session_pod *pp_session_clock_in_the_way(const pp_session_turn *turn, char *why,
                                                  size_t size);

/** Whether the pod's agent is shut out by its node's clock, and how. */
bool pp_session_clock_shuts_out(const pp_session_pod *pod, char *why, size_t size);

#endif
