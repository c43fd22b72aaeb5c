/* What a session says about itself: conditions, Events, the list of targets. */
#include "controller/session_internal.h"

#include "common/time.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_POD_EVENTS = 8 };
#define SAMPLES_EXPECTED_AFTER INT64_C(60000000000) /* ns after the first step was seen */

static const char *const condition_names[PP_CONDITION_COUNT] = {
    [PP_CONDITION_ACCEPTED] = "Accepted",
    [PP_CONDITION_INJECTED] = "Injected",
    [PP_CONDITION_COLLECTING] = "Collecting",
    [PP_CONDITION_METRICS_AVAILABLE] = "MetricsAvailable",
    [PP_CONDITION_FINE_SAMPLED] = "FineSampled",
    [PP_CONDITION_REPLAYED] = "Replayed",
    [PP_CONDITION_STORED] = "Stored",
    [PP_CONDITION_READY] = "Ready",
    [PP_CONDITION_RECONCILING] = "Reconciling",
    [PP_CONDITION_STALLED] = "Stalled",
    [PP_CONDITION_SUCCEEDED] = "Succeeded",
};

const char *pp_session_condition_name(pp_condition_type type)
{
    return condition_names[type];
}

static pp_condition_status status_from(const char *text)
{
    if (text && strcmp(text, "True") == 0)
        return PP_CONDITION_TRUE;
    if (text && strcmp(text, "False") == 0)
        return PP_CONDITION_FALSE;
    return PP_CONDITION_UNKNOWN;
}

void pp_session_previous_condition(const pp_session *session, pp_condition_type type,
                                   pp_condition *ret)
{
    *ret = (pp_condition){0};
    const json_t *list = json_object_get(session->status, "conditions");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = pp_json_get_string(item, "type", NULL);
        if (!name || strcmp(name, condition_names[type]) != 0)
            continue;
        const char *reason = pp_json_get_string(item, "reason", NULL);
        const char *message = pp_json_get_string(item, "message", NULL);
        const char *since = pp_json_get_string(item, "lastTransitionTime", NULL);
        ret->status = status_from(pp_json_get_string(item, "status", NULL));
        (void)snprintf(ret->reason, sizeof ret->reason, "%s", reason ? reason : "");
        (void)snprintf(ret->message, sizeof ret->message, "%s", message ? message : "");
        if (since)
            (void)pp_time_parse(since, &ret->transition_ns, NULL);
    }
}

/* Sets a condition, keeping the time of its last transition while its status stays. */
__attribute__((format(printf, 5, 6))) static void set(pp_session_turn *turn, pp_condition_type type,
                                                      pp_condition_status status,
                                                      const char *reason, const char *fmt, ...)
{
    pp_condition before, *c = &turn->to->conditions[type];
    pp_session_previous_condition(turn->session, type, &before);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(c->message, sizeof c->message, fmt, args);
    va_end(args);
    (void)snprintf(c->reason, sizeof c->reason, "%s", reason);
    c->status = status;
    bool same = before.reason[0] && before.status == status;
    c->transition_ns = same && before.transition_ns ? before.transition_ns : turn->obs->now_ns;
    if (!same || strcmp(before.reason, c->reason) != 0)
        turn->to->urgent = true;
}

/* Leaves a condition as it was; false where it was not there. */
static bool keep(pp_session_turn *turn, pp_condition_type type)
{
    pp_condition before;
    pp_session_previous_condition(turn->session, type, &before);
    if (!before.reason[0])
        return false;
    turn->to->conditions[type] = before;
    return true;
}

__attribute__((format(printf, 5, 6))) static void emit(pp_session_turn *turn, bool warning,
                                                       const pp_session_pod *pod,
                                                       const char *reason, const char *fmt, ...)
{
    pp_session_decision *d = turn->to;
    if (d->n_events == PP_SESSION_MAX_EVENTS)
        return;
    pp_session_event *e = &d->events[d->n_events++];
    *e = (pp_session_event){.warning = warning};
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    (void)snprintf(e->reason, sizeof e->reason, "%s", reason);
    if (!pod)
        return;
    (void)snprintf(e->pod_name, sizeof e->pod_name, "%s", pod->name);
    (void)snprintf(e->pod_uid, sizeof e->pod_uid, "%s", pod->uid);
}

