/* When calls are sent, against a small API server on the same loop that may ask us to wait. */
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/kube/client.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)

enum { MAX_SEEN = 1024 };

/** A request, as it came in. */
typedef struct seen {
    char line[96];
    int64_t at_ns;
} seen;

typedef struct world {
    uv_loop_t loop;
    uv_tcp_t listener;
    struct peer *peers;
    pp_http_client *http;
    pp_kube_client *kube;
    seen requests[MAX_SEEN];
    int count;
    int push_back; /* so many requests yet, but of Leases, get 429 */
    const char *retry_after;
    bool mute; /* nobody gets an answer */
    int done, failed;
    pp_error error;
} world;

typedef struct peer {
    uv_tcp_t tcp;
    world *world;
    struct peer *next;
    char in[16384];
    size_t n;
} peer;

typedef struct write_out {
    uv_write_t req;
    char text[256];
} write_out;

static void on_written(uv_write_t *req, int status)
{
    (void)status;
    free(req);
}

static void answer(peer *p)
{
    world *w = p->world;
    write_out *out = calloc(1, sizeof *out);
    seen *s = &w->requests[w->count < MAX_SEEN ? w->count++ : MAX_SEEN - 1];
    (void)sscanf(p->in, "%95[^\r]", s->line);
    s->at_ns = pp_time_monotonic();
    if (w->mute) {
        free(out);
        return;
    }
    if (w->push_back > 0 && !strstr(s->line, "/leases")) {
        w->push_back--;
        (void)snprintf(out->text, sizeof out->text,
                       "HTTP/1.1 429 Too Many Requests\r\n%sContent-Length: 2\r\n\r\n{}",
                       w->retry_after);
    } else {
        (void)snprintf(out->text, sizeof out->text,
                       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    }
    uv_buf_t buf = uv_buf_init(out->text, (unsigned)strlen(out->text));
    uv_write(&out->req, (uv_stream_t *)&p->tcp, &buf, 1, on_written);
}

static void on_peer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    (void)want;
    peer *p = handle->data;
    *buf = uv_buf_init(p->in + p->n, (unsigned)(sizeof p->in - 1 - p->n));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    peer *p = stream->data;
    if (n < 0) {
        uv_read_stop(stream);
        return;
    }
    p->n += (size_t)n;
    p->in[p->n] = '\0';
    if (strstr(p->in, "\r\n\r\n")) { /* none has a body here */
        answer(p);
        p->n = 0;
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    (void)status;
    world *w = listener->data;
    peer *p = calloc(1, sizeof *p);
    p->world = w;
    p->next = w->peers;
    w->peers = p;
    uv_tcp_init(&w->loop, &p->tcp);
    p->tcp.data = p;
    uv_accept(listener, (uv_stream_t *)&p->tcp);
    uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_read);
}

static int setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    struct sockaddr_in address;
    int size = sizeof address;
    char server[64];
    uv_loop_init(&w->loop);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&w->loop, &w->listener);
    w->listener.data = w;
    uv_tcp_bind(&w->listener, (struct sockaddr *)&address, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&w->listener, 64, on_connection), 0);
    uv_tcp_getsockname(&w->listener, (struct sockaddr *)&address, &size);
    (void)snprintf(server, sizeof server, "http://127.0.0.1:%d", ntohs(address.sin_port));
    const pp_kube_config config = {.server = server};
    w->http = pp_http_client_new(&w->loop, NULL, NULL);
    w->kube = pp_kube_client_new(w->http, &config, NULL);
    assert_non_null(w->kube);
    w->retry_after = "Retry-After: 1\r\n";
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    pp_kube_client_free(w->kube);
    pp_http_client_free(w->http);
    uv_close((uv_handle_t *)&w->listener, NULL);
    for (peer *p = w->peers, *next; p; p = next) {
        next = p->next;
        uv_close((uv_handle_t *)&p->tcp, on_peer_closed);
    }
    uv_run(&w->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&w->loop);
    free(w);
    return left;
}

static void on_done(void *user, json_t *object, const pp_error *error)
{
    world *w = user;
    (void)object;
    w->done++;
    w->failed += error != NULL;
    w->error = error ? *error : (pp_error){0};
    uv_stop(&w->loop);
}

static void run_until_done(world *w, int count)
{
    while (w->done < count && uv_run(&w->loop, UV_RUN_ONCE))
        continue;
    assert_int_equal(w->done, count);
}

