/*
 * What the files of process.h share: process.c reads the ring and decides, process_batches.c makes
 * batches of what was gathered, process_samples.c has the GPU's performance monitors.
 */
#ifndef PP_AGENT_PROCESS_INTERNAL_H
#define PP_AGENT_PROCESS_INTERNAL_H

#include "sidecar/agent/batch.h"
#include "sidecar/agent/copy_sums.h"
#include "sidecar/agent/graphs.h"
#include "sidecar/agent/kernel_sums.h"
#include "sidecar/agent/kernels.h"
#include "sidecar/agent/memory_sums.h"
#include "sidecar/agent/pairing.h"
#include "sidecar/agent/process.h"
#include "sidecar/agent/wait_sums.h"

enum {
    MARKS_AT_ONCE = 4096,
    KERNELS_AT_ONCE = 4096,
    NAMES_AT_ONCE = 16 << 10, /* bytes */
    PROCESS_HELD_MAX =
        PP_RING_MARKS / 2, /* marks that stay in the ring until their batch is made */
};

/* One of the GPUs of a process: a process of its own on the wire (docs/timing.md). */
typedef struct process_gpu {
    int device;           /* CUDA's number; -1: not known, of times that are no kernels' */
    int64_t id;           /* number of the wire's process; -1: nothing was sampled yet */
    pp_kernel_sums *sums; /* of steps that the batcher has had, by name */
    pp_copy_sums *copies; /* of the same */
    pp_batcher *batcher;
    pp_monitor *monitor; /* NULL: PM sampling is not wanted */
    bool told_why;       /* why there is no more of it */
    bool open;           /* the batcher has a capture */
    int64_t steps;       /* of it */
} process_gpu;

struct pp_process {
    char *path;
    pp_reader *reader;
    pp_pairing *pairing;
    pp_kernels *kernels;
    pp_graphs *graphs; /* compiled ones */
    process_gpu
        gpus[PP_RING_DEVICES]; /* in the order in which they were seen: there is one always */
    size_t gpu_count;
    pp_wait_sums *waits;    /* of steps that batchers have had; told with the first GPU */
    pp_memory_sums *memory; /* of steps that are there for it; of the first GPU */
    pp_wire_run runs[PP_WIRE_MAX_RUNS]; /* of counted steps, told of no GPU yet ... */
    uint64_t run_at[PP_WIRE_MAX_RUNS];  /* ... and the positions of their marks in the ring */
    size_t run_count;
    int64_t untold; /* waits that are in none of these, as told already */
    pp_schedule schedule;
    uint32_t session; /* that the hook has been told */
    bool stale;       /* it may still mark for the session before: to be brought to rest */
    int64_t sampled;
    bool over;              /* no more steps are wanted than came before the latest */
    int64_t step;           /* ns that a marked step takes of late; 0: not known */
    char clock[16];         /* of that capture: the header may tell of the next one already */
    char why[PP_RING_TYPE]; /* no busy times are known of it */
    int64_t now;            /* of the last poll, monotonic ns */
    int64_t offset;         /* from there to ns since 1970 */
    int64_t cut_at;         /* when the last batch was cut, or its capture began, monotonic ns */
    uint64_t at;            /* the position in the ring of the mark that is looked at */
    uint64_t from;          /* that of the first mark of the batch that is gathered */
    uint64_t to; /* that of the mark with which the batch after it begins, were it cut now */
    pp_ring_told told;
    int64_t greeted;  /* when the hook was last told that the agent is there, monotonic ns */
    bool told_gpus;   /* which GPUs it uses */
    bool told_copies; /* why copies are not recorded */
    bool told_memory; /* why it is not known what layers allocate */
    bool told_unknown, told_unfit; /* that graphs are told as their regions */
    char refusal[PP_RING_TYPE];    /* why it did; "": it did not */
    pp_kernels_missing missing;    /* of it what is in batches */
    pp_kernels_missing noticed;    /* as looked at last */
    bool told_missing;             /* that kernels of the capture are, or were late */
    uint32_t failures;             /* of the hook's that are told already */
    int64_t
        paused_before; /* what the hook had of pauses when it was seen first, or the session came */
    uint64_t steps_before; /* the running capture, as the hook counts them */
    pp_mark buffer[MARKS_AT_ONCE];
    pp_kernel kernel_buffer[KERNELS_AT_ONCE];
    char name_buffer[NAMES_AT_ONCE];
};

/** It names the process: what is no GPU's goes with it. */
static inline bool process_is_first(const pp_process *p, const process_gpu *g)
{
    return g == &p->gpus[0];
}

/* ---- process_batches.c ---- */

/** A copy of at most `max` bytes that is UTF-8, without control characters, not empty. NULL where
 * memory is out. */
char *process_clean_text(const char *text, size_t max);

/** "host", "kernels" or "cuda", whatever the header says. */
const char *process_clock_name(const char *text);

/** Adds the UUIDs in a list with commas. */
int process_fill_gpus(const char *text, pp_strings *gpus, pp_error *err);

/** Adds the UUID of one GPU, where it is known. */
int process_name_gpu(const pp_process *p, const process_gpu *g, pp_strings *gpus, pp_error *err);

/** What the ring's table has of a layer; `user` is the pp_process. */
int process_describe_layer(void *user, uint32_t id, pp_wire_layer *to, pp_error *err);

/** Before this one all marks are in batches, or will be in none. Counted steps hold no more than
 * PROCESS_HELD_MAX of them. */
uint64_t process_tail(const pp_process *p);

/** For what belongs to no capture: a batch of no time, at `at`. NULL with an error. */
pp_wire_batch *process_make_timeless(const pp_process *p, const process_gpu *g, pp_agent_pod *pod,
                                     int64_t at, pp_error *err);

/** It has no marks of its own. */
void process_emit_timeless(const pp_process *p, const pp_agent_pod *pod, pp_wire_batch *batch);

/** Emits what one GPU has gathered; `last`: of its capture. */
void process_cut_gpu(pp_process *p, process_gpu *g, pp_agent_pod *pod, bool last);

/** Emits what is the process's, while its first GPU has no capture that it could go with. */
void process_cut_rest(pp_process *p, pp_agent_pod *pod);

/** Emits what all have gathered; of one that has no capture there is nothing. */
void process_cut(pp_process *p, pp_agent_pod *pod);

/** Emits what kernels are missing, where no batch of a capture has said it. */
void process_emit_missing(pp_process *p, pp_agent_pod *pod);

/** Emits counted steps in a batch of its own for each GPU. */
int process_emit_runs(pp_process *p, pp_agent_pod *pod, pp_error *err);

/* ---- process_samples.c ---- */

/** The mode to ask for, where samples have to come first. */
int process_sample_gpus(pp_process *p, pp_agent_pod *pod, pp_ring_mode *mode, pp_error *err);

/** Emits what a GPU's samples tell by now. */
void process_report_pm(pp_process *p, process_gpu *g, pp_agent_pod *pod);

/** Of another session. */
void process_end_sampling(pp_process *p);

#endif
