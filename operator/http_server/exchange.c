/*
 * One HTTP request, from its headers to the last byte of its answer: which path goes where, lengths
 * and deadlines, since a peer may drip or stop reading. What a path answers is in the other files.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 128, MAX_HEAD = 1024 };

/** What is served where. */
static const struct route {
    bool plain;
    const char *method;
    const char *path;
    void (*begin)(exchange *ex);
} routes[] = {
    {false, "POST", "/mutate-pods", http_review_begin},
    {false, "POST", "/mutate-pods/labelled", http_review_labelled_begin},
    {false, "GET", PP_WIRE_PATH, http_upgrade_begin},
    {true, "GET", "/metrics", http_metrics_begin},
    {true, "GET", "/healthz", http_healthz_begin},
    {true, "GET", "/readyz", http_readyz_begin},
};

static exchange *exchange_of(struct lws *wsi)
{
    peer *p = lws_get_opaque_user_data(wsi);
    return p && p->kind == PEER_EXCHANGE ? (exchange *)p : NULL;
}

exchange *http_exchange_find(pp_http_server *server, pp_http_id id)
{
    peer *p = NULL;
    HASH_FIND(hh, server->exchanges, &id, sizeof id, p);
    return (exchange *)p;
}

static exchange *exchange_new(struct lws *wsi, bool plain)
{
    pp_http_server *server = http_server_of(wsi);
    exchange *ex = calloc(1, sizeof *ex);
    if (!ex)
        return NULL;
    ex->peer =
        (peer){.kind = PEER_EXCHANGE, .id = http_next_id(server), .server = server, .wsi = wsi};
    ex->plain = plain;
    ex->began = pp_time_monotonic();
    pp_buf_init(&ex->body, PP_HTTP_MAX_REVIEW);
    peer *p = &ex->peer;
    HASH_ADD(hh, server->exchanges, id, sizeof p->id, p);
    lws_set_opaque_user_data(wsi, p);
    return ex;
}

void http_exchange_free(exchange *ex)
{
    peer *p = &ex->peer;
    HASH_DEL(p->server->exchanges, p);
    pp_buf_done(&ex->body);
    free(ex->answer);
    free(ex);
}

void http_exchange_enter(exchange *ex, exchange_stage stage, int64_t timeout)
{
    ex->stage = stage;
    ex->deadline = pp_time_monotonic() + timeout;
    lws_set_timer_usecs(ex->peer.wsi, timeout / 1000 + 1000);
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static const char *reason_phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } known[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {426, "Upgrade Required"},
        {503, "Service Unavailable"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].status == status)
            return known[i].phrase;
    }
    return "Error";
}

static void count_answer(const exchange *ex, int status)
{
    char labels[64];
    pp_metrics *metrics = ex->peer.server->options.metrics;
    if (!metrics)
        return;
    (void)snprintf(labels, sizeof labels, "code=\"%d\",port=\"%s\"", status,
                   ex->plain ? "plain" : "tls");
    pp_meter_add(pp_metrics_counter(metrics, "precisionprobe_http_requests_total",
                                    "HTTP requests answered.", labels, NULL),
                 1);
}

void http_exchange_answer(exchange *ex, int status, const char *type, const char *headers,
                          const char *body, size_t len)
{
    if (ex->answer) /* each request gets one */
        return;
    char head[MAX_HEAD];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s\r\n",
                     status, reason_phrase(status), type, len, headers,
                     ex->close ? "Connection: close\r\n" : "");
    if (n > 0 && (size_t)n < sizeof head && len <= MAX_ANSWER)
        ex->answer = malloc(LWS_PRE + (size_t)n + len);
    if (ex->answer) {
        (void)memcpy(ex->answer + LWS_PRE, head, (size_t)n);
        if (len)
            (void)memcpy(ex->answer + LWS_PRE + n, body, len);
        ex->head_len = (size_t)n;
        ex->answer_len = (size_t)n + len;
    } /* else nothing is written and the connection ends */
    count_answer(ex, status);
    http_exchange_enter(ex, STAGE_ANSWER, ANSWER_TIMEOUT);
    lws_callback_on_writable(ex->peer.wsi);
}

void http_exchange_answer_text(exchange *ex, int status, const char *headers, const char *text)
{
    char body[512];
    int n = snprintf(body, sizeof body, "%s\n", text);
    size_t len = n < (int)sizeof body ? (size_t)n : sizeof body - 1;
    http_exchange_answer(ex, status, "text/plain; charset=utf-8", headers, body, len);
}

/** After the last byte: on to the next request, or the end of the connection. */
static int finish(exchange *ex)
{
    struct lws *wsi = ex->peer.wsi;
    bool close = ex->close;
    lws_set_opaque_user_data(wsi, NULL);
    http_exchange_free(ex);
    if (close)
        return -1;
    return lws_http_transaction_completed(wsi) ? -1 : 0;
}

/** Writes one piece: the head alone first, as libwebsockets wants to tell it from the body. */
static int write_piece(exchange *ex)
{
    if (!ex->answer)
        return -1;
    bool head = ex->written == 0;
    size_t end = head ? ex->head_len : ex->answer_len;
    size_t n = end - ex->written < WRITE_PIECE ? end - ex->written : WRITE_PIECE;
    bool last = ex->written + n == ex->answer_len;
    enum lws_write_protocol how = head   ? LWS_WRITE_HTTP_HEADERS
                                  : last ? LWS_WRITE_HTTP_FINAL
                                         : LWS_WRITE_HTTP;
    if (lws_write(ex->peer.wsi, ex->answer + LWS_PRE + ex->written, n, how) < (int)n)
        return -1;
    ex->written += n;
    if (last)
        return finish(ex);
    lws_callback_on_writable(ex->peer.wsi);
    return 0;
}

/* ---- requests ----------------------------------------------------------------------------------
 */

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

static void route_request(exchange *ex)
{
    char path[MAX_PATH];
    const char *method = read_request(ex->peer.wsi, path, sizeof path);
    bool found = false;
    if (!read_length(ex))
        return;
    for (size_t i = 0; method && i < sizeof routes / sizeof *routes; i++) {
        if (routes[i].plain != ex->plain || strcmp(routes[i].path, path) != 0)
            continue;
        found = true;
        if (strcmp(routes[i].method, method) != 0)
            continue;
        if (ex->expected > (strcmp(method, "POST") == 0 ? PP_HTTP_MAX_REVIEW : 0))
            answer_early(ex, 413, "", "the body is too large");
        else
            routes[i].begin(ex);
        return;
    }
    answer_early(ex, !method || found ? 405 : 404, "", "there is nothing here");
}

static int begin_request(struct lws *wsi, bool plain)
{
    if (exchange_of(wsi))
        return -1; /* a request behind an unanswered one */
    exchange *ex = exchange_new(wsi, plain);
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
    case STAGE_ANSWER:
        break;
    }
    return -1;
}

int http_exchange_callback(struct lws *wsi, enum lws_callback_reasons reason, void *in, size_t len,
                           bool plain)
{
    if (reason == LWS_CALLBACK_HTTP)
        return begin_request(wsi, plain);
    exchange *ex = exchange_of(wsi);
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
        return ex->stage == STAGE_ANSWER ? write_piece(ex) : 0;
    default:
        return timer(ex);
    }
}
