/* Decoding of answers, and the client against a server that is slow, broken or refuses. */
#include "common/tests/cmocka_all.h"
#include "operator/prometheus/prometheus.h"

#include "common/buf.h"
#include "common/cleanup.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Series with ' in place of ", without the answer around them. */
static void read_series(const pp_metric_source *source, const char *series,
                        pp_prometheus_answer *ret)
{
    char text[8192];
    pp_error err = {0};
    (void)snprintf(text, sizeof(text), MATRIX("%s"), series);
    for (char *c = text; *c; c++) {
        if (*c == '\'')
            *c = '"';
    }
    *ret = (pp_prometheus_answer){0};
    if (pp_prometheus_decode(text, strlen(text), source, ret, &err) < 0)
        fail_msg("%s: %s", series, err.message);
}

static void read_dcgm(const char *series, pp_prometheus_answer *ret)
{
    const pp_metric_source source = dcgm();
    read_series(&source, series, ret);
}

#define AND ","
#define OF(name, labels, values)                                                                   \
    "{'metric': {'__name__': '" name "', " labels "}, 'values': [" values "]}"
#define UTIL(labels, values) OF("DCGM_FI_DEV_GPU_UTIL", "'UUID': 'GPU-a', " labels, values)

/* Of 32 and 64 bits, of floats, and what stands for not found, not supported, not permitted. In
 * Prometheus all of the 64 bits' are 2^63. GPUMem has no upper bound that would hide them. */
static void blanks_of_memory_are_dropped(void **state)
{
    (void)state;
    static const char *const blanks[] = {"9.223372036854776e18",
                                         "9223372036854775792",
                                         "9223372036854775793",
                                         "9223372036854775794",
                                         "9223372036854775795",
                                         "2147483632",
                                         "2147483633",
                                         "2147483634",
                                         "2147483635",
                                         "140737488355328",
                                         "140737488355329",
                                         "140737488355330",
                                         "140737488355331",
                                         "NaN",
                                         "+Inf",
                                         "-Inf",
                                         "-9.223372036854776e18"};
    for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++) {
        char series[256];
        pp_prometheus_answer a;
        (void)snprintf(series, sizeof(series),
                       OF("DCGM_FI_DEV_FB_USED", "'UUID': 'GPU-a'", "[1, '%s'], [2, '81559']"),
                       blanks[i]);
        read_dcgm(series, &a);
        if (a.n_samples != 1 || a.samples[0].value != 81559)
            fail_msg("%s is taken for a measurement", blanks[i]);
        pp_prometheus_answer_done(&a);
    }
}

/* Whatever Prometheus and the exporter's release make of the labels, the GPU's samples are one
 * series: here they change from stamp to stamp. */
static void labels_but_the_uuid_do_not_matter(void **state)
{
    (void)state;
    pp_prometheus_answer a;
    read_dcgm(
        UTIL("'Hostname': 'n', 'exported_pod': 'x', 'exported_namespace': 'ml', "
             "'exported_container': 't', 'pod': 'exporter', 'namespace': 'monitoring'",
             "[1, '10']") AND UTIL("'hostname': 'n', 'pod': 'x', 'namespace': 'ml'", "[2, '20']")
            AND UTIL("'pod_name': 'x', 'pod': 'exporter', 'pod_namespace': 'ml'", "[3, '30']")
                AND UTIL("'gpu': '0'", "[4, '40']"),
        &a);
    assert_int_equal(a.gpus.count, 1);
    assert_int_equal(a.n_samples, 4);
    for (int i = 0; i < 4; i++)
        assert_true(a.samples[i].value == 10 * (i + 1));
    assert_int_equal(a.shared.count, 0);
    assert_string_equal(a.warning, "");
    pp_prometheus_answer_done(&a);
}

