#include "operator/reconcile.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "operator/context.h"
#include "operator/explain.h"
#include "operator/intake.h"
#include "operator/record.h"
#include "operator/state.h"
#include "operator/watches.h"
#include "operator/work.h"

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
    STATS_EVERY_MS = 1000,  /* between readings of a session's figures */
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

static const pp_work_target *target_of(const gather_pods *g, const char *pod_uid)
{
    pp_work_target *target = NULL;
    HASH_FIND_STR(g->work->targets, pod_uid, target);
    return target;
}

static void add_what_intake_saw(const gather_pods *g, pp_session_pod *view)
{
    const pp_work_target *target = target_of(g, view->uid);
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
    view->fine = target->fine;
    view->fine_why = target->fine_why;
    view->replays = target->replays;
    view->replaying = target->replaying;
    view->isolated = target->isolated;
}

/* Whose the pod is: the session's own where it was injected for it, has reported to it, or is its
 * to have now; else another's, or NULL. */
static const char *whose(const gather_pods *g, const pp_pod *pod)
{
    const char *own = g->session->uid;
    const pp_work_target *target = target_of(g, pod->uid);
    if ((pod->session_uid && strcmp(pod->session_uid, own) == 0) ||
        (target && target->last_batch_ns > 0))
        return own;
    if (!pod->hooked)
        return pod->session_uid;
    const pp_session *holder = pp_watches_holder(g->op, pod);
    return holder ? holder->uid : NULL;
}

static bool gather_pod(void *user, const char *key, const void *object)
{
    gather_pods *g = user;
    const pp_pod *pod = object;
    (void)key;
    if (strcmp(pod->ns, g->session->namespace_) != 0)
        return true;
    const char *session_uid = whose(g, pod);
    bool injected = session_uid && strcmp(session_uid, g->session->uid) == 0;
    if (!injected && !pp_selector_matches(&g->session->selector, pod->labels))
        return true;
    if (!injected && pod->hooked && !pp_session_live(g->session))
        return true; /* it is for sessions to come */
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
    view->session_uid = session_uid;
    if (injected) {
        add_what_intake_saw(g, view);
    } else if (!pod->hooked) {
        if (!pod->finished && pp_session_takes_batches(g->session))
            pp_explain_pod(g->work->op, g->session, pod);
        view->refusal_reason = pod->refusal.reason[0] ? pod->refusal.reason : NULL;
        view->refusal = pod->refusal.reason[0] ? pod->refusal.message : NULL;
    }
    return g->count < MAX_PODS;
}

/* ---- carrying out ---- */

/* The longest pause after status writes that failed. */
enum { STATUS_RETRY_MS = 60000 };

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

/* What a status patch needs to find its session's work again, which may have gone meanwhile. */
typedef struct write_context {
    pp_context context;
    char uid[64];
    uint64_t serial;
    char ns[64];
    char name[254];
    char key[330];
    char version[64]; /* resourceVersion that the patch replaces */
    size_t n_events;
    pp_session_event events[PP_SESSION_MAX_EVENTS]; /* told once the status says it too */
} write_context;

static void emit_events(const write_context *from)
{
    for (size_t i = 0; i < from->n_events; i++) {
        const pp_session_event *event = &from->events[i];
        bool on_pod = event->pod_name[0] != '\0';
        const pp_kube_object_ref ref = {
            .api_version = on_pod ? "v1" : "precisionprobe.io/v1alpha1",
            .kind = on_pod ? "Pod" : "ProfileSession",
            .ns = from->ns,
            .name = on_pod ? event->pod_name : from->name,
            .uid = on_pod ? event->pod_uid : from->uid,
        };
        pp_kube_event(from->context.op->recorder, &ref,
                      event->warning ? PP_KUBE_EVENT_WARNING : PP_KUBE_EVENT_NORMAL, event->reason,
                      "Reconcile", "%s", event->message);
        pp_info(from->key, "%s%s%s: %s", event->reason, on_pod ? " of pod " : "", event->pod_name,
                event->message);
    }
}

