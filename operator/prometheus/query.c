/*
 * One query: sent through the HTTP client, its answer decoded on the thread pool, since a large one
 * would hold the loop up. A query that is freed meanwhile belongs to the pool until it comes back.
 */
#include "operator/prometheus/prometheus.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/thread.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { MAX_TOKEN = 16384, DEFAULT_MAX_BODY = 16 << 20 };

static const int64_t DEFAULT_TIMEOUT = INT64_C(10000000000);

/** One query: first with the HTTP client, then with the thread pool. */
typedef struct query {
    uint64_t id;               /* key */
    pp_prometheus *prometheus; /* NULL: freed meanwhile */
    pp_http_client_id http;
    uv_work_t work;
    bool decoding;
    pp_prometheus_fn done;
    pp_prometheus_time_fn done_time; /* it asks for the time, and nothing else */
    void *user;
    /* for the thread pool, its own until it has ended */
    pp_metric_source source;
    int64_t time_ns;
    int64_t range_ns; /* 0: not known */
    char *body;
    size_t n;
    pp_prometheus_answer answer;
    pp_error error;
    bool failed;
    UT_hash_handle hh;
} query;

struct pp_prometheus {
    pp_http_client *http;
    char *url;
    char *bearer_token_file;
    char *ca_file;
    pp_metric_source source;
    int64_t timeout_ns;
    size_t max_body;
    uint64_t last_id;
    query *queries;
};

static char *copy_unless_empty(const char *text)
{
    return text && *text ? strdup(text) : NULL;
}

pp_prometheus *pp_prometheus_new(pp_http_client *http, const pp_prometheus_options *options,
                                 pp_error *err)
{
    const char *url = options->url ? options->url : "";
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        (void)pp_error_field(err, "prometheus.url", "must begin with http:// or https://");
        return NULL;
    }
    pp_prometheus *p = calloc(1, sizeof *p);
    size_t n = strlen(url);
    while (n && url[n - 1] == '/')
        n--;
    if (!p || asprintf(&p->url, "%.*s/api/v1/query", (int)n, url) < 0) {
        free(p);
        (void)pp_error_nomem(err);
        return NULL;
    }
    p->http = http;
    p->bearer_token_file = copy_unless_empty(options->bearer_token_file);
    p->ca_file = copy_unless_empty(options->ca_file);
    p->source = options->source;
    p->timeout_ns = options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT;
    p->max_body = options->max_body ? options->max_body : DEFAULT_MAX_BODY;
    return p;
}

static void query_free(query *q)
{
    if (q->prometheus)
        HASH_DEL(q->prometheus->queries, q);
    pp_prometheus_answer_done(&q->answer);
    free(q->body);
    free(q);
}

void pp_prometheus_free(pp_prometheus *prometheus)
{
    if (!prometheus)
        return;
    query *q;
    query *next;
    HASH_ITER(hh, prometheus->queries, q, next)
    {
        if (q->decoding) { /* the thread pool has it: it frees itself when it comes back */
            HASH_DEL(prometheus->queries, q);
            q->prometheus = NULL;
        } else {
            pp_http_client_cancel(prometheus->http, q->http);
            query_free(q);
        }
    }
    free(prometheus->url);
    free(prometheus->bearer_token_file);
    free(prometheus->ca_file);
    free(prometheus);
}

static void answer_error(query *q, const pp_error *error)
{
    const pp_error why = *error;
    pp_prometheus_fn done = q->done;
    pp_prometheus_time_fn done_time = q->done_time;
    void *user = q->user;
    uint64_t id = q->id;
    query_free(q);
    if (done_time)
        done_time(user, 0, &why);
    else
        done(user, id, NULL, &why);
}

static void decode(uv_work_t *work)
{
    pp_thread_step_back();
    query *q = work->data;
    q->failed = pp_prometheus_decode(q->body, q->n, &q->source, &q->answer, &q->error) < 0;
    if (!q->failed && q->range_ns > 0) /* before Prometheus 3 both ends are part of it */
        pp_prometheus_answer_trim(&q->answer, q->time_ns - q->range_ns, q->time_ns);
}

static void on_decoded(uv_work_t *work, int status)
{
    query *q = work->data;
    q->decoding = false;
    if (!q->prometheus) {
        query_free(q);
        return;
    }
    if (status != 0)
        q->failed = pp_error_set(&q->error, PP_ERR_UNAVAILABLE, "decoding was cancelled") < 0;
    if (q->failed) {
        answer_error(q, &q->error);
        return;
    }
    HASH_DEL(q->prometheus->queries, q); /* done may free everything */
    q->prometheus = NULL;
    q->done(q->user, q->id, &q->answer, NULL);
    query_free(q);
}

/* Prometheus' own text where it sent one. 422 is a query that it cannot execute: of a plain range,
 * because it would load too many samples. */
static void quote_refusal(query *q, const pp_http_client_response *response, pp_error *err)
{
    pp_prometheus_answer none = {0};
    int status = response->status;
    if (pp_prometheus_decode(response->body, response->body_len, &q->source, &none, err) == 0 ||
        err->code == PP_ERR_INVALID) {
        pp_prometheus_answer_done(&none);
        (void)pp_error_prefix(err, "Prometheus answers %d", status);
        err->code = status == 400 || status == 422 ? PP_ERR_INVALID : PP_ERR_UNAVAILABLE;
    } else if (status == 422) {
        err->code = PP_ERR_TOO_LARGE;
    }
}

