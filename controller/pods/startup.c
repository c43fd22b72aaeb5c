#include "controller/pods/startup.h"

#include "common/json.h"
#include "controller/injection/inject.h"
#include "controller/injection/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what made it ---- */

static const json_t *controller_of(const json_t *pod)
{
    const json_t *owners = pp_json_get(pod, "metadata", "ownerReferences", NULL);
    for (size_t i = 0; i < json_array_size(owners); i++) {
        const json_t *owner = json_array_get(owners, i);
        if (json_is_true(json_object_get(owner, "controller")))
            return owner;
    }
    return NULL;
}

const char *pp_startup_owner_uid(const json_t *pod)
{
    return pp_json_get_string(controller_of(pod), "uid", NULL);
}

static void copy(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text ? text : "");
}

static void take_owner(const json_t *pod, pp_startup *ret)
{
    const json_t *owner = controller_of(pod);
    const char *failures = pp_json_get_string(pod, "metadata", "annotations",
                                              "batch.kubernetes.io/job-index-failure-count", NULL);
    ret->kind = pp_owner_kind_of(pp_json_get_string(owner, "apiVersion", NULL),
                                 pp_json_get_string(owner, "kind", NULL));
    copy(ret->owner_name, sizeof ret->owner_name, pp_json_get_string(owner, "name", NULL));
    copy(ret->owner_uid, sizeof ret->owner_uid, pp_json_get_string(owner, "uid", NULL));
    copy(ret->version, sizeof ret->version,
         pp_json_get_string(pod, "metadata", "resourceVersion", NULL));
    ret->index_failures = failures ? strtoll(failures, NULL, 10) : -1;
}

/* Pods that are scheduled together, or by their queue's turn. */
static bool is_bound(const json_t *pod)
{
    static const char *const labels[] = {"kueue.x-k8s.io/queue-name",
                                         "kueue.x-k8s.io/pod-group-name",
                                         "kueue.x-k8s.io/managed",
                                         "pod-group.scheduling.sigs.k8s.io",
                                         "pod-group.scheduling.sigs.k8s.io/name",
                                         "scheduling.x-k8s.io/pod-group",
                                         "scheduling.k8s.io/group-name"};
    static const char *const fields[] = {"workloadRef", "schedulingGroup"};
    const json_t *spec = json_object_get(pod, "spec");
    const char *scheduler = pp_json_get_string(spec, "schedulerName", NULL);
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        if (pp_json_get(pod, "metadata", "labels", labels[i], NULL) ||
            pp_json_get(pod, "metadata", "annotations", labels[i], NULL))
            return true;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (json_is_object(json_object_get(spec, fields[i])))
            return true;
    }
    return json_array_size(json_object_get(spec, "schedulingGates")) > 0 ||
           (scheduler && strcmp(scheduler, "default-scheduler") != 0);
}

/* ---- its containers ---- */

static const char *const status_lists[] = {"initContainerStatuses", "containerStatuses"};

static bool listed(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; text && i < n; i++) {
        if (strcmp(text, list[i]) == 0)
            return true;
    }
    return false;
}

static bool is_image_reason(const char *reason)
{
    static const char *const reasons[] = {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    };
    return listed(reason, reasons, sizeof reasons / sizeof reasons[0]);
}

static bool is_failing_reason(const char *reason)
{
    static const char *const reasons[] = {
        "CrashLoopBackOff",     "CreateContainerConfigError",
        "CreateContainerError", "RunContainerError",
        "PreCreateHookError",   "PreStartHookError",
        "PostStartHookError",   "StartError",
    };
    return listed(reason, reasons, sizeof reasons / sizeof reasons[0]);
}

static bool has_started(const json_t *status)
{
    return pp_json_get(status, "state", "running", NULL) ||
           pp_json_get(status, "state", "terminated", NULL) ||
           pp_json_get(status, "lastState", "terminated", NULL) ||
           json_integer_value(json_object_get(status, "restartCount")) > 0;
}

/* Whether any of these containers but those that were added has ever started. */
static bool any_started(const json_t *pod, const char *statuses)
{
    const json_t *list = pp_json_get(pod, "status", statuses, NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *status = json_array_get(list, i);
        const char *name = pp_json_get_string(status, "name", NULL);
        if ((!name || !pp_inject_is_ours(name)) && has_started(status))
            return true;
    }
    return false;
}