static void status_written(pp_work *work, const write_context *context, const json_t *object)
{
    const char *version = pp_json_get_string(object, "metadata", "resourceVersion", NULL);
    work->status_failures = 0;
    work->status_after_ns = pp_time_monotonic() + STATUS_EVERY_MS * MILLISECOND;
    if (version && strcmp(version, context->version) != 0)
        (void)snprintf(work->stale_version, sizeof work->stale_version, "%s", context->version);
    pp_workqueue_forget(work->op->queue, work->key);
    pp_watches_touch(work->op, work->key);
}

/* Nothing is written before the pause is over, however often the session is looked at. */
static void status_failed(pp_work *work)
{
    int64_t wait = pp_workqueue_backoff_ms(work->status_failures);
    if (work->status_failures < 20)
        work->status_failures++;
    if (wait > STATUS_RETRY_MS)
        wait = STATUS_RETRY_MS;
    work->status_retry_ns = pp_time_monotonic() + wait * MILLISECOND;
    (void)pp_workqueue_add_after(work->op->queue, work->key, wait + 1, NULL);
}

static void on_status_written(void *user, json_t *object, const pp_error *error)
{
    write_context *context = user;
    pp_operator *op = context->context.op;
    pp_work *work = pp_work_same(op, context->uid, context->serial);
    if (work)
        work->status_writing = false;
    if (!error)
        emit_events(context);
    if (work && !error)
        status_written(work, context, object);
    else if (work)
        status_failed(work);
    if (error && error->code != PP_ERR_NOT_FOUND) {
        pp_warn(context->key, "writing the status: %s", error->message);
        pp_meter_add(op->meters.status_failures, 1);
    }
    pp_context_free(context);
}

/*
 * The patch carries the resourceVersion that the decision was made from: when the object has
 * changed meanwhile the server answers with a conflict, and the newer state is decided upon anew.
 */
static int send_status(pp_work *work, const pp_session *session,
                       const pp_session_decision *decision, json_t *patch)
{
    write_context *context = pp_context_new(work->op, sizeof *context, NULL);
    if (!context)
        return -1;
    context->serial = work->serial;
    (void)snprintf(context->uid, sizeof context->uid, "%s", session->uid);
    (void)snprintf(context->ns, sizeof context->ns, "%s", session->namespace_);
    (void)snprintf(context->name, sizeof context->name, "%s", session->name);
    (void)snprintf(context->key, sizeof context->key, "%s", work->key);
    context->n_events = decision->n_events;
    memcpy(context->events, decision->events, sizeof context->events);
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
        pp_context_free(context);
        return -1;
    }
    work->status_writing = true;
    return 0;
}

/* Returns how long what is to be written has to wait, ns; 0: it is written, or nothing differs. */
static int64_t write_status(pp_work *work, const pp_session *session,
                            const pp_session_decision *decision)
{
    PP_CLEANUP_JSON json_t *patch = pp_session_status_json(decision, session->status);
    if (!patch || !json_object_get(patch, "status"))
        return 0;
    int64_t now = pp_time_monotonic();
    int64_t from = work->status_retry_ns;
    if (!decision->urgent && work->status_after_ns > from)
        from = work->status_after_ns;
    if (from > now)
        return from - now;
    if (send_status(work, session, decision, patch) < 0)
        status_failed(work);
    return 0;
}

/* An expired session's deletion. */
typedef struct removal {
    pp_context context;
    char key[330];
} removal;

static void on_removed(void *user, json_t *object, const pp_error *error)
{
    removal *r = user;
    (void)object;
    if (error && error->code != PP_ERR_NOT_FOUND && error->code != PP_ERR_CONFLICT) {
        pp_warn(r->key, "deleting an expired session: %s", error->message);
        (void)pp_workqueue_add_after(r->context.op->queue, r->key, STATUS_RETRY_MS, NULL);
    }
    pp_context_free(r);
}