const char *pp_session_pod_refusal(const pp_session *session, const pp_session_pod *pod,
                                   const char **ret_message)
{
    if (pod->refusal_reason) {
        *ret_message = pod->refusal ? pod->refusal : "";
        return pod->refusal_reason;
    }
    if (pod->session_uid) {
        *ret_message = "another session has the pod; this one gets it when that one has ended";
        return "OtherSession";
    }
    if (pod->hooked) {
        *ret_message = "the pod's hook is in other containers than spec.containers names; name "
                       "those of its annotation " PP_ANNOTATION_CONTAINERS ", or delete the pod, "
                       "and create it anew where no controller does";
        return "OtherContainers";
    }
    /* Its age is no reason yet: it may be one that would not be injected anew either. */
    if (pod->unexplained)
        return NULL;
    /* The API keeps whole seconds; within one a pod that came first is the likelier story. */
    if (pod->created_ns <= session->created_ns) {
        *ret_message = "the pod was created before the session and carries no hook; delete it, "
                       "and create it anew where no controller does";
        return "CreatedBefore";
    }
    *ret_message = "the admission webhook was not reached when the pod was created; check the "
                   "operator and the webhook's namespaceSelector, then delete the pod, and create "
                   "it anew where no controller does";
    return "WebhookMissed";
}

static void say_accepted(pp_session_turn *turn)
{
    const pp_error *invalid = &turn->session->invalid;
    if (invalid->code == PP_OK)
        set(turn, PP_CONDITION_ACCEPTED, PP_CONDITION_TRUE, "SpecValid", "The spec is valid");
    else
        set(turn, PP_CONDITION_ACCEPTED, PP_CONDITION_FALSE,
            pp_session_invalid_reason(turn->session), "%s%s%s", invalid->field,
            invalid->field[0] ? " " : "", invalid->message);
}

static const pp_session_pod *first_refused(const pp_session_turn *turn)
{
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        const pp_session_pod *pod = &turn->obs->pods[i];
        const char *message;
        if (pp_session_pod_counts(turn->session, pod) &&
            !pp_session_pod_injected(turn->session, pod) &&
            pp_session_pod_refusal(turn->session, pod, &message))
            return pod;
    }
    return NULL;
}

static void say_refused(pp_session_turn *turn, const pp_session_pod *pod)
{
    const pp_session_tally *t = &turn->tally;
    const char *message = "";
    const char *reason = pp_session_pod_refusal(turn->session, pod, &message);
    set(turn, PP_CONDITION_INJECTED, PP_CONDITION_FALSE, reason,
        "%lld of %lld pods carry no hook; %s: %s", (long long)(t->matched - t->injected),
        (long long)t->matched, pod->name, message);
}

/* As it was, until it is known. */
static void say_unexplained(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    if (!keep(turn, PP_CONDITION_INJECTED))
        set(turn, PP_CONDITION_INJECTED, PP_CONDITION_UNKNOWN, "Asking",
            "Why %lld of %lld pods carry no hook is being found out",
            (long long)(t->matched - t->injected), (long long)t->matched);
}

static void say_injected(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    const pp_session_pod *refused = first_refused(turn);
    if (refused)
        say_refused(turn, refused);
    else if (t->injected < t->matched)
        say_unexplained(turn);
    else if (t->injected > 0)
        set(turn, PP_CONDITION_INJECTED, PP_CONDITION_TRUE, "PodsInjected",
            "Every matching pod carries the hook");
    else if (!turn->to->start_ns || !keep(turn, PP_CONDITION_INJECTED))
        set(turn, PP_CONDITION_INJECTED, PP_CONDITION_FALSE, "NoMatchingPods",
            "No running pod in namespace %s matches the selector; pods get the hook when they are "
            "created",
            turn->session->namespace_);
}

