/* Verbs over JSON on the shared HTTP client. */
#include "operator/kube/client.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/time.h"
#include "operator/kube/kube_internal.h"

#include <string.h>
#include <uthash.h>

enum {
    MAX_TOKEN = 64 * 1024,
    MAX_PATH = 64 * 1024, /* selectors and continue tokens are long */
    MAX_ANSWER = 16 * 1024 * 1024,
    DEFAULT_TIMEOUT_MS = 30 * 1000,
};
static const int64_t TOKEN_AGE_NS = INT64_C(60) * 1000000000;

const pp_kube_resource PP_KUBE_PODS = {"", "v1", "pods"};
const pp_kube_resource PP_KUBE_CONFIGMAPS = {"", "v1", "configmaps"};
const pp_kube_resource PP_KUBE_SECRETS = {"", "v1", "secrets"};
const pp_kube_resource PP_KUBE_NAMESPACES = {"", "v1", "namespaces"};
const pp_kube_resource PP_KUBE_EVENTS = {"events.k8s.io", "v1", "events"};
const pp_kube_resource PP_KUBE_LEASES = {"coordination.k8s.io", "v1", "leases"};
const pp_kube_resource PP_KUBE_TOKENREVIEWS = {"authentication.k8s.io", "v1", "tokenreviews"};
const pp_kube_resource PP_KUBE_MUTATING_WEBHOOKS = {"admissionregistration.k8s.io", "v1",
                                                    "mutatingwebhookconfigurations"};

typedef struct verb {
    const char *method;
    const char *content_type;
} verb;

static const verb verbs[] = {
    [PP_KUBE_GET] = {"GET", NULL},
    [PP_KUBE_LIST] = {"GET", NULL},
    [PP_KUBE_CREATE] = {"POST", "Content-Type: application/json"},
    [PP_KUBE_UPDATE] = {"PUT", "Content-Type: application/json"},
    [PP_KUBE_PATCH_MERGE] = {"PATCH", "Content-Type: application/merge-patch+json"},
    [PP_KUBE_PATCH_JSON] = {"PATCH", "Content-Type: application/json-patch+json"},
    [PP_KUBE_DELETE] = {"DELETE", "Content-Type: application/json"},
};

/** What is under way: a verb's call (done) or a stream (chunk, stream_done). */
typedef struct kube_call {
    pp_kube_client *client;
    pp_kube_id id;
    char *what; /**< "GET /api/v1/pods", for errors */
    pp_kube_done_fn done;
    pp_http_client_chunk_fn chunk;
    pp_http_client_done_fn stream_done;
    void *user;
    UT_hash_handle hh;
} kube_call;

struct pp_kube_client {
    pp_http_client *http;
    pp_kube_config config;
    char *token;           /**< as last read from config.token_file */
    int64_t token_read_ns; /**< 0: read it again before the next call */
    kube_call *calls;      /**< by id */
};

static void call_free(kube_call *call)
{
    if (!call)
        return;
    free(call->what);
    free(call);
}

/* ---- errors ---- */

typedef struct code_pair {
    int status;
    pp_error_code code;
} code_pair;

static const code_pair codes[] = {
    {400, PP_ERR_INVALID},     {401, PP_ERR_UNAUTHORIZED}, {403, PP_ERR_DENIED},
    {404, PP_ERR_NOT_FOUND},   {405, PP_ERR_INVALID},      {406, PP_ERR_INVALID},
    {408, PP_ERR_TIMEOUT},     {409, PP_ERR_CONFLICT},     {410, PP_ERR_GONE},
    {413, PP_ERR_TOO_LARGE},   {415, PP_ERR_INVALID},      {422, PP_ERR_INVALID},
    {429, PP_ERR_UNAVAILABLE}, {504, PP_ERR_TIMEOUT},
};

