#include "operator/pods/stuck.h"
#include "operator/pods/owners_ask.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/pods/startup.h"
#include "operator/cache/owners.h"
#include "operator/cache/watches.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { TICK_MS = 1000 };

/* Between two questions whether the same pod may be let go. */
static const int64_t ASK_AGAIN_NS = INT64_C(30000000000);
/* A successor is made that much later than its predecessor was named, at least; clocks differ. */
static const int64_t SUCCESSOR_NS = INT64_C(5000000000);
/* How long the API server's last refusal of a pod is news. */
static const int64_t NEWS_NS = INT64_C(900000000000);

/** One pod that does not start. */
typedef struct stuck {
    char uid[64]; /* key */
    pp_startup_cause cause;
    int64_t since_ns; /* monotonic: when the cause was seen first */
    int64_t ask_ns;   /* monotonic: not asked whether it may be let go before then */
    bool named;
    bool released;
    bool left_alone; /* pods that follow it are */
    pp_session_pod_trouble trouble;
    pp_unprobed_owner *successors; /* to be left alone once the pod is gone; NULL: nobody is */
    UT_hash_handle hh;
} stuck;

/** How many pods of a Job are known to have failed. */
typedef struct tally {
    char owner_uid[64]; /* key */
    char ns[64];        /* of the pods that name it */
    int64_t base;       /* as the Job said at first */
    int64_t released;   /* since then, by us */
    UT_hash_handle hh;
} tally;

typedef struct pp_stuck {
    pp_operator *op;
    stuck *pods;
    tally *tallies;
    pp_unprobed *unprobed;
    uv_timer_t timer; /* runs while there are pods */
    bool denied;      /* pods may not be deleted, which was said */
} pp_stuck;

/* ---- letting a pod go ---- */

/** A question about an owner, then a deletion. */
typedef struct release {
    pp_pending_call context;
    char pod_uid[64];
    char ns[64];
    char name[254];
    char owner_uid[64];
} release;

static stuck *find(const pp_stuck *s, const char *uid)
{
    stuck *found = NULL;
    HASH_FIND_STR(s->pods, uid, found);
    return found;
}

static const pp_pod *pod_of(const pp_operator *op, const stuck *p)
{
    const pp_pod *pod = op->matches ? pp_match_pod(op->matches, p->uid) : NULL;
    return pod && pod->startup ? pod : NULL;
}

static tally *tally_of(pp_stuck *s, const release *r, int64_t failed)
{
    tally *t = NULL;
    HASH_FIND_STR(s->tallies, r->owner_uid, t);
    if (t || !(t = calloc(1, sizeof *t)))
        return t;
    (void)snprintf(t->owner_uid, sizeof t->owner_uid, "%s", r->owner_uid);
    (void)snprintf(t->ns, sizeof t->ns, "%s", r->ns);
    t->base = failed;
    HASH_ADD_STR(s->tallies, owner_uid, t);
    return t;
}

static int64_t count_stuck(const pp_operator *op, const release *r)
{
    int64_t n = 0;
    for (const stuck *p = op->stuck->pods; p; p = p->hh.next) {
        const pp_pod *pod = pod_of(op, p);
        n += pod && !p->released && strcmp(pod->ns, r->ns) == 0 &&
             strcmp(pod->startup->owner_uid, r->owner_uid) == 0;
    }
    return n;
}

static void tell_release(pp_operator *op, const release *r)
{
    const pp_kube_object_ref ref = {
        .api_version = "v1", .kind = "Pod", .ns = r->ns, .name = r->name, .uid = r->pod_uid};
    pp_info(r->name, "the pod of namespace %s was deleted, since it did not start with the probe",
            r->ns);
    pp_kube_event(op->recorder, &ref, PP_KUBE_EVENT_NORMAL, "Released", "Release",
                  "Deleted, since it did not start with the probe; its controller makes another, "
                  "which is not injected");
}