/* A shared GPU has a series for each pod, or one that names now the one and now the other. */
static void pods_on_one_gpu_are_one_set_of_samples(void **state)
{
    (void)state;
    static const struct {
        const char *series;
        size_t samples;
        bool shared;
    } cases[] = {
        {UTIL("'pod': 'x'", "[1, '10'], [2, '20']") AND UTIL("'pod': 'y'", "[1, '10'], [2, '20']"),
         2, true},
        {UTIL("'pod': 'e', 'exported_pod': 'x'", "[1, '10'], [3, '30']")
             AND UTIL("'pod': 'e', 'exported_pod': 'y'", "[2, '20'], [4, '40']"),
         4, true},
        {UTIL("'pod': 'x', 'namespace': 'ml'", "[1, '10']")
             AND UTIL("'pod': 'x', 'namespace': 'other'", "[1, '10']"),
         1, true},
        /* one after the other, or two containers of one */
        {UTIL("'pod': 'x'", "[1, '10'], [2, '20']") AND UTIL("'pod': 'y'", "[3, '30'], [4, '40']"),
         4, false},
        {UTIL("'pod': 'x', 'container': 'a'", "[1, '10']")
             AND UTIL("'pod': 'x', 'container': 'b'", "[1, '10']"),
         1, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char series[2048];
        pp_prometheus_answer a;
        (void)snprintf(series, sizeof(series),
                       OF("DCGM_FI_DEV_GPU_UTIL", "'UUID': 'GPU-0', 'pod': 'z'", "[1, '7']") ",%s",
                       cases[i].series);
        read_dcgm(series, &a);
        assert_int_equal(a.gpus.count, 2);
        if (a.n_samples != cases[i].samples + 1 || a.shared.count != cases[i].shared)
            fail_msg("%s: %zu samples, shared: %zu", series, a.n_samples, a.shared.count);
        if (cases[i].shared)
            assert_string_equal(a.shared.items[0], "GPU-a");
        assert_int_equal(strstr(a.warning, "several pods share a GPU") != NULL, cases[i].shared);
        pp_prometheus_answer_done(&a);
    }
}

/* dcgm-exporter with virtual GPUs gives some metrics by pod and copies the others. */
static void values_by_pod_are_not_the_gpus(void **state)
{
    (void)state;
    pp_prometheus_answer a;
    read_dcgm(UTIL("'pod': 'x'", "[1, '0'], [2, '20']")
                  AND UTIL("'pod': 'y'", "[1, '0'], [2, '30'], [3, '40']")
                      AND OF("DCGM_FI_PROF_SM_ACTIVE", "'UUID': 'GPU-a'", "[1, '0.5']")
                          AND OF("DCGM_FI_DEV_GPU_UTIL", "'UUID': 'GPU-b'", "[1, '3']"),
              &a);
    assert_int_equal(a.n_samples, 2);
    assert_int_equal(a.samples[0].metric, PP_METRIC_SM_ACTIVE);
    assert_true(a.samples[1].gpu == 1 && a.samples[1].value == 3);
    assert_non_null(strstr(a.warning, "several pods share a GPU"));
    assert_non_null(strstr(a.warning, "values that differ by pod are left out"));
    pp_prometheus_answer_done(&a);
}

/* Where an exporter names the instance by its own UUID, as the process does, it is found. */
static void mig_instances_with_their_own_uuid_are_taken(void **state)
{
    (void)state;
    pp_prometheus_answer a;
    read_dcgm(OF("DCGM_FI_PROF_SM_ACTIVE", "'UUID': 'MIG-a', 'GPU_I_ID': '3'", "[1, '0.5']"), &a);
    assert_int_equal(a.n_samples, 1);
    assert_string_equal(a.gpus.items[0], "MIG-a");
    assert_string_equal(a.warning, "");
    pp_prometheus_answer_done(&a);
}

#define AMD(name, value)                                                                           \
    OF(name,                                                                                       \
       "'gpu_uuid': 'ccff74a1-0000-1000-80e0-c6d49f5b0d86', 'gpu_id': '2', 'hostname': 'n', "      \
       "'gpu_compute_partition_type': 'spx', 'gpu_partition_id': '0', 'pod': 'x'",                 \
       "[1, '" value "']")

static void amd_names_and_units(void **state)
{
    (void)state;
    static const struct {
        pp_metric metric;
        double value;
    } expected[] = {{PP_METRIC_SM_ACTIVE, 0.5},
                    {PP_METRIC_SM_OCCUPANCY, 0.25},
                    {PP_METRIC_GPU_UTIL, 97},
                    {PP_METRIC_GPU_MEM, 283},
                    {PP_METRIC_POWER, 512}};
    pp_metric_source amd;
    pp_prometheus_answer a;
    assert_int_equal(pp_metric_preset("amd", &amd, NULL), 0);
    read_series(&amd,
                AMD("gpu_gfx_activity", "97") AND AMD("gpu_used_vram", "283")
                    AND AMD("gpu_prof_occupancy_percent", "25") AND AMD("gpu_prof_sm_active", "50")
                        AND AMD("gpu_umc_activity", "3") AND AMD("gpu_power_usage", "512")
                            AND UTIL("'gpu': '0'", "[1, '10']"),
                &a);
    assert_int_equal(a.gpus.count, 1);
    assert_string_equal(a.gpus.items[0], "ccff74a1-0000-1000-80e0-c6d49f5b0d86");
    assert_int_equal(a.n_samples, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(a.samples[i].metric, expected[i].metric);
        assert_true(a.samples[i].value == expected[i].value);
    }
    pp_prometheus_answer_done(&a);
}

/* Values are taken as they stand: a counter would need its increase, and a look at resets. DCGM's
 * profiling fields of bytes are rates, whatever an exporter's counters file calls them. */
static void no_preset_has_a_counter(void **state)
{
    (void)state;
    static const char *const presets[] = {"dcgm", "amd"};
    static const char *const words[] = {"total", "count", "energy", "consum"};
    for (size_t p = 0; p < 2; p++) {
        pp_metric_source source;
        assert_int_equal(pp_metric_preset(presets[p], &source, NULL), 0);
        for (int m = 0; m < PP_METRIC_COUNT; m++) {
            for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
                assert_null(strcasestr(source.series[m].name, words[w]));
        }
    }
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
                                         "[1,\"90\"]") "," SERIES("DCGM_FI_DEV_GPU_TEMP",
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

static void prometheus_warnings_are_told(void **state)
{
    (void)state;
    pp_prometheus_answer a = {0};
    assert_int_equal(decode("{\"status\":\"success\",\"warnings\":[\"remote is away\"],\"data\":{"
                            "\"resultType\":\"matrix\",\"result\":[]}}",
                            &a, NULL),
                     0);
    assert_string_equal(a.warning, "remote is away");
    assert_true(a.partial);
    pp_prometheus_answer_done(&a);
    read_dcgm(UTIL("'pod': 'x'", "[1, '10']") AND UTIL("'pod': 'y'", "[1, '10']"), &a);
    assert_false(a.partial); /* a note of ours */
    pp_prometheus_answer_done(&a);
}

/* Answers differ in what they warn of: each is told once, and stays. */
static void warnings_are_gathered(void **state)
{
    (void)state;
    char known[284] = ""; /* ours have room in it */
    assert_false(pp_prometheus_add_warnings(known, sizeof known, ""));
    assert_true(pp_prometheus_add_warnings(known, sizeof known, "one"));
    assert_true(pp_prometheus_add_warnings(known, sizeof known, "two; one"));
    assert_string_equal(known, "one; two");
    assert_false(pp_prometheus_add_warnings(known, sizeof known, "one"));
    assert_false(pp_prometheus_add_warnings(known, sizeof known, "two; one"));
    assert_false(pp_prometheus_add_warnings(known, sizeof known, "thirty bytes, which do not fit"));
    assert_string_equal(known, "one; two");
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
    bool hold;           /* the connection stays open after it */
    char request[65536]; /* what came last */
    size_t n;
    pp_http_client *http;
    pp_prometheus *prometheus;
    int answers;
    size_t n_samples;
    int64_t first_ns;
    char warning[384];
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
    if (!p->server->hold && !uv_is_closing((uv_handle_t *)&p->tcp))
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
                                           .timeout_ns =
                                               s->reply && !s->hold ? 120000000000 : 500000000,
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
    if (answer) {
        s->n_samples = answer->n_samples;
        s->first_ns = answer->n_samples ? answer->samples[0].stamp_ns : 0;
        (void)snprintf(s->warning, sizeof s->warning, "%s", answer->warning);
    }
    if (error)
        s->error = *error;
}

static void ask_for(server *s, int64_t range_ns)
{
    pp_error err = {0};
    uint64_t id = 0;
    if (pp_prometheus_query(s->prometheus, "{__name__=~\"A|B\"}[30s]", INT64_C(1769000000123999999),
                            range_ns, on_answer, s, &id, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(s->answers, 0);
    while (s->answers == 0)
        uv_run(&s->loop, UV_RUN_ONCE);
}

static void ask(server *s)
{
    ask_for(s, 0);
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

/* What time it is there: a query that names no time. */
static void on_time(void *user, int64_t real_ns, const pp_error *error)
{
    server *s = user;
    s->answers++;
    s->first_ns = real_ns;
    s->error = error ? *error : (pp_error){0};
}

static void ask_time(server *s)
{
    pp_error err = {0};
    s->answers = 0;
    assert_int_equal(pp_prometheus_ask_time(s->prometheus, on_time, s, &err), 0);
    while (s->answers == 0)
        uv_run(&s->loop, UV_RUN_ONCE);
}

#define OK_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"

static void the_time_is_asked(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int64_t time;
        pp_error_code code;
    } cases[] = {
        {OK_HEAD "{\"status\":\"success\",\"data\":{\"resultType\":\"scalar\",\"result\":"
                 "[1769000000.123,\"1769000000.123\"]}}",
         INT64_C(1769000000123000000), PP_OK},
        {OK_HEAD "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":"
                 "[{\"metric\":{},\"value\":[1769000000,\"1769000000\"]}]}}",
         INT64_C(1769000000000000000), PP_OK},
        {OK_HEAD "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}", 0,
         PP_ERR_INVALID},
        {OK_HEAD "{\"status\":\"success\",\"data\":{\"result\":[1,\"NaN\"]}}", 0, PP_ERR_INVALID},
        {OK_HEAD "{\"status\":\"success\",\"data\":{\"result\":[1,\"1e300\"]}}", 0, PP_ERR_INVALID},
        {OK_HEAD "{\"status\":\"success\",\"data\":{\"result\":[1,\"-7\"]}}", 0, PP_ERR_INVALID},
        {OK_HEAD "{\"status\":\"success\",\"data\":{\"result\":[1,\"12 o'clock\"]}}", 0,
         PP_ERR_INVALID},
        {OK_HEAD "<html>", 0, PP_ERR_INVALID},
        {"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n", 0, PP_ERR_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        server *s = serve(cases[i].reply);
        open_client(s, NULL, 0);
        ask_time(s);
        assert_int_equal(s->error.code, cases[i].code);
        assert_true(s->first_ns == cases[i].time);
        assert_non_null(strstr(s->request, "\r\n\r\nquery=time%28%29"));
        assert_null(strstr(s->request, "&time="));
        stop(s);
    }
}

static char *write_token(char *path, const char *token)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const ssize_t n = (ssize_t)strlen(token);
    assert_true(fd >= 0 && write(fd, token, (size_t)n) == n);
    close(fd);
    return path;
}

/* Samples of another time than was asked for would end the search for those that are missing, and
 * have the store make room for days that nobody observed. */
static void samples_of_another_time_are_left_out(void **state)
{
    (void)state;
    server *s = serve(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" MATRIX(
            SERIES("DCGM_FI_DEV_GPU_UTIL", "\"UUID\":\"g\"",
                   "[-5,\"1\"],[1,\"10\"],[1768999970.122,\"11\"],[1769000000.123,\"20\"],"
                   "[1769000000.124,\"30\"],[5769000000,\"40\"]")));
    open_client(s, NULL, 0);
    ask_for(s, INT64_C(30000000000));
    assert_int_equal(s->error.code, PP_OK);
    assert_int_equal(s->n_samples, 1);
    assert_true(s->first_ns == INT64_C(1769000000123000000));
    assert_string_equal(s->warning, "samples of another time than asked for are left out");
    stop(s);
}

/* Some 64 are asked for at once: what has many more answers something else, and would take long. */
static void too_many_gpus_are_no_answer(void **state)
{
    (void)state;
    enum { EACH = 100 };
    char *text = malloc((size_t)(PP_PROMETHEUS_MAX_GPUS + 9) * EACH);
    assert_non_null(text);
    for (int n = PP_PROMETHEUS_MAX_GPUS; n <= PP_PROMETHEUS_MAX_GPUS + 1; n++) {
        pp_prometheus_answer a = {0};
        pp_error err = {0};
        char *at = text + sprintf(text, "%s",
                                  "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\","
                                  "\"result\":[");
        for (int i = 0; i < n; i++)
            at += sprintf(at,
                          "%s{\"metric\":{\"__name__\":\"DCGM_FI_DEV_GPU_UTIL\",\"UUID\":"
                          "\"g%d\"},\"values\":[[1,\"7\"]]}",
                          i ? "," : "", i);
        (void)sprintf(at, "%s", "]}}");
        assert_int_equal(decode(text, &a, &err), n == PP_PROMETHEUS_MAX_GPUS ? 0 : -1);
        assert_int_equal(err.code, n == PP_PROMETHEUS_MAX_GPUS ? PP_OK : PP_ERR_INVALID);
        pp_prometheus_answer_done(&a);
    }
    free(text);
}

/* More than the store takes at once: half as many are asked for then. */
static void a_large_answer_is_too_large(void **state)
{
    (void)state;
    enum { MOST = 100000, EACH = 24 };
    char *text = malloc((size_t)(MOST + 9) * EACH);
    pp_prometheus_answer a = {0};
    pp_error err = {0};
    assert_non_null(text);
    for (int n = MOST; n <= MOST + 1; n++) {
        char *at = text + sprintf(text, "%s",
                                  "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\","
                                  "\"result\":[{\"metric\":{\"__name__\":\"DCGM_FI_DEV_GPU_UTIL\","
                                  "\"UUID\":\"g\"},\"values\":[");
        for (int i = 0; i < n; i++)
            at += sprintf(at, "%s[%d,\"7\"]", i ? "," : "", i);
        (void)sprintf(at, "%s", "]}]}}");
        assert_int_equal(decode(text, &a, &err), n == MOST ? 0 : -1);
        pp_prometheus_answer_done(&a);
    }
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    free(text);
}

static void token_is_read_for_every_query(void **state)
{
    (void)state;
    char path[] = "/tmp/pp-token.XXXXXX";
    pp_error err = {0};
    close(mkstemp(path));
    server *s = serve("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" MATRIX(""));
    open_client(s, write_token(path, "one"), 0);
    ask(s);
    assert_non_null(strstr(s->request, "Authorization: Bearer one\r\n"));
    (void)write_token(path, "two\n");
    s->answers = 0;
    ask(s);
    assert_non_null(strstr(s->request, "Authorization: Bearer two\r\n"));
    unlink(path);
    assert_int_equal(pp_prometheus_query(s->prometheus, "x[1s]", 0, 0, on_answer, s, NULL, &err),
                     -1);
    assert_non_null(strstr(err.message, "prometheus.bearerTokenFile"));
    stop(s);
}

static void a_body_that_does_not_end(void **state)
{
    (void)state;
    server *s = serve("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"status\":");
    s->hold = true;
    open_client(s, NULL, 0);
    ask(s);
    assert_int_equal(s->error.code, PP_ERR_TIMEOUT);
    stop(s);
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
          0, PP_ERR_TOO_LARGE, "too many samples");
    fails(HEAD("422 Unprocessable") "too much", 0, PP_ERR_INVALID, "422");
    fails("HTTP/1.1 302 Found\r\nLocation: https://sso.example/login\r\nConnection: close\r\n\r\n",
          0, PP_ERR_INVALID, "302, a redirect, which is not followed: set prometheus.url");
    fails(HEAD("503 Service Unavailable") "{\"status\":\"error\",\"errorType\":\"timeout\","
                                          "\"error\":\"query timed out in expression\"}",
          0, PP_ERR_TIMEOUT, "query timed out");
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
    assert_int_equal(pp_prometheus_query(s->prometheus, "x[1s]", 0, 0, on_answer, s, NULL, &err),
                     0);
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

/* However long Prometheus' warnings are and whatever they are written in, a user is told what was
 * left out, whole and first: the message that this is part of may be cut. */
static void notes_are_not_pushed_out(void **state)
{
    (void)state;
    static const char *const ours[] = {"several pods share a GPU: its values are of all their work",
                                       "series of MIG instances are left out: they are not the "
                                       "whole GPU's",
                                       "values that differ by pod are left out: they are not the "
                                       "GPU's"};
    char known[448] = "", body[4096], text[1024] = "";
    for (int i = 0; i < 300; i++)
        (void)snprintf(text + 1 + 3 * i, 4, "%s",
                       "\xe6\x9c\xaa"); /* cut within a character, it is none */
    for (int turn = 0; turn < 5; turn++) {
        pp_prometheus_answer a = {0};
        text[0] = (char)('0' + turn); /* each time another */
        (void)snprintf(body, sizeof body,
                       "{\"status\":\"success\",\"warnings\":[\"%s\"],\"data\":{\"resultType\":"
                       "\"matrix\",\"result\":[]}}",
                       text);
        assert_int_equal(decode(body, &a, NULL), 0);
        assert_true(strlen(a.warning) > 50);
        (void)pp_prometheus_add_warnings(known, sizeof known, a.warning);
        pp_prometheus_answer_done(&a);
    }
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        assert_true(pp_prometheus_add_warnings(known, sizeof known, ours[i]));
    assert_non_null(strstr(known, "; 0\xe6"));
    json_t *probe = json_string(known);
    assert_non_null(probe); /* UTF-8 */
    json_decref(probe);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        assert_true(strstr(known, ours[i]) && strstr(known, ours[i]) < strstr(known, "0\xe6"));
        assert_false(pp_prometheus_add_warnings(known, sizeof known, ours[i]));
    }
}

static void a_note_stands_beside_a_long_warning(void **state)
{
    (void)state;
    pp_prometheus_answer a = {0};
    char body[2048], text[600];
    memset(text, 'w', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)snprintf(body, sizeof body,
                   "{\"status\":\"success\",\"warnings\":[\"%s\"],\"data\":{\"resultType\":"
                   "\"matrix\",\"result\":[{\"metric\":{\"__name__\":\"DCGM_FI_DEV_GPU_UTIL\","
                   "\"UUID\":\"GPU-1\",\"GPU_I_ID\":\"3\"},\"values\":[]}]}}",
                   text);
    assert_int_equal(decode(body, &a, NULL), 0);
    assert_non_null(strstr(a.warning, "whole GPU's"));
    assert_non_null(strstr(a.warning, "wwwwwwww"));
    assert_true(a.partial);
    pp_prometheus_answer_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stamps_and_values_are_exact),
        cmocka_unit_test(every_millisecond_is_exact),
        cmocka_unit_test(blanks_are_dropped),
        cmocka_unit_test(blanks_of_memory_are_dropped),
        cmocka_unit_test(labels_but_the_uuid_do_not_matter),
        cmocka_unit_test(pods_on_one_gpu_are_one_set_of_samples),
        cmocka_unit_test(values_by_pod_are_not_the_gpus),
        cmocka_unit_test(mig_instances_with_their_own_uuid_are_taken),
        cmocka_unit_test(amd_names_and_units),
        cmocka_unit_test(no_preset_has_a_counter),
        cmocka_unit_test(mig_and_foreign_series_are_left_out),
        cmocka_unit_test(prometheus_warnings_are_told),
        cmocka_unit_test(warnings_are_gathered),
        cmocka_unit_test(notes_are_not_pushed_out),
        cmocka_unit_test(a_note_stands_beside_a_long_warning),
        cmocka_unit_test(refused_answers),
        cmocka_unit_test(request_is_well_formed),
        cmocka_unit_test(the_time_is_asked),
        cmocka_unit_test(samples_of_another_time_are_left_out),
        cmocka_unit_test(too_many_gpus_are_no_answer),
        cmocka_unit_test(a_large_answer_is_too_large),
        cmocka_unit_test(token_is_read_for_every_query),
        cmocka_unit_test(a_body_that_does_not_end),
        cmocka_unit_test(bad_servers),
        cmocka_unit_test(freeing_with_a_query_under_way),
        cmocka_unit_test(wrong_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
