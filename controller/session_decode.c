/* The API object into a pp_session, and the rules of its spec. */
#include "controller/session.h"

#include "common/cleanup.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define MILLISECOND INT64_C(1000000)
#define MAX_DURATION (24 * 3600 * SECOND)
#define MAX_DEADLINE (7 * 24 * 3600 * SECOND)
#define MIN_DWELL (100 * MILLISECOND)
#define MAX_PAUSE (3600 * SECOND)

enum {
    MAX_CONTAINERS = 16,
    MAX_GLOBS = 64,
    MAX_GLOB = 256,
    MAX_STEPS = 1000000,
    MAX_DEPTH = 64,
    MAX_TTL = 365 * 24 * 3600, /* s */
    MAX_NAME = 253,
};

static const pp_json_field metadata_fields[] = {
    {"namespace", PP_JSON_STRING, offsetof(pp_session, namespace_), true, MAX_NAME},
    {"name", PP_JSON_STRING, offsetof(pp_session, name), true, MAX_NAME},
    {"uid", PP_JSON_STRING, offsetof(pp_session, uid), true, 63},
    {"resourceVersion", PP_JSON_STRING, offsetof(pp_session, resource_version), false, 0},
    {"generation", PP_JSON_INT, offsetof(pp_session, generation), false, 0},
    {"creationTimestamp", PP_JSON_TIME, offsetof(pp_session, created_ns), true, 0},
    {0},
};

static const pp_json_field spec_fields[] = {
    {"containers", PP_JSON_STRINGS, offsetof(pp_session, containers), false, MAX_CONTAINERS},
    {"duration", PP_JSON_DURATION, offsetof(pp_session, duration_ns), false, 0},
    {"deadline", PP_JSON_DURATION, offsetof(pp_session, deadline_ns), false, 0},
    {"overheadBudgetPercent", PP_JSON_NUMBER, offsetof(pp_session, overhead_budget_percent), false,
     0},
    {"method", PP_JSON_STRING, offsetof(pp_session, method), false, 0},
    {"existingPods", PP_JSON_STRING, offsetof(pp_session, existing_pods), false, 0},
    {"tolerance", PP_JSON_NUMBER, offsetof(pp_session, tolerance_percent), false, 0},
    {"suspend", PP_JSON_BOOL, offsetof(pp_session, suspend), false, 0},
    {0},
};

static const pp_json_field steps_fields[] = {
    {"skip", PP_JSON_INT, offsetof(pp_session, steps_skip), false, MAX_STEPS},
    {"max", PP_JSON_INT, offsetof(pp_session, steps_max), false, MAX_STEPS},
    {0},
};

static const pp_json_field isolation_fields[] = {
    {"dwell", PP_JSON_DURATION, offsetof(pp_session, dwell_ns), false, 0},
    {"maxPause", PP_JSON_DURATION, offsetof(pp_session, max_pause_ns), false, 0},
    {0},
};

static const pp_json_field layers_fields[] = {
    {"include", PP_JSON_STRINGS, offsetof(pp_session, include), false, MAX_GLOBS},
    {"exclude", PP_JSON_STRINGS, offsetof(pp_session, exclude), false, MAX_GLOBS},
    {"types", PP_JSON_STRINGS, offsetof(pp_session, types), false, MAX_GLOBS},
    {"depth", PP_JSON_INT, offsetof(pp_session, depth), false, MAX_DEPTH},
    {0},
};

static const pp_json_field status_fields[] = {
    {"startTime", PP_JSON_TIME, offsetof(pp_session, start_ns), false, 0},
    {"samplingEndTime", PP_JSON_TIME, offsetof(pp_session, sampling_end_ns), false, 0},
    {"completionTime", PP_JSON_TIME, offsetof(pp_session, completion_ns), false, 0},
    {"endsAt", PP_JSON_TIME, offsetof(pp_session, ends_at_ns), false, 0},
    {"deadlineAt", PP_JSON_TIME, offsetof(pp_session, deadline_at_ns), false, 0},
    {"suspendedAt", PP_JSON_TIME, offsetof(pp_session, suspended_at_ns), false, 0},
    {0},
};

/* The spec's lists of names that become bits. */
typedef struct name_lists {
    pp_strings phases, metrics;
} name_lists;

static const pp_json_field list_fields[] = {
    {"phases", PP_JSON_STRINGS, offsetof(name_lists, phases), false, 3},
    {"metrics", PP_JSON_STRINGS, offsetof(name_lists, metrics), false, PP_METRIC_COUNT},
    {0},
};

