#include "operator/cache/owners.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OWNERS = 64 };

/* An answer holds for so long: a Job's end is seen that late, a pod that it makes at once. */
static const int64_t FRESH_NS = INT64_C(5000000000);

static bool is_same(const pp_session_owner *owner, const pp_pod *pod)
{
    return owner->kind == pod->owner && strcmp(owner->name, pod->owner_name) == 0;
}

void pp_owners_note(pp_owners *owners, const pp_pod *pod)
{
    for (size_t i = 0; i < owners->count; i++) {
        if (is_same(&owners->items[i], pod)) {
            owners->items[i].managed |= pod->managed;
            return;
        }
    }
    if (pod->owner == PP_OWNER_NONE || owners->count == MAX_OWNERS)
        return;
    if (!owners->items) {
        owners->items = calloc(MAX_OWNERS, sizeof *owners->items);
        owners->asked_ns = calloc(MAX_OWNERS, sizeof *owners->asked_ns);
    }
    char *name = strdup(pod->owner_name);
    if (!owners->items || !owners->asked_ns || !name) {
        free(name);
        return;
    }
    owners->items[owners->count++] =
        (pp_session_owner){.kind = pod->owner, .name = name, .managed = pod->managed};
}

void pp_owners_forget(pp_owners *owners)
{
    for (size_t i = 0; i < owners->count; i++) {
        owners->items[i].state = PP_OWNER_ASKING;
        owners->asked_ns[i] = 0;
    }
}

int pp_owners_next(const pp_owners *owners, int64_t now_ns, int64_t *again_ns)
{
    int next = -1;
    *again_ns = 0;
    for (size_t i = 0; i < owners->count && !owners->asking; i++) {
        int64_t stale_ns = owners->asked_ns[i] ? owners->asked_ns[i] + FRESH_NS : 0;
        if (stale_ns > now_ns && owners->items[i].state == PP_OWNER_MAKES_PODS) {
            *again_ns = stale_ns; /* one is enough */
            return -1;
        }
        if (stale_ns <= now_ns && next < 0)
            next = (int)i;
        else if (stale_ns > now_ns && (*again_ns == 0 || stale_ns < *again_ns))
            *again_ns = stale_ns;
    }
    return next;
}

void pp_owners_done(pp_owners *owners)
{
    for (size_t i = 0; i < owners->count; i++)
        free((char *)(uintptr_t)owners->items[i].name);
    free(owners->items);
    free(owners->asked_ns);
    *owners = (pp_owners){0};
}
