#include "operator/kube/access_review.h"

#include "common/cleanup.h"
#include "common/json.h"

enum { TIMEOUT_MS = 10 * 1000 };

struct pp_kube_access_review {
    pp_kube_client *client;
    pp_kube_id call;
    pp_kube_access_fn done;
    void *user;
};

static void on_reviewed(void *user, json_t *object, const pp_error *error)
{
    pp_kube_access_review *r = user;
    /* A webhook among the authorizers may say both. */
    const bool allowed = !error && json_is_true(pp_json_get(object, "status", "allowed", NULL)) &&
                         !json_is_true(pp_json_get(object, "status", "denied", NULL));
    r->done(r->user, allowed, error);
    free(r);
}

static int put(json_t *spec, const char *name, const json_t *value)
{
    return value ? json_object_set(spec, name, (json_t *)(uintptr_t)value) : 0;
}

static json_t *make_body(const pp_kube_access *a)
{
    json_t *spec = json_pack("{s:{s:s, s:s, s:s, s:s, s:s, s:s}}", "resourceAttributes", "verb",
                             a->verb, "group", a->resource->group, "version", a->resource->version,
                             "resource", a->resource->plural, "namespace", a->ns, "name", a->name);
    if (!spec || put(spec, "user", json_object_get(a->user, "username")) < 0 ||
        put(spec, "uid", json_object_get(a->user, "uid")) < 0 ||
        put(spec, "groups", json_object_get(a->user, "groups")) < 0 ||
        put(spec, "extra", json_object_get(a->user, "extra")) < 0) {
        json_decref(spec);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o}", "apiVersion", "authorization.k8s.io/v1", "kind",
                     "SubjectAccessReview", "spec", spec);
}

pp_kube_access_review *pp_kube_access_ask(pp_kube_client *client, const pp_kube_access *access,
                                          pp_kube_access_fn done, void *user, pp_error *err)
{
    PP_CLEANUP_JSON json_t *body = make_body(access);
    pp_kube_access_review *r = calloc(1, sizeof *r);
    if (!body || !r) {
        free(r);
        (void)pp_error_nomem(err);
        return NULL;
    }
    *r = (pp_kube_access_review){.client = client, .done = done, .user = user};
    const pp_kube_call call = {.verb = PP_KUBE_CREATE,
                               .resource = &PP_KUBE_ACCESS_REVIEWS,
                               .body = body,
                               .timeout_ms = TIMEOUT_MS,
                               .for_readers = true,
                               .done = on_reviewed,
                               .user = r};
    if (pp_kube_call_start(client, &call, &r->call, err) < 0) {
        free(r);
        return NULL;
    }
    return r;
}

void pp_kube_access_cancel(pp_kube_access_review *review)
{
    if (!review)
        return;
    pp_kube_call_cancel(review->client, review->call);
    free(review);
}
