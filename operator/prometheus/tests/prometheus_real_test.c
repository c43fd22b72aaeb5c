/* A real Prometheus (in PATH) that scrapes an exporter of this test. */
#include "operator/prometheus/tests/fixture.h"

#include "common/cleanup.h"
#include "common/time.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SCRAPES = 8 };

typedef struct setup {
    char dir[64];
    pid_t exporter;
    pid_t prometheus;
    int port;
    uv_loop_t loop;
    pp_http_client *http;
    pp_prometheus *client;
    fixture_reply reply;
} setup;

/* Each scrape reads a value of its own: the scrape's number in percent. */
static int write_metrics(char *to, size_t size, int number)
{
    const int n = number % 100;
    return snprintf(to, size,
                    "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",namespace=\"ml\",pod=\"x\"} %d\n"
                    "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",namespace=\"ml\",pod=\"y\"} %d\n"
                    "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\"} 9223372036854775794\n"
                    "DCGM_FI_DEV_FB_USED{gpu=\"1\",UUID=\"GPU-b\"} 9223372036854775794\n"
                    "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\",UUID=\"GPU-a\"} %.3f\n"
                    "DCGM_FI_PROF_SM_ACTIVE{gpu=\"1\",UUID=\"GPU-b\"} NaN\n"
                    "DCGM_FI_PROF_SM_ACTIVE{gpu=\"2\",UUID=\"GPU-a\",GPU_I_ID=\"1\"} 0.9\n"
                    "DCGM_FI_DEV_FB_USED{gpu=\"9\",UUID=\"GPU-other\"} 1\n",
                    n, n, n / 100.0);
}

/* What the job with honor_labels scrapes. */
static int write_honoured(char *to, size_t size, int number)
{
    return snprintf(
        to, size,
        "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-c\",hostname=\"n\",namespace=\"ml\",pod=\"x\"} %d\n"
        "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-c\",hostname=\"n\",namespace=\"ml\",pod=\"y\"} %d\n",
        number % 100, number % 100);
}

static void answer_scrape(int fd, int number)
{
    char request[8192] = "";
    char body[2048];
    char text[4096];
    if (read(fd, request, sizeof(request) - 1) <= 0)
        return;
    const int n = strncmp(request, "GET /honoured", 13) == 0
                      ? write_honoured(body, sizeof(body), number)
                      : write_metrics(body, sizeof(body), number);
    const int total = snprintf(text, sizeof(text),
                               "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                               "Content-Length: %d\r\nConnection: close\r\n\r\n%s",
                               n, body);
    if (write(fd, text, (size_t)total) != total)
        _exit(1);
}

static pid_t start_exporter(int fd)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int number = 1;; number++) {
        const int peer = accept(fd, NULL, NULL);
        if (peer < 0)
            _exit(1);
        answer_scrape(peer, number);
        close(peer);
    }
}

static void write_config(const setup *s, int exporter_port)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/prometheus.yml", s->dir);
    PP_CLEANUP_FILE FILE *f = fopen(path, "we");
    assert_non_null(f);
    /* The target's own labels are those that a ServiceMonitor gives. */
    (void)fprintf(f,
                  "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
                  "scrape_configs:\n"
                  "- job_name: gpu\n"
                  "  static_configs: &exporter\n"
                  "  - targets: ['127.0.0.1:%d']\n"
                  "    labels: {namespace: monitoring, pod: exporter, container: exporter}\n"
                  "- job_name: honoured\n"
                  "  honor_labels: true\n"
                  "  metrics_path: /honoured\n"
                  "  static_configs: *exporter\n",
                  exporter_port);
}

static pid_t start_prometheus(const setup *s)
{
    return fixture_start_prometheus(s->dir, s->port, NULL);
}

