/* The HTTP client against a small HTTP/1.1 server that runs on the same loop; and one over TLS. */
#include "operator/http_client/http_client.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/time.h"
#include "operator/http_server/certificates.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- server ---- */

typedef struct server {
    uv_tcp_t listener;
    int port;
    unsigned accepted;
    struct peer *peers;
} server;

typedef struct peer {
    uv_tcp_t tcp;
    uv_timer_t timer;
    server *server;
    struct peer *next;
    char in[65536];
    size_t n;
    int piece;
    int handles;
} peer;

typedef struct write_out {
    uv_write_t req;
    char *data;
} write_out;

static void on_written(uv_write_t *req, int status)
{
    (void)status;
    write_out *w = (write_out *)req;
    free(w->data);
    free(w);
}

static void peer_send(peer *p, const char *data, size_t n)
{
    write_out *w = calloc(1, sizeof *w);
    w->data = malloc(n);
    memcpy(w->data, data, n);
    uv_buf_t buf = uv_buf_init(w->data, (unsigned)n);
    uv_write(&w->req, (uv_stream_t *)&p->tcp, &buf, 1, on_written);
}

static void peer_text(peer *p, const char *text)
{
    peer_send(p, text, strlen(text));
}

static void on_peer_closed(uv_handle_t *h)
{
    peer *p = h->data;
    if (--p->handles > 0)
        return;
    for (peer **at = &p->server->peers; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    free(p);
}

static void peer_close(peer *p)
{
    if (uv_is_closing((uv_handle_t *)&p->tcp))
        return;
    uv_close((uv_handle_t *)&p->tcp, on_peer_closed);
    uv_close((uv_handle_t *)&p->timer, on_peer_closed);
}

static void on_piece(uv_timer_t *timer)
{
    peer *p = timer->data;
    char text[64];
    if (p->piece == 5) {
        peer_text(p, "0\r\n\r\n");
        uv_timer_stop(timer);
        return;
    }
    int n = snprintf(text, sizeof text, "7\r\npiece-%d\r\n", p->piece++);
    peer_send(p, text, (size_t)n);
}

static void answer_huge(peer *p)
{
    enum { SIZE = 3145728 };
    char *body = malloc(SIZE);
    memset(body, 'x', SIZE);
    peer_text(p, "HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n");
    peer_send(p, body, SIZE);
    free(body);
}

static void answer_echo(peer *p)
{
    char head[128];
    int n = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", p->n);
    peer_send(p, head, (size_t)n);
    peer_send(p, p->in, p->n);
}

static void answer(peer *p)
{
    char path[64] = "";
    (void)sscanf(p->in, "%*s %63s", path);
    if (strcmp(path, "/hello") == 0)
        peer_text(p,
                  "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello");
    else if (strcmp(path, "/busy") == 0)
        peer_text(p, "HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy");
    else if (strcmp(path, "/never") == 0)
        peer_text(p, "HTTP/1.1 429 Too Many\r\nRetry-After: 9223372036854775807\r\n"
                     "Content-Length: 0\r\n\r\n");
    else if (strcmp(path, "/echo") == 0)
        answer_echo(p);
    else if (strcmp(path, "/huge") == 0)
        answer_huge(p);
    else if (strcmp(path, "/chunks") == 0) {
        peer_text(p, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        p->piece = 0;
        uv_timer_start(&p->timer, on_piece, 1, 2);
    } else if (strcmp(path, "/die") == 0) {
        peer_text(p, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart of it");
        uv_tcp_close_reset(&p->tcp, on_peer_closed);
        uv_close((uv_handle_t *)&p->timer, on_peer_closed);
    }
    /* "/silent" gets nothing */
}

static bool whole_request(const peer *p)
{
    const char *end = strstr(p->in, "\r\n\r\n");
    if (!end)
        return false;
    const char *length = strcasestr(p->in, "content-length: ");
    size_t body = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    return p->n >= (size_t)(end + 4 - p->in) + body;
}

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *buf)
{
    (void)want;
    peer *p = h->data;
    *buf = uv_buf_init(p->in + p->n, (unsigned)(sizeof p->in - 1 - p->n));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    peer *p = stream->data;
    if (n < 0) {
        peer_close(p);
        return;
    }
    p->n += (size_t)n;
    p->in[p->n] = '\0';
    if (whole_request(p)) {
        answer(p);
        p->n = 0;
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    assert_int_equal(status, 0);
    server *s = listener->data;
    peer *p = calloc(1, sizeof *p);
    p->server = s;
    p->handles = 2;
    uv_tcp_init(listener->loop, &p->tcp);
    uv_timer_init(listener->loop, &p->timer);
    p->tcp.data = p->timer.data = p;
    p->next = s->peers;
    s->peers = p;
    s->accepted++;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&p->tcp), 0);
    uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_read);
}

