/* What a session says about itself: conditions and Events. */
#include "controller/session/session_conditions.h"

#include "common/time.h"
#include "controller/session/condition.h"
#include "controller/session/session_clocks.h"
#include "controller/session/session_query.h"
#include "controller/session/session_refusal.h"
#include "controller/session/session_stalled.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_POD_EVENTS = 8 };
#define LEAST_EXPLAINED 0.5 /* where windows differ by next to nothing, less does no harm */
/* ns after the first step was seen: dcgm-exporter collects every 30 s, Prometheus scrapes it every
 * 15 s */
#define SAMPLES_EXPECTED_AFTER INT64_C(45000000000)

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

static void set_accepted(pp_session_turn *turn)
{
    const pp_error *invalid = &turn->session->invalid;
    if (invalid->code == PP_OK)
        pp_session_set(turn, PP_CONDITION_ACCEPTED, PP_CONDITION_TRUE, "SpecValid",
                       "The spec is valid");
    else
        pp_session_set(turn, PP_CONDITION_ACCEPTED, PP_CONDITION_FALSE,
                       pp_session_invalid_reason(turn->session), "%s%s%s", invalid->field,
                       invalid->field[0] ? " " : "", invalid->message);
}

static void set_refused(pp_session_turn *turn, const pp_session_pod *pod)
{
    const pp_session_tally *t = &turn->tally;
    char message[400];
    const char *reason = pp_session_describe_refusal(turn->session, pod, message, sizeof message);
    pp_session_set(turn, PP_CONDITION_INJECTED, PP_CONDITION_FALSE, reason,
                   "%lld of %lld pods are not profiled by this session; %s: %s",
                   (long long)(t->matched - t->injected), (long long)t->matched, pod->name,
                   message);
}

/* As it was, until it is known. */
static void set_unexplained(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    if (!keep(turn, PP_CONDITION_INJECTED))
        pp_session_set(turn, PP_CONDITION_INJECTED, PP_CONDITION_UNKNOWN, "Diagnosing",
                       "Why %lld of %lld pods are not injected is being found out",
                       (long long)(t->matched - t->injected), (long long)t->matched);
}

static void set_injected(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    const pp_session_pod *refused = pp_session_first_refused(turn);
    if (turn->session->invalid.code != PP_OK && t->injected == 0)
        pp_session_set(turn, PP_CONDITION_INJECTED, PP_CONDITION_FALSE, "NotAccepted",
                       "No pod gets the hook for a session that is not accepted");
    else if (refused)
        set_refused(turn, refused);
    else if (t->injected < t->matched)
        set_unexplained(turn);
    else if (t->injected > 0)
        pp_session_set(turn, PP_CONDITION_INJECTED, PP_CONDITION_TRUE, "PodsInjected",
                       "Every matching pod carries the hook");
    else if (!turn->to->start_ns || !keep(turn, PP_CONDITION_INJECTED))
        pp_session_set(
            turn, PP_CONDITION_INJECTED, PP_CONDITION_FALSE, "NoMatchingPods",
            "No running pod in namespace %s matches the selector; pods get the hook when they are "
            "created",
            turn->session->namespace_);
}

static void set_waiting(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    if (turn->obs->store_error) /* no agent is let in meanwhile */
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "StoreUnavailable",
                       "Waiting for the store: %s", turn->obs->store_error);
    else if (t->unfinished == 0 && t->matched > 0)
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForPods",
                       "Waiting for a pod that carries the hook; none of the %lld that match does",
                       (long long)t->matched);
    else if (t->unfinished == 0)
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForPods",
                       "Waiting for a matching pod to be created");
    else if (t->connected == 0)
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForAgents",
                       "Waiting for the agent of an injected pod to connect");
    else
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForSteps",
                       "Waiting for the first training step");
}

/* Without an agent for so long that Stalled says so, too, nothing is. */
static void set_sampling(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    if (t->unfinished == 0 && t->maker)
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "WaitingForPods",
                       "No pod runs; %s %s is to make another", pp_owner_kind_name(t->maker->kind),
                       t->maker->name);
    else if (pp_session_has_lasted(turn, PP_TROUBLE_NO_AGENT))
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "AgentsLost",
                       "No agent of the running pods is connected any more");
    else
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_TRUE, "Sampling",
                       "Training steps are sampled");
}

