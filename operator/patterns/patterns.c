#include "operator/patterns/patterns.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/pattern_object.h"
#include "operator/cache/watches.h"
#include "operator/state/pending_call.h"

#include <stdlib.h>
#include <string.h>

const pp_kube_resource PP_CONSUMPTIONPATTERNS = {"precisionprobe.io", "v1alpha1",
                                                 "consumptionpatterns"};

enum { SUMMARIES = 16 };

/* A session whose workloads' patterns are on their way. */
typedef struct work {
    pp_operator *op;
    char uid[64];
    char ns[64]; /* of the session whose status says so; "": none's does */
    char name[254];
    bool resuming; /* others wait behind it */
    json_t *summaries;
} work;

/* Sessions still to come after this process began to lead. */
struct pp_patterns_left {
    pp_strings uids;
    size_t next;
};

static void next_left(pp_operator *op);

static void end(work *w)
{
    pp_operator *op = w->op;
    const bool resuming = w->resuming;
    json_decref(w->summaries);
    free(w);
    if (resuming)
        next_left(op);
}

/* ---- an object ---- */

typedef enum stage { ASKED, CREATED, WRITTEN } stage;

/* A pattern on its way to its object: it is read, made where it is not there, and its status is
 * replaced as a whole, so that no figure stays that is not known any more. */
typedef struct delivery {
    pp_pending_call pending;
    stage stage;
    bool looked;    /* it was there by the time that it was to be made */
    bool again;     /* it was gone by the time that its status was written */
    json_t *object; /* to be created */
    json_t *status; /* {"status": ...} */
} delivery;

static void release_write(void *context)
{
    delivery *w = context;
    json_decref(w->object);
    json_decref(w->status);
}

static void on_object(void *user, json_t *object, const pp_error *error);

static void call_api(delivery *w, pp_kube_verb verb, const char *subresource, const json_t *body)
{
    const json_t *meta = json_object_get(w->object, "metadata");
    const pp_kube_call call = {
        .verb = verb,
        .resource = &PP_CONSUMPTIONPATTERNS,
        .ns = json_string_value(json_object_get(meta, "namespace")),
        .name = verb == PP_KUBE_CREATE ? NULL : json_string_value(json_object_get(meta, "name")),
        .subresource = subresource,
        .body = body,
        .done = on_object,
        .user = w};
    pp_error err = {0};
    if (pp_kube_call_start(w->pending.op->kube, &call, NULL, &err) == 0)
        return;
    pp_warn(call.ns, "writing a ConsumptionPattern: %s", err.message);
    pp_pending_call_free(w);
}

static void send_status(delivery *w, const json_t *object)
{
    json_t *status = json_object_get(w->status, "status");
    pp_pattern_keep_times(status, json_object_get(object, "status"));
    PP_CLEANUP_JSON json_t *patch =
        json_pack("[{sssssO}]", "op", "add", "path", "/status", "value", status);
    w->stage = WRITTEN;
    call_api(w, PP_KUBE_PATCH_JSON, "status", patch);
}

/* An object of that name may be another workload's: made by somebody else, or by names whose
 * digests are the same. */
static bool is_others(const delivery *w, const json_t *object)
{
    const json_t *wanted = pp_json_get(w->object, "spec", "workload", NULL);
    return object && !json_equal(wanted, pp_json_get(object, "spec", "workload", NULL));
}

static void leave_alone(delivery *w)
{
    const json_t *meta = json_object_get(w->object, "metadata");
    pp_warn(json_string_value(json_object_get(meta, "namespace")),
            "ConsumptionPattern %s is of another workload: it is left alone",
            json_string_value(json_object_get(meta, "name")));
    pp_pending_call_free(w);
}

/* A namespace that is gone, or going, has no patterns. */
static void on_object(void *user, json_t *object, const pp_error *error)
{
    delivery *w = user;
    if (w->stage == CREATED && error && error->code == PP_ERR_CONFLICT && !w->looked) {
        w->looked = true; /* somebody else has made it: whose is it? */
        w->stage = ASKED;
        call_api(w, PP_KUBE_GET, NULL, NULL);
        return;
    }
    const bool gone = error && error->code == PP_ERR_NOT_FOUND;
    if (gone && (w->stage == ASKED || (w->stage == WRITTEN && !w->again))) {
        w->again = w->stage == WRITTEN; /* past its retention until now, perhaps */
        w->stage = CREATED;
        call_api(w, PP_KUBE_CREATE, NULL, w->object);
        return;
    }
    if (!error && w->stage != WRITTEN) {
        if (is_others(w, object))
            leave_alone(w);
        else
            send_status(w, object);
        return;
    }
    if (error && error->code != PP_ERR_NOT_FOUND && error->code != PP_ERR_DENIED)
        pp_warn(NULL, "writing a ConsumptionPattern: %s", error->message);
    pp_pending_call_free(w);
}

