/* The API object into a pp_session, and the rules of its spec. */
#include "controller/session/session_selector.h"

#include "common/cleanup.h"
#include "common/time.h"

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

static const pp_json_field replay_fields[] = {
    {"duration", PP_JSON_DURATION, offsetof(pp_session, dwell_ns), false, 0},
    {"maxPause", PP_JSON_DURATION, offsetof(pp_session, max_pause_ns), false, 0},
    {0},
};

/* As stored by releases until 0.1.0. */
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
    {"expiresAfterSeconds", PP_JSON_INT, offsetof(pp_session, expires_after_s), false, MAX_TTL},
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

/* is_right: whether a text is what the list may hold, else `what` is wrong; NULL: any is. */
static int check_texts(const pp_strings *texts, const char *path, size_t longest,
                       bool (*is_right)(const char *), const char *what, pp_error *err)
{
    for (size_t i = 0; i < texts->count; i++) {
        size_t n = strlen(texts->items[i]);
        char at[64];
        (void)snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (n == 0 || n > longest)
            return pp_error_field(err, at, "must have 1 to %zu bytes", longest);
        if (is_right && !is_right(texts->items[i]))
            return pp_error_field(err, at, "%s: \"%.60s\"", what, texts->items[i]);
    }
    return 0;
}

/* As Python's fnmatch reads it: what is not closed is a [ and nothing more, which no name has. */
static bool brackets_are_closed(const char *glob)
{
    for (const char *at = strchr(glob, '['); at; at = strchr(at, '[')) {
        at += at[1] == '!' ? 2 : 1;
        at = *at ? strchr(at + 1, ']') : NULL;
        if (!at)
            return false;
    }
    return true;
}

/* Of RFC 1123, as a Pod's containers are named; the length is looked at elsewhere. */
static bool is_container_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t n = strlen(name);
    return n > 0 && name[0] != '-' && name[n - 1] != '-' && strspn(name, letters) == n;
}

static bool has_text(const pp_strings *texts, const char *text)
{
    for (size_t i = 0; i < texts->count; i++) {
        if (strcmp(texts->items[i], text) == 0)
            return true;
    }
    return false;
}

/* As far as can be seen without knowing the layers. */
static int check_some_layer_is_left(const pp_session *s, pp_error *err)
{
    size_t out = 0;
    for (size_t i = 0; i < s->include.count; i++)
        out += has_text(&s->exclude, s->include.items[i]);
    if (has_text(&s->exclude, "*") || (out > 0 && out == s->include.count))
        return pp_error_field(err, "spec.layers.exclude",
                              "leaves out all that spec.layers.include takes");
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

/* The limits of replays, under the name that the session has them by. */
static int check_replay_limits(const pp_session *s, const char *duration, const char *max_pause,
                               bool given, pp_error *err)
{
    if (given && (s->dwell_ns < MIN_DWELL || s->dwell_ns > PP_SESSION_DWELL_MAX))
        return pp_error_field(err, duration, "must be from 100ms to 1m");
    if (s->max_pause_ns < SECOND || s->max_pause_ns > MAX_PAUSE)
        return pp_error_field(err, max_pause, "must be from 1s to 1h");
    if (s->max_pause_ns < s->dwell_ns)
        return pp_error_field(err, max_pause, "must not be shorter than %s", duration);
    return 0;
}

static bool has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

static int check_replay(const json_t *spec, const pp_session *s, pp_error *err)
{
    const bool old = has(spec, "isolation");
    if (old && has(spec, "replay"))
        return pp_error_field(err, "spec.isolation", "is the former name of spec.replay: give one");
    if ((old || has(spec, "replay")) && !pp_session_asks_replays(s))
        return pp_error_field(err, old ? "spec.isolation" : "spec.replay",
                              "is for the method Replay only");
    return old ? check_replay_limits(s, "spec.isolation.dwell", "spec.isolation.maxPause",
                                     has(json_object_get(spec, "isolation"), "dwell"), err)
               : check_replay_limits(s, "spec.replay.duration", "spec.replay.maxPause",
                                     has(json_object_get(spec, "replay"), "duration"), err);
}

static int check_choices(const pp_session *s, pp_error *err)
{
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
    static const char open[] = "has a [ that no ] closes";
    if (check_texts(&session->containers, "spec.containers", 63, is_container_name,
                    "is no container's name (lower case letters, digits and -)", err) < 0 ||
        check_texts(&session->include, "spec.layers.include", MAX_GLOB, brackets_are_closed, open,
                    err) < 0 ||
        check_texts(&session->exclude, "spec.layers.exclude", MAX_GLOB, brackets_are_closed, open,
                    err) < 0 ||
        check_texts(&session->types, "spec.layers.types", MAX_GLOB, NULL, NULL, err) < 0)
        return -1;
    return check_some_layer_is_left(session, err);
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

static int decode_method(const json_t *spec, pp_method *ret, pp_error *err)
{
    const json_t *given = json_object_get(spec, "method");
    if (!given || json_is_null(given))
        return 0;
    if (!json_is_string(given))
        return pp_error_field(err, "spec.method", "must be a string");
    return pp_method_parse(json_string_value(given), "spec.method", ret, err);
}

static int decode_spec(const json_t *spec, pp_session *session, pp_error *err)
{
    if (!json_is_object(spec))
        return pp_error_field(err, "spec", "is required");
    if (pp_session_decode_selector(spec, &session->selector, err) < 0 ||
        pp_json_decode(spec, spec_fields, false, "spec", session, err) < 0 ||
        decode_part(spec, "steps", steps_fields, session, err) < 0 ||
        decode_part(spec, "layers", layers_fields, session, err) < 0 ||
        decode_part(spec, "isolation", isolation_fields, session, err) < 0 ||
        decode_part(spec, "replay", replay_fields, session, err) < 0 ||
        decode_method(spec, &session->method, err) < 0 || decode_lists(spec, session, err) < 0 ||
        decode_ttl(spec, &session->ttl_ns, err) < 0)
        return -1;
    return check_given(spec, err) < 0 || check_rules(session, err) < 0
               ? -1
               : check_replay(spec, session, err);
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
    s->method = PP_METHOD_AUTO;
    return copy_text("Report", &s->existing_pods, err);
}

static void decode_pauses(const json_t *list, pp_session *session)
{
    for (size_t i = 0; i < json_array_size(list) && session->n_pauses < PP_SESSION_MAX_PAUSES;
         i++) {
        pp_session_span *pause = &session->pauses[session->n_pauses];
        const char *from = pp_json_get_string(json_array_get(list, i), "from", NULL);
        const char *to = pp_json_get_string(json_array_get(list, i), "to", NULL);
        if (from && to && pp_time_parse(from, &pause->from_ns, NULL) == 0 &&
            pp_time_parse(to, &pause->to_ns, NULL) == 0)
            session->n_pauses++;
    }
}

/* A status that makes no sense is none: it is ours, and is written anew. */
static void decode_status(const json_t *status, pp_session *session)
{
    pp_error ignored;
    const char *phase = pp_json_get_string(status, "phase", NULL);
    (void)pp_json_decode(status, status_fields, false, "status", session, &ignored);
    decode_pauses(json_object_get(status, "pauses"), session);
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

pp_session *pp_session_free(pp_session *session)
{
    if (!session)
        return NULL;
    pp_session_free_selector(&session->selector);
    pp_json_free_fields(metadata_fields, session);
    pp_json_free_fields(spec_fields, session);
    pp_json_free_fields(layers_fields, session);
    json_decref(session->spec);
    json_decref(session->status);
    free(session);
    return NULL;
}
