/* The list of targets in the status. */
#ifndef PP_CONTROLLER_SESSION_SESSION_TARGETS_H
#define PP_CONTROLLER_SESSION_SESSION_TARGETS_H

#include "controller/session/session_turn.h"

/** Fills the targets; fails with PP_ERR_NOMEM. */
int pp_session_list_targets(pp_session_turn *turn, pp_error *err);

#endif
