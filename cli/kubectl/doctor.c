#include "cli/kubectl/doctor.h"

#include "cli/kubectl/exporters.h"
#include "cli/kubectl/node_clocks.h"
#include "cli/kubectl/remedies.h"
#include "cli/kubectl/status.h"
#include "cli/results/results.h"
#include "common/cleanup.h"

#include <stdlib.h>
#include <string.h>

typedef struct doctor {
    const json_t *facts;
    const char *session; /* NULL: all */
    json_t *findings;
} doctor;

#define each_of(list, i, item)                                                                     \
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(list, "items", NULL), i, item)

/* ---- findings ---- */

static bool is_found(const doctor *d, const char *what, const char *of)
{
    size_t i;
    json_t *one;
    json_array_foreach(d->findings, i, one)
    {
        if (strcmp(pp_results_text(one, "what"), what) == 0 &&
            strcmp(pp_results_text(one, "of"), of) == 0)
            return true;
    }
    return false;
}

static void find(const doctor *d, const char *what, const char *of, const char *evidence,
                 const char *remedy)
{
    if (!is_found(d, what, of))
        (void)json_array_append_new(d->findings,
                                    json_pack("{s:s, s:s, s:s, s:s}", "what", what, "of", of,
                                              "evidence", evidence, "remedy", remedy));
}

/* What sessions do without. */
static void warn(const doctor *d, const char *what, const char *of, const char *evidence,
                 const char *remedy)
{
    (void)json_array_append_new(d->findings,
                                json_pack("{s:s, s:s, s:s, s:s, s:b}", "what", what, "of", of,
                                          "evidence", evidence, "remedy", remedy, "warning", 1));
}

static const json_t *fact(const doctor *d, const char *name)
{
    return json_object_get(d->facts, name);
}

static size_t count(const doctor *d, const char *name)
{
    return json_array_size(json_object_get(fact(d, name), "items"));
}

static const char *name_of(const json_t *object)
{
    return pp_results_text(json_object_get(object, "metadata"), "name");
}

static bool is(const json_t *condition, const char *status)
{
    return strcmp(pp_results_text(condition, "status"), status) == 0;
}

/* ---- the cluster and the resource types ---- */

static bool check_server(const doctor *d)
{
    const char *why = pp_json_get_string(d->facts, "unknown", "server", NULL);
    if (why)
        find(d, "ClusterUnreachable", "cluster", why,
             "see that the kubeconfig's context is the cluster's, and that you may reach it");
    return !why;
}

static const char *version_of(const json_t *object)
{
    const char *version =
        pp_json_get_string(object, "metadata", "labels", "app.kubernetes.io/version", NULL);
    return version ? version : "";
}

static const char *missing_crd(const doctor *d)
{
    if (count(d, "crds") == 0)
        return "neither profilesessions nor consumptionpatterns.precisionprobe.io is there";
    const char *there = name_of(json_array_get(json_object_get(fact(d, "crds"), "items"), 0));
    return strncmp(there, "profilesessions.", strlen("profilesessions.")) == 0
               ? "consumptionpatterns.precisionprobe.io is not there"
               : "profilesessions.precisionprobe.io is not there";
}

static void check_crds(const doctor *d)
{
    size_t i;
    json_t *crd;
    const char *unknown = pp_json_get_string(d->facts, "unknown", "api", NULL);
    if (fact(d, "crds") && count(d, "crds") < 2)
        find(d, "CRDMissing", "cluster", missing_crd(d),
             "install the chart with crds.install=true, or apply crds/*.yaml");
    else if (!fact(d, "api") && (!unknown || strstr(unknown, "NotFound")))
        find(d, "CRDMissing", "cluster", "the API server does not serve precisionprobe.io/v1alpha1",
             "install the chart with crds.install=true, or apply crds/*.yaml");
    const json_t *deployment = json_array_get(json_object_get(fact(d, "deployments"), "items"), 0);
    each_of(fact(d, "crds"), i, crd)
    {
        const char *theirs = version_of(crd), *ours = version_of(deployment);
        if (*theirs && *ours && strcmp(theirs, ours) != 0) {
            PP_CLEANUP_JSON json_t *text =
                json_sprintf("%s is of %s, the operator of %s", name_of(crd), theirs, ours);
            find(d, "CRDOfAnotherVersion", "cluster", json_string_value(text),
                 "helm upgrade with crds.install=true, or apply the operator's crds/*.yaml");
        }
    }
}

