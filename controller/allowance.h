/*
 * What a pod may name to its session in all: what is kept of it in memory, asked of Prometheus and
 * solved grows with its GPUs and its processes, and an agent may say anything of its own pod.
 */
#ifndef PP_CONTROLLER_ALLOWANCE_H
#define PP_CONTROLLER_ALLOWANCE_H

#include "common/wire.h"

enum {
    PP_ALLOWANCE_GPUS = 128,      /**< of a pod: 16 with 7 partitions each have room */
    PP_ALLOWANCE_PROCESSES = 256, /**< numbers of processes of a pod */
};

/** What a pod has named so far; zeros: nothing. */
typedef struct pp_allowance {
    pp_strings gpus; /**< UUIDs */
    uint16_t processes[PP_ALLOWANCE_PROCESSES];
    size_t count; /**< of processes */
} pp_allowance;

void pp_allowance_done(pp_allowance *so_far);

/**
 * Whether the pod may name this process and its GPUs too, which is then noted. Else -1 with
 * PP_ERR_TOO_LARGE and the field, or PP_ERR_NOMEM; then some of them may be noted.
 */
int pp_allowance_take(pp_allowance *so_far, const pp_wire_process *process, pp_error *err);

#endif
