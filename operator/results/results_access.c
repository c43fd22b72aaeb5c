#include "operator/results/results_access.h"

#include "common/log.h"
#include "common/time.h"
#include "operator/cache/watches.h"
#include "operator/kube/access_review.h"
#include "operator/kube/token_review.h"
#include "operator/patterns/patterns.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum { DIGEST = 32, MAX_KEPT = 4096, MAX_NAME = 256 };
static const int64_t KEEP_NS = INT64_C(10000000000);
static const int64_t TOLD_EVERY_NS = INT64_C(60000000000);

static const pp_kube_resource *const resources[] = {
    [PP_ACCESS_SESSIONS] = &PP_PROFILESESSIONS,
    [PP_ACCESS_PATTERNS] = &PP_CONSUMPTIONPATTERNS,
};

/** What was allowed. */
typedef struct grant {
    unsigned char digest[DIGEST];
    uint64_t who;
    int64_t until_ns;
    UT_hash_handle hh;
} grant;

/** A question under way. */
typedef struct question {
    pp_results_access *access;
    unsigned char digest[DIGEST];
    const pp_kube_resource *resource;
    char ns[MAX_NAME], name[MAX_NAME];
    pp_kube_access_review *review; /**< NULL: the token's is awaited */
    uint64_t who;                  /**< its user; 0: not known yet */
    pp_access_fn done;             /**< NULL: nobody waits */
    void *user;
    struct question *prev, *next;
} question;

struct pp_results_access {
    pp_kube_client *kube;
    pp_kube_reviewer *reviewer;
    grant *grants; /**< by digest, the oldest first */
    question *questions;
    int64_t told_ns; /**< monotonic, when the log last said that nothing can be asked */
};

/* ---- what is kept ---- */

static int digest_of(const char *token, const pp_kube_resource *resource, const char *ns,
                     const char *name, unsigned char *ret)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    /* With their ends, so that no two questions are one text. */
    const int rc = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) &&
                           EVP_DigestUpdate(ctx, token, strlen(token) + 1) &&
                           EVP_DigestUpdate(ctx, resource->plural, strlen(resource->plural) + 1) &&
                           EVP_DigestUpdate(ctx, ns, strlen(ns) + 1) &&
                           EVP_DigestUpdate(ctx, name, strlen(name) + 1) &&
                           EVP_DigestFinal_ex(ctx, ret, NULL)
                       ? 0
                       : -1;
    EVP_MD_CTX_free(ctx);
    return rc;
}

static void drop(pp_results_access *a, grant *g)
{
    HASH_DEL(a->grants, g);
    free(g);
}

/** A number for a user, never 0. */
static uint64_t number_of(const char *username)
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    uint64_t number = 0;
    (void)EVP_Digest(username, strlen(username), digest, NULL, EVP_sha256(), NULL);
    memcpy(&number, digest, sizeof number);
    return number ? number : 1;
}

/** To whom; 0: it is not. */
static uint64_t granted_to(pp_results_access *a, const unsigned char *digest)
{
    grant *g = NULL;
    HASH_FIND(hh, a->grants, digest, DIGEST, g);
    if (g && g->until_ns <= pp_time_monotonic()) {
        drop(a, g);
        return 0;
    }
    return g ? g->who : 0;
}

static void keep(pp_results_access *a, const unsigned char *digest, uint64_t who)
{
    grant *g = NULL;
    HASH_FIND(hh, a->grants, digest, DIGEST, g);
    if (g)
        drop(a, g);
    if (HASH_COUNT(a->grants) >= MAX_KEPT)
        drop(a, a->grants);
    g = calloc(1, sizeof *g);
    if (!g)
        return;
    memcpy(g->digest, digest, DIGEST);
    g->who = who;
    g->until_ns = pp_time_monotonic() + KEEP_NS;
    HASH_ADD(hh, a->grants, digest, DIGEST, g);
}

/* ---- questions ---- */

static void end(question *q, pp_access verdict)
{
    DL_DELETE(q->access->questions, q);
    if (q->done)
        q->done(q->user, verdict, q->who);
    free(q);
}

