/*
 * Who may open the WebSocket. libwebsockets wants the answer to an upgrade at once and cannot wait
 * for a TokenReview (it offers no call to resume one), but it can hold an ordinary request. So an
 * upgrade is allowed at once only where the token's verdict is known and good; any other goes on as
 * an ordinary GET, which waits for the verdict and gets its true status: 401, 403 or 503. A good
 * verdict is answered there with 503 and `Retry-After: 0`, and the agent's next attempt finds it.
 * Verdicts are kept for seconds, by the token's digest.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/time.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VERDICTS = 4096, MAX_UNDECIDED = 64 };

#define KEEP_GRANTED (30 * SECOND)
#define KEEP_UNAUTHORIZED (10 * SECOND)
#define KEEP_FORBIDDEN (3 * SECOND) /* the session may be on its way */

/** What an upgrade request gets; status 0: nobody knows yet. */
typedef struct answer {
    int status;
    const char *text;
    const verdict *known;
} answer;

/* ---- verdicts ----------------------------------------------------------------------------------
 */

static verdict *find_verdict(pp_http_server *server, const unsigned char *digest)
{
    verdict *v = NULL;
    HASH_FIND(hh, server->verdicts, digest, DIGEST_BYTES, v);
    if (v && v->expires <= pp_time_monotonic()) {
        HASH_DEL(server->verdicts, v);
        free(v);
        return NULL;
    }
    return v;
}

/** Makes room: what has expired, else the oldest decided one. False when all are undecided. */
static bool make_room(pp_http_server *server)
{
    int64_t now = pp_time_monotonic();
    verdict *v;
    verdict *spare;
    verdict *oldest = NULL;
    HASH_ITER(hh, server->verdicts, v, spare)
    {
        if (v->expires <= now) {
            HASH_DEL(server->verdicts, v);
            free(v);
        } else if (v->decided && !oldest) {
            oldest = v; /* uthash iterates in the order of insertion */
        }
    }
    if (HASH_COUNT(server->verdicts) < MAX_VERDICTS)
        return true;
    if (!oldest)
        return false;
    HASH_DEL(server->verdicts, oldest);
    free(oldest);
    return true;
}

static size_t count_undecided(const pp_http_server *server)
{
    size_t count = 0;
    for (const verdict *v = server->verdicts; v; v = v->hh.next)
        count += !v->decided;
    return count;
}

/** An undecided verdict, so that the next request with this token does not ask again. */
static verdict *new_verdict(pp_http_server *server, const unsigned char *digest)
{
    if (count_undecided(server) >= MAX_UNDECIDED ||
        (HASH_COUNT(server->verdicts) >= MAX_VERDICTS && !make_room(server)))
        return NULL;
    verdict *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    (void)memcpy(v->digest, digest, DIGEST_BYTES);
    v->id = http_next_id(server);
    v->expires = pp_time_monotonic() + server->options.authorize_timeout;
    HASH_ADD(hh, server->verdicts, digest, DIGEST_BYTES, v);
    return v;
}

void http_verdicts_forget(pp_http_server *server)
{
    verdict *v;
    verdict *spare;
    HASH_ITER(hh, server->verdicts, v, spare)
    {
        HASH_DEL(server->verdicts, v);
        free(v);
    }
}

/* ---- reading the request -----------------------------------------------------------------------
 */