static void remove_session(pp_operator *op, const pp_session *session)
{
    PP_CLEANUP_JSON json_t *body = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind",
                                             "DeleteOptions", "preconditions", "uid", session->uid);
    removal *r = pp_context_new(op, sizeof *r, NULL);
    const pp_kube_call call = {.verb = PP_KUBE_DELETE,
                               .resource = &PP_PROFILESESSIONS,
                               .ns = session->namespace_,
                               .name = session->name,
                               .body = body,
                               .done = on_removed,
                               .user = r};
    if (!r)
        return;
    (void)snprintf(r->key, sizeof r->key, "%s/%s", session->namespace_, session->name);
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0) {
        (void)pp_workqueue_add_after(op->queue, r->key, STATUS_RETRY_MS, NULL);
        pp_context_free(r);
    }
}

static void carry_out(pp_work *work, const pp_session *session, const pp_session_decision *decision)
{
    pp_operator *op = work->op;
    if (!decision->frozen)
        write_row(work, session, decision);
    if (!work->decided || decision->sampling != work->sampling) {
        work->decided = true;
        work->sampling = decision->sampling;
        pp_intake_tell(op);
    }
    work->collect = decision->collect;
    if (decision->finalise && !work->finalise) {
        work->finalise = true;
        work->unsolved = true;
    }
    int64_t later = write_status(work, session, decision);
    if (decision->remove)
        remove_session(op, session);
    int64_t wait = decision->requeue_ns;
    if (later && (wait == 0 || wait > later))
        wait = later;
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
        .prometheus_warning = work->prometheus_warning[0] ? work->prometheus_warning : NULL,
        .prometheus_asked = work->asked,
        .prometheus_off = !op->prometheus,
        .fine_asked = pp_session_asks_fine(session, op->config->fine.by_auto),
        .solve_error = work->solve_error[0] ? work->solve_error : NULL,
        .solve_failures = work->solve_failures,
        .serving_since_ns = op->serving_since_ns,
    };
    observation.stats.samples_complete =
        !op->prometheus || (work->queries == 0 && pp_plan_complete(work->plan, observation.now_ns));
    /* A final solution is the last word only where nothing has come in since it was begun. */
    if (work->unsolved || work->solving || work->deliveries || work->stats_dirty ||
        work->stats_loading)
        observation.stats.final_written = false;
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

static void refresh_stats(pp_work *work)
{
    if (!work->stats_dirty || work->stats_loading)
        return;
    int64_t from = work->stats_loaded_ns + STATS_EVERY_MS * MILLISECOND;
    int64_t wait = work->stats_loaded_ns ? from - pp_time_monotonic() : 0;
    if (wait > 0)
        (void)pp_workqueue_add_after(work->op->queue, work->key, wait / MILLISECOND + 1, NULL);
    else
        pp_record_load_stats(work);
}

void pp_reconcile(pp_operator *op, const char *key)
{
    const pp_session *session = pp_kube_informer_get(op->sessions, key);
    pp_work *work = work_of_key(op, key);
    pp_meter_add(op->meters.reconciles, 1);
    if (work && (!session || strcmp(work->uid, session->uid) != 0)) {
        pp_work_drop(work);
        pp_intake_tell(op);
        work = NULL;
    }
    if (!session || session->deleting || !op->leading)
        return;
    if (pp_session_final(session) && session->ttl_ns < 0) {
        if (work && !work->status_writing)
            pp_work_drop(work);
        return; /* nothing will ever change */
    }
    work = pp_work_get(op, session);
    if (!work) {
        (void)pp_workqueue_retry(op->queue, key, NULL);
        return;
    }
    if (!work->restored && !pp_session_final(session)) {
        pp_record_restore(work);
        /* It comes again when the store has answered. While the store is away a session that has
         * nothing in it is told so. */
        if (session->start_ns || pp_store_ready(op->store, NULL))
            return;
    }
    refresh_stats(work);
    /* A decision is made from what our own last write left, never from what it replaced. */
    if (!work->status_writing && strcmp(work->stale_version, session->resource_version) != 0)
        step(work, session);
    if (pp_session_final(session) && !work->status_writing)
        pp_work_drop(work); /* nothing but its time to live is left */
}