/* What to say of an answer that is not 200. */
static void refused(query *q, const pp_http_client_response *response)
{
    pp_error err = {0};
    int status = response->status;
    if (status == 401 || status == 403)
        (void)pp_error_set(&err, status == 401 ? PP_ERR_UNAUTHORIZED : PP_ERR_DENIED,
                           "Prometheus answers %d: check prometheus.bearerTokenFile", status);
    else if (status >= 300 && status < 400) /* the token is for this server alone */
        (void)pp_error_set(&err, PP_ERR_INVALID,
                           "Prometheus answers %d, a redirect, which is not followed: set "
                           "prometheus.url to where it leads",
                           status);
    else
        quote_refusal(q, response, &err);
    answer_error(q, &err);
}

static void take_time(query *q, const pp_http_client_response *response)
{
    pp_error err = {0};
    int64_t real_ns = 0;
    pp_prometheus_time_fn done = q->done_time;
    void *user = q->user;
    if (pp_prometheus_decode_time(response->body, response->body_len, &real_ns, &err) < 0) {
        answer_error(q, &err);
        return;
    }
    query_free(q);
    done(user, real_ns, NULL);
}

static void on_response(void *user, pp_http_client_id id, const pp_http_client_response *response,
                        const pp_error *error)
{
    query *q = user;
    (void)id;
    if (error) {
        answer_error(q, error);
        return;
    }
    if (response->status != 200) {
        refused(q, response);
        return;
    }
    pp_error err = {0};
    if (q->done_time) {
        take_time(q, response);
        return;
    }
    q->body = malloc(response->body_len + 1);
    if (!q->body) {
        (void)pp_error_nomem(&err);
        answer_error(q, &err);
        return;
    }
    memcpy(q->body, response->body, response->body_len);
    q->n = response->body_len;
    q->work.data = q;
    q->decoding = true;
    if (uv_queue_work(pp_http_client_loop(q->prometheus->http), &q->work, decode, on_decoded) < 0) {
        q->decoding = false;
        (void)pp_error_set(&err, PP_ERR_INTERNAL, "the thread pool refused work");
        answer_error(q, &err);
    }
}

/* query=...&time=..., percent-encoded but for what needs no encoding (RFC 3986, 2.3). Without a
 * time Prometheus takes its own. */
static int form_body(pp_buf *out, const char *text, int64_t time_ns, pp_error *err)
{
    if (pp_buf_printf(out, err, "query=") < 0)
        return -1;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (pp_buf_printf(out, err, isalnum(*c) || strchr("-._~", *c) ? "%c" : "%%%02X", *c) < 0)
            return -1;
    }
    int64_t ms = time_ns / 1000000;
    if (time_ns < 0)
        return 0;
    return pp_buf_printf(out, err, "&time=%lld.%03lld", (long long)(ms / 1000),
                         (long long)(ms % 1000));
}

static int send_query(query *q, const char *text, int64_t time_ns, pp_error *err)
{
    pp_prometheus *p = q->prometheus;
    PP_CLEANUP_FREE char *token = NULL;
    if (p->bearer_token_file) {
        token = pp_file_read(p->bearer_token_file, MAX_TOKEN, NULL, err);
        if (!token)
            return pp_error_prefix(err, "prometheus.bearerTokenFile");
    }
    static const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded",
                                          "Accept: application/json", NULL};
    const pp_http_client_tls tls = {.ca_file = p->ca_file};
    pp_buf body;
    pp_buf_init(&body, 1 << 20);
    int rc = form_body(&body, text, time_ns, err);
    if (rc == 0) {
        const pp_http_client_request request = {.method = "POST",
                                                .url = p->url,
                                                .headers = headers,
                                                .share = PP_HTTP_CLIENT_PROMETHEUS,
                                                .bearer_token = token,
                                                .body = body.data,
                                                .body_len = body.len,
                                                .timeout_ms = p->timeout_ns / 1000000,
                                                .max_body = p->max_body,
                                                .tls = &tls,
                                                .done = on_response,
                                                .user = q};
        rc = pp_http_client_send(p->http, &request, &q->http, err);
    }
    pp_buf_done(&body);
    return rc;
}

int pp_prometheus_ask_time(pp_prometheus *prometheus, pp_prometheus_time_fn done, void *user,
                           pp_error *err)
{
    query *q = calloc(1, sizeof *q);
    if (!q)
        return pp_error_nomem(err);
    q->id = ++prometheus->last_id;
    q->prometheus = prometheus;
    q->done_time = done;
    q->user = user;
    HASH_ADD(hh, prometheus->queries, id, sizeof q->id, q);
    if (send_query(q, "time()", -1, err) < 0) {
        query_free(q);
        return -1;
    }
    return 0;
}

int pp_prometheus_query(pp_prometheus *prometheus, const char *text, int64_t time_ns,
                        int64_t range_ns, pp_prometheus_fn done, void *user, uint64_t *ret_id,
                        pp_error *err)
{
    query *q = calloc(1, sizeof *q);
    if (!q)
        return pp_error_nomem(err);
    q->id = ++prometheus->last_id;
    q->prometheus = prometheus;
    q->source = prometheus->source;
    q->time_ns = time_ns / 1000000 * 1000000;
    q->range_ns = range_ns;
    q->done = done;
    q->user = user;
    HASH_ADD(hh, prometheus->queries, id, sizeof q->id, q);
    if (send_query(q, text, time_ns, err) < 0) {
        query_free(q);
        return -1;
    }
    if (ret_id)
        *ret_id = q->id;
    return 0;
}
