/* Decoding of answers, and the client against a server that is slow, broken or refuses. */
#include "common/tests/cmocka_all.h"
#include "operator/prometheus/prometheus.h"

#include "common/buf.h"
#include "common/cleanup.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static pp_metric_source dcgm(void)
{
    pp_metric_source source;
    assert_int_equal(pp_metric_preset("dcgm", &source, NULL), 0);
    return source;
}

static int decode(const char *text, pp_prometheus_answer *answer, pp_error *err)
{
    const pp_metric_source source = dcgm();
    return pp_prometheus_decode(text, strlen(text), &source, answer, err);
}

#define MATRIX(series)                                                                             \
    "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[" series "]}}"
#define SERIES(name, labels, values)                                                               \
    "{\"metric\":{\"__name__\":\"" name "\"," labels "},\"values\":[" values "]}"

static void stamps_and_values_are_exact(void **state)
{
    (void)state;
    pp_prometheus_answer a = {0};
    pp_error err = {0};
    assert_int_equal(
        decode(MATRIX(SERIES("DCGM_FI_PROF_SM_ACTIVE", "\"UUID\":\"GPU-b\"",
                             "[1769000000.123,\"0.432\"],[1769000000.999,\"0.1\"],[1769000001,"
                             "\"1\"]") "," SERIES("DCGM_FI_DEV_FB_USED", "\"UUID\":\"GPU-a\"",
                                                  "[1769000000.001,\"81920\"]")),
               &a, &err),
        0);
    assert_int_equal(a.gpus.count, 2);
    assert_string_equal(a.gpus.items[0], "GPU-a");
    assert_int_equal(a.n_samples, 4);
    assert_int_equal(a.samples[0].metric, PP_METRIC_GPU_MEM);
    assert_int_equal(a.samples[0].stamp_ns, INT64_C(1769000000001000000));
    assert_int_equal(a.samples[1].gpu, 1);
    assert_int_equal(a.samples[1].stamp_ns, INT64_C(1769000000123000000));
    assert_true(a.samples[1].value == 0.432);
    assert_int_equal(a.samples[2].stamp_ns, INT64_C(1769000000999000000));
    assert_int_equal(a.samples[3].stamp_ns, INT64_C(1769000001000000000));
    assert_string_equal(a.warning, "");
    pp_prometheus_answer_done(&a);
}

static void every_millisecond_is_exact(void **state)
{
    (void)state;
    for (int64_t ms = INT64_C(1769000000000); ms < INT64_C(1769000002000); ms++) {
        char text[512];
        pp_prometheus_answer a = {0};
        (void)snprintf(
            text, sizeof(text),
            MATRIX(SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"", "[%lld.%03lld,\"1\"]")),
            (long long)(ms / 1000), (long long)(ms % 1000));
        assert_int_equal(decode(text, &a, NULL), 0);
        assert_int_equal(a.samples[0].stamp_ns, ms * 1000000);
        pp_prometheus_answer_done(&a);
    }
}

static void blanks_are_dropped(void **state)
{
    (void)state;
    pp_prometheus_answer a = {0};
    assert_int_equal(decode(MATRIX(SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"",
                                          "[1,\"9223372036854775794\"],[2,\"NaN\"],[3,\"+Inf\"],"
                                          "[4,\"50\"],[5,\"-7\"],[6,\"2147483632\"]")),
                            &a, NULL),
                     0);
    assert_int_equal(a.n_samples, 1);
    assert_true(a.samples[0].value == 50);
    pp_prometheus_answer_done(&a);
}

static void repeats_are_merged(void **state)
{
    (void)state;
    pp_prometheus_answer a = {0};
    assert_int_equal(
        decode(
            MATRIX(SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\",\"pod\":\"a\"",
                          "[1,\"10\"],[2,\"30\"]") "," SERIES("DCGM_FI_DEV_GPU_UTIL",
                                                              "\"UUID\":\"g\",\"pod\":\"b\"",
                                                              "[1,\"10\"],[2,\"20\"],[3,\"40\"]")),
            &a, NULL),
        0);
    assert_int_equal(a.n_samples, 3);
    assert_true(a.samples[1].value == 20);
    assert_non_null(strstr(a.warning, "different values"));
    pp_prometheus_answer_done(&a);
}

