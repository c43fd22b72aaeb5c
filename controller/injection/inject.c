#include "controller/injection/inject.h"

#include "common/cleanup.h"
#include "common/volume.h"
#include "controller/injection/inject_environment.h"
#include "controller/injection/inject_patch.h"
#include "controller/injection/inject_refuse.h"
#include "controller/injection/inject_resources.h"

#include <stdio.h>
#include <string.h>

/* "a/b~c" as one part of a JSON pointer. */
static void pointer_part(const char *key, char *out, size_t size)
{
    size_t n = 0;
    for (; *key && n + 3 < size; key++) {
        if (*key == '~' || *key == '/') {
            out[n++] = '~';
            out[n++] = *key == '~' ? '0' : '1';
        } else {
            out[n++] = *key;
        }
    }
    out[n] = '\0';
}

/* Makes sure that the list or object at path exists before something is added to it. */
static int ensure(json_t *patch, const json_t *there, json_type type, const char *path)
{
    if (there && json_typeof(there) == type)
        return 0;
    return pp_inject_add(patch, path, type == JSON_ARRAY ? json_array() : json_object());
}

static int add_key(json_t *patch, const char *path, const char *key, json_t *value)
{
    char part[128], full[192];
    pointer_part(key, part, sizeof part);
    (void)snprintf(full, sizeof full, "%s/%s", path, part);
    return pp_inject_add(patch, full, value);
}

static json_t *container_names(const pp_inject_turn *turn)
{
    char joined[1200] = "";
    size_t len = 0;
    const json_t *containers = json_object_get(turn->spec, "containers");
    for (size_t i = 0; i < turn->n_trainers; i++) {
        const char *name =
            pp_json_get_string(json_array_get(containers, turn->trainers[i]), "name", NULL);
        if (name && len + strlen(name) + 2 < sizeof joined)
            len +=
                (size_t)snprintf(joined + len, sizeof joined - len, "%s%s", len ? "," : "", name);
    }
    return json_string(joined);
}

/* Whether a name is in a list that is joined by ",". */
static bool is_joined(const char *joined, const char *name)
{
    size_t n = strlen(name);
    for (; *joined; joined += strspn(joined, ",")) {
        size_t m = strcspn(joined, ",");
        if (m == n && strncmp(joined, name, n) == 0)
            return true;
        joined += m;
    }
    return false;
}

/* The user's list with what of ours is on the node's disk. Cluster Autoscaler takes a name as it
 * stands between two commas: nothing is tidied up. */
static char *evictable_volumes(const char *own)
{
    static const char *const names[] = {PP_INJECT_HOOK, PP_INJECT_SPOOL};
    char *list = strdup(own ? own : "");
    for (size_t i = 0; list && i < sizeof names / sizeof names[0]; i++) {
        char *longer = NULL;
        if (is_joined(list, names[i]))
            continue;
        const int n = asprintf(&longer, "%s%s%s", list, *list ? "," : "", names[i]);
        free(list);
        list = n < 0 ? NULL : longer;
    }
    return list;
}

/* A node with a pod that has a volume on its disk is not scaled down, unless the pod names it. */
static int add_evictable(const pp_inject_turn *turn, json_t *patch, const char *at)
{
    const char *own =
        pp_json_get_string(turn->pod, "metadata", "annotations", PP_INJECT_EVICTABLE, NULL);
    PP_CLEANUP_FREE char *list = evictable_volumes(own);
    return list ? add_key(patch, at, PP_INJECT_EVICTABLE, json_string(list)) : -1;
}

static int add_session(const pp_session *session, json_t *patch, const char *at)
{
    if (add_key(patch, at, PP_ANNOTATION_SESSION, json_string(session->name)) < 0)
        return -1;
    return add_key(patch, at, PP_ANNOTATION_SESSION_UID, json_string(session->uid));
}

