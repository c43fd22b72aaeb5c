/* The multi handle on the loop: sockets, the timer, and who may touch what while curl runs. */
#include "operator/http_client/http_client.h"

#include "operator/http_client/http_client_internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/** Where a server speaks HTTP/1.1 alone, each watch holds one for its life. */
enum { DEFAULT_MAX_CONNECTIONS = 32 };

static const unsigned max_of_share[PP_HTTP_CLIENT_SHARES] = {
    [PP_HTTP_CLIENT_OTHER] = 512,      [PP_HTTP_CLIENT_LEASE] = 16,
    [PP_HTTP_CLIENT_READERS] = 64,     [PP_HTTP_CLIENT_TOKENS] = 128,
    [PP_HTTP_CLIENT_PROMETHEUS] = 512, [PP_HTTP_CLIENT_REPLICAS] = 64,
};

/** A descriptor that curl wants watched. */
typedef struct http_client_socket {
    uv_poll_t poll;
    pp_http_client *client;
    curl_socket_t fd;
    struct http_client_socket *prev, *next;
} http_client_socket;

static void client_maybe_free(pp_http_client *client)
{
    if (!client->torn_down || client->handles > 0)
        return;
    free(client->user_agent);
    free(client);
    curl_global_cleanup();
}

static void on_socket_closed(uv_handle_t *handle)
{
    http_client_socket *s = handle->data;
    pp_http_client *client = s->client;
    free(s);
    client->handles--;
    client_maybe_free(client);
}

static void on_timer_closed(uv_handle_t *handle)
{
    pp_http_client *client = handle->data;
    client->handles--;
    client_maybe_free(client);
}

static void socket_close(http_client_socket *s)
{
    DL_DELETE(s->client->sockets, s);
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, on_socket_closed);
}

/** Takes the exchange away from curl; only while curl is not on the stack. */
static void detach(http_client_exchange *exchange)
{
    if (exchange->added)
        curl_multi_remove_handle(exchange->client->multi, exchange->easy);
    exchange->added = false;
}

/** Out of the table: no id leads to it any more. */
static void forget(http_client_exchange *exchange)
{
    HASH_DEL(exchange->client->exchanges, exchange);
    exchange->client->active[exchange->share]--;
}

static void finish(http_client_exchange *exchange, CURLcode result)
{
    detach(exchange);
    forget(exchange);
    http_client_exchange_report(exchange, result);
    http_client_exchange_free(exchange);
}

/** Gives the exchange to curl; it reports through the timer, never from here. */
static void attach(http_client_exchange *exchange)
{
    CURLMcode rc = curl_multi_add_handle(exchange->client->multi, exchange->easy);
    exchange->added = rc == CURLM_OK;
    if (exchange->added)
        return;
    (void)pp_error_set(&exchange->failed, PP_ERR_NOMEM, "%s", curl_multi_strerror(rc));
    finish(exchange, CURLE_OUT_OF_MEMORY);
}

/** Does what could not be done while curl was on the stack. */
static void run_deferred(pp_http_client *client)
{
    while (client->deferred && !client->closing) {
        http_client_exchange *exchange = client->deferred;
        DL_DELETE(client->deferred, exchange);
        exchange->prev = NULL;
        if (exchange->cancelled) {
            detach(exchange);
            http_client_exchange_free(exchange);
        } else {
            attach(exchange);
        }
    }
}

/** Reports what curl has finished. Callbacks may start, cancel and free, so nothing is kept. */
static void report_finished(pp_http_client *client)
{
    while (!client->closing) {
        int left = 0;
        const CURLMsg *message = curl_multi_info_read(client->multi, &left);
        if (!message)
            return;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result;
        http_client_exchange *exchange = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
        if (!exchange->cancelled) /* else it waits among the deferred */
            finish(exchange, result);
    }
}

static void teardown(pp_http_client *client)
{
    http_client_exchange *exchange, *tmp;
    DL_FOREACH_SAFE(client->deferred, exchange, tmp)
    {
        DL_DELETE(client->deferred, exchange);
        if (!exchange->cancelled)
            continue; /* a new one, still in the table */
        detach(exchange);
        http_client_exchange_free(exchange);
    }
    HASH_ITER(hh, client->exchanges, exchange, tmp)
    {
        forget(exchange);
        detach(exchange);
        http_client_exchange_free(exchange);
    }
    curl_multi_cleanup(client->multi);
    while (client->sockets)
        socket_close(client->sockets);
    client->torn_down = true;
    uv_close((uv_handle_t *)&client->timer, on_timer_closed);
}

static void drive(pp_http_client *client, curl_socket_t fd, int events)
{
    int running = 0;
    client->depth++;
    client->in_curl = true;
    curl_multi_socket_action(client->multi, fd, events, &running);
    client->in_curl = false;
    run_deferred(client);
    report_finished(client);
    client->depth--;
    if (client->closing && client->depth == 0)
        teardown(client);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    const http_client_socket *s = poll->data;
    int flags = 0;
    if (status < 0)
        flags |= CURL_CSELECT_ERR;
    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    drive(s->client, s->fd, flags);
}

