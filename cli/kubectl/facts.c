#include "cli/kubectl/facts.h"

#include "cli/kubectl/exporters.h"
#include "cli/results/results.h"
#include "common/cleanup.h"
#include "common/time.h"

#include <stdio.h>
#include <string.h>

enum { PATH_TEXT = 512, METRICS_PORT = 8080, EXPORTER_PORT = 9400, EXPORTERS_ASKED = 3 };

/* Of a file that holds facts: VERSION is another one where the checks need them otherwise. */
#define KIND "precisionprobe doctor"
enum { VERSION = 1 };

#define OURS "app.kubernetes.io/name=precisionprobe"

typedef struct gathering {
    const pp_kubectl *kubectl;
    const pp_session_api_where *where;
    const char *system, *namespace; /* of `where` */
    json_t *facts;
} gathering;

static int note_unknown(const gathering *g, const char *fact, pp_kubectl_answer *answer,
                        pp_error *err)
{
    json_t *unknown = json_object_get(g->facts, "unknown");
    const char *why = pp_kubectl_complaint(answer);
    json_t *text = json_stringn(why, strcspn(why, "\n")); /* kubectl repeats itself */
    return json_object_set_new(unknown, fact, text ? text : json_string("no answer")) == 0
               ? 0
               : pp_error_nomem(err);
}

static bool is_listed(const char *key, const char *const *keys)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* Members of these names; `others`: all but them. */
static void forget(json_t *of, const char *const *keys, bool others)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(of, next, key, value)
    {
        if (is_listed(key, keys) != others)
            (void)json_object_del(of, key);
    }
}

/* What may hold secrets, and nothing is concluded from: what containers and probes run and are
 * given, volumes, notes of those who manage objects (kubectl's are the whole object), the path that
 * only API servers know. */
static void forget_secrets(json_t *value)
{
    static const char *const lists[] = {"containers", "initContainers", "ephemeralContainers",
                                        NULL};
    static const char *const known[] = {"name", "image", "imagePullPolicy", "resources", NULL};
    static const char *const notes[] = {"annotations", "managedFields", NULL};
    static const char *const ways[] = {"service", "url", NULL};
    const char *key;
    json_t *member, *container;
    size_t i;
    if (json_is_object(value))
        (void)json_object_del(value, "volumes");
    json_array_foreach(value, i, member) forget_secrets(member);
    json_object_foreach(value, key, member)
    {
        if (strcmp(key, "metadata") == 0)
            forget(member, notes, false);
        else if (strcmp(key, "clientConfig") == 0)
            forget(member, ways, false);
        else if (is_listed(key, lists))
            json_array_foreach(member, i, container) forget(container, known, true);
        forget_secrets(member);
    }
}

static int ask(const gathering *g, const char *fact, const char *const *arguments, pp_error *err)
{
    pp_kubectl_answer answer;
    if (pp_kubectl_run(g->kubectl, arguments, NULL, &answer, err) < 0)
        return -1;
    json_t *told = answer.status == 0 ? pp_json_parse(answer.out, strlen(answer.out), NULL) : NULL;
    int rc = 0;
    forget_secrets(told);
    if (told)
        rc = json_object_set_new(g->facts, fact, told) == 0 ? 0 : pp_error_nomem(err);
    else if (answer.status == 0 && !*answer.out) /* --ignore-not-found */
        rc = json_object_set_new(g->facts, fact, json_pack("{s:[]}", "items")) == 0
                 ? 0
                 : pp_error_nomem(err);
    else
        rc = note_unknown(g, fact, &answer, err);
    pp_kubectl_answer_done(&answer);
    return rc;
}

static int note_time(const gathering *g, pp_error *err)
{
    char now[40];
    pp_time_format(pp_time_now(), 3, now, sizeof now);
    return json_object_set_new(g->facts, "now", json_string(now)) == 0 ? 0 : pp_error_nomem(err);
}