static const struct {
    const char *name;
    unsigned bit;
} phase_bits[] = {{"Forward", PP_SESSION_FORWARD},
                  {"Backward", PP_SESSION_BACKWARD},
                  {"Optimizer", PP_SESSION_OPTIMIZER}};

static int copy_text(const char *text, char **ret, pp_error *err)
{
    *ret = strdup(text);
    return *ret ? 0 : pp_error_nomem(err);
}

static bool alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Of a label: 1 to 63 letters, digits, "-", "_" and ".", the first and last no sign. */
static bool is_label_name(const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n > 63 || !alphanumeric(text[0]) || !alphanumeric(text[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!alphanumeric(text[i]) && !strchr("-_.", text[i]))
            return false;
    }
    return true;
}

/* A name, or one after a domain and "/": parts of lower case letters, digits and "-". */
static bool is_label_key(const char *text)
{
    size_t n = strcspn(text, "/");
    if (!text[n])
        return is_label_name(text);
    for (size_t i = 0; i < n; i++) {
        bool edge = i == 0 || i == n - 1 || text[i - 1] == '.' || text[i + 1] == '.';
        bool sign = text[i] == '.' || text[i] == '-';
        if (sign ? edge : !alphanumeric(text[i]) || (text[i] >= 'A' && text[i] <= 'Z'))
            return false;
    }
    return n > 0 && n <= 253 && is_label_name(text + n + 1);
}

static int check_label_key(const char *key, const char *at, pp_error *err)
{
    return is_label_key(key)
               ? 0
               : pp_error_field(err, at, "has a key that no label can have: \"%.60s\"", key);
}

static int check_label_value(const char *value, const char *at, pp_error *err)
{
    return !*value || is_label_name(value)
               ? 0
               : pp_error_field(err, at, "has a value that no label can have: \"%.60s\"", value);
}

static int decode_labels(const json_t *labels, pp_selector *ret, pp_error *err)
{
    static const char at[] = "spec.selector.matchLabels";
    if (!labels)
        return 0;
    if (!json_is_object(labels) || json_object_size(labels) > PP_SESSION_MAX_LABELS)
        return pp_error_field(err, at, "must be an object with at most %d labels",
                              PP_SESSION_MAX_LABELS);
    ret->labels = calloc(json_object_size(labels) + 1, sizeof *ret->labels);
    if (!ret->labels)
        return pp_error_nomem(err);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)labels, key, value)
    {
        if (!json_is_string(value))
            return pp_error_field(err, at, "the value of \"%.60s\" must be a string", key);
        if (check_label_key(key, at, err) < 0 ||
            check_label_value(json_string_value(value), at, err) < 0)
            return -1;
        pp_label *label = &ret->labels[ret->n_labels++];
        if (copy_text(key, &label->key, err) < 0 ||
            copy_text(json_string_value(value), &label->value, err) < 0)
            return -1;
    }
    return 0;
}

typedef struct raw_requirement {
    char *key;
    char *op;
    pp_strings values;
} raw_requirement;

static const pp_json_field requirement_fields[] = {
    {"key", PP_JSON_STRING, offsetof(raw_requirement, key), true, 317},
    {"operator", PP_JSON_STRING, offsetof(raw_requirement, op), true, 0},
    {"values", PP_JSON_STRINGS, offsetof(raw_requirement, values), false, 64},
    {0},
};

static int selector_operator(const char *name, pp_selector_operator *ret)
{
    static const char *const names[] = {
        [PP_SELECTOR_IN] = "In",
        [PP_SELECTOR_NOT_IN] = "NotIn",
        [PP_SELECTOR_EXISTS] = "Exists",
        [PP_SELECTOR_DOES_NOT_EXIST] = "DoesNotExist",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = (pp_selector_operator)i;
            return 0;
        }
    }
    return -1;
}

static int check_requirement(const raw_requirement *raw, const char *at, pp_selector_operator *op,
                             pp_error *err)
{
    if (selector_operator(raw->op, op) < 0)
        return pp_error_field(err, at, "operator must be In, NotIn, Exists or DoesNotExist");
    bool takes_values = *op == PP_SELECTOR_IN || *op == PP_SELECTOR_NOT_IN;
    if (takes_values && raw->values.count == 0)
        return pp_error_field(err, at, "values must not be empty for In and NotIn");
    if (!takes_values && raw->values.count > 0)
        return pp_error_field(err, at, "values must be empty for Exists and DoesNotExist");
    for (size_t i = 0; i < raw->values.count; i++) {
        if (check_label_value(raw->values.items[i], at, err) < 0)
            return -1;
    }
    return check_label_key(raw->key, at, err);
}

