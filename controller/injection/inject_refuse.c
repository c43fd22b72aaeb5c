/* The pods that are left as they are, and why. */
#include "controller/injection/inject_refuse.h"
#include "common/cleanup.h"
#include "common/text.h"
#include "controller/injection/inject_resources.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ANNOTATIONS = 256 * 1024 }; /* bytes of keys and values; the API server's limit */

__attribute__((format(printf, 3, 4))) static bool refuse(pp_inject_turn *turn, const char *reason,
                                                         const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(turn->refusal->message, sizeof turn->refusal->message, fmt, args);
    va_end(args);
    (void)snprintf(turn->refusal->reason, sizeof turn->refusal->reason, "%s", reason);
    return true;
}

static const char *name_of(const json_t *item)
{
    const char *name = pp_json_get_string(item, "name", NULL);
    return name ? name : "";
}

/* The webhook is not even asked about a pod with the label; an annotation is meant the same. */
static bool refused_by_owner(pp_inject_turn *turn)
{
    static const char *const places[] = {"labels", "annotations"};
    for (size_t i = 0; i < 2; i++) {
        const char *wish =
            pp_json_get_string(turn->pod, "metadata", places[i], PP_LABEL_INJECT, NULL);
        if (wish && strcmp(wish, "false") == 0)
            return refuse(turn, "OptedOut",
                          "the pod's %s say " PP_LABEL_INJECT
                          ": \"false\"; take that out of its template and create the pod anew, or "
                          "leave it out of the session's selector",
                          places[i]);
    }
    return false;
}

/* The webhook is not asked about these either. */
static bool refused_namespace(pp_inject_turn *turn)
{
    const char *ns = pp_json_get_string(turn->pod, "metadata", "namespace", NULL);
    const char *const left_alone[] = {"kube-system", "kube-node-lease", turn->opt->own_namespace};
    for (size_t i = 0; ns && i < sizeof left_alone / sizeof left_alone[0]; i++) {
        if (left_alone[i] && strcmp(ns, left_alone[i]) == 0)
            return refuse(
                turn, "NamespaceExcluded",
                "pods of namespace %.63s are left alone, as are the cluster's own and the "
                "operator's; run the training in another",
                ns);
    }
    return false;
}

/* As the pod states it, or else as its nodes are labelled; NULL: it does not say. */
static const char *os_of(const json_t *spec)
{
    static const char *const labels[] = {"kubernetes.io/os", "beta.kubernetes.io/os"};
    const char *os = pp_json_get_string(spec, "os", "name", NULL);
    for (size_t i = 0; !os && i < sizeof labels / sizeof labels[0]; i++)
        os = pp_json_get_string(spec, "nodeSelector", labels[i], NULL);
    return os;
}

/* Where the API server would refuse the patched pod, or cannot run it. */
static bool refused_kind(pp_inject_turn *turn)
{
    const char *os = os_of(turn->spec);
    if (os && strcmp(os, "linux") != 0)
        return refuse(turn, "NotLinux",
                      "the pod's operating system is %.40s; only Linux is profiled", os);
    if (pp_json_get(turn->pod, "metadata", "annotations", "kubernetes.io/config.mirror", NULL))
        return refuse(
            turn, "StaticPod",
            "the pod is a static one of its node; run the training as a Job to profile it");
    if (json_object_size(json_object_get(turn->spec, "resources")) > 0)
        return refuse(turn, "PodLevelResources",
                      "the pod sets resources for the whole pod, which the sidecar's could exceed; "
                      "set them per container");
    return false;
}

static bool refused_containers(pp_inject_turn *turn)
{
    pp_error why = {0};
    int n = pp_session_containers(turn->session, turn->pod, turn->opt->gpu_resources,
                                  turn->trainers, PP_INJECT_MAX_TRAINERS, &why);
    if (n < 0)
        return refuse(turn, "ContainerNotFound", "%s; correct spec.containers of the session",
                      why.message);
    turn->n_trainers = (size_t)n;
    return false;
}

bool pp_inject_is_ours(const char *name)
{
    static const char *const names[] = {PP_INJECT_HOOK, PP_INJECT_AGENT, PP_INJECT_RING,
                                        PP_INJECT_SPOOL, PP_INJECT_IDENTITY};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return strncmp(name, PP_INJECT_ENVIRONMENT, strlen(PP_INJECT_ENVIRONMENT)) == 0;
}

static bool refused_names(pp_inject_turn *turn)
{
    static const char *const lists[] = {"volumes", "initContainers", "containers",
                                        "ephemeralContainers"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const json_t *list = json_object_get(turn->spec, lists[i]);
        for (size_t j = 0; j < json_array_size(list); j++) {
            const char *name = name_of(json_array_get(list, j));
            if (pp_inject_is_ours(name))
                return refuse(
                    turn, "NameClash",
                    "the pod has an entry of spec.%s named %s, which the injection needs; "
                    "rename it, or remove what an earlier injection left in the manifest",
                    lists[i], name);
        }
    }
    return false;
}

/* Whether one path is the other, or lies below it. */
static bool paths_meet(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    while (n > 0 && a[n - 1] == '/')
        n--;
    while (m > 0 && b[m - 1] == '/')
        m--;
    size_t shorter = n < m ? n : m;
    const char *longer = n < m ? b : a;
    if (strncmp(a, b, shorter) != 0)
        return false;
    return n == m || longer[shorter] == '/' || shorter == 0;
}

