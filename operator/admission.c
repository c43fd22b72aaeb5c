#include "operator/admission.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "operator/context.h"
#include "operator/solve.h"
#include "operator/state.h"
#include "operator/watches.h"

#include <stdlib.h>
#include <string.h>

/*
 * A pod is about to be created. The session is looked for in the cache; where the cache has none,
 * it is looked up live, so that a session and a Job applied in one file meet. Where there is none,
 * a pod that asks for it by its label, or its namespace's, gets a hook that waits for sessions. A
 * pod that cannot be injected is let through as it is, with an Event on the session that says why.
 */

enum { MAX_SESSIONS = 1000 }; /* of one namespace that are looked at */

/** A review that waits for the live lookup. */
typedef struct pending {
    pp_context context;
    pp_http_id id;
    json_t *pod;
    char ns[64];
    bool labelled;
    bool dry_run;
} pending;

static void answer_none(pp_operator *op, pp_http_id id)
{
    pp_http_admission_respond(op->server, id, NULL, NULL);
}

/* One that is to be named yet gives its prefix. */
static const char *name_of(const json_t *pod)
{
    const char *name = pp_json_get_string(pod, "metadata", "name", NULL);
    if (!name)
        name = pp_json_get_string(pod, "metadata", "generateName", NULL);
    return name ? name : "";
}

static void tell_refusal(pp_operator *op, const pp_session *session, const json_t *pod,
                         const pp_inject_refusal *refusal)
{
    const pp_kube_object_ref ref = {.api_version = "precisionprobe.io/v1alpha1",
                                    .kind = "ProfileSession",
                                    .ns = session->namespace_,
                                    .name = session->name,
                                    .uid = session->uid};
    pp_kube_event(op->recorder, &ref, PP_KUBE_EVENT_WARNING, refusal->reason, "Inject",
                  "Pod %s is not injected: %s", name_of(pod), refusal->message);
}

/* session NULL: none matches. */
static void patch_pod(pp_operator *op, pp_http_id id, const pp_session *session, const json_t *pod,
                      bool dry_run)
{
    pp_inject_options options;
    pp_admission_options(op, &options);
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal refusal = {0};
    pp_error err = {0};
    int rc = pp_inject_patch(pod, session, &options, &patch, &refusal, &err);
    pp_strings warnings = {0};
    if (rc < 0) {
        pp_warn(session ? session->name : NULL, "pod %s cannot be injected: %s", name_of(pod),
                err.message);
    } else if (rc == PP_INJECT_REFUSED) {
        char text[512];
        (void)snprintf(text, sizeof text, "precisionprobe: not injected%s%s: %s",
                       session ? " for session " : "", session ? session->name : "",
                       refusal.message);
        (void)pp_strings_add(&warnings, text, NULL);
        pp_meter_add(op->meters.injection_refused, 1);
        if (!dry_run && session)
            tell_refusal(op, session, pod, &refusal);
    } else if (rc == PP_INJECT_PATCHED) {
        pp_meter_add(op->meters.injected, 1);
    }
    pp_http_admission_respond(op->server, id, json_array_size(patch) ? patch : NULL, &warnings);
    pp_strings_free(&warnings);
}

typedef struct gathered {
    const char *ns;
    const pp_session *items[MAX_SESSIONS];
    size_t count;
} gathered;

static bool gather(void *user, const char *key, const void *object)
{
    gathered *g = user;
    const pp_session *session = object;
    (void)key;
    if (strcmp(session->namespace_, g->ns) == 0 && g->count < MAX_SESSIONS)
        g->items[g->count++] = session;
    return g->count < MAX_SESSIONS;
}

static const json_t *labels_of(const json_t *pod)
{
    return pp_json_get(pod, "metadata", "labels", NULL);
}

static void pending_release(void *context)
{
    json_decref(((pending *)context)->pod);
}

static void on_listed(void *user, json_t *list, const pp_error *error)
{
    pending *p = user;
    const json_t *items = error ? NULL : json_object_get(list, "items");
    size_t n = json_array_size(items) < MAX_SESSIONS ? json_array_size(items) : MAX_SESSIONS;
    pp_session **sessions = calloc(n + 1, sizeof(pp_session *));
    const pp_session *match = NULL;
    for (size_t i = 0; sessions && i < n; i++)
        sessions[i] = pp_watches_decode_session(p->context.op, json_array_get(items, i), NULL);
    if (sessions)
        match =
            pp_inject_matching((const pp_session *const *)sessions, n, p->ns, labels_of(p->pod));
    if (match || p->labelled)
        patch_pod(p->context.op, p->id, match, p->pod, p->dry_run);
    else
        answer_none(p->context.op, p->id);
    for (size_t i = 0; sessions && i < n; i++)
        pp_session_free(sessions[i]);
    free(sessions);
    pp_context_free(p);
}

static int look_up_live(pp_operator *op, pp_http_id id, const pp_http_review *review)
{
    pending *p = pp_context_new(op, sizeof *p, pending_release);
    if (!p)
        return -1;
    p->id = id;
    p->dry_run = review->dry_run;
    p->labelled = review->labelled || pp_inject_wanted(labels_of(review->pod));
    p->pod = json_incref((json_t *)(uintptr_t)review->pod);
    (void)snprintf(p->ns, sizeof p->ns, "%s", review->namespace_name);
    pp_kube_call call = {.verb = PP_KUBE_LIST,
                         .resource = &PP_PROFILESESSIONS,
                         .ns = p->ns,
                         .timeout_ms = 2000,
                         .done = on_listed,
                         .user = p};
    if (pp_kube_call_start(op->kube, &call, NULL, NULL) < 0) {
        pp_context_free(p);
        return -1;
    }
    return 0;
}

void pp_admission_review(pp_operator *op, pp_http_id id, const pp_http_review *review)
{
    if (!op->ca_bundle || op->stopping) {
        answer_none(op, id);
        return;
    }
    gathered *g = calloc(1, sizeof *g);
    if (!g) {
        answer_none(op, id);
        return;
    }
    g->ns = review->namespace_name;
    pp_kube_informer_each(op->sessions, gather, g);
    const pp_session *match =
        pp_inject_matching(g->items, g->count, review->namespace_name, labels_of(review->pod));
    free(g);
    if (match)
        patch_pod(op, id, match, review->pod, review->dry_run);
    else if (look_up_live(op, id, review) < 0)
        answer_none(op, id);
}

void pp_admission_options(const pp_operator *op, pp_inject_options *ret)
{
    const pp_config *config = op->config;
    const pp_attribution_options attribution = pp_solve_attribution(config);
    *ret = (pp_inject_options){.image = config->injection.image,
                               .pull_policy = config->injection.image_pull_policy,
                               .endpoint = op->endpoint,
                               .ca = op->ca_bundle,
                               .native_sidecar = op->native_sidecar,
                               .cpu = config->injection.cpu,
                               .memory = config->injection.memory,
                               .gpu_resources = &config->injection.gpu_resources,
                               .stretch_seconds = config->injection.stretch_seconds,
                               .events_port = config->injection.events_port,
                               .fine_memory = config->fine.memory,
                               .fine_auto = config->fine.by_auto,
                               .fine_period_ns = config->fine.period_us * 1000,
                               .dwell_ns = pp_solution_dwell(&attribution)};
}
