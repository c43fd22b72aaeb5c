/* Pods that the API server refused to what makes them, as Events tell. */
#ifndef PP_CONTROLLER_PODS_CREATION_H
#define PP_CONTROLLER_PODS_CREATION_H

#include "controller/injection/inject_fit.h"
#include "controller/pods/unprobed.h"
#include "controller/session/owner.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct pp_creation {
    pp_owner_kind kind; /**< of what makes the pods */
    char ns[64];
    char name[254];
    char uid[64];
    char message[300];
    int64_t at_ns; /**< the last time, ns since 1970 */
} pp_creation;

/** From an Event (core/v1) with reason FailedCreate; false where it tells of no such thing. */
bool pp_creation_of(const json_t *event, pp_creation *ret);

/**
 * Whether what was added may be why the pods of `owner` (as the API has it) were refused: not where
 * a quota has no room for the pod alone, which waits for that with or without the probe.
 */
bool pp_creation_may_be_ours(const pp_creation *creation, const json_t *owner,
                             const pp_inject_limits *limits);

/** Its pods, left alone from now_ns (monotonic) on; `real_ns` is the same moment since 1970. The
 * labels are borrowed from `owner`. False where that time is over already. */
bool pp_creation_leave_alone(const pp_creation *creation, const json_t *owner, int64_t now_ns,
                             int64_t real_ns, pp_unprobed_owner *ret);

#endif
