#include "sidecar/agent/events_server.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "sidecar/agent/openapi.h"

#include <libwebsockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECTIONS_MAX = 32,
    HEADERS_MAX = 4096,
    BODY_S = 10, /* for a body, from its head on */
    IDLE_S = 60, /* a connection that is kept */
    RETRY_AFTER_S = 1,
    PIECE = 16 << 10,
};

struct pp_events_server {
    struct lws_context *context;
    struct lws_protocols protocols[2];
    pp_events_server_post post;
    void *user;
    size_t connections;
};

/* One request and its answer. */
typedef struct exchange {
    size_t expected;
    pp_buf body;
    bool reading;
    bool close;   /* what follows on the connection is not to be understood */
    char *answer; /* LWS_PRE bytes, head, body */
    size_t head;
    size_t length;
    size_t written;
} exchange;

static void free_exchange(struct lws *wsi)
{
    exchange *x = lws_get_opaque_user_data(wsi);
    lws_set_opaque_user_data(wsi, NULL);
    if (!x)
        return;
    pp_buf_done(&x->body);
    free(x->answer);
    free(x);
}

/* ---- answers ---- */

static const char *phrase_of(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } known[] = {
        {200, "OK"},
        {202, "Accepted"},
        {400, "Bad Request"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {503, "Service Unavailable"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].status == status)
            return known[i].phrase;
    }
    return "Internal Server Error";
}

static void answer(struct lws *wsi, exchange *x, int status, const char *type, const char *headers,
                   const char *body, size_t n)
{
    char head[512];
    int m = snprintf(
        head, sizeof head, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s\r\n",
        status, phrase_of(status), type, n, headers, x->close ? "Connection: close\r\n" : "");
    x->reading = false;
    x->answer = m > 0 && (size_t)m < sizeof head ? malloc(LWS_PRE + (size_t)m + n) : NULL;
    if (x->answer) {
        memcpy(x->answer + LWS_PRE, head, (size_t)m);
        memcpy(x->answer + LWS_PRE + m, body, n);
        x->head = (size_t)m;
        x->length = (size_t)m + n;
    } /* else nothing is written and the connection ends */
    lws_set_timer_usecs(wsi, (lws_usec_t)BODY_S * LWS_US_PER_SEC);
    lws_callback_on_writable(wsi);
}

/* Takes the object over. */
static void answer_json(struct lws *wsi, exchange *x, int status, const char *headers,
                        json_t *object)
{
    PP_CLEANUP_JSON json_t *owned = object;
    PP_CLEANUP_FREE char *text = owned ? json_dumps(owned, JSON_COMPACT) : NULL;
    const char *body = text ? text : "{\"field\":\"\",\"message\":\"out of memory\"}";
    answer(wsi, x, text ? status : 500, "application/json", headers, body, strlen(body));
}

static void refuse(struct lws *wsi, exchange *x, int status, const char *headers, const char *field,
                   const char *message)
{
    answer_json(wsi, x, status, headers,
                json_pack("{s:s, s:s}", "field", field, "message", message));
}

/* Before a body that comes is read: it ends the connection. */
static void refuse_early(struct lws *wsi, exchange *x, int status, const char *headers,
                         const char *message)
{
    x->close = x->close || x->expected > 0;
    refuse(wsi, x, status, headers, "", message);
}

static int write_piece(struct lws *wsi, exchange *x)
{
    if (!x->answer)
        return x->reading ? 0 : -1;
    /* The head goes alone: libwebsockets wants to tell it from the body. */
    const size_t end = x->written == 0 ? x->head : x->length;
    const size_t n = end - x->written < PIECE ? end - x->written : PIECE;
    const bool last = x->written + n == x->length;
    const enum lws_write_protocol how = x->written == 0 ? LWS_WRITE_HTTP_HEADERS
                                        : last          ? LWS_WRITE_HTTP_FINAL
                                                        : LWS_WRITE_HTTP;
    if (lws_write(wsi, (unsigned char *)x->answer + LWS_PRE + x->written, n, how) < (int)n)
        return -1;
    x->written += n;
    if (!last) {
        lws_callback_on_writable(wsi);
        return 0;
    }
    const bool close = x->close;
    free_exchange(wsi);
    return close || lws_http_transaction_completed(wsi) ? -1 : 0;
}

