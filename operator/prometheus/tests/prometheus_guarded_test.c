/*
 * A real Prometheus (in PATH, with promtool) that gives few samples at once, itself and behind a
 * proxy that wants TLS and a bearer token. Its samples are made, not scraped.
 */
#include "operator/prometheus/tests/fixture.h"

#include "common/cleanup.h"
#include "common/time.h"
#include "controller/samples/plan.h"
#include "operator/http_server/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define SAMPLES                                                                                    \
    12000 /* of each of two series: more than the 11,000 that a range query may give               \
           */
#define LIMIT "15000"
#define SPACING (SECOND / 4)

typedef struct setup {
    char dir[64];
    pid_t prometheus;
    pid_t proxy;
    int port;
    int proxy_port;
    int64_t first_ns; /* stamp of the oldest samples */
    uv_loop_t loop;
    pp_http_client *http;
    pp_prometheus *client;
    fixture_reply reply;
} setup;

static const char *path_in(const setup *s, const char *name)
{
    static char path[160];
    (void)snprintf(path, sizeof(path), "%s/%s", s->dir, name);
    return path;
}

static void write_text(const setup *s, const char *name, const char *text)
{
    PP_CLEANUP_FILE FILE *f = fopen(path_in(s, name), "we");
    assert_true(f && fputs(text, f) >= 0);
}

/* ---- the samples ---- */

static void write_samples(const setup *s)
{
    static const char *const series[] = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE"};
    PP_CLEANUP_FILE FILE *f = fopen(path_in(s, "samples"), "we");
    assert_non_null(f);
    for (size_t m = 0; m < 2; m++) {
        for (int i = 0; i < SAMPLES; i++)
            (void)fprintf(f, "%s{UUID=\"GPU-a\"} %.2f %.3f\n", series[m], i % 100 / 100.0,
                          (double)(s->first_ns + i * SPACING) / 1e9);
    }
    (void)fputs("# EOF\n", f);
}

static void make_blocks(const setup *s)
{
    char data[96];
    int status = 0;
    (void)snprintf(data, sizeof(data), "%s/data", s->dir);
    const char *samples = path_in(s, "samples");
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
        execlp("promtool", "promtool", "tsdb", "create-blocks-from", "openmetrics", samples, data,
               (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- the proxy ---- */

/* What the proxy takes is in a file, so that the test can change it. */
static bool is_admitted(const setup *s, const char *request)
{
    char token[64] = "";
    char wanted[128];
    PP_CLEANUP_FILE FILE *f = fopen(path_in(s, "admitted"), "re");
    if (!f || !fgets(token, sizeof(token), f))
        _exit(1);
    (void)snprintf(wanted, sizeof(wanted), "\r\nAuthorization: Bearer %s\r\n", token);
    return strstr(request, wanted) != NULL;
}

/* A request, whole; 0: the peer went away. */
static size_t read_request(SSL *ssl, char *to, size_t size)
{
    for (size_t n = 0;;) {
        const int got = SSL_read(ssl, to + n, (int)(size - 1 - n));
        if (got <= 0)
            return 0;
        n += (size_t)got;
        to[n] = '\0';
        const char *body = strstr(to, "\r\n\r\n");
        const char *length = strstr(to, "Content-Length: ");
        if (body && length && strlen(body + 4) >= strtoul(length + 16, NULL, 10))
            return n;
    }
}

/* As HTTP/1.0, so that the end of the connection is the end of the answer. */
static void pass_on(const setup *s, SSL *ssl, char *request, size_t n)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)s->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char piece[16384];
    ssize_t got;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *version = strstr(request, "HTTP/1.1");
    if (version)
        version[7] = '0';
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || write(fd, request, n) != (ssize_t)n)
        _exit(1);
    while ((got = read(fd, piece, sizeof(piece))) > 0)
        (void)SSL_write(ssl, piece, (int)got);
    close(fd);
}

static void serve_peer(const setup *s, SSL *ssl)
{
    static const char refusal[] = "HTTP/1.0 401 Unauthorized\r\n\r\nUnauthorized\n";
    static char request[65536];
    const size_t n = read_request(ssl, request, sizeof(request));
    if (n && is_admitted(s, request))
        pass_on(s, ssl, request, n);
    else if (n)
        (void)SSL_write(ssl, refusal, sizeof(refusal) - 1);
    (void)SSL_shutdown(ssl);
}

