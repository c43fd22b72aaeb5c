#include "operator/operator.h"

#include "common/cleanup.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

/*
 * One session's turn: observe (caches, what the store said last, what intake saw), let the
 * controller decide, carry the decision out. It may run as often as it likes; whatever it needs to
 * remember is in the session's status or in the store.
 */

enum {
    MAX_PODS = 5000,        /* of one session that are looked at */
    STATUS_EVERY_MS = 3000, /* between status patches that only move figures */
};

static const int64_t MILLISECOND = 1000000;

/* ---- observing ---- */

typedef struct gather_pods {
    const pp_operator *op;
    const pp_session *session;
    const pp_work *work;
    pp_session_pod *items;
    size_t count;
    size_t capacity;
} gather_pods;

static void add_what_intake_saw(const gather_pods *g, pp_session_pod *view)
{
    pp_work_target *target = NULL;
    HASH_FIND_STR(g->work->targets, view->uid, target);
    view->connected = pp_intake_has_peer(g->op, view->uid);
    if (!target)
        return;
    view->gpus = (const char *const *)target->gpus.items;
    view->n_gpus = target->gpus.count;
    view->rank = target->rank;
    view->open_stretch = target->open_stretch;
    view->last_batch_ns = target->last_batch_ns;
    view->events = target->events;
    view->steps = target->steps;
    view->dropped = target->dropped;
    view->epoch = target->epoch;
    view->batch = target->batch;
}

static bool gather_pod(void *user, const char *key, const void *object)
{
    gather_pods *g = user;
    const pp_pod *pod = object;
    (void)key;
    if (strcmp(pod->ns, g->session->namespace_) != 0)
        return true;
    bool injected = pod->session_uid && strcmp(pod->session_uid, g->session->uid) == 0;
    if (!injected && !pp_selector_matches(&g->session->selector, pod->labels))
        return true;
    if (g->count == g->capacity) {
        size_t capacity = g->capacity ? g->capacity * 2 : 16;
        pp_session_pod *items = realloc(g->items, capacity * sizeof *items);
        if (!items)
            return false;
        g->items = items;
        g->capacity = capacity;
    }
    pp_session_pod *view = &g->items[g->count++];
    pp_pod_view(pod, view);
    if (injected) {
        add_what_intake_saw(g, view);
    } else {
        pp_explain_pod(g->work->op, g->session, pod);
        view->refusal_reason = pod->refusal.reason[0] ? pod->refusal.reason : NULL;
        view->refusal = pod->refusal.reason[0] ? pod->refusal.message : NULL;
    }
    return g->count < MAX_PODS;
}

/* ---- carrying out ---- */

static void write_row(pp_work *work, const pp_session *session, const pp_session_decision *decision)
{
    if (work->row_written && work->row_generation == session->generation &&
        work->row_phase == decision->phase)
        return;
    if (pp_record_session(work, session, decision) == 0) {
        work->row_written = true;
        work->row_generation = session->generation;
        work->row_phase = decision->phase;
    }
}

static void emit_events(pp_operator *op, const pp_session *session,
                        const pp_session_decision *decision)
{
    for (size_t i = 0; i < decision->n_events; i++) {
        const pp_session_event *event = &decision->events[i];
        bool on_pod = event->pod_name[0] != '\0';
        const pp_kube_object_ref ref = {
            .api_version = on_pod ? "v1" : "precisionprobe.io/v1alpha1",
            .kind = on_pod ? "Pod" : "ProfileSession",
            .ns = session->namespace_,
            .name = on_pod ? event->pod_name : session->name,
            .uid = on_pod ? event->pod_uid : session->uid,
        };
        pp_kube_event(op->recorder, &ref,
                      event->warning ? PP_KUBE_EVENT_WARNING : PP_KUBE_EVENT_NORMAL, event->reason,
                      "Reconcile", "%s", event->message);
        pp_info(session->name, "%s: %s", event->reason, event->message);
    }
}

/* What a status patch needs to find its session's work again, which may have gone meanwhile. */
typedef struct write_context {
    pp_operator *op;
    char uid[64];
    uint64_t serial;
    char key[330];
    char version[64]; /* resourceVersion that the patch replaces */
} write_context;

static void on_status_written(void *user, json_t *object, const pp_error *error)
{
    write_context *context = user;
    pp_work *work = pp_operator_same_work(context->op, context->uid, context->serial);
    if (work) {
        const char *version = pp_json_get_string(object, "metadata", "resourceVersion", NULL);
        work->status_writing = false;
        work->status_written_ns = pp_time_monotonic();
        if (!error && version && strcmp(version, context->version) != 0)
            (void)snprintf(work->stale_version, sizeof work->stale_version, "%s", context->version);
        pp_operator_touch(context->op, context->key);
    }
    if (error && error->code != PP_ERR_NOT_FOUND) {
        pp_warn(context->key, "writing the status: %s", error->message);
        pp_meter_add(context->op->meters.reconcile_errors, 1);
        (void)pp_workqueue_retry(context->op->queue, context->key, NULL);
    } else {
        pp_workqueue_forget(context->op->queue, context->key);
    }
    free(context);
}

/*
 * The patch carries the resourceVersion that the decision was made from: when the object has
 * changed meanwhile the server answers with a conflict, and the newer state is decided upon anew.
 */