static void say_waiting(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    if (turn->obs->store_error) /* no agent is let in meanwhile */
        set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "StoreUnavailable",
            "Waiting for the store: %s", turn->obs->store_error);
    else if (t->unfinished == 0)
        set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForPods",
            "Waiting for a matching pod to be created");
    else if (t->connected == 0)
        set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForAgents",
            "Waiting for the agent of an injected pod to connect");
    else
        set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForSteps",
            "Waiting for the first training step");
}

static void say_collecting(pp_session_turn *turn)
{
    switch (turn->to->phase) {
    case PP_SESSION_PENDING:
        say_waiting(turn);
        return;
    case PP_SESSION_COLLECTING:
        set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_TRUE, "Sampling",
            "Training steps are sampled");
        return;
    case PP_SESSION_SUSPENDED:
        set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "Suspended", "spec.suspend is true");
        return;
    case PP_SESSION_FINISHING:
    case PP_SESSION_SUCCEEDED:
    case PP_SESSION_FAILED:
        break;
    }
    bool just_ended = turn->end_reason[0] && turn->from != PP_SESSION_FINISHING;
    if (just_ended || !keep(turn, PP_CONDITION_COLLECTING))
        set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE,
            just_ended ? turn->end_reason : "Ended", "%s",
            just_ended ? turn->end_message : "Sampling has ended");
}

static void say_some_missing(pp_session_turn *turn, unsigned missing)
{
    char names[128];
    pp_metric_names(missing, names, sizeof names);
    set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "MetricsMissing",
        "Prometheus has no sample of %s for the profiled GPUs; add the fields to the exporter's "
        "counters file",
        names);
}

/* A step becomes known when its stretch is stored, its samples later still by the exporter's lag;
 * and as long as steps are sampled, what was asked for so far is not all. */
static bool too_early_for_samples(const pp_session_turn *turn)
{
    pp_condition before;
    pp_session_previous_condition(turn->session, PP_CONDITION_METRICS_AVAILABLE, &before);
    int64_t seen = turn->to->conditions[PP_CONDITION_COLLECTING].transition_ns;
    if (seen < turn->to->start_ns)
        seen = turn->to->start_ns;
    bool more = !turn->obs->stats.samples_complete || turn->to->phase == PP_SESSION_COLLECTING;
    return more && turn->obs->now_ns < seen + SAMPLES_EXPECTED_AFTER &&
           strcmp(before.reason, "NoSamples") != 0;
}

static void say_none_seen(pp_session_turn *turn)
{
    if (turn->tally.reporting > 0 && turn->tally.with_gpu == 0)
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "NoGPU",
            "The training processes named no GPU");
    else if (turn->tally.with_gpu > 0 && turn->tally.with_whole == 0)
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "MIGInstance",
            "Prometheus has no sample: " PP_SESSION_MIG_HINT);
    else if (too_early_for_samples(turn))
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_UNKNOWN, "WaitingForSamples",
            "Prometheus has no sample of the profiled GPUs yet");
    else
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "NoSamples",
            "Prometheus has no sample of the profiled GPUs; " PP_SESSION_NO_SAMPLE_HINT);
}

static void add_note(pp_condition *c, const char *note)
{
    size_t used = strlen(c->message);
    (void)snprintf(c->message + used, sizeof c->message - used, "; note: %s", note);
}

static void say_metrics(pp_session_turn *turn)
{
    const pp_session_stats *st = &turn->obs->stats;
    unsigned missing = turn->session->metrics & ~st->metrics_seen;
    if (turn->obs->prometheus_off)
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "PrometheusNotConfigured",
            "The operator's configuration names no Prometheus; layers are timed only");
    else if (turn->to->start_ns && turn->obs->prometheus_error)
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "PrometheusUnavailable",
            "Prometheus cannot be asked: %s", turn->obs->prometheus_error);
    else if (missing == 0)
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_TRUE, "SamplesFound",
            "Every metric has samples");
    else if (missing != turn->session->metrics)
        say_some_missing(turn, missing);
    else if (!turn->to->start_ns || (!turn->obs->prometheus_asked && !st->samples_complete))
        set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_UNKNOWN, "NotAsked",
            "Prometheus is asked once steps were sampled");
    else
        say_none_seen(turn);
    if (turn->obs->prometheus_warning && !turn->obs->prometheus_error && !turn->obs->prometheus_off)
        add_note(&turn->to->conditions[PP_CONDITION_METRICS_AVAILABLE],
                 turn->obs->prometheus_warning);
}

