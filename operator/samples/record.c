#include "operator/samples/record.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/samples/clock_offset.h"
#include "operator/cache/watches.h"
#include "operator/patterns/patterns.h"
#include "operator/state/state.h"
#include "operator/workloads/workload_metrics.h"

#include <stdlib.h>
#include <string.h>

/*
 * What the store keeps of sessions and pods, to and from. Rows go ahead of the batches that refer
 * to them: the store's ingest connection keeps the order of calls.
 */

/** Names a session's work across a call to the store; the work may be gone when it returns. */
typedef struct reference {
    pp_operator *op;
    char uid[64];
    uint64_t serial;
    char succeeded[400]; /* key of a session that has; "" */
} reference;

static reference *refer(const pp_runtime *runtime)
{
    reference *r = calloc(1, sizeof *r);
    if (r) {
        r->op = runtime->op;
        r->serial = runtime->serial;
        (void)snprintf(r->uid, sizeof r->uid, "%s", runtime->uid);
    }
    return r;
}

static pp_runtime *resolve(reference *r)
{
    pp_runtime *runtime = pp_runtime_same(r->op, r->uid, r->serial);
    free(r);
    return runtime;
}

static void on_session_row(void *user, const pp_error *error)
{
    pp_runtime *runtime = resolve(user);
    if (runtime && error && error->code != PP_ERR_UNAVAILABLE) {
        pp_warn(runtime->key, "storing the session: %s", error->message);
        runtime->row_written = false;
    }
}

static void on_finished(void *user, const pp_error *error)
{
    const reference *r = user;
    if (!error && *r->succeeded)
        pp_patterns_make_of(r->op, r->uid, r->succeeded);
    pp_workload_metrics_changed(r->op);
    pp_runtime *runtime = resolve(user);
    if (runtime && error) {
        pp_warn(runtime->key, "storing the session's end: %s", error->message);
        runtime->row_written = false;
    }
}

int pp_record_session(pp_runtime *runtime, const pp_session *session,
                      const pp_session_decision *decision)
{
    PP_CLEANUP_FREE char *spec = json_dumps(session->spec, JSON_COMPACT);
    reference *r = refer(runtime);
    if (!spec || !r) {
        free(r);
        return -1;
    }
    pp_error err = {0};
    const char *phase = pp_session_phase_name(decision->phase);
    const pp_store_session row = {.uid = session->uid,
                                  .ns = session->namespace_,
                                  .name = session->name,
                                  .spec = spec,
                                  .method = pp_method_spec_name(session->method),
                                  .phase = phase,
                                  .created_ns = session->created_ns};
    if (decision->phase == PP_SESSION_SUCCEEDED)
        (void)snprintf(r->succeeded, sizeof r->succeeded, "%s", runtime->key);
    bool final = decision->phase == PP_SESSION_SUCCEEDED || decision->phase == PP_SESSION_FAILED;
    int rc = final ? pp_store_finish(runtime->op->store, session->uid, phase,
                                     decision->completion_ns, on_finished, r, &err)
                   : pp_store_put_session(runtime->op->store, &row, on_session_row, r, &err);
    if (rc < 0) {
        pp_warn(runtime->key, "storing the session: %s", err.message);
        free(r);
    }
    return rc;
}

/** Names a target across a call to the store. */
typedef struct target_reference {
    pp_operator *op;
    char uid[64];
    char pod_uid[64];
} target_reference;

static void on_target_row(void *user, const pp_error *error)
{
    target_reference *r = user;
    pp_runtime *runtime = pp_runtime_find(r->op, r->uid);
    pp_runtime_target *target = NULL;
    if (runtime)
        HASH_FIND_STR(runtime->targets, r->pod_uid, target);
    if (target && error) {
        target->row_written = target->row_placed = false;
        pp_warn(runtime->key, "storing a target: %s", error->message);
    }
    free(r);
}

