#include "operator/operator.h"

#include <stdlib.h>
#include <string.h>

/*
 * Why a pod that a session's selector matches runs without the hook. The cache keeps too little of
 * a pod to say; the pod is fetched once and the controller asked.
 */

typedef struct inquiry {
    pp_operator *op;
    char key[330];
    char pod_uid[64];
    char session_uid[64];
} inquiry;

static void on_pod(void *user, json_t *object, const pp_error *error)
{
    inquiry *q = user;
    pp_operator *op = q->op;
    const pp_session *session = pp_operator_find_session(op, q->session_uid);
    pp_pod *pod =
        (pp_pod *)(uintptr_t)pp_kube_informer_get(op->pods, q->key); /* the cache is ours */
    if (session && pod && strcmp(pod->uid, q->pod_uid) == 0) {
        pp_inject_options options;
        pp_operator_inject_options(op, &options);
        if (!error)
            pp_inject_explain(object, session, &options, &pod->refusal);
        char key[330];
        (void)snprintf(key, sizeof key, "%s/%s", session->namespace_, session->name);
        pod->asked = !error;
        pp_operator_touch(op, key);
    }
    free(q);
}

void pp_explain_pod(pp_operator *op, const pp_session *session, const pp_pod *pod)
{
    inquiry *q = calloc(1, sizeof *q);
    if (!q || pod->asked) {
        free(q);
        return;
    }
    q->op = op;
    (void)snprintf(q->key, sizeof q->key, "%s/%s", pod->ns, pod->name);
    (void)snprintf(q->pod_uid, sizeof q->pod_uid, "%s", pod->uid);
    (void)snprintf(q->session_uid, sizeof q->session_uid, "%s", session->uid);
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &PP_KUBE_PODS,
                               .ns = pod->ns,
                               .name = pod->name,
                               .done = on_pod,
                               .user = q};
    ((pp_pod *)(uintptr_t)pod)->asked = true;
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0) {
        ((pp_pod *)(uintptr_t)pod)->asked = false;
        free(q);
    }
}
