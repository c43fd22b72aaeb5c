/* Who records what the trainers' images set. */
#ifndef PP_CONTROLLER_INJECTION_INJECT_ENVIRONMENT_H
#define PP_CONTROLLER_INJECTION_INJECT_ENVIRONMENT_H

#include "controller/injection/inject_turn.h"

/**
 * Where the trainer at turn->trainers[i] finds what its image sets (docs/injection.md), in the
 * container; false: nowhere.
 */
bool pp_inject_record(const pp_inject_turn *turn, size_t i, char *out, size_t size);
/** Appends the init containers that record it, behind the pod's own. */
int pp_inject_add_recorders(const pp_inject_turn *turn, json_t *patch);

#endif