static int set_up(void **state)
{
    setup *s = calloc(1, sizeof(*s));
    int exporter_port = 0;
    pp_error err = {0};
    char url[64];
    assert_non_null(s);
    (void)snprintf(s->dir, sizeof(s->dir), "/tmp/pp-prometheus.XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    const int fd = fixture_listen(&exporter_port);
    s->exporter = start_exporter(fd);
    close(fd);
    close(fixture_listen(&s->port)); /* a port that was free a moment ago */
    write_config(s, exporter_port);
    s->prometheus = start_prometheus(s);
    assert_int_equal(uv_loop_init(&s->loop), 0);
    s->http = pp_http_client_new(&s->loop, NULL, &err);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", s->port);
    pp_prometheus_options options = {.url = url};
    assert_int_equal(pp_metric_preset("dcgm", &options.source, &err), 0);
    s->client = pp_prometheus_new(s->http, &options, &err);
    assert_non_null(s->client);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    setup *s = *state;
    fixture_stop(&s->loop, s->client, s->http, s->prometheus, s->exporter);
    fixture_remove(s->dir);
    pp_prometheus_answer_done(&s->reply.answer);
    free(s);
    return 0;
}

static void ask(setup *s, const char *text, int64_t time_ns)
{
    fixture_ask(&s->loop, s->client, text, time_ns, &s->reply);
}

static const char query[] = "{__name__=~\"DCGM_FI_DEV_(GPU_UTIL|FB_USED)|DCGM_FI_PROF_SM_ACTIVE\","
                            "UUID=~\"GPU-a|GPU-b\"}[60s]";

static size_t count(const setup *s, pp_metric metric)
{
    size_t n = 0;
    for (size_t i = 0; i < s->reply.answer.n_samples; i++)
        n += s->reply.answer.samples[i].metric == metric;
    return n;
}

/* Asks again until Prometheus is up and has scraped so often: its scrapes have no time to lose. */
static void await(setup *s, const char *text, pp_metric metric, size_t scrapes)
{
    const int64_t limit = pp_time_monotonic() + INT64_C(600000000000);
    for (ask(s, text, pp_time_now()); count(s, metric) < scrapes; ask(s, text, pp_time_now())) {
        int status = 0;
        if (pp_time_monotonic() > limit)
            fail_msg("no samples within 10 min: %s", s->reply.error.message);
        if (waitpid(s->prometheus, &status, WNOHANG) == s->prometheus)
            fail_msg("prometheus ended with %d: is it installed?", status);
        uv_sleep(100);
    }
}

static void await_samples(setup *s)
{
    await(s, query, PP_METRIC_SM_ACTIVE, SCRAPES);
}

static void raw_samples_have_their_own_stamps(void **state)
{
    setup *s = *state;
    await_samples(s);
    assert_string_equal(s->reply.answer.gpus.items[0], "GPU-a");
    for (size_t i = 1; i < s->reply.answer.n_samples; i++) {
        const pp_activity_sample *a = &s->reply.answer.samples[i - 1];
        const pp_activity_sample *b = &s->reply.answer.samples[i];
        if (a->metric != b->metric)
            continue;
        /* one sample per scrape, and every scrape read another value */
        assert_true(b->stamp_ns > a->stamp_ns);
        assert_int_equal(b->stamp_ns % 1000000, 0);
        assert_true(a->value != b->value);
    }
    /* what one scrape reads has one stamp */
    const size_t n = count(s, PP_METRIC_GPU_UTIL);
    assert_int_equal(n, count(s, PP_METRIC_SM_ACTIVE));
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(s->reply.answer.samples[i].stamp_ns,
                         s->reply.answer.samples[n + i].stamp_ns);
        assert_true(fabs(s->reply.answer.samples[n + i].value -
                         100 * s->reply.answer.samples[i].value) < 1e-9);
    }
    assert_int_equal(s->reply.answer.n_samples,
                     2 * n); /* the second pod's are merged, GPU-b's are blank */
    assert_non_null(strstr(s->reply.answer.warning, "MIG"));
}

static void the_same_time_gives_the_same(void **state)
{
    setup *s = *state;
    await_samples(s);
    const int64_t at = s->reply.answer.samples[SCRAPES - 2].stamp_ns;
    ask(s, query, at);
    const size_t n = s->reply.answer.n_samples;
    pp_activity_sample *first = calloc(n, sizeof(*first));
    assert_true(first && n > 0);
    memcpy(first, s->reply.answer.samples, n * sizeof(*first));
    assert_int_equal(first[n / 2 - 1].stamp_ns, at); /* the range's end is within */
    ask(s, query, at);
    assert_int_equal(s->reply.answer.n_samples, n);
    assert_memory_equal(s->reply.answer.samples, first, n * sizeof(*first));
    free(first);
}