/* ---- requests ---- */

/* Digits only: libwebsockets itself would take "-5" and "7x". */
static int read_length(struct lws *wsi, exchange *x)
{
    char text[32] = "";
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0) {
        /* It takes whatever follows a method other than GET for its body. */
        x->close = lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) <= 0;
        return lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0 ? 411 : 0;
    }
    int n = lws_hdr_copy(wsi, text, sizeof text, WSI_TOKEN_HTTP_CONTENT_LENGTH);
    if (n < 1 || n > 12 || strspn(text, "0123456789") != (size_t)n) {
        x->close = true;
        return 400;
    }
    x->expected = (size_t)strtoull(text, NULL, 10);
    return 0;
}

static void begin_post(struct lws *wsi, exchange *x)
{
    if (x->close)
        refuse_early(wsi, x, 411, "", "a Content-Length is needed");
    else if (x->expected > PP_EVENTS_BODY)
        refuse_early(wsi, x, 413, "", "the body has more than 1 MiB");
    else if (x->expected == 0)
        refuse_early(wsi, x, 400, "", "the body is empty");
    else {
        x->reading = true;
        lws_set_timer_usecs(wsi, (lws_usec_t)BODY_S * LWS_US_PER_SEC);
    }
}

static void route(struct lws *wsi, exchange *x)
{
    char path[128] = "";
    const bool get = lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) > 0;
    const bool post = lws_hdr_total_length(wsi, WSI_TOKEN_POST_URI) > 0;
    const int wrong = read_length(wsi, x);
    if (get || post)
        (void)lws_hdr_copy(wsi, path, sizeof path, get ? WSI_TOKEN_GET_URI : WSI_TOKEN_POST_URI);
    const bool events = strcmp(path, "/v1/events") == 0;
    const bool openapi = strcmp(path, "/openapi.yaml") == 0;
    if (wrong)
        refuse_early(wsi, x, wrong, "", "a Content-Length is needed, a number");
    else if (events && post)
        begin_post(wsi, x);
    else if (openapi && get)
        answer(wsi, x, 200, "application/yaml", "", pp_openapi, strlen(pp_openapi));
    else if (events || openapi || (!get && !post))
        refuse_early(wsi, x, 405, openapi ? "Allow: GET\r\n" : "Allow: POST\r\n",
                     "this method is not served here");
    else
        refuse_early(wsi, x, 404, "", "there is nothing here");
}

static int begin(struct lws *wsi)
{
    if (lws_get_opaque_user_data(wsi))
        return -1; /* a request behind an unanswered one */
    exchange *x = calloc(1, sizeof *x);
    if (!x)
        return -1;
    pp_buf_init(&x->body, PP_EVENTS_BODY);
    lws_set_opaque_user_data(wsi, x);
    /* libwebsockets' own limit for a body would end the connection before it is answered. */
    lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    route(wsi, x);
    return 0;
}

static int take_body(exchange *x, const void *data, size_t n)
{
    if (!x->reading)
        return 0;
    return x->body.len + n > x->expected ? -1 : pp_buf_append(&x->body, data, n, NULL);
}

static void take_post(const pp_events_server *server, struct lws *wsi, exchange *x)
{
    char later[32];
    pp_events_answer told;
    server->post(server->user, x->body.data ? x->body.data : "", x->body.len, &told);
    (void)snprintf(later, sizeof later, "Retry-After: %d\r\n", RETRY_AFTER_S);
    if (told.status == 202)
        answer_json(wsi, x, 202, "",
                    json_pack("{s:I, s:b}", "accepted", (json_int_t)told.accepted, "sampling",
                              told.sampling));
    else
        refuse(wsi, x, told.status, told.status == 429 ? later : "", told.error.field,
               told.error.message);
}