static int add_metadata(const pp_inject_turn *turn, json_t *patch)
{
    static const char at[] = "/metadata/annotations";
    const json_t *metadata = json_object_get(turn->pod, "metadata");
    pp_inject_options opt = *turn->opt;
    if (json_is_true(json_object_get(turn->spec, "hostNetwork")))
        opt.events_port = 0; /* that loopback is the node's: any pod like it could post */
    PP_CLEANUP_JSON json_t *settings = pp_inject_settings(turn->session, &opt);
    PP_CLEANUP_FREE char *text = settings ? json_dumps(settings, JSON_COMPACT) : NULL;
    if (!text)
        return -1;
    if (ensure(patch, metadata, JSON_OBJECT, "/metadata") < 0 ||
        ensure(patch, json_object_get(metadata, "annotations"), JSON_OBJECT, at) < 0 ||
        (turn->session && add_session(turn->session, patch, at) < 0) ||
        add_key(patch, at, PP_ANNOTATION_CONTAINERS, container_names(turn)) < 0 ||
        add_key(patch, at, PP_ANNOTATION_SETTINGS, json_string(text)) < 0 ||
        add_key(patch, at, PP_ANNOTATION_CA, json_string(turn->opt->ca)) < 0 ||
        add_evictable(turn, patch, at) < 0)
        return -1;
    if (ensure(patch, json_object_get(metadata, "labels"), JSON_OBJECT, "/metadata/labels") < 0)
        return -1;
    return add_key(patch, "/metadata/labels", PP_LABEL_INJECTED, json_string("true"));
}

static json_t *annotation_file(const char *file, const char *annotation)
{
    char path[128];
    (void)snprintf(path, sizeof path, "metadata.annotations['%s']", annotation);
    return json_pack("{s:s, s:{s:s}}", "path", file, "fieldRef", "fieldPath", path);
}

static json_t *identity_volume(void)
{
    json_t *token = json_pack("{s:{s:s, s:i, s:s}}", "serviceAccountToken", "audience",
                              "precisionprobe", "expirationSeconds", 3600, "path", "token");
    json_t *files = json_pack("{s:{s:[o, o]}}", "downwardAPI", "items",
                              annotation_file("settings.json", PP_ANNOTATION_SETTINGS),
                              annotation_file("ca.crt", PP_ANNOTATION_CA));
    return json_pack("{s:s, s:{s:[o, o]}}", "name", PP_INJECT_IDENTITY, "projected", "sources",
                     token, files);
}

static json_t *mebibytes(int amount)
{
    return json_sprintf("%dMi", amount);
}

static int add_volumes(const pp_inject_turn *turn, json_t *patch)
{
    static const char end[] = "/spec/volumes/-";
    if (ensure(patch, json_object_get(turn->spec, "volumes"), JSON_ARRAY, "/spec/volumes") < 0)
        return -1;
    if (pp_inject_add(patch, end,
                      json_pack("{s:s, s:{s:s}}", "name", PP_INJECT_HOOK, "emptyDir", "sizeLimit",
                                "64Mi")) < 0 ||
        pp_inject_add(patch, end,
                      json_pack("{s:s, s:{s:s, s:o}}", "name", PP_INJECT_RING, "emptyDir", "medium",
                                "Memory", "sizeLimit", mebibytes(PP_VOLUME_RING))) < 0 ||
        pp_inject_add(patch, end,
                      json_pack("{s:s, s:{s:o}}", "name", PP_INJECT_SPOOL, "emptyDir", "sizeLimit",
                                mebibytes(PP_VOLUME_SPOOL))) < 0)
        return -1;
    return pp_inject_add(patch, end, identity_volume());
}

/* OpenShift's admission gives every container a user of its namespace's range, and refuses others.
 * It has looked at the pod before webhooks are asked, and does again after them. */
static bool users_are_given(const json_t *pod)
{
    return pp_json_get(pod, "metadata", "annotations", "openshift.io/scc", NULL) != NULL;
}

/* Passes PodSecurity "restricted" whatever the pod says for itself. */
static json_t *security_context(const pp_inject_turn *turn)
{
    json_t *value = json_pack("{s:b, s:b, s:b, s:{s:[s]}, s:{s:s}}", "allowPrivilegeEscalation", 0,
                              "readOnlyRootFilesystem", 1, "runAsNonRoot", 1, "capabilities",
                              "drop", "ALL", "seccompProfile", "type", "RuntimeDefault");
    if (users_are_given(turn->pod))
        return value;
    (void)json_object_set_new(value, "runAsUser", json_integer(65532));
    (void)json_object_set_new(value, "runAsGroup", json_integer(65532));
    return value;
}

static json_t *container(const pp_inject_turn *turn, const char *name, json_t *command,
                         json_t *mounts, json_t *amounts)
{
    const pp_inject_options *opt = turn->opt;
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "name", name, "image", opt->image,
                     "imagePullPolicy", opt->pull_policy, "command", command, "resources", amounts,
                     "securityContext", security_context(turn), "volumeMounts",
                     pp_inject_without_token(turn->spec, mounts));
}

