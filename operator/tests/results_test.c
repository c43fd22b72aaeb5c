/*
 * The HTTP API over TLS: the operator's own parts, a small API server, and a Postgres of its own,
 * which the CTest fixture starts. What is answered is held against the views.
 */
#include "operator/results/results.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/http_server/certificates.h"
#include "operator/tests/test_database.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define REVIEWS "/apis/authentication.k8s.io/v1/tokenreviews"
#define ACCESS "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#define YES "{\"status\":{\"allowed\":true}}"
#define NO "{\"status\":{\"allowed\":false}}"
#define USER                                                                                       \
    "{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"jane\",\"uid\":\"u-1\","         \
    "\"groups\":[\"ml-team\"],\"extra\":{\"scopes\":[\"a\"]}}}}"
#define OTHER_USER "{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"john\"}}}"
#define NOBODY "{\"status\":{\"authenticated\":false,\"user\":{}}}"
#define S1 "/api/v1/namespaces/ml/sessions/dlrm"

typedef struct world {
    api_server *api;
    pp_certificates certificates;
    test_database database;
} world;

/** A request as it goes out, and what came back. */
typedef struct trip {
    int port;
    char text[12288];
    char *answer; /* owned; all that came */
    size_t n;
    bool leaves; /* without its answer, once it may */
    atomic_bool may_leave;
    pthread_t thread;
    atomic_bool done;
} trip;

typedef struct reply {
    int status;
    char head[2048];
    char *raw; /* owned, as is json */
    const char *body;
    json_t *json;
} reply;

/* ---- a client ---- */

static int reach(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 60};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return connect(fd, (struct sockaddr *)&at, sizeof at) == 0 ? fd : -1;
}

