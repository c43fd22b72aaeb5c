/* Agents' and Prometheus' stamps onto the operator's clock (docs/clocks.md). */
#ifndef PP_OPERATOR_SAMPLES_CLOCKS_H
#define PP_OPERATOR_SAMPLES_CLOCKS_H

#include "common/wire.h"
#include "controller/samples/clock_offset.h"
#include "operator/cache/pod.h"
#include "operator/cache/session_runtime.h"
#include "operator/store/store.h"

/** Both of this process' clocks. */
pp_clock_now pp_clocks_now(void);

/**
 * Shifts a batch's stamps onto the operator's clock; *ret is for the store. Fails with
 * PP_ERR_INVALID where the batch is to be refused for its stamps, which the session then says, and
 * with PP_ERR_UNAVAILABLE where it may come again once the agent's clock is known.
 */
int pp_clocks_place(pp_runtime *runtime, const pp_session *session, const pp_pod *pod,
                    const pp_clock *clock, pp_wire_batch *batch, pp_store_clock *ret,
                    pp_error *err);

/** Whether what Prometheus' clock shows is known, or cannot be: it is asked, again from time to
 * time, and sessions are looked at when the first answer has come. */
bool pp_clocks_prometheus_known(pp_operator *op);

/** The leader asks it while no session does, too: whoever looks for what is missing sees that it is
 * out of reach before there is a session (precisionprobe_prometheus_up). */
void pp_clocks_watch_prometheus(pp_operator *op);

/** Brings work->prometheus_shift_ns up to what is known. Fails with PP_ERR_UNAVAILABLE where that
 * clock is none. */
int pp_clocks_follow_prometheus(pp_runtime *runtime, pp_error *err);

#endif
