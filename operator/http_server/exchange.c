/*
 * One HTTP request and its answer, up to the last byte: in pieces, since a peer may drip or stop
 * reading.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEAD = 1024 };

exchange *http_exchange_of(struct lws *wsi)
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

exchange *http_exchange_new(struct lws *wsi, http_port port)
{
    pp_http_server *server = http_server_of(wsi);
    exchange *ex = calloc(1, sizeof *ex);
    if (!ex)
        return NULL;
    ex->peer =
        (peer){.kind = PEER_EXCHANGE, .id = http_next_id(server), .server = server, .wsi = wsi};
    ex->port = port;
    ex->began = pp_time_monotonic();
    pp_buf_init(&ex->body, PP_HTTP_MAX_REVIEW);
    peer *p = &ex->peer;
    HASH_ADD(hh, server->exchanges, id, sizeof p->id, p);
    lws_set_opaque_user_data(wsi, p);
    visitors_busy(server->visitors, wsi);
    return ex;
}

void http_exchange_free(exchange *ex)
{
    peer *p = &ex->peer;
    HASH_DEL(p->server->exchanges, p);
    if (ex->stage == STAGE_REVIEW || ex->stage == STAGE_API)
        ex->given_up(ex);
    p->server->review_bytes -= ex->reserved;
    p->server->api_bytes -= ex->api_bytes;
    pp_buf_done(&ex->body);
    free(ex->answer);
    if (ex->release)
        ex->release(ex->owner);
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
        {304, "Not Modified"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {421, "Misdirected Request"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {500, "Internal Server Error"},
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
    static const char *const ports[] = {
        [PORT_TLS] = "tls", [PORT_PLAIN] = "plain", [PORT_OPEN] = "open"};
    char labels[64];
    pp_metrics *metrics = ex->peer.server->options.metrics;
    if (!metrics)
        return;
    (void)snprintf(labels, sizeof labels, "code=\"%d\",port=\"%s\"", status, ports[ex->port]);
    pp_meter_add(pp_metrics_counter(metrics, "precisionprobe_http_requests_total",
                                    "HTTP requests answered.", labels, NULL),
                 1);
}

/** Head, and `copied` bytes of body behind it, of `len` in all. */
static void begin_answer(exchange *ex, int status, const char *type, const char *headers,
                         const char *body, size_t copied, size_t len)
{
    ex->close |= ex->peer.server->draining;
    ex->moved = pp_time_monotonic();
    char head[MAX_HEAD], length[48] = "";
    if (status != 304) /* which has no body, whatever its length would be */
        (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", len);
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%s%s%s\r\n", status,
                     reason_phrase(status), type, length, headers,
                     ex->close ? "Connection: close\r\n" : "");
    if (ex->head_only || status == 304)
        copied = len = 0;
    if (n > 0 && (size_t)n < sizeof head && len <= MAX_ANSWER)
        ex->answer = malloc(LWS_PRE + (size_t)n + copied);
    if (ex->answer) {
        (void)memcpy(ex->answer + LWS_PRE, head, (size_t)n);
        if (copied)
            (void)memcpy(ex->answer + LWS_PRE + n, body, copied);
        ex->head_len = (size_t)n;
        ex->answer_len = (size_t)n + len;
    } /* else nothing is written and the connection ends */
    count_answer(ex, status);
    visitors_idle(ex->peer.server->visitors, ex->peer.wsi, pp_time_monotonic());
    http_exchange_enter(ex, STAGE_ANSWER, ex->answer_timeout ? ex->answer_timeout : ANSWER_TIMEOUT);
    lws_callback_on_writable(ex->peer.wsi);
}

void http_exchange_answer(exchange *ex, int status, const char *type, const char *headers,
                          const char *body, size_t len)
{
    if (!ex->answer) /* each request gets one */
        begin_answer(ex, status, type, headers, body, len, len);
}

void http_exchange_answer_file(exchange *ex, int status, const char *type, const char *headers,
                               const unsigned char *body, size_t len)
{
    if (ex->answer)
        return;
    ex->file = body;
    begin_answer(ex, status, type, headers, NULL, 0, len);
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

/** Writes one piece: the head alone first, as libwebsockets wants to tell it from the body. 1: it
 * was the last; 0: more follows; -1: the connection is of no use. */
static int write_piece(exchange *ex)
{
    unsigned char piece[LWS_PRE + WRITE_PIECE]; /* libwebsockets writes before what it is given */
    bool head = ex->written == 0;
    size_t end = head ? ex->head_len : ex->answer_len;
    size_t n = end - ex->written < WRITE_PIECE ? end - ex->written : WRITE_PIECE;
    bool last = ex->written + n == ex->answer_len;
    enum lws_write_protocol how = head   ? LWS_WRITE_HTTP_HEADERS
                                  : last ? LWS_WRITE_HTTP_FINAL
                                         : LWS_WRITE_HTTP;
    unsigned char *from = head || !ex->file ? ex->answer + LWS_PRE + ex->written : piece + LWS_PRE;
    if (!head && ex->file)
        (void)memcpy(from, ex->file + (ex->written - ex->head_len), n);
    if (lws_write(ex->peer.wsi, from, n, how) < (int)n)
        return -1;
    ex->written += n;
    ex->moved = pp_time_monotonic();
    return last;
}

/** Some pieces, as long as the peer takes them: a turn of the loop costs more than a piece. */
int http_exchange_write(exchange *ex)
{
    if (!ex->answer)
        return -1;
    for (int i = 0; i < TURN_PIECES; i++) {
        const int rc = write_piece(ex);
        if (rc < 0)
            return -1;
        if (rc > 0)
            return finish(ex);
        if (lws_send_pipe_choked(ex->peer.wsi))
            break;
    }
    lws_callback_on_writable(ex->peer.wsi);
    return 0;
}