/* An end of the container that is no success: its last one where it has been started again. */
static const json_t *failure_of(const json_t *status)
{
    static const char *const states[] = {"state", "lastState"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *end = pp_json_get(status, states[i], "terminated", NULL);
        if (end)
            return json_integer_value(json_object_get(end, "exitCode")) != 0 ? end : NULL;
    }
    return NULL;
}

static void set_cause(pp_startup *ret, pp_startup_cause cause, const char *name, const char *reason,
                      const char *message)
{
    ret->cause = cause;
    copy(ret->container, sizeof ret->container, name);
    (void)snprintf(ret->why, sizeof ret->why, "%s%s%s", reason ? reason : "failed",
                   message && *message ? ": " : "", message ? message : "");
}

/* Whether the container runs in the trainer's image, as the trainer's user. */
static bool is_recorder(const char *name)
{
    return strncmp(name, PP_INJECT_ENVIRONMENT, strlen(PP_INJECT_ENVIRONMENT)) == 0;
}

static void look_at_waiting(const json_t *status, const char *name, pp_startup *ret)
{
    const json_t *waiting = pp_json_get(status, "state", "waiting", NULL);
    const char *reason = pp_json_get_string(waiting, "reason", NULL);
    const char *message = pp_json_get_string(waiting, "message", NULL);
    if (is_image_reason(reason))
        set_cause(ret, is_recorder(name) ? PP_STARTUP_OWN_IMAGE : PP_STARTUP_IMAGE, name, reason,
                  message);
    else if (is_failing_reason(reason) &&
             !(is_recorder(name) && strcmp(reason, "CreateContainerConfigError") == 0))
        set_cause(ret, PP_STARTUP_CONTAINER, name, reason, message);
}

static void look_at_status(const json_t *status, pp_startup *ret)
{
    const char *name = pp_json_get_string(status, "name", NULL);
    const json_t *end = failure_of(status);
    if (!name || !pp_inject_is_ours(name))
        return;
    look_at_waiting(status, name, ret);
    /* A sidecar that runs again, or that is ended with its pod, keeps nobody. */
    if (ret->cause != PP_STARTUP_NONE || !end ||
        (strcmp(name, PP_INJECT_AGENT) == 0 && json_is_true(json_object_get(status, "started"))))
        return;
    char text[200];
    const char *message = pp_json_get_string(end, "message", NULL);
    (void)snprintf(text, sizeof text, "exit code %lld%s%s",
                   (long long)json_integer_value(json_object_get(end, "exitCode")),
                   message && *message ? ", " : "", message ? message : "");
    set_cause(ret, PP_STARTUP_CONTAINER, name, pp_json_get_string(end, "reason", NULL), text);
}

static void look_at_containers(const json_t *pod, pp_startup *ret)
{
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = pp_json_get(pod, "status", status_lists[k], NULL);
        for (size_t i = 0; i < json_array_size(list) && ret->cause == PP_STARTUP_NONE; i++)
            look_at_status(json_array_get(list, i), ret);
    }
}

/* ---- its place ---- */

static const json_t *agent_of(const json_t *pod)
{
    static const char *const lists[] = {"initContainers", "containers"};
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = pp_json_get(pod, "spec", lists[k], NULL);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *name = pp_json_get_string(json_array_get(list, i), "name", NULL);
            if (name && strcmp(name, PP_INJECT_AGENT) == 0)
                return json_array_get(list, i);
        }
    }
    return NULL;
}

static bool asks_for(const json_t *container, const char *resource)
{
    int64_t amount;
    return pp_quantity_of(pp_json_get(container, "resources", "requests", resource, NULL),
                          &amount) &&
           amount > 0;
}

/* The resource that begins here: "nvidia.com/gpu" of "nvidia.com/gpu. preemption: ...". */
static void resource_name(const char *text, char *out, size_t size)
{
    size_t n = strcspn(text, ", ");
    while (n > 0 && text[n - 1] == '.')
        n--;
    (void)snprintf(out, size, "%.*s", (int)(n < size ? n : 0), text);
}

/* In the scheduler's words: GPUs that are asked for by a claim. */
static bool lacks_claimed(const char *message)
{
    return strcasestr(message, "allocate all claims") || strcasestr(message, "resourceclaim");
}

/** Why nodes do not take a pod, in the scheduler's words. */
typedef struct shortage {
    const char *resource; /* that the agent asks for, too; NULL: none is lacking */
    int64_t nodes;        /* there are; 0: not told */
    int64_t others;       /* reasons of another kind, each once for every node that has it */
} shortage;

