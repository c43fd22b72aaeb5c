/* One exchange: from the request's options to a curl easy handle, and from its end to a report. */
#include "operator/http_client/http_client_internal.h"

#include "common/cleanup.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum {
    DEFAULT_TIMEOUT_MS = 30 * 1000,
    DEFAULT_CONNECT_TIMEOUT_MS = 10 * 1000,
    DEFAULT_MAX_BODY = 4 * 1024 * 1024,
    MAX_HEADER = 32 * 1024,
    /* A peer that vanished without a word is noticed within this time on an idle connection too:
     * kernel keepalives after 30 s, and unacknowledged data for at most 45 s. */
    KEEPALIVE_IDLE_S = 30,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_COUNT = 3,
    USER_TIMEOUT_MS = 45 * 1000,
};

static bool header_safe(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return n <= MAX_HEADER;
}

static long response_status(const http_client_exchange *exchange)
{
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static size_t on_write(char *data, size_t size, size_t count, void *user)
{
    http_client_exchange *exchange = user;
    size_t n = size * count;
    if (exchange->cancelled || exchange->client->closing)
        return 0;
    long status = response_status(exchange);
    int failed;
    if (exchange->chunk && status >= 200 && status < 300)
        failed =
            exchange->chunk(exchange->user, exchange->id, (int)status, data, n, &exchange->failed);
    else
        failed = pp_buf_append(&exchange->body, data, n, &exchange->failed);
    /* The callback may have cancelled this very exchange, or freed the client. */
    if (failed < 0 || exchange->cancelled || exchange->client->closing)
        return 0;
    return n;
}

static int on_socket_made(void *user, curl_socket_t fd, curlsocktype purpose)
{
    (void)purpose;
    pp_http_client *client = user;
    int idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, count = KEEPALIVE_COUNT, on = 1;
    unsigned unacknowledged_ms = USER_TIMEOUT_MS;
    /* Best effort: a connection without them still works. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms,
                     sizeof unacknowledged_ms);
    client->connections++;
    return CURL_SOCKOPT_OK;
}

static int add_header(http_client_exchange *exchange, const char *header, pp_error *err)
{
    if (!header_safe(header))
        return pp_error_set(err, PP_ERR_INVALID, "a header has control characters or is too long");
    struct curl_slist *more = curl_slist_append(exchange->headers, header);
    if (!more)
        return pp_error_nomem(err);
    exchange->headers = more;
    return 0;
}

static int add_bearer(http_client_exchange *exchange, const char *token, pp_error *err)
{
    PP_CLEANUP_FREE char *header = NULL;
    if (asprintf(&header, "Authorization: Bearer %s", token) < 0) {
        header = NULL;
        return pp_error_nomem(err);
    }
    return add_header(exchange, header, err);
}

static int set_headers(http_client_exchange *exchange, const pp_http_client_request *request,
                       pp_error *err)
{
    /* Without this curl waits for "100 Continue", which few servers send. */
    if (add_header(exchange, "Expect:", err) < 0)
        return -1;
    for (const char *const *h = request->headers; h && *h; h++)
        if (add_header(exchange, *h, err) < 0)
            return -1;
    if (request->bearer_token && add_bearer(exchange, request->bearer_token, err) < 0)
        return -1;
    curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->headers);
    return 0;
}

static CURLcode set_pem(CURL *easy, CURLoption file_option, const char *file,
                        CURLoption blob_option, const char *pem)
{
    if (pem) {
        struct curl_blob blob = {.len = strlen(pem), .flags = CURL_BLOB_COPY};
        memcpy(&blob.data, &pem, sizeof pem); /* curl's field is not const, though it only reads */
        return curl_easy_setopt(easy, blob_option, &blob);
    }
    return file ? curl_easy_setopt(easy, file_option, file) : CURLE_OK;
}

static int set_tls(CURL *easy, const pp_http_client_tls *tls, pp_error *err)
{
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (!tls)
        return 0;
    CURLcode rc = CURLE_OK;
    if (tls->ca_pem || tls->ca_file) /* that authority alone, not the system's besides */
        rc = curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    /* A file is read anew for each connection, not for each request: curl would keep what it held
     * for a day, and refuse a server whose authority has been replaced. Connections that are open
     * stay: they were good when they were made, and a server with a new certificate ends them. */
    if (!rc && tls->ca_file)
        rc = curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);
    if (!rc)
        rc = set_pem(easy, CURLOPT_CAINFO, tls->ca_file, CURLOPT_CAINFO_BLOB, tls->ca_pem);
    if (!rc)
        rc = set_pem(easy, CURLOPT_SSLCERT, tls->cert_file, CURLOPT_SSLCERT_BLOB, tls->cert_pem);
    if (!rc)
        rc = set_pem(easy, CURLOPT_SSLKEY, tls->key_file, CURLOPT_SSLKEY_BLOB, tls->key_pem);
    if (rc)
        return pp_error_set(err, PP_ERR_INVALID, "TLS options: %s", curl_easy_strerror(rc));
    return 0;
}

/* "::ADDRESS:PORT": for whatever host and port, as a URL names one. */
static int set_route(http_client_exchange *exchange, const char *to, pp_error *err)
{
    PP_CLEANUP_FREE char *route = NULL;
    if (!to)
        return 0;
    if (asprintf(&route, "::%s", to) < 0) {
        route = NULL;
        return pp_error_nomem(err);
    }
    exchange->route = curl_slist_append(NULL, route);
    if (!exchange->route)
        return pp_error_nomem(err);
    curl_easy_setopt(exchange->easy, CURLOPT_CONNECT_TO, exchange->route);
    return 0;
}