static void mig_and_foreign_series_are_left_out(void **state)
{
    (void)state;
    pp_prometheus_answer a = {0};
    assert_int_equal(
        decode(
            MATRIX(SERIES(
                "DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\",\"GPU_I_ID\":\"3\"",
                "[1,\"10\"]") "," SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\",\"GPU_I_ID\":\"\"",
                                         "[1,\"90\"]") "," SERIES("DCGM_FI_DEV_POWER_USAGE",
                                                                  "\"UUID\":\"g\"",
                                                                  "[1,\"10\"]") "," SERIES("DCGM_"
                                                                                           "FI_DEV_"
                                                                                           "GPU_"
                                                                                           "UTIL",
                                                                                           "\"gpu\""
                                                                                           ":\"0\"",
                                                                                           "[1,"
                                                                                           "\"10\""
                                                                                           "]")),
            &a, NULL),
        0);
    assert_int_equal(a.n_samples, 1);
    assert_true(a.samples[0].value == 90);
    assert_non_null(strstr(a.warning, "MIG"));
    pp_prometheus_answer_done(&a);
}

static void prometheus_warning_comes_first(void **state)
{
    (void)state;
    pp_prometheus_answer a = {0};
    assert_int_equal(decode("{\"status\":\"success\",\"warnings\":[\"remote is away\"],\"data\":{"
                            "\"resultType\":\"matrix\",\"result\":[]}}",
                            &a, NULL),
                     0);
    assert_string_equal(a.warning, "remote is away");
    pp_prometheus_answer_done(&a);
}

static void refused_answers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        pp_error_code code;
    } cases[] = {
        {"", PP_ERR_INVALID},
        {"<html>", PP_ERR_INVALID},
        {"[]", PP_ERR_INVALID},
        {"{}", PP_ERR_INVALID},
        {"{\"status\":\"success\"}", PP_ERR_INVALID},
        {"{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}",
         PP_ERR_INVALID},
        {MATRIX("7"), PP_ERR_INVALID},
        {MATRIX("{\"metric\":{}}"), PP_ERR_INVALID},
        {MATRIX(SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"", "[1]")), PP_ERR_INVALID},
        {MATRIX(SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"", "[1,\"x\"]")), PP_ERR_INVALID},
        {MATRIX(SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"", "[\"1\",\"1\"]")), PP_ERR_INVALID},
        {MATRIX(SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"", "[1e30,\"1\"]")), PP_ERR_INVALID},
        {"{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"parse error\"}",
         PP_ERR_INVALID},
        {"{\"status\":\"error\",\"errorType\":\"timeout\",\"error\":\"slow\"}", PP_ERR_TIMEOUT},
        {"{\"status\":\"error\",\"errorType\":\"execution\",\"error\":\"x\"}", PP_ERR_UNAVAILABLE},
        {"{\"status\":\"error\"}", PP_ERR_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pp_prometheus_answer a = {0};
        pp_error err = {0};
        assert_int_equal(decode(cases[i].text, &a, &err), -1);
        if (err.code != cases[i].code)
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_null(a.samples);
    }
}

/* A server on the same loop that says the same to everybody, or nothing. */
typedef struct server {
    uv_loop_t loop;
    uv_tcp_t listener;
    int port;
    const char *reply; /* NULL: never answers */
    size_t reply_n;
    char request[65536]; /* what came last */
    size_t n;
    pp_http_client *http;
    pp_prometheus *prometheus;
    int answers;
    size_t n_samples;
    pp_error error;
} server;

typedef struct peer {
    uv_tcp_t tcp;
    uv_write_t write;
    server *server;
} peer;

