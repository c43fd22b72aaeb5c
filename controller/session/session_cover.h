/* How much of what was asked for was measured. */
#ifndef PP_CONTROLLER_SESSION_SESSION_COVER_H
#define PP_CONTROLLER_SESSION_SESSION_COVER_H

#include "controller/session/session_turn.h"

/**
 * Whether what was asked for was measured: 90 % of the duration, or of steps.max, in every injected
 * pod that lived so long, and in one at least. Else *why says what is missing, and why.
 */
bool pp_session_is_complete(const pp_session_turn *turn, char *why, size_t size);

/** Whether a pod lacks something that its agent may still bring. */
bool pp_session_may_bring_more(const pp_session_turn *turn, const pp_session_pod *pod);

#endif
