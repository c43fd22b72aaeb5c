/* Verbs over JSON on the shared HTTP client. */
#include "operator/kube/client.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/time.h"
#include "operator/kube/kube_internal.h"
#include "operator/kube/pace.h"

#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum {
    MAX_TOKEN = 64 * 1024,
    MAX_PATH = 64 * 1024, /* selectors and continue tokens are long */
    MAX_ANSWER = 16 * 1024 * 1024,
    DEFAULT_TIMEOUT_MS = 30 * 1000,
    MAX_WAITING = 4096, /* calls of a share that wait for their turn */
    DEFAULT_RATE = 100, /* calls a second */
    BURST_SECONDS = 4,
    TOKENS_RATE = 100,
    TOKENS_BURST = 500,
    READERS_RATE = 200, /* of calls for readers of results */
    READERS_BURST = 400,
};
static const int64_t TOKEN_AGE_NS = INT64_C(60) * 1000000000;
static const int64_t MILLISECOND = 1000000;
static const int64_t PAUSE_NS = INT64_C(1000000000);      /* where the server gives no time */
static const int64_t MAX_PAUSE_NS = INT64_C(60000000000); /* whatever it gives */

const pp_kube_resource PP_KUBE_PODS = {"", "v1", "pods"};
const pp_kube_resource PP_KUBE_CONFIGMAPS = {"", "v1", "configmaps"};
const pp_kube_resource PP_KUBE_SECRETS = {"", "v1", "secrets"};
const pp_kube_resource PP_KUBE_NAMESPACES = {"", "v1", "namespaces"};
const pp_kube_resource PP_KUBE_EVENTS = {"events.k8s.io", "v1", "events"};
const pp_kube_resource PP_KUBE_LEASES = {"coordination.k8s.io", "v1", "leases"};
const pp_kube_resource PP_KUBE_ACCESS_REVIEWS = {"authorization.k8s.io", "v1",
                                                 "subjectaccessreviews"};
const pp_kube_resource PP_KUBE_TOKENREVIEWS = {"authentication.k8s.io", "v1", "tokenreviews"};
const pp_kube_resource PP_KUBE_MUTATING_WEBHOOKS = {"admissionregistration.k8s.io", "v1",
                                                    "mutatingwebhookconfigurations"};

typedef struct verb_form {
    const char *method;
    const char *content_type;
} verb_form;

static const verb_form verbs[] = {
    [PP_KUBE_GET] = {"GET", NULL},
    [PP_KUBE_LIST] = {"GET", NULL},
    [PP_KUBE_CREATE] = {"POST", "Content-Type: application/json"},
    [PP_KUBE_UPDATE] = {"PUT", "Content-Type: application/json"},
    [PP_KUBE_PATCH_MERGE] = {"PATCH", "Content-Type: application/merge-patch+json"},
    [PP_KUBE_PATCH_JSON] = {"PATCH", "Content-Type: application/json-patch+json"},
    [PP_KUBE_DELETE] = {"DELETE", "Content-Type: application/json"},
    [PP_KUBE_WATCH] = {"GET", NULL},
};

/** What is under way, or waits for its turn: a verb's call (done) or a stream (chunk, stream_done).
 */
typedef struct kube_call {
    pp_kube_client *client;
    pp_kube_id id;
    pp_http_client_id http; /**< 0: it waits */
    pp_http_client_share share;
    pp_kube_verb verb;
    const char *method;
    const char *content_type; /**< a header, or NULL */
    char *path;
    char *body;
    char *what; /**< "GET /api/v1/pods", for errors */
    int64_t timeout_ms;
    size_t max_body;
    bool first;
    int64_t deadline_ns; /**< monotonic; of a verb's call, waiting included */
    pp_kube_done_fn done;
    pp_http_client_chunk_fn chunk;
    pp_http_client_done_fn stream_done;
    void *user;
    struct kube_call *prev, *next; /**< among those that wait */
    UT_hash_handle hh;
} kube_call;

