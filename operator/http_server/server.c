#include "operator/http_server/http_server_internal.h"

#include "common/log.h"
#include "common/time.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEADERS_AT_ONCE = 512, /* requests whose headers are in memory */
    STOP_TURN_MS = 20,
    LINES_A_MINUTE = 10, /* of libwebsockets' errors in the log */
};

#define STOP_GRACE (500 * MILLISECOND)

/** A peer brings some of its errors about, too, as by a request that has no end. */
static bool may_warn(void)
{
    static int64_t minute;
    static int said;
    const int64_t now = pp_time_monotonic() / (60 * SECOND);
    said = now == minute ? said + 1 : 1;
    minute = now;
    return said <= LINES_A_MINUTE;
}

/** libwebsockets' lines into ours. Its warnings are about peers, who must not fill our log. */
static void log_line(int level, const char *line)
{
    int n = (int)strcspn(line, "\r\n");
    pp_log(level == LLL_ERR && may_warn() ? PP_LOG_WARN : PP_LOG_DEBUG, "http", "%.*s", n, line);
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
static void confirm_upgrade(struct lws *wsi, char *upgrade, http_port port)
{
    pp_http_server *server = http_server_of(wsi);
    pp_http_identity identity = {0};
    free_peer(wsi);
    if (port == PORT_TLS && strcasecmp(upgrade, "websocket") == 0 &&
        http_upgrade_allowed(server, wsi, &identity) &&
        http_connection_new(server, wsi, &identity) == 0)
        return;
    upgrade[0] = '-';
}

static int dispatch(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len, http_port port)
{
    switch (reason) {
    case LWS_CALLBACK_FILTER_NETWORK_CONNECTION:
        return http_arrival_admitted(http_server_of(wsi), user, port) ? 0 : -1;
    case LWS_CALLBACK_WSI_CREATE:
        http_arrival_is(http_server_of(wsi), wsi);
        return 0;
    case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
        http_server_of(wsi)->ssl_ctx = user;
        http_tls_configure(user);
        return 0;
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
        confirm_upgrade(wsi, in, port);
        return 0;
    case LWS_CALLBACK_CLOSED_HTTP:
        free_peer(wsi);
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        free_peer(wsi);
        visitors_leave(http_server_of(wsi)->visitors, wsi);
        return 0;
    case LWS_CALLBACK_HTTP:
    case LWS_CALLBACK_HTTP_BODY:
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
    case LWS_CALLBACK_HTTP_WRITEABLE:
    case LWS_CALLBACK_TIMER:
        return http_routing_callback(wsi, reason, in, len, port);
    default:
        return 0;
    }
}

static int tls_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t len)
{
    return dispatch(wsi, reason, user, in, len, PORT_TLS);
}

static int plain_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                          size_t len)
{
    return dispatch(wsi, reason, user, in, len, PORT_PLAIN);
}

static int open_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                         size_t len)
{
    return dispatch(wsi, reason, user, in, len, PORT_OPEN);
}

/* ---- starting ----------------------------------------------------------------------------------
 */

static void fill_defaults(pp_http_options *o)
{
    o->certificate = NULL;
    o->key = NULL;
    o->path_secret = NULL;
    o->client_ca = NULL;
    o->max_review_bytes = o->max_review_bytes ? o->max_review_bytes : PP_HTTP_MAX_REVIEWS;
    o->max_unproven = o->max_unproven ? o->max_unproven : PP_HTTP_MAX_UNPROVEN;
    o->max_unproven_each = o->max_unproven_each ? o->max_unproven_each : PP_HTTP_MAX_UNPROVEN_EACH;
    o->request_timeout = o->request_timeout ? o->request_timeout : 10 * SECOND;
    o->max_batches = o->max_batches ? o->max_batches : PP_HTTP_MAX_BATCHES;
    o->max_batch_bytes = o->max_batch_bytes ? o->max_batch_bytes : PP_HTTP_MAX_BATCH_BYTES;
    o->pod_rate = o->pod_rate ? o->pod_rate : PP_HTTP_POD_RATE;
    o->body_timeout = o->body_timeout ? o->body_timeout : 5 * SECOND;
    o->admission_timeout = o->admission_timeout ? o->admission_timeout : 3 * SECOND;
    o->api_timeout = o->api_timeout ? o->api_timeout : 20 * SECOND;
    o->authorize_timeout = o->authorize_timeout ? o->authorize_timeout : 5 * SECOND;
    o->refusal_interval = o->refusal_interval ? o->refusal_interval : SECOND / 10;
    o->message_timeout = o->message_timeout ? o->message_timeout : 30 * SECOND;
    o->ping_after = o->ping_after ? o->ping_after : 20;
    o->hangup_after = o->hangup_after ? o->hangup_after : 45;
}

