/*
 * What PM sampling tells of a process (monitor.h) as the wire has it: values, how sampling went,
 * and how the values hold against samples that were held out. No I/O, no clock.
 */
#ifndef PP_AGENT_ESTIMATES_H
#define PP_AGENT_ESTIMATES_H

#include "common/wire.h"
#include "sidecar/agent/monitor.h"

/** Fills `pm`, which is all zero; what it holds on failure goes with its batch. The sampler's
 * file is the user's to change: how sampling went is left out where it says what cannot be.
 * `estimates`: with lags by the host's CLOCK_REALTIME. */
int pp_estimates_tell(const pp_monitor_estimates *estimates, pp_wire_pm *pm, pp_error *err);

#endif
