/*
 * Admission reviews. Training always wins: whatever goes wrong here, the pod is allowed; only a
 * request that is no review at all gets an HTTP error, which the API server's failurePolicy Ignore
 * turns into the same.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RELAYED = 256 << 10 }; /* bytes of a session that a replica passes on */

typedef struct request {
    char *uid;
    char *namespace_name;
    char *operation;
    json_t *kind;
    json_t *object;
    bool dry_run;
} request;

static const pp_json_field request_fields[] = {
    {"uid", PP_JSON_STRING, offsetof(request, uid), true, 128},
    {"namespace", PP_JSON_STRING, offsetof(request, namespace_name), false, 253},
    {"operation", PP_JSON_STRING, offsetof(request, operation), true, 32},
    {"kind", PP_JSON_VALUE, offsetof(request, kind), true, 0},
    {"object", PP_JSON_VALUE, offsetof(request, object), false, 0},
    {"dryRun", PP_JSON_BOOL, offsetof(request, dry_run), false, 0},
    {0},
};

static void cleanup_request(request *r)
{
    pp_json_free_fields(request_fields, r);
}

bool http_review_path(exchange *ex, const char *path)
{
    const pp_http_server *server = ex->peer.server;
    size_t n = strlen(server->path_secret);
    size_t at = strcspn(*path == '/' ? path + 1 : path, "/");
    if (!n || *path != '/' || at != n || CRYPTO_memcmp(path + 1, server->path_secret, n) != 0)
        return false;
    ex->labelled = strcmp(path + 1 + n, "/labelled") == 0;
    ex->relayed = strcmp(path + 1 + n, "/replica") == 0;
    return ex->labelled || ex->relayed || strcmp(path + 1 + n, "/pods") == 0 ||
           strcmp(path + 1 + n, "/sessions") == 0;
}

/** The API server says how long it waits (?timeout=); the request and the answer take part of it.
 */
static int64_t patience_of(const exchange *ex)
{
    char text[32];
    int64_t timeout = 0;
    pp_error err = {0};
    const int64_t ours = ex->peer.server->options.admission_timeout;
    const char *said = lws_get_urlarg_by_name(ex->peer.wsi, "timeout=", text, sizeof text);
    if (!said || pp_duration_parse(said, &timeout, &err) < 0 || timeout <= 0)
        return ours;
    return timeout / 8 * 7 < ours ? timeout / 8 * 7 : ours;
}

void http_review_begin(exchange *ex)
{
    pp_http_server *server = ex->peer.server;
    ex->patience = patience_of(ex);
    if (server->client_certificate && !ex->relayed && !http_tls_client_known(ex->peer.wsi)) {
        ex->close = true;
        http_exchange_answer_text(ex, 401, "", "a client certificate is needed");
        return;
    }
    if (!ex->expected) {
        http_exchange_answer_text(ex, 400, "", "an AdmissionReview is needed");
        return;
    }
    if (ex->relayed && ex->expected > MAX_RELAYED) {
        ex->close = true;
        http_exchange_answer_text(ex, 413, "", "the body is too large");
        return;
    }
    /* A replica proves nothing but that it knows the path: it gets no place of the API server's. */
    if ((!ex->relayed && !http_arrival_reviews(server, ex->peer.wsi)) ||
        server->review_bytes + ex->expected > server->options.max_review_bytes) {
        ex->close = true; /* its body is not read */
        http_exchange_answer_text(ex, 503, "Retry-After: 1\r\n", "there are too many reviews");
        return;
    }
    ex->reserved = ex->expected;
    server->review_bytes += ex->reserved;
    http_exchange_enter(ex, STAGE_BODY, server->options.body_timeout);
}

static int decode_request(const json_t *review, request *ret, pp_error *err)
{
    const char *version = pp_json_get_string(review, "apiVersion", NULL);
    const char *kind = pp_json_get_string(review, "kind", NULL);
    if (!version || strcmp(version, "admission.k8s.io/v1") != 0)
        return pp_error_field(err, "apiVersion", "must be admission.k8s.io/v1");
    if (!kind || strcmp(kind, "AdmissionReview") != 0)
        return pp_error_field(err, "kind", "must be AdmissionReview");
    return pp_json_decode(json_object_get(review, "request"), request_fields, false, "request", ret,
                          err);
}

/** Only creations are of interest; the webhook's rules ask for nothing else. */
static bool is_creation(const request *r, const char *of)
{
    const char *kind = pp_json_get_string(r->kind, "kind", NULL);
    return r->operation && strcmp(r->operation, "CREATE") == 0 && kind && strcmp(kind, of) == 0 &&
           json_is_object(r->object);
}

