#include "operator/pods/silent.h"

#include "common/time.h"
#include "controller/pods/unheard.h"
#include "operator/cache/watches.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum { TICK_MS = 1000 };

/** One pod with the hook that has not ended. */
typedef struct silent {
    char uid[64]; /* key */
    pp_unheard seen;
    int64_t trainer_start;           /* by its node: another one is another start */
    pp_unheard_cause cause;          /* that is named */
    pp_session_pod_trouble *trouble; /* of the cause; NULL: none is named */
    bool waits;                      /* it is in the list of those that may come to be named */
    UT_hash_handle hh;
    struct silent *prev, *next;
} silent;

typedef struct pp_silent {
    silent *pods;
    silent *waiting; /* few: pods that run for less than a minute, but for those that agents of
                         which are kept out, as all are while the store is away */
    bool led;
    int64_t open_since;
    uv_timer_t timer;
} pp_silent;

/* ---- naming ---- */

static silent *find(const pp_operator *op, const char *uid)
{
    silent *found = NULL;
    if (op->silent)
        HASH_FIND_STR(op->silent->pods, uid, found);
    return found;
}

static void touch(pp_operator *op, const silent *u)
{
    const pp_pod *pod = op->matches ? pp_match_pod(op->matches, u->uid) : NULL;
    if (pod)
        pp_watches_enqueue_pod(op, pod);
}

static void unname(pp_operator *op, silent *u)
{
    if (u->cause == PP_UNHEARD_NONE)
        return;
    u->cause = PP_UNHEARD_NONE;
    free(u->trouble);
    u->trouble = NULL;
    touch(op, u);
}

static void name(pp_operator *op, silent *u, pp_unheard_cause cause)
{
    const pp_pod *pod = op->matches ? pp_match_pod(op->matches, u->uid) : NULL;
    pp_session_pod_trouble *trouble = pod && pod->runs ? malloc(sizeof *trouble) : NULL;
    if (!trouble)
        return;
    pp_unheard_tell(cause, pod->runs, &u->seen.hook, op->endpoint, trouble);
    u->cause = cause;
    u->trouble = trouble;
    touch(op, u);
}

static void keep_waiting(pp_silent *all, silent *u, bool waits)
{
    if (waits && !u->waits)
        DL_APPEND(all->waiting, u);
    else if (!waits && u->waits)
        DL_DELETE(all->waiting, u);
    u->waits = waits;
}

/* Whether it is to be looked at again, though nothing happens to it. */
static void look_at(pp_operator *op, silent *u, int64_t now)
{
    pp_silent *all = op->silent;
    int64_t at;
    u->seen.open_since = all->open_since;
    const pp_unheard_cause cause = pp_unheard_look(&u->seen, &at);
    /* While agents are kept out nothing new is known. */
    if (all->open_since && cause != u->cause)
        unname(op, u);
    if (cause != PP_UNHEARD_NONE && cause != u->cause && now >= at)
        name(op, u, cause);
    keep_waiting(all, u, all->open_since ? cause != u->cause : u->cause == PP_UNHEARD_NONE);
}

/* What one process has named another may know better: agents may be connected there. */
static void forget_names(pp_operator *op)
{
    for (silent *u = op->silent->pods; u; u = u->hh.next) {
        unname(op, u);
        keep_waiting(op->silent, u, true);
    }
}

/* Agents are let in while this process leads and the store can be reached. */
static void note_open(pp_operator *op, int64_t now)
{
    pp_silent *all = op->silent;
    const bool open =
        op->leading && !op->stopping && pp_watches_synced(op) && pp_store_ready(op->store, NULL);
    if (!op->leading && all->led)
        forget_names(op);
    all->led = op->leading;
    if (!open)
        all->open_since = 0;
    else if (!all->open_since)
        all->open_since = now;
}

static void on_timer(uv_timer_t *timer)
{
    pp_operator *op = timer->data;
    const int64_t now = pp_time_monotonic();
    silent *u;
    silent *next;
    note_open(op, now);
    if (!op->silent->open_since)
        return;
    DL_FOREACH_SAFE(op->silent->waiting, u, next)
    {
        look_at(op, u, now);
    }
}

/* ---- what is seen ---- */

static silent *get(pp_operator *op, const char *uid)
{
    silent *u = find(op, uid);
    if (u || !op->silent || !(u = calloc(1, sizeof *u)))
        return u;
    (void)snprintf(u->uid, sizeof u->uid, "%s", uid);
    HASH_ADD_STR(op->silent->pods, uid, u);
    return u;
}

static void drop(pp_silent *all, silent *u)
{
    keep_waiting(all, u, false);
    HASH_DEL(all->pods, u);
    free(u->trouble);
    free(u);
}

void pp_silent_pod_seen(pp_operator *op, const pp_pod *pod)
{
    if (!pod->hooked || pod->finished) {
        pp_silent_pod_gone(op, pod);
        return;
    }
    silent *u = get(op, pod->uid);
    if (!u)
        return;
    const pp_unheard_pod *runs = pod->runs;
    const int64_t now = pp_time_monotonic();
    const int64_t start = runs ? runs->trainer_start : 0;
    if (!runs || !runs->agent_runs)
        u->seen.agent_since = 0;
    else if (!u->seen.agent_since)
        u->seen.agent_since = now;
    if (!runs || !runs->trainer_runs)
        u->seen.trainer_since = 0;
    else if (!u->seen.trainer_since || u->trainer_start != start)
        u->seen.trainer_since = now;
    u->trainer_start = start;
    u->seen.shut_out = pod->clock_said_s != 0;
    look_at(op, u, now);
}

void pp_silent_pod_gone(pp_operator *op, const pp_pod *pod)
{
    silent *u = find(op, pod->uid);
    if (u)
        drop(op->silent, u);
}

void pp_silent_connected(pp_operator *op, const char *pod_uid, bool connected)
{
    silent *u = find(op, pod_uid);
    if (!u)
        return;
    u->seen.connected = connected;
    u->seen.was_connected |= connected;
    u->seen.told &= connected; /* by an agent that may be another one next time */
    look_at(op, u, pp_time_monotonic());
}

void pp_silent_told(pp_operator *op, const char *pod_uid, const pp_wire_hook *hook)
{
    silent *u = find(op, pod_uid);
    if (!u)
        return;
    u->seen.told = true;
    u->seen.hook = *hook;
    look_at(op, u, pp_time_monotonic());
}

const pp_session_pod_trouble *pp_silent_trouble(const pp_operator *op, const char *pod_uid)
{
    const silent *u = find(op, pod_uid);
    return u ? u->trouble : NULL;
}

bool pp_silent_awaits_agent(const pp_operator *op, const char *pod_uid)
{
    const silent *u = find(op, pod_uid);
    int64_t at;
    return u && pp_unheard_look(&u->seen, &at) == PP_UNHEARD_AGENT;
}

/* ---- starting, stopping ---- */

int pp_silent_start(pp_operator *op, pp_error *err)
{
    op->silent = calloc(1, sizeof *op->silent);
    if (!op->silent)
        return pp_error_nomem(err);
    uv_timer_init(op->loop, &op->silent->timer);
    op->silent->timer.data = op;
    uv_timer_start(&op->silent->timer, on_timer, TICK_MS, TICK_MS);
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    free((char *)handle - offsetof(pp_silent, timer));
}

void pp_silent_stop(pp_operator *op)
{
    pp_silent *all = op->silent;
    if (!all)
        return;
    while (all->pods)
        drop(all, all->pods);
    op->silent = NULL;
    uv_close((uv_handle_t *)&all->timer, on_closed);
}
