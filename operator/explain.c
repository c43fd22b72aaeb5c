#include "operator/explain.h"

#include "common/time.h"
#include "operator/admission.h"
#include "operator/context.h"
#include "operator/state.h"
#include "operator/watches.h"

#include <stdlib.h>
#include <string.h>

/*
 * Why a pod that a session's selector matches runs without the hook. The cache keeps too little of
 * a pod to say; the pod is fetched once and the controller asked. A few at a time: the answer to
 * one makes the session be looked at again, which asks about the next.
 */

enum { MAX_INQUIRIES = 16, ASK_AGAIN_MS = 30000, SOON_MS = 200 };

typedef struct inquiry {
    pp_context context;
    char key[330];
    char pod_uid[64];
    char session_uid[64];
} inquiry;

static void inquiry_release(void *context)
{
    ((inquiry *)context)->context.op->inquiries--;
}

static void look_again(pp_operator *op, const pp_session *session, int64_t wait_ms)
{
    char key[330];
    (void)snprintf(key, sizeof key, "%s/%s", session->namespace_, session->name);
    if (op->queue && !op->stopping)
        (void)pp_workqueue_add_after(op->queue, key, wait_ms, NULL);
}

static void on_pod(void *user, json_t *object, const pp_error *error)
{
    inquiry *q = user;
    pp_operator *op = q->context.op;
    const pp_session *session = pp_watches_find_session(op, q->session_uid);
    pp_pod *pod =
        (pp_pod *)(uintptr_t)pp_kube_informer_get(op->pods, q->key); /* the cache is ours */
    bool same = pod && strcmp(pod->uid, q->pod_uid) == 0;
    if (same && session) {
        pp_inject_options options;
        pp_admission_options(op, &options);
        if (!error)
            pp_inject_explain(object, session, &options, &pod->refusal);
        else if (error->code != PP_ERR_NOT_FOUND)
            pod->ask_ns = pp_time_monotonic() + ASK_AGAIN_MS * INT64_C(1000000);
        look_again(op, session, error ? ASK_AGAIN_MS : SOON_MS);
    } else if (same) {
        pod->ask_ns = 0; /* another session may want to know */
    }
    pp_context_free(q);
}

void pp_explain_pod(pp_operator *op, const pp_session *session, const pp_pod *pod)
{
    if (pod->ask_ns > pp_time_monotonic())
        return;
    if (op->inquiries >= MAX_INQUIRIES) { /* perhaps all of other sessions */
        look_again(op, session, SOON_MS);
        return;
    }
    inquiry *q = pp_context_new(op, sizeof *q, inquiry_release);
    if (!q)
        return;
    op->inquiries++;
    (void)snprintf(q->key, sizeof q->key, "%s/%s", pod->ns, pod->name);
    (void)snprintf(q->pod_uid, sizeof q->pod_uid, "%s", pod->uid);
    (void)snprintf(q->session_uid, sizeof q->session_uid, "%s", session->uid);
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &PP_KUBE_PODS,
                               .ns = pod->ns,
                               .name = pod->name,
                               .done = on_pod,
                               .user = q};
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0)
        pp_context_free(q);
    else
        ((pp_pod *)(uintptr_t)pod)->ask_ns = INT64_MAX;
}
