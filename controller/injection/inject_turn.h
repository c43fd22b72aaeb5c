/* One call of pp_inject_patch. */
#ifndef PP_CONTROLLER_INJECTION_INJECT_TURN_H
#define PP_CONTROLLER_INJECTION_INJECT_TURN_H

#include "controller/injection/inject.h"
#include "controller/injection/inject_qos.h"

enum { PP_INJECT_MAX_TRAINERS = 16 };

typedef struct pp_inject_turn {
    const json_t *pod;
    const json_t *spec; /**< pod.spec */
    const pp_session *session;
    const pp_inject_options *opt;
    size_t trainers[PP_INJECT_MAX_TRAINERS]; /**< indices into spec.containers */
    size_t n_trainers;
    pp_inject_qos qos; /**< of the pod as it came */
    bool passing;      /**< the refusal's reason is not the pod's, and may be gone soon */
    pp_inject_refusal *refusal;
} pp_inject_turn;

#endif