static pp_error_code code_of(int http_status, const char *reason)
{
    /* An expired watch may say so by its reason alone. */
    if (reason && (strcmp(reason, "Expired") == 0 || strcmp(reason, "Gone") == 0))
        return PP_ERR_GONE;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].status == http_status)
            return codes[i].code;
    return http_status >= 400 && http_status < 500 ? PP_ERR_INVALID : PP_ERR_UNAVAILABLE;
}

int pp_kube_status_error(int http_status, const json_t *status, pp_error *err)
{
    const char *reason = pp_json_get_string(status, "reason", NULL);
    const char *message = pp_json_get_string(status, "message", NULL);
    const json_t *causes = pp_json_get(status, "details", "causes", NULL);
    const char *field = pp_json_get_string(json_array_get(causes, 0), "field", NULL);
    pp_error_code code = code_of(http_status, reason);
    char text[64];
    (void)snprintf(text, sizeof text, "the API server answered %d", http_status);
    (void)pp_error_set(err, code, "%s", message && *message ? message : text);
    if (err && code == PP_ERR_INVALID && field)
        (void)snprintf(err->field, sizeof err->field, "%s", field);
    return -1;
}

/* ---- paths ---- */

/** Kubernetes' own rule for path segments, made tighter: what names are made of, and no more. */
static bool segment_ok(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-._:";
    size_t n = strlen(text);
    return n > 0 && n <= 253 && strspn(text, allowed) == n && strcmp(text, ".") != 0 &&
           strcmp(text, "..") != 0;
}

static int add_segment(pp_buf *out, const char *field, const char *text, pp_error *err)
{
    if (!text)
        return 0;
    if (!segment_ok(text))
        return pp_error_field(err, field, "\"%.64s\" cannot be part of a path", text);
    return pp_buf_printf(out, err, "/%s", text);
}

static int add_query(pp_buf *out, char *separator, const char *name, const char *value,
                     pp_error *err)
{
    if (!value || !*value)
        return 0;
    PP_CLEANUP_FREE char *encoded = kube_encode(value);
    if (!encoded)
        return pp_error_nomem(err);
    int rc = pp_buf_printf(out, err, "%c%s=%s", *separator, name, encoded);
    *separator = '&';
    return rc;
}

static int add_path(pp_buf *out, const pp_kube_call *call, pp_error *err)
{
    const pp_kube_resource *r = call->resource;
    if (*r->group
            ? pp_buf_printf(out, err, "/apis") < 0 || add_segment(out, "group", r->group, err) < 0
            : pp_buf_printf(out, err, "/api") < 0)
        return -1;
    if (add_segment(out, "version", r->version, err) < 0)
        return -1;
    if (call->ns && (pp_buf_printf(out, err, "/namespaces") < 0 ||
                     add_segment(out, "namespace", call->ns, err) < 0))
        return -1;
    if (add_segment(out, "resource", r->plural, err) < 0 ||
        add_segment(out, "name", call->name, err) < 0)
        return -1;
    return add_segment(out, "subresource", call->subresource, err);
}

static int add_queries(pp_buf *out, const pp_kube_call *call, const char *watch_query,
                       pp_error *err)
{
    char separator = '?';
    char limit[16] = "";
    if (call->limit > 0)
        (void)snprintf(limit, sizeof limit, "%d", call->limit);
    if (add_query(out, &separator, "labelSelector", call->label_selector, err) < 0 ||
        add_query(out, &separator, "fieldSelector", call->field_selector, err) < 0 ||
        add_query(out, &separator, "resourceVersion", call->resource_version, err) < 0 ||
        add_query(out, &separator, "limit", limit, err) < 0 ||
        add_query(out, &separator, "continue", call->continue_token, err) < 0)
        return -1;
    if (watch_query && *watch_query)
        return pp_buf_printf(out, err, "%c%s", separator, watch_query);
    return 0;
}

char *pp_kube_call_path(const pp_kube_call *call, const char *watch_query, pp_error *err)
{
    pp_buf out;
    pp_buf_init(&out, MAX_PATH);
    bool named = call->verb != PP_KUBE_LIST && call->verb != PP_KUBE_CREATE;
    if (named && !call->name) {
        (void)pp_error_field(err, "name", "is needed");
        return NULL;
    }
    if (add_path(&out, call, err) < 0 || add_queries(&out, call, watch_query, err) < 0) {
        pp_buf_done(&out);
        return NULL;
    }
    return pp_buf_take(&out);
}

