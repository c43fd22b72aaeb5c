#include "operator/http_server/known_tokens.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define KEPT_NS INT64_C(60000000000)

typedef struct known {
    unsigned char digest[KNOWN_TOKEN_DIGEST];
    uint64_t who;
    int64_t until;
    UT_hash_handle hh;
} known;

struct known_tokens {
    known *all; /**< by digest, the oldest first */
};

known_tokens *known_tokens_new(void)
{
    return calloc(1, sizeof(known_tokens));
}

static void forget(known_tokens *k, known *one)
{
    HASH_DEL(k->all, one);
    free(one);
}

void known_tokens_free(known_tokens *k)
{
    while (k && k->all)
        forget(k, k->all);
    free(k);
}

static known *find(const known_tokens *k, const unsigned char *digest)
{
    known *one = NULL;
    HASH_FIND(hh, k->all, digest, KNOWN_TOKEN_DIGEST, one);
    return one;
}

void known_tokens_drop(known_tokens *k, const unsigned char *digest)
{
    known *one = find(k, digest);
    if (one)
        forget(k, one);
}

void known_tokens_keep(known_tokens *k, const unsigned char *digest, uint64_t who, int64_t now)
{
    known_tokens_drop(k, digest);
    if (HASH_COUNT(k->all) >= MAX_KNOWN_TOKENS)
        forget(k, k->all);
    known *one = calloc(1, sizeof *one);
    if (!one)
        return;
    memcpy(one->digest, digest, KNOWN_TOKEN_DIGEST);
    one->who = who;
    one->until = now + KEPT_NS;
    HASH_ADD(hh, k->all, digest, KNOWN_TOKEN_DIGEST, one);
}

uint64_t known_tokens_find(known_tokens *k, const unsigned char *digest, int64_t now)
{
    known *one = find(k, digest);
    if (!one || one->until > now)
        return one ? one->who : 0;
    forget(k, one);
    return 0;
}

size_t known_tokens_count(const known_tokens *k)
{
    return HASH_COUNT(k->all);
}
