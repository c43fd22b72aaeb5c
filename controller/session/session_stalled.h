/* Who has to act. */
#ifndef PP_CONTROLLER_SESSION_SESSION_STALLED_H
#define PP_CONTROLLER_SESSION_SESSION_STALLED_H

#include "controller/session/session_turn.h"

/** What to do where Prometheus answers and has nothing. */
#define PP_SESSION_NO_SAMPLE_HINT                                                                  \
    "check that it scrapes the exporter, that its samples keep the label with the GPU's UUID, "    \
    "and that prometheus.preset in the operator's configuration is the one with the exporter's "   \
    "metric and label names"

/** Why there is no sample of processes that named MIG instances alone. */
#define PP_SESSION_MIG_HINT                                                                        \
    "the training processes ran on MIG instances (MIG-...), and the exporter's series of these "   \
    "name the whole GPU and an instance number instead; use whole GPUs for metrics of layers"

/** Finds what is in the way of a session under way, and since when, and sets Stalled. The
 * conditions before it are set. */
void pp_session_say_stalled(pp_session_turn *turn);

/** Whether this trouble is there, and has been for long enough to be said. */
bool pp_session_has_lasted(const pp_session_turn *turn, pp_session_trouble trouble);

/** When the next trouble has lasted long enough to be said; 0: none is about to. */
int64_t pp_session_stalled_at(const pp_session_turn *turn);

#endif
