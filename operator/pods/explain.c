#include "operator/pods/explain.h"

#include "common/time.h"
#include "operator/cache/session_runtime.h"
#include "operator/pods/admission.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>

/*
 * Why a pod that a session's selector matches runs without the hook. The cache keeps too little of
 * a pod to say; the pod is fetched once and the controller asked. A few at a time: the answer to
 * one makes the session be looked at again, which asks about the next.
 */

enum { MAX_INQUIRIES = 16, ASK_AGAIN_MS = 30000, SOON_MS = 200 };

typedef struct inquiry {
    pp_pending_call context;
    char key[330];
    char pod_uid[64];
    char session_uid[64];
    uint64_t serial; /* of the work */
} inquiry;

static void inquiry_release(void *context)
{
    ((inquiry *)context)->context.op->inquiries--;
}

static void look_again(const pp_runtime *runtime, int64_t wait_ms)
{
    const pp_operator *op = runtime->op;
    if (op->queue && !op->stopping)
        (void)pp_workqueue_add_after(op->queue, runtime->key, wait_ms, NULL);
}

static void on_pod(void *user, json_t *object, const pp_error *error)
{
    inquiry *q = user;
    pp_operator *op = q->context.op;
    pp_runtime *runtime = pp_runtime_same(op, q->session_uid, q->serial);
    const pp_session *session = runtime ? pp_match_session(op->matches, q->session_uid) : NULL;
    pp_refusal *refusal = runtime ? pp_refusals_find(&runtime->refusals, q->pod_uid) : NULL;
    const char *uid = error ? NULL : pp_json_get_string(object, "metadata", "uid", NULL);
    if (refusal)
        refusal->asking = false;
    if (refusal && session && uid && strcmp(uid, q->pod_uid) == 0) {
        pp_inject_options options;
        pp_admission_options(op, session->namespace_, &options);
        pp_inject_explain(object, session, &options, &refusal->why);
    } else if (refusal && error && error->code != PP_ERR_NOT_FOUND) {
        refusal->again_ns = pp_time_monotonic() + ASK_AGAIN_MS * INT64_C(1000000);
    }
    if (refusal)
        look_again(runtime, error ? ASK_AGAIN_MS : SOON_MS);
    pp_pending_call_free(q);
}

static void ask(pp_runtime *runtime, const pp_pod *pod, pp_refusal *refusal)
{
    pp_operator *op = runtime->op;
    if (op->inquiries >= MAX_INQUIRIES) { /* perhaps all of other sessions */
        look_again(runtime, SOON_MS);
        return;
    }
    inquiry *q = pp_pending_call_new(op, sizeof *q, inquiry_release);
    if (!q)
        return;
    op->inquiries++;
    q->serial = runtime->serial;
    (void)snprintf(q->key, sizeof q->key, "%s/%s", pod->ns, pod->name);
    (void)snprintf(q->pod_uid, sizeof q->pod_uid, "%s", pod->uid);
    (void)snprintf(q->session_uid, sizeof q->session_uid, "%s", runtime->uid);
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &PP_KUBE_PODS,
                               .ns = pod->ns,
                               .name = pod->name,
                               .done = on_pod,
                               .user = q};
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0)
        pp_pending_call_free(q);
    else
        refusal->asking = true;
}

void pp_explain_pod(pp_runtime *runtime, const pp_session *session, const pp_pod *pod,
                    pp_session_pod *view)
{
    pp_refusal *refusal = pp_refusals_get(&runtime->refusals, pod->uid);
    if (!refusal)
        return;
    bool known = refusal->why.reason[0] != '\0';
    if (!known && !refusal->asking && !pod->finished && pp_session_takes_batches(session) &&
        pp_time_monotonic() >= refusal->again_ns)
        ask(runtime, pod, refusal);
    view->refusal_reason = known ? refusal->why.reason : NULL;
    view->refusal = known ? refusal->why.message : NULL;
    /* Where it could not be asked, what the times tell holds until it can. */
    view->unexplained = !known && (refusal->asking || refusal->again_ns == 0);
}
