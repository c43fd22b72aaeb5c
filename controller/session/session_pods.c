/* Which pods a session means, and which of their containers. */
#include "controller/session/session.h"

#include "common/time.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_MAX = 63 }; /* of a label's value, as the API has it */

static bool requirement_met(const pp_selector_requirement *r, const char *value)
{
    switch (r->op) {
    case PP_SELECTOR_IN:
        return value && pp_strings_contain(&r->values, value);
    case PP_SELECTOR_NOT_IN: /* as Kubernetes has it: a pod without the label matches */
        return !value || !pp_strings_contain(&r->values, value);
    case PP_SELECTOR_EXISTS:
        return value != NULL;
    case PP_SELECTOR_DOES_NOT_EXIST:
        return value == NULL;
    }
    return false;
}

bool pp_selector_matches(const pp_selector *selector, const json_t *labels)
{
    if (selector->n_labels == 0 && selector->n_requirements == 0)
        return false;
    for (size_t i = 0; i < selector->n_labels; i++) {
        const char *value = json_string_value(json_object_get(labels, selector->labels[i].key));
        if (!value || strcmp(value, selector->labels[i].value) != 0)
            return false;
    }
    for (size_t i = 0; i < selector->n_requirements; i++) {
        const pp_selector_requirement *r = &selector->requirements[i];
        if (!requirement_met(r, json_string_value(json_object_get(labels, r->key))))
            return false;
    }
    return true;
}

/* Appends to a text that may be full. */
__attribute__((format(printf, 3, 4))) static void append(char *out, size_t size, const char *fmt,
                                                         ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(out + used, size - used, fmt, args);
    va_end(args);
}

static void format_requirement(const pp_selector_requirement *r, char *out, size_t size)
{
    if (r->op == PP_SELECTOR_EXISTS || r->op == PP_SELECTOR_DOES_NOT_EXIST) {
        append(out, size, "%s%s", r->op == PP_SELECTOR_EXISTS ? "" : "!", r->key);
        return;
    }
    append(out, size, "%s %s (", r->key, r->op == PP_SELECTOR_IN ? "in" : "notin");
    for (size_t i = 0; i < r->values.count; i++)
        append(out, size, "%s%s", i ? "," : "", r->values.items[i]);
    append(out, size, ")");
}

void pp_selector_format(const pp_selector *selector, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0; i < selector->n_labels; i++)
        append(out, size, "%s%s=%s", *out ? "," : "", selector->labels[i].key,
               selector->labels[i].value);
    for (size_t i = 0; i < selector->n_requirements; i++) {
        append(out, size, "%s", *out ? "," : "");
        format_requirement(&selector->requirements[i], out, size);
    }
}

static const char *label(const json_t *labels, const char *key)
{
    return json_string_value(json_object_get(labels, key));
}

/* How many of the selector's demands the labels do not meet; *ret_demand is the first of them. */
static size_t unmet(const pp_selector *s, const json_t *labels, pp_selector_requirement *ret_demand)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_labels; i++) {
        const char *value = label(labels, s->labels[i].key);
        if (value && strcmp(value, s->labels[i].value) == 0)
            continue;
        if (n++ == 0)
            *ret_demand = (pp_selector_requirement){
                .key = s->labels[i].key, .op = PP_SELECTOR_IN, .values = {&s->labels[i].value, 1}};
    }
    for (size_t i = 0; i < s->n_requirements; i++) {
        if (!requirement_met(&s->requirements[i], label(labels, s->requirements[i].key)) &&
            n++ == 0)
            *ret_demand = s->requirements[i];
    }
    return n;
}

/* Letters to add, drop or exchange from one value of a label to another (Levenshtein). */
static size_t letters_apart(const char *a, const char *b)
{
    const size_t n = strlen(b);
    size_t row[LABEL_MAX + 1];
    if (strlen(a) > LABEL_MAX || n > LABEL_MAX)
        return LABEL_MAX + 1;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t exchanged = corner + (a[i] != b[j]);
            const size_t added = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            corner = row[j + 1];
            row[j + 1] = exchanged < added ? exchanged : added;
        }
    }
    return row[n];
}

/* Of values that are as far from what is asked, the first stays. */
static bool is_nearer(const pp_selector_near *near, size_t n, size_t letters)
{
    return !near->text[0] || n < near->unmet || (n == near->unmet && letters < near->letters);
}

static bool is_one_value(const pp_selector_requirement *r)
{
    return r->op == PP_SELECTOR_IN && r->values.count == 1;
}

