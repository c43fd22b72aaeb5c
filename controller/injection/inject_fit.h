/*
 * Whether a namespace takes the pod with what is added: its LimitRanges and ResourceQuotas, by the
 * API server's rules. What it refuses would never start, so such a pod is left as it is.
 */
#ifndef PP_CONTROLLER_INJECTION_INJECT_FIT_H
#define PP_CONTROLLER_INJECTION_INJECT_FIT_H

#include "controller/injection/inject_limits.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** The added container that counts beside the pod's own, and what it is to the pod. */
typedef struct pp_inject_addition {
    const json_t *resources; /**< of the agent */
    bool sidecar;            /**< a native one: it runs beside init containers, too */
    bool counted;            /**< quotas count the pod, without the addition, already */
} pp_inject_addition;

/**
 * Why the pod, which is taken as it came, would not be taken with the addition: a CamelCase reason,
 * and `why` is filled with a sentence about the object that is in the way. NULL: it is taken, or it
 * is not taken without the addition either.
 */
const char *pp_inject_misfit(const pp_inject_limits *limits, const json_t *pod,
                             const pp_inject_addition *addition, char *why, size_t size);

/** Whether quotas have room for a pod (or a pod's template) as it is. */
bool pp_inject_fits_alone(const pp_inject_limits *limits, const json_t *pod);

#endif
