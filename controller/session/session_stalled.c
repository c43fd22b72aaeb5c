/* What is in a session's way, for how long, and who has to do something about it. */
#include "controller/session/session_stalled.h"
#include "controller/session/condition.h"
#include "controller/session/session_clocks.h"
#include "controller/session/session_query.h"
#include "controller/session/session_refusal.h"

#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define SEEK_AGAIN (300 * SECOND) /* for a pod that nearly matches */

#define ADMINISTRATOR "The operator's administrator"
#define NODES "Whoever looks after the nodes"
#define AUTHOR "Whoever created the session"
#define TRAINER "Whoever runs the pods"

/** One trouble as it is now. */
typedef struct finding {
    const char *reason; /**< NULL: there is no such trouble */
    const char *who;
    bool at_once; /**< it does not pass by itself */
    bool early;   /**< another finding says so when it has lasted, or nobody has to act */
    char what[600];
} finding;

__attribute__((format(printf, 4, 5))) static void found(finding *f, const char *reason,
                                                        const char *who, const char *fmt, ...)
{
    va_list args;
    f->reason = reason;
    f->who = who;
    va_start(args, fmt);
    (void)vsnprintf(f->what, sizeof f->what, fmt, args);
    va_end(args);
}

static bool is_sampling(const pp_session_turn *turn)
{
    return turn->to->phase == PP_SESSION_PENDING || turn->to->phase == PP_SESSION_COLLECTING;
}

static void find_store(const pp_session_turn *turn, finding *f)
{
    if (turn->obs->store_error)
        found(f, "StoreUnavailable", ADMINISTRATOR,
              "see that Postgres runs, that the connection string in the operator's Secret is "
              "right, and that its role may create tables; the store says: %s",
              turn->obs->store_error);
}

/* Without the webhook pods come as they are; those that have the hook need it no more. */
static void find_operator(const pp_session_turn *turn, finding *f)
{
    const pp_session_observation *obs = turn->obs;
    f->at_once = true;
    if (!is_sampling(turn))
        return;
    if (obs->rights_error)
        found(f, "RightsMissing", ADMINISTRATOR,
              "the operator is %s; see that the chart's ClusterRoleBindings are there",
              obs->rights_error);
    else if (obs->service_error)
        found(f, "ServiceUnavailable", ADMINISTRATOR,
              "%s; see that it is as the chart makes it. Until then no agent connects, and pods "
              "come to be without the hook",
              obs->service_error);
    else if (obs->webhook_error && turn->tally.injected == 0)
        found(f, "WebhookMissing", ADMINISTRATOR,
              "%s; helm upgrade of the release brings it back. Pods that were created meanwhile "
              "are to be created anew after that",
              obs->webhook_error);
}

static const char *who_mends(const char *reason)
{
    if (strcmp(reason, "WebhookMissed") == 0)
        return ADMINISTRATOR;
    if (strcmp(reason, "ContainerNotFound") == 0 || strcmp(reason, "OtherContainers") == 0)
        return AUTHOR;
    return TRAINER;
}

/* A pod that another session has is waited for: nobody has to act. */
static void find_not_injected(const pp_session_turn *turn, finding *f)
{
    const pp_session_tally *t = &turn->tally;
    const pp_session_pod *pod = pp_session_first_refused(turn);
    if (!is_sampling(turn) || turn->to->start_ns || t->injected > 0 || t->waiting > 0 || !pod)
        return;
    char why[400];
    const char *reason = pp_session_describe_refusal(turn->session, pod, why, sizeof why);
    f->at_once = true;
    found(f, "NoPodInjected", who_mends(reason),
          "none of the %lld matching pods is profiled; %s: %s", (long long)t->matched, pod->name,
          why);
}

static void find_pod(const pp_session_turn *turn, finding *f)
{
    const pp_session_pod *pod = pp_session_first_troubled(turn);
    if (!is_sampling(turn) || !pod)
        return;
    f->at_once = true; /* it has lasted already */
    found(f, pod->trouble->reason, pod->trouble->of_pod ? TRAINER : ADMINISTRATOR, "%s: %s",
          pod->name, pod->trouble->text);
}

/* Nodes and images may be on their way: whoever runs the pods knows. */
static void find_pending(const pp_session_turn *turn, finding *f)
{
    const pp_session_pod *pod = turn->tally.first_pending;
    if (!is_sampling(turn) || !pod)
        return;
    f->early = true;
    found(f, "PodsPending", TRAINER, "pod %s %s; its Events say why", pod->name,
          pod->node ? "has not started" : "waits for a node");
}

static void find_no_match(const pp_session_turn *turn, finding *f)
{
    const pp_selector_near *near = turn->obs->near;
    char selector[128];
    pp_selector_format(&turn->session->selector, selector, sizeof selector);
    if (near && near->text[0])
        found(f, "NoMatchingPods", AUTHOR,
              "no pod of namespace %s matches spec.selector, %s; the nearest: %s. Correct the "
              "labels in the pods' template, or create the session anew with another selector",
              turn->session->namespace_, selector, near->text);
    else
        found(f, "NoMatchingPods", AUTHOR,
              "no pod of namespace %s matches spec.selector, %s%s; start the training there, or "
              "create the session anew with another selector",
              turn->session->namespace_, selector,
              near && near->pods == 0 ? ", and there is none at all" : "");
}