static void *travel(void *context)
{
    trip *t = context;
    const size_t room = (size_t)8 << 20;
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    int fd = reach(t->port);
    t->answer = calloc(1, room);
    SSL_set_fd(ssl, fd);
    if (fd >= 0 && SSL_connect(ssl) == 1 && SSL_write(ssl, t->text, (int)strlen(t->text)) > 0) {
        int got;
        while (!t->leaves && (got = SSL_read(ssl, t->answer + t->n, (int)(room - 1 - t->n))) > 0)
            t->n += (size_t)got;
        while (t->leaves && !t->may_leave)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    if (fd >= 0)
        close(fd);
    t->done = true;
    return NULL;
}

static bool is_done(void *user)
{
    return ((trip *)user)->done;
}

static void reply_free(reply *r)
{
    free(r->raw);
    json_decref(r->json);
    *r = (reply){0};
}

/** `headers`: whole lines. */
static trip *set_out(world *w, const char *method, const char *path, const char *headers,
                     bool leaves)
{
    trip *t = calloc(1, sizeof *t);
    t->port = pp_http_tls_port(w->api->op.server);
    t->leaves = leaves;
    (void)snprintf(t->text, sizeof t->text,
                   "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", method, path,
                   headers);
    assert_int_equal(pthread_create(&t->thread, NULL, travel, t), 0);
    return t;
}

/** Waits for the end of the trip, and frees it. */
static reply come_back(world *w, trip *t)
{
    reply r = {0};
    assert_true(api_server_run(w->api, is_done, t));
    assert_int_equal(pthread_join(t->thread, NULL), 0);
    r.raw = t->answer;
    free(t);
    const char *end = strstr(r.raw, "\r\n\r\n");
    if (!end)
        return r;
    (void)snprintf(r.head, sizeof r.head, "%.*s\r\n", (int)(end - r.raw), r.raw);
    r.status = (int)strtol(r.head + strlen("HTTP/1.1 "), NULL, 10);
    r.body = end + 4;
    r.json = json_loads(r.body, JSON_REJECT_DUPLICATES, NULL);
    return r;
}

static reply ask_with(world *w, const char *method, const char *path, const char *headers)
{
    return come_back(w, set_out(w, method, path, headers, false));
}

static reply ask(world *w, const char *path)
{
    return ask_with(w, "GET", path, "Authorization: Bearer jane\r\n");
}

static json_t *items_of(const reply *r)
{
    assert_int_equal(r->status, 200);
    assert_non_null(r->json);
    json_t *items = json_object_get(r->json, "items");
    assert_true(json_is_array(items));
    return items;
}

static bool has(const reply *r, const char *text)
{
    return r->body && strstr(r->body, text);
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/** The value of a header, in a buffer that the next call uses. */
static const char *header(const reply *r, const char *name)
{
    static char value[256];
    char line[64];
    (void)snprintf(line, sizeof line, "\n%s: ", name);
    const char *at = strstr(r->head, line);
    value[0] = '\0';
    if (at)
        (void)sscanf(at + strlen(line), "%255[^\r]", value);
    return value;
}

/* ---- the database ---- */

/** The first cell as text; "NULL". */
static const char *cell(world *w, const char *sql)
{
    static char text[512];
    PGresult *r = PQexec(w->database.direct, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK || PQntuples(r) < 1)
        fail_msg("%s: %s", sql, PQerrorMessage(w->database.direct));
    (void)snprintf(text, sizeof text, "%s", PQgetisnull(r, 0, 0) ? "NULL" : PQgetvalue(r, 0, 0));
    PQclear(r);
    return text;
}

/** Two sessions of one name, of which the later has results; one of another namespace. */
static const char data_sql[] =
    "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, finished_at) "
    "VALUES ('s-old', 'ml', 'dlrm', '{}', 'Auto', 'Failed', '2026-01-01', '2026-01-02'), "
    " ('s-new', 'ml', 'dlrm', '{\"duration\": \"2m\"}', 'Auto', 'Succeeded', '2026-01-03', "
    "  '2026-01-04'), "
    " ('s-secret', 'other', 'secret', '{}', 'Auto', 'Running', '2026-01-05', NULL);"
    "INSERT INTO target (session_uid, pod_uid, namespace, pod_name, node, workload_kind, "
    " workload_name, steps) SELECT 's-new', 'p-' || n, 'ml', 'dlrm-' || n, 'node-1', 'Job', "
    " 'dlrm', 40 FROM generate_series(0, 1) n;"
    "INSERT INTO process (session_uid, pod_uid, instance, process, gpus, clock, kernel_steps, "
    " wait_steps, copy_steps, rank) SELECT 's-new', 'p-' || n, 'agent', 0, '{GPU-a}', 'kernels', "
    " 3, 3, 3, n FROM generate_series(0, 1) n;"
    "INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, "
    " observed_ns, step_count, truncated, step_ns, gap_ns, counted_steps, counted_ns, captures, "
    " first_step_ns, lag_ns) SELECT 's-new', 'p-' || n, 'GPU-a', 4, true, 10, 10, 1000000000, 7, "
    " false, 900000000, 100000000, 11, 1300000007, 2, 1769000000000000001, NULL "
    " FROM generate_series(0, 1) n;"
    "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, type, parameters, "
    " calls, total_ns, share, windows, busy_ns, idle_share) SELECT 's-new', 'p-' || n, 'GPU-a', "
    " 'layer', 'l' || to_char(k, 'FM0000'), 'forward', E'Lin\"ear\\\\\\n\xc3\xa9', 10, 7, "
    " 123456789 + k, 0.1, 5, CASE WHEN k % 2 = 0 THEN 1000 + k END, 1.0 / 3 "
    " FROM generate_series(0, 1) n, generate_series(0, 9) k;"
    "INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, "
    " stderr, windows, method, source, reason, basis) SELECT 's-new', pod_uid, gpu_uuid, kind, "
    " layer, phase, m, CASE WHEN m = 'sm_active' THEN '0.1'::float8 + '0.2'::float8 END, "
    " CASE WHEN m = 'sm_active' THEN 'NaN'::float8 END, 3, 'regression', 'prometheus', "
    " CASE WHEN m <> 'sm_active' THEN 'took no time while observed' END, 'busy' "
    " FROM item, unnest('{sm_active,gpu_util}'::text[]) m WHERE layer <> 'l0009';"
    "INSERT INTO fit (session_uid, pod_uid, gpu_uuid, metric, windows, dropped_samples, "
    " repeated_samples, judged, explained) SELECT 's-new', 'p-' || n, 'GPU-a', 'sm_active', 9, 0, "
    " 0, true, 0.75 FROM generate_series(0, 1) n;"
    "INSERT INTO kernel SELECT 's-new', 'p-' || n, 0, 'l0', 'forward', 'gemm' || k, 9, 1000 * k "
    " FROM generate_series(0, 1) n, generate_series(1, 3) k;"
    "INSERT INTO host_wait SELECT 's-new', 'p-0', 0, '', 'other', 'item', 'train.py', k, 9, 2, "
    " 5000000 FROM generate_series(1, 3) k;"
    "INSERT INTO gpu_copy SELECT 's-new', 'p-0', 0, '', 'data', 'h2d', k, 9, 4096, 700 "
    " FROM unnest('{pageable,pinned}'::text[]) k;"
    "INSERT INTO rank (session_uid, pod_uid, process, rank, world_size, steps, step_ns, wait_ns, "
    " own_ns) SELECT 's-new', 'p-' || n, 0, n, 2, 9, 1e6, 1e5, 9e5 + n FROM generate_series(0, 1) "
    "n;"
    "INSERT INTO rank_item SELECT 's-new', 'p-' || n, 0, 'l' || k, 'forward', 2, 1e6 * k + n "
    " FROM generate_series(0, 1) n, generate_series(1, 3) k;"
    "INSERT INTO layer SELECT 's-new', 'p-0', 'agent', 0, 1, 'bot.0', 'Linear', 4;"
    "INSERT INTO activity (session_uid, pod_uid, instance, seq, process, stretch, stretch_last, "
    " start_ns, end_ns, events, dropped, cost_ns, step_number, step_start, step_duration, "
    " step_epoch, step_batch, step_gap, layer, phase, step, start, duration, busy) VALUES "
    " ('s-new', 'p-0', 'agent', 1, 0, 1, true, 1000, 3000, 3, 0, 0, '{1,2}', '{1000,2000}', "
    "  '{1000,1000}', '{0,0}', '{0,1}', '{5,-1}', '{1,0,1}', '{0,2,1}', '{1,1,2}', "
    "  '{1100,1500,2200}', '{50,60,70}', '{40,-1,70}');";

/* ---- the operator ---- */

static void on_api(void *context, pp_http_id id, const pp_http_api_request *request)
{
    pp_results_request(context, id, request);
}

static void on_gone(void *context, pp_http_id id)
{
    pp_results_gone(context, id);
}

static void start_server(world *w)
{
    pp_strings names = {0};
    bool changed = false;
    assert_int_equal(pp_strings_add(&names, "localhost", NULL), 0);
    assert_int_equal(pp_certificates_renew(&w->certificates, &names, pp_time_now(), &changed, NULL),
                     0);
    pp_strings_free(&names);
    const pp_http_options options = {.loop = &w->api->loop,
                                     .certificate = w->certificates.certificate,
                                     .key = w->certificates.key,
                                     .max_connections = 8};
    const pp_http_handlers handlers = {.context = &w->api->op, .api = on_api, .api_gone = on_gone};
    assert_int_equal(pp_http_server_new(&options, &handlers, &w->api->op.server, NULL), 0);
}

static void may(world *w, const char *user, const char *access)
{
    w->api->objects[0].path = REVIEWS;
    w->api->objects[0].text = user;
    w->api->objects[1].path = ACCESS;
    w->api->objects[1].text = access;
}

static int setup_with(void **state, int64_t query_timeout)
{
    void *api = NULL;
    pp_error err = {0};
    world *w = calloc(1, sizeof *w);
    assert_int_equal(api_server_setup(&api), 0);
    w->api = api;
    pp_operator *op = &w->api->op;
    w->api->config.api.enabled = true;
    w->api->config.api.connections = 3; /* of which one user has two ... */
    w->api->config.api.max_waiting = 8; /* ... and half of these */
    w->api->config.api.query_timeout = query_timeout;
    test_database_make(&w->database, "t_results", w->api);
    test_database_execute(&w->database, data_sql);
    assert_int_equal(pp_results_start(op, &err), 0);
    start_server(w);
    may(w, USER, YES);
    *state = w;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, INT64_C(5000000000));
}

/** Where no query ends for its time. */
static int setup_patient(void **state)
{
    return setup_with(state, INT64_C(600000000000));
}

static int teardown(void **state)
{
    world *w = *state;
    void *api = w->api;
    pp_http_server_stop(w->api->op.server);
    pp_results_stop(&w->api->op);
    test_database_done(&w->database, w->api);
    const int left = api_server_teardown(&api);
    pp_certificates_done(&w->certificates);
    free(w);
    return left;
}

/* ---- who may read ---- */

static void test_who_may_read(void **state)
{
    world *w = *state;
    reply r = ask_with(w, "GET", S1, "");
    assert_int_equal(r.status, 401);
    assert_string_equal(header(&r, "Content-Type"), "application/problem+json");
    assert_string_equal(header(&r, "WWW-Authenticate"), "Bearer");
    assert_string_equal(text_of(r.json, "type"), "urn:precisionprobe:problem:unauthorized");
    reply_free(&r);
    assert_int_equal(api_server_times(w->api, "POST "), 0);
    may(w, NOBODY, YES);
    r = ask_with(w, "GET", S1, "X-PrecisionProbe-Token: wrong\r\n");
    assert_int_equal(r.status, 401);
    reply_free(&r);
    may(w, USER, NO);
    r = ask(w, "/api/v1/namespaces/ml/sessions");
    assert_int_equal(r.status, 403);
    reply_free(&r);
    r = ask(w, "/api/v1/sessions");
    assert_int_equal(r.status, 403);
    reply_free(&r);
}

/* The very question, of the very user; and no audience but the API server's own. */
static void test_what_is_asked(void **state)
{
    world *w = *state;
    reply r = ask_with(w, "GET", S1 "/layers", "X-PrecisionProbe-Token: jane\r\n");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    const api_request *review = api_server_find(w->api, "POST " REVIEWS);
    const api_request *access = api_server_find(w->api, "POST " ACCESS);
    assert_non_null(review);
    assert_non_null(access);
    assert_non_null(strstr(review->body, "\"token\":\"jane\""));
    assert_null(strstr(review->body, "audiences"));
    PP_CLEANUP_JSON json_t *body = json_loads(access->body, 0, NULL);
    PP_CLEANUP_JSON json_t *wanted = json_loads(
        "{\"resourceAttributes\":{\"verb\":\"get\",\"group\":\"precisionprobe.io\",\"version\":"
        "\"v1alpha1\",\"resource\":\"profilesessions\",\"namespace\":\"ml\",\"name\":\"dlrm\"},"
        "\"user\":\"jane\",\"uid\":\"u-1\",\"groups\":[\"ml-team\"],\"extra\":{\"scopes\":[\"a\"]}"
        "}",
        0, NULL);
    assert_true(json_equal(json_object_get(body, "spec"), wanted));
    r = ask(w, S1 "/kernels"); /* kept: of the same token and session */
    reply_free(&r);
    assert_int_equal(api_server_times(w->api, "POST "), 2);
    r = ask(w, "/api/v1/namespaces/ml/sessions/other"); /* of another session it is not */
    reply_free(&r);
    assert_int_equal(api_server_times(w->api, "POST " ACCESS), 2);
}

/* A session that is not there reads as one that is not allowed. */
static void test_nothing_is_told(void **state)
{
    world *w = *state;
    reply missing = ask(w, "/api/v1/namespaces/ml/sessions/none");
    assert_int_equal(missing.status, 404);
    may(w, USER, NO);
    reply denied = ask(w, "/api/v1/namespaces/other/sessions/secret");
    assert_int_equal(denied.status, 404);
    assert_string_equal(missing.head, denied.head);
    assert_string_equal(missing.body, denied.body);
    reply_free(&denied);
    may(w, USER, YES);
    /* Not by a UID of another namespace either. */
    denied = ask(w, "/api/v1/namespaces/ml/sessions/secret?uid=s-secret");
    assert_string_equal(missing.body, denied.body);
    reply_free(&denied);
    reply_free(&missing);
}

/* ---- what is read ---- */

static void test_sessions(void **state)
{
    world *w = *state;
    reply r = ask(w, "/api/v1/namespaces/ml/sessions");
    json_t *items = items_of(&r);
    assert_int_equal(json_array_size(items), 2);
    json_t *first = json_array_get(items, 0);
    assert_string_equal(text_of(first, "session_uid"), "s-new");
    assert_string_equal(text_of(first, "created_at"), "2026-01-03T00:00:00.000000Z");
    assert_int_equal(json_integer_value(json_object_get(first, "pods")), 2);
    assert_null(json_object_get(r.json, "continue"));
    char etag[256];
    (void)snprintf(etag, sizeof etag, "Authorization: Bearer jane\r\nIf-None-Match: %s\r\n",
                   header(&r, "ETag"));
    reply_free(&r);
    r = ask_with(w, "GET", "/api/v1/namespaces/ml/sessions", etag);
    assert_int_equal(r.status, 304);
    reply_free(&r);
    r = ask(w, "/api/v1/sessions?limit=1");
    assert_string_equal(text_of(json_array_get(items_of(&r), 0), "session_uid"), "s-secret");
    char path[512];
    (void)snprintf(path, sizeof path, "/api/v1/sessions?limit=1&continue=%s",
                   text_of(r.json, "continue"));
    reply_free(&r);
    r = ask(w, path);
    assert_string_equal(text_of(json_array_get(items_of(&r), 0), "session_uid"), "s-new");
    reply_free(&r);
}

static void test_one_session(void **state)
{
    world *w = *state;
    reply r = ask(w, S1);
    assert_int_equal(r.status, 200);
    assert_string_equal(text_of(r.json, "session_uid"), "s-new");
    assert_string_equal(text_of(json_object_get(r.json, "spec"), "duration"), "2m");
    assert_int_equal(json_array_size(json_object_get(r.json, "pods")), 2);
    reply_free(&r);
    r = ask(w, S1 "?uid=s-old");
    assert_string_equal(text_of(r.json, "session_uid"), "s-old");
    assert_string_equal(text_of(r.json, "session_phase"), "Failed");
    reply_free(&r);
}

static double number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void test_layers(void **state)
{
    world *w = *state;
    reply r = ask(w, S1 "/layers");
    json_t *items = items_of(&r);
    assert_int_equal(json_array_size(items), 20);
    assert_string_equal(text_of(r.json, "session_uid"), "s-new");
    const json_t *one = json_array_get(items, 1);
    assert_string_equal(text_of(one, "layer"), "l0001");
    assert_string_equal(text_of(one, "type"), "Lin\"ear\\\n\xc3\xa9");
    assert_true(json_is_null(json_object_get(one, "busy_ns")));
    assert_true(json_is_true(json_object_get(one, "latest")));
    assert_string_equal(text_of(one, "first_marked"), "2026-01-21T12:53:20.000000Z");
#define VIEW                                                                                       \
    " FROM result_detail WHERE session_uid = 's-new' AND pod_uid = 'p-0' AND layer = 'l0001' "
    assert_true(number_of(one, "ms_per_step") ==
                strtod(cell(w, "SELECT ms_per_step" VIEW "LIMIT 1"), NULL));
    assert_true(number_of(one, "counted_idle_share") ==
                strtod(cell(w, "SELECT counted_idle_share" VIEW "LIMIT 1"), NULL));
    const json_t *metrics = json_object_get(one, "metrics");
    assert_int_equal(json_object_size(metrics), 2);
    const json_t *active = json_object_get(metrics, "sm_active");
    assert_true(number_of(active, "mean") == 0.1 + 0.2);
    assert_true(has(&r, "\"mean\":0.30000000000000004,"));
    assert_true(json_is_null(json_object_get(active, "stderr"))); /* NaN */
    assert_string_equal(text_of(active, "unit"),
                        cell(w, "SELECT unit" VIEW "AND metric = 'sm_active'"));
    assert_true(json_is_null(json_object_get(json_object_get(metrics, "gpu_util"), "mean")));
    assert_int_equal(json_object_size(json_object_get(json_array_get(items, 9), "metrics")), 0);
    reply_free(&r);
}

/* Of a metric that a later release has written, all is told but what this one would have to know.
 */
static void test_a_metric_of_a_later_release(void **state)
{
    world *w = *state;
    test_database_execute(
        &w->database,
        "INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, "
        " windows, method, source, group_name, group_mean, basis) SELECT 's-new', 'p-0', 'GPU-a', "
        " 'layer', 'l0009', 'forward', m, 0.25, 3, 'regression', 'prometheus', '', 1.0 / 3, 'busy' "
        " FROM unnest('{later,power,sm_active}'::text[]) m");
    reply r = ask(w, S1 "/layers");
    const json_t *metrics = json_object_get(json_array_get(items_of(&r), 9), "metrics");
    assert_int_equal(json_object_size(metrics), 3);
    const json_t *later = json_object_get(metrics, "later");
    const json_t *power = json_object_get(metrics, "power");
    assert_true(json_is_null(json_object_get(later, "unit")));
    assert_true(json_is_null(json_object_get(later, "amount_unit")));
    assert_string_equal(text_of(power, "unit"),
                        cell(w, "SELECT unit FROM metric WHERE name = 'power'"));
    assert_string_equal(text_of(power, "amount_unit"),
                        cell(w, "SELECT per_step FROM metric WHERE name = 'power'"));
    assert_true(json_is_null(json_object_get(power, "peak_unit")));
    assert_true(number_of(later, "elapsed_mean") == 0.25 * (1 - 1.0 / 3));
    assert_true(number_of(later, "group_mean") == 1.0 / 3);
    assert_string_equal(text_of(later, "group_name"), "");
    reply_free(&r);
}

/* Every row once, in pages of any size, and all of one session. */
static void page_through(world *w, const char *what, int limit, size_t expected)
{
    char path[8192];
    size_t rows = 0;
    PP_CLEANUP_JSON json_t *seen = json_object();
    (void)snprintf(path, sizeof path, S1 "/%s?limit=%d", what, limit);
    for (int pages = 0; *path; pages++) {
        reply r = ask(w, path);
        json_t *items = items_of(&r);
        size_t i;
        const json_t *item;
        json_array_foreach(items, i, item)
        {
            char *text = json_dumps(item, JSON_SORT_KEYS);
            assert_null(json_object_get(seen, text));
            json_object_set_new(seen, text, json_true());
            free(text);
        }
        rows += json_array_size(items);
        assert_true(json_array_size(items) <= (size_t)limit);
        const char *next = text_of(r.json, "continue");
        if (next)
            (void)snprintf(path, sizeof path, S1 "/%s?limit=%d&continue=%s", what, limit, next);
        else
            path[0] = '\0';
        reply_free(&r);
        assert_true(pages < 100);
    }
    if (rows != expected)
        fail_msg("%s: %zu rows, not %zu", what, rows, expected);
}

static void test_pages(void **state)
{
    static const struct {
        const char *what;
        size_t rows;
    } all[] = {{"layers", 20}, {"quality", 2}, {"kernels", 6},  {"waits", 3},
               {"copies", 2},  {"ranks", 2},   {"timeline", 2}, {"ranks/items", 6}};
    world *w = *state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        page_through(w, all[i].what, 1, all[i].rows);
        page_through(w, all[i].what, 4, all[i].rows);
        page_through(w, all[i].what, 5000, all[i].rows);
    }
}