/* ---- the operator ---- */

/* Why a pod's container waits or is not ready; "" where it is. */
static const char *trouble_of_pod(const json_t *pod, const char **message)
{
    static const char *const lists[] = {"initContainerStatuses", "containerStatuses"};
    size_t i;
    json_t *one;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        json_array_foreach((json_t *)(uintptr_t)pp_json_get(pod, "status", lists[k], NULL), i, one)
        {
            const json_t *waiting = pp_json_get(one, "state", "waiting", NULL);
            *message = pp_results_text(waiting, "message");
            if (*pp_results_text(waiting, "reason"))
                return pp_results_text(waiting, "reason");
        }
    }
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(pod, "status", "conditions", NULL), i, one)
    {
        *message = pp_results_text(one, "message");
        if (strcmp(pp_results_text(one, "status"), "False") == 0)
            return pp_results_text(one, "reason");
    }
    return "";
}

static bool is_pull(const char *reason)
{
    return strcmp(reason, "ImagePullBackOff") == 0 || strcmp(reason, "ErrImagePull") == 0 ||
           strcmp(reason, "ErrImageNeverPull") == 0 || strcmp(reason, "InvalidImageName") == 0;
}

static void check_operator_pods(const doctor *d)
{
    size_t i;
    json_t *pod;
    each_of(fact(d, "operatorPods"), i, pod)
    {
        const char *message = "", *reason = trouble_of_pod(pod, &message);
        PP_CLEANUP_JSON json_t *text =
            json_sprintf("pod %s: %s%s%s", name_of(pod), reason, *message ? ": " : "", message);
        if (*reason)
            find(d, is_pull(reason) ? "OperatorImageNotPulled" : "OperatorNotReady", "operator",
                 json_string_value(text),
                 is_pull(reason)
                     ? "let the node pull the chart's image (image.repository, image.pullSecrets)"
                     : "look at its log and at the body of its /readyz (docs/operating.md)");
    }
}

static bool check_deployment(const doctor *d)
{
    size_t i;
    json_t *one;
    json_int_t available = 0;
    if (!fact(d, "deployments"))
        return true;
    if (count(d, "deployments") == 0) {
        find(d, "OperatorMissing", "operator", "no Deployment of ours is in its namespace",
             "install the chart, or name its namespace: --system NAMESPACE");
        return false;
    }
    each_of(fact(d, "deployments"), i, one) available +=
        json_integer_value(pp_json_get(one, "status", "availableReplicas", NULL));
    if (available > 0)
        return true;
    check_operator_pods(d);
    if (json_array_size(d->findings) == 0 || (!is_found(d, "OperatorNotReady", "operator") &&
                                              !is_found(d, "OperatorImageNotPulled", "operator")))
        find(d, "OperatorNotReady", "operator", "no replica is available",
             "kubectl describe its Deployment: are there replicas, and nodes with room for them?");
    return false;
}

static void check_service(const doctor *d)
{
    size_t i, k, ready = 0;
    json_t *slice, *endpoint;
    if (fact(d, "services") && count(d, "services") == 0)
        find(d, "ServiceUnavailable", "operator", "the operator's Service is gone",
             pp_remedy("ServiceUnavailable"));
    if (!fact(d, "endpoints") || !fact(d, "services"))
        return;
    each_of(fact(d, "endpoints"), i, slice)
    {
        json_array_foreach(json_object_get(slice, "endpoints"), k, endpoint) ready +=
            json_is_true(pp_json_get(endpoint, "conditions", "ready", NULL));
    }
    if (ready == 0)
        find(d, "ServiceUnavailable", "operator", "its Service has no endpoint that is ready",
             pp_remedy("ServiceUnavailable"));
}

static void check_webhook(const doctor *d)
{
    size_t i, k;
    json_t *one, *hook;
    if (fact(d, "webhooks") && count(d, "webhooks") == 0)
        find(d, "WebhookMissing", "operator",
             "there is no MutatingWebhookConfiguration of ours: pods are not given to the operator",
             pp_remedy("WebhookMissing"));
    each_of(fact(d, "webhooks"), i, one)
    {
        json_array_foreach(json_object_get(one, "webhooks"), k, hook)
        {
            const char *authority = pp_json_get_string(hook, "clientConfig", "caBundle", NULL);
            if (!authority || !*authority)
                find(d, "WebhookWithoutCA", "operator", name_of(one),
                     "the operator writes it when it leads: look at its log");
        }
    }
}

