#include "operator/installation/tls.h"

#include "common/cleanup.h"
#include "common/file.h"
#include "common/log.h"
#include "common/time.h"
#include "operator/cache/watches.h"
#include "operator/installation/addresses.h"
#include "operator/installation/deployment.h"
#include "operator/installation/webhook.h"
#include "operator/state/state.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

/*
 * Every replica runs this: read the Secret (one that is gone is written from memory), renew what is
 * due, write it back where it changed (the resourceVersion makes one replica win, the others read
 * again), serve it, and keep the webhook's caBundle and paths equal to it. It is looked at again
 * every 30 s, so that a renewal by another replica, or a caBundle or a configuration that was taken
 * away, is noticed within that time; so is another file of the clients' authorities.
 */

#define MISSING                                                                                    \
    "the MutatingWebhookConfiguration %s does not exist, so that pods are created without the "    \
    "hook"

enum { LOOK_AGAIN_MS = 30000, RETRY_MS = 2000, MAX_CLIENT_CA = 1 << 20 };

typedef struct pp_tls {
    pp_operator *op;
    pp_tls_ready_fn ready;
    bool was_ready;
    pp_certificates certificates;
    char *resource_version; /**< of the Secret; NULL: it does not exist */
    bool spoilt;            /**< there was no authority in the Secret when it was read */
    pp_strings names;
    char *served; /**< the certificate in use */
    bool missing; /**< the webhook's configuration, when it was last looked for */
    pp_kube_id call;
    uv_timer_t timer;
} pp_tls;

static void read_secret(pp_tls *tls);
static void read_webhook(pp_tls *tls);

static void on_timer(uv_timer_t *timer)
{
    read_secret(timer->data);
}

static void again(pp_tls *tls, uint64_t ms)
{
    if (!tls->op->stopping)
        uv_timer_start(&tls->timer, on_timer, ms, 0);
}

static void failed(pp_tls *tls, const char *what, const pp_error *error)
{
    pp_warn(NULL, "%s: %s", what, error->message);
    again(tls, RETRY_MS);
}

static int start_call(pp_tls *tls, pp_kube_call *call)
{
    pp_error err = {0};
    call->user = tls;
    if (pp_kube_call_start(tls->op->kube, call, &tls->call, &err) < 0) {
        failed(tls, "asking the API server", &err);
        return -1;
    }
    return 0;
}

/* The certificate where it is another one, and what reviews are known by. */
static void tell_server(pp_tls *tls)
{
    pp_operator *op = tls->op;
    const pp_certificates *c = &tls->certificates;
    pp_error err = {0};
    if (strcmp(tls->served, c->certificate) != 0) {
        if (pp_http_server_set_certificate(op->server, c->certificate, c->key, &err) < 0)
            pp_err(NULL, "the renewed certificate cannot be used: %s", err.message);
        else
            pp_info(NULL, "serving a renewed certificate");
    }
    pp_error_clear(&err);
    PP_CLEANUP_FREE char *client_ca = pp_tls_client_ca(op->config, &err);
    if (pp_http_server_set_path_secret(op->server, c->path_secret, &err) < 0 || err.code ||
        pp_http_server_set_client_ca(op->server, client_ca, &err) < 0)
        pp_err("webhook.clientCaFile", "reviews are taken as before: %s", err.message);
}

/* Takes what is in tls->certificates into use. */
static void serve(pp_tls *tls)
{
    pp_operator *op = tls->op;
    pp_error err = {0};
    char *bundle = pp_certificates_bundle(&tls->certificates, &err);
    if (!bundle) {
        failed(tls, "the certificate bundle", &err);
        return;
    }
    free(op->ca_bundle);
    op->ca_bundle = bundle;
    if (op->stopping)
        return;
    if (!tls->was_ready) {
        tls->was_ready = true;
        tls->ready(op, &tls->certificates);
        if (op->stopping) /* it could not start: everything is being taken down */
            return;
    } else if (op->server && tls->served) {
        tell_server(tls);
    }
    free(tls->served);
    tls->served = strdup(tls->certificates.certificate);
    read_webhook(tls);
}

static void on_written(void *user, json_t *object, const pp_error *error)
{
    pp_tls *tls = user;
    tls->call = 0;
    if (error && error->code == PP_ERR_CONFLICT) {
        read_secret(tls); /* another replica was faster: take what it wrote */
        return;
    }
    if (error) {
        failed(tls, "writing the certificates' Secret", error);
        return;
    }
    (void)object;
    serve(tls);
}

