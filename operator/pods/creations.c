#include "operator/pods/creations.h"
#include "operator/pods/owners_ask.h"

#include "common/log.h"
#include "common/time.h"
#include "controller/pods/creation.h"
#include "operator/cache/limits.h"
#include "operator/cache/owners.h"
#include "operator/cache/watches.h"
#include "operator/pods/stuck.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INQUIRIES = 16 };

static const pp_kube_resource EVENTS = {"", "v1", "events"};

typedef struct pp_creations {
    pp_kube_informer *informer;
    unsigned inquiries; /* under way; past the most an Event's next count brings it again */
    bool denied;        /* Events may not be watched, which was said */
} pp_creations;

typedef struct inquiry {
    pp_pending_call context;
    pp_creation creation;
} inquiry;

static void inquiry_release(void *context)
{
    pp_operator *op = ((inquiry *)context)->context.op;
    if (op->creations)
        op->creations->inquiries--;
}

/* The session that would have had the pod says why it has none. */
static void touch_session(pp_operator *op, const pp_unprobed_owner *owner)
{
    char key[330];
    const pp_session *session =
        op->matches ? pp_match_new_pod(op->matches, owner->ns, owner->labels) : NULL;
    if (!session || !op->leading)
        return;
    (void)snprintf(key, sizeof key, "%s/%s", session->namespace_, session->name);
    pp_watches_enqueue(op, key);
}

static void on_owner(void *user, json_t *object, const pp_error *error)
{
    inquiry *q = user;
    pp_operator *op = q->context.op;
    const pp_creation *c = &q->creation;
    pp_unprobed_owner owner;
    if (!error && !op->stopping &&
        pp_creation_may_be_ours(c, object, pp_limits_of(op->limits, c->ns)) &&
        pp_creation_leave_alone(c, object, pp_time_monotonic(), pp_time_now(), &owner)) {
        pp_info(c->name, "%s", owner.refusal.message);
        pp_stuck_leave_alone(op, &owner);
        touch_session(op, &owner);
    }
    pp_pending_call_free(q);
}

static void ask(pp_operator *op, const pp_creation *creation)
{
    const pp_kube_resource *resource = pp_owners_resource(creation->kind);
    if (!resource || op->stopping || op->creations->inquiries >= MAX_INQUIRIES ||
        creation->at_ns + PP_STARTUP_UNPROBED_NS < pp_time_now())
        return;
    inquiry *q = pp_pending_call_new(op, sizeof *q, inquiry_release);
    if (!q)
        return;
    op->creations->inquiries++;
    q->creation = *creation;
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = resource,
                               .ns = creation->ns,
                               .name = creation->name,
                               .done = on_owner,
                               .user = q};
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0)
        pp_pending_call_free(q);
}

static void *decode(void *user, const json_t *object, pp_error *err)
{
    pp_creation found;
    (void)user;
    if (!pp_creation_of(object, &found))
        return NULL;
    pp_creation *kept = malloc(sizeof *kept);
    if (!kept)
        (void)pp_error_nomem(err);
    else
        *kept = found;
    return kept;
}

static void on_event(void *user, const char *key, const void *object)
{
    (void)key;
    ask(user, object);
}

static void on_update(void *user, const char *key, const void *old, const void *object)
{
    const pp_creation *before = old;
    const pp_creation *now = object;
    if (before->at_ns != now->at_ns)
        on_event(user, key, object);
}

static void on_delete(void *user, const char *key, const void *last)
{
    (void)user; /* Events are kept for an hour: what they said is over by then, too */
    (void)key;
    (void)last;
}

static void on_error(void *user, const pp_error *error)
{
    const pp_operator *op = user;
    const bool denied = error->code == PP_ERR_DENIED;
    if (!op->creations)
        return;
    if (!denied)
        pp_warn(NULL, "watching Events: %s", error->message);
    else if (!op->creations->denied)
        pp_warn(NULL,
                "Events cannot be watched: %s: pods that are refused with the probe are not "
                "tried without",
                error->message);
    op->creations->denied = denied;
}

int pp_creations_start(pp_operator *op, pp_error *err)
{
    op->creations = calloc(1, sizeof *op->creations);
    if (!op->creations)
        return pp_error_nomem(err);
    const char *ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL;
    const pp_kube_informer_options options = {.resource = &EVENTS,
                                              .ns = ns,
                                              .field_selector = "reason=FailedCreate",
                                              .handler = {.decode = decode,
                                                          .free_object = free,
                                                          .on_add = on_event,
                                                          .on_update = on_update,
                                                          .on_delete = on_delete,
                                                          .on_error = on_error,
                                                          .user = op}};
    op->creations->informer = pp_kube_informer_new(op->kube, &options, err);
    return op->creations->informer ? 0 : -1;
}

void pp_creations_stop(pp_operator *op)
{
    if (!op->creations)
        return;
    pp_kube_informer_free(op->creations->informer);
    free(op->creations);
    op->creations = NULL;
}