static void set_collecting(pp_session_turn *turn)
{
    switch (turn->to->phase) {
    case PP_SESSION_PENDING:
        set_waiting(turn);
        return;
    case PP_SESSION_COLLECTING:
        set_sampling(turn);
        return;
    case PP_SESSION_SUSPENDED:
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE, "Suspended",
                       "spec.suspend is true");
        return;
    case PP_SESSION_FINISHING:
    case PP_SESSION_SUCCEEDED:
    case PP_SESSION_FAILED:
        break;
    }
    bool just_ended = turn->end_reason[0] && turn->from != PP_SESSION_FINISHING;
    if (just_ended || !keep(turn, PP_CONDITION_COLLECTING))
        pp_session_set(turn, PP_CONDITION_COLLECTING, PP_CONDITION_FALSE,
                       just_ended ? turn->end_reason : "Ended", "%s",
                       just_ended ? turn->end_message : "Sampling has ended");
}

static void set_some_missing(pp_session_turn *turn, unsigned missing)
{
    char names[192]; /* all of them */
    pp_metric_names(missing, names, sizeof names);
    pp_session_set(
        turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "MetricsMissing",
        "Prometheus has no sample of %s for the profiled GPUs; add the fields to the exporter's "
        "counters file",
        names);
}

/* As long as steps are sampled, what was asked for so far is not all. */
static bool more_samples_come(const pp_session_turn *turn)
{
    return !turn->obs->stats.samples_complete || turn->to->phase == PP_SESSION_COLLECTING;
}

/* A step becomes known when its capture is stored, its samples later still by the exporter's lag.
 */
static bool too_early_for_samples(const pp_session_turn *turn)
{
    pp_condition before;
    pp_session_previous_condition(turn->session, PP_CONDITION_METRICS_AVAILABLE, &before);
    int64_t seen = turn->to->conditions[PP_CONDITION_COLLECTING].transition_ns;
    if (seen < turn->to->start_ns)
        seen = turn->to->start_ns;
    return more_samples_come(turn) && turn->obs->now_ns < seen + SAMPLES_EXPECTED_AFTER &&
           strcmp(before.reason, "NoSamples") != 0 && strcmp(before.reason, "GPUsMissing") != 0;
}

/* Pods join late, and come back on other GPUs: a GPU that lacks samples is waited for. */
static bool too_early_for_a_gpu(const pp_session_turn *turn)
{
    pp_condition before;
    pp_session_previous_condition(turn->session, PP_CONDITION_METRICS_AVAILABLE, &before);
    if (!more_samples_come(turn) || strcmp(before.reason, "GPUsMissing") == 0)
        return false;
    return strcmp(before.reason, "WaitingForSamples") != 0 ||
           turn->obs->now_ns < before.transition_ns + SAMPLES_EXPECTED_AFTER;
}

/* Of all metrics some GPU has samples, and of `partly` another has none. */
static void set_some_gpus_missing(pp_session_turn *turn, unsigned partly)
{
    const pp_session_stats *st = &turn->obs->stats;
    char names[192];
    int most = 0;
    pp_metric_names(partly, names, sizeof names);
    for (int i = 0; i < PP_METRIC_COUNT; i++)
        if ((partly & 1U << i) &&
            (!(partly & 1U << most) || st->unseen[i].count > st->unseen[most].count))
            most = i;
    const long long without = (long long)st->unseen[most].count, all = (long long)st->gpus;
    if (too_early_for_samples(turn) || too_early_for_a_gpu(turn))
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_UNKNOWN,
                       "WaitingForSamples",
                       "Prometheus has no sample of %s for %lld of %lld profiled GPUs yet", names,
                       without, all);
    else
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "GPUsMissing",
                       "Prometheus has no sample of %s for %lld of %lld profiled GPUs, as %s; "
                       "see that it scrapes the exporter of every node",
                       names, without, all, st->unseen[most].gpu);
}