/* One of "1 Insufficient cpu, 3 node(s) didn't match Pod's node affinity". */
static void take_reason(const json_t *pod, const char *reason, shortage *s)
{
    static const char word[] = "Insufficient ";
    static const char *const names[] = {"cpu", "memory", "ephemeral-storage"};
    char *what = NULL, name[128];
    const int64_t nodes = strtoll(reason, &what, 10);
    what += strspn(what, " ");
    if (strncmp(what, word, sizeof word - 1) == 0) {
        resource_name(what + sizeof word - 1, name, sizeof name);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            if (strcmp(name, names[i]) == 0 && asks_for(agent_of(pod), name)) {
                s->resource = names[i];
                return;
            }
        }
    }
    s->others += nodes;
}

/*
 * Which of what nodes lack the agent asks for, too. NULL: none, or each of the nodes may lack
 * something else besides, such as GPUs: there the pod would wait without the agent.
 */
static const char *short_of(const json_t *pod, const char *message)
{
    static const char head[] = "0/";
    shortage s = {0};
    const char *at = strchr(message, ':');
    if (lacks_claimed(message) || !at || strncmp(message, head, sizeof head - 1) != 0)
        return NULL;
    s.nodes = strtoll(message + sizeof head - 1, NULL, 10);
    const char *end = strstr(at, ". ");
    while (at && (!end || at < end)) {
        at += strspn(at, ":, ");
        take_reason(pod, at, &s);
        at = strchr(at, ',');
    }
    return s.others < s.nodes ? s.resource : NULL;
}

static void look_at_place(const json_t *pod, pp_startup *ret)
{
    const json_t *list = pp_json_get(pod, "status", "conditions", NULL);
    const char *nominated = pp_json_get_string(pod, "status", "nominatedNodeName", NULL);
    if (nominated && *nominated)
        return; /* others are ended for it there */
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        const char *type = pp_json_get_string(c, "type", NULL);
        const char *status = pp_json_get_string(c, "status", NULL);
        const char *reason = pp_json_get_string(c, "reason", NULL);
        const char *message = pp_json_get_string(c, "message", NULL);
        if (!type || !status || !reason || !message || strcmp(type, "PodScheduled") != 0 ||
            strcmp(status, "False") != 0 || strcmp(reason, "Unschedulable") != 0)
            continue;
        const char *resource = short_of(pod, message);
        if (resource)
            set_cause(ret, PP_STARTUP_ROOM, resource, message, NULL);
    }
}

/* Whether the kubelet has refused the pod, since its node lacks what the agent asks for, too. */
static void look_at_refusal(const json_t *pod, pp_startup *ret)
{
    static const char word[] = "OutOf";
    static const char *const names[] = {"cpu", "memory", "ephemeral-storage"};
    const char *reason = pp_json_get_string(pod, "status", "reason", NULL);
    const char *message = pp_json_get_string(pod, "status", "message", NULL);
    const bool aligned = reason && strcmp(reason, "TopologyAffinityError") == 0;
    if (!reason || (!aligned && strncmp(reason, word, sizeof word - 1) != 0))
        return;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((aligned || strcmp(reason + sizeof word - 1, names[i]) == 0) &&
            asks_for(agent_of(pod), names[i])) {
            set_cause(ret, PP_STARTUP_ROOM, names[i], reason, message);
            return;
        }
    }
}

/* Whether its node, or whoever made room for another, has ended the pod: its containers' exit codes
 * tell of that alone. */
static bool is_disrupted(const json_t *pod)
{
    static const char *const reasons[] = {"Evicted",      "Preempting", "Shutdown",
                                          "NodeShutdown", "Terminated", "NodeLost"};
    const char *reason = pp_json_get_string(pod, "status", "reason", NULL);
    const json_t *list = pp_json_get(pod, "status", "conditions", NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = pp_json_get_string(json_array_get(list, i), "type", NULL);
        const char *status = pp_json_get_string(json_array_get(list, i), "status", NULL);
        if (type && status && strcmp(type, "DisruptionTarget") == 0 && strcmp(status, "True") == 0)
            return true;
    }
    return listed(reason, reasons, sizeof reasons / sizeof reasons[0]);
}

