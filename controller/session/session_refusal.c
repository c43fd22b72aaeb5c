#include "controller/session/session_refusal.h"

#include "controller/session/session_query.h"

#include <stdio.h>
#include <string.h>

const char *pp_session_pod_refusal(const pp_session *session, const pp_session_pod *pod,
                                   const char **ret_message)
{
    if (pod->refusal_reason) {
        *ret_message = pod->refusal ? pod->refusal : "";
        return pod->refusal_reason;
    }
    if (pod->session_uid) {
        *ret_message = "another session has the pod; this one gets it when that one has ended";
        return "OtherSession";
    }
    if (pod->hooked) {
        *ret_message = "the pod's hook is in other containers than spec.containers names; name "
                       "those of its annotation " PP_ANNOTATION_CONTAINERS ", or delete the pod, "
                       "and create it anew where no controller does";
        return "OtherContainers";
    }
    /* Its age is no reason yet: it may be one that would not be injected anew either. */
    if (pod->unexplained)
        return NULL;
    if (pod->created_ns < session->created_ns) {
        *ret_message = "the pod was created before the session and carries no hook; delete it, "
                       "and create it anew where no controller does";
        return "CreatedBefore";
    }
    /* The API keeps whole seconds: which of both came first cannot be told. */
    if (pod->created_ns == session->created_ns) {
        *ret_message = "the pod was created before the session, or after it in the same second "
                       "while the admission webhook was not reached, or had not seen the session "
                       "yet; see that the operator is ready, then delete the pod, and create it "
                       "anew where no controller does";
        return "CreatedBefore";
    }
    *ret_message = "the admission webhook was not reached when the pod was created, or had not "
                   "seen the session yet; see that the operator is ready, and that its "
                   "MutatingWebhookConfiguration is there and selects the pod's namespace, then "
                   "delete the pod, and create it anew where no controller does";
    return "WebhookMissed";
}

const pp_session_pod *pp_session_first_refused(const pp_session_turn *turn)
{
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        const pp_session_pod *pod = &turn->obs->pods[i];
        const char *message;
        if (pp_session_pod_counts(turn->session, pod) &&
            !pp_session_pod_injected(turn->session, pod) &&
            pp_session_pod_refusal(turn->session, pod, &message))
            return pod;
    }
    return NULL;
}

const pp_session_pod_trouble *pp_session_trouble_of(const pp_session_turn *turn,
                                                    const pp_session_pod *pod)
{
    return pp_session_pod_injected(turn->session, pod) ? pod->trouble : NULL;
}

const pp_session_pod *pp_session_first_troubled(const pp_session_turn *turn)
{
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        if (pp_session_trouble_of(turn, &turn->obs->pods[i]))
            return &turn->obs->pods[i];
    }
    return NULL;
}

const char *pp_session_describe_refusal(const pp_session *session, const pp_session_pod *pod,
                                        char *out, size_t size)
{
    const char *message = "";
    const char *reason = pp_session_pod_refusal(session, pod, &message);
    if (reason && strcmp(reason, "OtherSession") == 0 && pod->session_name)
        (void)snprintf(out, size,
                       "ProfileSession %s has the pod; this one gets it when that one has ended",
                       pod->session_name);
    else
        (void)snprintf(out, size, "%s", message);
    return reason;
}

const char *pp_session_previous_reason(const pp_session *session, const char *uid)
{
    const json_t *targets = json_object_get(session->status, "targets");
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const json_t *target = json_array_get(targets, i);
        const char *known = pp_json_get_string(target, "uid", NULL);
        const char *reason = pp_json_get_string(target, "reason", NULL);
        if (known && strcmp(known, uid) == 0)
            return reason ? reason : "";
    }
    return NULL;
}