/** Calls of a share, which wait for each other and for nobody else. */
typedef struct lane {
    pp_pace pace;
    kube_call *waiting; /**< the next first */
    unsigned n_waiting;
    unsigned in_flight;
} lane;

/** Calls in flight; less than the HTTP client takes, so that it refuses none. */
static const unsigned max_in_flight[PP_HTTP_CLIENT_SHARES] = {
    [PP_HTTP_CLIENT_OTHER] = 256,
    [PP_HTTP_CLIENT_LEASE] = 16,
    [PP_HTTP_CLIENT_TOKENS] = 64,
    [PP_HTTP_CLIENT_READERS] = 32,
};

struct pp_kube_client {
    pp_http_client *http;
    pp_kube_config config;
    char *token;           /**< as last read from config.token_file */
    int64_t token_read_ns; /**< 0: read it again before the next call */
    kube_call *calls;      /**< by id */
    pp_kube_id last_id;
    lane lanes[PP_HTTP_CLIENT_SHARES];
    uv_timer_t timer; /**< of the first that may go on */
    pp_kube_answered_fn answered;
    void *answered_user;
    bool closing;
};

static void call_free(kube_call *call)
{
    if (!call)
        return;
    free(call->path);
    free(call->body);
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

void pp_kube_client_set_rate(pp_kube_client *client, double per_second)
{
    pp_pace_init(&client->lanes[PP_HTTP_CLIENT_OTHER].pace, per_second,
                 (int64_t)(per_second * BURST_SECONDS));
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
    uv_timer_init(pp_http_client_loop(http), &client->timer);
    client->timer.data = client;
    pp_kube_client_set_rate(client, DEFAULT_RATE);
    pp_pace_init(&client->lanes[PP_HTTP_CLIENT_TOKENS].pace, TOKENS_RATE, TOKENS_BURST);
    pp_pace_init(&client->lanes[PP_HTTP_CLIENT_READERS].pace, READERS_RATE, READERS_BURST);
    pp_pace_init(&client->lanes[PP_HTTP_CLIENT_LEASE].pace, 0, 1);
    if (copy_config(&client->config, config, err) < 0 || refresh_token(client, err) < 0) {
        pp_kube_client_free(client);
        return NULL;
    }
    return client;
}

void pp_kube_client_on_answer(pp_kube_client *client, pp_kube_answered_fn answered, void *user)
{
    client->answered = answered;
    client->answered_user = user;
}

static void on_closed(uv_handle_t *handle)
{
    pp_kube_client *client = handle->data;
    pp_kube_config_done(&client->config);
    free(client->token);
    free(client);
}

void pp_kube_client_free(pp_kube_client *client)
{
    if (!client || client->closing)
        return;
    client->closing = true;
    kube_call *call, *tmp;
    HASH_ITER(hh, client->calls, call, tmp)
    {
        HASH_DEL(client->calls, call);
        if (call->http)
            pp_http_client_cancel(client->http, call->http);
        call_free(call);
    }
    uv_close((uv_handle_t *)&client->timer, on_closed);
}

const char *pp_kube_client_namespace(const pp_kube_client *client)
{
    return client->config.ns ? client->config.ns : "default";
}

uv_loop_t *pp_kube_client_loop(const pp_kube_client *client)
{
    return pp_http_client_loop(client->http);
}

/* ---- a call's turn ---- */

static void on_call_done(void *user, pp_http_client_id id, const pp_http_client_response *response,
                         const pp_error *error);
static void on_stream_done(void *user, pp_http_client_id id,
                           const pp_http_client_response *response, const pp_error *error);

static int on_stream_chunk(void *user, pp_http_client_id id, int status, const char *data, size_t n,
                           pp_error *err)
{
    const kube_call *call = user;
    (void)id;
    return call->chunk(call->user, call->id, status, data, n, err);
}

/** Sends with our credentials; the call stays whose it is where that fails. */
static int send_call(kube_call *call, pp_error *err)
{
    pp_kube_client *client = call->client;
    const pp_kube_config *c = &client->config;
    PP_CLEANUP_FREE char *url = kube_format("%s%s", c->server, call->path);
    if (!url)
        return pp_error_nomem(err);
    if (refresh_token(client, err) < 0)
        return -1;
    const pp_http_client_tls tls = {.ca_file = c->ca_file,
                                    .ca_pem = c->ca_pem,
                                    .cert_file = c->cert_file,
                                    .cert_pem = c->cert_pem,
                                    .key_file = c->key_file,
                                    .key_pem = c->key_pem};
    const char *headers[] = {"Accept: application/json", call->body ? call->content_type : NULL,
                             NULL};
    const int64_t left_ms = (call->deadline_ns - pp_time_monotonic()) / MILLISECOND + 1;
    const pp_http_client_request request = {.method = call->method,
                                            .url = url,
                                            .headers = headers,
                                            .share = call->share,
                                            .bearer_token =
                                                c->token_file ? client->token : c->token,
                                            .username = c->username,
                                            .password = c->password,
                                            .body = call->body,
                                            .body_len = call->body ? strlen(call->body) : 0,
                                            .timeout_ms = call->chunk ? call->timeout_ms : left_ms,
                                            .max_body = call->max_body,
                                            .tls = &tls,
                                            .chunk = call->chunk ? on_stream_chunk : NULL,
                                            .done = call->chunk ? on_stream_done : on_call_done,
                                            .user = call};
    if (pp_http_client_send(client->http, &request, &call->http, err) < 0)
        return pp_error_prefix(err, "%s", call->what);
    client->lanes[call->share].in_flight++;
    return 0;
}

static void on_timer(uv_timer_t *timer);

static void wake_after(pp_kube_client *client, int64_t ns)
{
    uint64_t ms = ns > 0 ? (uint64_t)(ns / MILLISECOND) + 1 : 0;
    bool earlier =
        uv_is_active((uv_handle_t *)&client->timer) && uv_timer_get_due_in(&client->timer) <= ms;
    if (!client->closing && !earlier)
        uv_timer_start(&client->timer, on_timer, ms, 0);
}

/** 0: the lane's next call may go, and has its place; else ns to wait, at most until the next
 * deadline; INT64_MAX: until one comes back. */
static int64_t take_turn(lane *l, pp_http_client_share share, int64_t now)
{
    if (l->in_flight >= max_in_flight[share])
        return INT64_MAX;
    return pp_pace_take(&l->pace, now);
}

/** Few, and all that is decided depends on what they bring: they wait for no other call. So does
 * what somebody waits for. */
static bool goes_first(const kube_call *call)
{
    return call->first || call->verb == PP_KUBE_LIST || call->verb == PP_KUBE_WATCH;
}

/** Before all others (`again`: it has had its turn), or behind those that it has to wait for. */
static void wait_for_turn(kube_call *call, bool again)
{
    lane *l = &call->client->lanes[call->share];
    kube_call *next = again || goes_first(call) ? l->waiting : NULL;
    while (!again && next && goes_first(next))
        next = next->next;
    if (next)
        DL_PREPEND_ELEM(l->waiting, next, call);
    else
        DL_APPEND(l->waiting, call);
    l->n_waiting++;
}

static void leave_queue(kube_call *call)
{
    lane *l = &call->client->lanes[call->share];
    DL_DELETE(l->waiting, call);
    l->n_waiting--;
}

/** A call that never came to be sent, or will not again: its owner hears of it, and may free us. */
static void fail_call(kube_call *call, pp_error *error)
{
    const pp_http_client_response none = {.body = "", .content_type = "", .retry_after_ms = -1};
    HASH_DEL(call->client->calls, call);
    if (call->chunk)
        call->stream_done(call->user, call->id, &none, error);
    else
        call->done(call->user, NULL, error);
    call_free(call);
}

/** The next of the lane that is to be sent or told of; NULL: none is, *ret_wait says for how long.
 */
static kube_call *next_call(pp_kube_client *client, pp_http_client_share share, int64_t now,
                            bool *ret_late, int64_t *ret_wait)
{
    lane *l = &client->lanes[share];
    int64_t until = INT64_MAX;
    kube_call *call;
    DL_FOREACH(l->waiting, call)
    {
        *ret_late = !call->chunk && call->deadline_ns <= now;
        if (*ret_late)
            return call;
        if (!call->chunk && call->deadline_ns < until)
            until = call->deadline_ns;
    }
    if (!l->waiting)
        return NULL;
    int64_t wait = take_turn(l, share, now);
    if (wait == 0)
        return l->waiting;
    if (until != INT64_MAX && until - now < wait)
        wait = until - now;
    *ret_wait = wait < *ret_wait ? wait : *ret_wait;
    return NULL;
}

static void on_timer(uv_timer_t *timer)
{
    pp_kube_client *client = timer->data;
    int64_t wait = INT64_MAX;
    for (int share = 0; share < PP_HTTP_CLIENT_SHARES && !client->closing; share++) {
        bool late = false;
        kube_call *call;
        while (!client->closing &&
               (call = next_call(client, share, pp_time_monotonic(), &late, &wait))) {
            pp_error err = {0};
            leave_queue(call);
            if (late)
                (void)pp_error_set(&err, PP_ERR_TIMEOUT, "%s: its turn did not come in time",
                                   call->what);
            if (late || send_call(call, &err) < 0)
                fail_call(call, &err);
        }
    }
    if (wait != INT64_MAX)
        wake_after(client, wait);
}

/** Sends it, or has it wait; takes it over, and frees it where that fails. */
static int start(pp_kube_client *client, kube_call *call, pp_kube_id *ret_id, pp_error *err)
{
    lane *l = &client->lanes[call->share];
    call->client = client;
    call->what = kube_format("%s %.256s", call->method, call->path);
    bool wait = l->waiting || take_turn(l, call->share, pp_time_monotonic()) > 0;
    int rc = 0;
    if (!call->what)
        rc = pp_error_nomem(err);
    else if (!wait)
        rc = send_call(call, err);
    else if (l->n_waiting >= MAX_WAITING && !goes_first(call))
        rc = pp_error_set(err, PP_ERR_TOO_LARGE, "%s: %d calls wait for their turn already",
                          call->what, MAX_WAITING);
    if (rc < 0) {
        call_free(call);
        return -1;
    }
    call->id = ++client->last_id;
    HASH_ADD(hh, client->calls, id, sizeof call->id, call);
    if (wait) {
        wait_for_turn(call, false);
        wake_after(client, 0);
    }
    if (ret_id)
        *ret_id = call->id;
    return 0;
}

/** The answer is here: its place is another's. Nothing is called from here. */
static void give_back(kube_call *call, int status)
{
    pp_kube_client *client = call->client;
    lane *l = &client->lanes[call->share];
    call->http = 0;
    l->in_flight--;
    if (status == 401)
        client->token_read_ns = 0;
    if (l->waiting)
        wake_after(client, 0);
}

static void tell_answer(const kube_call *call, int status)
{
    const pp_kube_client *client = call->client;
    if (client->answered)
        client->answered(client->answered_user, call->verb, status);
}

/** Whether the server asks us to come back later; then nobody of the share goes before. */
static bool is_pushed_back(kube_call *call, const pp_http_client_response *response,
                           int64_t *ret_ns)
{
    int64_t wait = response->retry_after_ms;
    if (call->share == PP_HTTP_CLIENT_LEASE ||
        (response->status != 429 && (response->status != 503 || wait < 0)))
        return false;
    *ret_ns = wait < 0 ? PAUSE_NS : wait * MILLISECOND;
    if (*ret_ns > MAX_PAUSE_NS)
        *ret_ns = MAX_PAUSE_NS;
    pp_pace_pause(&call->client->lanes[call->share].pace, pp_time_monotonic() + *ret_ns);
    return true;
}

static void on_call_done(void *user, pp_http_client_id id, const pp_http_client_response *response,
                         const pp_error *error)
{
    (void)id;
    kube_call *call = user;
    pp_kube_client *client = call->client;
    pp_error err = {0};
    int64_t wait = 0;
    give_back(call, response->status);
    tell_answer(call, response->status);
    if (!error && is_pushed_back(call, response, &wait) &&
        pp_time_monotonic() + wait < call->deadline_ns) {
        wait_for_turn(call, true);
        wake_after(client, wait);
        return;
    }
    HASH_DEL(client->calls, call);
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

static void on_stream_done(void *user, pp_http_client_id id,
                           const pp_http_client_response *response, const pp_error *error)
{
    (void)id;
    kube_call *call = user;
    int64_t wait = 0;
    give_back(call, response->status);
    tell_answer(call, response->status);
    if (!error)
        (void)is_pushed_back(call, response, &wait);
    HASH_DEL(call->client->calls, call);
    call->stream_done(call->user, call->id, response, error);
    call_free(call);
}

/* ---- calls and streams ---- */

static pp_http_client_share share_of(const pp_kube_resource *resource)
{
    if (strcmp(resource->plural, PP_KUBE_LEASES.plural) == 0)
        return PP_HTTP_CLIENT_LEASE;
    return strcmp(resource->plural, PP_KUBE_TOKENREVIEWS.plural) == 0 ? PP_HTTP_CLIENT_TOKENS
                                                                      : PP_HTTP_CLIENT_OTHER;
}

static kube_call *call_new(char *path, int64_t timeout_ms, void *user, pp_error *err)
{
    kube_call *call = path ? calloc(1, sizeof *call) : NULL;
    if (!call) {
        free(path);
        if (path)
            (void)pp_error_nomem(err);
        return NULL;
    }
    call->path = path;
    call->method = "GET";
    call->user = user;
    call->timeout_ms = timeout_ms;
    call->deadline_ns = pp_time_monotonic() + timeout_ms * MILLISECOND;
    return call;
}

int pp_kube_call_start(pp_kube_client *client, const pp_kube_call *options, pp_kube_id *ret_id,
                       pp_error *err)
{
    kube_call *call = call_new(pp_kube_call_path(options, NULL, err),
                               options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS,
                               options->user, err);
    if (!call)
        return -1;
    if (options->body)
        call->body = json_dumps(options->body, JSON_COMPACT | JSON_ENCODE_ANY);
    if (options->body && !call->body) {
        call_free(call);
        return pp_error_nomem(err);
    }
    const verb_form *v = &verbs[options->verb];
    call->verb = options->verb;
    call->done = options->done;
    call->method = v->method;
    call->content_type = v->content_type;
    call->max_body = options->max_body ? options->max_body : MAX_ANSWER;
    call->first = options->first;
    call->share = options->for_readers ? PP_HTTP_CLIENT_READERS : share_of(options->resource);
    return start(client, call, ret_id, err);
}

int pp_kube_stream_start(pp_kube_client *client, pp_kube_verb verb, const char *path,
                         int64_t timeout_ms, pp_http_client_chunk_fn chunk,
                         pp_http_client_done_fn done, void *user, pp_kube_id *ret_id, pp_error *err)
{
    char *copy = strdup(path);
    kube_call *call = call_new(copy, timeout_ms, user, err);
    if (!call)
        return copy ? -1 : pp_error_nomem(err);
    call->verb = verb;
    call->chunk = chunk;
    call->stream_done = done;
    return start(client, call, ret_id, err);
}

void pp_kube_call_cancel(pp_kube_client *client, pp_kube_id id)
{
    kube_call *call = NULL;
    HASH_FIND(hh, client->calls, &id, sizeof id, call);
    if (!call)
        return;
    HASH_DEL(client->calls, call);
    if (call->http) {
        pp_http_client_cancel(client->http, call->http);
        give_back(call, 0);
    } else {
        leave_queue(call);
    }
    call_free(call);
}
