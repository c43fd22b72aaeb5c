#include "operator/http_server/http_server_internal.h"

#include "common/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    HEADER_BYTES = 8192,    /* a projected token has 1 to 2 KB; past this the peer is cut off */
    HEADERS_AT_ONCE = 512,  /* requests whose headers are in memory */
    HANDSHAKE_SECONDS = 10, /* for TLS, headers, gaps in a body */
    KEEPALIVE_SECONDS = 90, /* an idle connection is kept for its client, as Go's clients expect */
    MAX_OPEN_FILES = 65536,
    STOP_TURN_MS = 20,
};

#define STOP_GRACE (500 * MILLISECOND)

pp_http_server *http_server_of(struct lws *wsi)
{
    return lws_context_user(lws_get_context(wsi));
}

pp_http_id http_next_id(pp_http_server *server)
{
    return ++server->last_id;
}

/** libwebsockets' lines into ours. Its warnings are about peers, who must not fill our log. */
static void log_line(int level, const char *line)
{
    int n = (int)strcspn(line, "\r\n");
    pp_log(level == LLL_ERR ? PP_LOG_WARN : PP_LOG_DEBUG, "http", "%.*s", n, line);
}

static void free_peer(struct lws *wsi)
{
    peer *p = lws_get_opaque_user_data(wsi);
    lws_set_opaque_user_data(wsi, NULL);
    if (!p)
        return;
    if (p->kind == PEER_EXCHANGE)
        http_exchange_free((exchange *)p);
    else
        http_connection_free((connection *)p);
}

/**
 * Whether libwebsockets may upgrade. What may not, or not yet, goes on as a plain request, where an
 * answer can wait and has a status; libwebsockets does that for an `Upgrade` it does not know.
 */
static void confirm_upgrade(struct lws *wsi, char *upgrade, bool plain)
{
    pp_http_server *server = http_server_of(wsi);
    pp_http_identity identity = {0};
    free_peer(wsi);
    if (!plain && strcasecmp(upgrade, "websocket") == 0 &&
        http_upgrade_allowed(server, wsi, &identity) &&
        http_connection_new(server, wsi, &identity) == 0)
        return;
    upgrade[0] = '-';
}

static int dispatch(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len, bool plain)
{
    switch (reason) {
    case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
        http_server_of(wsi)->ssl_ctx = user;
        http_tls_configure(user);
        return 0;
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
        confirm_upgrade(wsi, in, plain);
        return 0;
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_WSI_DESTROY:
        free_peer(wsi);
        return 0;
    case LWS_CALLBACK_HTTP:
    case LWS_CALLBACK_HTTP_BODY:
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
    case LWS_CALLBACK_HTTP_WRITEABLE:
    case LWS_CALLBACK_TIMER:
        return http_exchange_callback(wsi, reason, in, len, plain);
    default:
        return 0;
    }
}

static int tls_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t len)
{
    return dispatch(wsi, reason, user, in, len, false);
}

static int plain_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                          size_t len)
{
    return dispatch(wsi, reason, user, in, len, true);
}

/* ---- starting ----------------------------------------------------------------------------------
 */

/** libwebsockets allocates by the limit of open files, which containers set to a billion. */
static void limit_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > MAX_OPEN_FILES) {
        limit.rlim_cur = MAX_OPEN_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void fill_defaults(pp_http_options *o)
{
    o->certificate = NULL;
    o->key = NULL;
    o->max_batches = o->max_batches ? o->max_batches : PP_HTTP_MAX_BATCHES;
    o->body_timeout = o->body_timeout ? o->body_timeout : 5 * SECOND;
    o->admission_timeout = o->admission_timeout ? o->admission_timeout : 3 * SECOND;
    o->authorize_timeout = o->authorize_timeout ? o->authorize_timeout : 5 * SECOND;
    o->message_timeout = o->message_timeout ? o->message_timeout : 30 * SECOND;
    o->ping_after = o->ping_after ? o->ping_after : 20;
    o->hangup_after = o->hangup_after ? o->hangup_after : 45;
}

static int create_context(pp_http_server *server, pp_error *err)
{
    void *loops[] = {server->options.loop};
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_VALIDATE_UTF8,
        .foreign_loops = loops,
        .user = server,
        .max_http_header_data = HEADER_BYTES,
        .max_http_header_pool = HEADERS_AT_ONCE,
        .pt_serv_buf_size = 2 * WRITE_PIECE,
        .timeout_secs = HANDSHAKE_SECONDS,
    };
    lws_set_log_level(LLL_ERR | LLL_WARN, log_line);
    limit_open_files();
    server->context = lws_create_context(&info);
    if (!server->context)
        return pp_error_set(err, PP_ERR_INTERNAL,
                            "libwebsockets does not start: is its libuv plugin installed?");
    return 0;
}