static void server_start(server *s, uv_loop_t *loop)
{
    struct sockaddr_in address;
    int n = sizeof address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &s->listener);
    s->listener.data = s;
    assert_int_equal(uv_tcp_bind(&s->listener, (struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&s->listener, 16, on_connection), 0);
    uv_tcp_getsockname(&s->listener, (struct sockaddr *)&address, &n);
    s->port = ntohs(address.sin_port);
}

static void server_stop(server *s)
{
    uv_close((uv_handle_t *)&s->listener, NULL);
    for (peer *p = s->peers; p; p = p->next)
        peer_close(p);
}

/* ---- one test's world ---- */

typedef struct world {
    uv_loop_t loop;
    server server;
    pp_http_client *client;
    char url[128];
    int done;
    int chunks;
    int status;
    int64_t retry_after_ms;
    pp_error error;
    pp_buf got;
    pp_http_client_id id;
    pp_http_client_id other;
    int cancel_at; /* chunk at which to cancel itself; 0: never */
    int free_at;   /* chunk at which to free the client */
    int refuse_at; /* chunk at which to return an error */
    int send_at;   /* chunk at which to send another request */
    int left;      /* requests to repeat from the done callback */
} world;

static const char *url(world *w, const char *path)
{
    (void)snprintf(w->url, sizeof w->url, "http://127.0.0.1:%d%s", w->server.port, path);
    return w->url;
}

static int setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    uv_loop_init(&w->loop);
    server_start(&w->server, &w->loop);
    pp_buf_init(&w->got, 1 << 20);
    w->client = pp_http_client_new(&w->loop, NULL, NULL);
    assert_non_null(w->client);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    pp_http_client_free(w->client);
    server_stop(&w->server);
    /* A handle that somebody forgot would make this run for ever, and the close fail. */
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    pp_buf_done(&w->got);
    free(w);
    return 0;
}

static void run_until_done(world *w, int count)
{
    while (w->done < count && uv_run(&w->loop, UV_RUN_ONCE))
        continue;
    assert_int_equal(w->done, count);
}

static void on_done(void *user, pp_http_client_id id, const pp_http_client_response *response,
                    const pp_error *error)
{
    world *w = user;
    assert_true(id != 0);
    w->done++;
    uv_stop(&w->loop); /* a timer's turn of UV_RUN_ONCE would wait for a descriptor after it */
    w->status = response->status;
    w->retry_after_ms = response->retry_after_ms;
    w->error = error ? *error : (pp_error){0};
    assert_int_equal(strlen(response->body), response->body_len);
    (void)pp_buf_append(&w->got, response->body, response->body_len, NULL);
}

static int on_chunk(void *user, pp_http_client_id id, int status, const char *data, size_t n,
                    pp_error *err)
{
    world *w = user;
    assert_int_equal(status, 200);
    w->chunks++;
    (void)pp_buf_append(&w->got, data, n, NULL);
    if (w->chunks == w->cancel_at)
        pp_http_client_cancel(w->client, id);
    if (w->chunks == w->cancel_at && w->other)
        pp_http_client_cancel(w->client, w->other);
    if (w->chunks == w->send_at) {
        pp_http_client_request request = {.url = url(w, "/hello"), .done = on_done, .user = w};
        assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    }
    if (w->chunks == w->free_at) {
        pp_http_client_free(w->client);
        w->client = NULL;
    }
    if (w->chunks == w->refuse_at)
        return pp_error_set(err, PP_ERR_GONE, "enough of it");
    return 0;
}