/* A metric's value in a pod's text, with these labels in its braces or without any; -1: none. */
static double metric(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n) {
        if ((at == text || at[-1] == '\n') && at[n] == ' ')
            return strtod(at + n, NULL);
    }
    return -1;
}

/* Lines of precisionprobe_kube_denied{what="..."} 1 */
static void check_denied(const doctor *d, const char *text)
{
    static const char name[] = "\nprecisionprobe_kube_denied{what=\"";
    for (const char *at = text; (at = strstr(at, name));) {
        at += sizeof name - 1;
        const char *end = strchr(at, '"');
        if (end && end[1] == '}' && strtod(end + 2, NULL) > 0) {
            PP_CLEANUP_JSON json_t *what =
                json_sprintf("the API server denies the operator to %.*s", (int)(end - at), at);
            find(d, "RightsMissing", "operator", json_string_value(what),
                 pp_remedy("RightsMissing"));
        }
    }
}

static void check_metrics(const doctor *d)
{
    const char *pod;
    json_t *value;
    json_object_foreach(json_object_get(d->facts, "metrics"), pod, value)
    {
        const char *text = json_is_string(value) ? json_string_value(value) : "";
        check_denied(d, text);
        if (metric(text, "precisionprobe_idle") > 0)
            find(d, "AnotherInstallation", "operator", "it is idle: another one came first",
                 pp_remedy("AnotherInstallation"));
        if (metric(text, "precisionprobe_leader") <= 0)
            continue;
        if (metric(text, "precisionprobe_store_up") == 0)
            find(d, "StoreUnavailable", "operator", "precisionprobe_store_up is 0",
                 pp_remedy("StoreUnavailable"));
        if (metric(text, "precisionprobe_prometheus_up") == 0)
            find(d, "PrometheusUnavailable", "operator",
                 "precisionprobe_prometheus_up is 0: it does not answer, or none is configured",
                 pp_remedy("PrometheusUnavailable"));
    }
}

/* ---- the user, and the training's namespace ---- */

static void check_rights(const doctor *d)
{
    const char *what;
    json_t *answer;
    json_object_foreach(json_object_get(d->facts, "may"), what, answer)
    {
        PP_CLEANUP_JSON json_t *text = json_sprintf("kubectl auth can-i %s -n %s: no", what,
                                                    pp_results_text(d->facts, "namespace"));
        if (strcmp(json_string_value(answer) ? json_string_value(answer) : "", "no") == 0)
            find(d, "YourRightsMissing", what, json_string_value(text),
                 "have a RoleBinding to the ClusterRole edit (to start) or view (to read) in that "
                 "namespace");
    }
}

/* What `report`, `top` and the page need beside a session. */
static void check_reading(const doctor *d)
{
    const char *right, *account = pp_results_text(d->facts, "account");
    const char *namespace = pp_results_text(d->facts, "namespace");
    json_t *told;
    json_object_foreach(json_object_get(d->facts, "mayRead"), right, told)
    {
        const bool is_token = strstr(right, "token") != NULL;
        PP_CLEANUP_JSON json_t *text =
            json_sprintf("kubectl auth can-i %s: no", pp_results_text(told, "asked"));
        if (strcmp(pp_results_text(told, "answer"), "no") == 0)
            warn(d, "YourRightsMissing", right, json_string_value(text),
                 is_token ? "to read results, have a RoleBinding to the ClusterRole edit in that "
                            "namespace, or give a token: --token-file"
                          : "to read results, have a Role with get on services/proxy in that "
                            "namespace");
    }
    if (*account && fact(d, "reader") && pp_json_get(fact(d, "reader"), "items", NULL)) {
        char remedy[2048];
        PP_CLEANUP_JSON json_t *of = json_sprintf("namespace %s", namespace);
        PP_CLEANUP_JSON json_t *text =
            json_sprintf("there is no service account %s, whose token reads results", account);
        pp_remedy_reader(namespace, account, " && ", remedy, sizeof remedy);
        warn(d, "ReaderMissing", json_string_value(of), json_string_value(text), remedy);
    }
}