/* A body that drips, or a reader that does not read. */
static int expire(struct lws *wsi, exchange *x)
{
    if (!x->reading)
        return x->answer ? -1 : 0;
    x->close = true;
    refuse(wsi, x, 408, "", "", "the body did not come in time");
    return 0;
}

static int on_exchange(const pp_events_server *server, struct lws *wsi,
                       enum lws_callback_reasons reason, const void *in, size_t n)
{
    exchange *x = lws_get_opaque_user_data(wsi);
    if (!x)
        return 0;
    switch (reason) {
    case LWS_CALLBACK_HTTP_BODY:
        return take_body(x, in, n);
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        if (x->reading)
            take_post(server, wsi, x);
        return 0;
    case LWS_CALLBACK_HTTP_WRITEABLE:
        return write_piece(wsi, x);
    default:
        return expire(wsi, x);
    }
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t n)
{
    pp_events_server *server = lws_context_user(lws_get_context(wsi));
    (void)user;
    switch (reason) {
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
        *(char *)in = '-'; /* to nothing: it goes on as an ordinary request */
        return 0;
    case LWS_CALLBACK_FILTER_NETWORK_CONNECTION:
        return server->connections >= CONNECTIONS_MAX;
    case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
        server->connections++;
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        server->connections -= server->connections > 0;
        free_exchange(wsi);
        return 0;
    case LWS_CALLBACK_CLOSED_HTTP:
        free_exchange(wsi);
        return 0;
    case LWS_CALLBACK_HTTP:
        return begin(wsi);
    case LWS_CALLBACK_HTTP_BODY:
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
    case LWS_CALLBACK_HTTP_WRITEABLE:
    case LWS_CALLBACK_TIMER:
        return on_exchange(server, wsi, reason, in, n);
    default:
        return 0;
    }
}

/* ---- life ---- */

static int listen_on(pp_events_server *server, uv_loop_t *loop, int port, pp_error *err)
{
    void *loops[] = {loop};
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .foreign_loops = loops,
        .user = server,
        .max_http_header_data = HEADERS_MAX,
        .max_http_header_pool = CONNECTIONS_MAX,
        .pt_serv_buf_size = 2 * PIECE,
        .timeout_secs = BODY_S,
    };
    server->context = lws_create_context(&info);
    if (!server->context)
        return pp_error_set(err, PP_ERR_INTERNAL,
                            "no libwebsockets context (is libwebsockets-evlib-uv installed?)");
    server->protocols[0] = (struct lws_protocols){.name = "http", .callback = on_event};
    struct lws_context_creation_info vhost = {
        .vhost_name = "events",
        .port = port,
        .iface = "127.0.0.1",
        .protocols = server->protocols,
        .keepalive_timeout = IDLE_S,
        .timeout_secs = BODY_S,
        .options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND |
                   LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS |
                   LWS_SERVER_OPTION_DISABLE_IPV6, /* else it takes no notice of the address */
        .user = server,
    };
    if (!lws_create_vhost(server->context, &vhost))
        return pp_error_set(err, PP_ERR_IO, "cannot listen on port %d", port);
    return 0;
}

int pp_events_server_new(uv_loop_t *loop, int port, pp_events_server_post post, void *user,
                         pp_events_server **ret, pp_error *err)
{
    pp_events_server *server = *ret = calloc(1, sizeof *server);
    if (!server)
        return pp_error_nomem(err);
    server->post = post;
    server->user = user;
    lws_set_log_level(0, NULL);
    if (listen_on(server, loop, port, err) == 0)
        return 0;
    pp_events_server_stop(server);
    return -1;
}

void pp_events_server_stop(pp_events_server *server)
{
    if (server && server->context)
        lws_context_destroy(server->context);
}

/* libwebsockets frees what it had on a foreign loop only in a second call, after the loop ran. */
void pp_events_server_free(pp_events_server *server)
{
    if (!server)
        return;
    if (server->context)
        lws_context_destroy(server->context);
    free(server);
}