static CURLcode set_body(CURL *easy, const pp_http_client_request *request)
{
    const char *method = request->method;
    CURLcode rc = CURLE_OK;
    if (request->body || (method && strcmp(method, "POST") == 0)) {
        rc = curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
        if (!rc)
            rc = curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS,
                                  request->body ? (const char *)request->body : "");
    }
    if (!rc && method && strcmp(method, "HEAD") == 0)
        rc = curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else if (!rc && method)
        rc = curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    return rc;
}

static void set_callbacks(http_client_exchange *exchange)
{
    CURL *easy = exchange->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket_made);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, exchange->client);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl_error);
}

static CURLcode set_transport(CURL *easy, const pp_http_client_request *request)
{
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    /* Wait for a connection that may be shared rather than opening one per request of a burst; curl
     * would wait also for one that goes elsewhere. */
    if (strncmp(request->url, "https:", 6) == 0 && !request->connect_to)
        curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                     (long)(request->timeout_ms ? request->timeout_ms : DEFAULT_TIMEOUT_MS));
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(request->connect_timeout_ms ? request->connect_timeout_ms
                                                        : DEFAULT_CONNECT_TIMEOUT_MS));
    if (request->username) {
        curl_easy_setopt(easy, CURLOPT_USERNAME, request->username);
        curl_easy_setopt(easy, CURLOPT_PASSWORD, request->password ? request->password : "");
    }
    return curl_easy_setopt(easy, CURLOPT_URL, request->url);
}

static int set_options(http_client_exchange *exchange, const pp_http_client_request *request,
                       pp_error *err)
{
    CURL *easy = exchange->easy;
    set_callbacks(exchange);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, exchange->client->user_agent);
    CURLcode rc = set_transport(easy, request);
    if (!rc)
        rc = set_body(easy, request);
    if (rc)
        return pp_error_set(err, rc == CURLE_OUT_OF_MEMORY ? PP_ERR_NOMEM : PP_ERR_INVALID,
                            "request: %s", curl_easy_strerror(rc));
    if (set_tls(easy, request->tls, err) < 0 || set_route(exchange, request->connect_to, err) < 0)
        return -1;
    return set_headers(exchange, request, err);
}

static int check(const pp_http_client_request *request, pp_error *err)
{
    if (!request->url || !header_safe(request->url))
        return pp_error_field(err, "url", "a URL without control characters is needed");
    if (!request->done)
        return pp_error_field(err, "done", "a callback is needed");
    if (request->timeout_ms < 0 || request->connect_timeout_ms < 0)
        return pp_error_field(err, "timeout_ms", "must not be negative");
    if (request->method && !header_safe(request->method))
        return pp_error_field(err, "method", "has control characters");
    return 0;
}

http_client_exchange *http_client_exchange_new(pp_http_client *client,
                                               const pp_http_client_request *request, pp_error *err)
{
    if (check(request, err) < 0)
        return NULL;
    http_client_exchange *exchange = calloc(1, sizeof *exchange);
    CURL *easy = curl_easy_init();
    if (!exchange || !easy) {
        free(exchange);
        curl_easy_cleanup(easy);
        (void)pp_error_nomem(err);
        return NULL;
    }
    exchange->client = client;
    exchange->easy = easy;
    exchange->chunk = request->chunk;
    exchange->done = request->done;
    exchange->user = request->user;
    exchange->share = request->share;
    pp_buf_init(&exchange->body, request->max_body ? request->max_body : DEFAULT_MAX_BODY);
    if (set_options(exchange, request, err) < 0) {
        http_client_exchange_free(exchange);
        return NULL;
    }
    return exchange;
}

void http_client_exchange_free(http_client_exchange *exchange)
{
    if (!exchange)
        return;
    curl_easy_cleanup(exchange->easy);
    curl_slist_free_all(exchange->headers);
    curl_slist_free_all(exchange->route);
    pp_buf_done(&exchange->body);
    free(exchange);
}

static pp_error_code code_of(CURLcode result)
{
    switch (result) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
        return PP_ERR_INVALID;
    case CURLE_OPERATION_TIMEDOUT:
        return PP_ERR_TIMEOUT;
    case CURLE_OUT_OF_MEMORY:
        return PP_ERR_NOMEM;
    default:
        return PP_ERR_UNAVAILABLE;
    }
}

static void explain(http_client_exchange *exchange, CURLcode result)
{
    if (exchange->failed.code)
        return;
    const char *text = exchange->curl_error[0] ? exchange->curl_error : curl_easy_strerror(result);
    (void)pp_error_set(&exchange->failed, code_of(result), "%s", text);
}

/* -1: the server names no time. It may name any. */
static int64_t retry_after_ms(curl_off_t seconds)
{
    static const curl_off_t most = 86400;
    return seconds > 0 ? (int64_t)(seconds < most ? seconds : most) * 1000 : -1;
}

void http_client_exchange_report(http_client_exchange *exchange, CURLcode result)
{
    const char *content_type = NULL;
    curl_off_t retry_after_s = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_CONTENT_TYPE, &content_type);
    curl_easy_getinfo(exchange->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
    if (result != CURLE_OK)
        explain(exchange, result);
    pp_http_client_response response = {
        .status = (int)response_status(exchange),
        .body = exchange->body.data ? exchange->body.data : "",
        .body_len = exchange->body.len,
        .content_type = content_type ? content_type : "",
        .retry_after_ms = retry_after_ms(retry_after_s),
    };
    exchange->done(exchange->user, exchange->id, &response,
                   exchange->failed.code ? &exchange->failed : NULL);
}