static void set_none_seen(pp_session_turn *turn)
{
    if (turn->tally.reporting > 0 && turn->tally.with_gpu == 0)
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "NoGPU",
                       "The training processes named no GPU");
    else if (turn->tally.with_gpu > 0 && turn->tally.with_whole == 0)
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "MIGInstance",
                       "Prometheus has no sample: " PP_SESSION_MIG_HINT);
    else if (too_early_for_samples(turn))
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_UNKNOWN,
                       "WaitingForSamples",
                       "Prometheus has no sample of the profiled GPUs yet; if none "
                       "comes, " PP_SESSION_NO_SAMPLE_HINT);
    else
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE, "NoSamples",
                       "Prometheus has no sample of the profiled GPUs; " PP_SESSION_NO_SAMPLE_HINT);
}

static void add_note(pp_condition *c, const char *note)
{
    size_t used = strlen(c->message);
    (void)snprintf(c->message + used, sizeof c->message - used, "; note: %s", note);
}

static void set_metrics(pp_session_turn *turn)
{
    const pp_session_stats *st = &turn->obs->stats;
    const unsigned asked = turn->session->metrics;
    const unsigned expected = pp_metric_expected(asked);
    const unsigned missing = expected & ~st->metrics_seen, partly = expected & st->metrics_partly;
    if (turn->obs->unread && turn->to->start_ns && keep(turn, PP_CONDITION_METRICS_AVAILABLE))
        return;
    if (turn->obs->prometheus_off)
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE,
                       "PrometheusNotConfigured",
                       "The operator's configuration names no Prometheus; layers are timed only");
    else if (turn->to->start_ns && turn->obs->prometheus_error)
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_FALSE,
                       "PrometheusUnavailable", "Prometheus cannot be asked: %s",
                       turn->obs->prometheus_error);
    else if (missing == 0 && partly != 0)
        set_some_gpus_missing(turn, partly);
    else if (missing == 0)
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_TRUE, "SamplesFound",
                       "Every metric has samples");
    else if (asked & st->metrics_seen)
        set_some_missing(turn, missing);
    else if (!turn->to->start_ns || (!turn->obs->prometheus_asked && !st->samples_complete))
        pp_session_set(turn, PP_CONDITION_METRICS_AVAILABLE, PP_CONDITION_UNKNOWN, "NotAsked",
                       "Prometheus will be queried once steps have been sampled");
    else
        set_none_seen(turn);
    if (turn->obs->prometheus_warning && !turn->obs->prometheus_error && !turn->obs->prometheus_off)
        add_note(&turn->to->conditions[PP_CONDITION_METRICS_AVAILABLE],
                 turn->obs->prometheus_warning);
}

/* How PM sampling stands, where it is asked for. What is deleted by now stays told. */
static void set_pm(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    const pp_session_pod *denied = t->first_unsampled;
    bool ended = turn->to->completion_ns != 0;
    if (!turn->obs->sampling_asked || (t->reporting == 0 && keep(turn, PP_CONDITION_SAMPLED)))
        return;
    if (t->reporting == 0)
        pp_session_set(turn, PP_CONDITION_SAMPLED, PP_CONDITION_UNKNOWN, "WaitingForSamples",
                       "No pod has reported yet");
    else if (denied)
        pp_session_set(turn, PP_CONDITION_SAMPLED, PP_CONDITION_FALSE, "NotSampled",
                       "%lld of %lld pods are not sampled; %s: %s", (long long)t->unsampled,
                       (long long)t->reporting, denied->name, denied->pm_why);
    else if (t->pm > 0 && t->pm == t->reporting)
        pp_session_set(turn, PP_CONDITION_SAMPLED, PP_CONDITION_TRUE, "Sampled",
                       "Every reporting pod has values from PM sampling");
    else if (ended)
        pp_session_set(
            turn, PP_CONDITION_SAMPLED, PP_CONDITION_FALSE, "NoEstimates",
            "%lld of %lld pods have no values from PM sampling: too few of their steps were "
            "sampled, or samples went together with no kernel",
            (long long)(t->reporting - t->pm), (long long)t->reporting);
    else
        pp_session_set(
            turn, PP_CONDITION_SAMPLED, PP_CONDITION_UNKNOWN, "WaitingForSamples",
            "%lld of %lld pods have values from PM sampling so far; the first come after a "
            "capture that was sampled",
            (long long)t->pm, (long long)t->reporting);
}