static json_t *secret_object(pp_tls *tls, pp_error *err)
{
    json_t *data = pp_certificates_to_secret(&tls->certificates, err);
    if (!data)
        return NULL;
    pp_operator *op = tls->op;
    json_t *metadata = json_pack("{s:s, s:s, s:{s:s}}", "name", op->config->webhook.secret_name,
                                 "namespace", pp_kube_client_namespace(op->kube), "labels",
                                 "app.kubernetes.io/managed-by", "precisionprobe");
    if (tls->resource_version)
        json_object_set_new(metadata, "resourceVersion", json_string(tls->resource_version));
    if (op->owner)
        json_object_set_new(metadata, "ownerReferences", json_pack("[O]", op->owner));
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Secret", "type",
                     "kubernetes.io/tls", "metadata", metadata, "data", data);
}

static void write_secret(pp_tls *tls)
{
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *secret = secret_object(tls, &err);
    if (!secret) {
        failed(tls, "the certificates' Secret", &err);
        return;
    }
    pp_kube_call call = {.verb = tls->resource_version ? PP_KUBE_UPDATE : PP_KUBE_CREATE,
                         .resource = &PP_KUBE_SECRETS,
                         .ns = pp_kube_client_namespace(tls->op->kube),
                         .name =
                             tls->resource_version ? tls->op->config->webhook.secret_name : NULL,
                         .body = secret,
                         .done = on_written};
    (void)start_call(tls, &call);
}

static void renew(pp_tls *tls)
{
    pp_error err = {0};
    bool changed = false;
    if (pp_certificates_renew(&tls->certificates, &tls->names, pp_time_now(), &changed, &err) < 0) {
        failed(tls, "making certificates", &err);
        return;
    }
    if (changed || tls->spoilt)
        write_secret(tls);
    else
        serve(tls);
}

static void on_read(void *user, json_t *object, const pp_error *error)
{
    pp_tls *tls = user;
    tls->call = 0;
    if (error && error->code != PP_ERR_NOT_FOUND) {
        failed(tls, "reading the certificates' Secret", error);
        return;
    }
    free(tls->resource_version);
    tls->resource_version = NULL;
    pp_error err = {0};
    pp_certificates read = {0};
    if (!error) {
        const char *version = pp_json_get_string(object, "metadata", "resourceVersion", NULL);
        tls->resource_version = strdup(version ? version : "");
        if (pp_certificates_from_secret(json_object_get(object, "data"), &read, &err) < 0)
            pp_warn(NULL, "the certificates' Secret is unreadable: %s", err.message);
    }
    /* A Secret that is gone or spoilt is written from memory: agents trust that authority only. */
    tls->spoilt = !read.ca;
    if (read.ca) {
        pp_certificates_done(&tls->certificates);
        tls->certificates = read;
    } else {
        pp_certificates_done(&read);
    }
    renew(tls);
}

static void read_secret(pp_tls *tls)
{
    pp_kube_call call = {.verb = PP_KUBE_GET,
                         .resource = &PP_KUBE_SECRETS,
                         .ns = pp_kube_client_namespace(tls->op->kube),
                         .name = tls->op->config->webhook.secret_name,
                         .done = on_read};
    (void)start_call(tls, &call);
}

static void on_webhook_patched(void *user, json_t *object, const pp_error *error)
{
    pp_tls *tls = user;
    (void)object;
    tls->call = 0;
    if (error && error->code != PP_ERR_NOT_FOUND) {
        failed(tls, "telling the webhook its CA and paths", error);
        return;
    }
    pp_info(NULL, "the webhook knows the CA and its paths");
    again(tls, LOOK_AGAIN_MS);
}

static char *bundle_in_base64(const pp_operator *op)
{
    size_t n = strlen(op->ca_bundle);
    char *text = malloc(4 * ((n + 2) / 3) + 1);
    if (text)
        (void)EVP_EncodeBlock((unsigned char *)text, (const unsigned char *)op->ca_bundle, (int)n);
    return text;
}

