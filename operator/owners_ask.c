#include "common/log.h"
#include "common/time.h"
#include "operator/owners.h"
#include "operator/pending_call.h"
#include "operator/session_runtime.h"
#include "operator/state.h"
#include "operator/watches.h"

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
    pp_runtime *work = pp_runtime_same(q->context.op, q->session_uid, q->serial);
    if (work) {
        pp_session_owner *owner = &work->owners.items[q->owner];
        bool gone = error && error->code == PP_ERR_NOT_FOUND;
        work->owners.asking = false;
        if (!error || gone)
            owner->state = pp_owner_state_of(owner->kind, gone ? NULL : object);
        else if (error->code == PP_ERR_DENIED || error->code == PP_ERR_UNAUTHORIZED)
            owner->state = PP_OWNER_UNKNOWN;
        if (error && !gone)
            pp_warn(work->key, "asking whether %s %s makes another pod: %s",
                    pp_owner_kind_name(owner->kind), owner->name, error->message);
        pp_watches_enqueue(q->context.op, work->key);
    }
    pp_pending_call_free(q);
}

static void start(pp_runtime *work, const pp_session *session, size_t i)
{
    pp_session_owner *owner = &work->owners.items[i];
    inquiry *q = pp_pending_call_new(work->op, sizeof *q, NULL);
    if (!q)
        return;
    q->serial = work->serial;
    q->owner = i;
    (void)snprintf(q->session_uid, sizeof q->session_uid, "%s", work->uid);
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &resources[owner->kind],
                               .ns = session->namespace_,
                               .name = owner->name,
                               .done = on_owner,
                               .user = q};
    if (pp_kube_call_start(work->op->kube, &call, NULL, NULL) < 0)
        pp_pending_call_free(q);
    else
        work->owners.asking = true;
}

void pp_owners_ask(pp_runtime *work, const pp_session *session)
{
    int64_t now = pp_time_monotonic(), again;
    int next = pp_owners_next(&work->owners, now, &again);
    for (; next >= 0; next = pp_owners_next(&work->owners, now, &again)) {
        work->owners.asked_ns[next] = now;
        if (work->owners.items[next].kind != PP_OWNER_OTHER) {
            start(work, session, (size_t)next);
            return;
        }
        work->owners.items[next].state = PP_OWNER_UNKNOWN;
        pp_watches_enqueue(work->op, work->key);
    }
    if (again)
        (void)pp_workqueue_add_after(work->op->queue, work->key,
                                     (again - now) / INT64_C(1000000) + 1, NULL);
}
