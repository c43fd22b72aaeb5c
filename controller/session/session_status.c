/* A decision as the status of the API object. */
#include "controller/session/condition.h"

#include "common/cleanup.h"
#include "common/time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The keys of the status that are ours; others are left alone. */
static const char *const status_keys[] = {
    "phase",   "observedGeneration", "pods",        "conditions",     "counts",
    "targets", "progress",           "startTime",   "endsAt",         "deadlineAt",
    "results", "samplingEndTime",    "suspendedAt", "completionTime", "expiresAfterSeconds",
    "pauses",
};

static int set_text(json_t *object, const char *key, const char *text)
{
    return json_object_set_new(object, key, pp_json_text(text));
}

static int set_int(json_t *object, const char *key, int64_t value)
{
    return json_object_set_new(object, key, json_integer(value));
}

/* With milliseconds: a start that comes back rounded to a second would move the end. */
static int set_time(json_t *object, const char *key, int64_t ns)
{
    char text[40];
    if (!ns)
        return 0;
    pp_time_format(ns, 3, text, sizeof text);
    return set_text(object, key, text);
}

static json_t *pauses_value(const pp_session_decision *d)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_pauses; i++) {
        json_t *value = json_object();
        (void)set_time(value, "from", d->pauses[i].from_ns);
        (void)set_time(value, "to", d->pauses[i].to_ns);
        (void)json_array_append_new(list, value);
    }
    return list;
}

static json_t *condition_value(const pp_session_decision *d, pp_condition_type type)
{
    static const char *const names[] = {[PP_CONDITION_UNKNOWN] = "Unknown",
                                        [PP_CONDITION_TRUE] = "True",
                                        [PP_CONDITION_FALSE] = "False"};
    const pp_condition *c = &d->conditions[type];
    char since[40];
    pp_time_format(c->transition_ns, 0, since, sizeof since);
    json_t *value = json_object();
    (void)set_text(value, "type", pp_session_condition_name(type));
    (void)set_text(value, "status", names[c->status]);
    (void)set_text(value, "reason", c->reason);
    (void)set_text(value, "message", c->message);
    (void)set_text(value, "lastTransitionTime", since);
    (void)set_int(value, "observedGeneration", d->generation);
    return value;
}

static json_t *conditions_value(const pp_session_decision *d)
{
    json_t *list = json_array();
    for (int i = 0; i < PP_CONDITION_COUNT; i++)
        if (d->conditions[i].reason[0])
            (void)json_array_append_new(list, condition_value(d, (pp_condition_type)i));
    return list;
}

static json_t *gpus_value(const char *joined)
{
    json_t *list = json_array();
    while (*joined) {
        size_t n = strcspn(joined, ",");
        (void)json_array_append_new(list, json_stringn(joined, n));
        joined += n + (joined[n] == ',');
    }
    return list;
}

static json_t *target_value(const pp_session_target *t)
{
    json_t *value = json_object();
    (void)set_text(value, "pod", t->pod);
    (void)set_text(value, "uid", t->uid);
    if (t->node[0])
        (void)set_text(value, "node", t->node);
    if (t->gpus[0])
        (void)json_object_set_new(value, "gpus", gpus_value(t->gpus));
    if (t->rank >= 0)
        (void)set_int(value, "rank", t->rank);
    if (t->reason[0])
        (void)set_text(value, "reason", t->reason);
    (void)json_object_set_new(value, "injected", json_boolean(t->injected));
    (void)json_object_set_new(value, "reporting", json_boolean(t->reporting));
    (void)set_int(value, "steps", t->steps);
    (void)set_int(value, "events", t->events);
    (void)set_time(value, "lastSeen", t->last_seen_ns);
    return value;
}

static json_t *targets_value(const pp_session_decision *d)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_targets; i++)
        (void)json_array_append_new(list, target_value(&d->targets[i]));
    return list;
}

/* In hundredths of a per cent, so that a status does not change with each solution. */
static void set_percent(json_t *to, const char *key, double share)
{
    (void)json_object_set_new(to, key, json_real(round(share * 1e4) / 1e2));
}

/* What de-duplication has spared, and what it has cost. */
static void set_samples(json_t *to, const pp_session_stats *st)
{
    const double windows = (double)st->samples_stored + (double)st->samples_deduplicated;
    if (windows > 0)
        set_percent(to, "sampleReductionPercent", (double)st->samples_deduplicated / windows);
    if (windows > 0 && isfinite(st->samples_error))
        set_percent(to, "sampleErrorPercent", st->samples_error);
    if (windows > 0 && isfinite(st->samples_spread))
        set_percent(to, "sampleSpreadPercent", st->samples_spread);
}

static json_t *counts_value(const pp_session_decision *d)
{
    const pp_session_stats *st = &d->stats;
    json_t *value = json_object();
    (void)set_int(value, "podsMatched", d->pods_matched);
    (void)set_int(value, "podsInjected", d->pods_injected);
    (void)set_int(value, "podsReporting", d->pods_reporting);
    (void)set_int(value, "layers", st->layers);
    (void)set_int(value, "steps", st->steps);
    (void)set_int(value, "countedSteps", st->counted_steps);
    (void)set_int(value, "events", st->events);
    (void)set_int(value, "dropped", st->dropped);
    (void)set_int(value, "samplesJoined", st->samples_joined);
    (void)set_int(value, "samplesStored", st->samples_stored);
    (void)set_int(value, "samplesDeduplicated", st->samples_deduplicated);
    set_samples(value, st);
    return value;
}