static void get(world *w, const pp_kube_resource *resource, const char *name, int64_t timeout_ms,
                pp_kube_id *ret_id)
{
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = resource,
                               .ns = "ml",
                               .name = name,
                               .timeout_ms = timeout_ms,
                               .done = on_done,
                               .user = w};
    assert_int_equal(pp_kube_call_start(w->kube, &call, ret_id, NULL), 0);
}

static void get_pod(world *w, const char *name)
{
    get(w, &PP_KUBE_PODS, name, 0, NULL);
}

/** When the request for that name came in the n-th time, 0 the first; -1 never. */
static int64_t came(const world *w, const char *name, int n)
{
    for (int i = 0; i < w->count; i++) {
        if (strstr(w->requests[i].line, name) && n-- == 0)
            return w->requests[i].at_ns;
    }
    return -1;
}

/** The call is sent again when its time has come; others of its share wait too, in their order. */
static void test_retry_after_is_obeyed(void **state)
{
    world *w = *state;
    w->push_back = 1;
    get_pod(w, "first");
    while (w->count < 1 || pp_http_client_active(w->http)) /* until its answer is read */
        uv_run(&w->loop, UV_RUN_ONCE);
    get_pod(w, "second");
    get_pod(w, "third");
    get(w, &PP_KUBE_LEASES, "lease", 0, NULL);
    get(w, &PP_KUBE_TOKENREVIEWS, "token", 0, NULL);
    run_until_done(w, 5);
    assert_int_equal(w->failed, 0); /* nobody hears of it */
    int64_t again = came(w, "/first", 1);
    assert_true(again - came(w, "/first", 0) >= SECOND);
    assert_true(came(w, "/second", 0) >= again);
    assert_true(came(w, "/third", 0) >= came(w, "/second", 0));
    assert_true(came(w, "/lease", 0) < again);
    assert_true(came(w, "/token", 0) < again);
}

static void test_a_second_where_none_is_said(void **state)
{
    world *w = *state;
    w->push_back = 2;
    w->retry_after = "";
    get_pod(w, "first");
    run_until_done(w, 1);
    assert_int_equal(w->failed, 0);
    assert_true(came(w, "/first", 1) - came(w, "/first", 0) >= SECOND);
    assert_true(came(w, "/first", 2) - came(w, "/first", 1) >= SECOND);
}

/** A call that would wait for longer than it may is told so; one that waits already, in time. */
static void test_waiting_is_part_of_the_timeout(void **state)
{
    world *w = *state;
    w->push_back = 1;
    w->retry_after = "Retry-After: 30\r\n";
    get(w, &PP_KUBE_PODS, "first", 5000, NULL);
    run_until_done(w, 1);
    assert_int_equal(w->error.code, PP_ERR_UNAVAILABLE);
    get(w, &PP_KUBE_PODS, "second", 0, NULL);
    get(w, &PP_KUBE_PODS, "third", 300, NULL);
    run_until_done(w, 2);
    assert_int_equal(w->error.code, PP_ERR_TIMEOUT);
    assert_non_null(strstr(w->error.message, "/third"));
    assert_int_equal(w->count, 1);
}

static void test_calls_have_a_rate(void **state)
{
    world *w = *state;
    pp_kube_client_set_rate(w->kube, 100); /* and 400 at once */
    const int64_t began = pp_time_monotonic();
    for (int i = 0; i < 500; i++)
        get_pod(w, "one");
    run_until_done(w, 500);
    assert_int_equal(w->failed, 0);
    assert_int_equal(w->count, 500);
    int64_t first = w->requests[0].at_ns;
    int64_t last = w->requests[499].at_ns;
    assert_true(last - began >= SECOND * 9 / 10); /* the first may arrive late */
    assert_true(w->requests[399].at_ns - first < last - first);
}

static void test_cancel_while_waiting(void **state)
{
    world *w = *state;
    pp_kube_id id = 0;
    pp_kube_client_set_rate(w->kube, 1);
    for (int i = 0; i < 4; i++)
        get_pod(w, "now");
    get(w, &PP_KUBE_PODS, "never", 0, &id);
    get_pod(w, "later");
    assert_true(id != 0);
    pp_kube_call_cancel(w->kube, id);
    pp_kube_call_cancel(w->kube, id);
    run_until_done(w, 5);
    assert_int_equal(came(w, "/never", 0), -1);
    assert_true(came(w, "/later", 0) > 0);
    get_pod(w, "left"); /* is waiting when the client goes */
}

