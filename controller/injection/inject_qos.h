/* A pod's QoS class, by which the kubelet evicts and pins CPUs. */
#ifndef PP_CONTROLLER_INJECTION_INJECT_QOS_H
#define PP_CONTROLLER_INJECTION_INJECT_QOS_H

#include <jansson.h>

/** Kubernetes' class of a pod, by which it is evicted. */
typedef enum pp_inject_qos {
    PP_QOS_BEST_EFFORT = 0,
    PP_QOS_BURSTABLE,
    PP_QOS_GUARANTEED,
} pp_inject_qos;

/** The class of a pod with this spec. */
pp_inject_qos pp_inject_qos_of(const json_t *spec);

#endif
