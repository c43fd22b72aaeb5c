/* Conditions: their names, as they were, and as they become. */
#ifndef PP_CONTROLLER_SESSION_CONDITION_H
#define PP_CONTROLLER_SESSION_CONDITION_H

#include "controller/session/session_turn.h"

/** Sets a condition, keeping the time of its last transition while its status stays. */
__attribute__((format(printf, 5, 6))) void pp_session_set(pp_session_turn *turn,
                                                          pp_condition_type type,
                                                          pp_condition_status status,
                                                          const char *reason, const char *fmt, ...);

/** A condition as the previous status had it; zeroed where it had none. */
void pp_session_previous_condition(const pp_session *session, pp_condition_type type,
                                   pp_condition *ret);

/** "Accepted", ... */
const char *pp_session_condition_name(pp_condition_type type);

#endif
