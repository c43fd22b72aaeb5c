#include "operator/installation/replicas.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "controller/service.h"
#include "operator/installation/addresses.h"
#include "operator/installation/tls.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const pp_kube_resource ENDPOINT_SLICES = {"discovery.k8s.io", "v1", "endpointslices"};

#define PORT "https" /* of the Service */

/* A session's creation waits for it, within the webhook's 2 s. */
enum { TELL_MS = 1500 };

struct pp_replicas {
    pp_kube_informer *informer; /* of the Service's EndpointSlices: pp_strings */
    char self[64];              /* name of this pod */
    bool denied;                /* by the API server, which was said */
};

/* ---- who they are ---- */

static void release(void *object)
{
    pp_strings_free(object);
    free(object);
}

static void *decode(void *user, const json_t *object, pp_error *err)
{
    const pp_operator *op = user;
    pp_strings *endpoints = calloc(1, sizeof *endpoints);
    if (!endpoints)
        (void)pp_error_nomem(err);
    else if (pp_service_endpoints(object, PORT, op->replicas->self, endpoints, err) < 0) {
        release(endpoints);
        endpoints = NULL;
    }
    return endpoints;
}

static void on_error(void *user, const pp_error *error)
{
    struct pp_replicas *replicas = ((pp_operator *)user)->replicas;
    const bool denied = error->code == PP_ERR_DENIED;
    if (!denied || !replicas->denied)
        pp_warn(NULL, "watching the Service's endpoints: %s%s", error->message,
                denied ? ": other replicas are not told of sessions that come" : "");
    replicas->denied |= denied; /* until they are listed: what else fails gives no right back */
}

static void on_synced(void *user)
{
    ((pp_operator *)user)->replicas->denied = false;
}

int pp_replicas_start(pp_operator *op, pp_error *err)
{
    char selector[300];
    if (!op->config->lease.enabled)
        return 0;
    op->replicas = calloc(1, sizeof *op->replicas);
    if (!op->replicas)
        return pp_error_nomem(err);
    (void)gethostname(op->replicas->self, sizeof op->replicas->self - 1);
    (void)snprintf(selector, sizeof selector, "kubernetes.io/service-name=%s",
                   op->config->webhook.service_name);
    const pp_kube_informer_options options = {.resource = &ENDPOINT_SLICES,
                                              .ns = pp_addresses_namespace(op),
                                              .label_selector = selector,
                                              .handler = {.decode = decode,
                                                          .free_object = release,
                                                          .on_synced = on_synced,
                                                          .on_error = on_error,
                                                          .user = op}};
    op->replicas->informer = pp_kube_informer_new(op->kube, &options, err);
    return op->replicas->informer ? 0 : -1;
}

void pp_replicas_stop(pp_operator *op)
{
    if (op->replicas)
        pp_kube_informer_free(op->replicas->informer);
    free(op->replicas);
    op->replicas = NULL;
}

bool pp_replicas_synced(const pp_operator *op)
{
    return !op->replicas || op->replicas->denied || pp_kube_informer_synced(op->replicas->informer);
}

/* ---- telling them ---- */

typedef struct telling {
    pp_pending_call context;
    pp_replicas_told_fn told;
    uint64_t id;
    unsigned left; /* replicas that have not answered, and one while they are being told */
    char *url;
    char *body;
} telling;

static void telling_release(void *context)
{
    telling *t = context;
    free(t->url);
    free(t->body);
}

static void heard(telling *t)
{
    if (--t->left)
        return;
    pp_operator *op = t->context.op;
    if (!op->stopping)
        t->told(op, t->id);
    pp_pending_call_free(t);
}

static void on_answer(void *user, pp_http_client_id id, const pp_http_client_response *response,
                      const pp_error *error)
{
    (void)id;
    if (error || response->status != 200)
        pp_debug(NULL, "another replica could not be told of a session: %d %s", response->status,
                 error ? error->message : "");
    heard(user);
}

static bool tell_one_slice(void *user, const char *key, const void *object)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    telling *t = user;
    const pp_operator *op = t->context.op;
    const pp_strings *endpoints = object;
    const pp_http_client_tls tls = {.ca_pem = op->ca_bundle};
    (void)key;
    for (size_t i = 0; i < endpoints->count; i++) {
        const pp_http_client_request request = {.url = t->url,
                                                .connect_to = endpoints->items[i],
                                                .headers = headers,
                                                .share = PP_HTTP_CLIENT_REPLICAS,
                                                .body = t->body,
                                                .body_len = strlen(t->body),
                                                .timeout_ms = TELL_MS,
                                                .connect_timeout_ms = TELL_MS,
                                                .tls = &tls,
                                                .done = on_answer,
                                                .user = t};
        pp_error err = {0};
        if (pp_http_client_send(op->http, &request, NULL, &err) < 0)
            pp_debug(NULL, "another replica could not be told of a session: %s", err.message);
        else
            t->left++;
    }
    return true;
}

/* Of the object what an announcement needs. */
static char *review_of(const char *ns, const json_t *session)
{
    PP_CLEANUP_JSON json_t *review =
        json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:{s:s}, s:{s:{s:O*, s:O*}, s:O*}}}", "apiVersion",
                  "admission.k8s.io/v1", "kind", "AdmissionReview", "request", "uid", "relayed",
                  "namespace", ns, "operation", "CREATE", "kind", "kind", "ProfileSession",
                  "object", "metadata", "name", pp_json_get(session, "metadata", "name", NULL),
                  "generateName", pp_json_get(session, "metadata", "generateName", NULL), "spec",
                  json_object_get(session, "spec"));
    return review ? json_dumps(review, JSON_COMPACT) : NULL;
}

static telling *telling_new(pp_operator *op, const char *ns, const json_t *session)
{
    const char *secret = pp_tls_path_secret(op);
    telling *t = secret ? pp_pending_call_new(op, sizeof *t, telling_release) : NULL;
    if (!t)
        return NULL;
    t->left = 1;
    t->body = review_of(ns, session);
    if (asprintf(&t->url, "https://%s.%s.svc/%s/replica", op->config->webhook.service_name,
                 pp_addresses_namespace(op), secret) < 0)
        t->url = NULL;
    if (t->body && t->url)
        return t;
    pp_pending_call_free(t);
    return NULL;
}

void pp_replicas_tell(pp_operator *op, const char *ns, const json_t *session,
                      pp_replicas_told_fn told, uint64_t id)
{
    telling *t = op->replicas ? telling_new(op, ns, session) : NULL;
    if (!t) {
        told(op, id);
        return;
    }
    t->told = told;
    t->id = id;
    pp_kube_informer_each(op->replicas->informer, tell_one_slice, t);
    heard(t);
}
