#include "controller/pods/unprobed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* A pod's author may name any UID as its controller's, but in no namespace than the pod's. */
typedef struct entry {
    char key[130]; /* "namespace/UID" */
    pp_unprobed_owner owner;
    UT_hash_handle hh;
} entry;

struct pp_unprobed {
    entry *by_key;
};

static entry *find(const pp_unprobed *unprobed, const char *ns, const char *uid)
{
    char key[sizeof((entry *)0)->key];
    entry *e = NULL;
    (void)snprintf(key, sizeof key, "%s/%s", ns, uid);
    HASH_FIND_STR(unprobed->by_key, key, e);
    return e;
}

pp_unprobed *pp_unprobed_new(void)
{
    return calloc(1, sizeof(pp_unprobed));
}

static void forget(pp_unprobed *unprobed, entry *e)
{
    HASH_DEL(unprobed->by_key, e);
    json_decref((json_t *)(uintptr_t)e->owner.labels);
    free(e);
}

void pp_unprobed_free(pp_unprobed *unprobed)
{
    if (unprobed)
        pp_unprobed_sweep(unprobed, INT64_MAX);
    free(unprobed);
}

void pp_unprobed_sweep(pp_unprobed *unprobed, int64_t now_ns)
{
    entry *e;
    entry *next;
    HASH_ITER(hh, unprobed->by_key, e, next)
    {
        if (e->owner.until_ns <= now_ns)
            forget(unprobed, e);
    }
}

size_t pp_unprobed_count(const pp_unprobed *unprobed)
{
    return HASH_COUNT(unprobed->by_key);
}

static void make_room(pp_unprobed *unprobed, int64_t now_ns)
{
    if (pp_unprobed_count(unprobed) < PP_UNPROBED_MAX)
        return;
    pp_unprobed_sweep(unprobed, now_ns);
    entry *first = unprobed->by_key;
    for (entry *e = first; e; e = e->hh.next) {
        if (e->owner.until_ns < first->owner.until_ns)
            first = e;
    }
    if (first && pp_unprobed_count(unprobed) >= PP_UNPROBED_MAX)
        forget(unprobed, first);
}

int pp_unprobed_add(pp_unprobed *unprobed, const pp_unprobed_owner *owner, int64_t now_ns)
{
    entry *e = find(unprobed, owner->ns, owner->uid);
    const bool known = e && e->owner.until_ns > now_ns;
    if (!e) {
        make_room(unprobed, now_ns);
        e = calloc(1, sizeof *e);
        if (!e)
            return -1;
        (void)snprintf(e->key, sizeof e->key, "%s/%s", owner->ns, owner->uid);
        HASH_ADD_STR(unprobed->by_key, key, e);
    }
    const int64_t since = known ? e->owner.since_ns : now_ns;
    const int64_t until =
        known && e->owner.until_ns > owner->until_ns ? e->owner.until_ns : owner->until_ns;
    const json_t *before = e->owner.labels;
    const json_t *labels = owner->labels ? json_incref((json_t *)(uintptr_t)owner->labels) : NULL;
    e->owner = *owner;
    e->owner.labels = labels ? labels : before;
    e->owner.since_ns = since;
    e->owner.until_ns = until;
    e->owner.told_ns = now_ns;
    if (labels)
        json_decref((json_t *)(uintptr_t)before);
    return 0;
}

const pp_unprobed_owner *pp_unprobed_find(const pp_unprobed *unprobed, const char *ns,
                                          const char *uid, int64_t now_ns)
{
    const entry *e = uid ? find(unprobed, ns, uid) : NULL;
    return e && e->owner.until_ns > now_ns ? &e->owner : NULL;
}

const pp_unprobed_owner *pp_unprobed_of(const pp_unprobed *unprobed, const pp_session *session,
                                        int64_t since_ns)
{
    const pp_unprobed_owner *best = NULL;
    for (const entry *e = unprobed->by_key; e; e = e->hh.next) {
        if (e->owner.told_ns >= since_ns && e->owner.labels &&
            strcmp(e->owner.ns, session->namespace_) == 0 &&
            pp_selector_matches(&session->selector, e->owner.labels) &&
            (!best || e->owner.told_ns > best->told_ns))
            best = &e->owner;
    }
    return best;
}