static bool gives(const json_t *resources, const char *vendor)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)resources, key, value)
    {
        const bool some = json_is_string(value) && strtod(json_string_value(value), NULL) > 0;
        if (some && strncmp(key, vendor, strlen(vendor)) == 0)
            return true;
    }
    return false;
}

static bool some_node_gives(const doctor *d, const char *vendor)
{
    size_t i;
    json_t *node;
    each_of(fact(d, "nodes"), i, node)
    {
        if (gives(pp_json_get(node, "status", "allocatable", NULL), vendor))
            return true;
    }
    return false;
}

static void check_gpus(const doctor *d)
{
    if (fact(d, "nodes") && !some_node_gives(d, "nvidia.com/") &&
        !some_node_gives(d, "amd.com/gpu"))
        find(d, "NoGPUNodes", "cluster", "no node has nvidia.com/gpu or amd.com/gpu to give",
             "install the GPU's device plugin; without GPUs layers are timed only");
}

/* A session that has samples by now: some exporter runs, whatever its pods are called. */
static bool samples_arrive(const doctor *d)
{
    size_t i;
    json_t *session;
    each_of(fact(d, "sessions"), i, session)
    {
        if (!is(pp_status_condition(session, "Finished"), "True") &&
            is(pp_status_condition(session, "MetricsAvailable"), "True"))
            return true;
    }
    return false;
}

static void check_exporter_pods(const doctor *d)
{
    static const char *const lists[] = {"exporterPods", "gpuOperatorPods"};
    size_t i, pods = 0, running = 0;
    json_t *pod;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        if (!fact(d, lists[k]))
            return;
        pods += count(d, lists[k]);
        each_of(fact(d, lists[k]), i, pod) running +=
            strcmp(pp_results_text(json_object_get(pod, "status"), "phase"), "Running") == 0;
    }
    if (running > 0 || !some_node_gives(d, "nvidia.com/") || samples_arrive(d))
        return;
    find(d, "ExporterMissing", "cluster",
         pods > 0 ? "no pod of dcgm-exporter runs"
                  : "there are nodes with nvidia.com/gpu, and in no namespace a pod with the label "
                    "app.kubernetes.io/name=dcgm-exporter or app=nvidia-dcgm-exporter",
         pods > 0 ? "kubectl describe its pods: what keeps them from running?"
                  : "install dcgm-exporter (docs/prometheus.md); if it runs under another label or "
                    "outside the cluster, see that Prometheus has DCGM_FI_DEV_GPU_UTIL");
}

static void check_exporters(const doctor *d)
{
    const char *pod;
    json_t *series;
    check_exporter_pods(d);
    json_object_foreach(json_object_get(d->facts, "exporters"), pod, series)
    {
        char lacks[1024];
        pp_exporter_lacks(series, lacks, sizeof lacks);
        PP_CLEANUP_JSON json_t *text = json_sprintf("pod %s does not export %s", pod, lacks);
        if (*lacks)
            find(d, "ExporterLacksFields", "cluster", json_string_value(text),
                 pp_remedy("MetricsMissing"));
    }
}

static void check_clocks(const doctor *d)
{
    size_t i;
    json_t *one;
    PP_CLEANUP_JSON json_t *found = pp_node_clocks(d->facts);
    json_array_foreach(found, i, one)
    {
        find(d, "NodeClockSkewed", pp_results_text(one, "of"), pp_results_text(one, "evidence"),
             "set the clock that is wrong: the node's, or this machine's");
    }
}

/* What the API server has refused a controller: its Events say it, no pod does. */
static void check_quota(const doctor *d)
{
    size_t i;
    json_t *event;
    each_of(fact(d, "events"), i, event)
    {
        const char *message = pp_results_text(event, "message");
        if (strcmp(pp_results_text(event, "reason"), "FailedCreate") == 0 &&
            strstr(message, "exceeded quota"))
            find(d, "QuotaExceeded",
                 pp_results_text(json_object_get(event, "involvedObject"), "name"), message,
                 "raise the ResourceQuota, or ask for less");
    }
}

/* ---- sessions ---- */

