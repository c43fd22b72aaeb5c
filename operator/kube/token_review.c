#include "operator/kube/token_review.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"
#include "operator/kube/kube_internal.h"

#include <openssl/evp.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum {
    DIGEST = 32,
    MAX_TOKEN = 16 * 1024,
    MAX_QUESTIONS = 1024,
    MAX_KEPT = 1024,
    REVIEW_TIMEOUT_MS = 10 * 1000,
};
static const int64_t KEEP_NS = INT64_C(60) * 1000000000;

/** An identity with its own strings, all in one piece of memory. */
typedef struct owned_identity {
    pp_kube_identity identity;
    char *ns, *service_account;
    json_t *status; /**< the other strings live in here */
} owned_identity;

typedef struct kept {
    unsigned char digest[DIGEST];
    owned_identity who;
    int64_t until_ns;
    UT_hash_handle hh;
} kept;

typedef struct question {
    pp_kube_reviewer *reviewer;
    uint64_t id;
    pp_kube_id call;
    unsigned char digest[DIGEST];
    pp_kube_review_fn done;
    void *user;
    bool answered; /**< from what is kept; told on the loop's next turn */
    UT_hash_handle hh;
} question;

struct pp_kube_reviewer {
    pp_kube_client *client;
    char *audience; /**< NULL: the API server's own */
    kept *kept;     /**< by digest, the oldest first */
    question *questions;
    uint64_t last_id;
    uv_timer_t timer;
    bool closing;
};

static void owned_done(owned_identity *who)
{
    free(who->ns);
    free(who->service_account);
    json_decref(who->status);
    *who = (owned_identity){0};
}

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

static const char *extra(const json_t *status, const char *name)
{
    const json_t *values = pp_json_get(status, "user", "extra", name, NULL);
    return text_or_empty(json_string_value(json_array_get(values, 0)));
}

/** "system:serviceaccount:NAMESPACE:NAME" */
static void split_username(owned_identity *who)
{
    static const char prefix[] = "system:serviceaccount:";
    const char *name = who->identity.username;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return;
    name += sizeof prefix - 1;
    const char *colon = strchr(name, ':');
    if (!colon)
        return;
    who->ns = strndup(name, (size_t)(colon - name));
    who->service_account = strdup(colon + 1);
}

/** A server that does not know audiences answers none: its yes is not for us, but for itself. */
static bool for_audience(const json_t *status, const char *audience)
{
    size_t i;
    const json_t *a;
    if (!audience)
        return true;
    json_array_foreach(json_object_get(status, "audiences"), i, a)
    {
        const char *text = json_string_value(a);
        if (text && strcmp(text, audience) == 0)
            return true;
    }
    return false;
}

static void read_identity(const pp_kube_reviewer *r, const json_t *object, owned_identity *ret)
{
    *ret = (owned_identity){0};
    ret->status = json_deep_copy(json_object_get(object, "status"));
    const json_t *status = ret->status;
    bool yes = json_is_true(json_object_get(status, "authenticated"));
    bool ours = for_audience(status, r->audience);
    const char *why = pp_json_get_string(status, "error", NULL);
    pp_kube_identity *who = &ret->identity;
    who->username = text_or_empty(pp_json_get_string(status, "user", "username", NULL));
    who->authenticated = yes && ours && *who->username;
    who->pod_name = extra(status, "authentication.kubernetes.io/pod-name");
    who->pod_uid = extra(status, "authentication.kubernetes.io/pod-uid");
    who->user = json_object_get(status, "user");
    split_username(ret);
    who->ns = text_or_empty(ret->ns);
    who->service_account = text_or_empty(ret->service_account);
    who->reason = "";
    if (!who->authenticated)
        who->reason = why && *why ? why
                      : yes       ? "the token is not for this audience"
                                  : "the token is not valid";
}

/** Its own hold on the same identity: what is kept may be forgotten while it is told. */
static owned_identity hold(const owned_identity *who)
{
    owned_identity held = *who;
    held.status = json_incref(who->status);
    held.ns = strdup(who->identity.ns);
    held.service_account = strdup(who->identity.service_account);
    held.identity.ns = text_or_empty(held.ns);
    held.identity.service_account = text_or_empty(held.service_account);
    return held;
}

/* ---- what is kept ---- */

static void forget(pp_kube_reviewer *r, kept *k)
{
    HASH_DEL(r->kept, k);
    owned_done(&k->who);
    free(k);
}

static kept *find_kept(pp_kube_reviewer *r, const unsigned char *digest)
{
    kept *k = NULL;
    HASH_FIND(hh, r->kept, digest, DIGEST, k);
    if (k && pp_time_monotonic() >= k->until_ns) {
        forget(r, k);
        return NULL;
    }
    return k;
}

/** Takes the identity over; it is freed where it cannot be kept. */
static void keep(pp_kube_reviewer *r, const unsigned char *digest, owned_identity *who)
{
    kept *old = NULL;
    HASH_FIND(hh, r->kept, digest, DIGEST, old);
    if (old)
        forget(r, old);
    if (HASH_COUNT(r->kept) >= MAX_KEPT)
        forget(r, r->kept); /* the oldest */
    kept *k = calloc(1, sizeof *k);
    if (!k) {
        owned_done(who);
        return;
    }
    memcpy(k->digest, digest, DIGEST);
    k->who = *who;
    *who = (owned_identity){0};
    k->until_ns = pp_time_monotonic() + KEEP_NS;
    HASH_ADD(hh, r->kept, digest, DIGEST, k);
}

