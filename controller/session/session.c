/* What follows from a session at once. */
#include "controller/session/session_query.h"

#include "common/time.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define MILLISECOND INT64_C(1000000)
/* Replays bring a batch every few seconds: an agent that is not heard of, though it could be, has
 * none under way. */
#define REPLAYING_HEARD_WITHIN (30 * SECOND)

static const char *const phase_names[] = {
    [PP_SESSION_PENDING] = "Pending",     [PP_SESSION_COLLECTING] = "Collecting",
    [PP_SESSION_FINISHING] = "Finishing", [PP_SESSION_SUCCEEDED] = "Succeeded",
    [PP_SESSION_FAILED] = "Failed",       [PP_SESSION_SUSPENDED] = "Suspended",
};

const char *pp_session_phase_name(pp_session_phase phase)
{
    return phase_names[phase];
}

bool pp_session_phase_final(pp_session_phase phase)
{
    return phase == PP_SESSION_SUCCEEDED || phase == PP_SESSION_FAILED;
}

bool pp_session_final(const pp_session *session)
{
    return pp_session_phase_final(session->phase);
}

int64_t pp_session_expires_ns(const pp_session *session)
{
    int64_t after = session->ttl_ns;
    if (after < 0 && session->expires_after_s > 0)
        after = session->expires_after_s * SECOND;
    if (!pp_session_final(session) || !session->completion_ns || after < 0)
        return 0;
    return session->completion_ns + after;
}

bool pp_session_live(const pp_session *session)
{
    return session->invalid.code == PP_OK && !session->deleting &&
           !pp_session_phase_final(session->phase) && session->phase != PP_SESSION_FINISHING;
}

bool pp_session_takes_batches(const pp_session *session)
{
    return session->invalid.code == PP_OK && !session->deleting &&
           !pp_session_phase_final(session->phase);
}

int64_t pp_session_dwell(const pp_session *session, int64_t usual)
{
    const int64_t dwell = session->dwell_ns ? session->dwell_ns : usual;
    return dwell < PP_SESSION_DWELL_MAX ? dwell : PP_SESSION_DWELL_MAX;
}

/* The training would be held for dwells without a value, or for none at all. */
static void check_dwell(pp_session *session, const pp_session_limits *limits)
{
    const int64_t dwell = pp_session_dwell(session, limits->dwell_ns);
    char is[64], least[64], sure[64];
    pp_duration_format(dwell, is, sizeof is);
    pp_duration_format(limits->dwell_least_ns, least, sizeof least);
    pp_duration_format(limits->dwell_sure_ns, sure, sizeof sure);
    if (dwell < limits->dwell_least_ns)
        (void)pp_error_field(&session->invalid, "spec.replay.duration",
                             "is %s: no metric windows as long as this operator's configuration "
                             "has them lie in less than %s, and 1m is the most",
                             is, least);
    else if (!session->dwell_ns && dwell < limits->dwell_sure_ns)
        (void)pp_error_field(&session->invalid, "spec.replay.duration",
                             "has to be given: with metric windows as long as this operator's "
                             "configuration has them it may take %s, and 1m is the most",
                             sure);
    else if (dwell > session->max_pause_ns)
        (void)pp_error_field(&session->invalid, "spec.replay.maxPause",
                             "must not be shorter than a replay run, which is %s where "
                             "spec.replay.duration is not given",
                             is);
}

void pp_session_allow(pp_session *session, const pp_session_limits *limits)
{
    const bool sampled =
        session->phase == PP_SESSION_FINISHING || pp_session_phase_final(session->phase);
    if (sampled || !pp_session_asks_replays(session) || session->invalid.code != PP_OK)
        return;
    if (limits->replay) {
        check_dwell(session, limits);
        return;
    }
    (void)pp_error_field(&session->invalid, "spec.method",
                         "Replay pauses the training while its layers are replayed, which this "
                         "operator's configuration does not allow: set replay.allow there (with "
                         "Helm: config.replay.allow), then create the session again");
    session->invalid.code = PP_ERR_DENIED;
}

bool pp_session_asks_replays(const pp_session *session)
{
    return session->method == PP_METHOD_REPLAY;
}

const char *pp_session_invalid_reason(const pp_session *session)
{
    return session->invalid.code == PP_ERR_DENIED ? "NotAllowed" : "InvalidSpec";
}

bool pp_session_asks_sampling(const pp_session *session, bool by_auto)
{
    return session->method == PP_METHOD_SAMPLING || (by_auto && session->method == PP_METHOD_AUTO);
}

bool pp_session_pod_injected(const pp_session *session, const pp_session_pod *pod)
{
    return pod->session_uid && strcmp(pod->session_uid, session->uid) == 0;
}

bool pp_session_pod_counts(const pp_session *session, const pp_session_pod *pod)
{
    return !pod->gone && (pp_session_pod_injected(session, pod) || !pod->finished);
}

const char *pp_session_whose(const pp_session *session, const pp_session_claim *pod)
{
    if (pod->reported || (pod->injected_for && strcmp(pod->injected_for, session->uid) == 0))
        return session->uid;
    if (!pod->hooked)
        return pod->injected_for;
    return pod->holder ? pod->holder->uid : NULL;
}