static void on_peer_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_sent(uv_write_t *write, int status)
{
    (void)status;
    peer *p = (peer *)((char *)write - offsetof(peer, write));
    if (!uv_is_closing((uv_handle_t *)&p->tcp))
        uv_close((uv_handle_t *)&p->tcp, on_peer_closed);
}

static void give_room(uv_handle_t *handle, size_t n, uv_buf_t *buf)
{
    server *s = ((peer *)handle)->server;
    (void)n;
    *buf = uv_buf_init(s->request + s->n, (unsigned)(sizeof(s->request) - 1 - s->n));
}

static bool is_complete(const char *request)
{
    const char *body = strstr(request, "\r\n\r\n");
    const char *length = strstr(request, "Content-Length: ");
    return body && length && strlen(body + 4) >= strtoul(length + 16, NULL, 10);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    peer *p = (peer *)stream;
    server *s = p->server;
    (void)buf;
    if (n < 0) {
        if (!uv_is_closing((uv_handle_t *)stream))
            uv_close((uv_handle_t *)stream, on_peer_closed);
        return;
    }
    s->n += (size_t)n;
    s->request[s->n] = '\0';
    if (!s->reply || !is_complete(s->request))
        return;
    uv_buf_t out = uv_buf_init((char *)(uintptr_t)s->reply, (unsigned)s->reply_n);
    uv_write(&p->write, stream, &out, 1, on_sent);
}

static void on_connection(uv_stream_t *listener, int status)
{
    server *s = listener->data;
    peer *p = calloc(1, sizeof(*p));
    assert_true(status == 0 && p);
    p->server = s;
    s->n = 0;
    uv_tcp_init(&s->loop, &p->tcp);
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&p->tcp), 0);
    uv_read_start((uv_stream_t *)&p->tcp, give_room, on_read);
}

static server *serve(const char *reply)
{
    server *s = calloc(1, sizeof(*s));
    struct sockaddr_in address;
    int n = sizeof(address);
    pp_error err = {0};
    assert_non_null(s);
    s->reply = reply;
    s->reply_n = reply ? strlen(reply) : 0;
    assert_int_equal(uv_loop_init(&s->loop), 0);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&s->loop, &s->listener);
    s->listener.data = s;
    assert_int_equal(uv_tcp_bind(&s->listener, (const struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&s->listener, 16, on_connection), 0);
    assert_int_equal(uv_tcp_getsockname(&s->listener, (struct sockaddr *)&address, &n), 0);
    s->port = ntohs(address.sin_port);
    s->http = pp_http_client_new(&s->loop, NULL, &err);
    assert_non_null(s->http);
    return s;
}

static void open_client(server *s, const char *token_file, size_t max_body)
{
    char url[64];
    pp_error err = {0};
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d/prefix/", s->port);
    const pp_prometheus_options options = {.url = url,
                                           .bearer_token_file = token_file,
                                           .source = dcgm(),
                                           .timeout_ns = s->reply ? 10000000000 : 500000000,
                                           .max_body = max_body};
    s->prometheus = pp_prometheus_new(s->http, &options, &err);
    assert_non_null(s->prometheus);
}

static void on_answer(void *user, uint64_t id, const pp_prometheus_answer *answer,
                      const pp_error *error)
{
    server *s = user;
    assert_true(id != 0);
    assert_true((answer == NULL) == (error != NULL));
    s->answers++;
    if (answer)
        s->n_samples = answer->n_samples;
    if (error)
        s->error = *error;
}