/* How fine sampling stands, where it is asked for. What is deleted by now stays told. */
static void say_fine(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    const pp_session_pod *denied = t->first_unsampled;
    bool ended = turn->to->completion_ns != 0;
    if (!turn->obs->fine_asked || (t->reporting == 0 && keep(turn, PP_CONDITION_FINE_SAMPLED)))
        return;
    if (t->reporting == 0)
        set(turn, PP_CONDITION_FINE_SAMPLED, PP_CONDITION_UNKNOWN, "WaitingForSamples",
            "No pod has reported yet");
    else if (denied)
        set(turn, PP_CONDITION_FINE_SAMPLED, PP_CONDITION_FALSE, "NotSampled",
            "%lld of %lld pods are not sampled; %s: %s", (long long)t->unsampled,
            (long long)t->reporting, denied->name, denied->fine_why);
    else if (t->fine > 0 && t->fine == t->reporting)
        set(turn, PP_CONDITION_FINE_SAMPLED, PP_CONDITION_TRUE, "Sampled",
            "Every reporting pod has values from fine sampling");
    else if (ended)
        set(turn, PP_CONDITION_FINE_SAMPLED, PP_CONDITION_FALSE, "NothingTold",
            "%lld of %lld pods have no values from fine sampling: too few of their steps were "
            "sampled, or samples went together with no kernel",
            (long long)(t->reporting - t->fine), (long long)t->reporting);
    else
        set(turn, PP_CONDITION_FINE_SAMPLED, PP_CONDITION_UNKNOWN, "WaitingForSamples",
            "%lld of %lld pods have values from fine sampling yet; the first come after a stretch "
            "that was sampled",
            (long long)t->fine, (long long)t->reporting);
}

/* How replays stand, where they are asked for. What is deleted by now stays told. */
static void say_replayed(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    const pp_session_pod *denied = t->first_unreplayed;
    char paused[64];
    if (!pp_session_asks_replays(turn->session) ||
        (t->reporting == 0 && keep(turn, PP_CONDITION_REPLAYED)))
        return;
    pp_duration_format(turn->to->paused_ns, paused, sizeof paused);
    if (t->reporting == 0)
        set(turn, PP_CONDITION_REPLAYED, PP_CONDITION_UNKNOWN, "WaitingForReplays",
            "No pod has reported yet");
    else if (denied)
        set(turn, PP_CONDITION_REPLAYED, PP_CONDITION_FALSE, "NotReplayed",
            "Layers of %lld of %lld pods are not replayed; %s: %s", (long long)t->unreplayed,
            (long long)t->reporting, denied->name, denied->isolated);
    else if (t->replayed == t->reporting)
        set(turn, PP_CONDITION_REPLAYED, PP_CONDITION_TRUE, "Replayed",
            "Layers of every reporting pod were replayed; the training was held for %s", paused);
    else if (turn->to->completion_ns)
        set(turn, PP_CONDITION_REPLAYED, PP_CONDITION_FALSE, "NothingReplayed",
            "No layer of %lld of %lld pods was replayed: too few of their steps were sampled, or "
            "every layer is left out; the results' reasons tell which",
            (long long)(t->reporting - t->replayed), (long long)t->reporting);
    else
        set(turn, PP_CONDITION_REPLAYED, PP_CONDITION_UNKNOWN, "WaitingForReplays",
            "Layers of %lld of %lld pods were replayed yet; that begins some seconds after the "
            "first sampled step of each",
            (long long)t->replayed, (long long)t->reporting);
}