static void on_deleted(void *user, json_t *object, const pp_error *error)
{
    release *r = user;
    pp_operator *op = r->context.op;
    (void)object;
    stuck *p = op->stuck ? find(op->stuck, r->pod_uid) : NULL;
    if (!error) {
        tally *t = op->stuck ? tally_of(op->stuck, r, 0) : NULL;
        if (t)
            t->released++;
        tell_release(op, r);
    } else if (p) {
        p->released = false; /* it has changed meanwhile, perhaps started: it is looked at again */
    }
    if (error && error->code == PP_ERR_DENIED && op->stuck && !op->stuck->denied) {
        op->stuck->denied = true;
        pp_warn(r->name, "pods that do not start cannot be deleted: %s", error->message);
    }
    pp_pending_call_free(r);
}

/* Only as it was looked at: one that has started since is not deleted. */
static int delete_pod(release *r, const pp_pod *pod)
{
    PP_CLEANUP_JSON json_t *body =
        json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "v1", "kind", "DeleteOptions",
                  "preconditions", "uid", pod->uid, "resourceVersion", pod->startup->version);
    const pp_kube_call call = {.verb = PP_KUBE_DELETE,
                               .resource = &PP_KUBE_PODS,
                               .ns = pod->ns,
                               .name = pod->name,
                               .body = body,
                               .done = on_deleted,
                               .user = r};
    return pp_kube_call_start(r->context.op->kube, &call, NULL, NULL);
}

static void on_owner(void *user, json_t *object, const pp_error *error)
{
    release *r = user;
    pp_operator *op = r->context.op;
    stuck *p = op->stuck && op->leading && !op->stopping ? find(op->stuck, r->pod_uid) : NULL;
    const pp_pod *pod = p && !p->released ? pod_of(op, p) : NULL;
    if (!error && pod) {
        const int64_t failed = json_integer_value(pp_json_get(object, "status", "failed", NULL));
        const tally *t = tally_of(op->stuck, r, failed);
        const int64_t known = t && t->base + t->released > failed ? t->base + t->released : failed;
        const int64_t others = count_stuck(op, r);
        p->released = t && pp_startup_may_release(pod->startup, object, known, others) &&
                      delete_pod(r, pod) == 0;
        if (p->released)
            return; /* on_deleted has it from here */
    }
    pp_pending_call_free(r);
}

static void ask_owner(pp_operator *op, stuck *p, const pp_pod *pod)
{
    const pp_startup *startup = pod->startup;
    release *r = pp_pending_call_new(op, sizeof *r, NULL);
    if (!r)
        return;
    (void)snprintf(r->pod_uid, sizeof r->pod_uid, "%s", pod->uid);
    (void)snprintf(r->ns, sizeof r->ns, "%s", pod->ns);
    (void)snprintf(r->name, sizeof r->name, "%s", pod->name);
    (void)snprintf(r->owner_uid, sizeof r->owner_uid, "%s", startup->owner_uid);
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = pp_owners_resource(startup->kind),
                               .ns = pod->ns,
                               .name = startup->owner_name,
                               .done = on_owner,
                               .user = r};
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0)
        pp_pending_call_free(r);
    p->ask_ns = pp_time_monotonic() + ASK_AGAIN_NS;
}

/* One that was made when its controller's pods were to be left alone is none that a successor would
 * help: it, too, came with the probe. */
static bool is_first(const pp_operator *op, const pp_pod *pod, int64_t now)
{
    const pp_unprobed_owner *owner =
        pp_unprobed_find(op->stuck->unprobed, pod->ns, pod->startup->owner_uid, now);
    const int64_t since = owner ? pp_time_now() - (now - owner->since_ns) : 0;
    return owner && pod->created_ns < since + SUCCESSOR_NS;
}

