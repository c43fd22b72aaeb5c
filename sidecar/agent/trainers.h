/*
 * The training processes of a pod (or of a program that is run without one): their rings are found
 * in the ring directory, read, and removed once their processes are gone. Files, but no loop.
 */
#ifndef PP_AGENT_TRAINERS_H
#define PP_AGENT_TRAINERS_H

#include "sidecar/agent/process.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_trainers pp_trainers;

/** Processes that are read at a time. */
enum { PP_TRAINERS_MAX = 64 };

/** `directory` is copied. NULL where memory is out. */
pp_trainers *pp_trainers_new(const char *directory);
/** NULL is allowed. */
void pp_trainers_free(pp_trainers *trainers);

/** Looks for rings that are new: a directory is read. At most PP_TRAINERS_MAX are kept at a time.
 */
void pp_trainers_scan(pp_trainers *trainers);

/** Reads what they have written, emits what is due and tells them the mode (pp_process_poll);
 * `now` is monotonic ns, `offset` what CLOCK_REALTIME is ahead of that, ns. */
void pp_trainers_poll(pp_trainers *trainers, pp_agent_pod *pod, int64_t now, int64_t offset);

/** Ends the captures that run, at their last whole step, and emits what is left of them. */
void pp_trainers_cut(pp_trainers *trainers, pp_agent_pod *pod);

/** Reads for the last time and emits everything; the processes are let go. */
void pp_trainers_finish(pp_trainers *trainers, pp_agent_pod *pod, int64_t now, int64_t offset);

/** Processes that are there. */
size_t pp_trainers_count(const pp_trainers *trainers);

/** Whether there is one, or was. */
bool pp_trainers_seen(const pp_trainers *trainers);

/** Why the hook of one of them, now or before, stands aside; "": none does. */
const char *pp_trainers_refusal(const pp_trainers *trainers);

/** Whether one of them, now or before, has counted a step. */
bool pp_trainers_trained(const pp_trainers *trainers);

#endif