static void find_condition(const doctor *d, const char *of, const json_t *c)
{
    const char *reason = pp_results_text(c, "reason");
    if (pp_remedy_is_needed(reason))
        find(d, reason, of, pp_results_text(c, "message"), pp_remedy(reason));
}

/* Pods that have no hook, do not start with it or are not heard from. */
static void check_targets(const doctor *d, const json_t *session, const char *of)
{
    size_t i;
    json_t *target;
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(session, "status", "targets", NULL), i,
                       target)
    {
        const char *reason = pp_results_text(target, "reason");
        const char *message = pp_results_text(target, "message");
        PP_CLEANUP_JSON json_t *text = json_sprintf("pod %s%s%s", pp_results_text(target, "pod"),
                                                    *message ? ": " : "", message);
        if (*reason && pp_remedy_is_needed(reason))
            find(d, reason, of, json_string_value(text), pp_remedy(reason));
    }
}

/* False is bad of some conditions, True of others. */
static void check_session(const doctor *d, const json_t *session)
{
    static const struct {
        const char *type, *bad;
    } conditions[] = {{"Stalled", "True"},           {"Accepted", "False"}, {"ClockSkewed", "True"},
                      {"MetricsAvailable", "False"}, {"Stored", "False"},   {"Sampled", "False"},
                      {"Replayed", "False"},         {"Explained", "False"}};
    PP_CLEANUP_JSON json_t *of = json_sprintf("session %s", name_of(session));
    if (json_array_size(pp_json_get(session, "status", "conditions", NULL)) == 0) {
        find(d, "SessionNotSeen", json_string_value(of),
             "it has no conditions: nobody looked at it",
             "see that the operator runs, is ready and watches this namespace");
        return;
    }
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        const json_t *c = pp_status_condition(session, conditions[i].type);
        if (is(c, conditions[i].bad))
            find_condition(d, json_string_value(of), c);
    }
    check_targets(d, session, json_string_value(of));
}

/* Those that are over are only looked at where they are asked for. */
static void check_sessions(const doctor *d)
{
    size_t i;
    json_t *session;
    bool found = false;
    each_of(fact(d, "sessions"), i, session)
    {
        const bool asked = d->session && strcmp(name_of(session), d->session) == 0;
        found |= asked;
        if (asked || (!d->session && !is(pp_status_condition(session, "Finished"), "True")))
            check_session(d, session);
    }
    if (d->session && !found && fact(d, "sessions"))
        find(d, "NoSuchSession", d->session, "it is not in the namespace",
             "kubectl get profilesessions -A; a session that had ended goes with its time to live");
}

json_t *pp_doctor_findings(const json_t *facts, const char *session)
{
    const doctor d = {facts, session, json_array()};
    if (!d.findings || !check_server(&d))
        return d.findings;
    check_crds(&d);
    if (check_deployment(&d))
        check_service(&d);
    check_metrics(&d); /* a replica that is not ready tells why, too */
    check_webhook(&d);
    check_rights(&d);
    check_gpus(&d);
    check_exporters(&d);
    check_clocks(&d);
    check_sessions(&d);
    check_quota(&d);
    check_reading(&d);
    return d.findings;
}

bool pp_doctor_is_well(const json_t *findings)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)findings, i, one)
    {
        if (!json_is_true(json_object_get(one, "warning")))
            return false;
    }
    return true;
}

void pp_doctor_print(FILE *to, const json_t *findings, const json_t *facts)
{
    size_t i;
    json_t *one;
    const char *name;
    json_array_foreach((json_t *)(uintptr_t)findings, i, one)
    {
        (void)fprintf(to, "%s%s (%s)\n  %s\n  -> %s\n",
                      json_is_true(json_object_get(one, "warning")) ? "warning: " : "",
                      pp_results_text(one, "what"), pp_results_text(one, "of"),
                      pp_results_text(one, "evidence"), pp_results_text(one, "remedy"));
    }
    json_object_foreach(json_object_get(facts, "unknown"), name, one)
    {
        if (strcmp(name, "server") != 0)
            (void)fprintf(to, "not looked at: %s: %s\n", name,
                          json_is_string(one) ? json_string_value(one) : "");
    }
    if (pp_doctor_is_well(findings))
        (void)fprintf(to, "nothing is missing%s\n",
                      json_array_size(findings) > 0 ? " that a session needs" : "");
}