static void say_stored(pp_session_turn *turn)
{
    const pp_session_observation *obs = turn->obs;
    if (obs->store_error)
        set(turn, PP_CONDITION_STORED, PP_CONDITION_FALSE, "StoreUnavailable",
            "The store cannot be reached; the agents keep what they have: %s", obs->store_error);
    else if (obs->stats.events > 0 || obs->stats.last_batch_ns > 0)
        set(turn, PP_CONDITION_STORED, PP_CONDITION_TRUE, "Stored",
            "What the agents sent is in the store");
    else
        set(turn, PP_CONDITION_STORED, PP_CONDITION_UNKNOWN, "NothingToStore",
            "No agent has sent anything yet");
}

static void say_stalled(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    if (turn->obs->store_error)
        set(turn, PP_CONDITION_STALLED, PP_CONDITION_TRUE, "StoreUnavailable",
            "The store cannot be reached: %s", turn->obs->store_error);
    else if (t->matched > 0 && t->injected == 0 && !turn->to->start_ns)
        set(turn, PP_CONDITION_STALLED, PP_CONDITION_TRUE, "NoPodInjected",
            "None of the matching pods carries the hook; the Injected condition says why");
    else if (turn->obs->solve_error)
        set(turn, PP_CONDITION_STALLED, PP_CONDITION_TRUE, "AttributionFailing",
            "Working out the layers' values failed and is tried again: %s", turn->obs->solve_error);
    else
        set(turn, PP_CONDITION_STALLED, PP_CONDITION_FALSE, pp_session_phase_name(turn->to->phase),
            "Nothing is in the way");
}

/* Ready, Reconciling, Stalled for kstatus, Succeeded for kubectl wait; kubectl get prints the
 * reason of Succeeded. */
static void say_active(pp_session_turn *turn)
{
    const char *phase = pp_session_phase_name(turn->to->phase);
    bool suspended = turn->to->phase == PP_SESSION_SUSPENDED;
    set(turn, PP_CONDITION_READY, PP_CONDITION_FALSE, phase, "The session has no results yet");
    set(turn, PP_CONDITION_SUCCEEDED, PP_CONDITION_UNKNOWN,
        turn->obs->store_error ? "StoreUnavailable" : phase, "The session has not ended");
    set(turn, PP_CONDITION_RECONCILING, suspended ? PP_CONDITION_FALSE : PP_CONDITION_TRUE, phase,
        "%s", suspended ? "spec.suspend is true" : "The session is under way");
    say_stalled(turn);
}

static void say_final(pp_session_turn *turn)
{
    bool ok = turn->to->phase == PP_SESSION_SUCCEEDED;
    pp_condition_status yes = ok ? PP_CONDITION_TRUE : PP_CONDITION_FALSE;
    pp_condition_status no = ok ? PP_CONDITION_FALSE : PP_CONDITION_TRUE;
    set(turn, PP_CONDITION_SUCCEEDED, yes, turn->end_reason, "%s", turn->end_message);
    set(turn, PP_CONDITION_READY, yes, turn->end_reason, "%s", turn->end_message);
    set(turn, PP_CONDITION_STALLED, no, turn->end_reason, "%s", turn->end_message);
    set(turn, PP_CONDITION_RECONCILING, PP_CONDITION_FALSE, turn->end_reason,
        "The session has ended");
}

/* The reason that the status gave for a pod before; NULL: it was not listed. */
static const char *previous_reason(const pp_session *session, const char *uid)
{
    const json_t *targets = json_object_get(session->status, "targets");
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const json_t *target = json_array_get(targets, i);
        const char *known = pp_json_get_string(target, "uid", NULL);
        const char *reason = pp_json_get_string(target, "reason", NULL);
        if (known && strcmp(known, uid) == 0)
            return reason ? reason : "";
    }
    return NULL;
}