/* Prometheus renames the exporter's labels, or not; the GPU has one set of samples. */
static void pods_on_one_gpu_are_one_set(void **state)
{
    static const struct {
        const char *series, *gpu;
        bool any; /* there are some */
    } cases[] = {
        {"UUID=\"GPU-a\",exported_pod=~\"x|y\",pod=\"exporter\"", "GPU-a", true},
        {"UUID=\"GPU-c\",pod=~\"x|y\"", "GPU-c", true},
        {"UUID=\"GPU-c\",exported_pod!=\"\"", "GPU-c", false},
    };
    setup *s = *state;
    await_samples(s);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        (void)snprintf(text, sizeof(text), "DCGM_FI_DEV_GPU_UTIL{%s}[60s]", cases[i].series);
        if (!cases[i].any) {
            ask(s, text, pp_time_now());
            assert_int_equal(s->reply.answer.n_samples, 0);
            continue;
        }
        await(s, text, PP_METRIC_GPU_UTIL, 1);
        for (size_t k = 1; k < s->reply.answer.n_samples; k++)
            assert_true(s->reply.answer.samples[k].stamp_ns >
                        s->reply.answer.samples[k - 1].stamp_ns);
        assert_int_equal(s->reply.answer.shared.count, 1);
        assert_string_equal(s->reply.answer.shared.items[0], cases[i].gpu);
        assert_non_null(strstr(s->reply.answer.warning, "several pods share a GPU"));
    }
}

static void on_time(void *user, int64_t real_ns, const pp_error *error)
{
    *(int64_t *)user = error ? -1 : real_ns;
}

/* Its clock is ours: what it says lies between our asking and its answer's coming. */
static void it_tells_the_time(void **state)
{
    setup *s = *state;
    pp_error err = {0};
    int64_t told = 0;
    const int64_t before = pp_time_now() / 1000000 * 1000000;
    assert_int_equal(pp_prometheus_ask_time(s->client, on_time, &told, &err), 0);
    while (!told)
        uv_run(&s->loop, UV_RUN_ONCE);
    assert_true(told >= before && told <= pp_time_now());
}

static void a_wrong_query_is_refused(void **state)
{
    setup *s = *state;
    await_samples(s);
    ask(s, "{__name__=~\"DCGM\"", pp_time_now());
    assert_int_equal(s->reply.error.code, PP_ERR_INVALID);
    assert_non_null(strstr(s->reply.error.message, "parse error"));
    ask(s, "up", pp_time_now());
    assert_int_equal(s->reply.error.code, PP_ERR_INVALID);
    assert_non_null(strstr(s->reply.error.message, "vector"));
    ask(s, "nothing[1m]", pp_time_now());
    assert_int_equal(s->reply.error.code, PP_OK);
    assert_int_equal(s->reply.answer.n_samples, 0);
}

static void a_dead_server_is_unavailable(void **state)
{
    setup *s = *state;
    await_samples(s);
    int stopped = 0;
    kill(s->prometheus, SIGSTOP);
    assert_int_equal(waitpid(s->prometheus, &stopped, WUNTRACED), s->prometheus);
    assert_true(WIFSTOPPED(stopped)); /* all its threads, so that none answers any more */
    ask(s, query, pp_time_now());
    assert_int_equal(s->reply.error.code, PP_ERR_TIMEOUT);
    kill(s->prometheus, SIGCONT);
    ask(s, query, pp_time_now());
    assert_int_equal(s->reply.error.code, PP_OK);
    kill(s->prometheus, SIGKILL);
    waitpid(s->prometheus, NULL, 0);
    ask(s, query, pp_time_now());
    assert_int_equal(s->reply.error.code, PP_ERR_UNAVAILABLE);
    s->prometheus = start_prometheus(s); /* the past is still there */
    await_samples(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_samples_have_their_own_stamps),
        cmocka_unit_test(the_same_time_gives_the_same),
        cmocka_unit_test(pods_on_one_gpu_are_one_set),
        cmocka_unit_test(it_tells_the_time),
        cmocka_unit_test(a_wrong_query_is_refused),
        cmocka_unit_test(a_dead_server_is_unavailable),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
