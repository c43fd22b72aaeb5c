#include "operator/pod.h"

#include "common/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *copy_or_null(const char *text)
{
    return text && *text ? strdup(text) : NULL;
}

double pp_pod_parse_cores(const char *quantity)
{
    char *end;
    double value = strtod(quantity, &end);
    if (end == quantity || !isfinite(value) || value < 0)
        return -1;
    if (strcmp(end, "m") == 0)
        return value / 1e3;
    if (strcmp(end, "u") == 0)
        return value / 1e6;
    if (strcmp(end, "n") == 0)
        return value / 1e9;
    if (strcmp(end, "k") == 0)
        return value * 1e3;
    return *end ? -1 : value;
}

/* What the user's own containers request: an ordinary sidecar of ours does not count. */
static double cpu_request(const json_t *object)
{
    const json_t *containers = pp_json_get(object, "spec", "containers", NULL);
    double sum = 0;
    bool any = false;
    for (size_t i = 0; i < json_array_size(containers); i++) {
        const json_t *container = json_array_get(containers, i);
        const char *name = pp_json_get_string(container, "name", NULL);
        if (name && strcmp(name, PP_INJECT_AGENT) == 0)
            continue;
        const json_t *cpu = pp_json_get(container, "resources", "requests", "cpu", NULL);
        double cores = -1;
        if (json_is_number(cpu))
            cores = json_number_value(cpu);
        else if (json_is_string(cpu))
            cores = pp_pod_parse_cores(json_string_value(cpu));
        if (cores >= 0) {
            sum += cores;
            any = true;
        }
    }
    return any ? sum : (double)NAN;
}

/* A ReplicaSet of a Deployment is named after it with the pod template's hash at the end. */
static int set_owner(pp_pod *pod, const json_t *object, const char *kind, const char *name)
{
    const char *hash = pp_json_get_string(object, "metadata", "labels", "pod-template-hash", NULL);
    size_t n = strlen(name);
    if (strcmp(kind, "ReplicaSet") == 0 && hash && n > strlen(hash) + 1 &&
        strcmp(name + n - strlen(hash), hash) == 0) {
        pod->owner_kind = strdup("Deployment");
        pod->owner_name = strndup(name, n - strlen(hash) - 1);
    } else {
        pod->owner_kind = strdup(kind);
        pod->owner_name = strdup(name);
    }
    return pod->owner_kind && pod->owner_name ? 0 : -1;
}

static int decode_owner(pp_pod *pod, const json_t *object)
{
    const json_t *owners = pp_json_get(object, "metadata", "ownerReferences", NULL);
    for (size_t i = 0; i < json_array_size(owners); i++) {
        const json_t *owner = json_array_get(owners, i);
        const char *kind = pp_json_get_string(owner, "kind", NULL);
        const char *name = pp_json_get_string(owner, "name", NULL);
        if (json_is_true(json_object_get(owner, "controller")) && kind && name)
            return set_owner(pod, object, kind, name);
    }
    return set_owner(pod, object, "Pod", pod->name);
}

static int decode_texts(pp_pod *pod, const json_t *object)
{
    pod->node = copy_or_null(pp_json_get_string(object, "spec", "nodeName", NULL));
    pod->ip = copy_or_null(pp_json_get_string(object, "status", "podIP", NULL));
    const char *host_name = pp_json_get_string(object, "spec", "hostname", NULL);
    pod->host_name = strdup(host_name && *host_name ? host_name : pod->name);
    pod->session_uid = copy_or_null(
        pp_json_get_string(object, "metadata", "annotations", PP_ANNOTATION_SESSION_UID, NULL));
    pod->container = copy_or_null(
        pp_json_get_string(object, "metadata", "annotations", PP_ANNOTATION_CONTAINERS, NULL));
    const json_t *labels = pp_json_get(object, "metadata", "labels", NULL);
    pod->labels = json_is_object(labels) ? json_deep_copy(labels) : NULL;
    return pod->host_name ? 0 : -1;
}