static void find_no_pod(const pp_session_turn *turn, finding *f)
{
    const pp_session_tally *t = &turn->tally;
    if (turn->to->phase != PP_SESSION_PENDING)
        return;
    f->at_once = t->matched == 0 && turn->obs->creation_refused;
    if (f->at_once)
        found(f, "CreationRefused", TRAINER, "%s", turn->obs->creation_refused);
    else if (t->matched == 0)
        find_no_match(turn, f);
    else if (t->injected == t->matched && t->unfinished == 0 && !t->maker)
        found(f, "PodsEnded", TRAINER,
              "every pod that carried the hook has ended, and none reported a training step; look "
              "at the pods' logs, and start the training anew");
}

/* Agents are let in only while the store can be reached. */
static void find_no_agent(const pp_session_turn *turn, finding *f)
{
    const pp_session_tally *t = &turn->tally;
    if (!is_sampling(turn) || turn->obs->store_error || t->running == 0 || t->connected > 0)
        return;
    f->early = t->awaiting > 0;
    if (f->early) {
        found(f, "AgentNotConnected", TRAINER,
              "no agent of %lld running pods has connected yet; look at the log of container "
              "precisionprobe-agent of pod %s",
              (long long)t->running, t->first_running->name);
        return;
    }
    found(f, t->reporting > 0 ? "AgentsLost" : "NoAgent", TRAINER,
          "no agent of %lld running pods is connected%s; look at the log of container "
          "precisionprobe-agent of pod %s. Where the operator was installed anew, create the pods "
          "anew: their agents trust the one before",
          (long long)t->running, t->reporting > 0 ? " any more" : "", t->first_running->name);
}

static void find_lost_agent(const pp_session_turn *turn, finding *f)
{
    const pp_session_pod *pod = turn->tally.first_lost;
    if (!is_sampling(turn) || turn->obs->store_error || turn->tally.connected == 0 || !pod)
        return;
    f->at_once = true; /* it has lasted already */
    found(f, "AgentsLost", TRAINER,
          "the agent of pod %s was there and has gone, while its training runs on; look at the log "
          "of its container precisionprobe-agent",
          pod->name);
}

/* A training may load for hours: that it does cannot be told from one that never begins. */
static void find_no_step(const pp_session_turn *turn, finding *f)
{
    if (turn->to->phase != PP_SESSION_PENDING || turn->obs->store_error ||
        turn->tally.connected == 0)
        return;
    f->early = true;
    found(f, "WaitingForSteps", TRAINER,
          "agents are connected, and no training step was seen; where the training does not load "
          "any more, see that it runs, with torch and an optimizer");
}

static void find_no_layer(const pp_session_turn *turn, finding *f)
{
    const pp_session *s = turn->session;
    const bool chosen = s->include.count || s->exclude.count || s->types.count || s->depth;
    if (!is_sampling(turn) || turn->obs->unread || turn->obs->stats.steps == 0 ||
        turn->obs->stats.layers > 0)
        return;
    found(f, "NoLayerTimed", chosen ? AUTHOR : TRAINER,
          "steps are sampled, and no layer in them; %s",
          chosen ? "no layer of the model is one that spec.layers asks for: create the session "
                   "anew with other patterns"
                 : "look at the log of the pod's container precisionprobe-agent");
}

/* With another method layers have values all the same. */
static void find_not_sampled(const pp_session_turn *turn, finding *f)
{
    const pp_session_tally *t = &turn->tally;
    if (!is_sampling(turn) || turn->session->method != PP_METHOD_SAMPLING || t->unsampled == 0 ||
        t->unsampled < t->reporting)
        return;
    f->at_once = true;
    found(f, "NotSampled", ADMINISTRATOR,
          "spec.method is Sampling, and no pod is sampled; %s: %s. Mend that, or have the session "
          "created anew with another method",
          t->first_unsampled->name, t->first_unsampled->pm_why);
}

static void find_clock(const pp_session_turn *turn, finding *f)
{
    char why[PP_SESSION_CLOCK_WHY];
    const pp_session_pod *pod = pp_session_clock_in_the_way(turn, why, sizeof why);
    if (!is_sampling(turn) || !pod)
        return;
    f->at_once = true;
    found(f, "ClockSkewed", NODES, "nothing of pod %s can be taken: %s", pod->name, why);
}

static void find_metrics(const pp_session_turn *turn, finding *f)
{
    static const struct {
        const char *reason, *who, *what;
    } cases[] = {
        {"PrometheusUnavailable", ADMINISTRATOR,
         "see that Prometheus runs, and that prometheus.url in the operator's configuration is "
         "right"},
        {"NoSamples", ADMINISTRATOR, "see that Prometheus has the GPUs' samples"},
        {"NoGPU", TRAINER, "request a GPU in the container's resources"},
        {"MIGInstance", TRAINER, "use whole GPUs"},
    };
    const pp_condition *c = &turn->to->conditions[PP_CONDITION_METRICS_AVAILABLE];
    if (turn->to->phase != PP_SESSION_COLLECTING && turn->to->phase != PP_SESSION_FINISHING)
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (c->status == PP_CONDITION_FALSE && strcmp(c->reason, cases[i].reason) == 0) {
            f->at_once = strcmp(c->reason, "NoSamples") == 0; /* it has lasted already */
            found(f, cases[i].reason, cases[i].who, "%s. %s", cases[i].what, c->message);
        }
    }
}

