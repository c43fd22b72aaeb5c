#include "operator/http_server/askers.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { MAX_ASKERS = 4096 };

/** What comes from one address. */
typedef struct asker {
    visitor_address address;
    size_t under_way;
    int64_t paid; /**< when all questions are paid for, those under way too */
    UT_hash_handle hh;
} asker;

struct askers {
    asker_limits limits;
    asker *all;
    size_t under_way;
    size_t suspects; /**< of these */
};

askers *askers_new(const asker_limits *limits)
{
    askers *a = calloc(1, sizeof *a);
    if (a)
        a->limits = *limits;
    return a;
}

static void forget(askers *a, asker *one)
{
    HASH_DEL(a->all, one);
    free(one);
}

void askers_free(askers *a)
{
    if (!a)
        return;
    while (a->all)
        forget(a, a->all);
    free(a);
}

static void forget_the_settled(askers *a, int64_t now)
{
    asker *one;
    asker *spare;
    HASH_ITER(hh, a->all, one, spare)
    {
        if (!one->under_way && one->paid <= now)
            forget(a, one);
    }
}

static asker *asker_of(askers *a, const visitor_address *from, int64_t now)
{
    asker *one = NULL;
    HASH_FIND(hh, a->all, from, sizeof *from, one);
    if (one)
        return one;
    if (HASH_COUNT(a->all) >= MAX_ASKERS)
        forget_the_settled(a, now);
    one = HASH_COUNT(a->all) < MAX_ASKERS ? calloc(1, sizeof *one) : NULL;
    if (!one)
        return NULL;
    one->address = *from;
    one->paid = now;
    HASH_ADD(hh, a->all, address, sizeof one->address, one);
    return one;
}

static bool has_refusals(const askers *a, const asker *one, int64_t now)
{
    return one->paid - (int64_t)one->under_way * a->limits.interval > now;
}

bool askers_ask(askers *a, const visitor_address *from, int64_t now, asking *ret)
{
    const asker_limits *limits = &a->limits;
    asker *one = asker_of(a, from, now);
    if (!one)
        return false;
    bool suspect = has_refusals(a, one, now);
    if (a->under_way >= limits->total || one->under_way >= limits->each ||
        (suspect && a->suspects >= limits->total / 2) ||
        one->paid - now > (limits->burst - 1) * limits->interval)
        return false;
    one->paid = (one->paid > now ? one->paid : now) + limits->interval;
    one->under_way++;
    a->under_way++;
    a->suspects += suspect;
    *ret = (asking){.from = *from, .suspect = suspect};
    return true;
}

void askers_answered(askers *a, const asking *question, bool refused)
{
    asker *one = NULL;
    HASH_FIND(hh, a->all, &question->from, sizeof question->from, one);
    if (!one || !one->under_way)
        return;
    one->under_way--;
    a->under_way--;
    a->suspects -= question->suspect;
    if (!refused)
        one->paid -= a->limits.interval;
}

size_t askers_count(const askers *a)
{
    return HASH_COUNT(a->all);
}
