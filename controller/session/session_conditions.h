/* A session's words: conditions and Events. */
#ifndef PP_CONTROLLER_SESSION_SESSION_CONDITIONS_H
#define PP_CONTROLLER_SESSION_SESSION_CONDITIONS_H

#include "controller/session/session_turn.h"

/** Fills conditions and events of the turn's decision. */
void pp_session_set_conditions(pp_session_turn *turn);

#endif
