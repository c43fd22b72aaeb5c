/* A real Prometheus (in PATH) that scrapes an exporter of this test. */
#include "common/tests/cmocka_all.h"
#include "operator/prometheus/prometheus.h"

#include "common/cleanup.h"
#include "common/time.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
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
    bool answered;
    pp_prometheus_answer answer; /* copied */
    pp_error error;
} setup;

static int listen_somewhere(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, n) == 0 && listen(fd, 16) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

/* Each scrape reads a value of its own: the scrape's number in percent. */
static void answer_scrape(int fd, int number)
{
    char request[8192];
    char body[2048];
    char text[4096];
    if (read(fd, request, sizeof(request)) <= 0)
        return;
    const int n = snprintf(body, sizeof(body),
                           "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",pod=\"x\"} %d\n"
                           "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",pod=\"y\"} %d\n"
                           "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\"} 9223372036854775794\n"
                           "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\",UUID=\"GPU-a\"} %.3f\n"
                           "DCGM_FI_PROF_SM_ACTIVE{gpu=\"1\",UUID=\"GPU-b\"} NaN\n"
                           "DCGM_FI_PROF_SM_ACTIVE{gpu=\"2\",UUID=\"GPU-a\",GPU_I_ID=\"1\"} 0.9\n"
                           "DCGM_FI_DEV_FB_USED{gpu=\"9\",UUID=\"GPU-other\"} 1\n",
                           number % 100, number % 100, number % 100 / 100.0);
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
    (void)fprintf(f,
                  "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
                  "scrape_configs:\n- job_name: gpu\n  static_configs:\n"
                  "  - targets: ['127.0.0.1:%d']\n",
                  exporter_port);
}

static pid_t start_prometheus(const setup *s)
{
    char config[128];
    char data[128];
    char listen_on[64];
    char log[128];
    (void)snprintf(config, sizeof(config), "--config.file=%s/prometheus.yml", s->dir);
    (void)snprintf(data, sizeof(data), "--storage.tsdb.path=%s/data", s->dir);
    (void)snprintf(listen_on, sizeof(listen_on), "--web.listen-address=127.0.0.1:%d", s->port);
    (void)snprintf(log, sizeof(log), "%s/log", s->dir);
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execlp("prometheus", "prometheus", config, data, listen_on, "--web.enable-lifecycle",
           (char *)NULL);
    _exit(127);
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
    const int fd = listen_somewhere(&exporter_port);
    s->exporter = start_exporter(fd);
    close(fd);
    close(listen_somewhere(&s->port)); /* a port that was free a moment ago */
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

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int tear_down(void **state)
{
    setup *s = *state;
    pp_prometheus_free(s->client);
    pp_http_client_free(s->http);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&s->loop), 0);
    kill(s->prometheus, SIGKILL);
    kill(s->exporter, SIGKILL);
    waitpid(s->prometheus, NULL, 0);
    waitpid(s->exporter, NULL, 0);
    (void)nftw(s->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    pp_prometheus_answer_done(&s->answer);
    free(s);
    return 0;
}

static void on_answer(void *user, uint64_t id, const pp_prometheus_answer *answer,
                      const pp_error *error)
{
    setup *s = user;
    (void)id;
    s->answered = true;
    pp_prometheus_answer_done(&s->answer);
    s->error = error ? *error : (pp_error){0};
    if (!answer)
        return;
    s->answer = *answer;
    s->answer.gpus = (pp_strings){0};
    for (size_t i = 0; i < answer->gpus.count; i++)
        assert_int_equal(pp_strings_add(&s->answer.gpus, answer->gpus.items[i], NULL), 0);
    s->answer.samples = calloc(answer->n_samples + 1, sizeof(*answer->samples));
    if (answer->n_samples)
        memcpy(s->answer.samples, answer->samples, answer->n_samples * sizeof(*answer->samples));
}

static void ask(setup *s, const char *text, int64_t time_ns)
{
    pp_error err = {0};
    s->answered = false;
    if (pp_prometheus_query(s->client, text, time_ns, on_answer, s, NULL, &err) < 0)
        fail_msg("%s", err.message);
    while (!s->answered)
        uv_run(&s->loop, UV_RUN_ONCE);
}

