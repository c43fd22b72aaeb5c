#include "controller/claim.h"

#include "common/json.h"
#include "common/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

pp_claim *pp_claim_decode(const json_t *lease, pp_error *err)
{
    const json_t *metadata = json_object_get(lease, "metadata");
    const char *ns = pp_json_get_string(metadata, "namespace", NULL);
    const char *name = pp_json_get_string(metadata, "name", NULL);
    const char *uid = pp_json_get_string(metadata, "uid", NULL);
    const char *created = pp_json_get_string(metadata, "creationTimestamp", NULL);
    if (!ns || !name || !uid) {
        (void)pp_error_field(err, "metadata", "a Lease needs a namespace, a name and a UID");
        return NULL;
    }
    pp_claim *claim = calloc(1, sizeof *claim);
    if (!claim) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    *claim = (pp_claim){
        .ns = copy(ns),
        .name = copy(name),
        .uid = copy(uid),
        .watched = copy(pp_json_get_string(metadata, "annotations", PP_CLAIM_WATCHED, NULL)),
        .renewed = copy(pp_json_get_string(lease, "spec", "renewTime", NULL))};
    if (created)
        (void)pp_time_parse(created, &claim->created_ns, NULL);
    if (!claim->ns || !claim->name || !claim->uid || !claim->watched || !claim->renewed) {
        pp_claim_free(claim);
        (void)pp_error_nomem(err);
        return NULL;
    }
    return claim;
}

void pp_claim_free(pp_claim *claim)
{
    if (!claim)
        return;
    free(claim->ns);
    free(claim->name);
    free(claim->uid);
    free(claim->watched);
    free(claim->renewed);
    free(claim);
}

static bool overlap(const pp_claim *a, const pp_claim *b)
{
    return !*a->watched || !*b->watched || strcmp(a->watched, b->watched) == 0;
}

/* The API server stamps whole seconds: within one, any order that both see alike. */
bool pp_claim_goes_before(const pp_claim *a, const pp_claim *b)
{
    if (!overlap(a, b) || strcmp(a->uid, b->uid) == 0)
        return false;
    return a->created_ns != b->created_ns ? a->created_ns < b->created_ns
                                          : strcmp(a->uid, b->uid) < 0;
}

void pp_claim_see(pp_claim_sight *sight, const pp_claim *claim, int64_t now_ns)
{
    char now[sizeof sight->last];
    (void)snprintf(now, sizeof now, "%s %s", claim->uid, claim->renewed);
    if (strcmp(now, sight->last) == 0)
        return;
    memcpy(sight->last, now, sizeof now);
    sight->since_ns = now_ns;
    sight->missed = 0;
}

void pp_claim_miss(pp_claim_sight *sight)
{
    if (sight->missed < PP_CLAIM_MISSED)
        sight->missed++;
}

bool pp_claim_abandoned(const pp_claim_sight *sight, int64_t now_ns)
{
    return *sight->last && sight->missed >= PP_CLAIM_MISSED &&
           now_ns - sight->since_ns >= PP_CLAIM_ABANDONED_NS;
}

int pp_claim_marks(const char *watched, json_t **ret_labels, json_t **ret_annotations,
                   pp_error *err)
{
    json_t *labels = json_pack("{s:s}", PP_CLAIM_LABEL, "true");
    json_t *annotations = json_pack("{s:s}", PP_CLAIM_WATCHED, watched);
    if (!labels || !annotations) {
        json_decref(labels);
        json_decref(annotations);
        return pp_error_nomem(err);
    }
    *ret_labels = labels;
    *ret_annotations = annotations;
    return 0;
}