static int ask_all(const gathering *g, pp_error *err)
{
    const struct {
        const char *fact, *namespace, *arguments[8];
    } questions[] = {
        {"server", NULL, {"get", "--raw", "/version"}},
        {"api", NULL, {"get", "--raw", "/apis/precisionprobe.io/v1alpha1"}},
        {"crds",
         NULL,
         {"get", "crd", "profilesessions.precisionprobe.io",
          "consumptionpatterns.precisionprobe.io", "--ignore-not-found", "-o", "json"}},
        {"webhooks", NULL, {"get", "mutatingwebhookconfigurations", "-l", OURS, "-o", "json"}},
        {"nodes", NULL, {"get", "nodes", "-o", "json"}},
        {"nodeLeases", "kube-node-lease", {"get", "leases", "-o", "json"}},
        {"exporterPods",
         NULL,
         {"get", "--raw",
          "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Ddcgm-exporter&limit=20"}},
        {"gpuOperatorPods",
         NULL,
         {"get", "--raw", "/api/v1/pods?labelSelector=app%3Dnvidia-dcgm-exporter&limit=20"}},
        {"deployments", g->system, {"get", "deployments", "-l", OURS, "-o", "json"}},
        {"operatorPods", g->system, {"get", "pods", "-l", OURS, "-o", "json"}},
        {"services", g->system, {"get", "services", "-l", OURS, "-o", "json"}},
        {"endpoints", g->system, {"get", "endpointslices", "-l", OURS, "-o", "json"}},
        {"systemEvents", g->system, {"get", "events", "-o", "json"}},
        {"sessions", g->namespace, {"get", "profilesessions", "-o", "json"}},
        {"pods", g->namespace, {"get", "pods", "-o", "json"}},
        {"events", g->namespace, {"get", "events", "-o", "json"}},
    };
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        const char *arguments[PP_KUBECTL_ARGUMENTS] = {0};
        size_t n = 0;
        if (questions[i].namespace) {
            arguments[n++] = "-n";
            arguments[n++] = questions[i].namespace;
        }
        for (size_t k = 0; k < 8 && questions[i].arguments[k]; k++)
            arguments[n++] = questions[i].arguments[k];
        arguments[n++] = "--request-timeout=20s";
        if (ask(g, questions[i].fact, arguments, err) < 0)
            return -1;
        if (strcmp(questions[i].fact, "nodeLeases") == 0 && note_time(g, err) < 0)
            return -1;
        if (i == 0 && json_object_get(json_object_get(g->facts, "unknown"), "server"))
            return 0; /* what else there is would be the same complaint */
    }
    return 0;
}

/* What `make` makes of a pod's text of metrics, under its name in `into`. */
static int ask_pod(const gathering *g, const char *namespace, const char *pod, int port,
                   json_t *(*make)(const char *text), json_t *into, pp_error *err)
{
    char path[PATH_TEXT], fact[PATH_TEXT];
    (void)snprintf(path, sizeof path, "/api/v1/namespaces/%.63s/pods/%.253s:%d/proxy/metrics",
                   namespace, pod, port);
    (void)snprintf(fact, sizeof fact, "metrics of %s", pod);
    const char *const arguments[] = {"get", "--raw", path, "--request-timeout=20s", NULL};
    pp_kubectl_answer answer;
    if (pp_kubectl_run(g->kubectl, arguments, NULL, &answer, err) < 0)
        return -1;
    const int rc = answer.status == 0 ? json_object_set_new(into, pod, make(answer.out))
                                      : note_unknown(g, fact, &answer, err);
    pp_kubectl_answer_done(&answer);
    return rc < 0 ? pp_error_nomem(err) : 0;
}

static int ask_metrics(const gathering *g, pp_error *err)
{
    json_t *metrics = json_object(), *pod;
    size_t i;
    if (!metrics || json_object_set_new(g->facts, "metrics", metrics) < 0)
        return pp_error_nomem(err);
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(g->facts, "operatorPods", "items", NULL), i,
                       pod)
    {
        const char *name = pp_results_text(json_object_get(pod, "metadata"), "name");
        if (ask_pod(g, g->system, name, METRICS_PORT, json_string, metrics, err) < 0)
            return -1;
    }
    return 0;
}