void pp_selector_near_add(pp_selector_near *near, const pp_selector *selector, const char *pod,
                          const json_t *labels)
{
    pp_selector_requirement demand = {0};
    size_t n = unmet(selector, labels, &demand);
    const char *value = n ? label(labels, demand.key) : NULL;
    const size_t letters = value && is_one_value(&demand)
                               ? letters_apart(value, demand.values.items[0])
                               : LABEL_MAX + 1;
    near->pods++;
    /* One that has the label with another value may be meant; one without it hardly is, unless it
     * meets other demands. */
    if (n == 0 || (n == selector->n_labels + selector->n_requirements && !value) ||
        !is_nearer(near, n, letters))
        return;
    near->unmet = n;
    near->letters = letters;
    (void)snprintf(near->text, sizeof near->text, "pod %s has ", pod);
    if (value)
        append(near->text, sizeof near->text, "%s=%s", demand.key, value);
    else
        append(near->text, sizeof near->text, "no label %s", demand.key);
    append(near->text, sizeof near->text, ", where the selector has ");
    if (is_one_value(&demand))
        append(near->text, sizeof near->text, "%s=%s", demand.key, demand.values.items[0]);
    else
        format_requirement(&demand, near->text, sizeof near->text);
}

/* "0" asks for nothing; whatever else stands there asks for something. */
static bool asks_for(const json_t *container, const char *resource)
{
    static const char *const kinds[] = {"limits", "requests"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *amount = pp_json_get(container, "resources", kinds[i], resource, NULL);
        const char *text = json_string_value(amount);
        if (text ? strcmp(text, "0") != 0 : json_integer_value(amount) > 0)
            return true;
    }
    return false;
}

static bool asks_for_gpu(const json_t *container, const pp_strings *gpu_resources)
{
    for (size_t i = 0; i < gpu_resources->count; i++) {
        if (asks_for(container, gpu_resources->items[i]))
            return true;
    }
    return false;
}

static bool listed(const size_t *list, size_t n, size_t index)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i] == index)
            return true;
    }
    return false;
}

static int named_containers(const pp_session *session, const json_t *containers, size_t *ret,
                            size_t max, pp_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < session->containers.count && n < max; i++) {
        const char *wanted = session->containers.items[i];
        size_t at = 0;
        for (; at < json_array_size(containers); at++) {
            const char *name = pp_json_get_string(json_array_get(containers, at), "name", NULL);
            if (name && strcmp(name, wanted) == 0)
                break;
        }
        if (at == json_array_size(containers))
            return pp_error_set(err, PP_ERR_NOT_FOUND, "the pod has no container named \"%s\"",
                                wanted);
        if (!listed(ret, n, at))
            ret[n++] = at;
    }
    return (int)n;
}

int pp_session_containers(const pp_session *session, const json_t *pod,
                          const pp_strings *gpu_resources, size_t *ret, size_t max, pp_error *err)
{
    const json_t *containers = pp_json_get(pod, "spec", "containers", NULL);
    if (!json_is_array(containers) || json_array_size(containers) == 0)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "the pod has no containers");
    if (session && session->containers.count > 0)
        return named_containers(session, containers, ret, max, err);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(containers) && n < max; i++) {
        if (asks_for_gpu(json_array_get(containers, i), gpu_resources))
            ret[n++] = i;
    }
    if (n == 0 && max > 0)
        ret[n++] = 0;
    return (int)n;
}

static int64_t last_finish(const json_t *pod)
{
    int64_t last = 0;
    const json_t *statuses = pp_json_get(pod, "status", "containerStatuses", NULL);
    for (size_t i = 0; i < json_array_size(statuses); i++) {
        const char *text = pp_json_get_string(json_array_get(statuses, i), "state", "terminated",
                                              "finishedAt", NULL);
        int64_t at = 0;
        if (text && pp_time_parse(text, &at, NULL) == 0 && at > last)
            last = at;
    }
    return last;
}

int pp_session_pod_from_json(const json_t *pod, pp_session_pod *ret)
{
    *ret = (pp_session_pod){.rank = -1, .epoch = -1, .batch = -1};
    ret->name = pp_json_get_string(pod, "metadata", "name", NULL);
    ret->uid = pp_json_get_string(pod, "metadata", "uid", NULL);
    if (!ret->name || !ret->uid)
        return -1;
    ret->node = pp_json_get_string(pod, "spec", "nodeName", NULL);
    ret->session_uid =
        pp_json_get_string(pod, "metadata", "annotations", PP_ANNOTATION_SESSION_UID, NULL);
    const char *created = pp_json_get_string(pod, "metadata", "creationTimestamp", NULL);
    if (created)
        (void)pp_time_parse(created, &ret->created_ns, NULL);
    const char *phase = pp_json_get_string(pod, "status", "phase", NULL);
    ret->running = phase && strcmp(phase, "Running") == 0;
    ret->failed = phase && strcmp(phase, "Failed") == 0;
    ret->finished = ret->failed || (phase && strcmp(phase, "Succeeded") == 0);
    ret->finished_ns = ret->finished ? last_finish(pod) : 0;
    return 0;
}
