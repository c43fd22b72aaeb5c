/*
 * One training process of the pod: its ring is read, its marks are paired, its steps are gathered
 * into batches, and its hook is told when to sample. Files but no loop and no clock of its own.
 */
#ifndef PP_AGENT_PROCESS_H
#define PP_AGENT_PROCESS_H

#include "common/error.h"
#include "common/wire.h"
#include "sidecar/agent/monitor.h"
#include "sidecar/agent/reader.h"
#include "sidecar/agent/sampling_schedule.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pp_process pp_process;

/** What PM sampling tells of one process, of all that it has sampled so far: the next one
 * replaces it. Its estimates are in a batch that has been emitted. */
typedef struct pp_sampling_report {
    int64_t process;                       /**< its number */
    const char *gpu;                       /**< UUID */
    const pp_monitor_estimates *estimates; /**< its lags by the host's CLOCK_REALTIME */
    const pp_wire_layer *layers; /**< of each item of the result; no name where it has no layer */
} pp_sampling_report;

/** What all processes of the agent share. */
typedef struct pp_agent_pod {
    pp_schedule_policy policy;
    int64_t timeline; /**< steps of each capture that go as intervals, whatever their rate */
    bool allowed;     /**< sampling is wanted */
    bool over;        /**< the session is, of this pod: nothing will be sampled any more */
    bool leaving;     /**< the agent is about to end: nothing new is begun */
    uint32_t session; /**< pp_settings_number of what is in the control file */
    int64_t first; /**< when the first sampled step began, monotonic ns, later by the pauses since;
                      0: none yet */
    int64_t processes; /**< numbers given out to processes */
    int64_t captures;  /**< numbers given out to captures */
    /**
     * Takes a finished batch (session, instance, seq and dropped are still to be set). Its marks
     * are those before `place`; they leave the ring when this returns.
     */
    void (*emit)(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place);
    void *user;
    /** A process says which GPUs it uses, before any batch of it; NULL: nobody wants to know. */
    void (*use_gpus)(void *user, const pp_strings *gpus);
    int64_t sampling_period;  /**< ns between samples of the GPU's performance monitors; 0: none are
                                 wanted */
    const char *keep_windows; /**< a folder for what each window's estimates come from
                                 (window_file.h); NULL: it is not kept */
    /** Takes what they tell, or why there is nothing (more), where the report is NULL; both are in
     * a batch that has been emitted. May be NULL. */
    void (*take_pm)(void *user, const pp_sampling_report *report, const char *why);
} pp_agent_pod;

/** Opens the ring at `path`. */
int pp_process_open(const char *path, pp_process **ret, pp_error *err);
void pp_process_free(pp_process *process);

/** The path it was opened with. */
const char *pp_process_path(const pp_process *process);

/** Keeps the number that an agent before this one has given it from being given out again. */
void pp_process_keep_number(const pp_process *process, pp_agent_pod *pod);

/**
 * Reads what has come, emits the batches that are due, and tells the hook the mode. `now` is
 * monotonic ns, `offset` what CLOCK_REALTIME is ahead of that, ns. Returns 1 when the trainer is
 * gone and all that it left has been emitted, 0 else, -1 where the ring is damaged: what was
 * gathered of it has been emitted then.
 */
int pp_process_poll(pp_process *process, pp_agent_pod *pod, int64_t now, int64_t offset,
                    pp_error *err);

/** Ends its capture and emits what is left: nothing more of that capture will be read. */
void pp_process_finish(pp_process *process, pp_agent_pod *pod);

/** Steps that it has counted, as it says. */
int64_t pp_process_steps(const pp_process *process);

/** Why its hook stands aside, or did; "": it does not. */
const char *pp_process_refusal(const pp_process *process);

/** For people: how many captures were broken by losses. */
uint64_t pp_process_broken(const pp_process *process);

#endif