/* Where rows of a kind have fewer to a page than were asked for, others follow all the same. */
static void test_pages_that_end_early(void **state)
{
    world *w = *state;
    test_database_execute(
        &w->database,
        "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, calls, total_ns, "
        " windows) SELECT 's-new', 'p-0', 'GPU-a', 'layer', 'more' || k, 'forward', 1, 1, 1 "
        " FROM generate_series(1, 1200) k;"
        "INSERT INTO activity (session_uid, pod_uid, instance, seq, process, stretch, "
        " stretch_last, start_ns, end_ns, events, dropped, cost_ns, step_number, step_start, "
        " step_duration, step_epoch, step_batch, layer, phase, step, start, duration) "
        "SELECT 's-new', 'p-0', 'agent', 1 + k, 0, 1, true, 3000 * k, 3000 * k + 1000, 1, 0, 0, "
        " ARRAY[k + 2], ARRAY[3000 * k], '{1000}', '{0}', '{0}', '{1}', '{0}', ARRAY[k + 2], "
        " ARRAY[3000 * k], '{10}' FROM generate_series(1, 250) k");
    page_through(w, "layers", 5000, 1220);
    page_through(w, "timeline", 5000, 252);
    page_through(w, "timeline", 500, 252);
}

/* A page that goes on stays in its session, though a later one has the name by then. */
static void test_a_page_keeps_its_session(void **state)
{
    world *w = *state;
    char path[2048];
    reply r = ask(w, S1 "/layers?limit=3");
    (void)snprintf(path, sizeof path, S1 "/layers?limit=3&continue=%s",
                   text_of(r.json, "continue"));
    reply_free(&r);
    test_database_execute(
        &w->database, "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at) "
                      "VALUES ('s-newer', 'ml', 'dlrm', '{}', 'Auto', 'Pending', '2026-02-01')");
    r = ask(w, path);
    assert_string_equal(text_of(r.json, "session_uid"), "s-new");
    assert_string_equal(text_of(json_array_get(items_of(&r), 0), "layer"), "l0003");
    reply_free(&r);
    r = ask(w, S1 "/layers");
    assert_string_equal(text_of(r.json, "session_uid"), "s-newer");
    assert_int_equal(json_array_size(items_of(&r)), 0);
    reply_free(&r);
}

