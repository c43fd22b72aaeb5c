#include "operator/watches.h"

#include "common/log.h"
#include "operator/pod.h"
#include "operator/solve.h"
#include "operator/state.h"
#include "operator/work.h"

#include <string.h>

enum { SOON_MS = 200 };

const pp_kube_resource PP_PROFILESESSIONS = {"precisionprobe.io", "v1alpha1", "profilesessions"};

typedef struct search {
    const char *uid;
    const pp_session *found;
} search;

static bool look_for_uid(void *user, const char *key, const void *object)
{
    search *s = user;
    const pp_session *session = object;
    (void)key;
    if (strcmp(session->uid, s->uid) == 0)
        s->found = session;
    return !s->found;
}

const pp_session *pp_watches_find_session(const pp_operator *op, const char *uid)
{
    search s = {.uid = uid};
    const pp_work *work = pp_work_find(op, uid);
    if (!op->sessions)
        return NULL;
    if (work) { /* its key saves the search */
        s.found = pp_kube_informer_get(op->sessions, work->key);
        return s.found && strcmp(s.found->uid, uid) == 0 ? s.found : NULL;
    }
    pp_kube_informer_each(op->sessions, look_for_uid, &s);
    return s.found;
}

typedef struct holder_search {
    pp_inject_carrier pod;
    const pp_session *best;
} holder_search;

static bool look_for_holder(void *user, const char *key, const void *object)
{
    holder_search *s = user;
    const pp_session *const two[] = {s->best, object};
    (void)key;
    s->best = pp_inject_holder(two, 2, &s->pod);
    return true;
}

const pp_session *pp_watches_holder(const pp_operator *op, const pp_pod *pod)
{
    holder_search s = {.best = NULL};
    pp_pod_carrier(pod, &s.pod);
    if (op->sessions)
        pp_kube_informer_each(op->sessions, look_for_holder, &s);
    return s.best;
}

void pp_watches_touch(pp_operator *op, const char *key)
{
    pp_error err = {0};
    if (op->queue && !op->stopping && pp_workqueue_add(op->queue, key, &err) < 0)
        pp_warn(key, "cannot be queued: %s", err.message);
}

void pp_watches_touch_soon(pp_operator *op, const char *key)
{
    pp_error err = {0};
    if (op->queue && !op->stopping && pp_workqueue_add_after(op->queue, key, SOON_MS, &err) < 0)
        pp_warn(key, "cannot be queued: %s", err.message);
}

static void on_watch_error(void *user, const pp_error *error)
{
    (void)user;
    pp_warn(NULL, "watching: %s", error->message);
}

pp_session *pp_watches_decode_session(const pp_operator *op, const json_t *object, pp_error *err)
{
    pp_session *session = NULL;
    if (pp_session_decode(object, &session, err) < 0)
        return NULL;
    const pp_attribution_options options = pp_solve_attribution(op->config);
    const pp_session_limits limits = {.isolated = op->config->isolated.allow,
                                      .dwell_ns = pp_solution_dwell(&options),
                                      .dwell_least_ns = pp_solution_dwell_least(&options, false),
                                      .dwell_sure_ns = pp_solution_dwell_least(&options, true)};
    pp_session_allow(session, &limits);
    return session;
}

static void *decode_session(void *user, const json_t *object, pp_error *err)
{
    return pp_watches_decode_session(user, object, err);
}

static void free_session(void *object)
{
    pp_session_free(object);
}

typedef struct touch_neighbours {
    pp_operator *op;
    const char *ns;
} touch_neighbours;

static bool touch_neighbour(void *user, const char *key, const void *object)
{
    const touch_neighbours *t = user;
    const pp_session *session = object;
    if (strcmp(session->namespace_, t->ns) == 0)
        pp_watches_touch_soon(t->op, key);
    return true;
}

/* A session has come or ended: pods that carry the hook may be another's from now on. */
static void pods_change_hands(pp_operator *op, const pp_session *session)
{
    touch_neighbours t = {.op = op, .ns = session->namespace_};
    if (!op->leading)
        return;
    pp_kube_informer_each(op->sessions, touch_neighbour, &t);
    op->watches_events->hands(op);
}