/* A pod without the hook is told of once, not at every look; a full list cannot tell who was. */
static void emit_refusals(pp_session_turn *turn)
{
    size_t said = 0;
    bool full = json_array_size(json_object_get(turn->session->status, "targets")) >=
                PP_SESSION_MAX_TARGETS;
    for (size_t i = 0; i < turn->obs->n_pods && said < MAX_POD_EVENTS; i++) {
        const pp_session_pod *pod = &turn->obs->pods[i];
        if (!pp_session_pod_counts(turn->session, pod) ||
            pp_session_pod_injected(turn->session, pod))
            continue;
        const char *message;
        const char *reason = pp_session_pod_refusal(turn->session, pod, &message);
        const char *before = previous_reason(turn->session, pod->uid);
        if (!reason || (before ? strcmp(before, reason) == 0 : full))
            continue;
        emit(turn, true, pod, reason, "Not profiled by ProfileSession %s: %s", turn->session->name,
             message);
        said++;
    }
}

/* A condition that has just become False for this reason gives a warning; so does the store's next
 * error, which may be the one to mend. */
static void emit_if_new(pp_session_turn *turn, pp_condition_type type)
{
    pp_condition before;
    const pp_condition *now = &turn->to->conditions[type];
    pp_session_previous_condition(turn->session, type, &before);
    bool same = before.status == now->status && strcmp(before.reason, now->reason) == 0 &&
                (type != PP_CONDITION_STORED || strcmp(before.message, now->message) == 0);
    if (now->status == PP_CONDITION_FALSE && !same)
        emit(turn, true, NULL, now->reason, "%s", now->message);
}

static void emit_phase(pp_session_turn *turn)
{
    pp_session_phase to = turn->to->phase;
    if (to == turn->from && turn->session->has_status)
        return;
    turn->to->urgent = true;
    if (turn->from == PP_SESSION_SUSPENDED && to != PP_SESSION_FAILED)
        emit(turn, false, NULL, "Resumed", "Sampling may go on");
    if (to == PP_SESSION_COLLECTING && turn->from != PP_SESSION_SUSPENDED)
        emit(turn, false, NULL, "CollectingStarted", "The first training step was sampled");
    else if (to == PP_SESSION_SUSPENDED)
        emit(turn, false, NULL, "Suspended", "Sampling is suspended");
    else if (to == PP_SESSION_FINISHING || to == PP_SESSION_SUCCEEDED || to == PP_SESSION_FAILED)
        emit(turn, to == PP_SESSION_FAILED, NULL, turn->end_reason, "%s", turn->end_message);
}

void pp_session_say(pp_session_turn *turn)
{
    bool final = turn->to->phase == PP_SESSION_SUCCEEDED || turn->to->phase == PP_SESSION_FAILED;
    say_accepted(turn);
    say_injected(turn);
    say_collecting(turn);
    say_metrics(turn);
    say_fine(turn);
    say_replayed(turn);
    say_stored(turn);
    if (final)
        say_final(turn);
    else
        say_active(turn);
    emit_phase(turn);
    if (turn->session->invalid.code != PP_OK)
        return; /* said already */
    emit_refusals(turn);
    if (strcmp(turn->to->conditions[PP_CONDITION_INJECTED].reason, "NoMatchingPods") != 0)
        emit_if_new(turn, PP_CONDITION_INJECTED); /* before its pods come, nothing is wrong */
    emit_if_new(turn, PP_CONDITION_METRICS_AVAILABLE);
    emit_if_new(turn, PP_CONDITION_FINE_SAMPLED);
    emit_if_new(turn, PP_CONDITION_REPLAYED);
    emit_if_new(turn, PP_CONDITION_STORED);
}

static void join_gpus(const pp_session_pod *pod, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < pod->n_gpus; i++) {
        size_t n = strlen(pod->gpus[i]);
        if (len + n + 2 > size)
            return;
        len += (size_t)snprintf(out + len, size - len, "%s%s", len ? "," : "", pod->gpus[i]);
    }
}