/* Once, and again after it was there. */
static void tell_missing(pp_tls *tls, bool missing)
{
    char text[512];
    const char *name = tls->op->config->webhook.configuration_name;
    if (missing != tls->missing)
        pp_watches_enqueue_all(tls->op);
    if (missing && !tls->missing) {
        (void)snprintf(text, sizeof text, MISSING "; helm upgrade of the release brings it back",
                       name);
        pp_err("webhook.configurationName", "%s", text);
        pp_deployment_event(tls->op, "WebhookMissing", "Ask", text);
    } else if (!missing && tls->missing) {
        pp_info(NULL, "the MutatingWebhookConfiguration %s is there", name);
    }
    tls->missing = missing;
}

static void on_webhook(void *user, json_t *object, const pp_error *error)
{
    pp_tls *tls = user;
    tls->call = 0;
    if (!error || error->code == PP_ERR_NOT_FOUND)
        tell_missing(tls, error != NULL);
    if (error) {
        if (error->code != PP_ERR_NOT_FOUND)
            pp_warn(NULL, "reading the webhook configuration: %s", error->message);
        again(tls, error->code == PP_ERR_NOT_FOUND ? LOOK_AGAIN_MS : RETRY_MS);
        return;
    }
    PP_CLEANUP_FREE char *bundle = bundle_in_base64(tls->op);
    PP_CLEANUP_JSON json_t *patch =
        bundle ? pp_webhook_patch(object, bundle, tls->certificates.path_secret) : NULL;
    if (json_array_size(patch) == 0) {
        again(tls, LOOK_AGAIN_MS);
        return;
    }
    pp_kube_call call = {.verb = PP_KUBE_PATCH_JSON,
                         .resource = &PP_KUBE_MUTATING_WEBHOOKS,
                         .name = tls->op->config->webhook.configuration_name,
                         .body = patch,
                         .done = on_webhook_patched};
    (void)start_call(tls, &call);
}

static void read_webhook(pp_tls *tls)
{
    if (!*tls->op->config->webhook.configuration_name) {
        again(tls, LOOK_AGAIN_MS);
        return;
    }
    pp_kube_call call = {.verb = PP_KUBE_GET,
                         .resource = &PP_KUBE_MUTATING_WEBHOOKS,
                         .name = tls->op->config->webhook.configuration_name,
                         .done = on_webhook};
    (void)start_call(tls, &call);
}

char *pp_tls_client_ca(const pp_config *config, pp_error *err)
{
    const char *path = config->webhook.client_ca_file;
    char *pem = *path ? pp_file_read(path, MAX_CLIENT_CA, NULL, err) : NULL;
    if (*path && !pem)
        (void)pp_error_prefix(err, "webhook.clientCaFile");
    return pem;
}

static int add_names_of(pp_tls *tls, const char *service, pp_error *err)
{
    const char *ns = pp_addresses_namespace(tls->op);
    static const char *const suffixes[] = {".svc", ".svc.cluster.local", ""};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "%s.%s%s", service, ns, suffixes[i]);
        if (pp_strings_add(&tls->names, name, err) < 0)
            return -1;
    }
    return 0;
}

/* The names under which the API server and the agents call us. */
static int add_names(pp_tls *tls, pp_error *err)
{
    const char *review = tls->op->config->webhook.review_service_name;
    if (add_names_of(tls, tls->op->config->webhook.service_name, err) < 0)
        return -1;
    return *review ? add_names_of(tls, review, err) : 0;
}

int pp_tls_start(pp_operator *op, pp_tls_ready_fn ready, pp_error *err)
{
    pp_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return pp_error_nomem(err);
    tls->op = op;
    tls->ready = ready;
    op->tls = tls;
    uv_timer_init(op->loop, &tls->timer);
    tls->timer.data = tls;
    if (add_names(tls, err) < 0)
        return -1;
    read_secret(tls);
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    pp_tls *tls = handle->data;
    pp_certificates_done(&tls->certificates);
    pp_strings_free(&tls->names);
    free(tls->resource_version);
    free(tls->served);
    free(tls);
}

const char *pp_tls_trouble(const pp_operator *op, char *out, size_t size)
{
    if (!op->tls || !op->tls->missing)
        return NULL;
    (void)snprintf(out, size, MISSING, op->config->webhook.configuration_name);
    return out;
}

const char *pp_tls_path_secret(const pp_operator *op)
{
    return op->tls ? op->tls->certificates.path_secret : NULL;
}

void pp_tls_stop(pp_operator *op)
{
    if (!op->tls)
        return;
    pp_kube_call_cancel(op->kube, op->tls->call);
    uv_close((uv_handle_t *)&op->tls->timer, on_closed);
    op->tls = NULL;
}
