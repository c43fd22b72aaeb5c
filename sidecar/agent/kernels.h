/*
 * Steps told on the host's clock, turned into the GPU's time by the kernels that they launched
 * (docs/timing.md). No I/O, no clock: what pairing found and what the ring has of kernels go in, in
 * any order among each other; steps whose kernels are all here come out, in order.
 *
 * A kernel belongs to the innermost piece that was open in its thread when it was launched; where
 * the thread is not known, in any. A piece reaches from
 * where the GPU's time line arrives at its begin to where it leaves its end, as two events there
 * would have been stamped: not before the host came by, not before what was launched earlier ended.
 * Collectives run beside everything and are pieces of their own. A step begins where the one before
 * has ended on the GPU: what a kernel of another stream ran before that is in no busy time.
 *
 * Kernels of a compiled region that work for a layer inside of it make pieces of that layer's, and
 * cut the region's: from where the kernel before them in the same run of a graph ended, or, of the
 * first, from its launch.
 *
 * Steps are handed out where it is known that their kernels are all here, or the training has
 * launched for long after them: for 5 s where few wait and a stream is behind. A kernel that comes
 * later still shows that those which wait may lack others of its stream: they are dropped as after
 * a loss.
 *
 * Copies and fills are no kernels: they have a place by their launch, and move no piece, busy time
 * or gap. One that comes after its step was told counts nowhere.
 *
 * Each GPU of the process has a time line of its own, and a capture on it: a step comes out once
 * for each, with the pieces in which kernels ran there (docs/timing.md). One that runs its first
 * kernel in the middle of a capture begins there. Kernels of several GPUs without their threads are
 * a loss.
 *
 * The first step of a capture only sets the time line: what the GPU still had to do as the
 * recording began is not known.
 */
#ifndef PP_AGENT_KERNELS_H
#define PP_AGENT_KERNELS_H

#include "sidecar/agent/pairing.h"

/** Kernels that may wait for their step, and steps and pieces that may wait for their kernels. */
#define PP_KERNELS_MAX 400000
#define PP_KERNELS_MAX_STEPS 4096
#define PP_KERNELS_MAX_PIECES 400000

typedef struct pp_kernels pp_kernels;

/** NULL where memory is out. */
pp_kernels *pp_kernels_new(void);
void pp_kernels_free(pp_kernels *kernels);

/** A kernel of a step that is handed out next, and the piece that it is in. */
typedef struct pp_kernels_placed {
    uint8_t gpu;   /**< CUDA's number of it */
    int64_t start; /**< ns, on the GPU */
    int64_t end;
    int64_t step; /**< number */
    uint32_t layer;
    uint8_t phase;  /**< a pp_mark_phase */
    uint32_t name;  /**< the number of its name, as the ring has it; 0: none */
    uint64_t shape; /**< of its launch, as the ring has it */
    bool copy;      /**< a copy or fill, in the place where its launch was: */
    uint8_t type;   /**< a pp_copy_type */
    uint8_t memory; /**< a pp_copy_memory */
    int64_t bytes;
} pp_kernels_placed;

/** Has each kernel, copy and fill of a step told, before the step is handed out: by PP_PAIRING_STEP
 * only, so these are all kernels of whole steps. In no order. */
void pp_kernels_watch(pp_kernels *kernels, void (*watch)(void *user, const pp_kernels_placed *),
                      void *user);

/** Layers inside of compiled regions are told by these, which stay the caller's (graphs.h). */
void pp_kernels_use_graphs(pp_kernels *kernels, pp_graphs *graphs);

/** Takes one kernel as the ring has it; an impossible one counts as a loss. */
int pp_kernels_add(pp_kernels *kernels, const pp_kernel *kernel, pp_error *err);

/** Kernels launched before are not here: steps that began before are dropped. */
void pp_kernels_since(pp_kernels *kernels, int64_t since);

/** How many kernels were ever lost, as the ring counts them, that an agent before has told of; and
 * that are heeded by now. */
void pp_kernels_lost_before(pp_kernels *kernels, uint64_t lost);
uint64_t pp_kernels_heeded(const pp_kernels *kernels);

/** How many kernels were ever lost, as the ring counts them: after a loss the capture ends before
 * the steps that wait, and starts anew after. A loss that a PP_KERNEL_COMPLETE has told of is
 * heeded already, and costs no step after it. */
void pp_kernels_lost(pp_kernels *kernels, uint64_t lost);

/** Takes a START, STEP or STOP of pairing; its step is copied. */
int pp_kernels_queue(pp_kernels *kernels, pp_pairing_event event, const pp_step *step,
                     pp_error *err);

/** No more kernels will come for what waits now: a step that is not known to have all is dropped,
 * and counted. */
void pp_kernels_finish(pp_kernels *kernels);

/** Whether something waits for its kernels. */
bool pp_kernels_waiting(const pp_kernels *kernels);

/**
 * The next event that is ready, or PP_PAIRING_NONE; -1 where memory is out. *ret_step is its step,
 * in the time of the GPU that it names, with busy times, valid until the next call. Each GPU has
 * events of its own: START, STEP and STOP. Waits are in the first one's steps.
 */
int pp_kernels_next(pp_kernels *kernels, const pp_step **ret_step, pp_error *err);

/** What is missing, ever. */
typedef struct pp_kernels_missing {
    uint64_t lost;  /**< kernels that are not here */
    uint64_t late;  /**< that came after their step was handed out, whose busy times lack them */
    uint64_t steps; /**< of the training that waited and were dropped, for either or since nothing
                         more came */
} pp_kernels_missing;

pp_kernels_missing pp_kernels_what_is_missing(const pp_kernels *kernels);

#endif