/* How replays stand, where they are asked for. What is deleted by now stays told. */
static void set_replayed(pp_session_turn *turn)
{
    const pp_session_tally *t = &turn->tally;
    const pp_session_pod *denied = t->first_unreplayed;
    char paused[64];
    if (!pp_session_asks_replays(turn->session) ||
        (t->reporting == 0 && keep(turn, PP_CONDITION_REPLAYED)))
        return;
    pp_duration_format(turn->to->paused_ns, paused, sizeof paused);
    if (t->reporting == 0)
        pp_session_set(turn, PP_CONDITION_REPLAYED, PP_CONDITION_UNKNOWN, "WaitingForReplays",
                       "No pod has reported yet");
    else if (denied)
        pp_session_set(turn, PP_CONDITION_REPLAYED, PP_CONDITION_FALSE, "NotReplayed",
                       "Layers of %lld of %lld pods are not replayed; %s: %s",
                       (long long)t->unreplayed, (long long)t->reporting, denied->name,
                       denied->isolated);
    else if (t->replayed == t->reporting)
        pp_session_set(
            turn, PP_CONDITION_REPLAYED, PP_CONDITION_TRUE, "Replayed",
            "Layers of every reporting pod were replayed; the training was paused for %s", paused);
    else if (turn->to->completion_ns)
        pp_session_set(
            turn, PP_CONDITION_REPLAYED, PP_CONDITION_FALSE, "NothingReplayed",
            "No layer of %lld of %lld pods was replayed: too few of their steps were sampled, or "
            "every layer is left out; the results' reasons tell which",
            (long long)(t->reporting - t->replayed), (long long)t->reporting);
    else
        pp_session_set(
            turn, PP_CONDITION_REPLAYED, PP_CONDITION_UNKNOWN, "WaitingForReplays",
            "Layers of %lld of %lld pods were replayed so far; that begins some seconds after the "
            "first sampled step of each",
            (long long)t->replayed, (long long)t->reporting);
}

static void describe_quality(const pp_session_stats *st, char *out, size_t size)
{
    const long long predicted = st->predicted, judged = st->judged;
    if (st->doubted > 0)
        (void)snprintf(out, size,
                       "values of layers are withheld for %lld of %lld metrics of GPUs; %s",
                       (long long)st->doubted, judged, st->doubt);
    else if (st->predicted > 0)
        (void)snprintf(out, size,
                       "values of layers predict %.0f %% or more of the variance of what was held "
                       "out, in each of %lld of %lld metrics of GPUs%s%s",
                       floor(100 * fmax(st->least_explained, 0)), predicted, judged,
                       *st->doubt ? "; " : "", st->doubt);
    else
        (void)snprintf(out, size, "nothing could be held out to hold values of layers against%s%s",
                       *st->doubt ? "; " : "", st->doubt);
}

/* Whether layers' values predict what was held out: a session may succeed, and have none. What is
 * known while data still come changes with every solution. */
static void set_explained(pp_session_turn *turn)
{
    const pp_session_stats *st = &turn->obs->stats;
    char quality[2 * PP_SESSION_DOUBT];
    if (st->judged == 0) {
        (void)keep(turn, PP_CONDITION_EXPLAINED);
        return;
    }
    describe_quality(st, quality, sizeof quality);
    if (!st->final_written)
        pp_session_set(turn, PP_CONDITION_EXPLAINED, PP_CONDITION_UNKNOWN, "NotFinal", "So far, %s",
                       quality);
    else if (st->doubted > 0)
        pp_session_set(turn, PP_CONDITION_EXPLAINED, PP_CONDITION_FALSE, "InDoubt",
                       "In the end, %s", quality);
    else if (st->predicted == 0)
        pp_session_set(turn, PP_CONDITION_EXPLAINED, PP_CONDITION_UNKNOWN, "NothingHeldOut",
                       "In the end, %s", quality);
    else if (st->least_explained < LEAST_EXPLAINED)
        pp_session_set(turn, PP_CONDITION_EXPLAINED, PP_CONDITION_UNKNOWN, "LittleExplained",
                       "In the end, %s", quality);
    else
        pp_session_set(turn, PP_CONDITION_EXPLAINED, PP_CONDITION_TRUE, "Predicted",
                       "In the end, %s", quality);
}