static json_t *hook_container(const pp_inject_turn *turn)
{
    return container(turn, PP_INJECT_HOOK,
                     json_pack("[s, s, s, s]", "/usr/bin/precisionprobe-agent", "install",
                               "--best-effort", PP_INJECT_HOOK_PATH),
                     json_pack("[o]", pp_inject_mount(PP_INJECT_HOOK, PP_INJECT_HOOK_PATH, false)),
                     pp_inject_early_resources(turn, turn->trainers[0]));
}

static json_t *agent_container(const pp_inject_turn *turn)
{
    const pp_inject_options *opt = turn->opt;
    json_t *value = container(
        turn, PP_INJECT_AGENT,
        json_pack("[s, s, s, s, s, s, s]", "/usr/bin/precisionprobe-agent", "run",
                  "--ring=" PP_INJECT_RING_PATH, "--spool=" PP_INJECT_SPOOL_PATH,
                  "--settings=" PP_INJECT_IDENTITY_PATH "/settings.json",
                  "--token=" PP_INJECT_IDENTITY_PATH "/token",
                  "--ca=" PP_INJECT_IDENTITY_PATH "/ca.crt"),
        json_pack("[o, o, o]", pp_inject_mount(PP_INJECT_RING, PP_INJECT_RING_PATH, false),
                  pp_inject_mount(PP_INJECT_SPOOL, PP_INJECT_SPOOL_PATH, false),
                  pp_inject_mount(PP_INJECT_IDENTITY, PP_INJECT_IDENTITY_PATH, true)),
        pp_inject_agent_resources(turn));
    int rc =
        opt->native_sidecar
            ? json_object_set_new(value, "restartPolicy", json_string("Always"))
            : json_object_set_new(
                  value, "env",
                  json_pack("[o]", pp_inject_variable("PRECISIONPROBE_EXIT_WITH_TRAINER", "1")));
    if (rc < 0) {
        json_decref(value);
        return NULL;
    }
    return value;
}

static int add_containers(const pp_inject_turn *turn, json_t *patch)
{
    static const char first[] = "/spec/initContainers/0";
    const json_t *init = json_object_get(turn->spec, "initContainers");
    if (ensure(patch, init, JSON_ARRAY, "/spec/initContainers") < 0)
        return -1;
    const char *agent_at = turn->opt->native_sidecar ? first : "/spec/containers/-";
    if (pp_inject_add(patch, agent_at, agent_container(turn)) < 0)
        return -1;
    /* After that, so that it comes before the agent: the pod's first container of all. */
    if (pp_inject_add(patch, first, hook_container(turn)) < 0)
        return -1;
    return pp_inject_add_recorders(turn, patch);
}

/* Sets one variable of a container whose env is known to exist. */
static int set_env(json_t *patch, const json_t *trainer, const char *base, const char *name,
                   const char *value)
{
    char path[96];
    size_t at;
    if (!pp_inject_env(trainer, name, &at)) {
        (void)snprintf(path, sizeof path, "%s/env/-", base);
        return pp_inject_add(patch, path, pp_inject_variable(name, value));
    }
    (void)snprintf(path, sizeof path, "%s/env/%zu", base, at);
    return pp_inject_replace(patch, path, pp_inject_variable(name, value));
}

/* What follows our folder in PYTHONPATH. The kubelet puts what envFrom brings in place of
 * $(PYTHONPATH), and leaves the text, which names no folder, where nothing does. */
static const char *inherited_path(const json_t *trainer)
{
    size_t at;
    const json_t *entry = pp_inject_env(trainer, "PYTHONPATH", &at);
    const char *value = pp_json_get_string(entry, "value", NULL);
    if (entry)
        return value ? value : "";
    return json_array_size(json_object_get(trainer, "envFrom")) > 0 ? "$(PYTHONPATH)" : "";
}

static char *python_path(const pp_inject_turn *turn, const json_t *trainer)
{
    const char *old = inherited_path(trainer);
    const char *more =
        pp_json_get_string(turn->pod, "metadata", "annotations", PP_ANNOTATION_PYTHONPATH, NULL);
    char *text = NULL;
    int n = asprintf(&text, "%s%s%s%s%s", PP_INJECT_PYTHON_PATH, *old ? ":" : "", old,
                     more && *more ? ":" : "", more ? more : "");
    return n < 0 ? NULL : text;
}