static void send_get(world *w, const char *path, pp_http_client_chunk_fn chunk)
{
    pp_http_client_request request = {
        .url = url(w, path), .chunk = chunk, .done = on_done, .user = w, .timeout_ms = 120000};
    pp_error err = {0};
    int rc = pp_http_client_send(w->client, &request, &w->id, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(rc, 0);
    assert_true(w->id != 0);
    assert_int_equal(w->done, 0); /* never before it returned */
}

static void test_get(void **state)
{
    world *w = *state;
    send_get(w, "/hello", NULL);
    assert_int_equal(pp_http_client_active(w->client), 1);
    run_until_done(w, 1);
    assert_int_equal(w->status, 200);
    assert_int_equal(w->error.code, PP_OK);
    assert_string_equal(w->got.data, "hello");
    assert_int_equal(pp_http_client_active(w->client), 0);
}

static void test_status_is_no_error(void **state)
{
    world *w = *state;
    send_get(w, "/busy", on_chunk); /* streamed or not: the body of a refusal comes whole */
    run_until_done(w, 1);
    assert_int_equal(w->status, 429);
    assert_int_equal(w->error.code, PP_OK);
    assert_int_equal(w->retry_after_ms, 7000);
    assert_int_equal(w->chunks, 0);
    assert_string_equal(w->got.data, "busy");
}

/* A server may name any time. */
static void test_retry_after_is_bounded(void **state)
{
    world *w = *state;
    send_get(w, "/never", NULL);
    run_until_done(w, 1);
    assert_int_equal(w->status, 429);
    assert_int_equal(w->retry_after_ms, 86400000);
}

static void test_request_as_sent(void **state)
{
    world *w = *state;
    const char *headers[] = {"Content-Type: application/json", NULL};
    char body[] = "{\"a\":1}";
    pp_http_client_request request = {.method = "PATCH",
                                      .url = url(w, "/echo"),
                                      .headers = headers,
                                      .bearer_token = "tok",
                                      .body = body,
                                      .body_len = strlen(body),
                                      .done = on_done,
                                      .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    memset(body, '?', strlen(body)); /* it was copied */
    run_until_done(w, 1);
    assert_non_null(strstr(w->got.data, "PATCH /echo HTTP/1.1\r\n"));
    assert_non_null(strstr(w->got.data, "Authorization: Bearer tok\r\n"));
    assert_non_null(strstr(w->got.data, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(w->got.data, "\r\n\r\n{\"a\":1}"));
    assert_null(strstr(w->got.data, "Expect:"));
}

static void test_methods_without_body(void **state)
{
    world *w = *state;
    pp_http_client_request request = {
        .method = "DELETE", .url = url(w, "/echo"), .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 1);
    assert_non_null(strstr(w->got.data, "DELETE /echo"));
    request.method = "POST";
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 2);
    assert_non_null(strstr(w->got.data, "POST /echo"));
    assert_non_null(strstr(w->got.data, "Content-Length: 0"));
}

/* Where the URL's host is not, and to a port that it does not name. */
static void test_connects_elsewhere(void **state)
{
    world *w = *state;
    char there[64];
    (void)snprintf(there, sizeof there, "127.0.0.1:%d", w->server.port);
    const pp_http_client_request request = {
        .url = "http://nowhere.invalid/echo", .connect_to = there, .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_OK);
    assert_non_null(strstr(w->got.data, "Host: nowhere.invalid"));
}

static void test_stream(void **state)
{
    world *w = *state;
    send_get(w, "/chunks", on_chunk);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_OK);
    assert_true(w->chunks > 1); /* as it arrives, not at the end */
    assert_string_equal(w->got.data, "piece-0piece-1piece-2piece-3piece-4");
}

static void test_cancel_in_chunk(void **state)
{
    world *w = *state;
    send_get(w, "/silent", NULL);
    w->other = w->id;
    w->cancel_at = 2;
    send_get(w, "/chunks", on_chunk);
    while (pp_http_client_active(w->client) > 0 && uv_run(&w->loop, UV_RUN_ONCE))
        continue;
    for (int i = 0; i < 20; i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(w->chunks, 2);
    assert_int_equal(w->done, 0);
}

static void test_cancel_outside(void **state)
{
    world *w = *state;
    send_get(w, "/silent", NULL);
    for (int i = 0; i < 20; i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
    pp_http_client_cancel(w->client, w->id);
    pp_http_client_cancel(w->client, w->id);
    pp_http_client_cancel(w->client, 999);
    assert_int_equal(pp_http_client_active(w->client), 0);
    send_get(w, "/hello", NULL);
    run_until_done(w, 1); /* the client lives on */
}

static void test_send_in_chunk(void **state)
{
    world *w = *state;
    w->send_at = 1;
    send_get(w, "/chunks", on_chunk);
    run_until_done(w, 2);
    assert_int_equal(w->error.code, PP_OK);
    assert_non_null(strstr(w->got.data, "hello"));
}

static void test_free_in_chunk(void **state)
{
    world *w = *state;
    send_get(w, "/silent", NULL);
    w->free_at = 1;
    send_get(w, "/chunks", on_chunk);
    while (w->client && uv_run(&w->loop, UV_RUN_ONCE))
        continue;
    assert_int_equal(w->chunks, 1);
    assert_int_equal(w->done, 0);
}

static void free_in_done(void *user, pp_http_client_id id, const pp_http_client_response *response,
                         const pp_error *error)
{
    world *w = user;
    on_done(user, id, response, error);
    pp_http_client_free(w->client);
    w->client = NULL;
}

static void test_free_in_done(void **state)
{
    world *w = *state;
    send_get(w, "/silent", NULL);
    pp_http_client_request request = {.url = url(w, "/hello"), .done = free_in_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 1);
}

static void test_chunk_refuses(void **state)
{
    world *w = *state;
    w->refuse_at = 2;
    send_get(w, "/chunks", on_chunk);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_ERR_GONE);
    assert_string_equal(w->error.message, "enough of it");
    assert_int_equal(w->status, 200);
}

static void test_timeout(void **state)
{
    world *w = *state;
    pp_http_client_request request = {
        .url = url(w, "/silent"), .timeout_ms = 50, .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_ERR_TIMEOUT);
    assert_int_equal(w->status, 0);
}

static void test_body_limit(void **state)
{
    world *w = *state;
    pp_http_client_request request = {
        .url = url(w, "/huge"), .max_body = 100000, .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_ERR_TOO_LARGE);
    assert_true(w->got.len <= 100000);
    request.max_body = 4194304;
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 2);
    assert_int_equal(w->error.code, PP_OK);
}

static void test_server_dies(void **state)
{
    world *w = *state;
    send_get(w, "/die", on_chunk);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_ERR_UNAVAILABLE);
    assert_true(pp_error_retryable(&w->error));
}

