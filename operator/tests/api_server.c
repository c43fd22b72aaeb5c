#include "operator/tests/api_server.h"

#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/pods/creations.h"
#include "operator/pods/stuck.h"
#include "operator/state/pending_call.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t PATIENCE = INT64_C(60000000000); /* only a hang takes as long */
enum { TURN_MS = 20 };

typedef struct api_peer {
    uv_tcp_t tcp;
    api_server *api;
    struct api_peer *next;
    char in[16384];
    size_t n;
} api_peer;

typedef struct write_out {
    uv_write_t req;
    char text[8192];
} write_out;

/* ---- answers ---- */

static void on_written(uv_write_t *req, int status)
{
    (void)status;
    free(req);
}

static const char *object_of(const api_server *api, const char *path)
{
    for (int i = 0; i < API_OBJECTS && api->objects[i].path; i++) {
        if (strcmp(api->objects[i].path, path) == 0)
            return api->objects[i].text;
    }
    return NULL;
}

static void compose(const api_server *api, const char *method, const char *path, char *out,
                    size_t size)
{
    const char *events = api->events ? api->events : "";
    const char *text = object_of(api, path);
    if (!text && strcmp(method, "GET") != 0)
        text = "{}";
    if (strstr(path, "watch="))
        (void)snprintf(out, size,
                       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n",
                       strlen(events), events);
    else
        (void)snprintf(out, size, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s",
                       text ? "200 OK" : "404 Not Found", text ? strlen(text) : 2,
                       text ? text : "{}");
}

static void answer(api_peer *p, const char *body)
{
    api_server *api = p->api;
    write_out *out = calloc(1, sizeof *out);
    char method[16] = "", path[256] = "";
    if (!out || api->count == API_REQUESTS)
        abort();
    api_request *r = &api->requests[api->count++];
    (void)sscanf(p->in, "%255[^\r]", r->line);
    (void)sscanf(r->line, "%15s %255s", method, path);
    (void)snprintf(r->body, sizeof r->body, "%s", body);
    compose(api, method, path, out->text, sizeof out->text);
    uv_buf_t buf = uv_buf_init(out->text, (unsigned)strlen(out->text));
    uv_write(&out->req, (uv_stream_t *)&p->tcp, &buf, 1, on_written);
}

/* ---- connections ---- */

static void on_peer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    (void)want;
    api_peer *p = handle->data;
    *buf = uv_buf_init(p->in + p->n, (unsigned)(sizeof p->in - 1 - p->n));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    api_peer *p = stream->data;
    (void)buf;
    if (n < 0) {
        uv_read_stop(stream);
        return;
    }
    p->n += (size_t)n;
    p->in[p->n] = '\0';
    const char *end = strstr(p->in, "\r\n\r\n");
    const char *length = strstr(p->in, "Content-Length: ");
    const size_t wanted = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    if (!end || strlen(end + 4) < wanted)
        return;
    answer(p, end + 4);
    p->n = 0;
}

static void on_connection(uv_stream_t *listener, int status)
{
    api_server *api = listener->data;
    api_peer *p = calloc(1, sizeof *p);
    assert_true(p && status == 0);
    p->api = api;
    p->next = api->peers;
    api->peers = p;
    uv_tcp_init(&api->loop, &p->tcp);
    p->tcp.data = p;
    uv_accept(listener, (uv_stream_t *)&p->tcp);
    uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_read);
}

static void listen_on(api_server *api, char *url, size_t size)
{
    struct sockaddr_in address;
    int length = sizeof address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&api->loop, &api->listener);
    api->listener.data = api;
    uv_tcp_bind(&api->listener, (struct sockaddr *)&address, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&api->listener, 64, on_connection), 0);
    uv_tcp_getsockname(&api->listener, (struct sockaddr *)&address, &length);
    (void)snprintf(url, size, "http://127.0.0.1:%d", ntohs(address.sin_port));
}

/* ---- the operator ---- */

static void on_moved(void *user, const void *object)
{
    (void)user;
    (void)object;
}

static void on_wake(uv_timer_t *timer)
{
    (void)timer;
}

int api_server_setup(void **state)
{
    static char nowhere[] = "";
    api_server *api = calloc(1, sizeof *api);
    pp_operator *op = &api->op;
    char url[64];
    uv_loop_init(&api->loop);
    listen_on(api, url, sizeof url);
    uv_timer_init(&api->loop, &api->wake);
    uv_timer_start(&api->wake, on_wake, TURN_MS, TURN_MS);
    const pp_kube_config kube = {.server = url};
    api->config.kubernetes.ns = nowhere;
    op->loop = &api->loop;
    op->config = &api->config;
    op->leading = true;
    op->http = pp_http_client_new(&api->loop, NULL, NULL);
    op->kube = pp_kube_client_new(op->http, &kube, NULL);
    op->recorder = pp_kube_recorder_new(op->kube, "tests", "one", NULL);
    op->matches = pp_match_index_new(on_moved, op);
    assert_true(op->kube && op->recorder && op->matches);
    assert_int_equal(pp_stuck_start(op, NULL), 0);
    *state = api;
    return 0;
}

int api_server_teardown(void **state)
{
    api_server *api = *state;
    pp_operator *op = &api->op;
    if (op->server)
        pp_http_server_stop(op->server);
    pp_creations_stop(op);
    pp_stuck_stop(op);
    pp_match_index_free(op->matches);
    pp_kube_recorder_free(op->recorder);
    pp_kube_client_free(op->kube);
    pp_http_client_free(op->http);
    pp_pending_call_free_all(op);
    uv_close((uv_handle_t *)&api->wake, NULL);
    uv_close((uv_handle_t *)&api->listener, NULL);
    for (api_peer *p = api->peers, *next; p; p = next) {
        next = p->next;
        uv_close((uv_handle_t *)&p->tcp, on_peer_closed);
    }
    uv_run(&api->loop, UV_RUN_DEFAULT); /* until no handle is left, which the server waits for */
    pp_http_server_free(op->server);
    const int left = uv_loop_close(&api->loop);
    free(api);
    return left;
}

bool api_server_run(api_server *api, bool (*done)(void *user), void *user)
{
    const int64_t end = pp_time_monotonic() + PATIENCE;
    while (!done(user)) {
        if (pp_time_monotonic() > end)
            return false;
        (void)uv_run(&api->loop, UV_RUN_ONCE);
    }
    return true;
}

void api_server_run_for(api_server *api, int64_t ns)
{
    const int64_t end = pp_time_monotonic() + ns;
    while (pp_time_monotonic() < end)
        (void)uv_run(&api->loop, UV_RUN_ONCE);
}

int api_server_times(const api_server *api, const char *begin)
{
    int n = 0;
    for (int i = 0; i < api->count; i++)
        n += strncmp(api->requests[i].line, begin, strlen(begin)) == 0;
    return n;
}

const api_request *api_server_find(const api_server *api, const char *begin)
{
    for (int i = 0; i < api->count; i++) {
        if (strncmp(api->requests[i].line, begin, strlen(begin)) == 0)
            return &api->requests[i];
    }
    return NULL;
}
