/*
 * Requests of the HTTP API: taken, limited by where they come from, handed on, answered. What they
 * ask for and who may is the handler's. A request holds one of the places for questions until it is
 * answered, so that who brings tokens that are none has few of them (askers.h); an answer holds its
 * bytes until it is read.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/time.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static const char prefix[] = "/api/";
static const char token_header[] = "x-precisionprobe-token:";

#define UNREAD_GRACE (SECOND / 4)

/* ---- the request's parts ---- */

static const struct {
    enum lws_token_indexes token;
    bool head;
} methods[] = {{WSI_TOKEN_GET_URI, false}, {WSI_TOKEN_HEAD_URI, true}};

/** Of methods that nothing here has. */
static const enum lws_token_indexes others[] = {WSI_TOKEN_POST_URI, WSI_TOKEN_PUT_URI,
                                                WSI_TOKEN_PATCH_URI, WSI_TOKEN_DELETE_URI,
                                                WSI_TOKEN_OPTIONS_URI};

static bool starts_so(struct lws *wsi, enum lws_token_indexes token)
{
    char path[HEADER_BYTES];
    return lws_hdr_total_length(wsi, token) > 0 &&
           lws_hdr_copy(wsi, path, sizeof path, token) > 0 &&
           strncmp(path, prefix, sizeof prefix - 1) == 0;
}

bool http_api_path(exchange *ex)
{
    if (!ex->peer.server->handlers.api)
        return false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (starts_so(ex->peer.wsi, methods[i].token))
            return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (starts_so(ex->peer.wsi, others[i]))
            return true;
    }
    return false;
}

/** The path into out (HEADER_BYTES); false: another method. */
static bool read_path(exchange *ex, char *out)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (lws_hdr_total_length(ex->peer.wsi, methods[i].token) <= 0)
            continue;
        ex->head_only = methods[i].head;
        return lws_hdr_copy(ex->peer.wsi, out, HEADER_BYTES, methods[i].token) > 0;
    }
    return false;
}

/** libwebsockets has cut the query at its ampersands. */
static int read_query(struct lws *wsi, pp_strings *ret)
{
    char part[HEADER_BYTES];
    for (int i = 0; i < PP_HTTP_MAX_PARAMETERS + 1; i++) {
        if (lws_hdr_copy_fragment(wsi, part, sizeof part, WSI_TOKEN_HTTP_URI_ARGS, i) < 0)
            return 0;
        if (pp_strings_add(ret, part, NULL) < 0)
            return -1;
    }
    return -1;
}

/** A bearer token, or the header's own, into out (HEADER_BYTES); NULL: none. */
static const char *read_token(struct lws *wsi, char *out)
{
    const int n = sizeof token_header - 1;
    const char *token = http_bearer_token(wsi, out);
    if (token)
        return token;
    const int got = lws_hdr_custom_copy(wsi, out, HEADER_BYTES, token_header, n);
    if (got <= 0)
        return NULL;
    out[strcspn(out, "\r\n")] = '\0';
    token = out + strspn(out, " \t");
    return http_is_token(token) ? token : NULL;
}

/* ---- answers ---- */

/** An error of this file's own, as the handler's are (RFC 9457). */
static void answer_problem(exchange *ex, int status, const char *name, const char *headers,
                           const char *detail)
{
    char body[512];
    const int n = snprintf(body, sizeof body,
                           "{\"type\":\"urn:precisionprobe:problem:%s\",\"title\":\"The request is "
                           "not taken\",\"status\":%d,\"detail\":\"%s\"}\n",
                           name, status, detail);
    http_exchange_answer(ex, status, "application/problem+json", headers, body, (size_t)n);
}

/** The place for a question is free again. */
static void end_question(exchange *ex, bool refused)
{
    if (ex->asks)
        askers_answered(ex->asks, &ex->question, refused);
    ex->asks = NULL;
}

/** Whether the token was good is known by now. */
static void learn(exchange *ex, const pp_http_api_answer *answer)
{
    known_tokens *known = ex->peer.server->known_tokens;
    if (ex->has_token && answer->who)
        known_tokens_keep(known, ex->digest, answer->who, pp_time_monotonic());
    else if (ex->has_token && answer->status == 401)
        known_tokens_drop(known, ex->digest);
}

/** It goes before it is answered. */
static void give_up(exchange *ex)
{
    const pp_http_handlers *h = &ex->peer.server->handlers;
    end_question(ex, false);
    if (h->api_gone)
        h->api_gone(h->context, ex->peer.id);
}

void http_api_late(exchange *ex)
{
    give_up(ex);
    answer_problem(ex, 503, "unavailable", "Retry-After: 2\r\n", "no answer came in time");
}

/** The answer of which nothing was read for longest; NULL: there is none. */
static exchange *longest_unread(const pp_http_server *server)
{
    exchange *longest = NULL;
    for (peer *p = server->exchanges; p; p = p->hh.next) {
        exchange *ex = (exchange *)p;
        if (ex->stage == STAGE_ANSWER && ex->api_bytes && (!longest || ex->moved < longest->moved))
            longest = ex;
    }
    return longest;
}

/** Room for one more answer. Who has stopped to read goes for it: few of them would keep all others
 * waiting. */
static bool make_room(pp_http_server *server, size_t len)
{
    while (server->api_bytes > 0 && server->api_bytes + len > PP_HTTP_MAX_API_BYTES) {
        exchange *slow = longest_unread(server);
        if (!slow || slow->moved + UNREAD_GRACE > pp_time_monotonic())
            return false;
        server->api_bytes -= slow->api_bytes;
        slow->api_bytes = 0;
        http_arrival_cut(server, slow->peer.wsi);
    }
    return true;
}

