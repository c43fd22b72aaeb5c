/*
 * Who may open the WebSocket. libwebsockets wants the answer to an upgrade at once and cannot wait
 * for a TokenReview (it offers no call to resume one), but it can hold an ordinary request. So an
 * upgrade is allowed at once only where the token's verdict is known and good; any other goes on as
 * an ordinary GET, which waits for the verdict and gets its true status: 401, 403 or 503. A good
 * verdict is answered there with 503 and `Retry-After: 0`, and the agent's next attempt finds it.
 * Verdicts are kept for a while (verdicts.c); how many may be asked for is askers.c's.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/time.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What an upgrade request gets; status 0: nobody knows yet. */
typedef struct answer {
    int status;
    const char *text;
    const verdict *known;
} answer;

/* ---- reading the request -----------------------------------------------------------------------
 */

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
    const verdict *v = http_verdict_find(server, digest);
    if (!v || v->kind == VERDICT_OPEN)
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
    answer a = judge(server, wsi, http_bearer_token(wsi, text), digest);
    if (a.status != 101 || !http_ingest_make_place(server, &a.known->identity))
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
    const char *token = http_bearer_token(ex->peer.wsi, text);
    answer a = judge(server, ex->peer.wsi, token, ex->digest);
    if (a.status == 101 && !http_ingest_has_place(server))
        a = (answer){.status = 503, .text = "there are too many connections"};
    if (a.status) {
        answer_upgrade(ex, a.status, a.text);
        return;
    }
    bool ask = !a.known;
    const verdict *v = ask ? http_verdict_new(server, ex->peer.wsi, ex->digest) : a.known;
    if (!v) {
        pp_meter_add(server->metrics.tokens[TOKEN_LIMITED], 1);
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

static void tell_waiting(pp_http_server *server, const unsigned char *digest, int status,
                         const char *text)
{
    for (peer *p = server->exchanges; p; p = p->hh.next) {
        exchange *ex = (exchange *)p;
        if (ex->stage == STAGE_AUTHORIZE && memcmp(ex->digest, digest, DIGEST_BYTES) == 0)
            answer_upgrade(ex, status, text);
    }
}

void pp_http_authorize_respond(pp_http_server *server, pp_http_id id, pp_http_decision decision,
                               const pp_http_identity *identity, const char *text)
{
    static const int statuses[] = {101, 401, 403, 503};
    verdict *v = http_verdict_find_open(server, id);
    if (!v)
        return;
    if (decision == PP_HTTP_GRANTED && !identity)
        decision = PP_HTTP_UNAVAILABLE;
    (void)snprintf(v->message, sizeof v->message, "%s", text ? text : "");
    http_verdict_settle(server, v, decision, identity);
    tell_waiting(server, v->digest, statuses[decision], v->message);
    if (decision == PP_HTTP_UNAVAILABLE)
        http_verdict_drop(server, v);
}