static void test_nobody_listens(void **state)
{
    world *w = *state;
    pp_http_client_request request = {.url = "http://127.0.0.1:1/", .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_ERR_UNAVAILABLE);
}

static void repeat(void *user, pp_http_client_id id, const pp_http_client_response *response,
                   const pp_error *error)
{
    world *w = user;
    on_done(user, id, response, error);
    if (--w->left > 0) {
        pp_http_client_request request = {.url = w->url, .done = repeat, .user = w};
        assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    }
}

static void test_connection_is_kept(void **state)
{
    world *w = *state;
    w->left = 50;
    pp_http_client_request request = {.url = url(w, "/hello"), .done = repeat, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, 50);
    assert_int_equal(w->server.accepted, 1);
    assert_int_equal(pp_http_client_connections(w->client), 1);
}

static void test_connections_are_limited(void **state)
{
    world *w = *state;
    for (int i = 0; i < 40; i++) {
        pp_http_client_request request = {.url = url(w, "/hello"), .done = on_done, .user = w};
        assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    }
    run_until_done(w, 40);
    assert_true(w->server.accepted <= 32);
}

static void test_bad_requests(void **state)
{
    world *w = *state;
    pp_error err = {0};
    const char *split[] = {"X: a\r\nInjected: b", NULL};
    pp_http_client_request requests[] = {
        {.url = NULL, .done = on_done},
        {.url = "http://127.0.0.1/\r\nX: y", .done = on_done},
        {.url = "http://127.0.0.1/", .done = NULL},
        {.url = "http://127.0.0.1/", .done = on_done, .headers = split},
        {.url = "http://127.0.0.1/", .done = on_done, .bearer_token = "a\nb"},
        {.url = "http://127.0.0.1/", .done = on_done, .timeout_ms = -1},
        {.url = "http://127.0.0.1/", .done = on_done, .method = "GET\r\n"},
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        pp_error_clear(&err);
        assert_int_equal(pp_http_client_send(w->client, &requests[i], NULL, &err), -1);
        assert_int_equal(err.code, PP_ERR_INVALID);
    }
    pp_http_client_request file = {.url = "file:///etc/passwd", .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &file, NULL, &err), 0);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_ERR_INVALID);
    assert_int_equal(w->got.len, 0);
}