static void on_timer(uv_timer_t *timer)
{
    drive(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *user)
{
    (void)multi;
    pp_http_client *client = user;
    if (timeout_ms < 0 || client->closing)
        uv_timer_stop(&client->timer);
    else
        uv_timer_start(&client->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static http_client_socket *socket_open(pp_http_client *client, curl_socket_t fd)
{
    http_client_socket *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    if (uv_poll_init_socket(client->loop, &s->poll, fd) != 0) {
        free(s);
        return NULL;
    }
    s->client = client;
    s->fd = fd;
    s->poll.data = s;
    client->handles++;
    DL_APPEND(client->sockets, s);
    curl_multi_assign(client->multi, fd, s);
    return s;
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
    (void)easy;
    pp_http_client *client = user;
    http_client_socket *s = socket_user;
    if (what == CURL_POLL_REMOVE) {
        if (s) {
            curl_multi_assign(client->multi, fd, NULL);
            socket_close(s);
        }
        return 0;
    }
    if (!s)
        s = socket_open(client, fd);
    if (!s)
        return -1;
    int events = 0;
    if (what & CURL_POLL_IN)
        events |= UV_READABLE;
    if (what & CURL_POLL_OUT)
        events |= UV_WRITABLE;
    return uv_poll_start(&s->poll, events, on_poll) == 0 ? 0 : -1;
}

static void multi_set_options(pp_http_client *client, const pp_http_client_options *options)
{
    unsigned connections = options ? options->max_host_connections : 0;
    CURLM *multi = client->multi;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, client);
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS,
                      (long)(connections ? connections : DEFAULT_MAX_CONNECTIONS));
}

/** OpenSSL writes to closed sockets with write(2), which would end the process. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
}

pp_http_client *pp_http_client_new(uv_loop_t *loop, const pp_http_client_options *options,
                                   pp_error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        (void)pp_error_set(err, PP_ERR_INTERNAL, "libcurl does not start");
        return NULL;
    }
    pp_http_client *client = calloc(1, sizeof *client);
    CURLM *multi = client ? curl_multi_init() : NULL;
    char *agent = strdup(options && options->user_agent ? options->user_agent : "precisionprobe");
    if (!client || !multi || !agent) {
        free(agent);
        curl_multi_cleanup(multi);
        free(client);
        curl_global_cleanup();
        (void)pp_error_nomem(err);
        return NULL;
    }
    ignore_sigpipe();
    client->loop = loop;
    client->multi = multi;
    client->user_agent = agent;
    client->max_requests = options ? options->max_requests : 0;
    uv_timer_init(loop, &client->timer);
    client->timer.data = client;
    client->handles = 1;
    multi_set_options(client, options);
    return client;
}

void pp_http_client_free(pp_http_client *client)
{
    if (!client || client->closing)
        return;
    client->closing = true;
    uv_timer_stop(&client->timer);
    if (client->depth == 0)
        teardown(client);
}

int pp_http_client_send(pp_http_client *client, const pp_http_client_request *request,
                        pp_http_client_id *ret_id, pp_error *err)
{
    if (client->closing)
        return pp_error_set(err, PP_ERR_INTERNAL, "the HTTP client is closing");
    unsigned max = max_of_share[request->share];
    if (client->max_requests && client->max_requests < max)
        max = client->max_requests;
    if (client->active[request->share] >= max)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "%u HTTP requests are under way already", max);
    http_client_exchange *exchange = http_client_exchange_new(client, request, err);
    if (!exchange)
        return -1;
    if (!client->in_curl) {
        CURLMcode rc = curl_multi_add_handle(client->multi, exchange->easy);
        if (rc != CURLM_OK) {
            http_client_exchange_free(exchange);
            return pp_error_set(err, PP_ERR_NOMEM, "%s", curl_multi_strerror(rc));
        }
        exchange->added = true;
    } else {
        DL_APPEND(client->deferred, exchange);
    }
    exchange->id = ++client->last_id;
    HASH_ADD(hh, client->exchanges, id, sizeof exchange->id, exchange);
    client->active[exchange->share]++;
    if (ret_id)
        *ret_id = exchange->id;
    return 0;
}

void pp_http_client_cancel(pp_http_client *client, pp_http_client_id id)
{
    http_client_exchange *exchange = NULL;
    HASH_FIND(hh, client->exchanges, &id, sizeof id, exchange);
    if (!exchange)
        return;
    forget(exchange);
    exchange->cancelled = true;
    if (!client->in_curl) {
        if (exchange->prev) /* still among the deferred */
            DL_DELETE(client->deferred, exchange);
        detach(exchange);
        http_client_exchange_free(exchange);
    } else if (!exchange->prev) {
        DL_APPEND(client->deferred, exchange);
    }
}

size_t pp_http_client_active(const pp_http_client *client)
{
    return HASH_COUNT(client->exchanges);
}

uint64_t pp_http_client_connections(const pp_http_client *client)
{
    return client->connections;
}

uv_loop_t *pp_http_client_loop(const pp_http_client *client)
{
    return client->loop;
}