static void format_seconds(int64_t ns, char *out, size_t size)
{
    pp_duration_format(ns / 1000000000 * 1000000000, out, size);
}

static json_t *progress_value(const pp_session_decision *d)
{
    char done[64], all[64], text[160];
    format_seconds(d->sampled_ns, done, sizeof done);
    pp_duration_format(d->duration_ns, all, sizeof all);
    (void)snprintf(text, sizeof text, "%s/%s", done, all);
    json_t *value = json_object();
    (void)set_text(value, "sampled", text);
    pp_duration_format(d->paused_ns, done, sizeof done);
    if (d->paused_ns)
        (void)set_text(value, "paused", done);
    if (d->epoch >= 0)
        (void)set_int(value, "epoch", d->epoch);
    if (d->batch >= 0)
        (void)set_int(value, "batch", d->batch);
    return value;
}

static json_t *results_value(const pp_session_decision *d)
{
    char query[160];
    (void)snprintf(query, sizeof query, "SELECT * FROM result_detail WHERE session_uid = '%s'",
                   d->session_uid);
    json_t *value = json_object();
    (void)set_text(value, "sessionUID", d->session_uid);
    (void)set_text(value, "query", query);
    return value;
}

static json_t *status_value(const pp_session_decision *d)
{
    char pods[64];
    (void)snprintf(pods, sizeof pods, "%lld/%lld", (long long)d->pods_injected,
                   (long long)d->pods_matched);
    json_t *status = json_object();
    (void)set_text(status, "phase", pp_session_phase_name(d->phase));
    (void)set_int(status, "observedGeneration", d->generation);
    (void)set_text(status, "pods", pods);
    (void)json_object_set_new(status, "conditions", conditions_value(d));
    (void)json_object_set_new(status, "counts", counts_value(d));
    (void)json_object_set_new(status, "targets", targets_value(d));
    (void)json_object_set_new(status, "progress", progress_value(d));
    if (d->start_ns)
        (void)json_object_set_new(status, "results", results_value(d));
    (void)set_time(status, "startTime", d->start_ns);
    (void)set_time(status, "endsAt", d->ends_at_ns);
    (void)set_time(status, "deadlineAt", d->deadline_at_ns);
    (void)set_time(status, "suspendedAt", d->suspended_at_ns);
    if (d->n_pauses)
        (void)json_object_set_new(status, "pauses", pauses_value(d));
    (void)set_time(status, "samplingEndTime", d->sampling_end_ns);
    (void)set_time(status, "completionTime", d->completion_ns);
    if (d->expires_after_s)
        (void)set_int(status, "expiresAfterSeconds", d->expires_after_s);
    return status;
}

/* Puts into *patch what leads from `before` to `after` under one key. */
static void diff_key(json_t *patch, const char *key, json_t *before, json_t *after)
{
    if (!after) {
        if (before && !json_is_null(before))
            (void)json_object_set_new(patch, key, json_null());
        return;
    }
    if (!json_is_object(after) || !json_is_object(before)) {
        if (!before || !json_equal(before, after))
            (void)json_object_set(patch, key, after);
        return;
    }
    PP_CLEANUP_JSON json_t *inner = json_object();
    const char *name;
    json_t *value;
    json_object_foreach(before, name, value)
        diff_key(inner, name, value, json_object_get(after, name));
    json_object_foreach(after, name, value)
    {
        if (!json_object_get(before, name))
            (void)json_object_set(inner, name, value);
    }
    if (json_object_size(inner) > 0)
        (void)json_object_set(patch, key, inner);
}

json_t *pp_session_status_json(const pp_session_decision *decision, const json_t *previous)
{
    if (decision->frozen)
        return json_object();
    PP_CLEANUP_JSON json_t *status = status_value(decision);
    PP_CLEANUP_JSON json_t *patch = json_object();
    if (!status || !patch)
        return NULL;
    for (size_t i = 0; i < sizeof status_keys / sizeof status_keys[0]; i++)
        diff_key(patch, status_keys[i], json_object_get(previous, status_keys[i]),
                 json_object_get(status, status_keys[i]));
    if (json_object_size(patch) == 0)
        return PP_TAKE(patch);
    return json_pack("{s:O}", "status", patch);
}

static bool is_figure(const char *key)
{
    return strcmp(key, "progress") == 0 || strcmp(key, "targets") == 0;
}

bool pp_session_status_matters(const pp_session_decision *decision, const json_t *patch)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(patch, "status"), key, value)
    {
        if (strcmp(key, "counts") != 0 && !is_figure(key))
            return true;
        if (strcmp(key, "counts") == 0 && json_object_get(value, "podsReporting"))
            return true;
    }
    return decision->n_events > 0;
}
