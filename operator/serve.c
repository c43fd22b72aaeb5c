#include "operator/serve.h"

#include "common/log.h"
#include "operator/admission.h"
#include "operator/intake.h"
#include "operator/state.h"
#include "operator/watches.h"

#include <stdio.h>

static void on_review(void *context, pp_http_id id, const pp_http_review *review)
{
    pp_admission_review(context, id, review);
}

static void on_authorize(void *context, pp_http_id id, const char *token)
{
    pp_intake_authorize(context, id, token);
}

static bool accepting(void *context)
{
    const pp_operator *op = context;
    return op->leading && !op->stopping && pp_watches_synced(op) && pp_store_ready(op->store, NULL);
}

static void on_connected(void *context, pp_http_id connection, const pp_http_identity *identity)
{
    pp_intake_connected(context, connection, identity);
}

static void on_batch(void *context, pp_http_id connection, pp_wire_batch *batch)
{
    pp_intake_batch(context, connection, batch);
}

static void on_bye(void *context, pp_http_id connection, const pp_wire_bye *bye)
{
    (void)context;
    (void)connection;
    pp_info(bye->session, "an agent is done: %s", bye->reason);
}

static void on_disconnected(void *context, pp_http_id connection)
{
    pp_intake_disconnected(context, connection);
}

static bool ready(void *context, char *reason, size_t size)
{
    const pp_operator *op = context;
    const char *why = op->stopping             ? "stopping"
                      : !op->ca_bundle         ? "no certificate yet"
                      : !pp_watches_synced(op) ? "the first lists are not complete"
                                               : NULL;
    if (why)
        (void)snprintf(reason, size, "%s", why);
    return !why;
}

int pp_serve_start(pp_operator *op, const char *certificate, const char *key, pp_error *err)
{
    const pp_config *config = op->config;
    const pp_http_options options = {
        .loop = op->loop,
        .address = *config->http.bind_address ? config->http.bind_address : NULL,
        .tls_port = (int)config->http.tls_port,
        .plain_port = (int)config->http.plain_port,
        .certificate = certificate,
        .key = key,
        .max_connections = (size_t)config->ingest.max_connections,
        .metrics = op->meters.registry,
    };
    const pp_http_handlers handlers = {.context = op,
                                       .review = on_review,
                                       .authorize = on_authorize,
                                       .accepting = accepting,
                                       .connected = on_connected,
                                       .batch = on_batch,
                                       .bye = on_bye,
                                       .disconnected = on_disconnected,
                                       .ready = ready};
    return pp_http_server_new(&options, &handlers, &op->server, err);
}