/* ---- the client ---- */

/** Kubelet rotates the file; a failed read keeps the token we have. */
static int refresh_token(pp_kube_client *client, pp_error *err)
{
    int64_t now = pp_time_monotonic();
    if (!client->config.token_file ||
        (client->token_read_ns && now - client->token_read_ns < TOKEN_AGE_NS))
        return 0;
    char *token = pp_file_read(client->config.token_file, MAX_TOKEN, NULL, err);
    if (!token)
        return client->token ? 0 : -1;
    free(client->token);
    client->token = kube_trim(token);
    client->token_read_ns = now;
    return 0;
}

static int copy_config(pp_kube_config *to, const pp_kube_config *from, pp_error *err)
{
    *to = (pp_kube_config){0};
    char *const in[] = {from->server,    from->ns,         from->ca_file,  from->ca_pem,
                        from->cert_file, from->cert_pem,   from->key_file, from->key_pem,
                        from->token,     from->token_file, from->username, from->password};
    char **const out[] = {&to->server,    &to->ns,         &to->ca_file,  &to->ca_pem,
                          &to->cert_file, &to->cert_pem,   &to->key_file, &to->key_pem,
                          &to->token,     &to->token_file, &to->username, &to->password};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        if (!in[i])
            continue;
        *out[i] = strdup(in[i]);
        if (!*out[i])
            return pp_error_nomem(err);
    }
    return 0;
}

pp_kube_client *pp_kube_client_new(pp_http_client *http, const pp_kube_config *config,
                                   pp_error *err)
{
    if (!config->server) {
        (void)pp_error_field(err, "server", "is needed");
        return NULL;
    }
    pp_kube_client *client = calloc(1, sizeof *client);
    if (!client) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    client->http = http;
    if (copy_config(&client->config, config, err) < 0 || refresh_token(client, err) < 0) {
        pp_kube_client_free(client);
        return NULL;
    }
    return client;
}

void pp_kube_client_free(pp_kube_client *client)
{
    if (!client)
        return;
    kube_call *call, *tmp;
    HASH_ITER(hh, client->calls, call, tmp)
    {
        HASH_DEL(client->calls, call);
        pp_http_client_cancel(client->http, call->id);
        call_free(call);
    }
    pp_kube_config_done(&client->config);
    free(client->token);
    free(client);
}

const char *pp_kube_client_namespace(const pp_kube_client *client)
{
    return client->config.ns ? client->config.ns : "default";
}

uv_loop_t *pp_kube_client_loop(const pp_kube_client *client)
{
    return pp_http_client_loop(client->http);
}

/** Sends with our credentials and files the call under its id; takes the call over. */
static int client_send(pp_kube_client *client, kube_call *call, const char *path,
                       pp_http_client_request *request, pp_kube_id *ret_id, pp_error *err)
{
    const pp_kube_config *c = &client->config;
    PP_CLEANUP_FREE char *url = kube_format("%s%s", c->server, path);
    call->what = kube_format("%s %.256s", request->method, path);
    if (!url || !call->what) {
        call_free(call);
        return pp_error_nomem(err);
    }
    if (refresh_token(client, err) < 0) {
        call_free(call);
        return -1;
    }
    pp_http_client_tls tls = {.ca_file = c->ca_file,
                              .ca_pem = c->ca_pem,
                              .cert_file = c->cert_file,
                              .cert_pem = c->cert_pem,
                              .key_file = c->key_file,
                              .key_pem = c->key_pem};
    request->url = url;
    request->tls = &tls;
    request->bearer_token = c->token_file ? client->token : c->token;
    request->username = c->username;
    request->password = c->password;
    request->user = call;
    if (pp_http_client_send(client->http, request, &call->id, err) < 0) {
        (void)pp_error_prefix(err, "%s", call->what);
        call_free(call);
        return -1;
    }
    call->client = client;
    HASH_ADD(hh, client->calls, id, sizeof call->id, call);
    if (ret_id)
        *ret_id = call->id;
    return 0;
}

