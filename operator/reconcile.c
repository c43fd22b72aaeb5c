#include "operator/reconcile.h"
#include "operator/installation/rights_ask.h"
#include "operator/pods/owners_ask.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "operator/cache/session_runtime.h"
#include "operator/cache/watches.h"
#include "operator/installation/addresses.h"
#include "operator/installation/tls.h"
#include "operator/pods/explain.h"
#include "operator/pods/silent.h"
#include "operator/pods/stuck.h"
#include "operator/samples/agent_connections.h"
#include "operator/samples/record.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>

/*
 * One session's turn: observe (caches, what the store said last, what agents reported), let the
 * controller decide, carry the decision out. It may run as often as it likes; whatever it needs to
 * remember is in the session's status or in the store.
 */

enum {
    STATS_EVERY_MS = 1000,   /* between readings of a session's figures */
    STEADY_EVERY_MS = 10000, /* where nothing is decided by them */
    FINISH_MS = 780000,      /* of finishing, besides prometheus.maxWait */
    SEEK_EVERY_MS = 60000,   /* between searches for a pod that nearly matches */
    SEEK_MOST = 200,         /* pods that are looked at for it, the newest */
};

static const int64_t MILLISECOND = 1000000;

/* ---- observing ---- */

typedef struct gather_pods {
    const pp_operator *op;
    const pp_session *session;
    pp_runtime *runtime;
    int64_t now_ns;
    pp_session_pod *items;
    size_t count;
    size_t capacity;
} gather_pods;

static const pp_runtime_target *target_of(const gather_pods *g, const char *pod_uid)
{
    pp_runtime_target *target = NULL;
    HASH_FIND_STR(g->runtime->targets, pod_uid, target);
    return target;
}

static void add_part(const pp_runtime_target *target, pp_session_pod *view)
{
    view->owner = target->owner;
    view->owner_name = target->owner_name;
    view->lived_from_ns = target->lived_from_ns;
    view->lived_to_ns = target->lived_to_ns;
    view->heard_from_ns = target->heard_from_ns;
    view->heard_to_ns = target->heard_to_ns;
    view->idle = target->idle;
    view->n_idle = target->n_idle;
    view->refused_why = target->refused_why;
    view->clock = &target->clock;
    view->last_batch_ns = target->last_batch_ns;
    view->steps = target->steps;
}

static void add_what_agents_reported(const gather_pods *g, const pp_pod *pod, pp_session_pod *view)
{
    pp_runtime_target *target = pp_runtime_get_target(g->runtime, pod->uid);
    view->connected = pp_connections_has_peer(g->op, view->uid);
    if (!target)
        return;
    if (!target->name)
        target->name = strdup(pod->name);
    if (!target->owner_name && pod->owner != PP_OWNER_NONE)
        target->owner_name = strdup(pod->owner_name);
    target->owner = pod->owner;
    target->turn = g->runtime->turn;
    pp_owners_note(&g->runtime->owners, pod);
    pp_runtime_see(target, view, g->now_ns);
    add_part(target, view);
    view->gpus = (const char *const *)target->gpus.items;
    view->n_gpus = target->gpus.count;
    view->rank = target->rank;
    view->open_capture = target->open_capture;
    view->events = target->events;
    view->dropped = target->dropped;
    view->epoch = target->epoch;
    view->batch = target->batch;
    view->pm = target->pm;
    view->pm_why = target->pm_why;
    view->replays = target->replays;
    view->replaying = target->replaying;
    view->isolated = target->isolated;
}

/* One that has reported was there: it is lost, or its batches are on their way. */
static void add_silence(const gather_pods *g, pp_session_pod *view)
{
    if (!pp_session_live(g->session) || view->last_batch_ns > 0)
        return;
    view->awaits_agent = pp_silent_awaits_agent(g->op, view->uid);
    if (!view->trouble)
        view->trouble = pp_silent_trouble(g->op, view->uid);
}

/* Whose the pod is, for this session. */
static const char *whose(const gather_pods *g, const pp_pod *pod, const pp_session *holder)
{
    const pp_runtime_target *target = target_of(g, pod->uid);
    return pp_session_whose(g->session,
                            &(pp_session_claim){.injected_for = pod->session_uid,
                                                .hooked = pod->hooked,
                                                .reported = target && target->last_batch_ns > 0,
                                                .holder = holder});
}

static pp_session_pod *add_view(gather_pods *g)
{
    if (g->count == g->capacity) {
        size_t capacity = g->capacity ? g->capacity * 2 : 16;
        pp_session_pod *items = realloc(g->items, capacity * sizeof *items);
        if (!items)
            return NULL;
        g->items = items;
        g->capacity = capacity;
    }
    return &g->items[g->count++];
}

