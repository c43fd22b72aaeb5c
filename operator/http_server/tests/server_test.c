/* The server from outside: real TLS, real sockets, one server per test. */
#include "common/cleanup.h"
#include "common/json.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/http_server/tests/client.h"
#include "operator/http_server/tests/fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MS INT64_C(1000000)

static int start_with(void **state, pp_http_options options)
{
    fixture *f = calloc(1, sizeof *f);
    options.max_connections = options.max_connections ? options.max_connections : 60;
    options.max_batches = options.max_batches ? options.max_batches : 100;
    fixture_start(f, options);
    *state = f;
    return 0;
}

static int start(void **state)
{
    return start_with(state, (pp_http_options){0});
}

static int start_slow_reviews(void **state)
{
    return start_with(state, (pp_http_options){.admission_timeout = 3600 * 1000 * MS});
}

static int start_wide(void **state)
{
    return start_with(state, (pp_http_options){.max_connections = 100, .max_batches = 200});
}

/** For the tests of what happens when time runs out. */
static int start_hasty(void **state)
{
    return start_with(state, (pp_http_options){.request_timeout = 1000 * MS,
                                               .body_timeout = 500 * MS,
                                               .admission_timeout = 400 * MS,
                                               .authorize_timeout = 1000 * MS,
                                               .message_timeout = 700 * MS,
                                               .ping_after = 1,
                                               .hangup_after = 8});
}

/** Which asks who it is for a second. */
static int start_asking(void **state)
{
    return start_with(state, (pp_http_options){.authorize_timeout = 1000 * MS});
}

/** With room for two batches, and little patience. */
static int start_loaded(void **state)
{
    return start_with(state,
                      (pp_http_options){.max_batches = 2, .ping_after = 1, .hangup_after = 3});
}

/** With few places, and little room for reviews. */
static int start_narrow(void **state)
{
    return start_with(
        state,
        (pp_http_options){.max_unproven = 12, .max_unproven_each = 8, .max_review_bytes = 5000000});
}

/** With room for few bytes of batches. */
static int start_cramped(void **state)
{
    return start_with(state, (pp_http_options){.max_batch_bytes = 16 << 10});
}

/** Where a pod may send a KiB a second. */
static int start_slow(void **state)
{
    return start_with(state, (pp_http_options){.pod_rate = 1 << 10});
}

/** Where refused tokens and open questions are never forgotten. */
static int start_wary(void **state)
{
    return start_with(state, (pp_http_options){.authorize_timeout = 3600 * 1000 * MS,
                                               .refusal_interval = 3600 * 1000 * MS});
}

static int stop(void **state)
{
    fixture *f = *state;
    fixture_stop(f);
    int left = f->loop_left;
    int open = f->connected - f->disconnected;
    free(f);
    /* Nothing is left on the loop, and each connection was said to have ended. */
    return left == 0 && open == 0 ? 0 : -1;
}

static client open_tls(fixture *f)
{
    client c;
    assert_true(client_open(&c, f->port, f->ca));
    return c;
}

/* ---- admission ---------------------------------------------------------------------------------
 */

static char *review_text(const char *name, size_t padding)
{
    size_t size = 512 + padding;
    char *text = malloc(size);
    assert_non_null(text);
    (void)snprintf(text, size,
                   "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
                   "\"request\":{\"uid\":\"r-7\",\"namespace\":\"ml\",\"operation\":\"CREATE\","
                   "\"dryRun\":true,\"kind\":{\"group\":\"\",\"version\":\"v1\",\"kind\":\"Pod\"},"
                   "\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\"}}}}%*s",
                   name, (int)padding, "");
    return text;
}

static response post_review(client *c, const char *text)
{
    return client_request(c, "POST", "/s3cret/pods?timeout=3s",
                          "Content-Type: application/json\r\n", text, strlen(text));
}

/** The patch of an answer that allows, as JSON; NULL when it carries none. */
static json_t *allowed_patch(const response *r)
{
    pp_error err = {0};
    assert_int_equal(r->status, 200);
    PP_CLEANUP_JSON json_t *answer = pp_json_parse(r->body, r->len, &err);
    assert_non_null(answer);
    assert_string_equal(pp_json_get_string(answer, "response", "uid", NULL), "r-7");
    assert_true(json_is_true(pp_json_get(answer, "response", "allowed", NULL)));
    const char *base64 = pp_json_get_string(answer, "response", "patch", NULL);
    if (!base64)
        return NULL;
    assert_string_equal(pp_json_get_string(answer, "response", "patchType", NULL), "JSONPatch");
    size_t n = strlen(base64);
    PP_CLEANUP_FREE char *text = malloc(n);
    int len = EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)base64, (int)n);
    assert_true(len > 0);
    while (len && text[len - 1] == '\0')
        len--;
    return pp_json_parse(text, (size_t)len, &err);
}

static void test_review_is_patched(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    for (int i = 0; i < 3; i++) { /* over one connection */
        response r = post_review(&c, text);
        PP_CLEANUP_JSON json_t *patch = allowed_patch(&r);
        assert_string_equal(pp_json_get_string(json_array_get(patch, 0), "op", NULL), "add");
        assert_non_null(strstr(r.body, "\"warnings\":[\"ml\",\"dry\"]"));
        response_free(&r);
    }
    assert_int_equal(f->reviews, 3);
    client_close(&c);
}

static void test_review_answered_later(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    PP_CLEANUP_FREE char *text = review_text("late", 0);
    response r = post_review(&c, text);
    PP_CLEANUP_JSON json_t *patch = allowed_patch(&r);
    assert_non_null(patch);
    response_free(&r);
    client_close(&c);
}

static void test_review_never_answered_is_allowed(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    PP_CLEANUP_FREE char *text = review_text("mute", 0);
    int64_t began = pp_time_monotonic();
    response r = post_review(&c, text);
    assert_null(allowed_patch(&r));
    assert_true(pp_time_monotonic() - began > 300 * MS); /* not at once */
    response_free(&r);
    client_close(&c);
}

/** The API server's own limit counts where it is shorter. */
static void test_review_that_is_not_waited_for(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    PP_CLEANUP_FREE char *text = review_text("mute", 0);
    response r = client_request(&c, "POST", "/s3cret/pods?timeout=1s",
                                "Content-Type: application/json\r\n", text, strlen(text));
    assert_null(allowed_patch(&r));
    response_free(&r);
    client_close(&c);
}

static void test_review_with_a_large_patch(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    PP_CLEANUP_FREE char *text = review_text("big", 0);
    response r = post_review(&c, text);
    PP_CLEANUP_JSON json_t *patch = allowed_patch(&r);
    assert_int_equal(strlen(pp_json_get_string(json_array_get(patch, 0), "value", NULL)), 2000000);
    response_free(&r);
    client_close(&c);
}

/* Of a namespace that asks for the hook by its label: told by the path. */
static void test_review_of_a_labelled_namespace(void **state)
{
    fixture *f = *state;
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    static const char *const paths[] = {"/s3cret/pods", "/s3cret/labelled?timeout=3s"};
    for (size_t i = 0; i < 2; i++) {
        client c = open_tls(f);
        response r = client_request(&c, "POST", paths[i], "Content-Type: application/json\r\n",
                                    text, strlen(text));
        assert_int_equal(r.status, 200);
        assert_int_equal(strstr(r.body, "\"labelled\"") != NULL, i == 1);
        response_free(&r);
        client_close(&c);
    }
}

/* Sessions are handed on as such; of other kinds nobody is told. */
static void test_review_of_other_kinds(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *kind;
        int told;
    } cases[] = {{"ProfileSession", 1}, {"ConfigMap", 0}};
    for (size_t i = 0; i < 2; i++) {
        char text[512];
        (void)snprintf(text, sizeof text,
                       "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
                       "\"request\":{\"uid\":\"r-7\",\"namespace\":\"ml\",\"operation\":"
                       "\"CREATE\",\"kind\":{\"kind\":\"%s\"},\"object\":{\"metadata\":{}}}}",
                       cases[i].kind);
        int before = f->reviews;
        client c = open_tls(f);
        response r = post_review(&c, text);
        assert_int_equal(r.status, 200);
        assert_int_equal(strstr(r.body, "\"session\"") != NULL, cases[i].told);
        assert_int_equal(f->reviews - before, cases[i].told);
        response_free(&r);
        client_close(&c);
    }
}

static void test_review_size(void **state)
{
    fixture *f = *state;
    PP_CLEANUP_FREE char *bare = review_text("now", 0);
    PP_CLEANUP_FREE char *fits = review_text("now", PP_HTTP_MAX_REVIEW - strlen(bare));
    PP_CLEANUP_FREE char *large = review_text("now", PP_HTTP_MAX_REVIEW - strlen(bare) + 1);
    PP_CLEANUP_FREE char *huge = review_text("now", 20000000); /* answered long before its end */
    client c = open_tls(f);
    response r = post_review(&c, fits);
    PP_CLEANUP_JSON json_t *patch = allowed_patch(&r);
    assert_non_null(patch);
    response_free(&r);
    r = post_review(&c, large);
    assert_int_equal(r.status, 413);
    response_free(&r);
    client_close(&c);
    c = open_tls(f);
    r = post_review(&c, huge);
    assert_int_equal(r.status, 413);
    response_free(&r);
    client_close(&c);
    assert_int_equal(f->reviews, 1);
}

static void test_bodies_without_a_proper_length(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"Transfer-Encoding: chunked\r\n", 411},
        {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 411},
        {"Content-Length: -5\r\n", 400},
        {"Content-Length: 7x\r\n", 400},
        {"Content-Length: +7\r\n", 400},
        {"Content-Length: 99999999999999999999\r\n", 400},
        {"Content-Length: 7\r\nContent-Length: 8\r\n", 400},
        {"Content-Length: 99999999999\r\n", 413},
        {"Content-Length: 0\r\n", 400},
        {"", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client c = open_tls(f);
        response r = client_request(&c, "POST", "/s3cret/pods", cases[i].headers, NULL, 0);
        if (r.status != cases[i].status)
            fail_msg("%s gave %d", cases[i].headers, r.status);
        response_free(&r);
        client_close(&c);
    }
    assert_int_equal(f->reviews, 0);
}