static int decode_requirement(const json_t *item, const char *at, pp_selector_requirement *ret,
                              pp_error *err)
{
    raw_requirement raw = {0};
    int rc = pp_json_decode(item, requirement_fields, false, at, &raw, err);
    if (rc == 0)
        rc = check_requirement(&raw, at, &ret->op, err);
    if (rc == 0) {
        ret->key = PP_TAKE(raw.key);
        ret->values = raw.values;
        raw.values = (pp_strings){0};
    }
    pp_json_free_fields(requirement_fields, &raw);
    return rc;
}

static int decode_expressions(const json_t *list, pp_selector *ret, pp_error *err)
{
    static const char path[] = "spec.selector.matchExpressions";
    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > PP_SESSION_MAX_EXPRESSIONS)
        return pp_error_field(err, path, "must be a list of at most %d items",
                              PP_SESSION_MAX_EXPRESSIONS);
    ret->requirements = calloc(json_array_size(list) + 1, sizeof *ret->requirements);
    if (!ret->requirements)
        return pp_error_nomem(err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char at[64];
        (void)snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (decode_requirement(json_array_get(list, i), at, &ret->requirements[i], err) < 0)
            return -1;
        ret->n_requirements++;
    }
    return 0;
}

static int decode_selector(const json_t *spec, pp_selector *ret, pp_error *err)
{
    const json_t *selector = json_object_get(spec, "selector");
    if (!json_is_object(selector))
        return pp_error_field(err, "spec.selector", "is required");
    if (decode_labels(json_object_get(selector, "matchLabels"), ret, err) < 0 ||
        decode_expressions(json_object_get(selector, "matchExpressions"), ret, err) < 0)
        return -1;
    if (ret->n_labels == 0 && ret->n_requirements == 0)
        return pp_error_field(err, "spec.selector",
                              "must not be empty: it would match every pod of the namespace");
    return 0;
}

static int decode_phases(const pp_strings *names, unsigned *ret, pp_error *err)
{
    unsigned bits = 0;
    for (size_t i = 0; i < names->count; i++) {
        unsigned bit = 0;
        for (size_t j = 0; j < sizeof phase_bits / sizeof phase_bits[0]; j++) {
            if (strcmp(names->items[i], phase_bits[j].name) == 0)
                bit = phase_bits[j].bit;
        }
        if (!bit)
            return pp_error_field(err, "spec.phases", "must be of Forward, Backward and Optimizer");
        bits |= bit;
    }
    if (bits)
        *ret = bits;
    return 0;
}

static int decode_metrics(const pp_strings *names, unsigned *ret, pp_error *err)
{
    unsigned bits = 0;
    for (size_t i = 0; i < names->count; i++) {
        pp_metric metric;
        if (pp_metric_from_name(names->items[i], &metric) < 0)
            return pp_error_field(err, "spec.metrics", "has no metric named \"%.40s\"",
                                  names->items[i]);
        bits |= 1U << metric;
    }
    if (bits)
        *ret = bits;
    return 0;
}

static int decode_lists(const json_t *spec, pp_session *session, pp_error *err)
{
    name_lists lists = {0};
    int rc = pp_json_decode(spec, list_fields, false, "spec", &lists, err);
    if (rc == 0)
        rc = decode_phases(&lists.phases, &session->phases, err);
    if (rc == 0)
        rc = decode_metrics(&lists.metrics, &session->metrics, err);
    pp_json_free_fields(list_fields, &lists);
    return rc;
}

static int decode_ttl(const json_t *spec, int64_t *ret, pp_error *err)
{
    static const char at[] = "spec.ttlSecondsAfterFinished";
    const json_t *ttl = json_object_get(spec, "ttlSecondsAfterFinished");
    if (!ttl || json_is_null(ttl))
        return 0;
    if (!json_is_integer(ttl) || json_integer_value(ttl) < 0 || json_integer_value(ttl) > MAX_TTL)
        return pp_error_field(err, at, "must be an integer from 0 to %d", MAX_TTL);
    *ret = json_integer_value(ttl) * SECOND;
    return 0;
}

static int decode_part(const json_t *spec, const char *name, const pp_json_field *fields,
                       pp_session *session, pp_error *err)
{
    const json_t *part = json_object_get(spec, name);
    if (!part || json_is_null(part))
        return 0;
    char at[32];
    (void)snprintf(at, sizeof at, "spec.%s", name);
    return pp_json_decode(part, fields, false, at, session, err);
}

