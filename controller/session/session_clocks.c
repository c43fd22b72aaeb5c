/* What a session says of clocks that are wrong. */
#include "controller/session/session_clocks.h"
#include "controller/session/condition.h"
#include "controller/session/session_query.h"

#include "controller/samples/clock_offset.h"

#include <stdio.h>
#include <string.h>

/** Over all pods of the session. */
typedef struct clocks {
    int64_t refused, shifted;            /**< pods: batches of theirs are refused; stamps shifted */
    const pp_session_pod *first_refused; /**< NULL: none */
    const pp_session_pod *first_refusing; /**< the latest batch was, too */
    const pp_session_pod *first_shifted;
    int64_t out; /**< pods whose agents cannot come in */
    const pp_session_pod *first_out;
} clocks;

/* The kubelet keeps what an agent said last, also of one that has come in since. */
static bool is_shut_out(const pp_session_pod *pod)
{
    return pod->clock_said_ns && !pod->connected && !pod->gone && !pod->finished &&
           !pod->heard_to_ns && !pod->last_batch_ns;
}

static clocks look(const pp_session_turn *turn)
{
    clocks all = {0};
    for (size_t i = 0; i < turn->obs->n_pods; i++) {
        const pp_session_pod *pod = &turn->obs->pods[i];
        if (!pp_session_pod_injected(turn->session, pod))
            continue;
        if (is_shut_out(pod) && all.out++ == 0)
            all.first_out = pod;
        if (!pod->clock)
            continue;
        if (pod->clock->refused && all.refused++ == 0)
            all.first_refused = pod;
        if (pod->clock->refusing && !pod->gone && !pod->finished && !all.first_refusing)
            all.first_refusing = pod;
        if (pod->clock->shift_ns && all.shifted++ == 0)
            all.first_shifted = pod;
    }
    return all;
}

bool pp_session_clock_shuts_out(const pp_session_pod *pod, char *why, size_t size)
{
    char off[64];
    if (!is_shut_out(pod))
        return false;
    pp_clock_describe(pod->clock_said_ns, off, sizeof off);
    (void)snprintf(why, size,
                   "its agent cannot come in: by the clock of node %s, at least %s, the operator's "
                   "certificate is not valid; set that clock",
                   pod->node ? pod->node : "?", off);
    return true;
}

const pp_session_pod *pp_session_clock_in_the_way(const pp_session_turn *turn, char *why,
                                                  size_t size)
{
    const clocks c = look(turn);
    if (c.first_refusing)
        (void)snprintf(why, size, "%s", c.first_refusing->clock->why);
    else if (c.first_out)
        (void)pp_session_clock_shuts_out(c.first_out, why, size);
    return c.first_refusing ? c.first_refusing : c.first_out;
}

static void add_prometheus(pp_session_turn *turn)
{
    pp_condition *c = &turn->to->conditions[PP_CONDITION_CLOCK_SKEWED];
    const size_t used = strlen(c->message);
    char off[64];
    if (!turn->obs->prometheus_shift_ns)
        return;
    pp_clock_describe(turn->obs->prometheus_shift_ns, off, sizeof off);
    (void)snprintf(c->message + used, sizeof c->message - used,
                   "; Prometheus' clock is %s, which is taken out", off);
}

/* What was said stays, also where the pods are gone or another process counts anew. */
void pp_session_say_clocks(pp_session_turn *turn)
{
    const clocks c = look(turn);
    pp_condition before;
    char off[64];
    pp_session_previous_condition(turn->session, PP_CONDITION_CLOCK_SKEWED, &before);
    if (c.refused) {
        pp_session_set(turn, PP_CONDITION_CLOCK_SKEWED, PP_CONDITION_TRUE, "BatchesRefused",
                       "Batches of %lld pods are refused; %s: %s", (long long)c.refused,
                       c.first_refused->name, c.first_refused->clock->why);
    } else if (c.out) {
        char why[PP_SESSION_CLOCK_WHY];
        (void)pp_session_clock_shuts_out(c.first_out, why, sizeof why);
        pp_session_set(turn, PP_CONDITION_CLOCK_SKEWED, PP_CONDITION_TRUE, "AgentsShutOut",
                       "%lld pods are not profiled for their nodes' clocks; %s: %s",
                       (long long)c.out, c.first_out->name, why);
    } else if (c.shifted && strcmp(before.reason, "BatchesRefused") != 0) {
        const char *node = c.first_shifted->node;
        pp_clock_describe(c.first_shifted->clock->shift_ns, off, sizeof off);
        pp_session_set(turn, PP_CONDITION_CLOCK_SKEWED, PP_CONDITION_TRUE, "OffsetTakenOut",
                       "The nodes' clocks of %lld pods are wrong, which is taken out of their "
                       "stamps; that of node %s, by pod %s, is %s",
                       (long long)c.shifted, node ? node : "?", c.first_shifted->name, off);
    } else if (turn->obs->prometheus_shift_ns && !before.reason[0]) {
        pp_session_set(turn, PP_CONDITION_CLOCK_SKEWED, PP_CONDITION_TRUE, "OffsetTakenOut",
                       "Every node's clock is right");
    } else {
        turn->to->conditions[PP_CONDITION_CLOCK_SKEWED] = before;
        return;
    }
    add_prometheus(turn);
}
