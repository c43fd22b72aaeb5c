#include "operator/kube/lease_state.h"

#include <stdio.h>
#include <string.h>

static const int64_t NS_PER_MS = 1000000;
static const int64_t NS_PER_S = 1000000000;
static const int64_t DAY_S = 86400;

void pp_lease_state_init(pp_lease_state *state, const char *identity, int64_t lease_ms,
                         int64_t renew_deadline_ms, int64_t retry_ms)
{
    *state = (pp_lease_state){
        .lease_ns = lease_ms * NS_PER_MS,
        .renew_deadline_ns = renew_deadline_ms * NS_PER_MS,
        .retry_ns = retry_ms * NS_PER_MS,
    };
    (void)snprintf(state->identity, sizeof state->identity, "%s", identity);
}

static bool same(const pp_lease_record *a, const pp_lease_record *b)
{
    return strcmp(a->holder, b->holder) == 0 && a->duration_s == b->duration_s &&
           strcmp(a->acquire_time, b->acquire_time) == 0 &&
           strcmp(a->renew_time, b->renew_time) == 0 && a->transitions == b->transitions;
}

static bool ours(const pp_lease_state *state)
{
    return state->seen && strcmp(state->observed.holder, state->identity) == 0;
}

pp_lease_action pp_lease_observe(pp_lease_state *state, const pp_lease_record *record,
                                 int64_t now_ns)
{
    if (!record) {
        state->seen = false;
        return PP_LEASE_CREATE;
    }
    if (!state->seen || !same(&state->observed, record)) {
        state->seen = true;
        state->observed = *record;
        state->observed_ns = now_ns;
    }
    if (ours(state) || record->holder[0] == '\0')
        return PP_LEASE_UPDATE;
    /* Its own duration counts, from when we saw it change: clocks of two nodes may differ. A
     * duration that cannot be is held against nobody but taken as ours, and no overflow follows. */
    int64_t duration_ns = record->duration_s > 0 && record->duration_s <= DAY_S
                              ? record->duration_s * NS_PER_S
                              : state->lease_ns;
    return now_ns - state->observed_ns >= duration_ns ? PP_LEASE_UPDATE : PP_LEASE_WAIT;
}

void pp_lease_fill(const pp_lease_state *state, const char *wall_time, pp_lease_record *ret_record)
{
    pp_lease_record r = {0};
    (void)snprintf(r.holder, sizeof r.holder, "%s", state->identity);
    r.duration_s = (state->lease_ns + NS_PER_S - 1) / NS_PER_S;
    (void)snprintf(r.renew_time, sizeof r.renew_time, "%s", wall_time);
    if (ours(state)) {
        memcpy(r.acquire_time, state->observed.acquire_time, sizeof r.acquire_time);
        r.transitions = state->observed.transitions;
    } else {
        (void)snprintf(r.acquire_time, sizeof r.acquire_time, "%s", wall_time);
        r.transitions = state->seen ? state->observed.transitions + 1 : 0;
    }
    *ret_record = r;
}

bool pp_lease_written(pp_lease_state *state, const pp_lease_record *record, int64_t sent_ns,
                      int64_t now_ns)
{
    state->seen = true;
    state->observed = *record;
    state->observed_ns = now_ns;
    if (now_ns - sent_ns >= state->renew_deadline_ns)
        return false; /* others may count from when the server took it, long ago */
    state->renewed_ns = sent_ns;
    bool begins = !state->leading;
    state->leading = true;
    return begins;
}

bool pp_lease_leads(const pp_lease_state *state, int64_t now_ns)
{
    return state->leading && now_ns - state->renewed_ns < state->renew_deadline_ns;
}

bool pp_lease_lost(pp_lease_state *state, int64_t now_ns)
{
    if (!state->leading || (pp_lease_leads(state, now_ns) && ours(state)))
        return false;
    state->leading = false;
    return true;
}