static void test_request_limit(void **state)
{
    world *w = *state;
    pp_http_client_options options = {.max_requests = 2};
    pp_error err = {0};
    pp_http_client *client = pp_http_client_new(&w->loop, &options, NULL);
    pp_http_client_request request = {.url = url(w, "/silent"), .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(client, &request, NULL, &err), 0);
    assert_int_equal(pp_http_client_send(client, &request, NULL, &err), 0);
    assert_int_equal(pp_http_client_send(client, &request, NULL, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    pp_http_client_free(client);
}

/** A server that hangs has as many requests as there may be; the Lease's is sent all the same. */
static void test_shares_are_apart(void **state)
{
    world *w = *state;
    pp_error err = {0};
    char other[128];
    int count = 0;
    pp_http_client_request hung = {
        .url = url(w, "/silent"), .share = PP_HTTP_CLIENT_PROMETHEUS, .done = on_done, .user = w};
    while (count < 2000 && pp_http_client_send(w->client, &hung, NULL, &err) == 0)
        count++;
    assert_int_equal(count, 512);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    (void)snprintf(other, sizeof other, "http://localhost:%d/hello", w->server.port);
    pp_http_client_request lease = {
        .url = other, .share = PP_HTTP_CLIENT_LEASE, .done = on_done, .user = w};
    assert_int_equal(pp_http_client_send(w->client, &lease, NULL, &err), 0);
    run_until_done(w, 1);
    assert_int_equal(w->status, 200);
    assert_int_equal(pp_http_client_active(w->client), 512);
}

/* ---- over TLS ---- */

/* A port at which one server after the other listens, and the file with the authority of each. */
typedef struct tls_place {
    char dir[64];
    char ca_file[96];
    int listener;
    int port;
} tls_place;

static void write_text(const char *path, const char *text)
{
    PP_CLEANUP_FILE FILE *f = fopen(path, "we");
    assert_true(f && fputs(text, f) >= 0);
}

static void tls_place_make(tls_place *t)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    (void)snprintf(t->dir, sizeof t->dir, "/tmp/pp-http-client.XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    (void)snprintf(t->ca_file, sizeof t->ca_file, "%s/ca.crt", t->dir);
    t->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(t->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(t->listener, 16), 0);
    assert_int_equal(getsockname(t->listener, (struct sockaddr *)&at, &n), 0);
    t->port = ntohs(at.sin_port);
}

static void tls_place_done(tls_place *t)
{
    close(t->listener);
    (void)unlink(t->ca_file);
    (void)rmdir(t->dir);
}

/* An authority, and what it has signed for localhost. */
static void make_certificates(pp_certificates *made)
{
    char *const name[] = {(char *)(uintptr_t) "localhost"};
    const pp_strings names = {(char **)(uintptr_t)name, 1};
    pp_error err = {0};
    bool changed = false;
    *made = (pp_certificates){0};
    if (pp_certificates_renew(made, &names, pp_time_now(), &changed, &err) < 0)
        fail_msg("%s", err.message);
}

static void use_pair(SSL_CTX *ctx, const pp_certificates *own)
{
    BIO *pem = BIO_new_mem_buf(own->certificate, -1);
    BIO *key_pem = BIO_new_mem_buf(own->key, -1);
    X509 *certificate = PEM_read_bio_X509(pem, NULL, NULL, NULL);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(key_pem, NULL, NULL, NULL);
    if (SSL_CTX_use_cert_and_key(ctx, certificate, key, NULL, 1) != 1)
        _exit(1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    BIO_free(pem);
    BIO_free(key_pem);
}

/* A server that ends with its only connection, for which there may be no more than one request. */
static pid_t serve_once(const tls_place *t, const pp_certificates *own)
{
    static const char ok[] = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    char request[4096];
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    use_pair(ctx, own);
    const int accepted = accept(t->listener, NULL, NULL);
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, accepted);
    if (SSL_accept(ssl) == 1 && SSL_read(ssl, request, sizeof request) > 0 &&
        SSL_write(ssl, ok, sizeof ok - 1) > 0)
        (void)SSL_shutdown(ssl);
    _exit(0);
}

/* Asks such a server; whether it was trusted. */
static bool is_trusted(world *w, const tls_place *t, const pp_certificates *own)
{
    const pp_http_client_tls tls = {.ca_file = t->ca_file};
    const pp_http_client_request request = {
        .url = w->url, .tls = &tls, .done = on_done, .user = w, .timeout_ms = 120000};
    int status = -1;
    const pid_t pid = serve_once(t, own);
    (void)snprintf(w->url, sizeof w->url, "https://localhost:%d/", t->port);
    assert_int_equal(pp_http_client_send(w->client, &request, NULL, NULL), 0);
    run_until_done(w, w->done + 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(w->error.code, w->status == 200 ? PP_OK : PP_ERR_UNAVAILABLE);
    return w->status == 200;
}

/* As the kubelet replaces a rotated ca.crt under a process that runs. */
static void test_authority_is_replaced(void **state)
{
    world *w = *state;
    tls_place place;
    pp_certificates old, now;
    tls_place_make(&place);
    make_certificates(&old);
    make_certificates(&now);
    write_text(place.ca_file, old.ca);
    assert_true(is_trusted(w, &place, &old));
    assert_false(is_trusted(w, &place, &now));
    write_text(place.ca_file, now.ca);
    assert_true(is_trusted(w, &place, &now));
    assert_false(is_trusted(w, &place, &old));
    pp_certificates_done(&old);
    pp_certificates_done(&now);
    tls_place_done(&place);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                          "ALL_PROXY"};
    for (size_t i = 0; i < sizeof proxies / sizeof proxies[0]; i++)
        unsetenv(proxies[i]);
    const struct CMUnitTest tests[] = {
        TEST(test_get),
        TEST(test_status_is_no_error),
        TEST(test_retry_after_is_bounded),
        TEST(test_request_as_sent),
        TEST(test_methods_without_body),
        TEST(test_connects_elsewhere),
        TEST(test_stream),
        TEST(test_cancel_in_chunk),
        TEST(test_cancel_outside),
        TEST(test_send_in_chunk),
        TEST(test_free_in_chunk),
        TEST(test_free_in_done),
        TEST(test_chunk_refuses),
        TEST(test_timeout),
        TEST(test_body_limit),
        TEST(test_server_dies),
        TEST(test_nobody_listens),
        TEST(test_connection_is_kept),
        TEST(test_connections_are_limited),
        TEST(test_bad_requests),
        TEST(test_request_limit),
        TEST(test_shares_are_apart),
        TEST(test_authority_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
