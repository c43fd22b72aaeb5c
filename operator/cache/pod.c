#include "operator/cache/pod.h"

#include "common/json.h"
#include "common/wire.h"
#include "controller/pods/agent_alone.h"

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
        if (pod->owner == PP_OWNER_REPLICA_SET)
            pod->owner = PP_OWNER_DEPLOYMENT;
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
        if (!json_is_true(json_object_get(owner, "controller")) || !kind || !name)
            continue;
        pod->owner = pp_owner_kind_of(pp_json_get_string(owner, "apiVersion", NULL), kind);
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
    pod->managed = json_object_get(labels, PP_LABEL_JOBSET) != NULL;
    pod->workload = copy_or_null(pp_json_get_string(labels, PP_LABEL_WORKLOAD, NULL));
    return pod->host_name ? 0 : -1;
}

/* What the kubelet keeps of an agent that has ended, and of one that was started anew since. */
static int64_t clock_said(const json_t *object)
{
    static const char *const states[] = {"lastState", "state"};
    const json_t *status = pp_json_named(
        pp_json_get(object, "status", "initContainerStatuses", NULL), PP_INJECT_AGENT);
    if (!status)
        status = pp_json_named(pp_json_get(object, "status", "containerStatuses", NULL),
                               PP_INJECT_AGENT);
    int64_t seconds = 0;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        const char *text = pp_json_get_string(status, states[i], "terminated", "message", NULL);
        if (text && pp_wire_clock_read(text, &seconds))
            return seconds;
    }
    return 0;
}

/* Few pods have one. */
static int decode_startup(pp_pod *pod, const json_t *object)
{
    pp_startup startup;
    pp_startup_look(object, &startup);
    if (startup.cause == PP_STARTUP_NONE)
        return 0;
    pod->startup = malloc(sizeof startup);
    if (!pod->startup)
        return -1;
    *pod->startup = startup;
    return 0;
}

static int decode_running(pp_pod *pod, const json_t *object)
{
    pp_unheard_pod runs;
    if (!pp_unheard_read(object, &runs))
        return 0;
    pod->runs = malloc(sizeof runs);
    if (!pod->runs)
        return -1;
    *pod->runs = runs;
    return 0;
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
        decode_owner(pod, object) < 0 || decode_startup(pod, object) < 0 ||
        decode_running(pod, object) < 0) {
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
    pod->leaving = pp_json_get(object, "metadata", "deletionTimestamp", NULL) != NULL;
    pod->hooked = pp_inject_carried(object);
    pod->clock_said_s = clock_said(object);
    pod->agent_alone = pp_agent_is_alone(object);
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
    free(pod->workload);
    json_decref(pod->labels);
    free(pod->startup);
    free(pod->runs);
    free(pod);
}

void pp_pod_view(const pp_pod *pod, pp_session_pod *ret)
{
    *ret =
        (pp_session_pod){.name = pod->name,
                         .uid = pod->uid,
                         .node = pod->node,
                         .session_uid = pod->session_uid,
                         .hooked = pod->hooked,
                         .created_ns = pod->created_ns,
                         .running = pod->running,
                         .finished = pod->finished,
                         .failed = pod->failed,
                         .trainer_waits = pod->container && pod->hooked && pod->running &&
                                          !pod->finished && !(pod->runs && pod->runs->trainer_runs),
                         .finished_ns = pod->finished_ns,
                         .clock_said_ns = pod->clock_said_s * INT64_C(1000000000),
                         .rank = -1,
                         .epoch = -1,
                         .batch = -1};
}

void pp_pod_for_inject(const pp_pod *pod, pp_inject_pod_view *ret)
{
    *ret = (pp_inject_pod_view){.namespace_ = pod->ns,
                                .labels = pod->labels,
                                .session_uid = pod->session_uid,
                                .containers = pod->container,
                                .hooked = pod->hooked};
}