/** Takes the call out of the client; from here on the client may be freed by a callback. */
static void call_end(kube_call *call, int status)
{
    if (status == 401)
        call->client->token_read_ns = 0;
    HASH_DEL(call->client->calls, call);
}

static void on_call_done(void *user, pp_http_client_id id, const pp_http_client_response *response,
                         const pp_error *error)
{
    (void)id;
    kube_call *call = user;
    call_end(call, response->status);
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *object = NULL;
    if (error) {
        err = *error;
    } else if (response->status >= 200 && response->status < 300) {
        object = kube_json_parse(response->body, response->body_len, &err);
    } else {
        object = kube_json_parse(response->body, response->body_len, NULL);
        (void)pp_kube_status_error(response->status, object, &err);
    }
    if (err.code)
        (void)pp_error_prefix(&err, "%s", call->what);
    call->done(call->user, object, err.code ? &err : NULL);
    call_free(call);
}

static kube_call *call_new(void *user, pp_error *err)
{
    kube_call *call = calloc(1, sizeof *call);
    if (call)
        call->user = user;
    else
        (void)pp_error_nomem(err);
    return call;
}

int pp_kube_call_start(pp_kube_client *client, const pp_kube_call *options, pp_kube_id *ret_id,
                       pp_error *err)
{
    PP_CLEANUP_FREE char *path = pp_kube_call_path(options, NULL, err);
    if (!path)
        return -1;
    PP_CLEANUP_FREE char *body =
        options->body ? json_dumps(options->body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (options->body && !body)
        return pp_error_nomem(err);
    kube_call *call = call_new(options->user, err);
    if (!call)
        return -1;
    call->done = options->done;
    const verb *v = &verbs[options->verb];
    const char *headers[] = {"Accept: application/json", body ? v->content_type : NULL, NULL};
    pp_http_client_request request = {
        .method = v->method,
        .headers = headers,
        .body = body,
        .body_len = body ? strlen(body) : 0,
        .timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS,
        .max_body = options->max_body ? options->max_body : MAX_ANSWER,
        .done = on_call_done,
    };
    return client_send(client, call, path, &request, ret_id, err);
}

static int on_stream_chunk(void *user, pp_http_client_id id, int status, const char *data, size_t n,
                           pp_error *err)
{
    const kube_call *call = user;
    return call->chunk(call->user, id, status, data, n, err);
}

static void on_stream_done(void *user, pp_http_client_id id,
                           const pp_http_client_response *response, const pp_error *error)
{
    kube_call *call = user;
    call_end(call, response->status);
    call->stream_done(call->user, id, response, error);
    call_free(call);
}

int pp_kube_stream_start(pp_kube_client *client, const char *path, int64_t timeout_ms,
                         pp_http_client_chunk_fn chunk, pp_http_client_done_fn done, void *user,
                         pp_kube_id *ret_id, pp_error *err)
{
    kube_call *call = call_new(user, err);
    if (!call)
        return -1;
    call->chunk = chunk;
    call->stream_done = done;
    const char *headers[] = {"Accept: application/json", NULL};
    pp_http_client_request request = {.method = "GET",
                                      .headers = headers,
                                      .timeout_ms = timeout_ms,
                                      .chunk = on_stream_chunk,
                                      .done = on_stream_done};
    return client_send(client, call, path, &request, ret_id, err);
}

void pp_kube_call_cancel(pp_kube_client *client, pp_kube_id id)
{
    kube_call *call = NULL;
    HASH_FIND(hh, client->calls, &id, sizeof id, call);
    if (!call)
        return;
    HASH_DEL(client->calls, call);
    pp_http_client_cancel(client->http, id);
    call_free(call);
}
