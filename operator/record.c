#include "operator/record.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/clock_offset.h"
#include "operator/state.h"
#include "operator/watches.h"

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
} reference;

static reference *refer(const pp_runtime *work)
{
    reference *r = calloc(1, sizeof *r);
    if (r) {
        r->op = work->op;
        r->serial = work->serial;
        (void)snprintf(r->uid, sizeof r->uid, "%s", work->uid);
    }
    return r;
}

static pp_runtime *resolve(reference *r)
{
    pp_runtime *work = pp_runtime_same(r->op, r->uid, r->serial);
    free(r);
    return work;
}

static void on_session_row(void *user, const pp_error *error)
{
    pp_runtime *work = resolve(user);
    if (work && error && error->code != PP_ERR_UNAVAILABLE) {
        pp_warn(work->key, "storing the session: %s", error->message);
        work->row_written = false;
    }
}

static void on_finished(void *user, const pp_error *error)
{
    pp_runtime *work = resolve(user);
    if (work && error) {
        pp_warn(work->key, "storing the session's end: %s", error->message);
        work->row_written = false;
    }
}

int pp_record_session(pp_runtime *work, const pp_session *session,
                      const pp_session_decision *decision)
{
    PP_CLEANUP_FREE char *spec = json_dumps(session->spec, JSON_COMPACT);
    reference *r = refer(work);
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
    bool final = decision->phase == PP_SESSION_SUCCEEDED || decision->phase == PP_SESSION_FAILED;
    int rc = final ? pp_store_finish(work->op->store, session->uid, phase, decision->completion_ns,
                                     on_finished, r, &err)
                   : pp_store_put_session(work->op->store, &row, on_session_row, r, &err);
    if (rc < 0) {
        pp_warn(work->key, "storing the session: %s", err.message);
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
    pp_runtime *work = pp_runtime_find(r->op, r->uid);
    pp_runtime_target *target = NULL;
    if (work)
        HASH_FIND_STR(work->targets, r->pod_uid, target);
    if (target && error) {
        target->row_written = target->row_placed = false;
        pp_warn(work->key, "storing a target: %s", error->message);
    }
    free(r);
}

void pp_record_target(pp_runtime *work, const pp_pod *pod)
{
    pp_runtime_target *target = pp_runtime_get_target(work, pod->uid);
    target_reference *r = calloc(1, sizeof *r);
    bool placed = pod->node && pod->ip;
    if (!target || !r || (target->row_written && (target->row_placed || !placed))) {
        free(r);
        return;
    }
    r->op = work->op;
    (void)snprintf(r->uid, sizeof r->uid, "%s", work->uid);
    (void)snprintf(r->pod_uid, sizeof r->pod_uid, "%s", pod->uid);
    const pp_store_target row = {.session_uid = work->uid,
                                 .pod_uid = pod->uid,
                                 .ns = pod->ns,
                                 .pod_name = pod->name,
                                 .container = pod->container,
                                 .node = pod->node,
                                 .host_name = pod->host_name,
                                 .ip = pod->ip,
                                 .workload_kind = pod->owner_kind,
                                 .workload_name = pod->owner_name,
                                 .cpu_request = pod->cpu_request};
    pp_error err = {0};
    if (pp_store_put_target(work->op->store, &row, on_target_row, r, &err) < 0) {
        pp_warn(work->key, "storing a target: %s", err.message);
        free(r);
        return;
    }
    target->row_written = true;
    target->row_placed = placed;
}

/* ---- figures ---- */

static void need(const pp_runtime *work, const pp_store_target_stats *target)
{
    const pp_session *session = pp_match_session(work->op->matches, work->uid);
    int64_t from = target->observed_first_ns, to = target->observed_last_ns;
    if (!to || !session || !pp_clock_clip(session->created_ns, pp_time_now(), &from, &to))
        return;
    for (size_t i = 0; i < target->gpus.count; i++)
        (void)pp_plan_need(work->plan, target->gpus.items[i], from, to, NULL);
}

static void take_target(pp_runtime *work, const pp_store_target_stats *from)
{
    pp_runtime_target *target = pp_runtime_get_target(work, from->pod_uid);
    if (!target)
        return;
    for (size_t i = 0; i < from->gpus.count; i++)
        (void)pp_strings_add_once(&target->gpus, from->gpus.items[i], NULL);
    target->rank = from->rank;
    target->open_stretch = from->open_stretch;
    target->last_batch_ns = from->last_batch_ns;
    target->events = from->events;
    target->steps = from->steps;
    target->dropped = from->dropped;
    target->epoch = from->epoch;
    target->batch = from->batch;
    target->fine = from->fine;
    (void)snprintf(target->fine_why, sizeof target->fine_why, "%s", from->fine_why);
    target->replays = from->replays;
    target->replaying = from->replaying || (target->replaying && work->stats_dirty);
    pp_runtime_restore(target, from->observed_first_ns, pp_time_now());
    (void)snprintf(target->isolated, sizeof target->isolated, "%s", from->isolated);
    if (!target->clock.shift_ns && !target->clock.refused) /* else it is known better here */
        target->clock.shift_ns = from->clock_shift_ns;
    need(work, from);
}

static void take_stats(pp_runtime *work, const pp_store_stats *stats)
{
    work->stats = stats->session;
    for (size_t i = 0; i < stats->n_targets; i++)
        take_target(work, &stats->targets[i]);
}

static void on_stats(void *user, const pp_store_stats *stats, const pp_error *error)
{
    pp_runtime *work = resolve(user);
    if (!work)
        return;
    work->stats_loading = false;
    work->stats_loaded_ns = pp_time_monotonic();
    if (error) {
        work->stats_dirty = true;
        pp_warn(work->key, "reading the session's figures: %s", error->message);
        (void)pp_workqueue_retry(work->op->queue, work->key, NULL);
        return;
    }
    if (!work->restored && stats->session.events > 0)
        pp_runtime_unsolved(work);
    if (!work->restored)
        work->prometheus_shift_ns = stats->prometheus_shift_ns;
    work->restored = true;
    take_stats(work, stats);
    pp_watches_enqueue(work->op, work->key);
}

void pp_record_load_stats(pp_runtime *work)
{
    static const int64_t after_ns = INT64_C(120000000000);
    reference *r = refer(work);
    pp_error err = {0};
    if (!r || pp_store_load_stats(work->op->store, work->uid, after_ns, on_stats, r, &err) < 0) {
        free(r);
        (void)pp_workqueue_retry(work->op->queue, work->key, NULL);
        return;
    }
    work->stats_loading = true;
    work->stats_dirty = false;
}

void pp_record_restore(pp_runtime *work)
{
    if (!work->stats_loading)
        pp_record_load_stats(work);
}