/* Some of them: all have the same file of counters, but where somebody is about to change it. */
static int ask_exporters(const gathering *g, pp_error *err)
{
    static const char *const lists[] = {"exporterPods", "gpuOperatorPods"};
    json_t *exporters = json_object(), *pod;
    size_t i;
    int asked = 0;
    if (!exporters || json_object_set_new(g->facts, "exporters", exporters) < 0)
        return pp_error_nomem(err);
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        json_array_foreach((json_t *)(uintptr_t)pp_json_get(g->facts, lists[k], "items", NULL), i,
                           pod)
        {
            const json_t *metadata = json_object_get(pod, "metadata");
            const char *phase = pp_results_text(json_object_get(pod, "status"), "phase");
            if (strcmp(phase, "Running") == 0 && asked++ < EXPORTERS_ASKED &&
                ask_pod(g, pp_results_text(metadata, "namespace"),
                        pp_results_text(metadata, "name"), EXPORTER_PORT, pp_exporter_series,
                        exporters, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* "yes" or "no", without the reason that may stand behind it; NULL where neither is told. */
static int can_i(const gathering *g, const char *const *asked, json_t **ret, pp_error *err)
{
    const char *arguments[PP_KUBECTL_ARGUMENTS] = {"auth", "can-i"};
    pp_kubectl_answer answer;
    for (size_t n = 2; *asked; asked++)
        arguments[n++] = *asked;
    if (pp_kubectl_run(g->kubectl, arguments, NULL, &answer, err) < 0)
        return -1;
    answer.out[strcspn(answer.out, "\n ")] = '\0';
    *ret = *answer.out ? json_string(answer.out) : NULL;
    pp_kubectl_answer_done(&answer);
    return 0;
}

static int ask_rights(const gathering *g, pp_error *err)
{
    static const struct {
        const char *verb, *resource;
    } rights[] = {{"create", "profilesessions.precisionprobe.io"},
                  {"get", "profilesessions.precisionprobe.io"},
                  {"get", "consumptionpatterns.precisionprobe.io"},
                  {"list", "pods"}};
    json_t *may = json_object();
    if (!may || json_object_set_new(g->facts, "may", may) < 0)
        return pp_error_nomem(err);
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        char name[128];
        json_t *told = NULL;
        const char *const asked[] = {rights[i].verb, rights[i].resource, "-n", g->namespace, NULL};
        if (can_i(g, asked, &told, err) < 0)
            return -1;
        (void)snprintf(name, sizeof name, "%s %s", rights[i].verb, rights[i].resource);
        if (told)
            (void)json_object_set_new(may, name, told);
    }
    return 0;
}

/* A role may name the object, so that is asked about by its name. */
static int ask_right_of(const gathering *g, const char *right, const char *resource,
                        const char *namespace, pp_error *err)
{
    char whole[PATH_TEXT], part[64];
    json_t *told = NULL;
    const size_t verb = strcspn(right, " ");
    (void)snprintf(whole, sizeof whole, "%.*s", (int)verb, right);
    (void)snprintf(part, sizeof part, "--subresource=%s", strchr(right, '/') + 1);
    const char *const asked[] = {whole, resource, part, "-n", namespace, NULL};
    if (can_i(g, asked, &told, err) < 0)
        return -1;
    (void)snprintf(whole + verb, sizeof whole - verb, " %s %s -n %s", resource, part, namespace);
    return !told ||
                   json_object_set_new(json_object_get(g->facts, "mayRead"), right,
                                       json_pack("{s:s, s:o}", "asked", whole, "answer", told)) == 0
               ? 0
               : pp_error_nomem(err);
}

/* What `report`, `top` and the page need: nobody's token is asked for where one is given. */
static int ask_reading(const gathering *g, pp_error *err)
{
    const pp_session_api_where *w = g->where;
    char resource[PATH_TEXT];
    const char *const reader[] = {"-n",
                                  w->namespace,
                                  "get",
                                  "serviceaccount",
                                  w->account,
                                  "--ignore-not-found",
                                  "-o",
                                  "json",
                                  "--request-timeout=20s",
                                  NULL};
    if (json_object_set_new(g->facts, "mayRead", json_object()) < 0)
        return pp_error_nomem(err);
    (void)snprintf(resource, sizeof resource, "services/https:%s:https", w->service);
    if (ask_right_of(g, "get services/proxy", resource, w->system, err) < 0)
        return -1;
    if (w->token)
        return 0;
    if (json_object_set_new(g->facts, "account", json_string(w->account)) < 0)
        return pp_error_nomem(err);
    (void)snprintf(resource, sizeof resource, "serviceaccounts/%s", w->account);
    return ask_right_of(g, "create serviceaccounts/token", resource, w->namespace, err) < 0
               ? -1
               : ask(g, "reader", reader, err);
}

int pp_facts_gather(const pp_kubectl *k, const pp_session_api_where *where, json_t **ret,
                    pp_error *err)
{
    gathering g = {k, where, where->system, where->namespace,
                   json_pack("{s:s, s:i, s:s, s:s, s:{}}", "kind", KIND, "version", VERSION,
                             "system", where->system, "namespace", where->namespace, "unknown")};
    int rc = g.facts ? ask_all(&g, err) : pp_error_nomem(err);
    if (rc == 0 && json_object_get(g.facts, "server"))
        rc = ask_metrics(&g, err) < 0 || ask_exporters(&g, err) < 0 || ask_rights(&g, err) < 0 ||
                     ask_reading(&g, err) < 0
                 ? -1
                 : 0;
    if (rc < 0)
        json_decref(g.facts);
    else
        *ret = g.facts;
    return rc;
}

bool pp_facts_is(const json_t *value)
{
    return strcmp(pp_results_text(value, "kind"), KIND) == 0 &&
           json_integer_value(json_object_get(value, "version")) == VERSION;
}