/* ---- questions ---- */

static void on_reviewed(void *user, json_t *object, const pp_error *error)
{
    question *q = user;
    pp_kube_reviewer *r = q->reviewer;
    HASH_DEL(r->questions, q);
    if (error) {
        q->done(q->user, NULL, error);
        free(q);
        return;
    }
    owned_identity who;
    read_identity(r, object, &who);
    if (who.identity.authenticated) { /* kept first: the callback may free the reviewer */
        owned_identity told = hold(&who);
        keep(r, q->digest, &who);
        who = told;
    }
    q->done(q->user, &who.identity, NULL);
    owned_done(&who);
    free(q);
}

static int ask(pp_kube_reviewer *r, question *q, const char *token, pp_error *err)
{
    PP_CLEANUP_JSON json_t *audiences = r->audience ? json_pack("[s]", r->audience) : NULL;
    PP_CLEANUP_JSON json_t *body =
        json_pack("{s:s, s:s, s:{s:s, s:O*}}", "apiVersion", "authentication.k8s.io/v1", "kind",
                  "TokenReview", "spec", "token", token, "audiences", audiences);
    if (!body)
        return pp_error_set(err, PP_ERR_INVALID, "the token is not text");
    pp_kube_call call = {.verb = PP_KUBE_CREATE,
                         .resource = &PP_KUBE_TOKENREVIEWS,
                         .body = body,
                         .timeout_ms = REVIEW_TIMEOUT_MS,
                         .for_readers = !r->audience,
                         .done = on_reviewed,
                         .user = q};
    return pp_kube_call_start(r->client, &call, &q->call, err);
}

static void answer_kept(pp_kube_reviewer *r, question *q)
{
    const kept *k = NULL;
    HASH_FIND(hh, r->kept, q->digest, DIGEST, k);
    owned_identity who = k ? hold(&k->who) : (owned_identity){0};
    pp_error gone = {.code = PP_ERR_UNAVAILABLE, .message = "the answer was dropped"};
    q->done(q->user, k ? &who.identity : NULL, k ? NULL : &gone);
    owned_done(&who);
    free(q);
}

static void on_timer(uv_timer_t *timer)
{
    pp_kube_reviewer *r = timer->data;
    for (bool again = true; again && !r->closing;) {
        again = false;
        question *q, *tmp;
        HASH_ITER(hh, r->questions, q, tmp)
        {
            if (!q->answered)
                continue;
            HASH_DEL(r->questions, q);
            answer_kept(r, q);
            again = true; /* the table may have changed under us */
            break;
        }
    }
}

int pp_kube_review(pp_kube_reviewer *r, const char *token, pp_kube_review_fn done, void *user,
                   pp_error *err)
{
    size_t n = token ? strnlen(token, MAX_TOKEN + 1) : 0;
    if (n == 0 || n > MAX_TOKEN)
        return pp_error_set(err, PP_ERR_INVALID, "a token of 1 to %d bytes is needed", MAX_TOKEN);
    if (HASH_COUNT(r->questions) >= MAX_QUESTIONS)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "%d token reviews are under way already",
                            MAX_QUESTIONS);
    question *q = calloc(1, sizeof *q);
    if (!q)
        return pp_error_nomem(err);
    *q = (question){.reviewer = r, .done = done, .user = user};
    if (!EVP_Digest(token, n, q->digest, NULL, EVP_sha256(), NULL)) {
        free(q);
        return pp_error_set(err, PP_ERR_INTERNAL, "SHA-256 is not available");
    }
    q->answered = find_kept(r, q->digest) != NULL;
    if (q->answered) {
        uv_timer_start(&r->timer, on_timer, 0, 0);
    } else if (ask(r, q, token, err) < 0) {
        free(q);
        return -1;
    }
    q->id = ++r->last_id;
    HASH_ADD(hh, r->questions, id, sizeof q->id, q);
    return 0;
}

static void cancel(pp_kube_reviewer *r, question *q)
{
    HASH_DEL(r->questions, q);
    if (q->call)
        pp_kube_call_cancel(r->client, q->call);
    free(q);
}

/* ---- life ---- */

pp_kube_reviewer *pp_kube_reviewer_new(pp_kube_client *client, const char *audience, pp_error *err)
{
    pp_kube_reviewer *r = calloc(1, sizeof *r);
    char *copy = audience ? strdup(audience) : NULL;
    if (!r || (audience && !copy)) {
        free(r);
        free(copy);
        (void)pp_error_nomem(err);
        return NULL;
    }
    r->client = client;
    r->audience = copy;
    uv_timer_init(pp_kube_client_loop(client), &r->timer);
    r->timer.data = r;
    return r;
}

static void on_closed(uv_handle_t *handle)
{
    pp_kube_reviewer *r = handle->data;
    while (r->kept)
        forget(r, r->kept);
    free(r->audience);
    free(r);
}

void pp_kube_reviewer_free(pp_kube_reviewer *r)
{
    if (!r || r->closing)
        return;
    r->closing = true;
    while (r->questions)
        cancel(r, r->questions);
    uv_close((uv_handle_t *)&r->timer, on_closed);
}
