/* How much of what was asked for was measured in each pod, and why it is less where it is. */
#include "controller/session/session_cover.h"
#include "controller/session/condition.h"
#include "controller/session/session_clocks.h"
#include "controller/session/session_query.h"

#include "common/time.h"

#include <stdio.h>
#include <string.h>

enum { ENOUGH = 90 }; /* percent of what was asked for */

/** The time that was to be sampled: from the first sampled step until the duration is over, but for
 * the pauses. */
typedef struct window {
    int64_t from, to;
    int64_t ended; /**< when sampling ended, which may be before */
    const pp_session_span *pauses;
    size_t n_pauses;
} window;

static window window_of(const pp_session_turn *turn)
{
    const pp_session_decision *d = turn->to;
    bool early = d->sampling_end_ns && d->sampling_end_ns < d->ends_at_ns;
    return (window){.from = d->start_ns,
                    .to = d->ends_at_ns,
                    .ended = early ? d->sampling_end_ns : d->ends_at_ns,
                    .pauses = d->pauses,
                    .n_pauses = d->n_pauses};
}

static int64_t overlap(pp_session_span a, pp_session_span b)
{
    const int64_t from = a.from_ns > b.from_ns ? a.from_ns : b.from_ns;
    const int64_t to = a.to_ns < b.to_ns ? a.to_ns : b.to_ns;
    return to > from ? to - from : 0;
}

/* Of a capture what is in no pause, ns. */
static int64_t outside_pauses(const window *w, pp_session_span span)
{
    int64_t ns = overlap(span, span);
    for (size_t i = 0; i < w->n_pauses; i++)
        ns -= overlap(span, w->pauses[i]);
    return ns;
}

/* Of from .. to what lies in the window and was sampled, ns. */
static int64_t within(const window *w, int64_t from, int64_t to)
{
    from = from > w->from ? from : w->from;
    to = to < w->ended ? to : w->ended;
    return outside_pauses(w, (pp_session_span){from, to});
}

static bool is_most(const window *w, int64_t ns)
{
    return ns / ENOUGH >= outside_pauses(w, (pp_session_span){w->from, w->to}) / 100;
}

/* Of from .. to what passed without a training, ns. */
static int64_t idle(const window *w, const pp_session_pod *pod, int64_t from, int64_t to)
{
    int64_t ns = 0;
    for (size_t i = 0; i < pod->n_idle; i++) {
        const pp_session_span span = pod->idle[i];
        ns +=
            within(w, span.from_ns > from ? span.from_ns : from, span.to_ns < to ? span.to_ns : to);
    }
    return ns;
}

/* For its node's clock: what else is refused is so batch by batch. */
static bool is_refused(const pp_session_pod *pod)
{
    return pod->clock && pod->clock->refusing;
}

/* How long an agent that has brought something was there, and a training to bring more of. Between
 * captures nothing is brought. */
static int64_t covered(const pp_session_turn *turn, const window *w, const pp_session_pod *pod)
{
    int64_t to = pod->heard_to_ns > pod->last_batch_ns ? pod->heard_to_ns : pod->last_batch_ns;
    if (pod->last_batch_ns == 0)
        return 0;
    if (is_refused(pod))
        to = pod->last_batch_ns; /* it is there, and brings nothing that can be taken */
    else if (pod->connected && !pod->gone)
        to = turn->obs->now_ns;
    const int64_t from = pod->heard_from_ns ? pod->heard_from_ns : w->from;
    return within(w, from, to) - idle(w, pod, from, to);
}

static int64_t lived(const pp_session_turn *turn, const window *w, const pp_session_pod *pod)
{
    if (!pod->lived_from_ns && !pod->running && !pod->finished && !pod->gone)
        return 0; /* it waits for its node */
    bool over = pod->finished || pod->gone;
    return within(w, pod->lived_from_ns ? pod->lived_from_ns : w->from,
                  over ? pod->lived_to_ns : turn->obs->now_ns);
}

static bool has_enough(const pp_session_turn *turn, const window *w, const pp_session_pod *pod)
{
    int64_t max = turn->session->steps_max;
    return (max > 0 && pod->steps * 100 >= max * ENOUGH) || is_most(w, covered(turn, w, pod));
}

static bool is_asked_for(const pp_session_turn *turn, const window *w, const pp_session_pod *pod)
{
    return is_most(w, lived(turn, w, pod));
}

bool pp_session_may_bring_more(const pp_session_turn *turn, const pp_session_pod *pod)
{
    const window w = window_of(turn);
    char why[PP_SESSION_CLOCK_WHY];
    if (pp_session_clock_shuts_out(pod, why, sizeof why))
        return false;
    return pp_session_pod_injected(turn->session, pod) && !pod->gone && !pod->finished &&
           !pod->connected && is_asked_for(turn, &w, pod) && !has_enough(turn, &w, pod);
}

/** All injected pods together. */
typedef struct cover {
    int64_t asked_for, missing, enough;
    const pp_session_pod *first_missing;
    const pp_session_pod *longest; /**< of those that have not enough; NULL: none */
    int64_t longest_ns;
    int64_t siblings; /**< pods of the owner of `longest` */
} cover;

