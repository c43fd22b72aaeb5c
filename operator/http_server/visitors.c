#include "operator/http_server/visitors.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

/** What comes from one address. */
typedef struct source {
    visitor_address address;
    size_t count[SHARES];
    size_t visitors; /**< those that lost their place, too */
    UT_hash_handle hh;
} source;

typedef struct visitor {
    const void *who;
    source *source;
    visitor_share share;
    int64_t came;
    int64_t until;  /**< has to have asked by then; INT64_MAX while it waits for its answer */
    bool busy;      /**< waits for its answer */
    bool displaced; /**< lost its place and is not counted */
    unsigned sweep; /**< in which it was named */
    struct visitor *prev, *next;
    UT_hash_handle hh;
} visitor;

struct visitors {
    visitor_limits limits[SHARES];
    size_t count[SHARES];
    visitor *all;          /**< by who */
    visitor *list[SHARES]; /**< the same, those first that came or were answered longest ago */
    source *sources;
    unsigned sweep;
};

visitor_address visitor_address_of(const struct sockaddr *address)
{
    visitor_address a = {{0}};
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    if (address->sa_family == AF_INET) {
        (void)memcpy(&in4, address, sizeof in4);
        a.bytes[10] = a.bytes[11] = 0xff;
        (void)memcpy(a.bytes + 12, &in4.sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        (void)memcpy(&in6, address, sizeof in6);
        (void)memcpy(a.bytes, &in6.sin6_addr, IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) ? 16 : 8);
    }
    return a;
}

visitors *visitors_new(const visitor_limits limits[SHARES])
{
    visitors *v = calloc(1, sizeof *v);
    if (v)
        (void)memcpy(v->limits, limits, sizeof v->limits);
    return v;
}

static visitor *find(const visitors *v, const void *who)
{
    visitor *found = NULL;
    HASH_FIND_PTR(v->all, &who, found);
    return found;
}

/* ---- places -----------------------------------------------------------------------------------
 */

static source *source_of(visitors *v, const visitor_address *address)
{
    source *s = NULL;
    HASH_FIND(hh, v->sources, address, sizeof *address, s);
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->address = *address;
    HASH_ADD(hh, v->sources, address, sizeof s->address, s);
    return s;
}

static void source_release(visitors *v, source *s)
{
    if (s->visitors)
        return;
    HASH_DEL(v->sources, s);
    free(s);
}

static void take_place(visitors *v, visitor *who, visitor_share share)
{
    who->share = share;
    who->source->count[share]++;
    v->count[share]++;
    DL_APPEND(v->list[share], who);
}

static void give_place(visitors *v, visitor *who)
{
    DL_DELETE(v->list[who->share], who);
    if (who->displaced)
        return;
    who->source->count[who->share]--;
    v->count[who->share]--;
}

static void displace(visitors *v, visitor *who)
{
    who->source->count[who->share]--;
    v->count[who->share]--;
    who->displaced = true;
}

/** The longest there; of one address, or of any (NULL). Those that wait for us come last, and
 * where all have proved something they go for nobody: else whoever makes us wait would stay. */
static visitor *longest(const visitors *v, visitor_share share, const source *from)
{
    visitor *waits = NULL;
    for (visitor *w = v->list[share]; w; w = w->next) {
        if (w->displaced || (from && w->source != from))
            continue;
        if (!w->busy)
            return w;
        waits = waits ? waits : w;
    }
    return share == SHARE_REVIEW ? NULL : waits;
}

static const source *largest(const visitors *v, visitor_share share)
{
    const source *most = v->sources;
    for (const source *s = most; s; s = s->hh.next)
        most = s->count[share] > most->count[share] ? s : most;
    return most;
}

/** Room in the share for one more of this address; *ret_victim: in whose place. */
static bool make_room(visitors *v, visitor_share share, const source *from, int64_t now,
                      visitor **ret_victim)
{
    const visitor_limits *limit = &v->limits[share];
    *ret_victim = NULL;
    visitor *victim = NULL;
    if (limit->each && from->count[share] >= limit->each) {
        victim = longest(v, share, from);
    } else if (v->count[share] >= limit->total) {
        const source *most = largest(v, share);
        bool greedy = limit->each && most && most->count[share] > from->count[share] + 1;
        victim = longest(v, share, greedy ? most : NULL);
        if (victim && greedy) {
            *ret_victim = victim;
            return true;
        }
    } else {
        return true;
    }
    if (!victim || now - victim->came < VISITOR_GRACE)
        return false;
    *ret_victim = victim;
    return true;
}