static bool gather_pod(void *user, const void *object, const pp_session *holder)
{
    gather_pods *g = user;
    const pp_pod *pod = object;
    const char *session_uid = whose(g, pod, holder);
    bool injected = session_uid && strcmp(session_uid, g->session->uid) == 0;
    if (!injected && pod->hooked && !pp_session_live(g->session))
        return true; /* it is for sessions to come */
    pp_session_pod *view = add_view(g);
    if (!view)
        return false;
    pp_pod_view(pod, view);
    view->session_uid = session_uid;
    view->trouble = pp_stuck_trouble(g->op, pod->uid);
    view->session_name = holder && session_uid == holder->uid ? holder->name : NULL;
    if (injected) {
        add_what_agents_reported(g, pod, view);
        add_silence(g, view);
    } else if (!pod->hooked) {
        pp_explain_pod(g->runtime, g->session, pod, view);
    }
    return true;
}

typedef struct membership {
    const pp_session *session;
    bool found;
} membership;

static bool look_for_session(void *user, const pp_session *session)
{
    membership *m = user;
    m->found = session == m->session;
    return !m->found;
}

/* Pods that have reported stay the session's when their labels change. */
static void gather_former_pods(gather_pods *g)
{
    const pp_match_index *matches = g->op->matches;
    for (const pp_runtime_target *t = g->runtime->targets; t; t = t->hh.next) {
        const pp_pod *pod = t->last_batch_ns > 0 ? pp_match_pod(matches, t->pod_uid) : NULL;
        membership m = {.session = g->session};
        if (!pod || strcmp(pod->ns, g->session->namespace_) != 0)
            continue;
        pp_match_each_session(matches, t->pod_uid, look_for_session, &m);
        if (!m.found)
            (void)gather_pod(g, pod, pp_match_holder(matches, t->pod_uid));
    }
}

/* One that was only offered to the session, and lost its labels before it sent anything. */
static bool was_never_its_own(const gather_pods *g, const pp_runtime_target *t)
{
    return t->last_batch_ns <= 0 && pp_match_pod(g->op->matches, t->pod_uid);
}

/* Pods of its own that were deleted: how much was measured in them counts in the end. */
static void gather_gone_pods(gather_pods *g)
{
    for (const pp_runtime_target *t = g->runtime->targets; t; t = t->hh.next) {
        bool seen = t->turn == g->runtime->turn || was_never_its_own(g, t);
        pp_session_pod *view = seen ? NULL : add_view(g);
        if (!view)
            continue;
        *view = (pp_session_pod){.name = t->name ? t->name : t->pod_uid,
                                 .uid = t->pod_uid,
                                 .session_uid = g->session->uid,
                                 .gone = true,
                                 .rank = -1,
                                 .epoch = -1,
                                 .batch = -1};
        add_part(t, view);
    }
}

typedef struct seeking {
    const pp_session *session;
    pp_selector_near *near;
    unsigned left;
} seeking;

static bool look_at_stranger(void *user, const void *object)
{
    seeking *s = user;
    const pp_pod *pod = object;
    if (!pod->finished)
        pp_selector_near_add(s->near, &s->session->selector, pod->name, pod->labels);
    return --s->left > 0;
}

/* No pod matches for a while: whether one nearly does. */
static void seek_near(pp_runtime *runtime, const pp_session *session,
                      pp_session_observation *observation)
{
    if (!pp_session_seeks_near(observation, NULL))
        return;
    int64_t now = pp_time_monotonic();
    if (!runtime->near)
        runtime->near = calloc(1, sizeof *runtime->near);
    if (runtime->near && now >= runtime->near_after_ns) {
        *runtime->near = (pp_selector_near){0};
        runtime->near_after_ns = now + SEEK_EVERY_MS * MILLISECOND;
        seeking s = {.session = session, .near = runtime->near, .left = SEEK_MOST};
        pp_match_each_of_namespace(runtime->op->matches, session->namespace_, look_at_stranger, &s);
    }
    observation->near = runtime->near;
}

/* ---- carrying out ---- */

/* The longest pause after status writes that failed. */
enum { STATUS_RETRY_MS = 60000, STALE_MS = 10000 };