static void write_object(pp_operator *op, const pp_pattern *pattern)
{
    delivery *w = pp_pending_call_new(op, sizeof *w, release_write);
    if (!w)
        return;
    w->object = pp_pattern_object(pattern);
    w->status = pp_pattern_status(pattern, pp_time_now());
    if (!w->object || !w->status) {
        pp_pending_call_free(w);
        return;
    }
    call_api(w, PP_KUBE_GET, NULL, NULL);
}

/* ---- a session's status ---- */

static void on_session(void *user, json_t *object, const pp_error *error)
{
    (void)object;
    if (error && error->code != PP_ERR_NOT_FOUND)
        pp_warn(NULL, "writing patterns into a session's status: %s", error->message);
    pp_pending_call_free(user);
}

static void write_summaries(const work *w)
{
    PP_CLEANUP_JSON json_t *patch = json_pack("{s{sO}}", "status", "patterns", w->summaries);
    pp_pending_call *pending = pp_pending_call_new(w->op, sizeof *pending, NULL);
    const pp_kube_call call = {.verb = PP_KUBE_PATCH_MERGE,
                               .resource = &PP_PROFILESESSIONS,
                               .ns = w->ns,
                               .name = w->name,
                               .subresource = "status",
                               .body = patch,
                               .done = on_session,
                               .user = pending};
    pp_error err = {0};
    if (!patch || !pending || pp_kube_call_start(w->op->kube, &call, NULL, &err) < 0)
        pp_pending_call_free(pending);
}

/* ---- a session's workloads ---- */

static void on_written(void *user, const pp_error *error)
{
    work *w = user;
    if (error && error->code != PP_ERR_UNAVAILABLE)
        pp_warn(NULL, "storing patterns of session %s: %s", w->uid, error->message);
    end(w);
}

/* The session's own workload may be one of many; each stands for itself. */
static int publish(work *w, const pp_patterns *patterns, pp_error *err)
{
    w->summaries = json_array();
    for (size_t i = 0; i < patterns->n; i++) {
        if (!w->op->stopping && w->op->leading)
            write_object(w->op, &patterns->items[i]);
        if (i < SUMMARIES)
            (void)json_array_append_new(w->summaries, pp_pattern_summary(&patterns->items[i]));
    }
    if (*w->ns && patterns->n > 0 && !w->op->stopping)
        write_summaries(w);
    return pp_store_put_patterns(w->op->store, patterns, on_written, w, err);
}

static void on_usages(void *user, const pp_workload_usages *usages, const pp_error *error)
{
    work *w = user;
    pp_patterns patterns = {0};
    pp_error err = {0};
    int rc = -1;
    if (error)
        err = *error;
    else if (pp_patterns_make(usages, pp_time_now(), &patterns, &err) == 0)
        rc = publish(w, &patterns, &err);
    pp_patterns_done(&patterns);
    if (rc == 0)
        return;
    if (err.code != PP_ERR_UNAVAILABLE)
        pp_warn(NULL, "patterns of session %s: %s", w->uid, err.message);
    end(w);
}

static void begin(work *w)
{
    pp_error err = {0};
    if (pp_store_load_usages(w->op->store, w->uid, on_usages, w, &err) == 0)
        return;
    pp_warn(NULL, "patterns of session %s: %s", w->uid, err.message);
    if (w->resuming) /* the store would not take the others, either */
        pp_patterns_done_all(w->op);
    end(w);
}

void pp_patterns_make_of(pp_operator *op, const char *uid, const char *key)
{
    const char *name = strchr(key, '/');
    work *w = name ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return;
    w->op = op;
    (void)snprintf(w->uid, sizeof w->uid, "%s", uid);
    (void)snprintf(w->ns, sizeof w->ns, "%.*s", (int)(name - key), key);
    (void)snprintf(w->name, sizeof w->name, "%s", name + 1);
    begin(w);
}

/* ---- after another process ---- */

static void next_left(pp_operator *op)
{
    struct pp_patterns_left *left = op->patterns_left;
    work *w = left && left->next < left->uids.count && op->leading && !op->stopping
                  ? calloc(1, sizeof *w)
                  : NULL;
    if (!w) {
        pp_patterns_done_all(op);
        return;
    }
    w->op = op;
    w->resuming = true;
    (void)snprintf(w->uid, sizeof w->uid, "%s", left->uids.items[left->next++]);
    begin(w);
}

static void on_left(void *user, const pp_strings *uids, const pp_error *error)
{
    pp_operator *op = user;
    if (error || op->patterns_left || uids->count == 0 || !op->leading || op->stopping)
        return;
    struct pp_patterns_left *left = calloc(1, sizeof *left);
    for (size_t i = 0; left && i < uids->count; i++)
        (void)pp_strings_add(&left->uids, uids->items[i], NULL);
    op->patterns_left = left;
    next_left(op);
}

void pp_patterns_resume(pp_operator *op)
{
    const char *ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL;
    if (!op->patterns_left)
        (void)pp_store_load_pattern_sessions(op->store, ns, on_left, op, NULL);
}

void pp_patterns_done_all(pp_operator *op)
{
    if (op->patterns_left)
        pp_strings_free(&op->patterns_left->uids);
    free(op->patterns_left);
    op->patterns_left = NULL;
}