static pid_t start_proxy(const setup *s, int fd)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_file(ctx, path_in(s, "tls.crt"), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(ctx, path_in(s, "tls.key"), SSL_FILETYPE_PEM) != 1)
        _exit(1);
    for (;;) {
        const int peer = accept(fd, NULL, NULL);
        SSL *ssl = SSL_new(ctx);
        SSL_set_fd(ssl, peer);
        if (SSL_accept(ssl) == 1)
            serve_peer(s, ssl);
        SSL_free(ssl);
        close(peer);
    }
}

/* An authority of its own, and a pair for localhost. */
static void write_certificates(const setup *s, const char *ca, bool pair)
{
    char *const name[] = {(char *)(uintptr_t) "localhost"};
    const pp_strings names = {(char **)(uintptr_t)name, 1};
    pp_certificates made = {0};
    pp_error err = {0};
    bool changed = false;
    if (pp_certificates_renew(&made, &names, pp_time_now(), &changed, &err) < 0)
        fail_msg("%s", err.message);
    write_text(s, ca, made.ca);
    if (pair) {
        write_text(s, "tls.crt", made.certificate);
        write_text(s, "tls.key", made.key);
    }
    pp_certificates_done(&made);
}

/* ---- setting up ---- */

static pp_prometheus *open_client(setup *s, const char *url, const char *ca, const char *token)
{
    char ca_path[160] = "";
    char token_path[160] = "";
    pp_error err = {0};
    if (ca)
        (void)snprintf(ca_path, sizeof(ca_path), "%s", path_in(s, ca));
    if (token)
        (void)snprintf(token_path, sizeof(token_path), "%s", path_in(s, token));
    pp_prometheus_options options = {
        .url = url, .ca_file = ca_path, .bearer_token_file = token_path};
    assert_int_equal(pp_metric_preset("dcgm", &options.source, &err), 0);
    pp_prometheus *client = pp_prometheus_new(s->http, &options, &err);
    assert_non_null(client);
    return client;
}

static void ask(setup *s, pp_prometheus *client, const char *text)
{
    fixture_ask(&s->loop, client, text, s->first_ns + SAMPLES * SPACING, &s->reply);
}

static void await_prometheus(setup *s)
{
    const int64_t limit = pp_time_monotonic() + 600 * SECOND;
    for (;;) {
        int status = 0;
        ask(s, s->client, "none[1s]");
        if (s->reply.error.code == PP_OK)
            return;
        if (pp_time_monotonic() > limit)
            fail_msg("no Prometheus within 10 min: %s", s->reply.error.message);
        if (waitpid(s->prometheus, &status, WNOHANG) == s->prometheus)
            fail_msg("prometheus ended with %d: is it installed?", status);
        uv_sleep(50);
    }
}