static void consider_release(pp_operator *op, stuck *p, const pp_pod *pod, int64_t now)
{
    const pp_startup *startup = pod->startup;
    if (!op->config->injection.release || !op->leading || op->stuck->denied || p->released ||
        now < p->since_ns + PP_STARTUP_RELEASE_NS || now < p->ask_ns || !startup->untouched ||
        startup->over || startup->bound || !pp_startup_is_ours(startup) ||
        !pp_owners_resource(startup->kind) || !is_first(op, pod, now))
        return;
    ask_owner(op, p, pod);
}

/* ---- naming ---- */

void pp_stuck_leave_alone(pp_operator *op, const pp_unprobed_owner *owner)
{
    if (op->stuck && pp_unprobed_add(op->stuck->unprobed, owner, pp_time_monotonic()) < 0)
        pp_warn(owner->what, "out of memory: its pods are not left alone");
}

static void leave_alone(pp_operator *op, stuck *p)
{
    if (!p->successors)
        return;
    p->successors->until_ns = pp_time_monotonic() + PP_STARTUP_UNPROBED_NS;
    pp_stuck_leave_alone(op, p->successors);
    free(p->successors);
    p->successors = NULL;
    p->left_alone = true;
}

static void name_owner(const stuck *p, const pp_pod *pod, pp_unprobed_owner *ret)
{
    const pp_startup *startup = pod->startup;
    *ret = (pp_unprobed_owner){0};
    (void)snprintf(ret->uid, sizeof ret->uid, "%s", startup->owner_uid);
    (void)snprintf(ret->ns, sizeof ret->ns, "%s", pod->ns);
    (void)snprintf(ret->what, sizeof ret->what, "%s %s", pp_owner_kind_name(startup->kind),
                   startup->owner_name);
    (void)snprintf(ret->refusal.reason, sizeof ret->refusal.reason, "OthersDidNotStart");
    (void)snprintf(ret->refusal.message, sizeof ret->refusal.message,
                   "pod %s of the same %s did not start with the probe (%s), so those that follow "
                   "are left alone for an hour; mend that, and create the pod anew after it",
                   pod->name, pp_owner_kind_name(startup->kind), p->trouble.reason);
}

/* A node that has room may be on its way: then its pod starts, as those that follow do. */
static bool may_pass(const pp_startup *startup)
{
    return startup->cause == PP_STARTUP_ROOM && !startup->over;
}

static void leave_successors(pp_operator *op, stuck *p, const pp_pod *pod)
{
    const pp_startup *startup = pod->startup;
    if (!pp_startup_is_ours(startup) || !startup->owner_uid[0] || p->left_alone)
        return;
    if (!p->successors && !(p->successors = malloc(sizeof *p->successors)))
        return;
    name_owner(p, pod, p->successors);
    /* Every replica is to know before the pod is let go. */
    if (!may_pass(startup) || op->config->injection.release)
        leave_alone(op, p);
}

static void look_at(pp_operator *op, stuck *p, int64_t now)
{
    const pp_pod *pod = pod_of(op, p);
    if (!pod)
        return;
    /* A pod that has failed of it waits for nothing: its successor is about to be made. */
    if (!p->named && (pod->startup->over || now >= p->since_ns + PP_STARTUP_NAMED_NS)) {
        p->named = true;
        pp_startup_tell(pod->startup, &p->trouble);
        pp_info(pod->name, "%s: %s", p->trouble.reason, p->trouble.text);
        pp_watches_enqueue_pod(op, pod);
    }
    if (!p->named)
        return;
    leave_successors(op, p, pod);
    consider_release(op, p, pod, now);
}

static void drop_tally(pp_stuck *s, tally *t)
{
    HASH_DEL(s->tallies, t);
    free(t);
}

static void sweep(pp_stuck *s, int64_t now)
{
    tally *t;
    tally *next;
    pp_unprobed_sweep(s->unprobed, now);
    HASH_ITER(hh, s->tallies, t, next)
    {
        if (!pp_unprobed_find(s->unprobed, t->ns, t->owner_uid, now))
            drop_tally(s, t);
    }
}

