#include "operator/installation/cluster.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "controller/injection/inject.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <string.h>

static const pp_kube_resource DEPLOYMENTS = {"apps", "v1", "deployments"};

typedef struct asking {
    pp_pending_call context;
    pp_cluster_fn done;
    pp_buf version; /* the server's own words about itself */
} asking;

static void asking_release(void *context)
{
    pp_buf_done(&((asking *)context)->version);
}

static void finish(asking *a, const pp_error *error)
{
    pp_operator *op = a->context.op;
    pp_cluster_fn done = a->done;
    pp_pending_call_free(a);
    if (!op->stopping)
        done(op, error);
}

static int on_version_text(void *user, pp_http_client_id id, int status, const char *data, size_t n,
                           pp_error *err)
{
    (void)id;
    (void)status;
    return pp_buf_append(&((asking *)user)->version, data, n, err);
}

static void on_version(void *user, pp_http_client_id id, const pp_http_client_response *response,
                       const pp_error *error)
{
    asking *a = user;
    pp_error err = {0};
    (void)id;
    PP_CLEANUP_JSON json_t *version =
        error || response->status != 200
            ? NULL
            : pp_json_parse(a->version.data ? a->version.data : "", a->version.len, NULL);
    int native = pp_inject_native_sidecar(version);
    if (native < 0)
        (void)pp_error_set(&err, PP_ERR_IO, "%s", error ? error->message : "it does not say");
    else
        a->context.op->native_sidecar = native;
    finish(a, native < 0 ? &err : NULL);
}

static void ask_version(asking *a)
{
    pp_error err = {0};
    const char *wish = a->context.op->config->injection.native_sidecar;
    a->context.op->native_sidecar = strcmp(wish, "Always") == 0;
    if (strcmp(wish, "Auto") != 0)
        finish(a, NULL);
    else if (pp_kube_stream_start(a->context.op->kube, PP_KUBE_GET, "/version", 10000,
                                  on_version_text, on_version, a, NULL, &err) < 0)
        finish(a, &err);
}

static void on_owner(void *user, json_t *object, const pp_error *error)
{
    asking *a = user;
    pp_operator *op = a->context.op;
    const char *uid = error ? NULL : pp_json_get_string(object, "metadata", "uid", NULL);
    const json_t *labels =
        error ? NULL : pp_json_get(object, "spec", "template", "metadata", "labels", NULL);
    op->labels = labels ? json_deep_copy(labels) : NULL;
    if (uid)
        op->owner = json_pack("{s:s, s:s, s:s, s:s}", "apiVersion", "apps/v1", "kind", "Deployment",
                              "name", op->config->owner.deployment, "uid", uid);
    else
        pp_warn(NULL, "the Deployment %s cannot own what is created here: %s",
                op->config->owner.deployment, error ? error->message : "it has no UID");
    ask_version(a);
}

int pp_cluster_ask(pp_operator *op, pp_cluster_fn done, pp_error *err)
{
    asking *a = pp_pending_call_new(op, sizeof *a, asking_release);
    if (!a)
        return pp_error_nomem(err);
    a->done = done;
    pp_buf_init(&a->version, 65536);
    if (!*op->config->owner.deployment || op->owner) {
        ask_version(a);
        return 0;
    }
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &DEPLOYMENTS,
                               .ns = pp_kube_client_namespace(op->kube),
                               .name = op->config->owner.deployment,
                               .done = on_owner,
                               .user = a};
    return pp_kube_call_start(op->kube, &call, NULL, err);
}