static int send_status(pp_work *work, const pp_session *session, json_t *patch)
{
    write_context *context = calloc(1, sizeof *context);
    if (!context)
        return -1;
    context->op = work->op;
    context->serial = work->serial;
    (void)snprintf(context->uid, sizeof context->uid, "%s", session->uid);
    (void)snprintf(context->key, sizeof context->key, "%s", work->key);
    (void)snprintf(context->version, sizeof context->version, "%s", session->resource_version);
    json_object_set_new(patch, "metadata",
                        json_pack("{s:s}", "resourceVersion", session->resource_version));
    pp_kube_call call = {.verb = PP_KUBE_PATCH_MERGE,
                         .resource = &PP_PROFILESESSIONS,
                         .ns = session->namespace_,
                         .name = session->name,
                         .subresource = "status",
                         .body = patch,
                         .done = on_status_written,
                         .user = context};
    if (pp_kube_call_start(work->op->kube, &call, NULL, NULL) < 0) {
        free(context);
        return -1;
    }
    work->status_writing = true;
    return 0;
}

/* Returns whether there is something to be written later. */
static bool write_status(pp_work *work, const pp_session *session,
                         const pp_session_decision *decision)
{
    PP_CLEANUP_JSON json_t *patch = pp_session_status_json(decision, session->status);
    if (!patch || !json_object_get(patch, "status"))
        return false;
    int64_t since = pp_time_monotonic() - work->status_written_ns;
    if (!decision->urgent && since < STATUS_EVERY_MS * MILLISECOND)
        return true;
    if (send_status(work, session, patch) < 0)
        (void)pp_workqueue_retry(work->op->queue, work->key, NULL);
    return false;
}

static void on_removed(void *user, json_t *object, const pp_error *error)
{
    (void)user;
    (void)object;
    if (error && error->code != PP_ERR_NOT_FOUND)
        pp_warn(NULL, "deleting an expired session: %s", error->message);
}

static void remove_session(pp_operator *op, const pp_session *session)
{
    PP_CLEANUP_JSON json_t *body = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind",
                                             "DeleteOptions", "preconditions", "uid", session->uid);
    const pp_kube_call call = {.verb = PP_KUBE_DELETE,
                               .resource = &PP_PROFILESESSIONS,
                               .ns = session->namespace_,
                               .name = session->name,
                               .body = body,
                               .done = on_removed,
                               .user = op};
    (void)pp_kube_call_start(op->kube, &call, NULL, NULL);
}

static void carry_out(pp_work *work, const pp_session *session, const pp_session_decision *decision)
{
    pp_operator *op = work->op;
    if (!decision->frozen)
        write_row(work, session, decision);
    if (!work->decided || decision->sampling != work->sampling) {
        work->decided = true;
        work->sampling = decision->sampling;
        pp_intake_tell(op, session->uid, decision->sampling);
    }
    work->collect = decision->collect;
    if (decision->finalise && !work->finalise) {
        work->finalise = true;
        work->unsolved = true;
    }
    emit_events(op, session, decision);
    bool later = write_status(work, session, decision);
    if (decision->remove)
        remove_session(op, session);
    int64_t wait = decision->requeue_ns;
    if (later && (wait == 0 || wait > STATUS_EVERY_MS * MILLISECOND))
        wait = STATUS_EVERY_MS * MILLISECOND;
    if (wait > 0)
        (void)pp_workqueue_add_after(op->queue, work->key, wait / MILLISECOND + 1, NULL);
}

/* ---- the turn ---- */

static void step(pp_work *work, const pp_session *session)
{
    pp_operator *op = work->op;
    gather_pods g = {.op = op, .session = session, .work = work};
    pp_kube_informer_each(op->pods, gather_pod, &g);
    const char *store_text = NULL;
    bool store_up = pp_store_ready(op->store, &store_text);
    pp_session_observation observation = {
        .session = session,
        .now_ns = pp_time_now(),
        .pods = g.items,
        .n_pods = g.count,
        .stats = work->stats,
        .store_error = store_up ? NULL : store_text,
        .prometheus_error = work->prometheus_error[0] ? work->prometheus_error : NULL,
        .prometheus_asked = work->asked,
        .prometheus_off = !op->prometheus,
        .serving_since_ns = op->serving_since_ns,
    };
    observation.stats.samples_complete =
        work->plan && work->queries == 0 && pp_plan_complete(work->plan, observation.now_ns);
    pp_session_decision decision;
    pp_error err = {0};
    if (pp_session_step(&observation, NULL, &decision, &err) < 0) {
        pp_err(session->name, "deciding: %s", err.message);
        (void)pp_workqueue_retry(op->queue, work->key, NULL);
    } else {
        carry_out(work, session, &decision);
        pp_session_decision_done(&decision);
    }
    free(g.items);
}

static pp_work *work_of_key(pp_operator *op, const char *key)
{
    for (pp_work *work = op->works; work; work = work->hh.next) {
        if (strcmp(work->key, key) == 0)
            return work;
    }
    return NULL;
}

void pp_reconcile(pp_operator *op, const char *key)
{
    const pp_session *session = pp_kube_informer_get(op->sessions, key);
    pp_work *work = work_of_key(op, key);
    pp_meter_add(op->meters.reconciles, 1);
    if (work && (!session || strcmp(work->uid, session->uid) != 0)) {
        pp_intake_tell(op, work->uid, false);
        pp_operator_drop_work(op, work);
    }
    if (!session || session->deleting || !op->leading)
        return;
    if (pp_session_final(session) && session->ttl_ns < 0 &&
        !pp_operator_find_work(op, session->uid))
        return; /* nothing will ever change */
    work = pp_operator_work(op, session);
    if (!work) {
        (void)pp_workqueue_retry(op->queue, key, NULL);
        return;
    }
    if (!work->restored && !pp_session_final(session)) {
        pp_record_restore(work);
        return; /* comes again when the store has answered */
    }
    if (work->stats_dirty && !work->stats_loading)
        pp_record_load_stats(work);
    /* A decision is made from what our own last write left, never from what it replaced. */
    if (!work->status_writing && strcmp(work->stale_version, session->resource_version) != 0)
        step(work, session);
}
