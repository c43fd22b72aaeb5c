#include "controller/session/condition.h"

#include "common/text.h"
#include "common/time.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const condition_names[PP_CONDITION_COUNT] = {
    [PP_CONDITION_ACCEPTED] = "Accepted",
    [PP_CONDITION_INJECTED] = "Injected",
    [PP_CONDITION_COLLECTING] = "Collecting",
    [PP_CONDITION_METRICS_AVAILABLE] = "MetricsAvailable",
    [PP_CONDITION_SAMPLED] = "Sampled",
    [PP_CONDITION_REPLAYED] = "Replayed",
    [PP_CONDITION_EXPLAINED] = "Explained",
    [PP_CONDITION_CLOCK_SKEWED] = "ClockSkewed",
    [PP_CONDITION_STORED] = "Stored",
    [PP_CONDITION_READY] = "Ready",
    [PP_CONDITION_RECONCILING] = "Reconciling",
    [PP_CONDITION_STALLED] = "Stalled",
    [PP_CONDITION_FINISHED] = "Finished",
    [PP_CONDITION_SUCCEEDED] = "Succeeded",
    [PP_CONDITION_FAILED] = "Failed",
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
        return; /* there is one of each: the list is a map by type */
    }
}

void pp_session_set(pp_session_turn *turn, pp_condition_type type, pp_condition_status status,
                    const char *reason, const char *fmt, ...)
{
    pp_condition before, *c = &turn->to->conditions[type];
    pp_session_previous_condition(turn->session, type, &before);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(c->message, sizeof c->message, fmt, args);
    va_end(args);
    pp_text_tame(c->message); /* pods say why they are not sampled; kubectl prints that as it is */
    (void)snprintf(c->reason, sizeof c->reason, "%s", reason);
    c->status = status;
    bool same = before.reason[0] && before.status == status;
    c->transition_ns = same && before.transition_ns ? before.transition_ns : turn->obs->now_ns;
    if (!same || strcmp(before.reason, c->reason) != 0)
        turn->to->urgent = true;
}