static int check_texts(const pp_strings *texts, const char *path, size_t longest, pp_error *err)
{
    for (size_t i = 0; i < texts->count; i++) {
        size_t n = strlen(texts->items[i]);
        char at[64];
        (void)snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (n == 0 || n > longest)
            return pp_error_field(err, at, "must have 1 to %zu bytes", longest);
    }
    return 0;
}

static int check_times(const pp_session *s, pp_error *err)
{
    if (s->duration_ns < SECOND || s->duration_ns > MAX_DURATION)
        return pp_error_field(err, "spec.duration", "must be from 1s to 24h");
    if (s->deadline_ns < SECOND || s->deadline_ns > MAX_DEADLINE)
        return pp_error_field(err, "spec.deadline", "must be from 1s to 168h");
    if (s->deadline_ns < s->duration_ns)
        return pp_error_field(err, "spec.deadline", "must not be shorter than spec.duration");
    return 0;
}

static int check_isolation(const json_t *spec, const pp_session *s, pp_error *err)
{
    const json_t *given = json_object_get(spec, "isolation");
    if (given && !json_is_null(given) && !pp_session_asks_replays(s))
        return pp_error_field(err, "spec.isolation", "is of the method Isolated only");
    const json_t *dwell = json_object_get(given, "dwell");
    if (dwell && !json_is_null(dwell) &&
        (s->dwell_ns < MIN_DWELL || s->dwell_ns > PP_SESSION_DWELL_MAX))
        return pp_error_field(err, "spec.isolation.dwell", "must be from 100ms to 1m");
    if (s->max_pause_ns < SECOND || s->max_pause_ns > MAX_PAUSE)
        return pp_error_field(err, "spec.isolation.maxPause", "must be from 1s to 1h");
    if (s->max_pause_ns < s->dwell_ns)
        return pp_error_field(err, "spec.isolation.maxPause",
                              "must not be shorter than spec.isolation.dwell");
    return 0;
}

static int check_choices(const pp_session *s, pp_error *err)
{
    static const char *const methods[] = {"Auto", "Job", "Direct", "Isolated", "Fine"};
    size_t m = 0;
    while (m < sizeof methods / sizeof *methods && strcmp(s->method, methods[m]) != 0)
        m++;
    if (m == sizeof methods / sizeof *methods)
        return pp_error_field(err, "spec.method",
                              "\"%.20s\" is none of Auto, Job, Direct, Isolated and Fine",
                              s->method);
    if (strcmp(s->existing_pods, "Report") != 0)
        return pp_error_field(err, "spec.existingPods",
                              "\"%.20s\" is not available in this version; use Report",
                              s->existing_pods);
    return 0;
}

static int check_numbers(const pp_session *s, pp_error *err)
{
    /* Written so that NaN fails too. */
    if (!(s->overhead_budget_percent >= 0.01 && s->overhead_budget_percent <= 50))
        return pp_error_field(err, "spec.overheadBudgetPercent", "must be from 0.01 to 50");
    if (!(s->tolerance_percent >= 0 && s->tolerance_percent <= 100))
        return pp_error_field(err, "spec.tolerance", "must be from 0 to 100 (percent)");
    if (s->steps_skip < 0 || s->steps_max < 0)
        return pp_error_field(err, s->steps_max < 0 ? "spec.steps.max" : "spec.steps.skip",
                              "must not be negative");
    return 0;
}

static int check_rules(const pp_session *session, pp_error *err)
{
    if (check_times(session, err) < 0 || check_choices(session, err) < 0 ||
        check_numbers(session, err) < 0)
        return -1;
    if (check_texts(&session->containers, "spec.containers", 63, err) < 0 ||
        check_texts(&session->include, "spec.layers.include", MAX_GLOB, err) < 0 ||
        check_texts(&session->exclude, "spec.layers.exclude", MAX_GLOB, err) < 0 ||
        check_texts(&session->types, "spec.layers.types", MAX_GLOB, err) < 0)
        return -1;
    return 0;
}

/* What leaves its default where it is left out, and is refused where it is given empty. */
static int check_given(const json_t *spec, pp_error *err)
{
    static const char *const lists[] = {"containers", "phases", "metrics"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const json_t *list = json_object_get(spec, lists[i]);
        char at[32];
        (void)snprintf(at, sizeof at, "spec.%s", lists[i]);
        if (json_is_array(list) && json_array_size(list) == 0)
            return pp_error_field(err, at, "must not be empty");
    }
    const json_t *depth = pp_json_get(spec, "layers", "depth", NULL);
    if (json_is_integer(depth) && json_integer_value(depth) < 1)
        return pp_error_field(err, "spec.layers.depth", "must be from 1 to %d", MAX_DEPTH);
    return 0;
}