static struct lws_vhost *create_vhost(pp_http_server *server, const char *name, int port,
                                      const struct lws_protocols *protocols,
                                      const char *certificate, const char *key)
{
    struct lws_context_creation_info info = {
        .vhost_name = name,
        .port = port,
        .iface = server->options.address,
        .protocols = protocols,
        .keepalive_timeout = KEEPALIVE_SECONDS,
        .timeout_secs = HANDSHAKE_SECONDS,
        .retry_and_idle_policy = &server->retry,
        /* Each vhost makes a context for clients too, and loads the system's authorities for it. */
        .options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND | LWS_SERVER_OPTION_VALIDATE_UTF8 |
                   LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS,
        .user = server,
    };
    if (certificate) {
        info.alpn = "http/1.1"; /* HTTP/2 bodies hang in this version */
        info.server_ssl_cert_mem = certificate;
        info.server_ssl_cert_mem_len = (unsigned int)strlen(certificate);
        info.server_ssl_private_key_mem = key;
        info.server_ssl_private_key_mem_len = (unsigned int)strlen(key);
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
    }
    return lws_create_vhost(server->context, &info);
}

static void describe_protocols(pp_http_server *server)
{
    server->tls_protocols[0] = (struct lws_protocols){.name = "http", .callback = tls_callback};
    server->tls_protocols[1] = (struct lws_protocols){.name = PP_WIRE_SUBPROTOCOL,
                                                      .callback = http_ingest_callback,
                                                      .rx_buffer_size = WRITE_PIECE};
    server->plain_protocols[0] = (struct lws_protocols){.name = "http", .callback = plain_callback};
    server->retry = (lws_retry_bo_t){
        .secs_since_valid_ping = (uint16_t)server->options.ping_after,
        .secs_since_valid_hangup = (uint16_t)server->options.hangup_after,
    };
}

static int create_vhosts(pp_http_server *server, const pp_http_options *options, pp_error *err)
{
    server->tls_vhost = create_vhost(server, "tls", options->tls_port, server->tls_protocols,
                                     options->certificate, options->key);
    if (!server->tls_vhost || !server->ssl_ctx)
        return pp_error_set(err, PP_ERR_IO, "cannot listen on port %d", options->tls_port);
    server->plain_vhost =
        create_vhost(server, "plain", options->plain_port, server->plain_protocols, NULL, NULL);
    if (!server->plain_vhost)
        return pp_error_set(err, PP_ERR_IO, "cannot listen on port %d", options->plain_port);
    /* Again, since libwebsockets takes the first certificate of the text only. */
    return http_tls_use(server->ssl_ctx, options->certificate, options->key, err);
}