static void test_bodies_that_are_no_review(void **state)
{
    fixture *f = *state;
    static const char *const bodies[] = {
        "{",
        "[]",
        "{}",
        "{\"apiVersion\":\"admission.k8s.io/v1beta1\",\"kind\":\"AdmissionReview\"}",
        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\"}",
        ("{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{"
         "\"uid\":7,\"operation\":\"CREATE\",\"kind\":{}}}"),
    };
    client c = open_tls(f);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        response r = post_review(&c, bodies[i]);
        assert_int_equal(r.status, 400);
        assert_true(r.len > 1);
        response_free(&r);
    }
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    (void)memcpy(strstr(text, "CREATE"), "UPDATE", 6);
    response r = post_review(&c, text);
    assert_null(allowed_patch(&r)); /* allowed, and nobody is asked */
    response_free(&r);
    client_close(&c);
    assert_int_equal(f->reviews, 0);
}

static void test_dripping_body(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    static const char head[] =
        "POST /s3cret/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
    assert_true(client_send(&c, head, sizeof head - 1));
    for (int sent = 0; !client_readable(&c, 50); sent++) {
        assert_true(sent < 999); /* by then it would be whole */
        (void)client_send(&c, " ", 1);
    }
    response r = client_response(&c);
    assert_int_equal(r.status, 408);
    char rest;
    assert_int_equal(client_read(&c, &rest, 1), 0);
    response_free(&r);
    client_close(&c);
}

static void test_paths_and_methods(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *method;
        const char *path;
        int status;
    } cases[] = {
        {"GET", "/", 404},           {"GET", "/s3cret/pods", 405},    {"GET", "/metrics", 404},
        {"POST", "/v1/ingest", 405}, {"DELETE", "/s3cret/pods", 405}, {"GET", "/v1/ingest", 426},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client c = open_tls(f);
        response r = client_request(&c, cases[i].method, cases[i].path, "", NULL, 0);
        assert_int_equal(r.status, cases[i].status);
        /* Without a length libwebsockets cannot tell a body's end: such a connection ends. */
        bool ends = strcmp(cases[i].method, "GET") != 0;
        assert_int_equal(strcasestr(r.head, "Connection: close\r\n") != NULL, ends);
        response_free(&r);
        r = client_request(&c, "GET", "/", "", NULL, 0);
        assert_int_equal(r.status, ends ? 0 : 404);
        response_free(&r);
        client_close(&c);
    }
}

/* ---- the upgrade -------------------------------------------------------------------------------
 */

static void assert_upgrade(fixture *f, const char *token, int status, const char *header)
{
    client c = open_tls(f);
    response r = {0};
    int got = ws_upgrade(&c, token, &r);
    if (got != status)
        fail_msg("%s gave %d, not %d", token ? token : "no token", got, status);
    if (header)
        assert_non_null(strcasestr(r.head, header));
    response_free(&r);
    client_close(&c);
}

static void test_upgrade_statuses(void **state)
{
    fixture *f = *state;
    assert_upgrade(f, NULL, 401, "WWW-Authenticate: Bearer\r\n");
    assert_upgrade(f, "bad", 401, "WWW-Authenticate: Bearer\r\n");
    assert_upgrade(f, "nopod", 403, NULL);
    assert_upgrade(f, "away", 503, "Retry-After: 2\r\n");
    assert_upgrade(f, "mute", 503, "Retry-After: 2\r\n");
    assert_upgrade(f, "no such scheme", 401, NULL);
    assert_upgrade(f, "good", 503, "Retry-After: 0\r\n");
    assert_upgrade(f, "good", 101, "Sec-WebSocket-Protocol: precisionprobe.v1\r\n");
    assert_upgrade(f, "late", 503, "Retry-After: 0\r\n");
    assert_upgrade(f, "late", 101, NULL);
    assert_true(fixture_wait(&f->connected, 2));
    assert_string_equal(f->last_identity.pod, "late");
    f->closed = true;
    assert_upgrade(f, "good", 503, "Retry-After: 2\r\n");
    assert_true(fixture_wait(&f->disconnected, 2));
}

static void test_upgrade_on_one_connection(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    assert_int_equal(ws_upgrade(&c, "bad", NULL), 401);
    assert_int_equal(ws_upgrade(&c, "good", NULL), 503);
    assert_int_equal(ws_upgrade(&c, "good", NULL), 101);
    char text[256];
    assert_int_equal(ws_read(&c, text, sizeof text, NULL, false), 1);
    assert_string_equal(text, "{\"type\":\"welcome\",\"session\":\"s-1\",\"sampling\":true}");
    client_close(&c);
}

static void test_upgrade_verdicts_are_kept(void **state)
{
    fixture *f = *state;
    client waiting[5];
    static const char request[] =
        "GET /v1/ingest HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Protocol: precisionprobe.v1\r\nAuthorization: Bearer late-5\r\n\r\n";
    for (int i = 0; i < 5; i++) {
        waiting[i] = open_tls(f);
        assert_true(client_send(&waiting[i], request, sizeof request - 1));
    }
    client_close(&waiting[0]); /* who asked first need not stay */
    for (int i = 1; i < 5; i++) {
        response r = client_response(&waiting[i]);
        if (r.status != 101) { /* it may also have come when all was known */
            assert_int_equal(r.status, 503);
            assert_non_null(strstr(r.head, "Retry-After: 0\r\n"));
        }
        response_free(&r);
        client_close(&waiting[i]);
    }
    assert_int_equal(f->authorized, 1);
    for (int i = 0; i < 3; i++)
        assert_upgrade(f, "bad-1", 401, NULL);
    assert_int_equal(f->authorized, 2);
    for (int i = 0; i < 3; i++) /* "not now" is not kept */
        assert_upgrade(f, "away-1", 503, NULL);
    assert_int_equal(f->authorized, 5);
}

static client open_from(fixture *f, const char *address)
{
    client c;
    assert_true(client_open_from(&c, address, f->port, f->ca));
    return c;
}

/** Bad tokens by the dozen are asked about until the address has had its part; others are heard,
 * and what is known of theirs stays. */
static void test_bad_tokens_keep_nobody_out(void **state)
{
    fixture *f = *state;
    assert_upgrade(f, "good", 503, "Retry-After: 0\r\n");
    client c = open_from(f, "127.0.0.9");
    for (int i = 0; i < 2 * PP_HTTP_MAX_REFUSED; i++) {
        char token[32];
        (void)snprintf(token, sizeof token, "bad-%d", i);
        assert_int_equal(ws_upgrade(&c, token, NULL), i < PP_HTTP_MAX_REFUSED ? 401 : 503);
    }
    assert_int_equal(f->authorized, 1 + PP_HTTP_MAX_REFUSED);
    assert_int_equal(ws_upgrade(&c, "bad-0", NULL), 401); /* known: nobody is asked again */
    assert_int_equal(f->authorized, 1 + PP_HTTP_MAX_REFUSED);
    assert_upgrade(f, "good", 101, NULL);
    assert_upgrade(f, "good-2", 503, "Retry-After: 0\r\n");
    assert_int_equal(f->authorized, 2 + PP_HTTP_MAX_REFUSED);
    client_close(&c);
    assert_true(fixture_wait(&f->disconnected, 1));
}

/** Asks for an upgrade with a token that nobody says anything of. */
static void ask_in_vain(client *c, int number)
{
    char request[512];
    int n = snprintf(request, sizeof request,
                     "GET /v1/ingest HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                     "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                     "Sec-WebSocket-Protocol: precisionprobe.v1\r\n"
                     "Authorization: Bearer mute-%d\r\n\r\n",
                     number);
    assert_true(client_send(c, request, (size_t)n));
}

/** Questions that hang take an address' own places alone. */
static void test_questions_that_hang_keep_nobody_out(void **state)
{
    fixture *f = *state;
    enum { COUNT = 40 };
    client waiting[COUNT];
    for (int i = 0; i < COUNT; i++) {
        waiting[i] = open_from(f, "127.0.0.9");
        ask_in_vain(&waiting[i], i);
        if (i < PP_HTTP_MAX_ASKED_EACH) {
            assert_true(fixture_wait(&f->authorized, i + 1));
            continue;
        }
        response r = client_response(&waiting[i]);
        assert_int_equal(r.status, 503);
        response_free(&r);
    }
    assert_int_equal(f->authorized, PP_HTTP_MAX_ASKED_EACH);
    assert_upgrade(f, "good", 503, "Retry-After: 0\r\n");
    assert_upgrade(f, "good", 101, NULL);
    for (int i = 0; i < COUNT; i++)
        client_close(&waiting[i]);
    assert_true(fixture_wait(&f->disconnected, 1));
}

static void test_upgrade_requests_that_are_wrong(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         400},
        {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: other\r\n",
         400},
        {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
         "Sec-WebSocket-Protocol: precisionprobe.v1\r\n",
         400},
        {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Protocol: precisionprobe.v1\r\n",
         400},
        {"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
         "Sec-WebSocket-Protocol: precisionprobe.v1\r\n",
         400},
        {"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client c = open_tls(f);
        response r = client_request(&c, "GET", "/v1/ingest", cases[i].headers, NULL, 0);
        if (r.status != cases[i].status)
            fail_msg("case %zu gave %d", i, r.status);
        response_free(&r);
        client_close(&c);
    }
    /* Elsewhere an upgrade is an ordinary request. */
    client c = open_tls(f);
    response r = client_request(&c, "GET", "/else", cases[0].headers, NULL, 0);
    assert_int_equal(r.status, 404);
    response_free(&r);
    client_close(&c);
    assert_int_equal(f->authorized, 0);
}

/* ---- batches -----------------------------------------------------------------------------------
 */

static char *batch_text(const char *session, int seq, int duration)
{
    char *text = NULL;
    assert_true(
        asprintf(&text,
                 "{\"type\":\"batch\",\"session\":\"%s\",\"instance\":\"i-1\",\"seq\":%d,"
                 "\"process\":{\"id\":0,\"rank\":0,\"worldSize\":1,\"gpus\":[],\"hostname\":\"h\","
                 "\"clock\":\"host\"},\"stretch\":{\"id\":1,\"start\":1769000000000000000,"
                 "\"end\":1769000004000000000,\"last\":false},"
                 "\"layers\":[{\"id\":1,\"name\":\"a\",\"type\":\"Linear\"}],"
                 "\"steps\":{\"number\":[],\"start\":[],\"duration\":[],\"epoch\":[],\"batch\":[]},"
                 "\"intervals\":{\"layer\":[1],\"phase\":[0],\"step\":[4],"
                 "\"start\":[1769000000000000000],\"duration\":[%d]}}",
                 session, seq, duration) > 0);
    return text;
}