static void test_other_views(void **state)
{
    world *w = *state;
    reply r = ask(w, S1 "/kernels?limit=2");
    const json_t *k = json_array_get(items_of(&r), 0);
    assert_string_equal(text_of(k, "kernel"), "gemm1");
    assert_true(number_of(k, "share") ==
                strtod(cell(w, "SELECT share FROM result_kernel WHERE session_uid = 's-new' AND "
                               "pod_uid = 'p-0' AND kernel = 'gemm1'"),
                       NULL));
    assert_true(number_of(k, "calls_per_step") == 3);
    reply_free(&r);
    r = ask(w, S1 "/waits");
    const json_t *wait = json_array_get(items_of(&r), 2);
    assert_int_equal(json_integer_value(json_object_get(wait, "line")), 3);
    assert_true(number_of(wait, "share_of_steps") == 2.0 / 3);
    reply_free(&r);
    r = ask(w, S1 "/copies");
    assert_true(number_of(json_array_get(items_of(&r), 0), "gb_per_second") == 4096.0 / 700);
    reply_free(&r);
    r = ask(w, S1 "/ranks");
    assert_true(number_of(json_array_get(items_of(&r), 0), "others_own_ms_per_step") == 0.900001);
    reply_free(&r);
    r = ask(w, S1 "/ranks/items?limit=4");
    const json_t *item = json_array_get(items_of(&r), 3); /* of the second rank */
    assert_string_equal(text_of(item, "layer"), "l1");
    assert_int_equal(json_integer_value(json_object_get(item, "rank")), 1);
    assert_true(number_of(item, "ms_per_step") == 1.000001);
    assert_true(number_of(item, "others_ms_per_step") == 1);
    assert_true(number_of(item, "calls_per_step") == 2);
    reply_free(&r);
    r = ask(w, S1 "/quality");
    assert_true(number_of(json_array_get(items_of(&r), 0), "explained") == 0.75);
    reply_free(&r);
}