static bool same_owner(const pp_session_pod *a, const pp_session_pod *b)
{
    return a->owner == b->owner && a->owner_name && b->owner_name &&
           strcmp(a->owner_name, b->owner_name) == 0;
}

static void look_at(const pp_session_turn *turn, const window *w, cover *c)
{
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        const pp_session_pod *pod = &turn->obs->pods[i];
        if (!pp_session_pod_injected(turn->session, pod))
            continue;
        bool enough = has_enough(turn, w, pod), asked_for = is_asked_for(turn, w, pod);
        c->enough += enough;
        c->asked_for += asked_for || enough;
        if (asked_for && !enough && c->missing++ == 0)
            c->first_missing = pod;
        int64_t ns = covered(turn, w, pod);
        if (!enough && (!c->longest || ns > c->longest_ns)) {
            c->longest = pod;
            c->longest_ns = ns;
        }
    }
    for (size_t i = 0; c->longest && i < turn->obs->n_pods; i++)
        c->siblings += pp_session_pod_injected(turn->session, &turn->obs->pods[i]) &&
                       same_owner(&turn->obs->pods[i], c->longest);
}

/* Whether the pod would have enough, had its training been there all the time. */
static bool was_idle(const pp_session_turn *turn, const pp_session_pod *pod)
{
    const window w = window_of(turn);
    pp_session_pod busy = *pod;
    busy.n_idle = 0;
    return pod->n_idle > 0 && has_enough(turn, &w, &busy);
}

/* Why a pod that lived so long has less. */
static void explain_missing(const pp_session_turn *turn, const pp_session_pod *pod, char *out,
                            size_t size)
{
    char at[40];
    pp_time_format(pod->heard_to_ns > pod->last_batch_ns ? pod->heard_to_ns : pod->last_batch_ns, 0,
                   at, sizeof at);
    if (pp_session_clock_shuts_out(pod, out, size))
        return;
    if (is_refused(pod))
        (void)snprintf(out, size, "what it sends is refused: %s", pod->clock->why);
    else if (pod->refused_why && *pod->refused_why)
        (void)snprintf(out, size, "what it sent was refused: %s", pod->refused_why);
    else if (pod->last_batch_ns == 0 && pod->heard_to_ns == 0)
        (void)snprintf(out, size, "its agent has never been there");
    else if (pod->last_batch_ns == 0)
        (void)snprintf(out, size, "its agent was there, and no step was sampled");
    else if (was_idle(turn, pod))
        (void)snprintf(out, size,
                       "its agent was there, and for the rest no profiled container ran; look at "
                       "their restarts and logs");
    else if (turn->obs->serving_since_ns > pod->heard_to_ns &&
             turn->obs->serving_since_ns > pod->last_batch_ns)
        (void)snprintf(out, size,
                       "cut off: its agent, last heard of at %s, has not come back to the operator "
                       "that serves since; where that was installed anew, create the pod anew",
                       at);
    else
        (void)snprintf(out, size, "its agent was lost at %s", at);
}

/* Why no pod lived so long. */
static void explain_short(const pp_session_turn *turn, const cover *c, char *out, size_t size)
{
    const pp_session_pod *pod = c->longest;
    pp_condition ended;
    pp_session_previous_condition(turn->session, PP_CONDITION_COLLECTING, &ended);
    if (!pod)
        (void)snprintf(out, size, "no injected pod is left");
    else if (c->siblings > 1)
        (void)snprintf(out, size, "retried: %s %s made %lld pods, one after another",
                       pp_owner_kind_name(pod->owner), pod->owner_name, (long long)c->siblings);
    else if (strcmp(ended.reason, "DeadlineReached") == 0)
        (void)snprintf(out, size, "the deadline came first; make spec.deadline longer");
    else if (pod->finished || pod->gone)
        (void)snprintf(out, size,
                       "the pod had ended by then%s; choose a duration or steps.max that the "
                       "training lasts for",
                       pod->failed ? ", and failed" : "");
    else
        (void)snprintf(out, size, "the pod began later");
}

bool pp_session_is_complete(const pp_session_turn *turn, char *why, size_t size)
{
    const window w = window_of(turn);
    cover c = {0};
    char wanted[64], had[64], reason[224];
    look_at(turn, &w, &c);
    if (c.missing == 0 && c.enough > 0)
        return true;
    pp_duration_format(turn->session->duration_ns, wanted, sizeof wanted);
    const pp_session_pod *pod = c.first_missing ? c.first_missing : c.longest;
    int64_t ns = pod ? covered(turn, &w, pod) : 0;
    pp_duration_format(ns / INT64_C(1000000000) * INT64_C(1000000000), had, sizeof had);
    if (c.first_missing) {
        explain_missing(turn, pod, reason, sizeof reason);
        (void)snprintf(why, size,
                       "%lld of %lld pods that ran for %s were profiled for less than 90 %% of it; "
                       "%s for %s: %s",
                       (long long)c.missing, (long long)c.asked_for, wanted, pod->name, had,
                       reason);
    } else {
        explain_short(turn, &c, reason, sizeof reason);
        (void)snprintf(why, size, "No pod was profiled for 90 %% of %s; %s%s%s%s%s", wanted,
                       pod ? pod->name : "", pod ? " for " : "", pod ? had : "", pod ? ": " : "",
                       reason);
    }
    return false;
}