static void send_batch(client *c, const char *session, int seq, int duration)
{
    PP_CLEANUP_FREE char *text = batch_text(session, seq, duration);
    assert_true(ws_send_text(c, text));
}

/** An agent's connection, its welcome read. */
static client connect_agent(fixture *f, const char *token)
{
    client c;
    char text[256];
    assert_int_equal(ws_connect(&c, f->port, f->ca, token), 101);
    assert_int_equal(ws_read(&c, text, sizeof text, NULL, false), 1);
    return c;
}

static client connect_numbered(fixture *f, int number)
{
    char token[32];
    (void)snprintf(token, sizeof token, "good-%d", number);
    return connect_agent(f, token);
}

static void assert_text(client *c, const char *expected)
{
    char text[1024] = "";
    assert_int_equal(ws_read(c, text, sizeof text, NULL, false), 1);
    assert_string_equal(text, expected);
}

static void assert_closed(client *c, int code)
{
    char text[1024];
    int got = 0;
    assert_int_equal(ws_read(c, text, sizeof text, &got, false), 8);
    assert_int_equal(got, code);
    client_close(c);
}

static void test_batches_and_bye(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    send_batch(&c, "s-1", 1, 510);
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    assert_int_equal(f->last_duration, 510);
    send_batch(&c, "s-1", 2, 520);
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":2}");
    assert_int_equal(f->last_duration, 520);
    assert_true(ws_send_text(&c, "{\"type\":\"bye\",\"session\":\"s-1\",\"instance\":\"i-1\","
                                 "\"reason\":\"trainer finished\"}"));
    assert_closed(&c, 1000);
    assert_int_equal(f->byes, 1);
}

/* What time is it there? Questions and answers go to and fro; what is no answer is malformed. */
static void test_times(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good-time");
    char text[256];
    for (int id = 1; id <= 3; id++) {
        assert_true(snprintf(text, sizeof text,
                             "{\"type\":\"time\",\"id\":%d,\"realtime\":17690000000000000%02d,"
                             "\"monotonic\":12345678901}",
                             id, id) > 0);
        assert_true(ws_send_text(&c, text));
        if (id < 3) {
            assert_true(snprintf(text, sizeof text, "{\"type\":\"time\",\"id\":%d}", id + 1) > 0);
            assert_text(&c, text);
        }
    }
    assert_true(fixture_wait(&f->times, 3));
    assert_true(f->last_time.id == 3 && f->last_time.realtime == 1769000000000000003 &&
                f->last_time.monotonic == 12345678901);
    assert_true(ws_send_text(&c, "{\"type\":\"time\",\"id\":4}"));
    assert_text(&c, "{\"type\":\"refused\",\"seq\":-1,\"code\":\"invalid\",\"field\":\"realtime\","
                    "\"message\":\"is required\"}");
    assert_int_equal(f->times, 3);
    client_close(&c);
}

/* What an agent sees of its pod's hook; what is none is malformed. */
static void test_hook_is_told(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good-hook");
    assert_true(
        ws_send_text(&c, "{\"type\":\"hook\",\"loaded\":true,\"torch\":false,\"libc\":\"musl\"}"));
    assert_true(fixture_wait(&f->hooks, 1));
    assert_true(f->last_hook.loaded && !f->last_hook.torch);
    assert_string_equal(f->last_hook.libc, "musl");
    assert_true(ws_send_text(&c, "{\"type\":\"hook\",\"torch\":false}"));
    assert_text(&c, "{\"type\":\"refused\",\"seq\":-1,\"code\":\"invalid\",\"field\":\"loaded\","
                    "\"message\":\"is required\"}");
    assert_int_equal(f->hooks, 1);
    client_close(&c);
}

static void test_a_message_in_pieces(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    PP_CLEANUP_FREE char *text = batch_text("s-1", 5, 9);
    size_t n = strlen(text);
    assert_true(ws_send(&c, 1, false, text, 10));
    assert_true(ws_send(&c, 9, true, "ping", 4)); /* in between, as allowed */
    assert_true(ws_send(&c, 0, false, text + 10, 20));
    assert_true(ws_send(&c, 0, true, text + 30, n - 30));
    char got[256];
    assert_int_equal(ws_read(&c, got, sizeof got, NULL, true), 10);
    assert_string_equal(got, "ping");
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":5}");
    client_close(&c);
}

static void test_bad_batches_are_refused(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    for (int seq = 1; seq <= 5; seq++) { /* refused batches are not malformed messages */
        char expected[256];
        send_batch(&c, "s-1", seq, -1);
        (void)snprintf(expected, sizeof expected,
                       "{\"type\":\"refused\",\"seq\":%d,\"code\":\"invalid\","
                       "\"field\":\"intervals.duration[0]\","
                       "\"message\":\"is -1, must be 0 to 86400000000000\"}",
                       seq);
        assert_text(&c, expected);
    }
    send_batch(&c, "foreign", 9, 1);
    assert_text(&c, "{\"type\":\"refused\",\"seq\":9,\"code\":\"denied\",\"field\":\"session\","
                    "\"message\":\"has not injected this pod\"}");
    send_batch(&c, "s-1", 10, 1);
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":10}");
    client_close(&c);
}

static void test_malformed_messages(void **state)
{
    fixture *f = *state;
    static const char *const texts[] = {"{\"type\":", "{\"type\":\"ack\",\"seq\":1}", "[]"};
    client c = connect_agent(f, "good");
    for (int i = 0; i < 3; i++) {
        char got[1024] = "";
        assert_true(ws_send_text(&c, texts[i]));
        assert_int_equal(ws_read(&c, got, sizeof got, NULL, false), 1);
        assert_non_null(strstr(got, "{\"type\":\"refused\",\"seq\":-1,\"code\":\"invalid\""));
    }
    assert_closed(&c, 1008);
    assert_int_equal(f->batches, 0);
}

static void test_messages_too_large_or_binary(void **state)
{
    fixture *f = *state;
    size_t n = PP_WIRE_MAX_MESSAGE + 1;
    PP_CLEANUP_FREE char *large = malloc(n);
    (void)memset(large, ' ', n);
    client c = connect_agent(f, "good");
    assert_true(ws_send(&c, 1, true, large, n));
    assert_closed(&c, 1009);
    c = connect_agent(f, "good");
    assert_true(ws_send(&c, 2, true, "{}", 2));
    assert_closed(&c, 1003);
    /* Just below the limit is a message like any other. */
    PP_CLEANUP_FREE char *text = batch_text("s-1", 1, 1);
    (void)memcpy(large, text, strlen(text));
    c = connect_agent(f, "good");
    assert_true(ws_send(&c, 1, true, large, n - 1));
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    client_close(&c);
}

static void test_too_many_in_flight(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    for (int i = 0; i < PP_WIRE_MAX_IN_FLIGHT; i++)
        send_batch(&c, "held", i, 1);
    assert_true(fixture_wait(&f->batches, PP_WIRE_MAX_IN_FLIGHT));
    fixture_release(f);
    for (int i = 0; i < PP_WIRE_MAX_IN_FLIGHT; i++) {
        char got[256];
        assert_int_equal(ws_read(&c, got, sizeof got, NULL, false), 1);
    }
    for (int i = 0; i <= PP_WIRE_MAX_IN_FLIGHT; i++)
        send_batch(&c, "held", i, 1);
    assert_closed(&c, 1008);
    fixture_release(f); /* to nobody: ignored */
}

static void nothing(fixture *f, void *argument)
{
    (void)f;
    (void)argument;
}

/** Turns of the loop in which it would have read whatever there is to read. */
static void let_it_read(fixture *f)
{
    for (int turn = 0; turn < 10; turn++)
        fixture_run(f, nothing, NULL);
}