static void set_stored(pp_session_turn *turn)
{
    const pp_session_observation *obs = turn->obs;
    if (obs->store_error)
        pp_session_set(turn, PP_CONDITION_STORED, PP_CONDITION_FALSE, "StoreUnavailable",
                       "The store cannot be reached; the agents keep what they have: %s",
                       obs->store_error);
    else if (obs->stats.events > 0 || obs->stats.last_batch_ns > 0)
        pp_session_set(turn, PP_CONDITION_STORED, PP_CONDITION_TRUE, "Stored",
                       "What the agents sent is in the store");
    else
        pp_session_set(turn, PP_CONDITION_STORED, PP_CONDITION_UNKNOWN, "NothingToStore",
                       "No agent has sent anything yet");
}

/* Ready, Reconciling, Stalled for kstatus; Finished, Succeeded and Failed for kubectl wait; kubectl
 * get prints the reason of Succeeded. */
static void set_active(pp_session_turn *turn)
{
    const char *phase = pp_session_phase_name(turn->to->phase);
    bool suspended = turn->to->phase == PP_SESSION_SUSPENDED;
    pp_session_set(turn, PP_CONDITION_READY, PP_CONDITION_FALSE, phase,
                   "The session has no results yet");
    pp_session_set(turn, PP_CONDITION_FINISHED, PP_CONDITION_FALSE, phase,
                   "The session has not ended");
    pp_session_set(turn, PP_CONDITION_SUCCEEDED, PP_CONDITION_UNKNOWN,
                   turn->obs->store_error ? "StoreUnavailable" : phase,
                   "The session has not ended");
    pp_session_set(turn, PP_CONDITION_FAILED, PP_CONDITION_UNKNOWN, phase,
                   "The session has not ended");
    pp_session_set(turn, PP_CONDITION_RECONCILING,
                   suspended ? PP_CONDITION_FALSE : PP_CONDITION_TRUE, phase, "%s",
                   suspended ? "spec.suspend is true" : "The session is under way");
    pp_session_say_stalled(turn);
}

static void set_final(pp_session_turn *turn)
{
    bool ok = turn->to->phase == PP_SESSION_SUCCEEDED;
    pp_condition_status yes = ok ? PP_CONDITION_TRUE : PP_CONDITION_FALSE;
    pp_condition_status no = ok ? PP_CONDITION_FALSE : PP_CONDITION_TRUE;
    pp_session_set(turn, PP_CONDITION_FINISHED, PP_CONDITION_TRUE, turn->end_reason, "%s",
                   turn->end_message);
    pp_session_set(turn, PP_CONDITION_SUCCEEDED, yes, turn->end_reason, "%s", turn->end_message);
    pp_session_set(turn, PP_CONDITION_FAILED, no, turn->end_reason, "%s", turn->end_message);
    pp_session_set(turn, PP_CONDITION_READY, yes, turn->end_reason, "%s", turn->end_message);
    pp_session_set(turn, PP_CONDITION_STALLED, no, turn->end_reason, "%s", turn->end_message);
    pp_session_set(turn, PP_CONDITION_RECONCILING, PP_CONDITION_FALSE, turn->end_reason,
                   "The session has ended");
}

/* A pod without the hook, or that does not start with it, is told of once, not at every look; a
 * full list cannot tell who was. */
static void emit_refusals(pp_session_turn *turn)
{
    size_t said = 0;
    bool full = json_array_size(json_object_get(turn->session->status, "targets")) >=
                PP_SESSION_MAX_TARGETS;
    for (size_t i = 0; i < turn->obs->n_pods && said < MAX_POD_EVENTS; i++) {
        const pp_session_pod *pod = &turn->obs->pods[i];
        const pp_session_pod_trouble *trouble = pp_session_trouble_of(turn, pod);
        const bool injected = pp_session_pod_injected(turn->session, pod);
        if (!pp_session_pod_counts(turn->session, pod) || (injected && !trouble))
            continue;
        char message[400] = "";
        const char *reason =
            trouble ? trouble->reason
                    : pp_session_describe_refusal(turn->session, pod, message, sizeof message);
        const char *before = pp_session_previous_reason(turn->session, pod->uid);
        if (!reason || (before ? strcmp(before, reason) == 0 : full))
            continue;
        emit(turn, true, pod, reason, "Not profiled by ProfileSession %s: %s", turn->session->name,
             trouble ? trouble->text : message);
        said++;
    }
}