static const char patterns_sql[] =
    "INSERT INTO pattern (namespace, workload_kind, workload_name, object_name, session_uid, "
    "sessions, gpus, first_at, last_at, bound, lead, lead_stderr, steps, undisturbed, busy, "
    "step_ns, step_ns_stderr, step_sd_ns, idle, idle_stderr, models, model_digests, batches, "
    "sessions_of_other_models) SELECT namespace, 'Job', name, "
    "'job-' || name, 's-new', 2, 3, '2026-01-01', '2026-01-02', 'Memory', 0.1, NULL, 400, true, "
    "true, 1e7 / 3, 1234.5, NULL, 0.125, 0.01, '{\"\",<b>}', '{\"\",0123456789abcdef}', "
    "'{\"\",8x16 float32}', 4 FROM (VALUES ('ml', 'a'), ('ml', 'b'), "
    "('other', 'c')) w (namespace, name);"
    "INSERT INTO pattern_metric SELECT 'ml', 'Job', 'a', 'sm_active', 'layers', 1.0 / 3, 0.01, "
    "'NaN', NULL, 'Infinity', NULL, NULL, ARRAY[0.1, 1.0 / 3, 'NaN'];"
    "INSERT INTO pattern_share VALUES ('ml', 'Job', 'a', 'bound', 'Memory', 0.75, 0.01), "
    "('ml', 'Job', 'a', 'layer', '<b>\"', 0.5, NULL), ('ml', 'Job', 'a', 'phase', 'data', 0.2, "
    "NULL)";

static void test_patterns(void **state)
{
    world *w = *state;
    test_database_execute(&w->database, patterns_sql);
    reply r = ask(w, "/api/v1/namespaces/ml/patterns?limit=1");
    assert_int_equal(json_array_size(items_of(&r)), 1);
    const json_t *first = json_array_get(items_of(&r), 0);
    assert_string_equal(text_of(first, "pattern"), "job-a");
    assert_string_equal(text_of(first, "bound"), "Memory");
    assert_true(number_of(first, "step_ns") == 1e7 / 3);
    assert_true(json_is_null(json_object_get(first, "step_sd_ns")));
    char path[512];
    (void)snprintf(path, sizeof path, "/api/v1/namespaces/ml/patterns?continue=%s",
                   text_of(r.json, "continue"));
    reply_free(&r);
    r = ask(w, path);
    assert_int_equal(json_array_size(items_of(&r)), 1);
    assert_string_equal(text_of(json_array_get(items_of(&r), 0), "workload_name"), "b");
    reply_free(&r);
    r = ask(w, "/api/v1/namespaces/empty/patterns");
    assert_int_equal(r.status, 200);
    assert_int_equal(json_array_size(items_of(&r)), 0);
    reply_free(&r);
    may(w, USER, NO);
    r = ask(w, "/api/v1/namespaces/else/patterns");
    assert_int_equal(r.status, 403);
    reply_free(&r);
}

static void test_one_pattern(void **state)
{
    world *w = *state;
    test_database_execute(&w->database, patterns_sql);
    reply r = ask(w, "/api/v1/namespaces/ml/patterns/job-a");
    assert_int_equal(r.status, 200);
    assert_string_equal(text_of(r.json, "last_session"), "s-new");
    assert_true(number_of(r.json, "sessions_of_other_models") == 4);
    const json_t *model = json_array_get(json_object_get(r.json, "models"), 1);
    assert_string_equal(text_of(model, "class"), "<b>");
    assert_string_equal(text_of(model, "digest"), "0123456789abcdef");
    assert_string_equal(text_of(model, "batch"), "8x16 float32");
    const json_t *metric = json_array_get(json_object_get(r.json, "metrics"), 0);
    assert_true(number_of(metric, "mean") == 1.0 / 3);
    assert_true(json_is_null(json_object_get(metric, "p95")));
    assert_true(json_is_null(json_object_get(metric, "p50"))); /* NaN and Infinity are no numbers */
    const json_t *profile = json_object_get(metric, "profile");
    assert_int_equal(json_array_size(profile), 3);
    assert_true(json_is_null(json_array_get(profile, 2)));
    assert_int_equal(json_array_size(json_object_get(r.json, "bounds")), 1);
    const json_t *type = json_array_get(json_object_get(r.json, "time"), 0);
    assert_string_equal(text_of(type, "name"), "<b>\"");
    char etag[256];
    (void)snprintf(etag, sizeof etag, "Authorization: Bearer jane\r\nIf-None-Match: %s\r\n",
                   header(&r, "ETag"));
    reply_free(&r);
    r = ask_with(w, "GET", "/api/v1/namespaces/ml/patterns/job-a", etag);
    assert_int_equal(r.status, 304);
    reply_free(&r);
    test_database_execute(&w->database,
                          "UPDATE pattern SET lead = 0.2 WHERE object_name = 'job-a'");
    r = ask_with(w, "GET", "/api/v1/namespaces/ml/patterns/job-a", etag);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = ask(w, "/api/v1/namespaces/ml/patterns/job-c"); /* another namespace's */
    assert_int_equal(r.status, 404);
    reply_free(&r);
}

/* The right to a session is none to a pattern of that name. */
static void test_what_is_asked_of_patterns(void **state)
{
    world *w = *state;
    reply r = ask(w, "/api/v1/namespaces/ml/sessions/job-a");
    reply_free(&r);
    assert_int_equal(api_server_times(w->api, "POST " ACCESS), 1);
    r = ask(w, "/api/v1/namespaces/ml/patterns/job-a");
    assert_int_equal(r.status, 404);
    reply_free(&r);
    assert_int_equal(api_server_times(w->api, "POST " ACCESS), 2);
    const char *last = "";
    for (int i = 0; i < w->api->count; i++)
        if (strncmp(w->api->requests[i].line, "POST " ACCESS, sizeof "POST " ACCESS - 1) == 0)
            last = w->api->requests[i].body;
    assert_non_null(strstr(last, "\"resource\":\"consumptionpatterns\""));
    assert_non_null(strstr(last, "\"name\":\"job-a\""));
    assert_non_null(strstr(last, "\"verb\":\"get\""));
}

