#include "sidecar/agent/link.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/log.h"
#include "common/wire.h"
#include "sidecar/agent/lookup.h"
#include "sidecar/agent/route.h"

#include <libwebsockets.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

enum {
    TOKEN_MAX = 16 << 10,
    PING_AFTER_S = 20,
    HANGUP_AFTER_S = 40,
    CONNECT_TIMEOUT_S = 10,
    LOOKUP_MS = 2000, /* where there are addresses to go on with */
    ATTEMPT_MS = 15000,
};

struct pp_link {
    pp_link_config config;
    char host[PP_WIRE_MAX_HOST + 1];
    char path[512];
    int port;
    pp_route route;
    pp_lookup *lookup;
    uv_timer_t patience;  /* for the lookup, then for all that has to follow until it is open */
    bool looking;         /* the name is being resolved for this attempt */
    char unresolved[128]; /* why it was not, last; "": it was */
    bool by_address;      /* as the log has it */
    struct lws_context *context;
    struct lws_vhost *vhost;
    struct stat ca; /* of the CA file that the vhost was made with */
    struct lws *wsi;
    char token[TOKEN_MAX];
    pp_buf received;
    int64_t clock_ahead; /* s, as the certificate's dates have it; 0: they are not to blame */
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
    (void)uv_timer_stop(&link->patience);
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
    const int status = (int)lws_http_client_http_response(wsi);
    /* Dates are looked at last: a certificate that is refused for them is the operator's. */
    if (status == 0 && !link->clock_ahead)
        pp_route_failed(&link->route);
    else
        pp_route_worked(&link->route);
    report_closed(link, status, retry_after, why ? why : "connection failed");
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

/* Seconds from `from` to `to`; 0 where one of them is none. */
static int64_t seconds_between(const ASN1_TIME *from, const ASN1_TIME *to)
{
    int days = 0, seconds = 0;
    return from && to && ASN1_TIME_diff(&days, &seconds, from, to) ? (int64_t)days * 86400 + seconds
                                                                   : 0;
}

/* What the dates of a certificate that is refused for them tell of this node's clock. */
static int64_t clock_ahead_of(X509_STORE_CTX *checked)
{
    const int error = X509_STORE_CTX_get_error(checked);
    const X509 *certificate = X509_STORE_CTX_get_current_cert(checked);
    ASN1_TIME *now = ASN1_TIME_set(NULL, time(NULL));
    int64_t ahead = 0;
    if (certificate && error == X509_V_ERR_CERT_NOT_YET_VALID)
        ahead = seconds_between(X509_get0_notBefore(certificate), now);
    else if (certificate && error == X509_V_ERR_CERT_HAS_EXPIRED)
        ahead = seconds_between(X509_get0_notAfter(certificate), now);
    ASN1_TIME_free(now);
    return ahead;
}

/* As OpenSSL does it; libwebsockets only tells that it failed. */
static int check_certificate(X509_STORE_CTX *chain, void *user)
{
    pp_link *link = user;
    const int ok = X509_verify_cert(chain);
    link->clock_ahead = ok > 0 ? 0 : clock_ahead_of(chain);
    return ok;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t n)
{
    pp_link *link = lws_context_user(lws_get_context(wsi));
    if (wsi && lws_get_opaque_user_data(wsi)) /* on_late() has given it up */
        return reason == LWS_CALLBACK_CLIENT_ESTABLISHED ? -1 : 0;
    switch (reason) {
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        return add_authorization(link, wsi, in, n);
    case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_CLIENT_VERIFY_CERTS:
        SSL_CTX_set_cert_verify_callback(user, check_certificate, link);
        return 0;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        connection_error(link, wsi, in);
        return 0;
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        link->open = true;
        (void)uv_timer_stop(&link->patience);
        pp_route_worked(&link->route);
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
    char copy[PP_WIRE_MAX_ENDPOINT + 1];
    const char *scheme, *host, *path;
    int port = 443;
    if (!endpoint || strlen(endpoint) >= sizeof copy)
        return pp_error_field(err, "endpoint", "is missing or too long");
    memcpy(copy, endpoint, strlen(endpoint) + 1);
    if (lws_parse_uri(copy, &scheme, &host, &port, &path) || strcmp(scheme, "wss") != 0)
        return pp_error_field(err, "endpoint", "must be wss://host[:port]/path");
    int n = snprintf(link->host, sizeof link->host, "%s", host);
    int m = snprintf(link->path, sizeof link->path, "/%s", path);
    if (n <= 0 || n > PP_WIRE_MAX_HOST || m < 0 || (size_t)m >= sizeof link->path)
        return pp_error_field(err, "endpoint", "has a host or path that is too long");
    /* Without a port lws_parse_uri knows wss's own only in later versions. */
    link->port = port > 0 && port < 65536 ? port : 443;
    return 0;
}

static int make_context(pp_link *link, pp_error *err)
{
    lws_set_log_level(0, NULL);
    void *loops[] = {link->config.loop};
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        .foreign_loops = loops,
        .user = link,
        .port = CONTEXT_PORT_NO_LISTEN,
        .max_http_header_data = TOKEN_MAX + 4096,
        .pt_serv_buf_size = TOKEN_MAX + 4096, /* the request is made in it */
        .retry_and_idle_policy = &idle_policy,
    };
    link->context = lws_create_context(&info);
    return link->context
               ? 0
               : pp_error_set(err, PP_ERR_INTERNAL,
                              "no libwebsockets context (is libwebsockets-evlib-uv installed?)");
}

static void on_looked_up(void *user, const pp_route_list *found, const char *why);

int pp_link_new(const pp_link_config *config, pp_link **ret, pp_error *err)
{
    pp_link *link = calloc(1, sizeof *link);
    if (!link)
        return pp_error_nomem(err);
    link->config = *config;
    pp_buf_init(&link->received, PP_WIRE_MAX_ANSWER);
    for (size_t i = 0; config->addresses && i < config->addresses->count; i++)
        pp_route_add(&link->route.given, config->addresses->items[i]);
    if (parse_endpoint(link, config->endpoint, err) < 0 ||
        pp_lookup_new(config->loop, link->host, on_looked_up, link, &link->lookup, err) < 0 ||
        make_context(link, err) < 0) {
        pp_lookup_stop(link->lookup);
        free(link);
        return -1;
    }
    (void)uv_timer_init(config->loop, &link->patience);
    link->patience.data = link;
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

/* Once, until the name leads there again. */
static void say_route(pp_link *link, const char *address, bool named)
{
    if (!named && !link->by_address)
        pp_info("link", "%s %s%s: connecting to %s", link->host,
                link->looking       ? "is not resolved in time"
                : *link->unresolved ? "is not resolved: "
                                    : "does not lead to the operator",
                link->looking ? "" : link->unresolved, address);
    link->by_address = !named;
}

/*
 * libwebsockets waits for the answer to the upgrade for ever, where the other side has gone without
 * a word. The connection is given up: its end, which this brings about, is no news any more.
 */
static void on_late(uv_timer_t *timer)
{
    pp_link *link = timer->data;
    if (link->wsi) {
        lws_set_opaque_user_data(link->wsi, link);
        (void)shutdown(lws_get_socket_fd(link->wsi), SHUT_RDWR);
    }
    pp_route_failed(&link->route);
    report_closed(link, 0, -1, "no answer");
}

/* To an address, but as the host's name: that is what the certificate has to be made out to. */
static void connect_to(pp_link *link, const char *address)
{
    struct lws_client_connect_info info = {
        .context = link->context,
        .vhost = link->vhost,
        .address = address,
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
    (void)uv_timer_start(&link->patience, on_late, ATTEMPT_MS, 0);
    if (lws_client_connect_via_info(&info))
        return;
    pp_route_failed(&link->route);
    report_closed(link, 0, -1, "the connection could not be begun");
}

static void set_out(pp_link *link)
{
    char why[400];
    bool named;
    const char *address = pp_route_next(&link->route, &named);
    (void)uv_timer_stop(&link->patience);
    if (address) {
        say_route(link, address, named);
        link->looking = false;
        connect_to(link, address);
        return;
    }
    (void)snprintf(why, sizeof why, "%s is not resolved: %s", link->host, link->unresolved);
    report_closed(link, 0, -1, why);
}

/* Also an answer that came too late for its attempt is good for the next. */
static void on_looked_up(void *user, const pp_route_list *found, const char *why)
{
    pp_link *link = user;
    const bool waited_for = link->looking;
    link->looking = false;
    link->route.found = *found;
    (void)snprintf(link->unresolved, sizeof link->unresolved, "%s", found->count ? "" : why);
    if (waited_for)
        set_out(link);
}

static void on_impatient(uv_timer_t *timer)
{
    set_out(timer->data);
}

void pp_link_connect(pp_link *link)
{
    pp_error err = {0};
    link->reported = false;
    link->clock_ahead = 0;
    if (read_token(link, &err) < 0 || renew_vhost(link, &err) < 0) {
        report_closed(link, 0, -1, err.message);
        return;
    }
    link->looking = true;
    if (pp_lookup_start(link->lookup, &err) < 0)
        on_looked_up(link, &(pp_route_list){0}, err.message);
    else if (link->route.given.count)
        (void)uv_timer_start(&link->patience, on_impatient, LOOKUP_MS, 0);
}

int64_t pp_link_clock_ahead(const pp_link *link)
{
    return link->clock_ahead;
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
    pp_lookup_stop(link->lookup);
    uv_close((uv_handle_t *)&link->patience, NULL);
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