static const char query[] = "{__name__=~\"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_PROF_SM_ACTIVE\","
                            "UUID=~\"GPU-a|GPU-b\"}[60s]";

static size_t count(const setup *s, pp_metric metric)
{
    size_t n = 0;
    for (size_t i = 0; i < s->answer.n_samples; i++)
        n += s->answer.samples[i].metric == metric;
    return n;
}

/* Asks again until Prometheus is up and has scraped often enough. */
static void await_samples(setup *s)
{
    const int64_t limit = pp_time_monotonic() + INT64_C(60000000000);
    while (count(s, PP_METRIC_SM_ACTIVE) < SCRAPES) {
        int status = 0;
        if (pp_time_monotonic() > limit)
            fail_msg("no samples within 60 s: %s", s->error.message);
        if (waitpid(s->prometheus, &status, WNOHANG) == s->prometheus)
            fail_msg("prometheus ended with %d: is it installed?", status);
        ask(s, query, pp_time_now());
        uv_sleep(100);
    }
}

static void raw_samples_have_their_own_stamps(void **state)
{
    setup *s = *state;
    await_samples(s);
    assert_string_equal(s->answer.gpus.items[0], "GPU-a");
    for (size_t i = 1; i < s->answer.n_samples; i++) {
        const pp_activity_sample *a = &s->answer.samples[i - 1];
        const pp_activity_sample *b = &s->answer.samples[i];
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
        assert_int_equal(s->answer.samples[i].stamp_ns, s->answer.samples[n + i].stamp_ns);
        assert_true(fabs(s->answer.samples[i].value - 100 * s->answer.samples[n + i].value) < 1e-9);
    }
    assert_int_equal(s->answer.n_samples,
                     2 * n); /* the second pod's are merged, GPU-b's are blank */
    assert_non_null(strstr(s->answer.warning, "MIG"));
}

static void the_same_time_gives_the_same(void **state)
{
    setup *s = *state;
    await_samples(s);
    const int64_t at = s->answer.samples[SCRAPES - 2].stamp_ns;
    ask(s, query, at);
    const size_t n = s->answer.n_samples;
    pp_activity_sample *first = calloc(n, sizeof(*first));
    assert_true(first && n > 0);
    memcpy(first, s->answer.samples, n * sizeof(*first));
    assert_int_equal(first[n / 2 - 1].stamp_ns, at); /* the range's end is within */
    ask(s, query, at);
    assert_int_equal(s->answer.n_samples, n);
    assert_memory_equal(s->answer.samples, first, n * sizeof(*first));
    free(first);
}

static void a_wrong_query_is_refused(void **state)
{
    setup *s = *state;
    await_samples(s);
    ask(s, "{__name__=~\"DCGM\"", pp_time_now());
    assert_int_equal(s->error.code, PP_ERR_INVALID);
    assert_non_null(strstr(s->error.message, "parse error"));
    ask(s, "up", pp_time_now());
    assert_int_equal(s->error.code, PP_ERR_INVALID);
    assert_non_null(strstr(s->error.message, "vector"));
    ask(s, "nothing[1m]", pp_time_now());
    assert_int_equal(s->error.code, PP_OK);
    assert_int_equal(s->answer.n_samples, 0);
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
    assert_int_equal(s->error.code, PP_ERR_TIMEOUT);
    kill(s->prometheus, SIGCONT);
    ask(s, query, pp_time_now());
    assert_int_equal(s->error.code, PP_OK);
    kill(s->prometheus, SIGKILL);
    waitpid(s->prometheus, NULL, 0);
    ask(s, query, pp_time_now());
    assert_int_equal(s->error.code, PP_ERR_UNAVAILABLE);
    s->prometheus = start_prometheus(s); /* the past is still there */
    await_samples(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_samples_have_their_own_stamps),
        cmocka_unit_test(the_same_time_gives_the_same),
        cmocka_unit_test(a_wrong_query_is_refused),
        cmocka_unit_test(a_dead_server_is_unavailable),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