static void ask(server *s)
{
    pp_error err = {0};
    uint64_t id = 0;
    if (pp_prometheus_query(s->prometheus, "{__name__=~\"A|B\"}[30s]", INT64_C(1769000000123999999),
                            on_answer, s, &id, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(s->answers, 0);
    while (s->answers == 0)
        uv_run(&s->loop, UV_RUN_ONCE);
}

static void stop(server *s)
{
    pp_prometheus_free(s->prometheus);
    pp_http_client_free(s->http);
    uv_close((uv_handle_t *)&s->listener, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&s->loop), 0);
    free(s);
}

static void request_is_well_formed(void **state)
{
    (void)state;
    char path[] = "/tmp/pp-token.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "s3cret\n", 7) == 7);
    close(fd);
    server *s = serve(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" MATRIX(
            SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"", "[1,\"10\"]")));
    open_client(s, path, 0);
    ask(s);
    assert_int_equal(s->error.code, PP_OK);
    assert_int_equal(s->n_samples, 1);
    assert_int_equal(strncmp(s->request, "POST /prefix/api/v1/query HTTP/1.1\r\n", 36), 0);
    assert_non_null(strstr(s->request, "Authorization: Bearer s3cret\r\n"));
    assert_non_null(strstr(s->request, "\r\n\r\nquery=%7B__name__%3D~%22A%7CB%22%7D%5B30s%5D"
                                       "&time=1769000000.123"));
    stop(s);
    unlink(path);
}

static void fails(const char *reply, size_t max_body, pp_error_code code, const char *words)
{
    server *s = serve(reply);
    open_client(s, NULL, max_body);
    ask(s);
    if (s->error.code != code || !strstr(s->error.message, words))
        fail_msg("%s: %s", pp_error_code_name(s->error.code), s->error.message);
    stop(s);
}

#define HEAD(status) "HTTP/1.1 " status "\r\nConnection: close\r\n\r\n"

static void bad_servers(void **state)
{
    (void)state;
    fails(NULL, 0, PP_ERR_TIMEOUT, "");
    fails(HEAD("503 Service Unavailable") "<html>", 0, PP_ERR_UNAVAILABLE, "503");
    fails(HEAD("401 Unauthorized"), 0, PP_ERR_UNAUTHORIZED, "bearerTokenFile");
    fails(HEAD("403 Forbidden"), 0, PP_ERR_DENIED, "403");
    fails(
        HEAD("400 Bad Request") "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"1:2: "
                                "parse error\"}",
        0, PP_ERR_INVALID, "parse error");
    fails(HEAD("422 Unprocessable") "{\"status\":\"error\",\"errorType\":\"execution\",\"error\":"
                                    "\"too many samples\"}",
          0, PP_ERR_UNAVAILABLE, "too many samples");
    fails(HEAD("200 OK") "{\"status\":\"succ", 0, PP_ERR_INVALID, "Prometheus");
    fails("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 0, PP_ERR_UNAVAILABLE, "");
    fails(HEAD("200 OK") MATRIX(""), 20, PP_ERR_TOO_LARGE, "");
}

static void freeing_with_a_query_under_way(void **state)
{
    (void)state;
    server *s = serve(NULL);
    open_client(s, NULL, 0);
    pp_error err = {0};
    assert_int_equal(pp_prometheus_query(s->prometheus, "x[1s]", 0, on_answer, s, NULL, &err), 0);
    for (int i = 0; i < 5; i++)
        uv_run(&s->loop, UV_RUN_NOWAIT);
    pp_prometheus_free(s->prometheus);
    s->prometheus = NULL;
    stop(s);
}

static void wrong_urls(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_prometheus_options options = {.url = "ftp://x", .source = dcgm()};
    assert_null(pp_prometheus_new(NULL, &options, &err));
    assert_int_equal(err.code, PP_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stamps_and_values_are_exact),
        cmocka_unit_test(every_millisecond_is_exact),
        cmocka_unit_test(blanks_are_dropped),
        cmocka_unit_test(repeats_are_merged),
        cmocka_unit_test(mig_and_foreign_series_are_left_out),
        cmocka_unit_test(prometheus_warning_comes_first),
        cmocka_unit_test(refused_answers),
        cmocka_unit_test(request_is_well_formed),
        cmocka_unit_test(bad_servers),
        cmocka_unit_test(freeing_with_a_query_under_way),
        cmocka_unit_test(wrong_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