void pp_record_target(pp_runtime *runtime, const pp_pod *pod)
{
    pp_runtime_target *target = pp_runtime_get_target(runtime, pod->uid);
    target_reference *r = calloc(1, sizeof *r);
    bool placed = pod->node && pod->ip;
    if (!target || !r || (target->row_written && (target->row_placed || !placed))) {
        free(r);
        return;
    }
    r->op = runtime->op;
    (void)snprintf(r->uid, sizeof r->uid, "%s", runtime->uid);
    (void)snprintf(r->pod_uid, sizeof r->pod_uid, "%s", pod->uid);
    const pp_store_target row = {.session_uid = runtime->uid,
                                 .pod_uid = pod->uid,
                                 .ns = pod->ns,
                                 .pod_name = pod->name,
                                 .container = pod->container,
                                 .node = pod->node,
                                 .host_name = pod->host_name,
                                 .ip = pod->ip,
                                 .workload_kind = pod->workload ? PP_POD_LABELLED : pod->owner_kind,
                                 .workload_name = pod->workload ? pod->workload : pod->owner_name,
                                 .cpu_request = pod->cpu_request};
    pp_error err = {0};
    if (pp_store_put_target(runtime->op->store, &row, on_target_row, r, &err) < 0) {
        pp_warn(runtime->key, "storing a target: %s", err.message);
        free(r);
        return;
    }
    target->row_written = true;
    target->row_placed = placed;
}

/* ---- figures ---- */

static void need(const pp_runtime *runtime, const pp_store_target_stats *target)
{
    const pp_session *session = pp_match_session(runtime->op->matches, runtime->uid);
    int64_t from = target->observed_first_ns, to = target->observed_last_ns;
    if (!to || !session || !pp_clock_clip(session->created_ns, pp_time_now(), &from, &to))
        return;
    for (size_t i = 0; i < target->gpus.count; i++)
        (void)pp_plan_need(runtime->plan, target->gpus.items[i], from, to, NULL);
}

static void take_target(pp_runtime *runtime, const pp_store_target_stats *from)
{
    pp_runtime_target *target = pp_runtime_get_target(runtime, from->pod_uid);
    if (!target)
        return;
    for (size_t i = 0; i < from->gpus.count; i++)
        (void)pp_strings_add_once(&target->gpus, from->gpus.items[i], NULL);
    target->rank = from->rank;
    target->open_capture = from->open_capture;
    target->last_batch_ns = from->last_batch_ns;
    target->events = from->events;
    target->steps = from->steps;
    target->dropped = from->dropped;
    target->epoch = from->epoch;
    target->batch = from->batch;
    target->pm = from->pm;
    (void)snprintf(target->pm_why, sizeof target->pm_why, "%s", from->pm_why);
    target->replays = from->replays;
    target->replaying = from->replaying || (target->replaying && runtime->stats_dirty);
    pp_runtime_restore(target, from->observed_first_ns, pp_time_now());
    (void)snprintf(target->isolated, sizeof target->isolated, "%s", from->isolated);
    if (!target->clock.shift_ns && !target->clock.refused) /* else it is known better here */
        target->clock.shift_ns = from->clock_shift_ns;
    need(runtime, from);
}

static void take_stats(pp_runtime *runtime, const pp_store_stats *stats)
{
    runtime->stats = stats->session;
    for (size_t i = 0; i < stats->n_targets; i++)
        take_target(runtime, &stats->targets[i]);
}

static void on_stats(void *user, const pp_store_stats *stats, const pp_error *error)
{
    pp_runtime *runtime = resolve(user);
    if (!runtime)
        return;
    runtime->stats_loading = false;
    runtime->stats_loaded_ns = pp_time_monotonic();
    if (error) {
        runtime->stats_dirty = true;
        pp_warn(runtime->key, "reading the session's figures: %s", error->message);
        (void)pp_workqueue_retry(runtime->op->queue, runtime->key, NULL);
        return;
    }
    if (!runtime->restored && stats->session.events > 0)
        pp_runtime_unsolved(runtime);
    if (!runtime->restored)
        runtime->prometheus_shift_ns = stats->prometheus_shift_ns;
    runtime->restored = true;
    take_stats(runtime, stats);
    pp_watches_enqueue(runtime->op, runtime->key);
}

void pp_record_load_stats(pp_runtime *runtime)
{
    static const int64_t after_ns = INT64_C(120000000000);
    reference *r = refer(runtime);
    pp_error err = {0};
    if (!r ||
        pp_store_load_stats(runtime->op->store, runtime->uid, after_ns, on_stats, r, &err) < 0) {
        free(r);
        (void)pp_workqueue_retry(runtime->op->queue, runtime->key, NULL);
        return;
    }
    runtime->stats_loading = true;
    runtime->stats_dirty = false;
}

void pp_record_restore(pp_runtime *runtime)
{
    if (!runtime->stats_loading)
        pp_record_load_stats(runtime);
}
