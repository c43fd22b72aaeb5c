#include "operator/cache/watches.h"

#include "common/log.h"
#include "estimate/replay/dwell_length.h"
#include "operator/cache/pod.h"
#include "operator/cache/session_runtime.h"
#include "operator/state/solve_options.h"
#include "operator/state/state.h"
#include "operator/workloads/workload_metrics.h"

#include <string.h>

enum { SOON_MS = 200 };

/* Sessions are few, and pods that are created wait for them: read before the crowds of pods. */
static const int64_t SESSIONS_TURN_NS = 20 * 1000000;

const pp_kube_resource PP_PROFILESESSIONS = {"precisionprobe.io", "v1alpha1", "profilesessions"};

void pp_watches_enqueue(pp_operator *op, const char *key)
{
    pp_error err = {0};
    if (op->queue && !op->stopping && pp_workqueue_add(op->queue, key, &err) < 0)
        pp_warn(key, "cannot be queued: %s", err.message);
}

void pp_watches_enqueue_soon(pp_operator *op, const char *key)
{
    pp_error err = {0};
    if (op->queue && !op->stopping && pp_workqueue_add_after(op->queue, key, SOON_MS, &err) < 0)
        pp_warn(key, "cannot be queued: %s", err.message);
}

static void on_sessions_error(void *user, const pp_error *error)
{
    pp_warn(NULL, "watching: %s", error->message);
    pp_rights_tell(user, PP_RIGHT_SESSIONS, error);
}

static void on_pods_error(void *user, const pp_error *error)
{
    pp_warn(NULL, "watching: %s", error->message);
    pp_rights_tell(user, PP_RIGHT_PODS, error);
}

pp_session *pp_watches_decode_session(const pp_operator *op, const json_t *object, pp_error *err)
{
    pp_session *session = NULL;
    if (pp_session_decode(object, &session, err) < 0)
        return NULL;
    const pp_regression_options options = pp_solve_attribution(op->config);
    const pp_session_limits limits = {.replay = op->config->replay.allow,
                                      .dwell_ns = pp_replay_length(&options),
                                      .dwell_least_ns = pp_replay_length_least(&options, false),
                                      .dwell_sure_ns = pp_replay_length_least(&options, true)};
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

static void touch_session_soon(pp_operator *op, const pp_session *session)
{
    char key[330];
    (void)snprintf(key, sizeof key, "%s/%s", session->namespace_, session->name);
    pp_watches_enqueue_soon(op, key);
}

static bool touch_one_of_pod(void *user, const pp_session *session)
{
    touch_session_soon(user, session);
    return true;
}

/* All of its sessions say something of it. */
static void touch_sessions_of(pp_operator *op, const pp_pod *pod)
{
    if (op->leading)
        pp_match_each_session(op->matches, pod->uid, touch_one_of_pod, op);
}

void pp_watches_enqueue_pod(pp_operator *op, const pp_pod *pod)
{
    touch_sessions_of(op, pod);
}

static void on_moved(void *user, const void *object)
{
    pp_operator *op = user;
    const pp_pod *pod = object;
    touch_sessions_of(op, pod);
    op->watches_events->moved(op, pod);
}

static void put_session(pp_operator *op, const char *key, const pp_session *session)
{
    pp_error err = {0};
    if (pp_match_put_session(op->matches, session, &err) < 0)
        pp_err(key, "the session cannot be looked at: %s", err.message);
}

static void take_session(pp_operator *op, const char *key, const pp_session *session)
{
    put_session(op, key, session);
    pp_watches_enqueue(op, key);
}

static void on_session(void *user, const char *key, const void *object)
{
    pp_operator *op = user;
    pp_meters_session(&op->meters, NULL, object);
    pp_workload_metrics_session(op, NULL, object);
    take_session(op, key, object);
    op->watches_events->session(op, object);
}

static void on_session_update(void *user, const char *key, const void *old, const void *object)
{
    pp_operator *op = user;
    const pp_session *before = old;
    const pp_session *now = object;
    if (strcmp(before->uid, now->uid) != 0)
        pp_match_drop_session(op->matches, before->uid);
    pp_meters_session(&op->meters, before, now);
    pp_workload_metrics_session(op, before, now);
    take_session(op, key, now);
    if (strcmp(before->uid, now->uid) != 0)
        op->watches_events->session(op, now);
}

static void on_session_delete(void *user, const char *key, const void *last)
{
    pp_operator *op = user;
    pp_match_drop_session(op->matches, ((const pp_session *)last)->uid);
    pp_meters_session(&op->meters, last, NULL);
    pp_workload_metrics_session(op, last, NULL);
    pp_watches_enqueue(op, key);
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

static void put_pod(pp_operator *op, const pp_pod *pod)
{
    pp_inject_pod_view view;
    pp_error err = {0};
    pp_pod_for_inject(pod, &view);
    if (pp_match_put_pod(op->matches, pod->uid, &view, pod, &err) < 0)
        pp_err(pod->name, "the pod cannot be looked at: %s", err.message);
}

static void on_pod(void *user, const char *key, const void *object)
{
    pp_operator *op = user;
    (void)key;
    put_pod(op, object);
    touch_sessions_of(op, object);
    op->watches_events->seen(op, object);
}

static void on_pod_delete(void *user, const char *key, const void *last)
{
    pp_operator *op = user;
    const pp_pod *pod = last;
    (void)key;
    touch_sessions_of(op, pod);
    op->watches_events->gone(op, pod);
    pp_match_drop_pod(op->matches, pod->uid);
}

static void on_pod_update(void *user, const char *key, const void *old, const void *object)
{
    pp_operator *op = user;
    const pp_pod *before = old;
    const pp_pod *now = object;
    touch_sessions_of(op, before);
    if (strcmp(before->uid, now->uid) != 0) {
        op->watches_events->gone(op, before);
        pp_match_drop_pod(op->matches, before->uid);
    }
    on_pod(user, key, object);
    op->watches_events->pod(op, now);
}

static bool touch_any(void *user, const char *key, const void *object)
{
    (void)object;
    pp_watches_enqueue(user, key);
    return true;
}

void pp_watches_enqueue_all(pp_operator *op)
{
    if (op->sessions && op->leading)
        pp_kube_informer_each(op->sessions, touch_any, op);
}

/* What was looked at before both lists were there was put off: now is the time. */
static void on_synced(void *user)
{
    pp_watches_enqueue_all(user);
}

int pp_watches_start(pp_operator *op, const pp_watches_events *events, pp_error *err)
{
    op->watches_events = events;
    op->matches = pp_match_index_new(on_moved, op);
    if (!op->matches)
        return pp_error_nomem(err);
    const char *ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL;
    const pp_kube_informer_options sessions = {.resource = &PP_PROFILESESSIONS,
                                               .ns = ns,
                                               .turn_ns = SESSIONS_TURN_NS,
                                               .handler = {.decode = decode_session,
                                                           .free_object = free_session,
                                                           .on_add = on_session,
                                                           .on_update = on_session_update,
                                                           .on_delete = on_session_delete,
                                                           .on_synced = on_synced,
                                                           .on_error = on_sessions_error,
                                                           .user = op}};
    const pp_kube_informer_options pods = {.resource = &PP_KUBE_PODS,
                                           .ns = ns,
                                           .handler = {.decode = decode_pod,
                                                       .free_object = free_pod,
                                                       .on_add = on_pod,
                                                       .on_update = on_pod_update,
                                                       .on_delete = on_pod_delete,
                                                       .on_synced = on_synced,
                                                       .on_error = on_pods_error,
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