static void test_so_many_wait_and_no_more(void **state)
{
    world *w = *state;
    pp_error err = {0};
    int rc = 0;
    int count = 0;
    pp_kube_client_set_rate(w->kube, 1);
    for (; rc == 0 && count < 10000; count++) {
        const pp_kube_call call = {
            .resource = &PP_KUBE_PODS, .ns = "ml", .name = "one", .done = on_done, .user = w};
        rc = pp_kube_call_start(w->kube, &call, NULL, &err);
    }
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_in_range(count, 4096, 4200);
    get(w, &PP_KUBE_LEASES, "lease", 0, NULL); /* is none of them */
    while (came(w, "/lease", 0) < 0)
        uv_run(&w->loop, UV_RUN_ONCE);
}

static int on_chunk(void *user, pp_http_client_id id, int status, const char *data, size_t n,
                    pp_error *err)
{
    (void)user;
    (void)id;
    (void)status;
    (void)data;
    (void)n;
    (void)err;
    return 0;
}

static void on_end(void *user, pp_http_client_id id, const pp_http_client_response *response,
                   const pp_error *error)
{
    (void)id;
    (void)response;
    on_done(user, NULL, error);
}

static void watch(world *w, const char *path)
{
    assert_int_equal(pp_kube_stream_start(w->kube, PP_KUBE_WATCH, path, 3600 * 1000, on_chunk,
                                          on_end, w, NULL, NULL),
                     0);
}

/** What fills the caches waits behind no other call, however many do, and in its order. */
static void test_caches_come_first(void **state)
{
    world *w = *state;
    pp_error err = {0};
    pp_kube_client_set_rate(w->kube, 1); /* and four at once */
    const pp_kube_call one = {
        .resource = &PP_KUBE_PODS, .ns = "ml", .name = "one", .done = on_done, .user = w};
    while (pp_kube_call_start(w->kube, &one, NULL, &err) == 0)
        continue;
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    watch(w, "/watched");
    const pp_kube_call list = {
        .verb = PP_KUBE_LIST, .resource = &PP_KUBE_SECRETS, .done = on_done, .user = w};
    assert_int_equal(pp_kube_call_start(w->kube, &list, NULL, NULL), 0);
    while (w->count < 6)
        uv_run(&w->loop, UV_RUN_ONCE);
    assert_non_null(strstr(w->requests[4].line, "/watched"));
    assert_non_null(strstr(w->requests[5].line, "/secrets"));
}

/** Where each watch holds a connection of its own, there is one for the Lease. */
static void test_watches_leave_connections(void **state)
{
    enum { WATCHES = 16 };
    world *w = *state;
    w->mute = true;
    for (int i = 0; i < WATCHES; i++)
        watch(w, "/watched");
    while (w->count < WATCHES)
        uv_run(&w->loop, UV_RUN_ONCE);
    w->mute = false;
    get(w, &PP_KUBE_LEASES, "lease", 0, NULL);
    run_until_done(w, 1);
    assert_int_equal(w->failed, 0);
}

static void on_answer(void *user, pp_kube_verb verb, int status)
{
    int *told = user;
    assert_int_equal(verb, PP_KUBE_GET);
    told[status == 200 ? 0 : 1] += 1;
    told[2] = status;
}

/** Each request counts, those that are sent again too, and those that nobody answers. */
static void test_answers_are_told(void **state)
{
    world *w = *state;
    int told[3] = {0};
    pp_kube_client_on_answer(w->kube, on_answer, told);
    w->push_back = 1;
    get_pod(w, "first");
    get_pod(w, "second");
    run_until_done(w, 2);
    assert_int_equal(told[0], 2);
    assert_int_equal(told[1], 1);
    w->mute = true;
    get(w, &PP_KUBE_PODS, "third", 100, NULL);
    run_until_done(w, 3);
    assert_int_equal(w->failed, 1);
    assert_int_equal(told[1], 2);
    assert_int_equal(told[2], 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    static const char *const proxies[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof proxies / sizeof proxies[0]; i++)
        (void)unsetenv(proxies[i]);
    const struct CMUnitTest tests[] = {
        TEST(test_retry_after_is_obeyed),
        TEST(test_a_second_where_none_is_said),
        TEST(test_waiting_is_part_of_the_timeout),
        TEST(test_calls_have_a_rate),
        TEST(test_cancel_while_waiting),
        TEST(test_so_many_wait_and_no_more),
        TEST(test_caches_come_first),
        TEST(test_watches_leave_connections),
        TEST(test_answers_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