static void fill_target(const pp_session *session, const pp_session_pod *pod,
                        pp_session_target *ret)
{
    *ret = (pp_session_target){.rank = pod->rank,
                               .last_seen_ns = pod->last_batch_ns,
                               .steps = pod->steps,
                               .events = pod->events,
                               .injected = pp_session_pod_injected(session, pod),
                               .reporting = pod->connected};
    (void)snprintf(ret->pod, sizeof ret->pod, "%s", pod->name);
    (void)snprintf(ret->uid, sizeof ret->uid, "%s", pod->uid);
    (void)snprintf(ret->node, sizeof ret->node, "%s", pod->node ? pod->node : "");
    join_gpus(pod, ret->gpus, sizeof ret->gpus);
    if (ret->injected)
        return;
    const char *message;
    const char *reason = pp_session_pod_refusal(session, pod, &message);
    if (!reason)
        reason = previous_reason(session, pod->uid);
    (void)snprintf(ret->reason, sizeof ret->reason, "%s", reason ? reason : "");
}

/* Pods with a problem first, then by name, so that the list's end cuts off the healthy ones. */
static int compare_targets(const void *a, const void *b)
{
    const pp_session_target *x = a, *y = b;
    if (!x->reason[0] != !y->reason[0])
        return x->reason[0] ? -1 : 1;
    int by_name = strcmp(x->pod, y->pod);
    return by_name ? by_name : strcmp(x->uid, y->uid);
}

static void copy_text(const json_t *object, const char *key, char *out, size_t size)
{
    const char *text = pp_json_get_string(object, key, NULL);
    (void)snprintf(out, size, "%s", text ? text : "");
}

static void target_from_status(const json_t *item, pp_session_target *ret)
{
    *ret = (pp_session_target){.rank = -1, .injected = true};
    copy_text(item, "pod", ret->pod, sizeof ret->pod);
    copy_text(item, "uid", ret->uid, sizeof ret->uid);
    copy_text(item, "node", ret->node, sizeof ret->node);
    const json_t *gpus = json_object_get(item, "gpus");
    size_t len = 0;
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const char *gpu = json_string_value(json_array_get(gpus, i));
        if (gpu && len + strlen(gpu) + 2 <= sizeof ret->gpus)
            len += (size_t)snprintf(ret->gpus + len, sizeof ret->gpus - len, "%s%s", len ? "," : "",
                                    gpu);
    }
    const json_t *rank = json_object_get(item, "rank");
    ret->rank = json_is_integer(rank) ? json_integer_value(rank) : -1;
    const char *seen = pp_json_get_string(item, "lastSeen", NULL);
    if (seen)
        (void)pp_time_parse(seen, &ret->last_seen_ns, NULL);
    ret->steps = json_integer_value(json_object_get(item, "steps"));
    ret->events = json_integer_value(json_object_get(item, "events"));
}

static bool observed(const pp_session_turn *turn, const char *uid)
{
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        if (strcmp(turn->obs->pods[i].uid, uid) == 0)
            return true;
    }
    return false;
}

/* Pods that reported and are deleted since: they stay listed. */
static size_t list_deleted(const pp_session_turn *turn, pp_session_target *out, size_t max)
{
    size_t n = 0;
    const json_t *targets = json_object_get(turn->session->status, "targets");
    for (size_t i = 0; i < json_array_size(targets) && n < max; i++) {
        const json_t *item = json_array_get(targets, i);
        const char *uid = pp_json_get_string(item, "uid", NULL);
        if (!uid || !json_is_string(json_object_get(item, "lastSeen")) || observed(turn, uid))
            continue;
        target_from_status(item, &out[n++]);
    }
    return n;
}

int pp_session_list_targets(pp_session_turn *turn, pp_error *err)
{
    const pp_session_observation *obs = turn->obs;
    pp_session_target *all = calloc(obs->n_pods + PP_SESSION_MAX_TARGETS, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    size_t n = 0;
    for (size_t i = 0; i < obs->n_pods; i++) {
        if (pp_session_pod_counts(turn->session, &obs->pods[i]))
            fill_target(turn->session, &obs->pods[i], &all[n++]);
    }
    n += list_deleted(turn, all + n, PP_SESSION_MAX_TARGETS);
    qsort(all, n, sizeof *all, compare_targets);
    turn->to->targets = all;
    turn->to->n_targets = n < PP_SESSION_MAX_TARGETS ? n : PP_SESSION_MAX_TARGETS;
    return 0;
}