static int add_trainer(const pp_inject_turn *turn, json_t *patch, size_t i)
{
    const size_t index = turn->trainers[i];
    const json_t *trainer = json_array_get(json_object_get(turn->spec, "containers"), index);
    char base[64], path[96], record[64];
    (void)snprintf(base, sizeof base, "/spec/containers/%zu", index);
    PP_CLEANUP_FREE char *python = python_path(turn, trainer);
    if (!python)
        return -1;
    (void)snprintf(path, sizeof path, "%s/env", base);
    if (ensure(patch, json_object_get(trainer, "env"), JSON_ARRAY, path) < 0 ||
        set_env(patch, trainer, base, "PYTHONPATH", python) < 0 ||
        set_env(patch, trainer, base, "PRECISIONPROBE_RING", PP_INJECT_RING_PATH) < 0 ||
        (pp_inject_record(turn, i, record, sizeof record) &&
         set_env(patch, trainer, base, "PRECISIONPROBE_ENVIRONMENT", record) < 0))
        return -1;
    (void)snprintf(path, sizeof path, "%s/volumeMounts", base);
    if (ensure(patch, json_object_get(trainer, "volumeMounts"), JSON_ARRAY, path) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/volumeMounts/-", base);
    if (pp_inject_add(patch, path, pp_inject_mount(PP_INJECT_HOOK, PP_INJECT_HOOK_PATH, true)) < 0)
        return -1;
    return pp_inject_add(patch, path, pp_inject_mount(PP_INJECT_RING, PP_INJECT_RING_PATH, false));
}

static int build(const pp_inject_turn *turn, json_t *patch)
{
    if (add_metadata(turn, patch) < 0 || add_volumes(turn, patch) < 0)
        return -1;
    for (size_t i = 0; i < turn->n_trainers; i++) {
        if (add_trainer(turn, patch, i) < 0)
            return -1;
    }
    return add_containers(turn, patch);
}

static int note_refusal(const pp_inject_turn *turn, json_t *patch)
{
    static const char at[] = "/metadata/annotations";
    const json_t *metadata = json_object_get(turn->pod, "metadata");
    char text[sizeof turn->refusal->reason + sizeof turn->refusal->message + 4];
    (void)snprintf(text, sizeof text, "%s: %s", turn->refusal->reason, turn->refusal->message);
    if (ensure(patch, metadata, JSON_OBJECT, "/metadata") < 0 ||
        ensure(patch, json_object_get(metadata, "annotations"), JSON_OBJECT, at) < 0)
        return -1;
    return add_key(patch, at, PP_ANNOTATION_LEFT, pp_json_text(text));
}

/* What the webhook noted when it let the pod through. */
static bool noted_refusal(const json_t *pod, pp_inject_refusal *ret)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const char *text = pp_json_get_string(pod, "metadata", "annotations", PP_ANNOTATION_LEFT, NULL);
    const size_t n = text ? strspn(text, letters) : 0;
    if (n == 0 || n >= sizeof ret->reason || strncmp(text + n, ": ", 2) != 0)
        return false;
    (void)snprintf(ret->reason, sizeof ret->reason, "%.*s", (int)n, text);
    (void)snprintf(ret->message, sizeof ret->message, "%s", text + n + 2);
    return true;
}

static bool has_named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *known = pp_json_get_string(json_array_get(list, i), "name", NULL);
        if (known && strcmp(known, name) == 0)
            return true;
    }
    return false;
}

bool pp_inject_wanted(const json_t *labels)
{
    const char *value = json_string_value(json_object_get(labels, PP_LABEL_INJECT));
    return value && strcmp(value, "true") == 0;
}

bool pp_inject_carried(const json_t *pod)
{
    const json_t *spec = json_object_get(pod, "spec");
    const json_t *init = json_object_get(spec, "initContainers");
    bool agent = has_named(init, PP_INJECT_AGENT) ||
                 has_named(json_object_get(spec, "containers"), PP_INJECT_AGENT);
    return agent && has_named(init, PP_INJECT_HOOK) &&
           has_named(json_object_get(spec, "volumes"), PP_INJECT_RING) &&
           pp_json_get(pod, "metadata", "annotations", PP_ANNOTATION_SETTINGS, NULL);
}