/* Whether the text is what was written as `before`: one that was cut is not written as it is. */
static bool was_written(const char *before, const char *text)
{
    json_t *value = pp_json_text(text);
    const char *written = json_string_value(value);
    bool same = written && strcmp(before, written) == 0;
    json_decref(value);
    return same;
}

/* A condition that has just become False for this reason gives a warning; so does the store's next
 * error, which may be the one to mend. */
static void emit_if_new(pp_session_turn *turn, pp_condition_type type)
{
    pp_condition before;
    const pp_condition *now = &turn->to->conditions[type];
    pp_session_previous_condition(turn->session, type, &before);
    bool same = before.status == now->status && strcmp(before.reason, now->reason) == 0 &&
                (type != PP_CONDITION_STORED || was_written(before.message, now->message));
    if (now->status == PP_CONDITION_FALSE && !same)
        emit(turn, true, NULL, now->reason, "%s", now->message);
}

/* Where somebody has to act, and no other condition has said why. */
static void emit_stalled(pp_session_turn *turn)
{
    static const char *const untold[] = {"NoMatchingPods", "CreationRefused", "PodsEnded",
                                         "NoAgent",        "AgentsLost",      "AttributionFailing"};
    pp_condition before;
    const pp_condition *now = &turn->to->conditions[PP_CONDITION_STALLED];
    pp_session_previous_condition(turn->session, PP_CONDITION_STALLED, &before);
    if (turn->to->completion_ns || now->status != PP_CONDITION_TRUE ||
        (before.status == PP_CONDITION_TRUE && strcmp(before.reason, now->reason) == 0))
        return;
    const pp_session_pod *troubled = pp_session_first_troubled(turn);
    bool said = !troubled || strcmp(now->reason, troubled->trouble->reason) != 0;
    for (size_t i = 0; i < sizeof untold / sizeof untold[0]; i++)
        said = said && strcmp(now->reason, untold[i]) != 0;
    if (!said)
        emit(turn, true, NULL, now->reason, "%s", now->message);
}

/* Of the session, which names the first pod and its node: a wrong clock may be that of many. */
static void emit_skew(pp_session_turn *turn)
{
    pp_condition before;
    const pp_condition *now = &turn->to->conditions[PP_CONDITION_CLOCK_SKEWED];
    pp_session_previous_condition(turn->session, PP_CONDITION_CLOCK_SKEWED, &before);
    if (strcmp(before.reason, now->reason) != 0)
        emit(turn, true, NULL, "ClockSkewed", "%s", now->message);
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

void pp_session_set_conditions(pp_session_turn *turn)
{
    bool final = turn->to->phase == PP_SESSION_SUCCEEDED || turn->to->phase == PP_SESSION_FAILED;
    set_accepted(turn);
    set_injected(turn);
    set_collecting(turn);
    set_metrics(turn);
    set_pm(turn);
    set_replayed(turn);
    set_explained(turn);
    pp_session_say_clocks(turn);
    set_stored(turn);
    if (final)
        set_final(turn);
    else
        set_active(turn);
    emit_phase(turn);
    if (turn->session->invalid.code != PP_OK)
        return; /* said already */
    emit_refusals(turn);
    if (strcmp(turn->to->conditions[PP_CONDITION_INJECTED].reason, "NoMatchingPods") != 0)
        emit_if_new(turn, PP_CONDITION_INJECTED); /* before its pods come, nothing is wrong */
    emit_if_new(turn, PP_CONDITION_METRICS_AVAILABLE);
    emit_if_new(turn, PP_CONDITION_SAMPLED);
    emit_if_new(turn, PP_CONDITION_REPLAYED);
    emit_if_new(turn, PP_CONDITION_EXPLAINED);
    emit_if_new(turn, PP_CONDITION_STORED);
    emit_skew(turn);
    emit_stalled(turn);
}