static void on_timer(uv_timer_t *timer)
{
    pp_operator *op = timer->data;
    const int64_t now = pp_time_monotonic();
    stuck *p;
    stuck *next;
    HASH_ITER(hh, op->stuck->pods, p, next)
    {
        look_at(op, p, now);
    }
    sweep(op->stuck, now);
}

/* ---- what is seen ---- */

static void forget(pp_stuck *s, stuck *p)
{
    HASH_DEL(s->pods, p);
    free(p->successors);
    free(p);
    if (!s->pods)
        uv_timer_stop(&s->timer);
}

static stuck *get(pp_stuck *s, const char *uid)
{
    stuck *p = find(s, uid);
    if (p || !(p = calloc(1, sizeof *p)))
        return p;
    (void)snprintf(p->uid, sizeof p->uid, "%s", uid);
    if (!s->pods)
        uv_timer_start(&s->timer, on_timer, TICK_MS, TICK_MS);
    HASH_ADD_STR(s->pods, uid, p);
    return p;
}

/* Nothing keeps it any more. */
static void settle(pp_operator *op, const pp_pod *pod, bool gone)
{
    stuck *p = op->stuck ? find(op->stuck, pod->uid) : NULL;
    if (p && gone)
        leave_alone(op, p);
    if (p)
        forget(op->stuck, p);
}

void pp_stuck_pod_seen(pp_operator *op, const pp_pod *pod)
{
    if (!op->stuck)
        return;
    if (!pod->startup) {
        settle(op, pod, pod->leaving);
        return;
    }
    stuck *p = get(op->stuck, pod->uid);
    if (!p)
        return;
    if (p->cause != pod->startup->cause) {
        p->cause = pod->startup->cause;
        p->since_ns = pp_time_monotonic();
        p->named = false;
        p->left_alone = false;
        free(p->successors);
        p->successors = NULL;
    }
    look_at(op, p, pp_time_monotonic());
}

void pp_stuck_pod_gone(pp_operator *op, const pp_pod *pod)
{
    settle(op, pod, true);
}

const pp_session_pod_trouble *pp_stuck_trouble(const pp_operator *op, const char *pod_uid)
{
    const stuck *p = op->stuck ? find(op->stuck, pod_uid) : NULL;
    return p && p->named ? &p->trouble : NULL;
}

const pp_inject_refusal *pp_stuck_unprobed(const pp_operator *op, const char *ns, const json_t *pod)
{
    const char *uid = pp_startup_owner_uid(pod);
    const pp_unprobed_owner *owner =
        op->stuck ? pp_unprobed_find(op->stuck->unprobed, ns, uid, pp_time_monotonic()) : NULL;
    return owner ? &owner->refusal : NULL;
}

const pp_unprobed_owner *pp_stuck_refused(const pp_operator *op, const pp_session *session)
{
    return op->stuck ? pp_unprobed_of(op->stuck->unprobed, session, pp_time_monotonic() - NEWS_NS)
                     : NULL;
}

/* ---- starting, stopping ---- */

int pp_stuck_start(pp_operator *op, pp_error *err)
{
    pp_stuck *s = calloc(1, sizeof *s);
    if (!s || !(s->unprobed = pp_unprobed_new())) {
        free(s);
        return pp_error_nomem(err);
    }
    s->op = op;
    uv_timer_init(op->loop, &s->timer);
    s->timer.data = op;
    op->stuck = s;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    free((char *)handle - offsetof(pp_stuck, timer));
}

void pp_stuck_stop(pp_operator *op)
{
    pp_stuck *s = op->stuck;
    if (!s)
        return;
    op->stuck = NULL;
    while (s->pods)
        forget(s, s->pods);
    sweep(s, INT64_MAX);
    pp_unprobed_free(s->unprobed);
    uv_close((uv_handle_t *)&s->timer, on_closed);
}
