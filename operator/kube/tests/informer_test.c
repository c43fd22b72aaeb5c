/* An informer whose server sends more at once than one turn of the loop should read. */
#include "operator/kube/informer.h"

#include "common/tests/cmocka_all.h"
#include "common/time.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MILLISECOND INT64_C(1000000)

enum { LINE = 4096, MAX_LINES = 2000, HEAD = 128 };

/* Of the first watch; those that come later get nothing, and stay. */
typedef struct world {
    uv_loop_t loop;
    uv_tcp_t listener;
    struct peer *peers;
    pp_http_client *http;
    pp_kube_client *kube;
    pp_kube_informer *informer;
    uv_prepare_t turn;
    char *body;
    size_t body_len;
    int lines;
    int watches;
    char last[512];  /* request */
    int64_t slow_ns; /* each object takes to decode */
    int free_at;     /* the object at which the informer is freed; 0: none */
    int seen, in_turn, most_in_turn, errors;
} world;

typedef struct peer {
    uv_tcp_t tcp;
    world *world;
    struct peer *next;
    char in[4096];
    size_t n;
    uv_write_t write;
    uv_shutdown_t shutdown;
} peer;

static void on_peer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void send_body(peer *p)
{
    world *w = p->world;
    uv_buf_t buf = uv_buf_init(w->body, (unsigned)w->body_len);
    assert_int_equal(uv_write(&p->write, (uv_stream_t *)&p->tcp, &buf, 1, NULL), 0);
    assert_int_equal(uv_shutdown(&p->shutdown, (uv_stream_t *)&p->tcp, NULL), 0);
}

static void on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    peer *p = handle->data;
    (void)want;
    *buf = uv_buf_init(p->in + p->n, (unsigned)(sizeof p->in - 1 - p->n));
}

static void on_request(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    peer *p = stream->data;
    (void)buf;
    if (n < 0) {
        uv_read_stop(stream);
        return;
    }
    p->n += (size_t)n;
    p->in[p->n] = '\0';
    if (!strstr(p->in, "\r\n\r\n"))
        return;
    (void)snprintf(p->world->last, sizeof p->world->last, "%.500s", p->in);
    p->n = 0;
    if (p->world->watches++ == 0)
        send_body(p);
}

static void on_connection(uv_stream_t *listener, int status)
{
    world *w = listener->data;
    peer *p = calloc(1, sizeof *p);
    (void)status;
    p->world = w;
    p->next = w->peers;
    w->peers = p;
    uv_tcp_init(&w->loop, &p->tcp);
    p->tcp.data = p;
    uv_accept(listener, (uv_stream_t *)&p->tcp);
    uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_request);
}

static void on_turn(uv_prepare_t *turn)
{
    world *w = turn->data;
    w->most_in_turn = w->in_turn > w->most_in_turn ? w->in_turn : w->most_in_turn;
    w->in_turn = 0;
}

static void listen_on(world *w, char *url, size_t size)
{
    struct sockaddr_in address;
    int n = sizeof address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&w->loop, &w->listener);
    w->listener.data = w;
    uv_tcp_bind(&w->listener, (struct sockaddr *)&address, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&w->listener, 8, on_connection), 0);
    uv_tcp_getsockname(&w->listener, (struct sockaddr *)&address, &n);
    (void)snprintf(url, size, "http://127.0.0.1:%d", ntohs(address.sin_port));
}

static int setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    char url[64];
    uv_loop_init(&w->loop);
    listen_on(w, url, sizeof url);
    const pp_kube_config config = {.server = url};
    w->http = pp_http_client_new(&w->loop, NULL, NULL);
    w->kube = pp_kube_client_new(w->http, &config, NULL);
    assert_non_null(w->kube);
    uv_prepare_init(&w->loop, &w->turn);
    w->turn.data = w;
    uv_prepare_start(&w->turn, on_turn);
    w->body = malloc(HEAD + (MAX_LINES + 2) * (size_t)LINE);
    w->body_len = (size_t)sprintf(w->body, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    pp_kube_informer_free(w->informer);
    pp_kube_client_free(w->kube);
    pp_http_client_free(w->http);
    uv_close((uv_handle_t *)&w->turn, NULL);
    uv_close((uv_handle_t *)&w->listener, NULL);
    for (peer *p = w->peers, *next; p; p = next) {
        next = p->next;
        uv_close((uv_handle_t *)&p->tcp, on_peer_closed);
    }
    uv_run(&w->loop, UV_RUN_DEFAULT);
    const int left = uv_loop_close(&w->loop);
    free(w->body);
    free(w);
    return left;
}

