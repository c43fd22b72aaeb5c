/*
 * Sizes of the volumes that an injected pod is given. The controller states them, and what runs in
 * the pod keeps within them: the kubelet evicts a pod that fills one beyond its size, with its
 * training.
 */
#ifndef PP_COMMON_VOLUME_H
#define PP_COMMON_VOLUME_H

/** In MiB. */
enum {
    PP_VOLUME_RING = 640,  /**< in memory: sidecar/agent/trainers.c says what lies in it */
    PP_VOLUME_SPOOL = 128, /**< on the node's disk: twice what the agent keeps there */
};

#endif