static void refuse_review(exchange *ex, const pp_error *why)
{
    char text[sizeof why->field + sizeof why->message + 4];
    (void)snprintf(text, sizeof text, "%s%s%s", why->field, why->field[0] ? ": " : "",
                   why->message);
    http_exchange_answer_text(ex, 400, "", text);
}

static void count(const exchange *ex, review_result result)
{
    pp_meter_observe(ex->peer.server->metrics.review_seconds[result],
                     (double)(pp_time_monotonic() - ex->began) / (double)SECOND);
}

/** The API server did not wait for the answer: its timeout is the webhook's, and may be shorter. */
static void given_up(exchange *ex)
{
    count(ex, REVIEW_LATE);
}

void http_review_body(exchange *ex)
{
    pp_http_server *server = ex->peer.server;
    pp_error err = {0};
    __attribute__((cleanup(cleanup_request))) request r = {0};
    PP_CLEANUP_JSON json_t *review = pp_json_parse(ex->body.data, ex->body.len, &err);
    pp_buf_done(&ex->body);
    if (!review || decode_request(review, &r, &err) < 0) {
        refuse_review(ex, &err);
        return;
    }
    (void)snprintf(ex->uid, sizeof ex->uid, "%s", r.uid);
    ex->given_up = given_up;
    http_exchange_enter(ex, STAGE_REVIEW, ex->patience);
    const bool pod = is_creation(&r, "Pod");
    const bool session = is_creation(&r, "ProfileSession");
    if (server->stopping || (!pod && !session) || (pod && ex->relayed)) {
        pp_http_admission_respond(server, ex->peer.id, NULL, NULL);
        return;
    }
    const pp_http_review handed = {.uid = r.uid,
                                   .namespace_name = r.namespace_name ? r.namespace_name : "",
                                   .pod = pod ? r.object : NULL,
                                   .session = session ? r.object : NULL,
                                   .labelled = ex->labelled,
                                   .dry_run = r.dry_run,
                                   .patience = ex->patience,
                                   .relayed = ex->relayed};
    server->handlers.review(server->handlers.context, ex->peer.id, &handed);
}

/* ---- the answer --------------------------------------------------------------------------------
 */

static json_t *encode_patch(const json_t *patch)
{
    PP_CLEANUP_FREE char *text = json_dumps(patch, JSON_COMPACT);
    if (!text)
        return NULL;
    size_t n = strlen(text);
    PP_CLEANUP_FREE unsigned char *base64 = malloc((n + 2) / 3 * 4 + 1);
    if (!base64)
        return NULL;
    EVP_EncodeBlock(base64, (const unsigned char *)text, (int)n);
    return json_string((const char *)base64);
}

static void add_warnings(json_t *response, const pp_strings *warnings)
{
    if (!warnings || !warnings->count)
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < warnings->count && i < PP_HTTP_MAX_WARNINGS; i++)
        (void)json_array_append_new(list, pp_json_text(warnings->items[i]));
    (void)json_object_set_new(response, "warnings", list);
}

/** The whole answer as text; NULL without memory. */
static char *encode_answer(const char *uid, const json_t *patch, const pp_strings *warnings)
{
    PP_CLEANUP_JSON json_t *answer =
        json_pack("{sssss{sssb}}", "apiVersion", "admission.k8s.io/v1", "kind", "AdmissionReview",
                  "response", "uid", uid, "allowed", 1);
    json_t *response = json_object_get(answer, "response");
    if (!answer)
        return NULL;
    if (json_array_size(patch)) {
        json_t *encoded = encode_patch(patch);
        if (encoded) {
            (void)json_object_set_new(response, "patchType", json_string("JSONPatch"));
            (void)json_object_set_new(response, "patch", encoded);
        }
    }
    add_warnings(response, warnings);
    return json_dumps(answer, JSON_COMPACT);
}

static void respond(exchange *ex, const json_t *patch, const pp_strings *warnings,
                    review_result result)
{
    PP_CLEANUP_FREE char *text = encode_answer(ex->uid, patch, warnings);
    count(ex, result);
    if (!text) {
        http_exchange_answer_text(ex, 503, "", "out of memory");
        return;
    }
    http_exchange_answer(ex, 200, "application/json", "", text, strlen(text));
}

void http_review_late(exchange *ex)
{
    respond(ex, NULL, NULL, REVIEW_LATE);
}

void pp_http_admission_respond(pp_http_server *server, pp_http_id id, const json_t *patch,
                               const pp_strings *warnings)
{
    exchange *ex = http_exchange_find(server, id);
    if (!ex || ex->stage != STAGE_REVIEW)
        return;
    if (json_array_size(patch))
        respond(ex, patch, warnings, REVIEW_PATCHED);
    else
        respond(ex, NULL, warnings, warnings && warnings->count ? REVIEW_REFUSED : REVIEW_PASSED);
}