static int decode_spec(const json_t *spec, pp_session *session, pp_error *err)
{
    if (!json_is_object(spec))
        return pp_error_field(err, "spec", "is required");
    if (decode_selector(spec, &session->selector, err) < 0 ||
        pp_json_decode(spec, spec_fields, false, "spec", session, err) < 0 ||
        decode_part(spec, "steps", steps_fields, session, err) < 0 ||
        decode_part(spec, "layers", layers_fields, session, err) < 0 ||
        decode_part(spec, "isolation", isolation_fields, session, err) < 0 ||
        decode_lists(spec, session, err) < 0 || decode_ttl(spec, &session->ttl_ns, err) < 0)
        return -1;
    return check_given(spec, err) < 0 || check_rules(session, err) < 0
               ? -1
               : check_isolation(spec, session, err);
}

static int set_defaults(pp_session *s, pp_error *err)
{
    s->duration_ns = 120 * SECOND;
    s->deadline_ns = 24 * 3600 * SECOND;
    s->phases = PP_SESSION_FORWARD | PP_SESSION_BACKWARD | PP_SESSION_OPTIMIZER;
    s->metrics = PP_METRIC_ALL;
    s->overhead_budget_percent = 1;
    s->tolerance_percent = 5;
    s->ttl_ns = -1;
    s->max_pause_ns = 300 * SECOND;
    return copy_text("Auto", &s->method, err) < 0 || copy_text("Report", &s->existing_pods, err) < 0
               ? -1
               : 0;
}

/* A status that makes no sense is none: it is ours, and is written anew. */
static void decode_status(const json_t *status, pp_session *session)
{
    pp_error ignored;
    const char *phase = pp_json_get_string(status, "phase", NULL);
    (void)pp_json_decode(status, status_fields, false, "status", session, &ignored);
    for (int i = PP_SESSION_PENDING; phase && i <= PP_SESSION_SUSPENDED; i++) {
        if (strcmp(phase, pp_session_phase_name((pp_session_phase)i)) != 0)
            continue;
        session->phase = (pp_session_phase)i;
        session->has_status = true;
    }
}

static int decode_object(const json_t *object, pp_session *session, pp_error *err)
{
    const json_t *metadata = json_object_get(object, "metadata");
    const json_t *spec = json_object_get(object, "spec");
    const json_t *status = json_object_get(object, "status");
    if (pp_json_decode(metadata, metadata_fields, false, "metadata", session, err) < 0 ||
        set_defaults(session, err) < 0)
        return -1;
    session->deleting = json_is_string(json_object_get(metadata, "deletionTimestamp"));
    session->spec = spec ? json_deep_copy(spec) : json_object();
    session->status = json_is_object(status) ? json_deep_copy(status) : json_object();
    if (!session->spec || !session->status ||
        (!session->resource_version && copy_text("", &session->resource_version, err) < 0))
        return pp_error_nomem(err);
    decode_status(session->status, session);
    if (decode_spec(spec, session, &session->invalid) < 0 &&
        session->invalid.code == PP_ERR_NOMEM) {
        return pp_error_nomem(err);
    }
    return 0;
}

int pp_session_decode(const json_t *object, pp_session **ret, pp_error *err)
{
    pp_session *session = calloc(1, sizeof *session);
    if (!session)
        return pp_error_nomem(err);
    if (decode_object(object, session, err) < 0) {
        (void)pp_session_free(session);
        return -1;
    }
    *ret = session;
    return 0;
}

static void free_selector(pp_selector *selector)
{
    for (size_t i = 0; i < selector->n_labels; i++) {
        free(selector->labels[i].key);
        free(selector->labels[i].value);
    }
    for (size_t i = 0; i < selector->n_requirements; i++) {
        free(selector->requirements[i].key);
        pp_strings_free(&selector->requirements[i].values);
    }
    free(selector->labels);
    free(selector->requirements);
}

pp_session *pp_session_free(pp_session *session)
{
    if (!session)
        return NULL;
    free_selector(&session->selector);
    pp_json_free_fields(metadata_fields, session);
    pp_json_free_fields(spec_fields, session);
    pp_json_free_fields(layers_fields, session);
    json_decref(session->spec);
    json_decref(session->status);
    free(session);
    return NULL;
}