static void test_timeline(void **state)
{
    world *w = *state;
    reply r = ask(w, S1 "/timeline");
    json_t *steps = items_of(&r);
    assert_string_equal(text_of(r.json, "pod_uid"), "p-0");
    assert_int_equal(json_array_size(steps), 2);
    const json_t *first = json_array_get(steps, 0);
    const json_t *intervals = json_object_get(first, "intervals");
    assert_int_equal(json_array_size(intervals), 2);
    const json_t *one = json_array_get(intervals, 0), *two = json_array_get(intervals, 1);
    assert_true(number_of(one, "start_ns") == 100 && number_of(one, "duration_ns") == 50);
    assert_string_equal(text_of(one, "layer"), "bot.0");
    assert_string_equal(text_of(one, "phase"), "forward");
    assert_string_equal(text_of(two, "layer"), "");
    assert_string_equal(text_of(two, "phase"), "optimizer");
    assert_true(json_is_null(json_object_get(two, "busy_ns")));
    assert_true(json_is_null(json_object_get(json_array_get(steps, 1), "gap_ns")));
    reply_free(&r);
    r = ask(w, S1 "/timeline?pod=p-1&process=0");
    assert_int_equal(json_array_size(items_of(&r)), 0);
    reply_free(&r);
}

/* Few of them fill a page: the others are not read for it, or none would come in time. */
static void test_a_timeline_of_large_steps(void **state)
{
    world *w = *state;
    char path[512];
    test_database_execute(
        &w->database,
        "INSERT INTO layer (session_uid, pod_uid, instance, process, layer, name, type) SELECT "
        " 's-new', 'p-0', 'agent', 0, 1000, repeat('layer.', 8), 'Linear';"
        "INSERT INTO activity (session_uid, pod_uid, instance, seq, process, stretch, "
        " stretch_last, start_ns, end_ns, events, dropped, cost_ns, step_number, step_start, "
        " step_duration, step_epoch, step_batch, layer, phase, step, start, duration) "
        "SELECT 's-new', 'p-0', 'agent', 1 + b, 0, 1, true, b * 1000000, (b + 1) * 1000000, 1, 0, "
        " 0, ARRAY[b + 2], ARRAY[b * 1000000], '{999999}', '{0}', '{0}', "
        " array_fill(1000, ARRAY[20000]), array_fill(1::smallint, ARRAY[20000]), "
        " array_fill(b + 2::bigint, ARRAY[20000]), array_fill(b * 1000000, ARRAY[20000]), "
        " array_fill(7::bigint, ARRAY[20000]) FROM generate_series(1::bigint, 120) b");
    reply r = ask(w, S1 "/timeline");
    assert_int_equal(r.status, 200);
    const size_t n = json_array_size(items_of(&r));
    assert_in_range(n, 4, 6); /* two are small */
    (void)snprintf(path, sizeof path, S1 "/timeline?continue=%s", text_of(r.json, "continue"));
    reply_free(&r);
    r = ask(w, path);
    assert_int_equal(r.status, 200);
    const json_t *next = json_array_get(items_of(&r), 0);
    assert_true(number_of(next, "step") == (double)(n + 1));
    assert_int_equal(json_array_size(json_object_get(next, "intervals")), 20000);
    reply_free(&r);
}

/* By the names that everything else has for them. */
static void test_phases_of_a_timeline(void **state)
{
    world *w = *state;
    char sql[2048], numbers[128] = "", starts[256] = "", zeros[128] = "", threes[128] = "";
    for (int i = 0; i < PP_WIRE_PHASES; i++) {
        (void)snprintf(numbers + strlen(numbers), 8, "%s%d", i ? "," : "", i);
        (void)snprintf(starts + strlen(starts), 16, "%s%d", i ? "," : "", 3000 + i);
        (void)snprintf(zeros + strlen(zeros), 8, "%s0", i ? "," : "");
        (void)snprintf(threes + strlen(threes), 8, "%s3", i ? "," : "");
    }
    (void)snprintf(
        sql, sizeof sql,
        "INSERT INTO activity (session_uid, pod_uid, instance, seq, process, stretch, "
        " stretch_last, start_ns, end_ns, events, dropped, cost_ns, step_number, "
        " step_start, step_duration, step_epoch, step_batch, layer, phase, step, start, "
        " duration) VALUES ('s-new', 'p-0', 'agent', 2, 0, 1, true, 3000, 4000, 3, 0, 0, "
        " '{3}', '{3000}', '{1000}', '{0}', '{0}', '{%s}', '{%s}', '{%s}', '{%s}', '{%s}')",
        zeros, numbers, threes, starts, zeros);
    test_database_execute(&w->database, sql);
    reply r = ask(w, S1 "/timeline");
    const json_t *intervals = json_object_get(json_array_get(items_of(&r), 2), "intervals");
    assert_int_equal(json_array_size(intervals), PP_WIRE_PHASES);
    for (int i = 0; i < PP_WIRE_PHASES; i++)
        assert_string_equal(text_of(json_array_get(intervals, (size_t)i), "phase"),
                            pp_wire_phase_name((pp_wire_phase)i));
    reply_free(&r);
}

/* ---- revisions ---- */

static int status_of(world *w, const char *path, const char *etag)
{
    char headers[512];
    (void)snprintf(headers, sizeof headers,
                   "Authorization: Bearer jane\r\nIf-None-Match: \"x\", W/%s\r\n", etag);
    reply r = ask_with(w, "GET", path, headers);
    const int status = r.status;
    assert_true(status != 304 || !*r.body);
    reply_free(&r);
    return status;
}

enum { ETAG_BYTES = 256 };

/** That of an answer, into out. */
static void keep_etag(world *w, const char *path, char out[ETAG_BYTES])
{
    reply r = ask(w, path);
    (void)snprintf(out, ETAG_BYTES, "%s", header(&r, "ETag"));
    reply_free(&r);
}

static void test_etags(void **state)
{
    world *w = *state;
    char etag[ETAG_BYTES];
    keep_etag(w, S1 "/layers", etag);
    assert_int_equal(status_of(w, S1 "/layers", etag), 304);
    assert_int_equal(status_of(w, S1 "/layers", "\"1-0123\""), 200);
    assert_int_equal(status_of(w, S1 "/layers?limit=7", etag), 200);
    assert_int_equal(status_of(w, S1 "/quality", etag), 200);
    keep_etag(w, S1 "/ranks/items", etag);
    assert_int_equal(status_of(w, S1 "/ranks/items", etag), 304);
    test_database_execute(&w->database, "UPDATE rank SET steps = 10 WHERE rank = 1");
    assert_int_equal(status_of(w, S1 "/ranks/items", etag), 200);
    keep_etag(w, S1 "/quality", etag);
    assert_int_equal(status_of(w, S1 "/quality", etag), 304);
    test_database_execute(&w->database, "UPDATE process SET fine = 'none' WHERE pod_uid = 'p-1'");
    assert_int_equal(status_of(w, S1 "/quality", etag), 200);
    keep_etag(w, S1 "/layers", etag);
    test_database_execute(&w->database,
                          "UPDATE attribution SET revision = 5 WHERE pod_uid = 'p-1'");
    assert_int_equal(status_of(w, S1 "/layers", etag), 200);
    keep_etag(w, S1 "/layers", etag);
    /* Another session becomes its workload's latest. */
    test_database_execute(
        &w->database,
        "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, "
        " finished_at) VALUES ('s-3', 'ml', 'third', '{}', 'Auto', 'Succeeded', now(), now());"
        "INSERT INTO target (session_uid, pod_uid, namespace, pod_name, workload_kind, "
        " workload_name) VALUES ('s-3', 'p-3', 'ml', 'dlrm-3', 'Job', 'dlrm');"
        "INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, "
        " samples, observed_ns, step_count, truncated) "
        "VALUES ('s-3', 'p-3', 'GPU-a', 1, true, 0, 0, 0, 0, false)");
    assert_int_equal(status_of(w, S1 "/layers", etag), 200);
    reply r = ask(w, S1 "/layers");
    assert_true(json_is_false(json_object_get(json_array_get(items_of(&r), 0), "latest")));
    reply_free(&r);
}

