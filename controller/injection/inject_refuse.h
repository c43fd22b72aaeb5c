/* Which pods are left alone. */
#ifndef PP_CONTROLLER_INJECTION_INJECT_REFUSE_H
#define PP_CONTROLLER_INJECTION_INJECT_REFUSE_H

#include "controller/injection/inject_turn.h"

/** Fills the trainers. True when the pod must be left as it is; the refusal says why. */
bool pp_inject_refused(pp_inject_turn *turn);

/** The last entry of a container's env with this name and its index, or NULL. */
const json_t *pp_inject_env(const json_t *container, const char *name, size_t *ret_index);

#endif