/* Of a pod that is injected; without a session whatever it carries does. */
static bool is_for(const json_t *pod, const pp_session *session)
{
    const char *uid =
        pp_json_get_string(pod, "metadata", "annotations", PP_ANNOTATION_SESSION_UID, NULL);
    return !session || (uid && strcmp(uid, session->uid) == 0);
}

static int check_containers(const json_t *containers, pp_error *err)
{
    if (!json_is_array(containers))
        return pp_error_field(err, "spec.containers", "must be a list");
    for (size_t i = 0; i < json_array_size(containers); i++) {
        if (!json_is_object(json_array_get(containers, i)))
            return pp_error_field(err, "spec.containers", "must be a list of objects");
    }
    return 0;
}

int pp_inject_patch(const json_t *pod, const pp_session *session, const pp_inject_options *opt,
                    json_t **ret_patch, pp_inject_refusal *refusal, pp_error *err)
{
    const json_t *spec = json_object_get(pod, "spec");
    if (check_containers(json_object_get(spec, "containers"), err) < 0)
        return -1;
    PP_CLEANUP_JSON json_t *patch = json_array();
    if (!patch)
        return pp_error_nomem(err);
    pp_inject_turn turn = {
        .pod = pod, .spec = spec, .session = session, .opt = opt, .refusal = refusal};
    turn.qos = pp_inject_qos_of(spec);
    int result = PP_INJECT_PATCHED;
    if (pp_inject_carried(pod))
        result = is_for(pod, session) ? PP_INJECT_ALREADY : PP_INJECT_OTHER;
    else if (pp_inject_refused(&turn))
        result = PP_INJECT_REFUSED;
    if (result == PP_INJECT_REFUSED && turn.passing && note_refusal(&turn, patch) < 0)
        return pp_error_nomem(err);
    if (result == PP_INJECT_PATCHED && build(&turn, patch) < 0)
        return pp_error_nomem(err);
    *ret_patch = PP_TAKE(patch);
    return result;
}

void pp_inject_explain(const json_t *pod, const pp_session *session, const pp_inject_options *opt,
                       pp_inject_refusal *ret)
{
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_error ignored;
    *ret = (pp_inject_refusal){0};
    if (!pp_inject_carried(pod) && noted_refusal(pod, ret))
        return;
    int result = pp_inject_patch(pod, session, opt, &patch, ret, &ignored);
    if (result == PP_INJECT_REFUSED)
        return;
    pp_session_pod seen;
    if (pp_session_pod_from_json(pod, &seen) < 0)
        seen = (pp_session_pod){0};
    if (result != PP_INJECT_OTHER)
        seen.session_uid = NULL; /* an annotation without its injection counts for nothing */
    const char *message;
    const char *reason = pp_session_pod_refusal(session, &seen, &message);
    (void)snprintf(ret->reason, sizeof ret->reason, "%s", reason);
    (void)snprintf(ret->message, sizeof ret->message, "%s", message);
}

static bool goes_before(const pp_session *a, const pp_session *b)
{
    if (a->created_ns != b->created_ns)
        return a->created_ns < b->created_ns;
    return strcmp(a->name, b->name) < 0;
}

/* Kubelets have them from 1.29 on, and may be three minor versions older than the server. */
int pp_inject_native_sidecar(const json_t *version)
{
    const char *major = pp_json_get_string(version, "major", NULL);
    const char *minor = pp_json_get_string(version, "minor", NULL);
    long first = major ? strtol(major, NULL, 10) : 0;
    long second = minor ? strtol(minor, NULL, 10) : 0; /* "32+" is a 32 */
    if (first < 1 || !minor)
        return -1;
    return first > 1 || second >= 32;
}

const pp_session *pp_inject_matching(const pp_session *const *sessions, size_t n,
                                     const char *namespace_, const json_t *labels)
{
    const pp_session *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const pp_session *s = sessions[i];
        if (!s || !pp_session_live(s) || strcmp(s->namespace_, namespace_) != 0 ||
            !pp_selector_matches(&s->selector, labels))
            continue;
        if (!best || goes_before(s, best))
            best = s;
    }
    return best;
}

/* Whether the containers that have the hook are those that the session names; those that it would
 * choose without names were chosen when the pod was injected. */