static void on_session(void *user, const char *key, const void *object)
{
    pp_watches_touch(user, key);
    pods_change_hands(user, object);
}

static void on_session_update(void *user, const char *key, const void *old, const void *object)
{
    pp_watches_touch(user, key);
    if (pp_session_live(old) != pp_session_live(object))
        pods_change_hands(user, object);
}

static void *decode_pod(void *user, const json_t *object, pp_error *err)
{
    (void)user;
    return pp_pod_decode(object, err);
}

static void free_pod(void *object)
{
    pp_pod_free(object);
}

typedef struct touch_context {
    pp_operator *op;
    const pp_pod *pod;
} touch_context;

/* Looks again at the sessions that a pod is of, or would be. */
static bool touch_if_concerned(void *user, const char *key, const void *object)
{
    const touch_context *c = user;
    const pp_session *session = object;
    if (strcmp(session->namespace_, c->pod->ns) == 0 &&
        ((c->pod->session_uid && strcmp(c->pod->session_uid, session->uid) == 0) ||
         pp_selector_matches(&session->selector, c->pod->labels)))
        pp_watches_touch_soon(c->op, key);
    return true;
}

static void on_pod(void *user, const char *key, const void *object)
{
    pp_operator *op = user;
    touch_context c = {.op = op, .pod = object};
    (void)key;
    if (op->leading)
        pp_kube_informer_each(op->sessions, touch_if_concerned, &c);
}

static void on_pod_update(void *user, const char *key, const void *old, const void *object)
{
    pp_operator *op = user;
    const pp_pod *before = old;
    pp_pod *now = (pp_pod *)(uintptr_t)object; /* the cache is ours */
    if (strcmp(before->uid, now->uid) == 0) {
        now->ask_ns = before->ask_ns;
        now->refusal = before->refusal;
    }
    on_pod(user, key, object);
    if (now->hooked && !json_equal(before->labels, now->labels))
        op->watches_events->hands(op);
    op->watches_events->pod(op, now);
}

static bool touch_any(void *user, const char *key, const void *object)
{
    (void)object;
    pp_watches_touch(user, key);
    return true;
}

void pp_watches_touch_all(pp_operator *op)
{
    if (op->sessions && op->leading)
        pp_kube_informer_each(op->sessions, touch_any, op);
}

/* What was looked at before both lists were there was put off: now is the time. */
static void on_synced(void *user)
{
    pp_watches_touch_all(user);
}

int pp_watches_start(pp_operator *op, const pp_watches_events *events, pp_error *err)
{
    op->watches_events = events;
    const char *ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL;
    const pp_kube_informer_options sessions = {.resource = &PP_PROFILESESSIONS,
                                               .ns = ns,
                                               .handler = {.decode = decode_session,
                                                           .free_object = free_session,
                                                           .on_add = on_session,
                                                           .on_update = on_session_update,
                                                           .on_delete = on_session,
                                                           .on_synced = on_synced,
                                                           .on_error = on_watch_error,
                                                           .user = op}};
    const pp_kube_informer_options pods = {.resource = &PP_KUBE_PODS,
                                           .ns = ns,
                                           .handler = {.decode = decode_pod,
                                                       .free_object = free_pod,
                                                       .on_add = on_pod,
                                                       .on_update = on_pod_update,
                                                       .on_delete = on_pod,
                                                       .on_synced = on_synced,
                                                       .on_error = on_watch_error,
                                                       .user = op}};
    op->sessions = pp_kube_informer_new(op->kube, &sessions, err);
    op->pods = op->sessions ? pp_kube_informer_new(op->kube, &pods, err) : NULL;
    return op->pods ? 0 : -1;
}

bool pp_watches_synced(const pp_operator *op)
{
    return op->sessions && op->pods && pp_kube_informer_synced(op->sessions) &&
           pp_kube_informer_synced(op->pods);
}