/** Whether it is answered so, and with that the body taken; else with a problem. */
static bool respond(pp_http_server *server, exchange *ex, const pp_http_api_answer *answer)
{
    static const char common[] = "Cache-Control: private, no-cache\r\n"
                                 "Vary: Authorization, X-PrecisionProbe-Token\r\n"
                                 "X-Content-Type-Options: nosniff\r\n";
    char headers[512];
    end_question(ex, answer->status == 401);
    learn(ex, answer);
    if (answer->who && !http_arrival_proved(server, ex->peer.wsi)) {
        ex->close = true;
        answer_problem(ex, 503, "unavailable", "Retry-After: 1\r\n",
                       "there are too many connections");
        return false;
    }
    if (!make_room(server, answer->len)) {
        answer_problem(ex, 503, "unavailable", "Retry-After: 1\r\n",
                       "too many answers are not read yet");
        return false;
    }
    ex->api_bytes = answer->len;
    server->api_bytes += answer->len;
    ex->answer_timeout = API_ANSWER_TIMEOUT;
    (void)snprintf(headers, sizeof headers, "%s%s%s%s%s", common, answer->etag ? "ETag: " : "",
                   answer->etag ? answer->etag : "", answer->etag ? "\r\n" : "",
                   answer->headers ? answer->headers : "");
    if (!answer->release) {
        http_exchange_answer(ex, answer->status, answer->type, headers, answer->body, answer->len);
        return true;
    }
    ex->release = answer->release;
    ex->owner = answer->owner;
    http_exchange_answer_file(ex, answer->status, answer->type, headers,
                              (const unsigned char *)answer->body, answer->len);
    return true;
}

void pp_http_api_respond(pp_http_server *server, pp_http_id id, const pp_http_api_answer *answer)
{
    exchange *ex = http_exchange_find(server, id);
    if (!(ex && ex->stage == STAGE_API && respond(server, ex, answer)) && answer->release)
        answer->release(answer->owner);
}

/* ---- requests ---- */

/** Whose token it is, where that is known; else 0. */
static uint64_t owner_of(exchange *ex, const char *token, int64_t now)
{
    ex->has_token =
        token && EVP_Digest(token, strlen(token), ex->digest, NULL, EVP_sha256(), NULL) == 1;
    return ex->has_token ? known_tokens_find(ex->peer.server->known_tokens, ex->digest, now) : 0;
}

/** Whether a place for a question is free for whoever sent it: by its token, or where that says
 * nothing, by its address. */
static bool take_place(exchange *ex, const char *token)
{
    pp_http_server *server = ex->peer.server;
    const int64_t now = pp_time_monotonic();
    const uint64_t who = owner_of(ex, token, now);
    visitor_address from = {{0}};
    if (who)
        (void)memcpy(from.bytes, &who, sizeof who);
    else
        (void)visitors_address(server->visitors, ex->peer.wsi, &from);
    askers *of = who ? server->reader_askers : server->api_askers;
    ex->asks = askers_ask(of, &from, now, &ex->question) ? of : NULL;
    return ex->asks != NULL;
}

static void hand_on(exchange *ex, const char *path, const pp_strings *query, const char *token)
{
    pp_http_server *server = ex->peer.server;
    char known[1024] = "";
    (void)lws_hdr_copy(ex->peer.wsi, known, sizeof known, WSI_TOKEN_HTTP_IF_NONE_MATCH);
    const pp_http_api_request request = {.path = path,
                                         .query = query,
                                         .token = token,
                                         .open = ex->port == PORT_OPEN,
                                         .if_none_match = known};
    ex->given_up = give_up;
    http_exchange_enter(ex, STAGE_API, server->options.api_timeout);
    server->handlers.api(server->handlers.context, ex->peer.id, &request);
}

void http_api_begin(exchange *ex)
{
    char path[HEADER_BYTES], text[HEADER_BYTES];
    const char *token = read_token(ex->peer.wsi, text);
    pp_strings query = {0};
    if (ex->expected > 0) {
        ex->close = true;
        answer_problem(ex, 413, "invalid", "", "a request has no body here");
    } else if (!read_path(ex, path)) {
        answer_problem(ex, 405, "method", "Allow: GET, HEAD\r\n", "results are read only");
    } else if (ex->peer.server->stopping) {
        answer_problem(ex, 503, "unavailable", "Retry-After: 2\r\n", "the operator stops");
    } else if (!take_place(ex, token)) {
        answer_problem(ex, 429, "busy", "Retry-After: 1\r\n", "too much is asked at once");
    } else if (read_query(ex->peer.wsi, &query) < 0) {
        end_question(ex, false);
        answer_problem(ex, 400, "invalid", "", "the query has too many parts");
    } else {
        hand_on(ex, path, &query, token);
    }
    pp_strings_free(&query);
}

int http_api_start(pp_http_server *server)
{
    const asker_limits limits = {PP_HTTP_MAX_API, PP_HTTP_MAX_API_EACH,
                                 server->options.refusal_interval, PP_HTTP_MAX_REFUSED};
    const asker_limits readers = {PP_HTTP_MAX_READS, PP_HTTP_MAX_READS_EACH,
                                  server->options.refusal_interval, PP_HTTP_MAX_REFUSED};
    server->api_askers = askers_new(&limits);
    server->reader_askers = askers_new(&readers);
    server->known_tokens = known_tokens_new();
    return server->api_askers && server->reader_askers && server->known_tokens ? 0 : -1;
}

void http_api_free(pp_http_server *server)
{
    askers_free(server->api_askers);
    askers_free(server->reader_askers);
    known_tokens_free(server->known_tokens);
}