static pp_access cannot_ask(pp_results_access *a, const char *what, const pp_error *error)
{
    const int64_t now = pp_time_monotonic();
    if (!a->told_ns || now - a->told_ns >= TOLD_EVERY_NS) {
        pp_warn("api", "%s: %s", what, error->message);
        a->told_ns = now;
    }
    return PP_ACCESS_UNAVAILABLE;
}

static void on_access(void *user, bool allowed, const pp_error *error)
{
    question *q = user;
    q->review = NULL;
    if (error) {
        end(q, cannot_ask(q->access, "whether a user may read results", error));
        return;
    }
    if (allowed)
        keep(q->access, q->digest, q->who);
    end(q, allowed ? PP_ACCESS_ALLOWED : PP_ACCESS_DENIED);
}

static void on_identity(void *user, const pp_kube_identity *who, const pp_error *error)
{
    question *q = user;
    pp_error err = {0};
    if (error) {
        end(q, cannot_ask(q->access, "reviewing the token of a user", error));
        return;
    }
    if (!who->authenticated) {
        end(q, PP_ACCESS_UNKNOWN);
        return;
    }
    if (!q->done) { /* who asked has gone */
        end(q, PP_ACCESS_UNAVAILABLE);
        return;
    }
    q->who = number_of(who->username);
    const pp_kube_access access = {.user = who->user,
                                   .verb = *q->name ? "get" : "list",
                                   .resource = q->resource,
                                   .ns = q->ns,
                                   .name = q->name};
    q->review = pp_kube_access_ask(q->access->kube, &access, on_access, q, &err);
    if (!q->review)
        end(q, cannot_ask(q->access, "whether a user may read results", &err));
}

void pp_results_access_ask(pp_results_access *a, const char *token, pp_access_object object,
                           const char *ns, const char *name, pp_access_fn done, void *user)
{
    pp_error err = {0};
    question *q = calloc(1, sizeof *q);
    if (!q || strlen(ns) >= MAX_NAME || strlen(name) >= MAX_NAME ||
        digest_of(token, resources[object], ns, name, q->digest) < 0) {
        free(q);
        done(user, PP_ACCESS_UNAVAILABLE, 0);
        return;
    }
    const uint64_t who = granted_to(a, q->digest);
    if (who) {
        free(q);
        done(user, PP_ACCESS_ALLOWED, who);
        return;
    }
    q->access = a;
    q->resource = resources[object];
    q->done = done;
    q->user = user;
    memcpy(q->ns, ns, strlen(ns) + 1);
    memcpy(q->name, name, strlen(name) + 1);
    DL_APPEND(a->questions, q);
    if (pp_kube_review(a->reviewer, token, on_identity, q, &err) < 0)
        end(q, err.code == PP_ERR_INVALID ? PP_ACCESS_UNKNOWN
                                          : cannot_ask(a, "reviewing the token of a user", &err));
}

void pp_results_access_forget(pp_results_access *a, const void *user)
{
    for (question *q = a->questions, *next; q; q = next) {
        next = q->next;
        if (q->user != user)
            continue;
        q->done = NULL;
        if (!q->review) /* the reviewer has it: its answer ends it */
            continue;
        pp_kube_access_cancel(q->review);
        end(q, PP_ACCESS_UNAVAILABLE);
    }
}

/* ---- life ---- */

pp_results_access *pp_results_access_new(pp_kube_client *kube, pp_error *err)
{
    pp_results_access *a = calloc(1, sizeof *a);
    if (!a) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    a->kube = kube;
    a->reviewer = pp_kube_reviewer_new(kube, NULL, err);
    if (!a->reviewer) {
        free(a);
        return NULL;
    }
    return a;
}

void pp_results_access_free(pp_results_access *a)
{
    if (!a)
        return;
    pp_kube_reviewer_free(a->reviewer);
    while (a->questions) {
        question *q = a->questions;
        q->done = NULL;
        pp_kube_access_cancel(q->review);
        end(q, PP_ACCESS_UNAVAILABLE);
    }
    while (a->grants)
        drop(a, a->grants);
    free(a);
}