/* A mount above ours may be read-only or hide it; below, it would hide a part. */
static bool refused_mounts(pp_inject_turn *turn, const json_t *container)
{
    static const char *const ours[] = {PP_INJECT_HOOK_PATH, PP_INJECT_RING_PATH,
                                       "/var/run/precisionprobe"};
    const json_t *mounts = json_object_get(container, "volumeMounts");
    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const char *path = pp_json_get_string(json_array_get(mounts, i), "mountPath", NULL);
        /* The kubelet's own token is mounted below /var/run, which is /run in most images. */
        if (!path || strncmp(path, "/var/run/secrets/", 17) == 0)
            continue;
        for (size_t j = 0; j < sizeof ours / sizeof ours[0]; j++) {
            if (paths_meet(path, ours[j]))
                return refuse(turn, "MountPathClash",
                              "container %s mounts %.100s, where the injection needs %s; mount it "
                              "elsewhere",
                              name_of(container), path, ours[j]);
        }
    }
    return false;
}

const json_t *pp_inject_env(const json_t *container, const char *name, size_t *ret_index)
{
    const json_t *env = json_object_get(container, "env");
    for (size_t i = json_array_size(env); i > 0; i--) {
        const json_t *entry = json_array_get(env, i - 1);
        if (strcmp(name_of(entry), name) != 0)
            continue;
        *ret_index = i - 1;
        return entry;
    }
    return NULL;
}

static bool refused_env(pp_inject_turn *turn, const json_t *container)
{
    size_t at;
    const json_t *entry = pp_inject_env(container, "PYTHONPATH", &at);
    if (entry && json_object_get(entry, "valueFrom"))
        return refuse(turn, "PythonPathFromSource",
                      "container %s takes PYTHONPATH from a source (valueFrom), which cannot be "
                      "prepended; give it as a value",
                      name_of(container));
    return false;
}

static bool is_python(const char *program)
{
    return strncmp(pp_text_file_name(program), "python", 6) == 0;
}

/* -I, -E and -S make Python ignore PYTHONPATH or sitecustomize. NULL: none of them in this word;
 * *ret_last is set where Python's own options end: at the script's name, at -c and at -m. */
static const char *isolating_option(const char *text, bool *ret_last)
{
    if (text[0] != '-' || text[1] == '\0') {
        *ret_last = true;
        return NULL;
    }
    for (const char *c = text + 1; *c && !strchr("-WX", *c); c++) {
        if (*c == 'I')
            return "-I";
        if (*c == 'E')
            return "-E";
        if (*c == 'S')
            return "-S";
        if (*c == 'c' || *c == 'm') {
            *ret_last = true;
            return NULL;
        }
    }
    return NULL;
}

/* The n-th word of the container's command line: command, then args. */
static const char *word(const json_t *container, size_t n)
{
    const json_t *command = json_object_get(container, "command");
    size_t size = json_array_size(command);
    const json_t *item = n < size ? json_array_get(command, n)
                                  : json_array_get(json_object_get(container, "args"), n - size);
    return json_string_value(item);
}

static bool refused_command(pp_inject_turn *turn, const json_t *container)
{
    size_t i = 0;
    const char *text;
    while ((text = word(container, i)) && !is_python(text))
        i++;
    bool last = false;
    while (text && !last && (text = word(container, ++i))) {
        const char *option = isolating_option(text, &last);
        if (option)
            return refuse(turn, "PythonIsolated",
                          "container %s starts Python with %s, which switches PYTHONPATH or "
                          "sitecustomize off; start it without",
                          name_of(container), option);
    }
    return false;
}

static bool refused_trainers(pp_inject_turn *turn)
{
    const json_t *containers = json_object_get(turn->spec, "containers");
    for (size_t i = 0; i < turn->n_trainers; i++) {
        const json_t *container = json_array_get(containers, turn->trainers[i]);
        if (refused_mounts(turn, container) || refused_env(turn, container) ||
            refused_command(turn, container))
            return true;
    }
    return false;
}

static bool refused_size(pp_inject_turn *turn)
{
    size_t total = strlen(turn->opt->ca) + 64 * 1024; /* the settings have at most that */
    const char *key;
    json_t *value;
    json_t *annotations = json_object_get(json_object_get(turn->pod, "metadata"), "annotations");
    json_object_foreach(annotations, key, value) total += strlen(key) + json_string_length(value);
    if (total > MAX_ANNOTATIONS)
        return refuse(turn, "AnnotationsTooLarge",
                      "the pod's annotations leave no room for the session's settings within the "
                      "256 KiB that Kubernetes allows; shorten them");
    return false;
}

/* Last, so that a reason in the pod itself comes first: that one can be mended there. */
static bool refused_fit(pp_inject_turn *turn)
{
    char why[300] = "";
    PP_CLEANUP_JSON json_t *resources = pp_inject_agent_resources(turn);
    const pp_inject_addition agent = {
        .resources = resources,
        .sidecar = turn->opt->native_sidecar,
        .counted = pp_json_get_string(turn->pod, "metadata", "uid", NULL) != NULL};
    const char *reason = pp_inject_misfit(turn->opt->limits, turn->pod, &agent, why, sizeof why);
    turn->passing = reason != NULL;
    return reason && refuse(turn, reason, "%s; raise it, or run the pod unprofiled", why);
}

/* Others of the same controller did not start with the probe. */
static bool refused_for_others(pp_inject_turn *turn)
{
    if (!turn->opt->unprobed)
        return false;
    *turn->refusal = *turn->opt->unprobed;
    turn->passing = true;
    return true;
}

bool pp_inject_refused(pp_inject_turn *turn)
{
    return refused_namespace(turn) || refused_by_owner(turn) || refused_for_others(turn) ||
           refused_kind(turn) || refused_names(turn) || refused_containers(turn) ||
           refused_trainers(turn) || refused_size(turn) || refused_fit(turn);
}
