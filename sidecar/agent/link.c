#include "sidecar/agent/link.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/log.h"
#include "common/wire.h"

#include <libwebsockets.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TOKEN_MAX = 16 << 10,
    PING_AFTER_S = 20,
    HANGUP_AFTER_S = 40,
    CONNECT_TIMEOUT_S = 10,
};

struct pp_link {
    pp_link_config config;
    char host[256];
    char path[512];
    int port;
    struct lws_context *context;
    struct lws_vhost *vhost;
    struct stat ca; /* of the CA file that the vhost was made with */
    struct lws *wsi;
    char token[TOKEN_MAX];
    pp_buf received;
    bool open;
    bool reported; /* `closed` was called for this attempt */
};

static const lws_retry_bo_t idle_policy = {.secs_since_valid_ping = PING_AFTER_S,
                                           .secs_since_valid_hangup = HANGUP_AFTER_S};

static void report_closed(pp_link *link, int status, int retry_after, const char *why)
{
    if (link->reported)
        return;
    link->reported = true;
    link->open = false;
    link->wsi = NULL;
    link->config.events->closed(link->config.user, status, retry_after, why);
}

static int add_authorization(pp_link *link, struct lws *wsi, unsigned char **at, size_t room)
{
    char header[TOKEN_MAX + 8];
    int n = snprintf(header, sizeof header, "Bearer %s", link->token);
    if (n < 0 || (size_t)n >= sizeof header)
        return -1;
    return lws_add_http_header_by_token(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, (unsigned char *)header,
                                        n, at, *at + room)
               ? -1
               : 0;
}

static void connection_error(pp_link *link, struct lws *wsi, const char *why)
{
    char text[16] = "";
    int retry_after = -1;
    if (lws_hdr_copy(wsi, text, sizeof text, WSI_TOKEN_HTTP_RETRY_AFTER) > 0) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end != text && *end == '\0' && value >= 0 && value <= 3600)
            retry_after = (int)value;
    }
    report_closed(link, (int)lws_http_client_http_response(wsi), retry_after,
                  why ? why : "connection failed");
}

static int receive(pp_link *link, struct lws *wsi, const void *data, size_t n)
{
    pp_error err = {0};
    if (pp_buf_append(&link->received, data, n, &err) < 0) {
        pp_warn("link", "a message of the operator's is not taken: %s", err.message);
        lws_close_reason(wsi, LWS_CLOSE_STATUS_MESSAGE_TOO_LARGE, NULL, 0);
        return -1;
    }
    if (lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0) {
        link->config.events->message(
            link->config.user, link->received.data ? link->received.data : "", link->received.len);
        pp_buf_reset(&link->received);
    }
    return 0;
}

static int send_next(pp_link *link, struct lws *wsi)
{
    const char *text;
    size_t n;
    if (!link->config.events->next(link->config.user, &text, &n))
        return 0;
    PP_CLEANUP_FREE unsigned char *frame = malloc(LWS_PRE + n);
    if (!frame)
        return -1; /* the connection ends; what is not acknowledged is sent on the next one */
    memcpy(frame + LWS_PRE, text, n);
    if (lws_write(wsi, frame + LWS_PRE, n, LWS_WRITE_TEXT) < 0)
        return -1;
    lws_callback_on_writable(wsi);
    return 0;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t n)
{
    pp_link *link = lws_context_user(lws_get_context(wsi));
    (void)user;
    switch (reason) {
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        return add_authorization(link, wsi, in, n);
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        connection_error(link, wsi, in);
        return 0;
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        link->open = true;
        pp_buf_reset(&link->received);
        link->config.events->opened(link->config.user);
        lws_callback_on_writable(wsi);
        return 0;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return receive(link, wsi, in, n);
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return send_next(link, wsi);
    case LWS_CALLBACK_CLIENT_CLOSED:
        report_closed(link, 101, -1, "the connection ended");
        return 0;
    default:
        return lws_callback_http_dummy(wsi, reason, user, in, n);
    }
}

static const struct lws_protocols protocols[] = {
    {.name = PP_WIRE_SUBPROTOCOL, .callback = on_event, .rx_buffer_size = 4096},
    {0},
};