static bool has_containers(const pp_session *session, const char *hooked)
{
    size_t named = 0;
    for (size_t i = 0; i < session->containers.count; i++) {
        if (!hooked || !is_joined(hooked, session->containers.items[i]))
            return false;
        named += strlen(session->containers.items[i]) + 1;
    }
    return named == 0 || named == strlen(hooked) + 1;
}

bool pp_inject_eligible(const pp_session *session, const pp_inject_pod_view *pod)
{
    if (strcmp(session->namespace_, pod->namespace_) != 0)
        return false;
    if (pod->session_uid && strcmp(pod->session_uid, session->uid) == 0)
        return true;
    return pod->hooked && pp_selector_matches(&session->selector, pod->labels) &&
           has_containers(session, pod->containers);
}

const pp_session *pp_inject_holder(const pp_session *const *sessions, size_t n,
                                   const pp_inject_pod_view *pod)
{
    const pp_session *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const pp_session *s = sessions[i];
        if (!s || !pp_session_live(s) || !pp_inject_eligible(s, pod))
            continue;
        if (pod->session_uid && strcmp(pod->session_uid, s->uid) == 0)
            return s;
        if (!best || goes_before(s, best))
            best = s;
    }
    return best;
}

static json_t *strings_value(const pp_strings *strings)
{
    json_t *list = json_array();
    for (size_t i = 0; i < strings->count; i++)
        (void)json_array_append_new(list, json_string(strings->items[i]));
    return list;
}

static json_t *phases_value(unsigned phases)
{
    json_t *list = json_array();
    if (phases & PP_SESSION_FORWARD)
        (void)json_array_append_new(list, json_string("Forward"));
    if (phases & PP_SESSION_BACKWARD)
        (void)json_array_append_new(list, json_string("Backward"));
    if (phases & PP_SESSION_OPTIMIZER)
        (void)json_array_append_new(list, json_string("Optimizer"));
    return list;
}

static json_t *addresses_value(const pp_inject_options *opt)
{
    return opt->addresses && opt->addresses->count ? strings_value(opt->addresses) : NULL;
}

static json_t *events_value(const pp_inject_options *opt)
{
    return opt->events_port ? json_pack("{s:I}", "port", (json_int_t)opt->events_port) : NULL;
}

static json_t *pm_value(const pp_session *s, const pp_inject_options *opt)
{
    return pp_session_asks_sampling(s, opt->sampling_auto)
               ? json_pack("{s:I}", "periodNs", (json_int_t)opt->sampling_period_ns)
               : NULL;
}

static json_t *isolation_value(const pp_session *s, const pp_inject_options *opt)
{
    static const int64_t ms = 1000000;
    const int64_t dwell = pp_session_dwell(s, opt->dwell_ns);
    return pp_session_asks_replays(s) ? json_pack("{s:I, s:I}", "dwellMs", (json_int_t)(dwell / ms),
                                                  "maxPauseMs", (json_int_t)(s->max_pause_ns / ms))
                                      : NULL;
}

json_t *pp_inject_settings(const pp_session *s, const pp_inject_options *opt)
{
    if (!s)
        return json_pack("{s:i, s:s, s:o*, s:o*}", "version", 1, "endpoint", opt->endpoint,
                         "addresses", addresses_value(opt), "events", events_value(opt));
    json_t *layers = json_pack("{s:o, s:o, s:o, s:I}", "include", strings_value(&s->include),
                               "exclude", strings_value(&s->exclude), "types",
                               strings_value(&s->types), "depth", (json_int_t)s->depth);
    return json_pack("{s:i, s:{s:s, s:s, s:s}, s:s, s:o*, s:o, s:o, s:{s:I, s:I}, s:f, s:f, "
                     "s:{s:f}, s:o*, s:o*, s:o*}",
                     "version", 1, "session", "uid", s->uid, "namespace", s->namespace_, "name",
                     s->name, "endpoint", opt->endpoint, "addresses", addresses_value(opt),
                     "layers", layers, "phases", phases_value(s->phases), "steps", "skip",
                     (json_int_t)s->steps_skip, "max", (json_int_t)s->steps_max, "durationSeconds",
                     (double)s->duration_ns / 1e9, "overheadBudgetPercent",
                     s->overhead_budget_percent, "stretch", "seconds", opt->capture_seconds,
                     "events", events_value(opt), "fine", pm_value(s, opt), "isolation",
                     isolation_value(s, opt));
}