/** Whether any layer has. */
static bool has_mean(world *w, const char *path, double mean)
{
    reply r = ask(w, path);
    bool has = false;
    size_t i;
    json_t *one;
    json_array_foreach(items_of(&r), i, one)
    {
        const char *name;
        json_t *metric;
        json_object_foreach(json_object_get(one, "metrics"), name, metric)
        {
            has |= json_number_value(json_object_get(metric, "mean")) == mean;
        }
    }
    reply_free(&r);
    return has;
}

/* The same request is answered without its rows, which a change that no version tells of shows; and
 * nobody else's is. */
static void test_answers_that_are_kept(void **state)
{
    world *w = *state;
    char etag[ETAG_BYTES];
    keep_etag(w, S1 "/layers", etag);
    reply r = ask(w, S1 "/layers");
    test_database_execute(&w->database, "UPDATE estimate SET mean = 77 WHERE mean IS NOT NULL");
    reply again = ask(w, S1 "/layers");
    assert_string_equal(again.body, r.body);
    assert_string_equal(header(&again, "ETag"), etag);
    reply_free(&again);
    assert_int_equal(status_of(w, S1 "/layers", etag), 304);
    assert_false(has_mean(w, S1 "/layers", 77));
    assert_true(has_mean(w, S1 "/layers?limit=7", 77)); /* is another request */
    test_database_execute(&w->database, "UPDATE attribution SET revision = revision + 1");
    assert_true(has_mean(w, S1 "/layers", 77));
    may(w, NOBODY, YES);
    again = ask_with(w, "GET", S1 "/layers", "Authorization: Bearer joe\r\n");
    assert_int_equal(again.status, 401);
    reply_free(&again);
    reply_free(&r);
}

/* ---- what is refused ---- */

static void expect_problem(world *w, const char *path, int status, const char *field)
{
    reply r = ask(w, path);
    if (r.status != status)
        fail_msg("%s: %d, not %d", path, r.status, status);
    assert_int_equal(json_integer_value(json_object_get(r.json, "status")), status);
    if (field)
        assert_string_equal(text_of(r.json, "field"), field);
    reply_free(&r);
}

static void test_requests_that_are_wrong(void **state)
{
    world *w = *state;
    char path[2048];
    expect_problem(w, "/api/v1/nothing", 404, NULL);
    expect_problem(w, "/api/v2/sessions", 404, NULL);
    expect_problem(w, "/api/v1/sessions/", 404, NULL);
    expect_problem(w, S1 "/layers?limit=0", 400, "limit");
    expect_problem(w, S1 "/layers?limit=5001", 400, "limit");
    expect_problem(w, S1 "/layers?limit=5&limit=5", 400, "limit");
    expect_problem(w, S1 "/layers?offset=5", 400, "offset");
    expect_problem(w, S1 "/layers?continue=AAAA", 400, "continue");
    expect_problem(w, S1 "/layers?uid=", 400, "uid");
    expect_problem(w, S1 "/layers/items", 404, NULL);
    expect_problem(w, "/api/v1/namespaces/M%4C/sessions", 400, "namespace");
    expect_problem(w, "/api/v1/namespaces/ml/sessions/%ff", 400, "session");
    expect_problem(w, "/api/v1/namespaces/ml/sessions/a%7fb", 400, "session");
    (void)snprintf(path, sizeof path, S1 "/%0900d", 1);
    expect_problem(w, path, 414, NULL);
    assert_int_equal(api_server_times(w->api, "POST "), 0);
    /* Where libwebsockets ends the connection there is no answer, and no crash. */
    reply r = ask(w, "/api/v1/namespaces/ml/sessions/a%00b");
    assert_true(r.status == 0 || r.status == 400 || r.status == 403 || r.status == 404);
    reply_free(&r);
    r = ask(w, "/api/v1/namespaces/ml/sessions/a%zz");
    assert_true(r.status == 0 || r.status == 400 || r.status == 403 || r.status == 404);
    reply_free(&r);
}

static void test_methods(void **state)
{
    static const char *const others[] = {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    world *w = *state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        reply r = ask_with(w, others[i], S1, "Authorization: Bearer jane\r\n");
        if (r.status != 405)
            fail_msg("%s: %d", others[i], r.status);
        if (strcmp(header(&r, "Allow"), "GET, HEAD") != 0)
            fail_msg("%s: %s", others[i], r.head);
        reply_free(&r);
    }
    reply whole = ask(w, S1);
    reply head = ask_with(w, "HEAD", S1, "Authorization: Bearer jane\r\n");
    assert_int_equal(head.status, 200);
    assert_string_equal(head.body, "");
    assert_int_equal(strtol(header(&head, "Content-Length"), NULL, 10), strlen(whole.body));
    reply_free(&head);
    reply_free(&whole);
    reply document = ask_with(w, "GET", "/api/v1/openapi.yaml", "");
    assert_int_equal(document.status, 200);
    assert_non_null(strstr(document.body, "openapi: 3.1.0"));
    reply_free(&document);
}

/* ---- what takes too long, or is much ---- */

