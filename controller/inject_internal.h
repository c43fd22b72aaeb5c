/* Private to controller/inject*: one call of pp_inject_patch, and what may forbid it. */
#ifndef PP_CONTROLLER_INJECT_INTERNAL_H
#define PP_CONTROLLER_INJECT_INTERNAL_H

#include "controller/inject.h"

enum { PP_INJECT_MAX_TRAINERS = 16 };

typedef struct pp_inject_turn {
    const json_t *pod;
    const json_t *spec; /**< pod.spec */
    const pp_session *session;
    const pp_inject_options *opt;
    size_t trainers[PP_INJECT_MAX_TRAINERS]; /**< indices into spec.containers */
    size_t n_trainers;
    pp_inject_refusal *refusal;
} pp_inject_turn;

/** Fills the trainers. True when the pod must be left as it is; the refusal says why. */
bool pp_inject_refused(pp_inject_turn *turn);

/** The last entry of a container's env with this name and its index, or NULL. */
const json_t *pp_inject_env(const json_t *container, const char *name, size_t *ret_index);

#endif