/** libwebsockets' own limit, for TLS and headers, where visitors.h has not ended the connection. */
static int handshake_seconds(const pp_http_options *o)
{
    return (int)((o->request_timeout + SECOND - 1) / SECOND);
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
        .timeout_secs = (unsigned)handshake_seconds(&server->options),
    };
    lws_set_log_level(LLL_ERR | LLL_WARN, log_line);
    server->context = lws_create_context(&info);
    if (!server->context)
        return pp_error_set(err, PP_ERR_INTERNAL,
                            "libwebsockets does not start: is its libuv plugin installed?");
    return 0;
}

/** A node that was booted with ipv6.disable=1 has no sockets of IPv6, for ::0 neither. */
static bool has_ipv6(void)
{
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

static void count_listener(uv_handle_t *handle, void *count)
{
    uv_os_fd_t fd;
    int listens = 0;
    socklen_t size = sizeof listens;
    if (handle->type == UV_POLL && uv_fileno(handle, &fd) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0)
        *(size_t *)count += listens != 0;
}

/** Sockets at which the loop is told of those who connect. */
static size_t count_listeners(uv_loop_t *loop)
{
    size_t count = 0;
    uv_walk(loop, count_listener, &count);
    return count;
}

/** On `address`, NULL being all; without a certificate in the clear. NULL: nothing listens. */
static struct lws_vhost *create_vhost(pp_http_server *server, const char *name, const char *address,
                                      int port, const struct lws_protocols *protocols,
                                      const char *certificate, const char *key)
{
    struct lws_context_creation_info info = {
        .vhost_name = name,
        .port = port,
        .iface = address,
        .protocols = protocols,
        .keepalive_timeout = (int)(KEPT_OPEN / SECOND),
        .timeout_secs = (unsigned)handshake_seconds(&server->options),
        .retry_and_idle_policy = &server->retry,
        /* Each vhost makes a context for clients too, and loads the system's authorities for it. */
        .options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND | LWS_SERVER_OPTION_VALIDATE_UTF8 |
                   LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS,
        .user = server,
    };
    /* With IPv6 libwebsockets takes no notice of an address of IPv4, and listens on all; without an
     * address it opens a socket of IPv6, and none of IPv4 where there is none. */
    if (address ? !strchr(address, ':') : !has_ipv6())
        info.options |= LWS_SERVER_OPTION_DISABLE_IPV6;
    if (certificate) {
        info.alpn = "http/1.1"; /* HTTP/2 bodies hang in this version */
        info.server_ssl_cert_mem = certificate;
        info.server_ssl_cert_mem_len = (unsigned int)strlen(certificate);
        info.server_ssl_private_key_mem = key;
        info.server_ssl_private_key_mem_len = (unsigned int)strlen(key);
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
    }
    /* A vhost whose socket could not be opened comes to be all the same, and its port with it. */
    const size_t before = count_listeners(server->options.loop);
    struct lws_vhost *vhost = lws_create_vhost(server->context, &info);
    return count_listeners(server->options.loop) > before ? vhost : NULL;
}

static void describe_protocols(pp_http_server *server)
{
    server->tls_protocols[0] = (struct lws_protocols){.name = "http", .callback = tls_callback};
    server->tls_protocols[1] = (struct lws_protocols){.name = PP_WIRE_SUBPROTOCOL,
                                                      .callback = http_ingest_callback,
                                                      .rx_buffer_size = WRITE_PIECE};
    server->open_protocols[0] = (struct lws_protocols){.name = "http", .callback = open_callback};
    server->plain_protocols[0] = (struct lws_protocols){.name = "http", .callback = plain_callback};
    server->retry = (lws_retry_bo_t){
        .secs_since_valid_ping = (uint16_t)server->options.ping_after,
        .secs_since_valid_hangup = (uint16_t)server->options.hangup_after,
    };
}

static int create_vhosts(pp_http_server *server, const pp_http_options *options, pp_error *err)
{
    server->tls_vhost = create_vhost(server, "tls", options->address, options->tls_port,
                                     server->tls_protocols, options->certificate, options->key);
    if (!server->tls_vhost || !server->ssl_ctx)
        return pp_error_set(err, PP_ERR_IO, "cannot listen on port %d", options->tls_port);
    server->plain_vhost = create_vhost(server, "plain", options->address, options->plain_port,
                                       server->plain_protocols, NULL, NULL);
    if (!server->plain_vhost)
        return pp_error_set(err, PP_ERR_IO, "cannot listen on port %d", options->plain_port);
    if (options->open_port)
        server->open_vhost = create_vhost(server, "open", "127.0.0.1", options->open_port,
                                          server->open_protocols, NULL, NULL);
    if (options->open_port && !server->open_vhost)
        return pp_error_set(err, PP_ERR_IO, "cannot listen on port %d of loopback",
                            options->open_port);
    if (pp_http_server_set_path_secret(server, options->path_secret, err) < 0 ||
        pp_http_server_set_client_ca(server, options->client_ca, err) < 0)
        return -1;
    /* Again, since libwebsockets takes the first certificate of the text only. */
    return http_tls_use(server->ssl_ctx, options->certificate, options->key, err);
}

static void make_refusals(pp_metrics *m, server_metrics *s)
{
    static const char *const reasons[REFUSALS] = {
        [REFUSED_INVALID] = "reason=\"invalid\"", [REFUSED_DENIED] = "reason=\"denied\"",
        [REFUSED_GONE] = "reason=\"gone\"",       [REFUSED_TOO_LARGE] = "reason=\"too-large\"",
        [REFUSED_OTHER] = "reason=\"other\"",
    };
    for (int i = 0; i < REFUSALS; i++)
        s->refused_for[i] = pp_metrics_counter(m, "precisionprobe_batches_refused_total",
                                               "Batches refused, by the code that the agent got.",
                                               reasons[i], NULL);
}

static void make_tokens(pp_metrics *m, server_metrics *s)
{
    static const char *const results[TOKEN_RESULTS] = {
        [TOKEN_GRANTED] = "result=\"granted\"",
        [TOKEN_REFUSED] = "result=\"refused\"",
        [TOKEN_UNAVAILABLE] = "result=\"unavailable\"",
        [TOKEN_LIMITED] = "result=\"limited\"",
    };
    for (int i = 0; i < TOKEN_RESULTS; i++)
        s->tokens[i] = pp_metrics_counter(
            m, "precisionprobe_tokens_total",
            "Tokens of agents not known before, by what the API server said; limited: not asked.",
            results[i], NULL);
}

void http_make_metrics(pp_metrics *m, server_metrics *s)
{
    static const double bounds[] = {.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5};
    if (!m)
        return;
    static const char *const shares[SHARES] = {"share=\"unproven\"", "share=\"review\"",
                                               "share=\"api\"", "share=\"plain\""};
    for (int i = 0; i < SHARES; i++) {
        s->in_share[i] = pp_metrics_gauge(m, "precisionprobe_http_connections",
                                          "Connections that are no agent's.", shares[i], NULL);
        s->turned_away[i] =
            pp_metrics_counter(m, "precisionprobe_http_turned_away_total",
                               "Connections cut off for want of a place.", shares[i], NULL);
    }
    s->overdue =
        pp_metrics_counter(m, "precisionprobe_http_overdue_total",
                           "Connections cut off that asked for nothing in time.", NULL, NULL);
    static const char *const results[REVIEW_RESULTS] = {
        [REVIEW_PATCHED] = "result=\"patched\"",
        [REVIEW_REFUSED] = "result=\"refused\"",
        [REVIEW_PASSED] = "result=\"passed\"",
        [REVIEW_LATE] = "result=\"late\"",
    };
    for (int i = 0; i < REVIEW_RESULTS; i++)
        s->review_seconds[i] = pp_metrics_histogram(
            m, "precisionprobe_admission_review_seconds",
            "Time to answer an admission review, by whether it got a patch, a warning why it has "
            "none, neither, or nothing in time (late: also those given up by the API server).",
            results[i], bounds, sizeof bounds / sizeof *bounds, NULL);
    s->connections = pp_metrics_gauge(m, "precisionprobe_ingest_connections",
                                      "Connections of agents.", NULL, NULL);
    static const char batches[] = "precisionprobe_ingest_batches_total";
    static const char help[] = "Batches received, by what became of them at the edge.";
    s->batches_taken = pp_metrics_counter(m, batches, help, "result=\"taken\"", NULL);
    s->batches_refused = pp_metrics_counter(m, batches, help, "result=\"refused\"", NULL);
    make_refusals(m, s);
    make_tokens(m, s);
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
    if (server->visitors)
        http_arrivals_stop(server);
    http_ingest_stop(server);
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
    server->options.max_connections = http_arrivals_fit(&server->options);
    describe_protocols(server);
    if (create_context(server, err) < 0) {
        free(server);
        *ret = NULL;
        return -1;
    }
    if (http_verdicts_start(server) < 0 || http_api_start(server) < 0 ||
        http_arrivals_start(server) < 0 || http_ingest_start(server) < 0) {
        destroy(server);
        return pp_error_nomem(err);
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

int pp_http_server_set_path_secret(pp_http_server *server, const char *secret, pp_error *err)
{
    size_t n = secret ? strlen(secret) : 0;
    if (n >= sizeof server->path_secret || (secret && !n) || (secret && strchr(secret, '/')))
        return pp_error_set(err, PP_ERR_INVALID, "the secret of the webhook's path is none");
    (void)memset(server->path_secret, 0, sizeof server->path_secret);
    if (secret)
        (void)memcpy(server->path_secret, secret, n);
    return 0;
}

int pp_http_server_set_client_ca(pp_http_server *server, const char *pem, pp_error *err)
{
    if (http_tls_ask_clients(server->ssl_ctx, pem, err) < 0)
        return -1;
    server->client_certificate = pem != NULL;
    return 0;
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
        else if (ex->stage == STAGE_API)
            http_api_late(ex);
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

void pp_http_server_drain(pp_http_server *server)
{
    server->draining = true;
    http_arrivals_drain(server);
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
    http_arrivals_free(server);
    http_ingest_free(server);
    http_verdicts_free(server);
    http_api_free(server);
    free(server);
}
