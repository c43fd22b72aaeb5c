#include "operator/serve.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "operator/cache/limits_watch.h"
#include "operator/cache/watches.h"
#include "operator/installation/addresses.h"
#include "operator/installation/claims.h"
#include "operator/installation/replicas.h"
#include "operator/installation/tls.h"
#include "operator/pods/admission.h"
#include "operator/results/page_files.h"
#include "operator/results/results.h"
#include "operator/samples/agent_connections.h"
#include "operator/state/state.h"

#include <stdio.h>

static void on_review(void *context, pp_http_id id, const pp_http_review *review)
{
    pp_admission_review(context, id, review);
}

static void on_authorize(void *context, pp_http_id id, const char *token)
{
    pp_connections_authorize(context, id, token);
}

static bool accepting(void *context)
{
    const pp_operator *op = context;
    return op->leading && !op->stopping && pp_watches_synced(op) && pp_store_ready(op->store, NULL);
}

static pp_http_id on_displace(void *context, const pp_http_identity *identity)
{
    return pp_connections_displace(context, identity);
}

static void on_connected(void *context, pp_http_id connection, const pp_http_identity *identity)
{
    pp_connections_connected(context, connection, identity);
}

static void on_batch(void *context, pp_http_id connection, pp_wire_batch *batch)
{
    pp_connections_batch(context, connection, batch);
}

static void on_bye(void *context, pp_http_id connection, const pp_wire_bye *bye)
{
    (void)context;
    (void)connection;
    pp_info(bye->session, "an agent is done: %s", bye->reason);
}

static void on_time(void *context, pp_http_id connection, const pp_wire_time *answer)
{
    pp_connections_time(context, connection, answer);
}

static void on_hook(void *context, pp_http_id connection, const pp_wire_hook *hook)
{
    pp_connections_hook(context, connection, hook);
}

static void on_disconnected(void *context, pp_http_id connection)
{
    pp_connections_disconnected(context, connection);
}

static void on_api(void *context, pp_http_id id, const pp_http_api_request *request)
{
    pp_results_request(context, id, request);
}

static void on_api_gone(void *context, pp_http_id id)
{
    pp_results_gone(context, id);
}

static bool on_file(void *context, const char *path, pp_http_file *ret)
{
    (void)context;
    return pp_page_file(path, ret);
}

static bool ready(void *context, char *reason, size_t size)
{
    const pp_operator *op = context;
    const bool synced = pp_watches_synced(op) && pp_limits_watch_synced(op) &&
                        pp_claims_synced(op) && pp_addresses_synced(op) && pp_replicas_synced(op);
    char missing[256];
    char rival[512];
    const char *why = op->draining || op->stopping ? "stopping"
                      : pp_rights_missing(&op->rights, pp_time_monotonic(), missing, sizeof missing)
                          ? missing
                      : pp_claims_rival(op, rival, sizeof rival) ? rival
                      : !synced ? "the first lists are not complete"
                                : NULL;
    if (why)
        (void)snprintf(reason, size, "%s", why);
    return !why;
}

int pp_serve_start(pp_operator *op, const pp_certificates *certificates, pp_error *err)
{
    const pp_config *config = op->config;
    PP_CLEANUP_FREE char *client_ca = pp_tls_client_ca(config, err);
    if (*config->webhook.client_ca_file && !client_ca)
        return -1;
    const pp_http_options options = {
        .loop = op->loop,
        .address = *config->http.bind_address ? config->http.bind_address : NULL,
        .tls_port = (int)config->http.tls_port,
        .plain_port = (int)config->http.plain_port,
        .open_port = op->results ? (int)config->page.open_port : 0,
        .certificate = certificates->certificate,
        .key = certificates->key,
        .path_secret = certificates->path_secret,
        .client_ca = client_ca,
        .max_connections = (size_t)config->ingest.max_connections,
        .metrics = op->meters.registry,
    };
    const pp_http_handlers handlers = {.context = op,
                                       .review = on_review,
                                       .authorize = on_authorize,
                                       .accepting = accepting,
                                       .displace = on_displace,
                                       .connected = on_connected,
                                       .batch = on_batch,
                                       .bye = on_bye,
                                       .time = on_time,
                                       .hook = on_hook,
                                       .disconnected = on_disconnected,
                                       .api = op->results ? on_api : NULL,
                                       .api_gone = on_api_gone,
                                       .file = op->results && config->page.enabled ? on_file : NULL,
                                       .ready = ready};
    return pp_http_server_new(&options, &handlers, &op->server, err);
}