static const void *displaced(visitors *v, visitor *victim)
{
    if (!victim)
        return NULL;
    displace(v, victim);
    return victim->who;
}

/* ---- coming and going -------------------------------------------------------------------------
 */

bool visitors_admit(visitors *v, const void *who, visitor_share share,
                    const visitor_address *address, int64_t now, const void **ret_victim)
{
    *ret_victim = NULL;
    visitors_leave(v, who);
    source *from = source_of(v, address);
    if (!from)
        return false;
    visitor *victim = NULL;
    visitor *fresh = make_room(v, share, from, now, &victim) ? calloc(1, sizeof *fresh) : NULL;
    if (!fresh) {
        source_release(v, from);
        return false;
    }
    *ret_victim = displaced(v, victim);
    fresh->who = who;
    fresh->source = from;
    fresh->came = now;
    fresh->until = now + v->limits[share].to_request;
    from->visitors++;
    take_place(v, fresh, share);
    HASH_ADD_PTR(v->all, who, fresh);
    return true;
}

void visitors_rename(visitors *v, const void *who, const void *name)
{
    visitor *known = find(v, who);
    if (!known)
        return;
    visitors_leave(v, name);
    HASH_DEL(v->all, known);
    known->who = name;
    HASH_ADD_PTR(v->all, who, known);
}

bool visitors_promote(visitors *v, const void *who, visitor_share share, int64_t now,
                      const void **ret_victim)
{
    visitor *known = find(v, who);
    visitor *victim = NULL;
    *ret_victim = NULL;
    if (!known || known->displaced)
        return false;
    if (known->share == share)
        return true;
    if (!make_room(v, share, known->source, now, &victim))
        return false;
    *ret_victim = displaced(v, victim);
    give_place(v, known);
    take_place(v, known, share);
    return true;
}

void visitors_leave(visitors *v, const void *who)
{
    visitor *known = find(v, who);
    if (!known)
        return;
    give_place(v, known);
    HASH_DEL(v->all, known);
    source *from = known->source;
    free(known);
    from->visitors--;
    source_release(v, from);
}

bool visitors_address(const visitors *v, const void *who, visitor_address *ret)
{
    const visitor *known = find(v, who);
    if (known)
        *ret = known->source->address;
    return known != NULL;
}

void visitors_free(visitors *v)
{
    if (!v)
        return;
    while (v->all)
        visitors_leave(v, v->all->who);
    free(v);
}

/* ---- times ------------------------------------------------------------------------------------
 */

void visitors_busy(visitors *v, const void *who)
{
    visitor *known = find(v, who);
    if (!known)
        return;
    known->busy = true;
    known->until = INT64_MAX;
}

void visitors_idle(visitors *v, const void *who, int64_t now)
{
    visitor *known = find(v, who);
    if (!known)
        return;
    known->busy = false;
    known->until = now + v->limits[known->share].idle;
    DL_DELETE(v->list[known->share], known);
    DL_APPEND(v->list[known->share], known);
}

void visitors_end_idle(visitors *v, visitor_share share, int64_t now)
{
    for (visitor *w = v->list[share]; w; w = w->next) {
        if (!w->busy && w->until > now)
            w->until = now;
    }
}

void visitors_sweep(visitors *v)
{
    v->sweep++;
}

const void *visitors_overdue(visitors *v, int64_t now)
{
    for (int share = 0; share < SHARES; share++) {
        for (visitor *w = v->list[share]; w; w = w->next) {
            if (w->sweep != v->sweep && (w->displaced || now >= w->until)) {
                w->sweep = v->sweep;
                return w->who;
            }
        }
    }
    return NULL;
}

size_t visitors_count(const visitors *v, visitor_share share)
{
    return v->count[share];
}