void pp_startup_look(const json_t *pod, pp_startup *ret)
{
    *ret = (pp_startup){0};
    const char *phase = pp_json_get_string(pod, "status", "phase", NULL);
    if (!phase || !agent_of(pod) || !pp_inject_carried(pod) || is_disrupted(pod) ||
        pp_json_get(pod, "metadata", "deletionTimestamp", NULL) ||
        (strcmp(phase, "Pending") != 0 && strcmp(phase, "Failed") != 0))
        return;
    if (any_started(pod, "containerStatuses"))
        return; /* what ends it later is its own */
    ret->untouched = !any_started(pod, "initContainerStatuses");
    ret->over = strcmp(phase, "Failed") == 0;
    if (!pp_json_get_string(pod, "spec", "nodeName", NULL))
        look_at_place(pod, ret);
    else
        look_at_containers(pod, ret);
    if (ret->cause == PP_STARTUP_NONE && ret->over)
        look_at_refusal(pod, ret);
    if (ret->cause == PP_STARTUP_NONE)
        return;
    ret->bound = is_bound(pod);
    take_owner(pod, ret);
}

bool pp_startup_is_ours(const pp_startup *startup)
{
    return startup->cause != PP_STARTUP_NONE && startup->cause != PP_STARTUP_OWN_IMAGE;
}

/* ---- saying it ---- */

static const char *remedy(const pp_startup *s)
{
    if (s->kind == PP_OWNER_NONE)
        return "or create the pod anew with the label " PP_LABEL_INJECT ": \"false\"";
    return s->over ? "those that follow it are created without the probe for an hour"
                   : "or delete the pod: those that follow it are created without the probe for an "
                     "hour";
}

void pp_startup_tell(const pp_startup *s, pp_session_pod_trouble *ret)
{
    *ret = (pp_session_pod_trouble){0};
    switch (s->cause) {
    case PP_STARTUP_NONE:
        return;
    case PP_STARTUP_IMAGE:
        copy(ret->reason, sizeof ret->reason, "ImageNotPulled");
        (void)snprintf(ret->text, sizeof ret->text,
                       "the pod does not start, since its node cannot pull the image of the added "
                       "container %s (%s); let nodes and the pod's namespace pull "
                       "it (injection.image; of the chart image.repository and image.tag), %s",
                       s->container, s->why, remedy(s));
        return;
    case PP_STARTUP_CONTAINER:
        copy(ret->reason, sizeof ret->reason, "AddedContainerFails");
        (void)snprintf(ret->text, sizeof ret->text,
                       "the pod does not start, since the added container %s fails (%s); look at "
                       "its log, %s",
                       s->container, s->why, remedy(s));
        return;
    case PP_STARTUP_ROOM:
        copy(ret->reason, sizeof ret->reason, "NoRoomForAgent");
        ret->of_pod = true;
        (void)snprintf(ret->text, sizeof ret->text,
                       "%s (%s), and the added agent asks for %s, too; make room, %s",
                       s->over ? "the pod was refused by its node" : "the pod finds no node",
                       s->why, s->container, remedy(s));
        return;
    case PP_STARTUP_OWN_IMAGE:
        copy(ret->reason, sizeof ret->reason, "TrainerImageNotPulled");
        ret->of_pod = true;
        (void)snprintf(ret->text, sizeof ret->text,
                       "the pod does not start, since its node cannot pull the trainer's own "
                       "image, which the added container %s uses first (%s); correct the image, or "
                       "the namespace's pull secrets",
                       s->container, s->why);
        return;
    }
}

/* ---- letting it go ---- */

static bool job_makes_another(const pp_startup *s, const json_t *job, int64_t failed, int64_t stuck)
{
    const json_t *spec = json_object_get(job, "spec");
    const json_t *per_index = json_object_get(spec, "backoffLimitPerIndex");
    const json_t *limit = json_object_get(spec, "backoffLimit");
    if (json_is_true(json_object_get(spec, "suspend")) || json_object_get(spec, "podFailurePolicy"))
        return false;
    if (json_is_integer(per_index))
        return s->index_failures >= 0 && s->index_failures < json_integer_value(per_index);
    return failed + stuck <= (json_is_integer(limit) ? json_integer_value(limit) : 6);
}

bool pp_startup_may_release(const pp_startup *s, const json_t *owner, int64_t failed, int64_t stuck)
{
    const char *uid = pp_json_get_string(owner, "metadata", "uid", NULL);
    if (!pp_startup_is_ours(s) || s->over || !s->untouched || s->bound || !uid ||
        strcmp(uid, s->owner_uid) != 0 ||
        pp_owner_state_of(s->kind, owner, false) != PP_OWNER_MAKES_PODS)
        return false;
    if (s->kind == PP_OWNER_JOB)
        return job_makes_another(s, owner, failed, stuck);
    return s->kind == PP_OWNER_REPLICA_SET || s->kind == PP_OWNER_STATEFUL_SET;
}
