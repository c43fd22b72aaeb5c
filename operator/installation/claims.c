#include "operator/installation/claims.h"

#include "common/log.h"
#include "common/time.h"
#include "controller/claim.h"
#include "operator/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/** What was seen of a claim. */
typedef struct sight {
    pp_claim_sight seen;
    UT_hash_handle hh;
    char key[]; /* of the Lease */
} sight;

typedef struct pp_claims {
    pp_kube_informer *informer; /* of pp_claim */
    sight *sights;
    void (*changed)(pp_operator *op);
    char own[330]; /* key of our Lease */
    bool denied;   /* the API server lets us see no Leases */
} pp_claims;

static void *decode(void *user, const json_t *object, pp_error *err)
{
    (void)user;
    return pp_claim_decode(object, err);
}

static void release(void *object)
{
    pp_claim_free(object);
}

static void changed(pp_operator *op)
{
    if (op->claims && !op->stopping)
        op->claims->changed(op);
}

static sight *find_sight(const pp_claims *claims, const char *key)
{
    sight *found = NULL;
    HASH_FIND_STR(claims->sights, key, found);
    return found;
}

static sight *get_sight(pp_claims *claims, const char *key)
{
    const size_t n = strlen(key) + 1;
    sight *s = find_sight(claims, key);
    if (s || !(s = calloc(1, sizeof *s + n)))
        return s;
    memcpy(s->key, key, n);
    HASH_ADD_STR(claims->sights, key, s);
    return s;
}

/* Whether it was abandoned, and is not any more. Without memory it is not seen, and goes before for
 * as long as it exists. */
static bool see(pp_operator *op, const char *key, const pp_claim *claim)
{
    const int64_t now = pp_time_monotonic();
    sight *s = op->claims ? get_sight(op->claims, key) : NULL;
    if (!s)
        return false;
    bool before = pp_claim_abandoned(&s->seen, now);
    pp_claim_see(&s->seen, claim, now);
    return before && !pp_claim_abandoned(&s->seen, now);
}

static void on_claim(void *user, const char *key, const void *object)
{
    (void)see(user, key, object);
    changed(user);
}

static void on_claim_gone(void *user, const char *key, const void *object)
{
    const pp_operator *op = user;
    sight *s = op->claims ? find_sight(op->claims, key) : NULL;
    (void)object;
    if (s) {
        HASH_DEL(op->claims->sights, s);
        free(s);
    }
    changed(user);
}

/* A Lease that is renewed, every two seconds, is the same claim; where it is our own, those that
 * are not renewed beside it may go before us no more. */
static void on_claim_update(void *user, const char *key, const void *old, const void *object)
{
    pp_operator *op = user;
    const pp_claim *before = old;
    const pp_claim *now = object;
    bool back = see(op, key, now);
    bool same = strcmp(before->uid, now->uid) == 0 && strcmp(before->watched, now->watched) == 0;
    bool renewed = op->claims && strcmp(key, op->claims->own) == 0 &&
                   strcmp(before->renewed, now->renewed) != 0;
    for (sight *s = renewed ? op->claims->sights : NULL; s; s = s->hh.next)
        pp_claim_miss(&s->seen);
    if (!same || renewed || back)
        changed(op);
}

static void on_synced(void *user)
{
    pp_operator *op = user;
    if (op->claims)
        op->claims->denied = false;
    changed(op);
}

/* Without that right the operator cannot know: it goes on as the only one, and says so. */
static void on_error(void *user, const pp_error *error)
{
    pp_operator *op = user;
    bool denied = error->code == PP_ERR_DENIED;
    if (!denied || !op->claims || !op->claims->denied)
        pp_warn(NULL, "watching for other installations of the operator: %s", error->message);
    if (op->claims && denied && !op->claims->denied) {
        op->claims->denied = true;
        changed(op);
    }
}

int pp_claims_start(pp_operator *op, void (*on_change)(pp_operator *op), pp_error *err)
{
    if (!op->config->lease.enabled)
        return 0;
    op->claims = calloc(1, sizeof *op->claims);
    if (!op->claims)
        return pp_error_nomem(err);
    const char *ns =
        *op->config->lease.ns ? op->config->lease.ns : pp_kube_client_namespace(op->kube);
    (void)snprintf(op->claims->own, sizeof op->claims->own, "%s/%s", ns, op->config->lease.name);
    op->claims->changed = on_change;
    const pp_kube_informer_options options = {.resource = &PP_KUBE_LEASES,
                                              .label_selector = PP_CLAIM_LABEL "=true",
                                              .handler = {.decode = decode,
                                                          .free_object = release,
                                                          .on_add = on_claim,
                                                          .on_update = on_claim_update,
                                                          .on_delete = on_claim_gone,
                                                          .on_synced = on_synced,
                                                          .on_error = on_error,
                                                          .user = op}};
    op->claims->informer = pp_kube_informer_new(op->kube, &options, err);
    return op->claims->informer ? 0 : -1;
}

void pp_claims_stop(pp_operator *op)
{
    sight *s, *next;
    if (op->claims) {
        pp_kube_informer_free(op->claims->informer);
        HASH_ITER(hh, op->claims->sights, s, next)
        {
            HASH_DEL(op->claims->sights, s);
            free(s);
        }
    }
    free(op->claims);
    op->claims = NULL;
}

typedef struct search {
    const pp_claims *claims;
    const pp_claim *own;
    const pp_claim *first;
} search;

static bool look(void *user, const char *key, const void *object)
{
    search *s = user;
    const pp_claim *claim = object;
    const sight *seen = find_sight(s->claims, key);
    if (seen && pp_claim_abandoned(&seen->seen, pp_time_monotonic()))
        return true;
    if (pp_claim_goes_before(claim, s->own) && (!s->first || pp_claim_goes_before(claim, s->first)))
        s->first = claim;
    return true;
}

static const pp_claim *own_claim(const pp_operator *op)
{
    return op->claims && op->claims->informer && pp_kube_informer_synced(op->claims->informer)
               ? pp_kube_informer_get(op->claims->informer, op->claims->own)
               : NULL;
}

static const pp_claim *rival(const pp_operator *op)
{
    search s = {.claims = op->claims, .own = own_claim(op)};
    if (s.own)
        pp_kube_informer_each(op->claims->informer, look, &s);
    return s.first;
}

bool pp_claims_synced(const pp_operator *op)
{
    return !op->claims || op->claims->denied ||
           (op->claims->informer && pp_kube_informer_synced(op->claims->informer));
}

bool pp_claims_clear(const pp_operator *op)
{
    if (!op->config->lease.enabled || (op->claims && op->claims->denied))
        return true;
    return own_claim(op) && !rival(op);
}

bool pp_claims_rival(const pp_operator *op, char *out, size_t size)
{
    const pp_claim *claim = rival(op);
    if (claim)
        (void)snprintf(out, size,
                       "idle: the installation of Lease %s/%s came first and keeps the sessions of "
                       "%s%s; uninstall one of the two",
                       claim->ns, claim->name, *claim->watched ? "namespace " : "all namespaces",
                       claim->watched);
    return claim != NULL;
}