static void write_row(pp_runtime *runtime, const pp_session *session,
                      const pp_session_decision *decision)
{
    if (runtime->row_written && runtime->row_generation == session->generation &&
        runtime->row_phase == decision->phase)
        return;
    if (pp_record_session(runtime, session, decision) == 0) {
        runtime->row_written = true;
        runtime->row_generation = session->generation;
        runtime->row_phase = decision->phase;
    }
}

/* What a status patch needs to find its session's work again, which may have gone meanwhile. */
typedef struct write_context {
    pp_pending_call context;
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

static void status_written(pp_runtime *runtime, const write_context *context, const json_t *object)
{
    const char *version = pp_json_get_string(object, "metadata", "resourceVersion", NULL);
    runtime->status_failures = 0;
    runtime->stale_until_ns = 0;
    runtime->stale_version[0] = '\0';
    runtime->status_written_ns = pp_time_monotonic();
    if (version && strcmp(version, context->version) != 0)
        (void)snprintf(runtime->stale_version, sizeof runtime->stale_version, "%s",
                       context->version);
    pp_workqueue_forget(runtime->op->queue, runtime->key);
    pp_watches_enqueue(runtime->op, runtime->key);
}

/* Somebody has written since: a decision waits for what the watch brings of that, which it may have
 * done already, or would meet the same conflict. Should nothing come, it is made after a while. */
static void status_conflicted(pp_runtime *runtime, const write_context *context)
{
    (void)snprintf(runtime->stale_version, sizeof runtime->stale_version, "%s", context->version);
    runtime->stale_until_ns = pp_time_monotonic() + STALE_MS * MILLISECOND;
    pp_watches_enqueue(runtime->op, runtime->key);
}

/* Whether the session as it is known here is one that a write has replaced. It comes again with
 * what the watch brings, or when it has waited for that long enough. */
static bool is_stale(pp_runtime *runtime, const pp_session *session)
{
    if (strcmp(runtime->stale_version, session->resource_version) != 0)
        return false;
    if (!runtime->stale_until_ns)
        return true;
    const int64_t left = runtime->stale_until_ns - pp_time_monotonic();
    if (left <= 0)
        return false;
    (void)pp_workqueue_add_after(runtime->op->queue, runtime->key, left / MILLISECOND + 1, NULL);
    return true;
}

/* Nothing is written before the pause is over, however often the session is looked at. */
static void status_failed(pp_runtime *runtime)
{
    int64_t wait = pp_workqueue_backoff_ms(runtime->status_failures);
    if (runtime->status_failures < 20)
        runtime->status_failures++;
    if (wait > STATUS_RETRY_MS)
        wait = STATUS_RETRY_MS;
    runtime->status_retry_ns = pp_time_monotonic() + wait * MILLISECOND;
    (void)pp_workqueue_add_after(runtime->op->queue, runtime->key, wait + 1, NULL);
}

static void on_status_written(void *user, json_t *object, const pp_error *error)
{
    write_context *context = user;
    pp_operator *op = context->context.op;
    pp_runtime *runtime = pp_runtime_same(op, context->uid, context->serial);
    if (runtime)
        runtime->status_writing = false;
    pp_rights_tell_written(op, error);
    if (!error)
        emit_events(context);
    if (runtime && !error)
        status_written(runtime, context, object);
    else if (runtime && error->code == PP_ERR_CONFLICT)
        status_conflicted(runtime, context);
    else if (runtime)
        status_failed(runtime);
    if (error && error->code != PP_ERR_NOT_FOUND) {
        if (error->code != PP_ERR_CONFLICT)
            pp_warn(context->key, "writing the status: %s", error->message);
        pp_meter_add(op->meters.status_failures, 1);
    }
    pp_pending_call_free(context);
}

/*
 * The patch carries the resourceVersion that the decision was made from: when the object has
 * changed meanwhile the server answers with a conflict, and the newer state is decided upon anew.
 */
static int send_status(pp_runtime *runtime, const pp_session *session,
                       const pp_session_decision *decision, json_t *patch)
{
    write_context *context = pp_pending_call_new(runtime->op, sizeof *context, NULL);
    if (!context)
        return -1;
    context->serial = runtime->serial;
    (void)snprintf(context->uid, sizeof context->uid, "%s", session->uid);
    (void)snprintf(context->ns, sizeof context->ns, "%s", session->namespace_);
    (void)snprintf(context->name, sizeof context->name, "%s", session->name);
    (void)snprintf(context->key, sizeof context->key, "%s", runtime->key);
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
    if (pp_kube_call_start(runtime->op->kube, &call, NULL, NULL) < 0) {
        pp_pending_call_free(context);
        return -1;
    }
    runtime->status_writing = true;
    return 0;
}

static pp_status_news news_of(const pp_session *session, const pp_session_decision *decision,
                              const json_t *patch)
{
    if (decision->phase != session->phase || !session->has_status)
        return PP_STATUS_PHASE;
    if (decision->urgent)
        return PP_STATUS_CONDITION;
    return pp_session_status_matters(decision, patch) ? PP_STATUS_TEXTS : PP_STATUS_FIGURES;
}

/* Returns how long what is to be written has to wait, ns; 0: it is written, or nothing differs. */
static int64_t write_status(pp_runtime *runtime, const pp_session *session,
                            const pp_session_decision *decision)
{
    PP_CLEANUP_JSON json_t *patch = pp_session_status_json(decision, session->status);
    if (!patch || !json_object_get(patch, "status"))
        return 0;
    const size_t sessions = HASH_COUNT(runtime->op->runtimes);
    int64_t wait = pp_runtime_status_wait(runtime, news_of(session, decision, patch), sessions,
                                          pp_time_monotonic());
    if (wait == 0 && send_status(runtime, session, decision, patch) < 0)
        status_failed(runtime);
    return wait;
}

/* An expired session's deletion. */
typedef struct removal {
    pp_pending_call context;
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
    pp_pending_call_free(r);
}

static void remove_session(pp_operator *op, const pp_session *session)
{
    /* The version too: its time to live may have been made longer. */
    PP_CLEANUP_JSON json_t *body = json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "v1", "kind",
                                             "DeleteOptions", "preconditions", "uid", session->uid,
                                             "resourceVersion", session->resource_version);
    removal *r = pp_pending_call_new(op, sizeof *r, NULL);
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
        pp_pending_call_free(r);
    }
}

