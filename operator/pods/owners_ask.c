#include "operator/pods/owners_ask.h"

#include "common/log.h"
#include "common/time.h"
#include "operator/cache/owners.h"
#include "operator/cache/session_runtime.h"
#include "operator/cache/watches.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdio.h>

static const pp_kube_resource resources[] = {
    [PP_OWNER_JOB] = {"batch", "v1", "jobs"},
    [PP_OWNER_DEPLOYMENT] = {"apps", "v1", "deployments"},
    [PP_OWNER_REPLICA_SET] = {"apps", "v1", "replicasets"},
    [PP_OWNER_STATEFUL_SET] = {"apps", "v1", "statefulsets"},
    [PP_OWNER_DAEMON_SET] = {"apps", "v1", "daemonsets"},
};

const pp_kube_resource *pp_owners_resource(pp_owner_kind kind)
{
    return (size_t)kind < sizeof resources / sizeof resources[0] && resources[kind].plural
               ? &resources[kind]
               : NULL;
}

typedef struct inquiry {
    pp_pending_call context;
    char session_uid[64];
    uint64_t serial; /* of the work */
    size_t owner;
} inquiry;

static void on_owner(void *user, json_t *object, const pp_error *error)
{
    inquiry *q = user;
    pp_runtime *runtime = pp_runtime_same(q->context.op, q->session_uid, q->serial);
    if (runtime) {
        pp_session_owner *owner = &runtime->owners.items[q->owner];
        bool gone = error && error->code == PP_ERR_NOT_FOUND;
        runtime->owners.asking = false;
        owner->managed = owner->managed || (!error && pp_owner_is_managed(object));
        if (!error || gone)
            owner->state = pp_owner_state_of(owner->kind, gone ? NULL : object, owner->managed);
        else if (error->code == PP_ERR_DENIED || error->code == PP_ERR_UNAUTHORIZED)
            owner->state = PP_OWNER_UNKNOWN;
        if (error && !gone)
            pp_warn(runtime->key, "asking whether %s %s makes another pod: %s",
                    pp_owner_kind_name(owner->kind), owner->name, error->message);
        pp_watches_enqueue(q->context.op, runtime->key);
    }
    pp_pending_call_free(q);
}

static void start(pp_runtime *runtime, const pp_session *session, size_t i)
{
    pp_session_owner *owner = &runtime->owners.items[i];
    inquiry *q = pp_pending_call_new(runtime->op, sizeof *q, NULL);
    if (!q)
        return;
    q->serial = runtime->serial;
    q->owner = i;
    (void)snprintf(q->session_uid, sizeof q->session_uid, "%s", runtime->uid);
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &resources[owner->kind],
                               .ns = session->namespace_,
                               .name = owner->name,
                               .done = on_owner,
                               .user = q};
    if (pp_kube_call_start(runtime->op->kube, &call, NULL, NULL) < 0)
        pp_pending_call_free(q);
    else
        runtime->owners.asking = true;
}

void pp_owners_ask(pp_runtime *runtime, const pp_session *session)
{
    int64_t now = pp_time_monotonic(), again;
    int next = pp_owners_next(&runtime->owners, now, &again);
    for (; next >= 0; next = pp_owners_next(&runtime->owners, now, &again)) {
        runtime->owners.asked_ns[next] = now;
        if (runtime->owners.items[next].kind != PP_OWNER_OTHER) {
            start(runtime, session, (size_t)next);
            return;
        }
        runtime->owners.items[next].state = PP_OWNER_UNKNOWN;
        pp_watches_enqueue(runtime->op, runtime->key);
    }
    if (again)
        (void)pp_workqueue_add_after(runtime->op->queue, runtime->key,
                                     (again - now) / INT64_C(1000000) + 1, NULL);
}