static bool is_token(const char *text)
{
    static const char legal[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=";
    return *text && strspn(text, legal) == strlen(text);
}

/** The bearer token of the request into out (PP_HTTP_MAX_TOKEN + 16 bytes); NULL when none. */
static const char *read_token(struct lws *wsi, char *out)
{
    static const char scheme[] = "Bearer ";
    if (lws_hdr_copy(wsi, out, PP_HTTP_MAX_TOKEN + 16, WSI_TOKEN_HTTP_AUTHORIZATION) <= 0 ||
        strncasecmp(out, scheme, sizeof scheme - 1) != 0)
        return NULL;
    const char *token = out + sizeof scheme - 1;
    return is_token(token) && strlen(token) <= PP_HTTP_MAX_TOKEN ? token : NULL;
}

/** Whether a comma-separated header has the word among its items. */
static bool header_has(struct lws *wsi, enum lws_token_indexes header, const char *word)
{
    char text[128];
    char *rest = text;
    char *item;
    if (lws_hdr_copy(wsi, text, sizeof text, header) <= 0)
        return false;
    while ((item = strsep(&rest, ", \t"))) {
        if (strcasecmp(item, word) == 0)
            return true;
    }
    return false;
}

/** Why the request is no upgrade that libwebsockets would take; NULL when it is one. */
static const char *malformed_upgrade(struct lws *wsi)
{
    char key[32];
    if (!header_has(wsi, WSI_TOKEN_CONNECTION, "upgrade"))
        return "Connection: Upgrade is needed";
    if (!header_has(wsi, WSI_TOKEN_VERSION, "13"))
        return "Sec-WebSocket-Version: 13 is needed";
    if (lws_hdr_copy(wsi, key, sizeof key, WSI_TOKEN_KEY) != 24)
        return "Sec-WebSocket-Key is needed";
    if (!header_has(wsi, WSI_TOKEN_PROTOCOL, PP_WIRE_SUBPROTOCOL))
        return "the subprotocol " PP_WIRE_SUBPROTOCOL " is needed";
    return NULL;
}

static answer judge_token(pp_http_server *server, const char *token, unsigned char *digest)
{
    static const int statuses[] = {
        [PP_HTTP_GRANTED] = 101,
        [PP_HTTP_UNAUTHORIZED] = 401,
        [PP_HTTP_FORBIDDEN] = 403,
        [PP_HTTP_UNAVAILABLE] = 503,
    };
    if (!token)
        return (answer){.status = 401, .text = "a bearer token is needed"};
    if (EVP_Digest(token, strlen(token), digest, NULL, EVP_sha256(), NULL) != 1)
        return (answer){.status = 503, .text = "the token cannot be looked at"};
    const verdict *v = find_verdict(server, digest);
    if (!v || !v->decided)
        return (answer){.known = v};
    return (answer){.status = statuses[v->decision], .text = v->message, .known = v};
}

/** All that is known about an upgrade request without asking anybody. */
static answer judge(pp_http_server *server, struct lws *wsi, const char *token,
                    unsigned char *digest)
{
    const char *wrong = malformed_upgrade(wsi);
    if (lws_hdr_total_length(wsi, WSI_TOKEN_UPGRADE) <= 0)
        return (answer){.status = 426, .text = "this is a WebSocket"};
    if (wrong)
        return (answer){.status = 400, .text = wrong};
    if (server->stopping || !server->handlers.accepting(server->handlers.context))
        return (answer){.status = 503, .text = "this replica takes no agents now"};
    if (HASH_COUNT(server->connections) >= server->options.max_connections)
        return (answer){.status = 503, .text = "there are too many connections"};
    return judge_token(server, token, digest);
}

bool http_upgrade_allowed(pp_http_server *server, struct lws *wsi, pp_http_identity *ret_identity)
{
    char text[PP_HTTP_MAX_TOKEN + 16];
    char path[64] = "";
    unsigned char digest[DIGEST_BYTES];
    if (lws_hdr_copy(wsi, path, sizeof path, WSI_TOKEN_GET_URI) <= 0 ||
        strcmp(path, PP_WIRE_PATH) != 0)
        return false;
    answer a = judge(server, wsi, read_token(wsi, text), digest);
    if (a.status != 101)
        return false;
    *ret_identity = a.known->identity;
    return true;
}

/* ---- the waiting request -----------------------------------------------------------------------
 */

static void answer_upgrade(exchange *ex, int status, const char *text)
{
    switch (status) {
    case 101: /* known and good by now, but this request cannot become a WebSocket any more */
        http_exchange_answer_text(ex, 503, "Retry-After: 0\r\n",
                                  "the token is good: try again at once");
        return;
    case 401:
        http_exchange_answer_text(ex, 401, "WWW-Authenticate: Bearer\r\n", text);
        return;
    case 426:
        http_exchange_answer_text(ex, 426, "Upgrade: websocket\r\n", text);
        return;
    case 503:
        http_exchange_answer_text(ex, 503, "Retry-After: 2\r\n", text);
        return;
    default:
        http_exchange_answer_text(ex, status, "", text);
        return;
    }
}

void http_upgrade_begin(exchange *ex)
{
    pp_http_server *server = ex->peer.server;
    char text[PP_HTTP_MAX_TOKEN + 16];
    const char *token = read_token(ex->peer.wsi, text);
    answer a = judge(server, ex->peer.wsi, token, ex->digest);
    if (a.status) {
        answer_upgrade(ex, a.status, a.text);
        return;
    }
    bool ask = !a.known;
    const verdict *v = ask ? new_verdict(server, ex->digest) : a.known;
    if (!v) {
        answer_upgrade(ex, 503, "too many tokens are being looked at");
        return;
    }
    http_exchange_enter(ex, STAGE_AUTHORIZE, server->options.authorize_timeout);
    if (ask)
        server->handlers.authorize(server->handlers.context, v->id, token);
}

void http_upgrade_late(exchange *ex)
{
    answer_upgrade(ex, 503, "the token could not be looked at in time");
}

static verdict *find_undecided(pp_http_server *server, pp_http_id id)
{
    for (verdict *v = server->verdicts; v; v = v->hh.next) {
        if (v->id == id)
            return v->decided ? NULL : v;
    }
    return NULL;
}

static void decide(verdict *v, pp_http_decision decision, const pp_http_identity *identity,
                   const char *text)
{
    static const int64_t keep[] = {
        [PP_HTTP_GRANTED] = KEEP_GRANTED,
        [PP_HTTP_UNAUTHORIZED] = KEEP_UNAUTHORIZED,
        [PP_HTTP_FORBIDDEN] = KEEP_FORBIDDEN,
        [PP_HTTP_UNAVAILABLE] = 0, /* asked again by whoever comes next */
    };
    v->decided = true;
    v->decision = decision;
    if (identity)
        v->identity = *identity;
    (void)snprintf(v->message, sizeof v->message, "%s", text ? text : "");
    v->expires = pp_time_monotonic() + keep[decision];
}

void pp_http_authorize_respond(pp_http_server *server, pp_http_id id, pp_http_decision decision,
                               const pp_http_identity *identity, const char *text)
{
    static const int statuses[] = {101, 401, 403, 503};
    verdict *v = find_undecided(server, id);
    if (!v)
        return;
    if (decision == PP_HTTP_GRANTED && !identity)
        decision = PP_HTTP_UNAVAILABLE;
    decide(v, decision, identity, text);
    for (peer *p = server->exchanges; p; p = p->hh.next) {
        exchange *ex = (exchange *)p;
        if (ex->stage == STAGE_AUTHORIZE && memcmp(ex->digest, v->digest, DIGEST_BYTES) == 0)
            answer_upgrade(ex, statuses[decision], v->message);
    }
}