static int set_up(void **state)
{
    setup *s = calloc(1, sizeof(*s));
    char url[64];
    assert_non_null(s);
    (void)snprintf(s->dir, sizeof(s->dir), "/tmp/pp-prometheus.XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    /* Old enough to be none of the block that Prometheus itself is about to write. */
    s->first_ns = pp_time_now() / SECOND * SECOND - 8 * 3600 * SECOND;
    write_samples(s);
    make_blocks(s);
    write_text(s, "prometheus.yml", "global: {}\n");
    write_text(s, "admitted", "first");
    write_certificates(s, "ca.crt", true);
    write_certificates(s, "other-ca.crt", false);
    close(fixture_listen(&s->port)); /* a port that was free a moment ago */
    const int fd = fixture_listen(&s->proxy_port);
    s->proxy = start_proxy(s, fd);
    close(fd);
    s->prometheus = fixture_start_prometheus(s->dir, s->port, "--query.max-samples=" LIMIT);
    assert_int_equal(uv_loop_init(&s->loop), 0);
    s->http = pp_http_client_new(&s->loop, NULL, NULL);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", s->port);
    s->client = open_client(s, url, NULL, NULL);
    await_prometheus(s);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    setup *s = *state;
    fixture_stop(&s->loop, s->client, s->http, s->prometheus, s->proxy);
    fixture_remove(s->dir);
    pp_prometheus_answer_done(&s->reply.answer);
    free(s);
    return 0;
}

/* ---- tests ---- */

/* The limit of 11,000 points is one of range queries, which are not used. */
static void one_series_may_be_long(void **state)
{
    setup *s = *state;
    ask(s, s->client, "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\"}[2h]");
    assert_int_equal(s->reply.error.code, PP_OK);
    assert_int_equal(s->reply.answer.n_samples, SAMPLES);
}

static void too_many_samples_are_told(void **state)
{
    setup *s = *state;
    ask(s, s->client, "{__name__=~\"DCGM_.*\",UUID=\"GPU-a\"}[2h]");
    assert_int_equal(s->reply.error.code, PP_ERR_TOO_LARGE);
    assert_non_null(strstr(s->reply.error.message, "too many samples"));
}

/* One query of the plan, as operator/samples/collect.c carries it out. */
static void carry_out(setup *s, pp_plan *plan, const pp_plan_query *query, int64_t now, bool *seen)
{
    fixture_ask(&s->loop, s->client, query->text, query->time_ns, &s->reply);
    const pp_prometheus_answer *answer = &s->reply.answer;
    if (s->reply.error.code == PP_ERR_TOO_LARGE) {
        pp_plan_too_large(plan, query->id, now);
        return;
    }
    assert_int_equal(s->reply.error.code, PP_OK);
    for (size_t i = 0; i < answer->n_samples; i++) {
        const pp_activity_sample *sample = &answer->samples[i];
        const int64_t at = (sample->stamp_ns - s->first_ns) / SPACING;
        assert_true(at >= 0 && at < SAMPLES);
        seen[at + (sample->metric == PP_METRIC_GPU_UTIL ? 0 : SAMPLES)] = true;
        pp_plan_stored(plan, "GPU-a", sample->metric, sample->stamp_ns);
    }
    pp_plan_answered(plan, query->id, now, true);
}

/* The plan asks for all 24,000 at once, is refused, and comes to all of them in pieces. */
static void a_limited_prometheus_gives_all(void **state)
{
    setup *s = *state;
    static bool seen[2 * SAMPLES];
    pp_metric_source source;
    assert_int_equal(pp_metric_preset("dcgm", &source, NULL), 0);
    const pp_plan_options options = {.metrics =
                                         1U << PP_METRIC_GPU_UTIL | 1U << PP_METRIC_SM_ACTIVE,
                                     .wait_ns = 600 * SECOND,
                                     .scrape_ns = SPACING,
                                     .range_max_ns = 7200 * SECOND};
    pp_plan *plan = pp_plan_new(&source, &options);
    int64_t now = s->first_ns + 7200 * SECOND;
    size_t queries = 0;
    assert_int_equal(
        pp_plan_need(plan, "GPU-a", s->first_ns, s->first_ns + SAMPLES * SPACING, NULL), 0);
    while (!pp_plan_complete(plan)) {
        pp_plan_queries due;
        assert_int_equal(pp_plan_next(plan, now, &due, NULL), 0);
        for (size_t i = 0; i < due.count; i++)
            carry_out(s, plan, &due.items[i], now, seen);
        queries += due.count;
        pp_plan_queries_done(&due);
        assert_true(queries < 50);
        if (pp_plan_due(plan) > now && pp_plan_due(plan) < INT64_MAX)
            now = pp_plan_due(plan);
    }
    for (size_t i = 0; i < 2 * SAMPLES; i++)
        assert_true(seen[i]);
    assert_in_range(queries, 3, 8);
    (void)pp_plan_free(plan);
}

static void tls_and_token(void **state)
{
    setup *s = *state;
    const char text[] = "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\"}[2h]";
    char url[64];
    (void)snprintf(url, sizeof(url), "https://localhost:%d", s->proxy_port);
    write_text(s, "token", "first\n");
    pp_prometheus *client = open_client(s, url, "ca.crt", "token");
    ask(s, client, text);
    assert_string_equal(s->reply.error.message, "");
    assert_int_equal(s->reply.answer.n_samples, SAMPLES);
    /* Rotated on the other side: refused until the file has the new one. */
    write_text(s, "admitted", "second");
    ask(s, client, text);
    assert_int_equal(s->reply.error.code, PP_ERR_UNAUTHORIZED);
    assert_non_null(strstr(s->reply.error.message, "prometheus.bearerTokenFile"));
    write_text(s, "token", "second\n");
    ask(s, client, text);
    assert_int_equal(s->reply.answer.n_samples, SAMPLES);
    pp_prometheus_free(client);
}

static void an_authority_that_is_not_trusted(void **state)
{
    setup *s = *state;
    char url[64];
    (void)snprintf(url, sizeof(url), "https://localhost:%d", s->proxy_port);
    pp_prometheus *client = open_client(s, url, "other-ca.crt", NULL);
    ask(s, client, "none[1s]");
    assert_int_equal(s->reply.error.code, PP_ERR_UNAVAILABLE);
    assert_non_null(strstr(s->reply.error.message, "certificate"));
    pp_prometheus_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_series_may_be_long),
        cmocka_unit_test(too_many_samples_are_told),
        cmocka_unit_test(a_limited_prometheus_gives_all),
        cmocka_unit_test(tls_and_token),
        cmocka_unit_test(an_authority_that_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