/* Deletes a session that has ended once its time is over, on this process' clock. */
static void expire(pp_operator *op, const pp_session *session)
{
    char key[330];
    int64_t at = pp_session_expires_ns(session);
    int64_t left = at - pp_time_now();
    if (!at)
        return;
    (void)snprintf(key, sizeof key, "%s/%s", session->namespace_, session->name);
    if (left > 0)
        (void)pp_workqueue_add_after(op->queue, key, left / MILLISECOND + 1, NULL);
    else
        remove_session(op, session);
}

static void carry_out(pp_runtime *runtime, const pp_session *session,
                      const pp_session_decision *decision)
{
    pp_operator *op = runtime->op;
    if (!decision->frozen)
        write_row(runtime, session, decision);
    if (!runtime->decided || decision->sampling != runtime->sampling) {
        runtime->decided = true;
        runtime->sampling = decision->sampling;
        pp_connections_tell_session(op, session->uid);
    }
    runtime->collect = decision->collect && runtime->restored;
    if (runtime->collect)
        pp_runtime_wake(runtime);
    if (decision->finalise && !runtime->finalise) {
        runtime->finalise = true;
        pp_runtime_unsolved(runtime);
    }
    int64_t later = write_status(runtime, session, decision);
    if (decision->ask_owners)
        pp_owners_ask(runtime, session);
    else
        pp_owners_forget(&runtime->owners);
    int64_t wait = decision->requeue_ns;
    if (later && (wait == 0 || wait > later))
        wait = later;
    if (wait > 0)
        (void)pp_workqueue_add_after(op->queue, runtime->key, wait / MILLISECOND + 1, NULL);
}

/* ---- the turn ---- */

/* Room for what is wrong with the operator itself. */
typedef struct operator_troubles {
    char rights[256], service[PP_ADDRESSES_TROUBLE], webhook[PP_TLS_TROUBLE];
} operator_troubles;

static void observe_operator(const pp_operator *op, operator_troubles *room,
                             pp_session_observation *to)
{
    if (pp_rights_missing(&op->rights, pp_time_monotonic(), room->rights, sizeof room->rights))
        to->rights_error = room->rights;
    to->service_error = pp_addresses_trouble(op, room->service, sizeof room->service);
    to->webhook_error = pp_tls_trouble(op, room->webhook, sizeof room->webhook);
}

