/*
 * Workloads at /metrics, by layer: what the leader has read of the newest sessions that Succeeded,
 * and which sessions have Failed lately. Read on a connection of its own, after a session has ended
 * or gone and every `retention.interval`; a scrape reads nothing.
 */
#ifndef PP_OPERATOR_WORKLOADS_WORKLOAD_METRICS_H
#define PP_OPERATOR_WORKLOADS_WORKLOAD_METRICS_H

#include "controller/session/session.h"

typedef struct pp_operator pp_operator;

/** Adds the series to op->meters, which has to outlive it. */
int pp_workload_metrics_start(pp_operator *op, pp_error *err);

/** Nothing is read any more; run the loop until its connection is closed. */
void pp_workload_metrics_stop(pp_operator *op);

/** After pp_workload_metrics_stop(). */
void pp_workload_metrics_done(pp_operator *op);

/** The cache has `now` in place of `before`; NULL: it came, or went. */
void pp_workload_metrics_session(pp_operator *op, const pp_session *before, const pp_session *now);

/** The database has something new of a session that has ended. */
void pp_workload_metrics_changed(pp_operator *op);

/** Reads what is due, where this replica leads; else forgets all that it had read. Called often,
 * and only once all sessions are in the cache. */
void pp_workload_metrics_tick(pp_operator *op);

#endif