/* The database is kept by another: the query ends, and the next one is answered. */
static void test_a_query_that_takes_long(void **state)
{
    world *w = *state;
    test_database_execute(&w->database, "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE");
    reply r = ask(w, S1 "/layers");
    assert_int_equal(r.status, 503);
    assert_true(*header(&r, "Retry-After"));
    assert_true(has(&r, "the database is away, or took too long"));
    assert_false(has(&r, "SQLSTATE"));
    reply_free(&r);
    test_database_execute(&w->database, "ROLLBACK");
    r = ask(w, S1 "/layers");
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

/** Until so many backends of the database wait for the test's lock. */
static void await_locked(world *w, int n)
{
    static const char sql[] = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = "
                              "'item'::regclass";
    const int64_t end = pp_time_monotonic() + INT64_C(60000000000);
    while (atoi(cell(w, sql)) < n) {
        assert_true(pp_time_monotonic() < end);
        api_server_run_for(w->api, INT64_C(5000000));
    }
}

/* So many of one user run, so many wait; the next one is told to come later, another user is
 * answered, and so are all others in the end. */
static void test_many_queries(void **state)
{
    enum { ALL = 6 };
    world *w = *state;
    trip *trips[ALL];
    test_database_execute(&w->database, "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE");
    for (int i = 0; i < ALL; i++) {
        trips[i] = set_out(w, "GET", S1 "/layers", "Authorization: Bearer jane\r\n", false);
        api_server_run_for(w->api, INT64_C(50000000));
    }
    await_locked(w, 2);
    reply r = ask(w, S1 "/kernels");
    assert_int_equal(r.status, 429);
    assert_true(*header(&r, "Retry-After"));
    reply_free(&r);
    may(w, OTHER_USER, YES);
    r = ask_with(w, "GET", S1 "/kernels", "Authorization: Bearer john\r\n");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    test_database_execute(&w->database, "ROLLBACK");
    for (int i = 0; i < ALL; i++) {
        r = come_back(w, trips[i]);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
}

/** Backends of the readers that run a query now. */
static int active(world *w)
{
    test_database_execute(&w->database, "SELECT pg_stat_clear_snapshot()"); /* in its transaction */
    return atoi(cell(w, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                        "AND state = 'active' AND pid <> pg_backend_pid()"));
}

/* Of those that leave, nothing is left: neither in the queue nor in the database, which no query's
 * time would end here. */
static void test_readers_that_leave(void **state)
{
    enum { ALL = 6 };
    world *w = *state;
    trip *trips[ALL];
    test_database_execute(&w->database, "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE");
    for (int i = 0; i < ALL; i++)
        trips[i] = set_out(w, "GET", S1 "/layers", "Authorization: Bearer jane\r\n", true);
    await_locked(w, 2);
    for (int i = 0; i < ALL; i++)
        trips[i]->may_leave = true;
    for (int i = 0; i < ALL; i++) {
        reply r = come_back(w, trips[i]);
        reply_free(&r);
    }
    const int64_t end = pp_time_monotonic() + INT64_C(60000000000);
    while (active(w) > 0) {
        assert_true(pp_time_monotonic() < end);
        api_server_run_for(w->api, INT64_C(5000000));
    }
    /* And their connections are good for what comes then. */
    for (int i = 0; i < ALL; i++) {
        reply r = ask(w, S1 "/kernels");
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    test_database_execute(&w->database, "ROLLBACK");
    reply r = ask(w, S1 "/layers");
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

/* Where the server is asked to end a query that it has not got yet it takes no notice: it is asked
 * again. */
static void test_readers_that_leave_at_once(void **state)
{
    enum { ROUNDS = 40 };
    world *w = *state;
    test_database_execute(&w->database, "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE");
    for (int i = 0; i < ROUNDS; i++) {
        trip *t = set_out(w, "GET", S1 "/layers", "Authorization: Bearer jane\r\n", true);
        t->may_leave = true;
        api_server_run_for(w->api, INT64_C(1000000) * (i % 8));
        reply r = come_back(w, t);
        reply_free(&r);
        const int64_t end = pp_time_monotonic() + INT64_C(60000000000);
        while (active(w) > 0) {
            assert_true(pp_time_monotonic() < end);
            api_server_run_for(w->api, INT64_C(2000000));
        }
    }
    test_database_execute(&w->database, "ROLLBACK");
}

/* A stop ends what is being read; teardown sees that nothing is left on the loop. */
static void test_a_stop_amid_a_query(void **state)
{
    world *w = *state;
    test_database_execute(&w->database, "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE");
    trip *t = set_out(w, "GET", S1 "/layers", "Authorization: Bearer jane\r\n", false);
    await_locked(w, 1);
    pp_results_stop(&w->api->op);
    pp_http_server_stop(w->api->op.server);
    reply r = come_back(w, t);
    assert_true(r.status == 0 || r.status == 503);
    reply_free(&r);
}

/* Connections that are lost are made anew, amid a query too. */
static void test_lost_connections(void **state)
{
    static const char cut[] = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                              "WHERE datname = current_database() AND pid <> pg_backend_pid()";
    world *w = *state;
    (void)cell(w, cut);
    reply r = ask(w, S1 "/layers");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    test_database_execute(&w->database, "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE");
    trip *t = set_out(w, "GET", S1 "/layers", "Authorization: Bearer jane\r\n", false);
    await_locked(w, 1);
    (void)cell(w, cut);
    test_database_execute(&w->database, "ROLLBACK");
    r = come_back(w, t);
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

/* Nothing can be written by it, whatever a statement says. */
static void test_queries_only_read(void **state)
{
    world *w = *state;
    reply r = ask(w, S1);
    reply_free(&r);
    test_database_execute(
        &w->database,
        "CREATE FUNCTION spoil() RETURNS text LANGUAGE plpgsql AS $$ BEGIN DELETE FROM rank; "
        " RETURN 'x'; END $$;"
        "ALTER VIEW result_rank RENAME TO result_rank_was;"
        "CREATE VIEW result_rank AS SELECT namespace, session, session_uid, session_phase, "
        " spoil() AS workload_kind, workload_name, pod_name, pod_uid, node, process, rank, "
        " world_size, steps, ms_per_step, own_ms_per_step, own_stderr_ms, wait_ms_per_step, "
        " others_own_ms_per_step, latest FROM result_rank_was");
    r = ask(w, S1 "/ranks");
    assert_true(r.status >= 500);
    assert_string_equal(cell(w, "SELECT count(*) FROM rank"), "2");
    reply_free(&r);
}

/* A page ends where it is large; all rows come all the same. */
static void test_large_answers(void **state)
{
    world *w = *state;
    test_database_execute(&w->database,
                          "INSERT INTO kernel SELECT 's-new', 'p-0', 0, 'big', 'forward', "
                          " rpad(k::text, 1000, 'x'), 1, 1 FROM generate_series(1, 5000) k");
    reply r = ask(w, S1 "/kernels?limit=5000");
    const size_t n = json_array_size(items_of(&r));
    assert_true(n > 1000 && n < 5000);
    assert_non_null(text_of(r.json, "continue"));
    reply_free(&r);
    page_through(w, "kernels", 5000, 5006);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_who_may_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sessions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_session, setup, teardown),
        cmocka_unit_test_setup_teardown(test_layers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_metric_of_a_later_release, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_that_end_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_page_keeps_its_session, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_patterns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_pattern, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_asked_of_patterns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_timeline, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_timeline_of_large_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_phases_of_a_timeline, setup, teardown),
        cmocka_unit_test_setup_teardown(test_etags, setup, teardown),
        cmocka_unit_test_setup_teardown(test_answers_that_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_requests_that_are_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_methods, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_query_that_takes_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_queries, setup_patient, teardown),
        cmocka_unit_test_setup_teardown(test_readers_that_leave, setup_patient, teardown),
        cmocka_unit_test_setup_teardown(test_readers_that_leave_at_once, setup_patient, teardown),
        cmocka_unit_test_setup_teardown(test_a_stop_amid_a_query, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_connections, setup, teardown),
        cmocka_unit_test_setup_teardown(test_queries_only_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_answers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