/* Objects of LINE bytes each; the resourceVersion of the n-th is n. */
static void add_lines(world *w, int count)
{
    for (int i = 0; i < count; i++) {
        char *line = w->body + w->body_len;
        const int n = sprintf(line,
                              "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"p%d\","
                              "\"resourceVersion\":\"%d\"},\"x\":\"",
                              w->lines, w->lines + 1);
        memset(line + n, 'x', (size_t)(LINE - n - 4));
        memcpy(line + LINE - 4, "\"}}\n", 4);
        w->body_len += LINE;
        w->lines++;
    }
}

static void add_text(world *w, const char *text)
{
    w->body_len += (size_t)sprintf(w->body + w->body_len, "%s\n", text);
}

static void *decode(void *user, const json_t *object, pp_error *err)
{
    const world *w = user;
    const int64_t end = pp_time_monotonic() + w->slow_ns;
    (void)err;
    while (pp_time_monotonic() < end)
        continue;
    return strdup(json_string_value(json_object_get(json_object_get(object, "metadata"), "name")));
}

static void on_add(void *user, const char *key, const void *object)
{
    world *w = user;
    char want[32];
    (void)snprintf(want, sizeof want, "p%d", w->seen);
    assert_string_equal(key, want); /* in their order, and none left out */
    assert_string_equal(object, want);
    w->seen++;
    w->in_turn++;
    if (w->seen == w->free_at) {
        pp_kube_informer_free(w->informer);
        w->informer = NULL;
    }
}

static void on_error(void *user, const pp_error *error)
{
    world *w = user;
    assert_non_null(strstr(error->message, "watch pods"));
    w->errors++;
}

static void start(world *w)
{
    const pp_kube_informer_options options = {.resource = &PP_KUBE_PODS,
                                              .handler = {.decode = decode,
                                                          .free_object = free,
                                                          .on_add = on_add,
                                                          .on_error = on_error,
                                                          .user = w}};
    w->informer = pp_kube_informer_new(w->kube, &options, NULL);
    assert_non_null(w->informer);
}

static void end_of_list(world *w)
{
    char text[256];
    (void)snprintf(text, sizeof text,
                   "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"%d\","
                   "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}",
                   w->lines);
    add_text(w, text);
}

static void run_until_watched_again(world *w)
{
    while (w->watches < 2 && uv_run(&w->loop, UV_RUN_ONCE))
        continue;
    on_turn(&w->turn);
}

static void test_a_crowd_takes_turns(void **state)
{
    world *w = *state;
    add_lines(w, 400);
    end_of_list(w);
    w->slow_ns = MILLISECOND;
    start(w);
    run_until_watched_again(w);
    assert_int_equal(w->seen, 400);
    assert_in_range(w->most_in_turn, 1, 20); /* 5 ms, and what is in 16 KiB */
    assert_true(pp_kube_informer_synced(w->informer));
    assert_non_null(strstr(w->last, "resourceVersion=400")); /* read to its end */
    assert_int_equal(w->errors, 0);
}

static void test_more_than_is_kept(void **state)
{
    world *w = *state;
    add_lines(w, MAX_LINES);
    end_of_list(w);
    w->slow_ns = MILLISECOND / 5;
    start(w);
    run_until_watched_again(w);
    assert_int_equal(w->seen, MAX_LINES);
    assert_true(pp_kube_informer_synced(w->informer));
    assert_int_equal(w->errors, 0);
}

/* What is no event ends the watch, after what came before it. */
static void test_what_is_no_event(void **state)
{
    world *w = *state;
    add_lines(w, 100);
    end_of_list(w);
    add_text(w, "{\"type\":7}");
    add_lines(w, 100);
    w->slow_ns = MILLISECOND;
    start(w);
    run_until_watched_again(w);
    assert_int_equal(w->seen, 100);
    assert_int_equal(w->errors, 1);
}

/* The same, read to make room for what comes. */
static void test_what_is_no_event_among_many(void **state)
{
    world *w = *state;
    add_lines(w, 800);
    end_of_list(w);
    add_text(w, "{\"type\":7}");
    add_lines(w, MAX_LINES - 800);
    w->slow_ns = MILLISECOND;
    start(w);
    run_until_watched_again(w);
    assert_int_equal(w->seen, 800);
    assert_int_equal(w->errors, 1);
}

static void test_freed_by_its_handler(void **state)
{
    world *w = *state;
    add_lines(w, 200);
    w->free_at = 10;
    start(w);
    while (w->informer && uv_run(&w->loop, UV_RUN_ONCE))
        continue;
    for (int i = 0; i < 100; i++)
        (void)uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(w->seen, 10);
    assert_int_equal(w->errors, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_crowd_takes_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_than_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_event, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_event_among_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_freed_by_its_handler, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
