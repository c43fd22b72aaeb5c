#include "cli/kubectl/start.h"

#include "cli/results/results.h"
#include "common/buf.h"
#include "common/cleanup.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 4096 };

/* Labels that tell one set of an owner's pods from the next: a session is to outlive a rollout. */
static bool is_of_one_rollout(const char *label)
{
    static const char *const labels[] = {"pod-template-hash", "controller-revision-hash",
                                         "statefulset.kubernetes.io/pod-name",
                                         "apps.kubernetes.io/pod-index"};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (strcmp(label, labels[i]) == 0)
            return true;
    return false;
}

/* ---- selectors ---- */

static json_t *selector_of_pod(const json_t *pod)
{
    json_t *labels = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)pp_json_get(pod, "metadata", "labels", NULL), key,
                        value)
    {
        if (!is_of_one_rollout(key))
            (void)json_object_set(labels, key, value);
    }
    if (json_object_size(labels) == 0) {
        json_decref(labels);
        return NULL;
    }
    return json_pack("{s:o}", "matchLabels", labels);
}

/* What the owner itself finds its pods by. */
static json_t *selector_of(const json_t *owner)
{
    if (strcmp(pp_results_text(owner, "kind"), "Pod") == 0)
        return selector_of_pod(owner);
    const json_t *selector = pp_json_get(owner, "spec", "selector", NULL);
    if (!json_object_get(selector, "matchLabels") && !json_object_get(selector, "matchExpressions"))
        return NULL;
    return json_deep_copy(selector);
}

/* One of "a=b", "a==b", "a!=b", "a": what `kubectl get -l` takes, but for sets. */
static int add_label(json_t *selector, char *text, pp_error *err)
{
    char *equals = strchr(text, '=');
    text += strspn(text, " ");
    if (!equals || equals == text || strpbrk(text, "()!"))
        return pp_error_field(err, "--selector", "must be NAME=VALUE,..., not %s", text);
    *equals = '\0';
    const char *value = equals + 1 + (equals[1] == '=');
    return json_object_set_new(json_object_get(selector, "matchLabels"), text,
                               json_string(value)) == 0
               ? 0
               : pp_error_nomem(err);
}

static int selector_of_labels(const char *labels, json_t **ret, pp_error *err)
{
    PP_CLEANUP_FREE char *copy = strdup(labels);
    json_t *selector = json_pack("{s:{}}", "matchLabels");
    char *rest = copy;
    int rc = copy && selector ? 0 : pp_error_nomem(err);
    for (char *one; rc == 0 && (one = strsep(&rest, ","));)
        rc = add_label(selector, one, err);
    if (rc < 0)
        json_decref(selector);
    else
        *ret = selector;
    return rc;
}

/* ---- the object ---- */

static int set_budget(json_t *spec, const char *text, pp_error *err)
{
    char *end = NULL;
    const double percent = strtod(text, &end);
    if (end == text || *end)
        return pp_error_field(err, "--budget", "must be a number, not %s", text);
    return json_object_set_new(spec, "overheadBudgetPercent", json_real(percent)) == 0
               ? 0
               : pp_error_nomem(err);
}

static json_t *metadata_of(const pp_start_request *r)
{
    char prefix[64];
    if (r->name)
        return json_pack("{s:s}", "name", r->name);
    const char *of =
        r->owner ? pp_results_text(json_object_get(r->owner, "metadata"), "name") : "pods";
    (void)snprintf(prefix, sizeof prefix, "%.50s-", of);
    return json_pack("{s:s}", "generateName", prefix);
}

int pp_start_session(const pp_start_request *r, json_t **ret, pp_error *err)
{
    const struct {
        const char *field, *value;
    } texts[] = {{"duration", r->duration}, {"deadline", r->deadline}, {"method", r->method}};
    json_t *selector = NULL;
    if (r->labels && selector_of_labels(r->labels, &selector, err) < 0)
        return -1;
    if (!r->labels)
        selector = selector_of(r->owner);
    if (!selector)
        return pp_error_set(err, PP_ERR_INVALID,
                            "it has no selector and no labels by which its pods could be found: "
                            "say --selector NAME=VALUE");
    json_t *session =
        json_pack("{s:s, s:s, s:o, s:{s:o}}", "apiVersion", "precisionprobe.io/v1alpha1", "kind",
                  "ProfileSession", "metadata", metadata_of(r), "spec", "selector", selector);
    json_t *spec = json_object_get(session, "spec");
    for (size_t i = 0; session && i < sizeof texts / sizeof *texts; i++)
        if (texts[i].value)
            (void)json_object_set_new(spec, texts[i].field, json_string(texts[i].value));
    if (!session || (r->budget && set_budget(spec, r->budget, err) < 0)) {
        json_decref(session);
        return err->code != PP_OK ? -1 : pp_error_nomem(err);
    }
    *ret = session;
    return 0;
}

/* ---- pods that are there already ---- */

static int add_expression(pp_buf *to, const json_t *expression, pp_error *err)
{
    const char *key = pp_results_text(expression, "key");
    const char *operator= pp_results_text(expression, "operator");
    const bool in = strcmp(operator, "In") == 0;
    size_t i;
    json_t *value;
    if (strcmp(operator, "Exists") == 0 || strcmp(operator, "DoesNotExist") == 0)
        return pp_buf_printf(to, err, "%s%s", strcmp(operator, "Exists") == 0 ? "" : "!", key);
    if (pp_buf_printf(to, err, "%s %s (", key, in ? "in" : "notin") < 0)
        return -1;
    json_array_foreach(json_object_get(expression, "values"), i, value)
    {
        if (pp_buf_printf(to, err, "%s%s", i ? "," : "",
                          json_is_string(value) ? json_string_value(value) : "") < 0)
            return -1;
    }
    return pp_buf_printf(to, err, ")");
}

char *pp_start_selector_text(const json_t *session)
{
    const json_t *selector = pp_json_get(session, "spec", "selector", NULL);
    const char *key, *comma = "";
    size_t i;
    json_t *value;
    pp_buf text;
    pp_buf_init(&text, TEXT_MAX);
    int rc = pp_buf_append(&text, "", 0, NULL);
    json_object_foreach(json_object_get(selector, "matchLabels"), key, value)
    {
        rc |= pp_buf_printf(&text, NULL, "%s%s=%s", comma, key,
                            json_is_string(value) ? json_string_value(value) : "");
        comma = ",";
    }
    json_array_foreach(json_object_get(selector, "matchExpressions"), i, value)
    {
        rc |= pp_buf_printf(&text, NULL, "%s", comma);
        rc |= add_expression(&text, value, NULL);
        comma = ",";
    }
    char *copy = rc == 0 ? strdup(text.data ? text.data : "") : NULL;
    pp_buf_done(&text);
    return copy;
}

static bool has_hook(const json_t *pod)
{
    static const char *const lists[] = {"initContainers", "containers"};
    size_t i;
    json_t *container;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        json_array_foreach((json_t *)(uintptr_t)pp_json_get(pod, "spec", lists[k], NULL), i,
                           container)
        {
            if (strcmp(pp_results_text(container, "name"), "precisionprobe-agent") == 0)
                return true;
        }
    }
    return false;
}

size_t pp_start_count_without_hook(const json_t *pods)
{
    size_t i, n = 0;
    json_t *pod;
    json_array_foreach(json_object_get(pods, "items"), i, pod)
    {
        const char *phase = pp_results_text(json_object_get(pod, "status"), "phase");
        n += strcmp(phase, "Succeeded") != 0 && strcmp(phase, "Failed") != 0 && !has_hook(pod);
    }
    return n;
}