static void step(pp_runtime *runtime, const pp_session *session)
{
    pp_operator *op = runtime->op;
    gather_pods g = {.op = op, .session = session, .runtime = runtime, .now_ns = pp_time_now()};
    runtime->turn++;
    pp_refusals_begin(&runtime->refusals);
    pp_match_each_pod(op->matches, session->uid, gather_pod, &g);
    gather_former_pods(&g);
    gather_gone_pods(&g);
    pp_refusals_end(&runtime->refusals);
    const pp_unprobed_owner *refused = pp_stuck_refused(op, session);
    const char *store_text = NULL;
    operator_troubles troubles;
    bool store_up = pp_store_ready(op->store, &store_text);
    pp_session_observation observation = {
        .session = session,
        .now_ns = g.now_ns,
        .pods = g.items,
        .n_pods = g.count,
        .owners = runtime->owners.items,
        .n_owners = runtime->owners.count,
        .stats = runtime->stats,
        .creation_refused = refused ? refused->refusal.message : NULL,
        .store_error = store_up ? NULL : store_text,
        .unread = !runtime->restored,
        .prometheus_error = runtime->prometheus_error[0] ? runtime->prometheus_error : NULL,
        .prometheus_warning = runtime->prometheus_warning[0] ? runtime->prometheus_warning : NULL,
        .prometheus_asked = runtime->asked,
        .prometheus_shift_ns = runtime->prometheus_shift_ns,
        .prometheus_off = !op->prometheus,
        .sampling_asked = pp_session_asks_sampling(session, op->config->sampling.by_auto),
        .solve_error = runtime->solve_error[0] ? runtime->solve_error : NULL,
        .solve_failures = runtime->solve_failures,
        .serving_since_ns = op->serving_since_ns,
        .expire_s = op->config->sessions.ttl_seconds,
        .under_way = runtime->unsolved || runtime->solving || runtime->deliveries ||
                     runtime->stats_dirty || runtime->stats_loading,
    };
    observe_operator(op, &troubles, &observation);
    observation.stats.samples_complete =
        !op->prometheus || (runtime->queries == 0 && pp_plan_complete(runtime->plan));
    memcpy(observation.trouble_since_ns, runtime->trouble_since_ns,
           sizeof runtime->trouble_since_ns);
    seek_near(runtime, session, &observation);
    /* Samples are awaited for as long as the configuration says, and then some. */
    const int64_t finish_ns = op->config->prometheus.max_wait + FINISH_MS * MILLISECOND;
    const pp_session_options options = {.finish_ns = finish_ns};
    pp_session_decision decision;
    pp_error err = {0};
    if (pp_session_step(&observation, &options, &decision, &err) < 0) {
        pp_err(session->name, "deciding: %s", err.message);
        (void)pp_workqueue_retry(op->queue, runtime->key, NULL);
    } else {
        memcpy(runtime->trouble_since_ns, decision.trouble_since_ns,
               sizeof runtime->trouble_since_ns);
        carry_out(runtime, session, &decision);
        pp_session_decision_done(&decision);
    }
    free(g.items);
}

static void refresh_stats(pp_runtime *runtime, const pp_session *session)
{
    if (!runtime->stats_dirty || runtime->stats_loading)
        return;
    int64_t every = pp_runtime_is_steady(runtime, session) ? STEADY_EVERY_MS : STATS_EVERY_MS;
    int64_t from = runtime->stats_loaded_ns + every * MILLISECOND;
    int64_t wait = runtime->stats_loaded_ns ? from - pp_time_monotonic() : 0;
    if (wait > 0)
        (void)pp_workqueue_add_after(runtime->op->queue, runtime->key, wait / MILLISECOND + 1,
                                     NULL);
    else
        pp_record_load_stats(runtime);
}

void pp_reconcile(pp_operator *op, const char *key)
{
    const pp_session *session = pp_kube_informer_get(op->sessions, key);
    pp_runtime *runtime = pp_runtime_of_key(op, key);
    if (runtime && (!session || strcmp(runtime->uid, session->uid) != 0)) {
        pp_runtime_drop(runtime);
        runtime = NULL;
    }
    if (!session || session->deleting || !op->leading) {
        pp_workqueue_forget(op->queue, key);
        return;
    }
    if (pp_session_final(session)) {
        pp_workqueue_forget(op->queue, key);
        if (runtime && !runtime->status_writing)
            pp_runtime_drop(runtime);
        expire(op, session);
        return; /* nothing else will ever change */
    }
    runtime = pp_runtime_get(op, session);
    if (!runtime) {
        (void)pp_workqueue_retry(op->queue, key, NULL);
        return;
    }
    if (!runtime->restored) {
        pp_record_restore(runtime);
        /* It comes again when the store has answered. While the store is away, that is told. */
        if (pp_store_ready(op->store, NULL))
            return;
    }
    refresh_stats(runtime, session);
    /* A decision is made from what our own last write left, never from what it replaced. */
    if (!runtime->status_writing && !is_stale(runtime, session))
        step(runtime, session);
}