static int parse_endpoint(pp_link *link, const char *endpoint, pp_error *err)
{
    char copy[1024];
    const char *scheme, *host, *path;
    int port = 443;
    if (!endpoint || strlen(endpoint) >= sizeof copy)
        return pp_error_field(err, "endpoint", "is missing or too long");
    memcpy(copy, endpoint, strlen(endpoint) + 1);
    if (lws_parse_uri(copy, &scheme, &host, &port, &path) || strcmp(scheme, "wss") != 0)
        return pp_error_field(err, "endpoint", "must be wss://host[:port]/path");
    int n = snprintf(link->host, sizeof link->host, "%s", host);
    int m = snprintf(link->path, sizeof link->path, "/%s", path);
    if (n <= 0 || (size_t)n >= sizeof link->host || m < 0 || (size_t)m >= sizeof link->path)
        return pp_error_field(err, "endpoint", "has a host or path that is too long");
    /* Without a port lws_parse_uri knows wss's own only in later versions. */
    link->port = port > 0 && port < 65536 ? port : 443;
    return 0;
}

int pp_link_new(const pp_link_config *config, pp_link **ret, pp_error *err)
{
    pp_link *link = calloc(1, sizeof *link);
    if (!link)
        return pp_error_nomem(err);
    link->config = *config;
    pp_buf_init(&link->received, PP_WIRE_MAX_ANSWER);
    if (parse_endpoint(link, config->endpoint, err) < 0) {
        free(link);
        return -1;
    }
    lws_set_log_level(0, NULL);
    void *loops[] = {config->loop};
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        .foreign_loops = loops,
        .user = link,
        .port = CONTEXT_PORT_NO_LISTEN,
        .max_http_header_data = TOKEN_MAX + 4096,
        .retry_and_idle_policy = &idle_policy,
    };
    link->context = lws_create_context(&info);
    if (!link->context) {
        free(link);
        return pp_error_set(err, PP_ERR_INTERNAL,
                            "no libwebsockets context (is libwebsockets-evlib-uv installed?)");
    }
    *ret = link;
    return 0;
}

static int read_token(pp_link *link, pp_error *err)
{
    PP_CLEANUP_FREE char *token =
        pp_file_read(link->config.token_path, sizeof link->token - 1, NULL, err);
    if (!token)
        return -1;
    if (!*token || strpbrk(token, "\r\n"))
        return pp_error_set(err, PP_ERR_INVALID, "%s holds no token", link->config.token_path);
    (void)snprintf(link->token, sizeof link->token, "%s", token);
    return 0;
}

/* The trusted CAs belong to the vhost: a rotated file needs a new one. */
static int renew_vhost(pp_link *link, pp_error *err)
{
    struct stat ca;
    if (stat(link->config.ca_path, &ca) < 0)
        return pp_error_errno(err, "reading %s", link->config.ca_path);
    if (link->vhost && ca.st_ino == link->ca.st_ino && ca.st_mtim.tv_sec == link->ca.st_mtim.tv_sec)
        return 0;
    if (link->vhost)
        lws_vhost_destroy(link->vhost);
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS,
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = protocols,
        .client_ssl_ca_filepath = link->config.ca_path,
        .connect_timeout_secs = CONNECT_TIMEOUT_S,
        .retry_and_idle_policy = &idle_policy,
        .vhost_name = "agent",
        .user = link,
    };
    link->vhost = lws_create_vhost(link->context, &info);
    if (!link->vhost)
        return pp_error_set(err, PP_ERR_INVALID, "%s holds no certificate", link->config.ca_path);
    link->ca = ca;
    return 0;
}

void pp_link_connect(pp_link *link)
{
    pp_error err = {0};
    link->reported = false;
    if (read_token(link, &err) < 0 || renew_vhost(link, &err) < 0) {
        report_closed(link, 0, -1, err.message);
        return;
    }
    struct lws_client_connect_info info = {
        .context = link->context,
        .vhost = link->vhost,
        .address = link->host,
        .port = link->port,
        .path = link->path,
        .host = link->host,
        .origin = link->host,
        .protocol = PP_WIRE_SUBPROTOCOL,
        .local_protocol_name = PP_WIRE_SUBPROTOCOL,
        .ssl_connection = LCCSCF_USE_SSL,
        .alpn = "http/1.1",
        .pwsi = &link->wsi,
        .retry_and_idle_policy = &idle_policy,
    };
    if (!lws_client_connect_via_info(&info))
        report_closed(link, 0, -1, "the connection could not be begun");
}

bool pp_link_is_open(const pp_link *link)
{
    return link->open;
}

void pp_link_wake(pp_link *link)
{
    if (link->open && link->wsi)
        lws_callback_on_writable(link->wsi);
}

void pp_link_stop(pp_link *link)
{
    link->reported = true; /* nobody wants to hear of it any more */
    if (link->context)
        lws_context_destroy(link->context);
}

/* libwebsockets frees what it had on a foreign loop only in a second call, after the loop ran. */
void pp_link_free(pp_link *link)
{
    if (!link)
        return;
    if (link->context)
        lws_context_destroy(link->context);
    pp_buf_done(&link->received);
    free(link);
}