void http_make_metrics(pp_metrics *m, server_metrics *s)
{
    static const double bounds[] = {.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5};
    if (!m)
        return;
    s->review_seconds = pp_metrics_histogram(m, "precisionprobe_admission_review_seconds",
                                             "Time to answer an admission review.", NULL, bounds,
                                             sizeof bounds / sizeof *bounds, NULL);
    s->reviews_late =
        pp_metrics_counter(m, "precisionprobe_admission_reviews_late_total",
                           "Reviews answered without a patch because time ran out.", NULL, NULL);
    s->connections = pp_metrics_gauge(m, "precisionprobe_ingest_connections",
                                      "Connections of agents.", NULL, NULL);
    static const char batches[] = "precisionprobe_ingest_batches_total";
    static const char help[] = "Batches received, by what became of them at the edge.";
    s->batches_taken = pp_metrics_counter(m, batches, help, "result=\"taken\"", NULL);
    s->batches_refused = pp_metrics_counter(m, batches, help, "result=\"refused\"", NULL);
    s->malformed = pp_metrics_counter(m, batches, help, "result=\"malformed\"", NULL);
    s->received_bytes = pp_metrics_counter(m, "precisionprobe_ingest_received_bytes_total",
                                           "Bytes of messages of agents.", NULL, NULL);
    s->pending = pp_metrics_gauge(m, "precisionprobe_ingest_pending_batches",
                                  "Batches taken and not yet acknowledged.", NULL, NULL);
}

/** What a stop ends with: the context's handles need turns of the loop to close. */
static void destroy(pp_http_server *server)
{
    server->stopping = server->destroyed = true;
    lws_context_destroy(server->context);
}

int pp_http_server_new(const pp_http_options *options, const pp_http_handlers *handlers,
                       pp_http_server **ret, pp_error *err)
{
    *ret = NULL;
    if (http_tls_try(options->certificate, options->key, err) < 0)
        return -1;
    pp_http_server *server = *ret = calloc(1, sizeof *server);
    if (!server)
        return pp_error_nomem(err);
    server->options = *options;
    server->handlers = *handlers;
    fill_defaults(&server->options);
    describe_protocols(server);
    if (create_context(server, err) < 0) {
        free(server);
        *ret = NULL;
        return -1;
    }
    int rc = create_vhosts(server, options, err);
    server->options.address = NULL; /* the caller's text need not live on */
    if (rc == 0)
        http_make_metrics(server->options.metrics, &server->metrics);
    else
        destroy(server);
    return rc;
}

int pp_http_tls_port(const pp_http_server *server)
{
    return lws_get_vhost_listen_port(server->tls_vhost);
}

int pp_http_plain_port(const pp_http_server *server)
{
    return lws_get_vhost_listen_port(server->plain_vhost);
}

int pp_http_server_set_certificate(pp_http_server *server, const char *certificate, const char *key,
                                   pp_error *err)
{
    if (http_tls_try(certificate, key, err) < 0)
        return -1;
    return http_tls_use(server->ssl_ctx, certificate, key, err);
}

/* ---- stopping ----------------------------------------------------------------------------------
 */

static void finish_exchanges(pp_http_server *server)
{
    peer *p;
    peer *spare;
    HASH_ITER(hh, server->exchanges, p, spare)
    {
        exchange *ex = (exchange *)p;
        if (ex->stage == STAGE_REVIEW)
            pp_http_admission_respond(server, p->id, NULL, NULL);
        else if (ex->stage == STAGE_AUTHORIZE)
            http_upgrade_late(ex);
    }
}

static void stop_turn(uv_timer_t *timer)
{
    pp_http_server *server = timer->data;
    bool idle = !server->exchanges && !server->connections;
    if (!idle && (int64_t)uv_hrtime() < server->stop_deadline)
        return;
    uv_timer_stop(timer);
    uv_close((uv_handle_t *)timer, NULL);
    destroy(server);
}

void pp_http_server_stop(pp_http_server *server)
{
    if (server->stopping)
        return;
    server->stopping = true;
    finish_exchanges(server);
    pp_http_ingest_close_all(server, LWS_CLOSE_STATUS_GOINGAWAY, "the operator stops");
    server->stop_deadline = (int64_t)uv_hrtime() + STOP_GRACE;
    (void)uv_timer_init(server->options.loop, &server->stop_timer);
    server->stop_timer.data = server;
    (void)uv_timer_start(&server->stop_timer, stop_turn, STOP_TURN_MS, STOP_TURN_MS);
}

void pp_http_server_free(pp_http_server *server)
{
    if (!server)
        return;
    /* The first destroy closed the handles; this one frees what they needed until then. */
    if (server->destroyed)
        lws_context_destroy(server->context);
    http_verdicts_forget(server);
    free(server);
}