static const json_t *status_of(const json_t *object, const char *container)
{
    const json_t *statuses = pp_json_get(object, "status", "containerStatuses", NULL);
    for (size_t i = 0; i < json_array_size(statuses); i++) {
        const json_t *status = json_array_get(statuses, i);
        const char *name = pp_json_get_string(status, "name", NULL);
        if (name && strcmp(name, container) == 0)
            return status;
    }
    return NULL;
}

/* Whether a container has ended and the kubelet will not start it again. */
static bool ended_for_good(const json_t *object, const char *container)
{
    const json_t *end = pp_json_get(status_of(object, container), "state", "terminated", NULL);
    const char *policy = pp_json_get_string(object, "spec", "restartPolicy", NULL);
    if (!end || !policy)
        return false;
    if (strcmp(policy, "OnFailure") == 0)
        return json_integer_value(json_object_get(end, "exitCode")) == 0;
    return strcmp(policy, "Never") == 0;
}

/* A native sidecar is no such case: the kubelet ends it. */
static bool only_agent_is_left(const json_t *object)
{
    const json_t *containers = pp_json_get(object, "spec", "containers", NULL);
    bool ordinary = false;
    for (size_t i = 0; i < json_array_size(containers); i++) {
        const char *name = pp_json_get_string(json_array_get(containers, i), "name", NULL);
        if (name && strcmp(name, PP_INJECT_AGENT) == 0)
            ordinary = true;
        else if (!name || !ended_for_good(object, name))
            return false;
    }
    return ordinary;
}

pp_pod *pp_pod_decode(const json_t *object, pp_error *err)
{
    pp_session_pod view;
    const char *ns = pp_json_get_string(object, "metadata", "namespace", NULL);
    if (!ns || pp_session_pod_from_json(object, &view) < 0) {
        (void)pp_error_field(err, "metadata", "a pod needs a namespace, a name and a UID");
        return NULL;
    }
    pp_pod *pod = calloc(1, sizeof *pod);
    if (!pod) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    pod->ns = strdup(ns);
    pod->name = strdup(view.name);
    pod->uid = strdup(view.uid);
    if (!pod->ns || !pod->name || !pod->uid || decode_texts(pod, object) < 0 ||
        decode_owner(pod, object) < 0) {
        pp_pod_free(pod);
        (void)pp_error_nomem(err);
        return NULL;
    }
    pod->cpu_request = cpu_request(object);
    pod->created_ns = view.created_ns;
    pod->finished_ns = view.finished_ns;
    pod->running = view.running;
    pod->finished = view.finished;
    pod->failed = view.failed;
    pod->hooked = pp_inject_carried(object);
    pod->agent_alone = only_agent_is_left(object);
    return pod;
}

void pp_pod_free(pp_pod *pod)
{
    if (!pod)
        return;
    free(pod->ns);
    free(pod->name);
    free(pod->uid);
    free(pod->node);
    free(pod->ip);
    free(pod->host_name);
    free(pod->session_uid);
    free(pod->container);
    free(pod->owner_kind);
    free(pod->owner_name);
    json_decref(pod->labels);
    free(pod);
}

void pp_pod_view(const pp_pod *pod, pp_session_pod *ret)
{
    *ret = (pp_session_pod){.name = pod->name,
                            .uid = pod->uid,
                            .node = pod->node,
                            .session_uid = pod->session_uid,
                            .hooked = pod->hooked,
                            .unexplained = !pod->refusal.reason[0] &&
                                           (pod->ask_ns == 0 || pod->ask_ns == INT64_MAX),
                            .created_ns = pod->created_ns,
                            .running = pod->running,
                            .finished = pod->finished,
                            .failed = pod->failed,
                            .finished_ns = pod->finished_ns,
                            .rank = -1,
                            .epoch = -1,
                            .batch = -1};
}

void pp_pod_carrier(const pp_pod *pod, pp_inject_carrier *ret)
{
    *ret = (pp_inject_carrier){.namespace_ = pod->ns,
                               .labels = pod->labels,
                               .session_uid = pod->session_uid,
                               .containers = pod->container,
                               .hooked = pod->hooked};
}