static void assert_served(client *c)
{
    send_batch(c, "s-1", 1, 1);
    assert_text(c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
}

/** With max_batches (100) waiting nobody is read; after enough answers, everybody is again. */
static void test_reading_stops_while_batches_wait(void **state)
{
    fixture *f = *state;
    enum { PODS = 50 };
    client many[PODS];
    for (int i = 0; i < PODS; i++) {
        many[i] = connect_numbered(f, i);
        send_batch(&many[i], "held", 1, 1);
    }
    assert_true(fixture_wait(&f->batches, PODS));
    for (int i = 0; i < PODS; i++)
        send_batch(&many[i], "held", 2, 1);
    assert_true(fixture_wait(&f->batches, 99)); /* the last place is for one that has none */
    client last = connect_agent(f, "good-last");
    client late = connect_agent(f, "good-late");
    send_batch(&last, "held", 1, 1);
    assert_true(fixture_wait(&f->batches, 100));
    send_batch(&late, "s-1", 1, 1);
    let_it_read(f);
    assert_int_equal(f->batches, 100);
    fixture_release(f);
    assert_text(&late, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    assert_true(fixture_wait(&f->batches, 102));
    fixture_release(f);
    for (int i = 0; i < PODS; i++)
        client_close(&many[i]);
    client_close(&last);
    client_close(&late);
}

static void hold(fixture *f, void *held)
{
    pp_http_ingest_hold(f->server, *(const bool *)held);
}

/** Who is not read hears all the same that we are there: its own pings wait unread. */
static void test_a_paused_peer_gets_pongs(void **state)
{
    enum { FRAMES = 20, PONG = 10 };
    fixture *f = *state;
    client c = connect_agent(f, "good");
    char got[256];
    bool held = true;
    int opcode = 0;
    fixture_run(f, hold, &held);
    for (int i = 0; i < FRAMES && opcode != PONG; i++)
        opcode = ws_read(&c, got, sizeof got, NULL, true);
    assert_int_equal(opcode, PONG);
    client_close(&c);
}

/** Connections stay, new ones too; what was sent meanwhile is taken afterwards. */
static void test_nothing_is_read_while_held(void **state)
{
    fixture *f = *state;
    client before = connect_agent(f, "good-a");
    bool held = true;
    fixture_run(f, hold, &held);
    client meanwhile = connect_agent(f, "good-b");
    send_batch(&before, "s-1", 1, 1);
    send_batch(&meanwhile, "s-1", 1, 1);
    let_it_read(f);
    assert_int_equal(f->batches, 0);
    held = false;
    fixture_run(f, hold, &held);
    assert_text(&before, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    assert_text(&meanwhile, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    client_close(&before);
    client_close(&meanwhile);
}

/** Whether what the pod sends is read; a connection of it is opened for that. */
static bool is_read(fixture *f, const char *token)
{
    client c = connect_agent(f, token);
    const int before = f->batches;
    send_batch(&c, "s-1", 9, 1);
    let_it_read(f);
    bool read = f->batches > before;
    client_close(&c);
    return read;
}

/** One pod gets half of the places, over however many connections; others are read meanwhile. */
static void test_a_pod_that_hoards_leaves_room(void **state)
{
    fixture *f = *state;
    client hoards[2] = {connect_agent(f, "good-a"), connect_agent(f, "good-a")};
    client other = connect_agent(f, "good-b");
    for (int i = 0; i < 30; i++) {
        send_batch(&hoards[0], "held", i, 1);
        send_batch(&hoards[1], "held", i, 1);
    }
    assert_true(fixture_wait(&f->batches, 50));
    let_it_read(f);
    assert_int_equal(f->batches, 50);
    assert_served(&other);
    fixture_release(f);
    assert_true(fixture_wait(&f->batches, 61));
    fixture_release(f);
    for (int i = 0; i < 2; i++)
        client_close(&hoards[i]);
    client_close(&other);
}

/** What a pod has left unanswered stays its own when it comes again. */
static void test_a_pod_that_comes_again_leaves_room(void **state)
{
    fixture *f = *state;
    client other = connect_agent(f, "good-b");
    client hoards[2];
    for (int n = 0; n < 2; n++) {
        hoards[n] = connect_agent(f, "good-a");
        for (int i = 0; i < 30; i++)
            send_batch(&hoards[n], "held", i, 1);
        if (n > 0)
            break;
        assert_true(fixture_wait(&f->batches, 30));
        client_close(&hoards[n]);
        assert_true(fixture_wait(&f->disconnected, 1));
    }
    assert_true(fixture_wait(&f->batches, 50));
    let_it_read(f);
    assert_int_equal(f->batches, 50);
    assert_served(&other);
    fixture_release(f);
    assert_true(fixture_wait(&f->batches, 61));
    fixture_release(f);
    assert_true(is_read(f, "good-a")); /* none is left */
    client_close(&hoards[1]);
    client_close(&other);
}

/** The same by bytes: 16 KiB hold few batches, whoever sent them and whatever they are. */
static void test_a_pod_that_hoards_bytes_leaves_room(void **state)
{
    fixture *f = *state;
    enum { COUNT = 60 };
    client hoards = connect_agent(f, "good-a");
    client other = connect_agent(f, "good-b");
    for (int i = 0; i < COUNT; i++)
        send_batch(&hoards, "held", i, 1);
    assert_true(fixture_wait(&f->batches, 2));
    let_it_read(f);
    const int taken = f->batches;
    assert_true(taken < COUNT);
    assert_served(&other); /* what was on its way by then may have come, too */
    assert_true(f->batches > taken && f->batches < COUNT);
    for (int answered = f->batches - 1; answered < COUNT;) {
        fixture_release(f);
        assert_true(fixture_wait(&f->batches, answered + 2));
        answered = f->batches - 1;
    }
    fixture_release(f);
    client_close(&hoards);
    client_close(&other);
}

static void send_padded(client *c, const char *session, int seq)
{
    size_t n = PP_WIRE_MAX_MESSAGE;
    PP_CLEANUP_FREE char *text = batch_text(session, seq, 1);
    PP_CLEANUP_FREE char *padded = malloc(n);
    (void)memset(padded, ' ', n);
    (void)memcpy(padded, text, strlen(text));
    assert_true(ws_send(c, 1, true, padded, n));
}

/** Large messages are decoded elsewhere; what is small comes after those sent before it all the
 * same. */
static void test_large_messages_keep_their_order(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    for (int round = 0; round < 10; round++) {
        send_padded(&c, "s-1", 1);
        send_batch(&c, "s-1", 2, 1);
        send_batch(&c, "s-1", 3, 1);
        for (int seq = 1; seq <= 3; seq++) {
            char expected[80];
            (void)snprintf(expected, sizeof expected,
                           "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":%d}", seq);
            assert_text(&c, expected);
        }
    }
    client_close(&c);
}

/** What is wrong with a large one is said as with a small one. */
static void test_a_large_message_may_be_wrong(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    char got[1024] = "";
    PP_CLEANUP_FREE char *large = malloc(100000);
    (void)memset(large, ' ', 100000);
    (void)memcpy(large, "{\"type\":", 8);
    assert_true(ws_send(&c, 1, true, large, 100000));
    assert_int_equal(ws_read(&c, got, sizeof got, NULL, false), 1);
    assert_non_null(strstr(got, "{\"type\":\"refused\",\"seq\":-1,\"code\":\"invalid\""));
    PP_CLEANUP_FREE char *text = batch_text("s-1", 7, 1);
    const size_t n = strlen(text) - 1; /* without its last brace: a field that cannot be follows */
    (void)memset(large, ' ', 100000);
    (void)memcpy(large, text, n);
    (void)memcpy(large + n, ",\"dropped\":-1}", 14);
    assert_true(ws_send(&c, 1, true, large, 100000));
    assert_int_equal(ws_read(&c, got, sizeof got, NULL, false), 1);
    assert_non_null(strstr(got, "\"seq\":7,\"code\":\"invalid\",\"field\":\"dropped\""));
    assert_served(&c);
    client_close(&c);
}

/** Its messages are for nobody then; the next connection brings them again. */
static void test_a_connection_goes_while_it_is_decoded(void **state)
{
    fixture *f = *state;
    for (int round = 1; round <= 5; round++) {
        client c = connect_agent(f, "good-a");
        send_padded(&c, "s-1", 1);
        send_batch(&c, "s-1", 2, 1);
        client_close(&c);
        assert_true(fixture_wait(&f->disconnected, round));
    }
    client other = connect_agent(f, "good-b");
    assert_served(&other);
    client_close(&other);
}

static void test_the_server_stops_while_it_decodes(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    for (int i = 0; i < 3; i++)
        send_padded(&c, "s-1", i);
    client_close(&c); /* and the fixture ends */
}

/** A pod that sends more than its rate is not read for a while; others are. */
static void test_a_pod_that_sends_too_much_rests(void **state)
{
    fixture *f = *state;
    client busy[2] = {connect_agent(f, "good-a"), connect_agent(f, "good-a")};
    client other = connect_agent(f, "good-b");
    send_padded(&busy[0], "s-1", 1);
    assert_text(&busy[0], "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    send_batch(&busy[0], "s-1", 2, 1);
    send_batch(&busy[1], "s-1", 3, 1);
    let_it_read(f);
    assert_served(&other);
    assert_int_equal(f->batches, 2);
    for (int i = 0; i < 2; i++)
        client_close(&busy[i]);
    client_close(&other);
}

/** It rests as long where it comes by another connection. */
static void test_a_pod_rests_whoever_it_comes_as(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good-a");
    send_padded(&c, "s-1", 1);
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    client_close(&c);
    assert_true(fixture_wait(&f->disconnected, 1));
    assert_false(is_read(f, "good-a"));
    assert_true(is_read(f, "good-b"));
}

/** What comes by a connection that is closing is paid for, too, and soon nothing comes any more. */
static void test_a_closing_connection_is_paid_for(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good-a");
    for (int i = 0; i < PP_WIRE_MAX_MALFORMED; i++)
        assert_true(ws_send_text(&c, "[]"));
    for (bool sent = true; sent;)
        sent = ws_send_text(&c, "[                                                             ]");
    client_close(&c);
    assert_true(fixture_wait(&f->disconnected, 1));
    assert_false(is_read(f, "good-a"));
    assert_true(is_read(f, "good-b"));
}

/** Pings, which nobody asked for, are paid for like messages. */
static void test_pings_are_paid_for(void **state)
{
    fixture *f = *state;
    enum { MANY = 400000 };
    static const char bytes[100];
    const struct timeval patience = {.tv_sec = 2};
    client c = connect_agent(f, "good-a");
    (void)setsockopt(c.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int sent = 0;
    while (sent < MANY && ws_send(&c, 9, true, bytes, sizeof bytes))
        sent++;
    assert_true(sent < MANY);
    assert_false(is_read(f, "good-a"));
    assert_true(is_read(f, "good-b"));
    client_close(&c);
}

static void test_a_pod_that_rested_is_read_again(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good-a");
    for (int i = 1; i <= 5; i++)
        send_padded(&c, "s-1", i);
    send_batch(&c, "s-1", 6, 1);
    for (int i = 1; i <= 6; i++) {
        char got[256];
        assert_int_equal(ws_read(&c, got, sizeof got, NULL, false), 1);
    }
    client_close(&c);
}

/** What takes a hundred times its bytes once it is parsed is not parsed. */
static void test_messages_of_many_containers(void **state)
{
    fixture *f = *state;
    static const char *const items[] = {"{},", "[],"};
    for (size_t i = 0; i < 2; i++) {
        pp_buf text;
        char got[512];
        pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
        assert_int_equal(pp_buf_printf(&text, NULL, "{\"type\":\"batch\",\"x\":["), 0);
        for (int n = 0; n < PP_WIRE_MAX_CONTAINERS; n++)
            assert_int_equal(pp_buf_append(&text, items[i], 3, NULL), 0);
        assert_int_equal(pp_buf_append(&text, "0]}", 4, NULL), 0);
        client c = connect_agent(f, "good");
        assert_true(ws_send_text(&c, text.data));
        assert_int_equal(ws_read(&c, got, sizeof got, NULL, false), 1);
        assert_non_null(strstr(got, "\"code\":\"too-large\""));
        assert_served(&c);
        client_close(&c);
        pp_buf_done(&text);
    }
}

static void test_connections_are_limited(void **state)
{
    fixture *f = *state;
    client agents[60];
    for (int i = 0; i < 60; i++)
        agents[i] = connect_numbered(f, i);
    assert_upgrade(f, "good", 503, "Retry-After: 0\r\n"); /* it is good, and in vain */
    assert_upgrade(f, "good", 503, "Retry-After: 2\r\n");
    client_close(&agents[0]);
    assert_true(fixture_wait(&f->disconnected, 1));
    agents[0] = connect_agent(f, "good");
    for (int i = 0; i < 60; i++)
        client_close(&agents[i]);
}

/** Where there are too many, one goes for another where the handler says so, and once. */
static void test_a_place_is_another_s(void **state)
{
    fixture *f = *state;
    client agents[60];
    for (int i = 0; i < 60; i++)
        agents[i] = connect_numbered(f, i);
    f->displace = true;
    client c = connect_agent(f, "good");
    assert_closed(&agents[0], 1013);
    assert_true(fixture_wait(&f->disconnected, 1));
    assert_served(&agents[1]);
    assert_served(&c);
    assert_upgrade(f, "good-more", 503, "Retry-After: 0\r\n");
    assert_upgrade(f, "good-more", 503, "Retry-After: 2\r\n");
    for (int i = 1; i < 60; i++)
        client_close(&agents[i]);
    client_close(&c);
}

static void test_connections_of_one_pod_are_limited(void **state)
{
    fixture *f = *state;
    client other = connect_agent(f, "good-other");
    client agents[PP_HTTP_MAX_POD_CONNECTIONS + 1];
    char text[256];
    for (int i = 0; i <= PP_HTTP_MAX_POD_CONNECTIONS; i++)
        agents[i] = connect_agent(f, "good");
    assert_int_equal(ws_read(&agents[0], text, sizeof text, NULL, false), -1);
    for (int i = 1; i <= PP_HTTP_MAX_POD_CONNECTIONS; i++) {
        send_batch(&agents[i], "s-1", i, 1);
        assert_int_equal(ws_read(&agents[i], text, sizeof text, NULL, false), 1);
    }
    send_batch(&other, "s-1", 1, 1);
    assert_text(&other, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    for (int i = 0; i <= PP_HTTP_MAX_POD_CONNECTIONS; i++)
        client_close(&agents[i]);
    client_close(&other);
}

/** Part of a message of many bytes, and no end. */
static client leave_unfinished(fixture *f, int pod, const char *bytes)
{
    client c = connect_numbered(f, pod);
    assert_true(ws_send(&c, 1, false, bytes, PP_WIRE_MAX_MESSAGE - 4096));
    return c;
}

/** A pod that leaves messages unfinished harms itself; together they harm those that hold most. */
static void test_unfinished_messages_leave_room(void **state)
{
    fixture *f = *state;
    enum { PODS = 33, EACH = 2, COUNT = PODS * EACH };
    PP_CLEANUP_FREE char *bytes = malloc(PP_WIRE_MAX_MESSAGE);
    (void)memset(bytes, ' ', PP_WIRE_MAX_MESSAGE);
    client alone[3];
    for (int i = 0; i < 3; i++)
        alone[i] = leave_unfinished(f, 1000, bytes);
    assert_closed(&alone[0], 1013);
    client_close(&alone[1]);
    client_close(&alone[2]);
    assert_true(fixture_wait(&f->disconnected, 3));
    client many[COUNT];
    for (int i = 0; i < COUNT; i++)
        many[i] = leave_unfinished(f, i / EACH, bytes);
    client c = connect_agent(f, "good");
    assert_true(ws_send(&c, 1, false, bytes, PP_WIRE_MAX_MESSAGE / 2));
    PP_CLEANUP_FREE char *text = batch_text("s-1", 1, 1);
    assert_true(ws_send(&c, 0, true, text, strlen(text)));
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    client_close(&c);
    for (int i = 0; i < COUNT; i++)
        client_close(&many[i]);
}

static void test_a_message_has_a_deadline(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    char text[256];
    int code = 0;
    int opcode = 9; /* a ping */
    assert_true(ws_send(&c, 1, false, "  ", 2));
    for (int more = 0; opcode == 9; more++) {
        assert_true(more < 2000); /* pieces do not put it off */
        (void)ws_send(&c, 0, false, "  ", 2);
        if (client_readable(&c, 50))
            opcode = ws_read(&c, text, sizeof text, &code, true);
    }
    assert_int_equal(opcode, 8);
    assert_int_equal(code, 1008);
    client_close(&c);
}

static void test_silent_peers_are_pinged_then_dropped(void **state)
{
    fixture *f = *state;
    client lively = connect_agent(f, "good");
    client silent = connect_agent(f, "good");
    char text[256];
    assert_int_equal(ws_read(&silent, text, sizeof text, NULL, true), 9);
    for (int i = 0; i < 4; i++) { /* answers pings, and so stays */
        assert_int_equal(ws_read(&lively, text, sizeof text, NULL, true), 9);
        assert_true(ws_send(&lively, 10, true, text, strlen(text)));
    }
    assert_int_equal(ws_read(&silent, text, sizeof text, NULL, true), -1);
    assert_true(fixture_wait(&f->disconnected, 1));
    send_batch(&lively, "s-1", 3, 1);
    assert_text(&lively, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":3}");
    client_close(&lively);
    client_close(&silent);
}

static void test_who_is_not_read_is_not_dropped(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    send_batch(&c, "held", 1, 1);
    assert_true(fixture_wait(&f->batches, 1));
    send_batch(&c, "held", 2, 1);
    sleep(5); /* pings come, and their answers could not be read */
    assert_int_equal(f->disconnected, 0);
    fixture_release(f);
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    client_close(&c);
}

/** Nor one that sends, and whose answers to pings may wait behind that. */
static void test_who_sends_is_not_dropped(void **state)
{
    fixture *f = *state;
    client c = connect_agent(f, "good");
    for (int i = 0; i < 20; i++) {
        char text[256];
        send_batch(&c, "s-1", i, 1);
        (void)poll(NULL, 0, 250);
        while (ws_read(&c, text, sizeof text, NULL, true) == 9)
            ; /* which is not answered */
    }
    assert_int_equal(f->disconnected, 0);
    client_close(&c);
}

/* ---- who may ask for reviews -----------------------------------------------------------------
 */

typedef struct setting {
    const char *text;
    int rc;
    pp_error err;
} setting;

static void set_secret(fixture *f, void *argument)
{
    setting *s = argument;
    s->rc = pp_http_server_set_path_secret(f->server, s->text, &s->err);
}

static void set_client_ca(fixture *f, void *argument)
{
    setting *s = argument;
    s->rc = pp_http_server_set_client_ca(f->server, s->text, &s->err);
}

/** Whoever does not know the path is told so before any of a body is read. */
static void assert_path(fixture *f, const char *path, int status)
{
    char head[256];
    client c = open_tls(f);
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 2900000\r\n\r\n", path);
    assert_true(client_send(&c, head, (size_t)n));
    response r = client_response(&c);
    if (r.status != status)
        fail_msg("%s gave %d", path, r.status);
    assert_non_null(strcasestr(r.head, "Connection: close\r\n"));
    response_free(&r);
    client_close(&c);
}

static void assert_review(fixture *f, const char *path, int status)
{
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    client c = open_tls(f);
    response r = client_request(&c, "POST", path, "", text, strlen(text));
    if (r.status != status)
        fail_msg("%s gave %d", path, r.status);
    response_free(&r);
    client_close(&c);
}

static void test_reviews_have_a_path_of_their_own(void **state)
{
    fixture *f = *state;
    static const char *const wrong[] = {
        "/mutate-pods", "/s3creT/pods", "/s3cre/pods",    "/s3crett/pods",
        "/s3cret",      "/s3cret/",     "/s3cret/pod",    "/s3cret/pods/no",
        "//pods",       "/pods",        "/x/s3cret/pods",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_path(f, wrong[i], 404);
    assert_review(f, "/s3cret/sessions", 200);
    setting other = {.text = "another"};
    fixture_run(f, set_secret, &other);
    assert_int_equal(other.rc, 0);
    assert_path(f, "/s3cret/pods", 404);
    assert_review(f, "/another/pods", 200);
    setting slash = {.text = "a/b"};
    fixture_run(f, set_secret, &slash);
    assert_int_equal(slash.rc, -1);
    assert_review(f, "/another/pods", 200);
    setting none = {0};
    fixture_run(f, set_secret, &none);
    assert_path(f, "//pods", 404);
    assert_path(f, "/another/pods", 404);
    assert_int_equal(f->reviews, 3);
}

/** A key, and a certificate that it signed itself. */
static X509 *self_signed(EVP_PKEY **ret_key)
{
    X509 *certificate = X509_new();
    EVP_PKEY *key = *ret_key = EVP_EC_gen("P-256");
    X509_NAME *name = X509_get_subject_name(certificate);
    (void)X509_set_version(certificate, 2);
    (void)X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    (void)X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    (void)X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"api", -1, -1,
                                     0);
    (void)X509_set_issuer_name(certificate, name);
    (void)X509_set_pubkey(certificate, key);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    return certificate;
}

static char *pem_of(X509 *certificate)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL;
    assert_int_equal(PEM_write_bio_X509(bio, certificate), 1);
    long n = BIO_get_mem_data(bio, &text);
    char *copy = strndup(text, (size_t)n);
    BIO_free(bio);
    return copy;
}

/** Another replica brings a session's review, and nothing else, without a certificate. */
static void assert_replica(fixture *f)
{
    PP_CLEANUP_FREE char *pod = review_text("now", 0);
    static const char session[] =
        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":"
        "\"u\",\"namespace\":\"ml\",\"operation\":\"CREATE\",\"kind\":{\"kind\":\"ProfileSession\"}"
        ","
        "\"object\":{\"metadata\":{\"name\":\"s\"},\"spec\":{}}}}";
    const char *const texts[] = {pod, session};
    for (int i = 0; i < 2; i++) {
        client c = open_tls(f);
        response r = client_request(&c, "POST", "/s3cret/replica", "", texts[i], strlen(texts[i]));
        assert_int_equal(r.status, 200);
        assert_int_equal(f->reviews, i);
        response_free(&r);
        client_close(&c);
    }
}

/** Reviews may need a client certificate; nobody else does, and another's is as good as none. */
static void test_reviews_may_need_a_certificate(void **state)
{
    fixture *f = *state;
    EVP_PKEY *key = NULL;
    EVP_PKEY *foreign_key = NULL;
    X509 *certificate = self_signed(&key);
    X509 *foreign = self_signed(&foreign_key);
    PP_CLEANUP_FREE char *pem = pem_of(certificate);
    setting ask = {.text = pem};
    fixture_run(f, set_client_ca, &ask);
    assert_int_equal(ask.rc, 0);
    setting rubbish = {.text = "no PEM"};
    fixture_run(f, set_client_ca, &rubbish);
    assert_int_equal(rubbish.rc, -1);
    assert_path(f, "/s3cret/pods", 401);
    client agent_connection = connect_agent(f, "good");
    client_close(&agent_connection);
    client_present(foreign, foreign_key);
    assert_path(f, "/s3cret/pods", 401);
    assert_int_equal(f->reviews, 0);
    assert_replica(f);
    client_present(certificate, key);
    assert_review(f, "/s3cret/pods", 200);
    assert_review(f, "/s3cret/pods", 200);
    client_present(NULL, NULL);
    setting none = {0};
    fixture_run(f, set_client_ca, &none);
    assert_review(f, "/s3cret/pods", 200);
    X509_free(certificate);
    X509_free(foreign);
    EVP_PKEY_free(key);
    EVP_PKEY_free(foreign_key);
}

/* ---- places ---------------------------------------------------------------------------------
 */

/** The head of a review of many bytes, and most of them; the connection stays open. */
static client hold_review(fixture *f, const char *from, size_t length, size_t sent)
{
    client c;
    char head[160];
    PP_CLEANUP_FREE char *bytes = calloc(1, sent);
    assert_true(client_open_from(&c, from, f->port, f->ca));
    int n =
        snprintf(head, sizeof head,
                 "POST /s3cret/pods HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", length);
    assert_true(client_send(&c, head, (size_t)n));
    (void)client_send(&c, bytes, sent); /* the server need not read it */
    return c;
}

/** Bodies that are held use up the room for all, and no more; then reviews get 503 at once. */
static void test_bodies_are_bounded_in_all(void **state)
{
    fixture *f = *state;
    PP_CLEANUP_FREE char *small = review_text("now", 0);
    PP_CLEANUP_FREE char *large = review_text("now", 2000000);
    client first = hold_review(f, "127.0.0.1", 3000000, 2900000);
    client honest = open_tls(f);
    response r = post_review(&honest, small); /* of what room is left */
    assert_int_equal(r.status, 200);
    response_free(&r);
    for (int i = 0; i < 5; i++) {
        client more = hold_review(f, "127.0.0.1", 3000000, 100);
        r = client_response(&more);
        assert_int_equal(r.status, 503);
        assert_non_null(strcasestr(r.head, "Retry-After: 1\r\n"));
        assert_non_null(strcasestr(r.head, "Connection: close\r\n"));
        response_free(&r);
        client_close(&more);
    }
    client_close(&first);
    for (int i = 0; i < 5; i++) { /* each gives back its room */
        r = post_review(&honest, large);
        assert_int_equal(r.status, 200);
        response_free(&r);
    }
    client_close(&honest);
}

/** Connections that ask for nothing keep out neither others' nor, after a moment, their own. */
static void test_idle_connections_are_bounded(void **state)
{
    fixture *f = *state;
    client idle[8];
    client more;
    for (int i = 0; i < 8; i++)
        assert_true(client_open(&idle[i], f->port, NULL));
    assert_true(client_open(&more, f->port, NULL));
    assert_true(client_is_cut(&more));
    char byte; /* while those that came before it are still there */
    assert_int_equal(recv(idle[0].fd, &byte, 1, MSG_DONTWAIT), -1);
    client_close(&more);
    client other;
    assert_true(client_open_from(&other, "127.0.0.2", f->port, f->ca));
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    response r = post_review(&other, text);
    assert_int_equal(r.status, 200);
    response_free(&r);
    client_close(&other);
    const struct timespec grace = {.tv_sec = 1, .tv_nsec = 50 * MS};
    (void)nanosleep(&grace, NULL);
    client agents[3];
    for (int i = 0; i < 3; i++)
        agents[i] = connect_numbered(f, i);
    assert_true(client_is_cut(&idle[0]));
    for (int i = 0; i < 3; i++)
        client_close(&agents[i]);
    for (int i = 0; i < 8; i++)
        client_close(&idle[i]);
}

/** What proves something leaves its place to the next. */
static void test_agents_and_reviews_take_no_places(void **state)
{
    fixture *f = *state;
    client agents[20];
    client reviewers[20];
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    for (int i = 0; i < 20; i++) {
        agents[i] = connect_numbered(f, i);
        reviewers[i] = open_tls(f);
        response r = post_review(&reviewers[i], text);
        assert_int_equal(r.status, 200);
        response_free(&r);
    }
    for (int i = 0; i < 20; i++) {
        send_batch(&agents[i], "s-1", i, 1);
        char got[256];
        assert_int_equal(ws_read(&agents[i], got, sizeof got, NULL, false), 1);
        client_close(&agents[i]);
        client_close(&reviewers[i]);
    }
}

/** A metric of which a few answers are more than a socket holds. */
static void add_large_metric(fixture *f, void *argument)
{
    size_t n = 1000000;
    PP_CLEANUP_FREE char *help = malloc(n + 1);
    (void)argument;
    (void)memset(help, 'a', n);
    help[n] = '\0';
    assert_non_null(pp_metrics_counter(f->metrics, "large_total", help, NULL, NULL));
}

/** Answers that nobody reads keep no address out of the plain port. */
static void test_unread_answers_keep_nobody_out(void **state)
{
    fixture *f = *state;
    enum { TIMES = 4, TURNS = 50 };
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    client greedy[PP_HTTP_MAX_PLAIN];
    fixture_run(f, add_large_metric, NULL);
    for (int i = 0; i < PP_HTTP_MAX_PLAIN; i++) {
        const char *from = i % 2 ? "127.0.0.2" : "127.0.0.3";
        assert_true(client_open_from(&greedy[i], from, f->plain_port, NULL));
        for (int more = 0; more < TIMES; more++)
            assert_true(client_send(&greedy[i], request, sizeof request - 1));
    }
    for (int i = 0; i < TURNS; i++) /* until there is no room for more of an answer */
        let_it_read(f);
    client c;
    assert_true(client_open_from(&c, "127.0.0.4", f->plain_port, NULL));
    response r = client_request(&c, "GET", "/healthz", "", NULL, 0);
    assert_int_equal(r.status, 200);
    response_free(&r);
    client_close(&c);
    for (int i = 0; i < PP_HTTP_MAX_PLAIN; i++)
        client_close(&greedy[i]);
}

/** Nor do questions that have no answer yet keep any out of the other. */
static void test_waiting_for_us_keeps_nobody_out(void **state)
{
    fixture *f = *state;
    enum { COUNT = 12 };
    client greedy[COUNT];
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    for (int i = 0; i < COUNT; i++) {
        const char *from = i % 2 ? "127.0.0.2" : "127.0.0.3";
        greedy[i] = open_from(f, from);
        ask_in_vain(&greedy[i], i);
    }
    assert_true(fixture_wait(&f->authorized, COUNT));
    client c = open_from(f, "127.0.0.4");
    response r = post_review(&c, text);
    assert_int_equal(r.status, 200);
    response_free(&r);
    client_close(&c);
    for (int i = 0; i < COUNT; i++)
        client_close(&greedy[i]);
}

/** However a peer fails to ask for something, it has a second here (10 s outside of tests). */
static void test_a_request_has_a_deadline(void **state)
{
    fixture *f = *state;
    static const char head[] = "GET /v1/ingest HTTP/1.1\r\nHost: a\r\nX-Long: ";
    client silent;
    client plain;
    assert_true(client_open(&silent, f->port, NULL)); /* not even TLS */
    assert_true(client_open(&plain, f->plain_port, NULL));
    client shaken = open_tls(f);
    client dripping = open_tls(f);
    client answered = open_tls(f);
    response r = client_request(&answered, "GET", "/", "", NULL, 0);
    assert_int_equal(r.status, 404);
    response_free(&r);
    bool sent = client_send(&dripping, head, sizeof head - 1);
    for (int i = 0; i < 100 && sent; i++) {
        const struct timespec pause = {.tv_nsec = 50 * MS};
        (void)nanosleep(&pause, NULL);
        sent = client_send(&dripping, "x", 1);
    }
    assert_false(sent);
    assert_true(client_is_cut(&silent));
    assert_true(client_is_cut(&plain));
    assert_true(client_is_cut(&shaken));
    assert_true(client_is_cut(&answered));
    client_close(&silent);
    client_close(&plain);
    client_close(&shaken);
    client_close(&dripping);
    client_close(&answered);
}

/** A small generator of its own, so that a failure can be run again. */
static uint32_t draw(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/** Bytes that begin like a request, or like frames, and go astray; the server must outlive them. */
static void test_garbage(void **state)
{
    fixture *f = *state;
    static const char request[] =
        "POST /s3cret/pods HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        "Content-Length: 20\r\nAuthorization: Bearer x\r\n\r\n{\"apiVersion\":\"v1\"}";
    uint32_t seed = 20260118;
    for (int i = 0; i < 150; i++) {
        char text[sizeof request];
        client c;
        (void)memcpy(text, request, sizeof request);
        for (uint32_t n = draw(&seed) % 8; n; n--)
            text[draw(&seed) % (sizeof text - 1)] = (char)draw(&seed);
        assert_true(client_open(&c, i % 2 ? f->port : f->plain_port, i % 2 ? f->ca : NULL));
        (void)client_send(&c, text, draw(&seed) % sizeof text);
        client_close(&c);
    }
    for (int i = 0; i < 60; i++) {
        client c = connect_agent(f, "good");
        char frame[64];
        for (size_t n = 0; n < sizeof frame; n++)
            frame[n] = (char)draw(&seed);
        frame[0] = (char)(i % 3 ? frame[0] : (char)0x81);
        (void)client_send(&c, frame, sizeof frame);
        client_close(&c);
    }
    client c = connect_agent(f, "good");
    send_batch(&c, "s-1", 1, 1);
    assert_text(&c, "{\"type\":\"ack\",\"instance\":\"i-1\",\"seq\":1}");
    client_close(&c);
}

/* ---- many at once ------------------------------------------------------------------------------
 */

typedef struct agent {
    pthread_t thread;
    fixture *fixture;
    int number;
    int acknowledged;
} agent;

static void *run_agent(void *context)
{
    agent *a = context;
    char token[32];
    char text[256];
    client c;
    (void)snprintf(token, sizeof token, "%s-%d", a->number % 2 ? "good" : "late", a->number);
    if (ws_connect(&c, a->fixture->port, a->fixture->ca, token) != 101)
        return NULL;
    (void)ws_read(&c, text, sizeof text, NULL, false);
    for (int i = 0; i < 20; i++) {
        PP_CLEANUP_FREE char *batch = batch_text("s-1", i, 7);
        (void)ws_send_text(&c, batch);
    }
    while (a->acknowledged < 20 && ws_read(&c, text, sizeof text, NULL, false) == 1 &&
           strstr(text, "\"ack\""))
        a->acknowledged++;
    client_close(&c);
    return NULL;
}

static void test_fifty_agents(void **state)
{
    fixture *f = *state;
    static agent agents[50];
    for (int i = 0; i < 50; i++) {
        agents[i] = (agent){.fixture = f, .number = i};
        assert_int_equal(pthread_create(&agents[i].thread, NULL, run_agent, &agents[i]), 0);
    }
    for (int i = 0; i < 50; i++) {
        (void)pthread_join(agents[i].thread, NULL);
        assert_int_equal(agents[i].acknowledged, 20);
    }
    assert_int_equal(f->batches, 1000);
    assert_int_equal(f->authorized, 50);
}

/* ---- certificates ------------------------------------------------------------------------------
 */

typedef struct knocker {
    pthread_t thread;
    fixture *fixture;
    atomic_bool *over;
    atomic_int good;
    int failed;
} knocker;

static void *knock(void *context)
{
    knocker *k = context;
    while (!*k->over) {
        client c;
        response r = {0};
        if (client_open(&c, k->fixture->port, k->fixture->ca))
            r = client_request(&c, "GET", "/", "", NULL, 0);
        if (r.status == 404)
            k->good++;
        else
            k->failed++;
        response_free(&r);
        client_close(&c);
    }
    return NULL;
}

typedef struct reload {
    const char *certificate;
    const char *key;
    int rc;
    pp_error err;
} reload;

static void reload_task(fixture *f, void *argument)
{
    reload *r = argument;
    r->rc = pp_http_server_set_certificate(f->server, r->certificate, r->key, &r->err);
}

/** Another serving certificate of the same authority. */
static void reissue(fixture *f)
{
    bool changed = false;
    free(f->certificates.certificate);
    f->certificates.certificate = NULL;
    assert_int_equal(
        pp_certificates_renew(&f->certificates, &f->names, pp_time_now(), &changed, NULL), 0);
    assert_true(changed);
}

static void test_certificates_change_under_load(void **state)
{
    fixture *f = *state;
    knocker knockers[3];
    atomic_bool over = false;
    char before[64];
    char after[64];
    client c = open_tls(f);
    client_peer_serial(&c, before, sizeof before);
    client_close(&c);
    for (int i = 0; i < 3; i++) {
        knockers[i] = (knocker){.fixture = f, .over = &over};
        assert_int_equal(pthread_create(&knockers[i].thread, NULL, knock, &knockers[i]), 0);
    }
    for (int i = 0; i < 60; i++) {
        PP_CLEANUP_FREE char *old_key = strdup(f->certificates.key);
        reissue(f);
        reload broken = {.certificate = f->certificates.certificate, .key = old_key};
        fixture_run(f, reload_task, &broken);
        assert_int_equal(broken.rc, -1);
        assert_true(broken.err.message[0]);
        reload good = {.certificate = f->certificates.certificate, .key = f->certificates.key};
        fixture_run(f, reload_task, &good);
        assert_int_equal(good.rc, 0);
        const struct timespec pause = {.tv_nsec = 10 * MS};
        (void)nanosleep(&pause, NULL);
    }
    for (int i = 0; i < 3; i++)
        assert_true(fixture_wait(&knockers[i].good, 4));
    over = true;
    for (int i = 0; i < 3; i++) {
        (void)pthread_join(knockers[i].thread, NULL);
        assert_int_equal(knockers[i].failed, 0);
    }
    c = open_tls(f);
    client_peer_serial(&c, after, sizeof after);
    client_close(&c);
    assert_string_not_equal(before, after);
}

static void test_tls_peers_that_do_not_fit(void **state)
{
    fixture *f = *state;
    pp_certificates other = {0};
    bool changed = false;
    client c;
    assert_int_equal(pp_certificates_renew(&other, &f->names, pp_time_now(), &changed, NULL), 0);
    assert_false(client_open(&c, f->port, other.ca)); /* does not trust our authority */
    pp_certificates_done(&other);
    assert_true(client_open(&c, f->port, NULL)); /* speaks no TLS */
    assert_true(client_send(&c, "GET / HTTP/1.1\r\n\r\n", 18));
    response r = client_response(&c);
    assert_int_equal(r.status, 0);
    response_free(&r);
    client_close(&c);
    c = open_tls(f); /* and all goes on; HTTP/2 was offered and not taken */
    const unsigned char *alpn = NULL;
    unsigned int n = 0;
    SSL_get0_alpn_selected(c.ssl, &alpn, &n);
    assert_int_equal(n, 8);
    assert_memory_equal(alpn, "http/1.1", 8);
    client_close(&c);
}

/* ---- the plain port, starting and stopping ------------------------------------------------------
 */

static response get_plain(fixture *f, const char *method, const char *path)
{
    client c;
    assert_true(client_open(&c, f->plain_port, NULL));
    response r = client_request(&c, method, path, "", NULL, 0);
    client_close(&c);
    return r;
}

static void test_health_and_metrics(void **state)
{
    fixture *f = *state;
    response r = get_plain(f, "GET", "/healthz");
    assert_int_equal(r.status, 200);
    response_free(&r);
    r = get_plain(f, "GET", "/readyz");
    assert_int_equal(r.status, 200);
    response_free(&r);
    f->unready = true;
    r = get_plain(f, "GET", "/readyz");
    assert_int_equal(r.status, 503);
    assert_string_equal(r.body, "the store is away\n");
    response_free(&r);
    client c = connect_agent(f, "good");
    r = get_plain(f, "GET", "/metrics");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "text/plain; version=0.0.4"));
    assert_non_null(strstr(r.body, "\nprecisionprobe_ingest_connections 1\n"));
    assert_non_null(
        strstr(r.body, "\nprecisionprobe_http_requests_total{code=\"503\",port=\"plain\"} 1\n"));
    assert_non_null(strstr(r.body, "\nprocess_resident_memory_bytes "));
    response_free(&r);
    client_close(&c);
    r = get_plain(f, "POST", "/metrics");
    assert_int_equal(r.status, 405);
    response_free(&r);
    r = get_plain(f, "GET", "/v1/ingest");
    assert_int_equal(r.status, 404);
    response_free(&r);
}

static int count_late(fixture *f)
{
    response r = get_plain(f, "GET", "/metrics");
    const char *line = strstr(r.body, "review_seconds_count{result=\"late\"} ");
    int late = -1;
    assert_non_null(line);
    (void)sscanf(strchr(line, ' '), "%d", &late);
    response_free(&r);
    return late;
}

/* One that the API server does not wait for any more is late, as one is that is let through. */
static void test_review_given_up(void **state)
{
    fixture *f = *state;
    client c = open_tls(f);
    char head[256];
    PP_CLEANUP_FREE char *text = review_text("mute", 0);
    (void)snprintf(head, sizeof head,
                   "POST /s3cret/pods HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n",
                   strlen(text));
    assert_true(client_send(&c, head, strlen(head)) && client_send(&c, text, strlen(text)));
    while (f->reviews == 0)
        (void)usleep(1000);
    assert_int_equal(count_late(f), 0);
    client_close(&c);
    for (int i = 0; i < 60000 && count_late(f) == 0; i++)
        (void)usleep(1000);
    assert_int_equal(count_late(f), 1);
}

static void assert_metric(fixture *f, const char *line)
{
    response r = get_plain(f, "GET", "/metrics");
    if (!strstr(r.body, line))
        fail_msg("/metrics lacks%s", line);
    response_free(&r);
}

static void test_refusals_are_counted(void **state)
{
    fixture *f = *state;
    char text[1024];
    client c = connect_agent(f, "good");
    send_batch(&c, "s-1", 1, -1);
    send_batch(&c, "s-1", 2, -1);
    send_batch(&c, "foreign", 3, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ws_read(&c, text, sizeof text, NULL, false), 1);
    assert_metric(f, "\nprecisionprobe_batches_refused_total{reason=\"invalid\"} 2\n");
    assert_metric(f, "\nprecisionprobe_batches_refused_total{reason=\"denied\"} 1\n");
    assert_metric(f, "\nprecisionprobe_ingest_batches_total{result=\"refused\"} 3\n");
    client_close(&c);
}

static void test_reviews_are_counted(void **state)
{
    static const char *const names[] = {"now",    "late",   "refused", "passed",
                                        "passed", "passed", "mute"};
    fixture *f = *state;
    client c = open_tls(f);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        PP_CLEANUP_FREE char *text = review_text(names[i], 0);
        response r = post_review(&c, text);
        assert_int_equal(r.status, 200);
        response_free(&r);
    }
    assert_metric(f, "\nprecisionprobe_admission_review_seconds_count{result=\"patched\"} 2\n");
    assert_metric(f, "\nprecisionprobe_admission_review_seconds_count{result=\"refused\"} 1\n");
    assert_metric(f, "\nprecisionprobe_admission_review_seconds_count{result=\"passed\"} 3\n");
    assert_metric(f, "\nprecisionprobe_admission_review_seconds_count{result=\"late\"} 1\n");
    assert_metric(f, "_seconds_bucket{result=\"late\",le=\"0.0005\"} 0\n");
    client_close(&c);
}

static void drain_task(fixture *f, void *argument)
{
    (void)argument;
    pp_http_server_drain(f->server);
}

/* A client that keeps its connection would bring reviews until the server is gone. */
static void test_draining_ends_kept_connections(void **state)
{
    fixture *f = *state;
    client kept = open_tls(f);
    client fresh = open_tls(f);
    client agent_connection = connect_agent(f, "good");
    PP_CLEANUP_FREE char *text = review_text("now", 0);
    response r = post_review(&kept, text);
    assert_null(strcasestr(r.head, "Connection: close\r\n"));
    response_free(&r);
    fixture_run(f, drain_task, NULL);
    char rest;
    assert_int_equal(client_read(&kept, &rest, 1), 0);
    r = post_review(&fresh, text);
    PP_CLEANUP_JSON json_t *patch = allowed_patch(&r);
    assert_non_null(patch);
    assert_non_null(strcasestr(r.head, "Connection: close\r\n"));
    response_free(&r);
    assert_int_equal(client_read(&fresh, &rest, 1), 0);
    send_batch(&agent_connection, "s-1", 1, 1);
    assert_true(fixture_wait(&f->batches, 1));
    client_close(&kept);
    client_close(&fresh);
    client_close(&agent_connection);
}

static void stop_task(fixture *f, void *argument)
{
    (void)argument;
    pp_http_server_stop(f->server);
}

static void test_stop_with_open_connections(void **state)
{
    fixture *f = *state;
    client agent_connection = connect_agent(f, "good");
    client review = open_tls(f);
    client idle = open_tls(f);
    client half = open_tls(f);
    client waiting = open_tls(f);
    send_batch(&agent_connection, "held", 1, 1);
    PP_CLEANUP_FREE char *text = review_text("mute", 0);
    char head[128];
    int n = snprintf(head, sizeof head,
                     "POST /s3cret/pods HTTP/1.1\r\nHost: a\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     strlen(text));
    assert_true(client_send(&review, head, (size_t)n));
    assert_true(client_send(&review, text, strlen(text)));
    assert_true(client_send(&half, head, (size_t)n));
    assert_true(fixture_wait(&f->reviews, 1));
    assert_true(fixture_wait(&f->batches, 1));
    fixture_run(f, stop_task, NULL);
    response r = client_response(&review);
    assert_null(allowed_patch(&r));
    response_free(&r);
    assert_closed(&agent_connection, 1001);
    client_close(&review);
    client_close(&idle);
    client_close(&half);
    client_close(&waiting);
}

/** A listening socket; its port. */
static int listen_somewhere(int *ret_fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t size = sizeof at;
    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*ret_fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(*ret_fd, 1), 0);
    assert_int_equal(getsockname(*ret_fd, (struct sockaddr *)&at, &size), 0);
    return ntohs(at.sin_port);
}

/** Without a server beside: libwebsockets bears one context in a process. */
static void count_turn(uv_timer_t *timer)
{
    *(int *)timer->data += 1;
    uv_close((uv_handle_t *)timer, NULL);
}

/* The loop's other handles are not called from within: who starts a server may be one of them. */
static void fail_on_taken_port(const pp_http_options *options)
{
    pp_error err = {0};
    pp_http_server *server = NULL;
    pp_http_handlers handlers = {0};
    uv_timer_t timer;
    int turns = 0;
    uv_timer_init(options->loop, &timer);
    timer.data = &turns;
    uv_timer_start(&timer, count_turn, 0, 0);
    assert_int_equal(pp_http_server_new(options, &handlers, &server, &err), -1);
    assert_int_equal(err.code, PP_ERR_IO);
    assert_int_equal(turns, 0);
    assert_int_equal(uv_run(options->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(turns, 1);
    pp_http_server_free(server);
}

static void test_starts_that_fail(void **state)
{
    (void)state;
    uv_loop_t loop;
    pp_error err = {0};
    pp_http_server *server = NULL;
    pp_http_handlers handlers = {0};
    pp_certificates made = {0};
    pp_strings names = {0};
    bool changed = false;
    PP_CLEANUP_FD int taken = -1;
    PP_CLEANUP_FD int taken_too = -1;
    assert_int_equal(pp_strings_add(&names, "localhost", NULL), 0);
    assert_int_equal(pp_certificates_renew(&made, &names, pp_time_now(), &changed, NULL), 0);
    assert_int_equal(uv_loop_init(&loop), 0);
    pp_http_options options = {.loop = &loop, .certificate = made.certificate, .key = made.ca_key};
    assert_int_equal(pp_http_server_new(&options, &handlers, &server, &err), -1);
    assert_int_equal(err.code, PP_ERR_INVALID);
    assert_null(server);
    options.key = made.key;
    options.plain_port = listen_somewhere(&taken);
    fail_on_taken_port(&options);
    options.plain_port = 0;
    options.tls_port = listen_somewhere(&taken_too);
    fail_on_taken_port(&options);
    assert_int_equal(uv_loop_close(&loop), 0);
    pp_certificates_done(&made);
    pp_strings_free(&names);
}

#define ON_SERVER(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define ON_SLOW_REVIEWS(test) cmocka_unit_test_setup_teardown(test, start_slow_reviews, stop)
#define ON_WIDE_SERVER(test) cmocka_unit_test_setup_teardown(test, start_wide, stop)
#define ON_NARROW_SERVER(test) cmocka_unit_test_setup_teardown(test, start_narrow, stop)
#define ON_CRAMPED_SERVER(test) cmocka_unit_test_setup_teardown(test, start_cramped, stop)
#define ON_SLOW_SERVER(test) cmocka_unit_test_setup_teardown(test, start_slow, stop)
#define ON_WARY_SERVER(test) cmocka_unit_test_setup_teardown(test, start_wary, stop)
#define ON_HASTY_SERVER(test) cmocka_unit_test_setup_teardown(test, start_hasty, stop)
#define ON_ASKING_SERVER(test) cmocka_unit_test_setup_teardown(test, start_asking, stop)
#define ON_LOADED_SERVER(test) cmocka_unit_test_setup_teardown(test, start_loaded, stop)

static const struct CMUnitTest tests[] = {
    ON_SERVER(test_review_is_patched),
    ON_SERVER(test_review_answered_later),
    ON_HASTY_SERVER(test_review_never_answered_is_allowed),
    ON_SLOW_REVIEWS(test_review_that_is_not_waited_for),
    ON_SERVER(test_review_given_up),
    ON_SERVER(test_review_with_a_large_patch),
    ON_SERVER(test_review_of_a_labelled_namespace),
    ON_SERVER(test_review_of_other_kinds),
    ON_SERVER(test_review_size),
    ON_SERVER(test_bodies_without_a_proper_length),
    ON_SERVER(test_bodies_that_are_no_review),
    ON_HASTY_SERVER(test_dripping_body),
    ON_SERVER(test_paths_and_methods),
    ON_ASKING_SERVER(test_upgrade_statuses),
    ON_SERVER(test_upgrade_on_one_connection),
    ON_SERVER(test_upgrade_verdicts_are_kept),
    ON_WARY_SERVER(test_bad_tokens_keep_nobody_out),
    ON_WARY_SERVER(test_questions_that_hang_keep_nobody_out),
    ON_SERVER(test_upgrade_requests_that_are_wrong),
    ON_SERVER(test_batches_and_bye),
    ON_SERVER(test_times),
    ON_SERVER(test_hook_is_told),
    ON_SERVER(test_a_message_in_pieces),
    ON_SERVER(test_bad_batches_are_refused),
    ON_SERVER(test_malformed_messages),
    ON_SERVER(test_messages_too_large_or_binary),
    ON_WIDE_SERVER(test_too_many_in_flight),
    ON_SERVER(test_reading_stops_while_batches_wait),
    ON_SERVER(test_nothing_is_read_while_held),
    ON_SERVER(test_a_pod_that_hoards_leaves_room),
    ON_SERVER(test_a_pod_that_comes_again_leaves_room),
    ON_CRAMPED_SERVER(test_a_pod_that_hoards_bytes_leaves_room),
    ON_SERVER(test_large_messages_keep_their_order),
    ON_SERVER(test_a_large_message_may_be_wrong),
    ON_SERVER(test_a_connection_goes_while_it_is_decoded),
    ON_SERVER(test_the_server_stops_while_it_decodes),
    ON_SLOW_SERVER(test_a_pod_that_sends_too_much_rests),
    ON_SLOW_SERVER(test_a_pod_rests_whoever_it_comes_as),
    ON_SLOW_SERVER(test_a_closing_connection_is_paid_for),
    ON_SLOW_SERVER(test_pings_are_paid_for),
    ON_SERVER(test_a_pod_that_rested_is_read_again),
    ON_SERVER(test_messages_of_many_containers),
    ON_SERVER(test_connections_are_limited),
    ON_SERVER(test_a_place_is_another_s),
    ON_SERVER(test_connections_of_one_pod_are_limited),
    ON_WIDE_SERVER(test_unfinished_messages_leave_room),
    ON_HASTY_SERVER(test_a_message_has_a_deadline),
    ON_HASTY_SERVER(test_silent_peers_are_pinged_then_dropped),
    ON_LOADED_SERVER(test_a_paused_peer_gets_pongs),
    ON_LOADED_SERVER(test_who_is_not_read_is_not_dropped),
    ON_LOADED_SERVER(test_who_sends_is_not_dropped),
    ON_SERVER(test_reviews_have_a_path_of_their_own),
    ON_SERVER(test_reviews_may_need_a_certificate),
    ON_NARROW_SERVER(test_bodies_are_bounded_in_all),
    ON_NARROW_SERVER(test_idle_connections_are_bounded),
    ON_NARROW_SERVER(test_agents_and_reviews_take_no_places),
    ON_SERVER(test_unread_answers_keep_nobody_out),
    ON_NARROW_SERVER(test_waiting_for_us_keeps_nobody_out),
    ON_HASTY_SERVER(test_a_request_has_a_deadline),
    ON_SERVER(test_garbage),
    ON_SERVER(test_fifty_agents),
    ON_SERVER(test_certificates_change_under_load),
    ON_SERVER(test_tls_peers_that_do_not_fit),
    ON_SERVER(test_health_and_metrics),
    ON_SERVER(test_reviews_are_counted),
    ON_SERVER(test_refusals_are_counted),
    ON_SERVER(test_draining_ends_kept_connections),
    ON_SERVER(test_stop_with_open_connections),
    cmocka_unit_test(test_starts_that_fail),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