static void find_attribution(const pp_session_turn *turn, finding *f)
{
    if (turn->obs->solve_error)
        found(f, "AttributionFailing", ADMINISTRATOR,
              "look at the operator's log; working out the layers' values fails again and again: "
              "%s",
              turn->obs->solve_error);
}

typedef void (*find_fn)(const pp_session_turn *turn, finding *f);
static const find_fn finders[PP_TROUBLE_COUNT] = {
    [PP_TROUBLE_STORE] = find_store,
    [PP_TROUBLE_OPERATOR] = find_operator,
    [PP_TROUBLE_NOT_INJECTED] = find_not_injected,
    [PP_TROUBLE_POD] = find_pod,
    [PP_TROUBLE_NO_POD] = find_no_pod,
    [PP_TROUBLE_NO_AGENT] = find_no_agent,
    [PP_TROUBLE_CLOCK] = find_clock,
    [PP_TROUBLE_PENDING] = find_pending,
    [PP_TROUBLE_LOST_AGENT] = find_lost_agent,
    [PP_TROUBLE_NO_STEP] = find_no_step,
    [PP_TROUBLE_NO_LAYER] = find_no_layer,
    [PP_TROUBLE_NOT_SAMPLED] = find_not_sampled,
    [PP_TROUBLE_METRICS] = find_metrics,
    [PP_TROUBLE_ATTRIBUTION] = find_attribution,
};

/* Also where another process said so before: it does not begin to pass anew. */
static bool has_lasted(const pp_session_turn *turn, const finding *f, int64_t since)
{
    pp_condition before;
    pp_session_previous_condition(turn->session, PP_CONDITION_STALLED, &before);
    return f->at_once || (!f->early && turn->obs->now_ns >= since + turn->opt.stalled_ns) ||
           (before.status == PP_CONDITION_TRUE && strcmp(before.reason, f->reason) == 0);
}

bool pp_session_has_lasted(const pp_session_turn *turn, pp_session_trouble trouble)
{
    finding f = {0};
    int64_t since = turn->obs->trouble_since_ns[trouble];
    finders[trouble](turn, &f);
    return f.reason && has_lasted(turn, &f, since ? since : turn->obs->now_ns);
}

void pp_session_say_stalled(pp_session_turn *turn)
{
    finding named = {0};
    bool lasts = false;
    for (int i = 0; i < PP_TROUBLE_COUNT && turn->to->phase != PP_SESSION_SUSPENDED; i++) {
        finding f = {0};
        finders[i](turn, &f);
        if (!f.reason)
            continue;
        int64_t since = turn->obs->trouble_since_ns[i];
        turn->to->trouble_since_ns[i] = since ? since : turn->obs->now_ns;
        bool this_lasts = has_lasted(turn, &f, turn->to->trouble_since_ns[i]);
        if (!named.reason || (this_lasts && !lasts))
            named = f;
        lasts |= this_lasts;
    }
    if (lasts)
        pp_session_set(turn, PP_CONDITION_STALLED, PP_CONDITION_TRUE, named.reason,
                       "%s has to act: %s", named.who, named.what);
    else if (named.reason)
        pp_session_set(turn, PP_CONDITION_STALLED, PP_CONDITION_FALSE,
                       pp_session_phase_name(turn->to->phase),
                       "Nobody has to act, unless it lasts (%s): %s", named.reason, named.what);
    else
        pp_session_set(turn, PP_CONDITION_STALLED, PP_CONDITION_FALSE,
                       pp_session_phase_name(turn->to->phase), "Nothing is in the way");
}

int64_t pp_session_stalled_at(const pp_session_turn *turn)
{
    int64_t now = turn->obs->now_ns, next = 0;
    for (int i = 0; i < PP_TROUBLE_COUNT; i++) {
        int64_t since = turn->to->trouble_since_ns[i];
        int64_t at = since + turn->opt.stalled_ns;
        if (since && at > now && (!next || at < next))
            next = at;
    }
    if (turn->to->trouble_since_ns[PP_TROUBLE_NO_POD] && (!next || now + SEEK_AGAIN < next))
        next = now + SEEK_AGAIN;
    return next;
}

bool pp_session_seeks_near(const pp_session_observation *obs, const pp_session_options *opt)
{
    int64_t since = obs->trouble_since_ns[PP_TROUBLE_NO_POD];
    for (size_t i = 0; i < obs->n_pods; i++) {
        if (pp_session_pod_counts(obs->session, &obs->pods[i]))
            return false;
    }
    return since && obs->now_ns >=
                        since + (opt && opt->stalled_ns ? opt->stalled_ns : PP_SESSION_STALLED_NS);
}
