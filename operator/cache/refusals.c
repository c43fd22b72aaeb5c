#include "operator/cache/refusals.h"

#include <stdio.h>
#include <stdlib.h>

void pp_refusals_begin(pp_refusals *refusals)
{
    refusals->turn++;
}

pp_refusal *pp_refusals_find(const pp_refusals *refusals, const char *pod_uid)
{
    pp_refusal *refusal = NULL;
    HASH_FIND_STR(refusals->by_pod, pod_uid, refusal);
    return refusal;
}

pp_refusal *pp_refusals_get(pp_refusals *refusals, const char *pod_uid)
{
    pp_refusal *refusal = pp_refusals_find(refusals, pod_uid);
    if (!refusal) {
        refusal = calloc(1, sizeof *refusal);
        if (!refusal)
            return NULL;
        (void)snprintf(refusal->pod_uid, sizeof refusal->pod_uid, "%s", pod_uid);
        HASH_ADD_STR(refusals->by_pod, pod_uid, refusal);
    }
    refusal->turn = refusals->turn;
    return refusal;
}

static void forget(pp_refusals *refusals, bool all)
{
    pp_refusal *refusal;
    pp_refusal *next;
    HASH_ITER(hh, refusals->by_pod, refusal, next)
    {
        if (!all && refusal->turn == refusals->turn)
            continue;
        HASH_DEL(refusals->by_pod, refusal);
        free(refusal);
    }
}

void pp_refusals_end(pp_refusals *refusals)
{
    forget(refusals, false);
}

void pp_refusals_done(pp_refusals *refusals)
{
    forget(refusals, true);
}
