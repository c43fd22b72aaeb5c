/*
 * Which request goes where, by its path and method; lengths of bodies, and how long each stage may
 * last. What a path answers is in the other files.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/time.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 128 };

/** What is served where; reviews are besides. */
static const struct route {
    http_port port;
    const char *method;
    const char *path;
    void (*begin)(exchange *ex);
} routes[] = {
    {PORT_TLS, "GET", PP_WIRE_PATH, http_upgrade_begin},
    {PORT_PLAIN, "GET", "/metrics", http_metrics_begin},
    {PORT_PLAIN, "GET", "/healthz", http_healthz_begin},
    {PORT_PLAIN, "GET", "/readyz", http_readyz_begin},
};

/** The request's path and method; false when it has another method, or a path that long. */
static const char *read_request(struct lws *wsi, char *path, int size)
{
    static const struct {
        enum lws_token_indexes token;
        const char *method;
    } methods[] = {{WSI_TOKEN_GET_URI, "GET"}, {WSI_TOKEN_POST_URI, "POST"}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (lws_hdr_total_length(wsi, methods[i].token) > 0)
            return lws_hdr_copy(wsi, path, size, methods[i].token) > 0 ? methods[i].method : NULL;
    }
    return NULL;
}

/** Digits only: libwebsockets itself would take "-5", " 7" and "7x". */
static bool parse_length(const char *text, size_t *ret)
{
    size_t n = strlen(text);
    if (n < 1 || n > 12 || strspn(text, "0123456789") != n)
        return false;
    *ret = (size_t)strtoull(text, NULL, 10);
    return true;
}

/** Reads how long the body is, answering what cannot be taken; false when answered. */
static bool read_length(exchange *ex)
{
    struct lws *wsi = ex->peer.wsi;
    char text[32] = "";
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0) {
        ex->close = true; /* where its body ends is not known */
        http_exchange_answer_text(ex, 411, "", "a Content-Length is needed");
        return false;
    }
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0) {
        /* libwebsockets takes whatever follows another method for its body. */
        ex->close = lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) <= 0;
        return true;
    }
    if (lws_hdr_copy(wsi, text, sizeof text, WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0 ||
        !parse_length(text, &ex->expected)) {
        ex->close = true;
        http_exchange_answer_text(ex, 400, "", "Content-Length is not a number");
        return false;
    }
    return true;
}

/** Answers without reading the body that comes, if any: the connection ends with that. */
static void answer_early(exchange *ex, int status, const char *headers, const char *text)
{
    ex->close = ex->close || ex->expected > 0;
    http_exchange_answer_text(ex, status, headers, text);
}

/** A review: too large a one, as any other method, is answered without reading it. */
static void begin_review(exchange *ex, const char *method)
{
    if (strcmp(method, "POST") != 0)
        answer_early(ex, 405, "", "there is nothing here");
    else if (ex->expected > PP_HTTP_MAX_REVIEW)
        answer_early(ex, 413, "", "the body is too large");
    else
        http_review_begin(ex);
}

/** Whoever reaches the port on loopback is taken for its user; not so a page of somebody else's
 * that a browser there was sent to, under a name that leads to loopback. */
static bool host_is_loopback(struct lws *wsi)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    char host[64] = "";
    if (lws_hdr_copy(wsi, host, sizeof host, WSI_TOKEN_HOST) <= 0)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (host[n] == '\0' || host[n] == ':'))
            return true;
    }
    return false;
}

/** What is served on all ports but the plain one. */
static bool route_reader(exchange *ex)
{
    if (ex->port == PORT_PLAIN)
        return false;
    if (ex->port == PORT_OPEN && !host_is_loopback(ex->peer.wsi)) {
        answer_early(ex, 421, "", "this is localhost, by that name alone");
        return true;
    }
    if (!http_api_path(ex))
        return http_file_answered(ex);
    http_api_begin(ex);
    return true;
}

static void route_request(exchange *ex)
{
    char path[MAX_PATH];
    const char *method = read_request(ex->peer.wsi, path, sizeof path);
    bool found = false;
    if (!read_length(ex))
        return;
    if (route_reader(ex))
        return;
    if (method && ex->port == PORT_TLS && http_review_path(ex, path)) {
        begin_review(ex, method);
        return;
    }
    for (size_t i = 0; method && i < sizeof routes / sizeof *routes; i++) {
        if (routes[i].port != ex->port || strcmp(routes[i].path, path) != 0)
            continue;
        found = true;
        if (strcmp(routes[i].method, method) != 0)
            continue;
        if (ex->expected)
            answer_early(ex, 413, "", "the body is too large");
        else
            routes[i].begin(ex);
        return;
    }
    answer_early(ex, !method || found ? 405 : 404, "", "there is nothing here");
}

static int begin_request(struct lws *wsi, http_port port)
{
    if (http_exchange_of(wsi))
        return -1; /* a request behind an unanswered one */
    /* From here each stage has its own limit (http_exchange_enter); libwebsockets' would end the
     * connection amid a query, or an answer that is read slowly. */
    lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    exchange *ex = http_exchange_new(wsi, port);
    if (!ex)
        return -1;
    route_request(ex);
    return 0;
}

static int take_body(exchange *ex, const void *data, size_t len)
{
    if (ex->stage != STAGE_BODY)
        return 0;
    if (ex->body.len + len > ex->expected)
        return -1;
    return pp_buf_append(&ex->body, data, len, NULL);
}

/** A stage has lasted too long. libwebsockets also calls for timers of stages that are over. */
static int timer(exchange *ex)
{
    int64_t left = ex->deadline - pp_time_monotonic();
    if (left > 0) {
        lws_set_timer_usecs(ex->peer.wsi, left / 1000 + 1000);
        return 0;
    }
    switch (ex->stage) {
    case STAGE_BODY:
        ex->close = true;
        http_exchange_answer_text(ex, 408, "", "the body did not come in time");
        return 0;
    case STAGE_REVIEW:
        http_review_late(ex);
        return 0;
    case STAGE_AUTHORIZE:
        http_upgrade_late(ex);
        return 0;
    case STAGE_API:
        http_api_late(ex);
        return 0;
    case STAGE_ANSWER:
        break;
    }
    return -1;
}

int http_routing_callback(struct lws *wsi, enum lws_callback_reasons reason, void *in, size_t len,
                          http_port port)
{
    if (reason == LWS_CALLBACK_HTTP)
        return begin_request(wsi, port);
    exchange *ex = http_exchange_of(wsi);
    if (!ex)
        return 0;
    switch (reason) {
    case LWS_CALLBACK_HTTP_BODY:
        return take_body(ex, in, len);
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        if (ex->stage == STAGE_BODY)
            http_review_body(ex);
        return 0;
    case LWS_CALLBACK_HTTP_WRITEABLE:
        return ex->stage == STAGE_ANSWER ? http_exchange_write(ex) : 0;
    default:
        return timer(ex);
    }
}
