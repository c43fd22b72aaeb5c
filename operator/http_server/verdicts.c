/* What is known of tokens, for a while, by their digests. */
#include "operator/http_server/http_server_internal.h"

#include "common/time.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_VERDICTS = 4096 }; /* of a kind */

#define KEEP_GRANTED (30 * SECOND)
#define KEEP_UNAUTHORIZED (60 * SECOND)
#define KEEP_FORBIDDEN (3 * SECOND) /* the session may be on its way */

/** Whoever still waits for an open one is told by the exchange's own deadline. */
void http_verdict_drop(pp_http_server *server, verdict *v)
{
    if (v->kind == VERDICT_OPEN)
        askers_answered(server->askers, &v->question, false);
    verdict **of_its_kind = &server->verdicts[v->kind];
    if (*of_its_kind)
        HASH_DEL(*of_its_kind, v);
    free(v);
}

verdict *http_verdict_find(pp_http_server *server, const unsigned char *digest)
{
    verdict *v = NULL;
    for (int kind = 0; kind < VERDICT_KINDS && !v; kind++)
        HASH_FIND(hh, server->verdicts[kind], digest, DIGEST_BYTES, v);
    if (v && v->expires <= pp_time_monotonic()) {
        http_verdict_drop(server, v);
        return NULL;
    }
    return v;
}

/** Into its table, in the place of the one that has been there longest where that is full. */
static void keep_verdict(pp_http_server *server, verdict *v, verdict_kind kind)
{
    v->kind = kind;
    verdict *oldest = server->verdicts[kind]; /* uthash keeps the order of insertion */
    if (oldest && HASH_COUNT(oldest) >= MAX_VERDICTS) {
        HASH_DEL(server->verdicts[kind], oldest);
        free(oldest);
    }
    HASH_ADD(hh, server->verdicts[kind], digest, DIGEST_BYTES, v);
}

/** Questions that were not answered in time make room for others. */
static void drop_overdue(pp_http_server *server)
{
    int64_t now = pp_time_monotonic();
    verdict *v;
    verdict *spare;
    HASH_ITER(hh, server->verdicts[VERDICT_OPEN], v, spare)
    {
        if (v->expires <= now)
            http_verdict_drop(server, v);
    }
}

/** An open verdict, so that the next request with this token does not ask again; NULL: too many
 * are, of this address or in all. */
verdict *http_verdict_new(pp_http_server *server, const void *who, const unsigned char *digest)
{
    int64_t now = pp_time_monotonic();
    visitor_address from = {{0}};
    asking question;
    drop_overdue(server);
    (void)visitors_address(server->visitors, who, &from);
    if (!askers_ask(server->askers, &from, now, &question))
        return NULL;
    verdict *v = calloc(1, sizeof *v);
    if (!v) {
        askers_answered(server->askers, &question, false);
        return NULL;
    }
    (void)memcpy(v->digest, digest, DIGEST_BYTES);
    v->id = http_next_id(server);
    v->question = question;
    v->expires = now + server->options.authorize_timeout;
    keep_verdict(server, v, VERDICT_OPEN);
    return v;
}

int http_verdicts_start(pp_http_server *server)
{
    const asker_limits limits = {PP_HTTP_MAX_ASKED, PP_HTTP_MAX_ASKED_EACH,
                                 server->options.refusal_interval, PP_HTTP_MAX_REFUSED};
    server->askers = askers_new(&limits);
    return server->askers ? 0 : -1;
}

void http_verdicts_forget(pp_http_server *server)
{
    for (int kind = 0; kind < VERDICT_KINDS; kind++) {
        verdict *v;
        verdict *spare;
        HASH_ITER(hh, server->verdicts[kind], v, spare)
        {
            http_verdict_drop(server, v);
        }
    }
}

void http_verdicts_free(pp_http_server *server)
{
    http_verdicts_forget(server);
    askers_free(server->askers);
}

verdict *http_verdict_find_open(pp_http_server *server, pp_http_id id)
{
    for (verdict *v = server->verdicts[VERDICT_OPEN]; v; v = v->hh.next) {
        if (v->id == id)
            return v;
    }
    return NULL;
}

/** The open question is answered. */
void http_verdict_settle(pp_http_server *server, verdict *v, pp_http_decision decision,
                         const pp_http_identity *identity)
{
    static const int64_t keep[] = {
        [PP_HTTP_GRANTED] = KEEP_GRANTED,
        [PP_HTTP_UNAUTHORIZED] = KEEP_UNAUTHORIZED,
        [PP_HTTP_FORBIDDEN] = KEEP_FORBIDDEN,
        [PP_HTTP_UNAVAILABLE] = 0, /* asked again by whoever comes next */
    };
    bool granted = decision == PP_HTTP_GRANTED;
    bool refused = decision == PP_HTTP_UNAUTHORIZED || decision == PP_HTTP_FORBIDDEN;
    pp_meter_add(server->metrics.tokens[granted   ? TOKEN_GRANTED
                                        : refused ? TOKEN_REFUSED
                                                  : TOKEN_UNAVAILABLE],
                 1);
    HASH_DEL(server->verdicts[VERDICT_OPEN], v);
    askers_answered(server->askers, &v->question, refused);
    v->decision = decision;
    if (granted)
        v->identity = *identity;
    v->expires = pp_time_monotonic() + keep[decision];
    keep_verdict(server, v, granted ? VERDICT_GRANTED : VERDICT_REFUSED);
}
