/*
 * Several installations of the operator in one cluster: which of them keeps the sessions of a
 * namespace. Each claims what it watches by its Lease, which bears a label; of claims that overlap
 * the oldest counts, for as long as somebody renews it. That order never changes, so no two come to
 * different conclusions. No I/O.
 */
#ifndef PP_CONTROLLER_CLAIM_H
#define PP_CONTROLLER_CLAIM_H

#include "common/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PP_CLAIM_LABEL "precisionprobe.io/installation"        /* on the Lease, "true" */
#define PP_CLAIM_WATCHED "precisionprobe.io/watched-namespace" /* annotation; absent or "": all */

typedef struct pp_claim {
    char *ns;
    char *name;
    char *uid;
    int64_t created_ns;
    char *watched; /**< namespace; "": all */
    char *renewed; /**< when, as its holder says; "": never */
} pp_claim;

/**
 * What an observer has seen of a claim, on its own clock: no stamp of another's is compared with
 * it. Whether nothing is renewed or nothing is seen, as where a watch hangs, the renewals of the
 * observer's own claim tell, which come by the same watch.
 */
typedef struct pp_claim_sight {
    char last[128];   /**< what it was, the last time that it changed; "": never seen */
    int64_t since_ns; /**< monotonic, of that */
    unsigned missed;  /**< renewals of the observer's own claim since */
} pp_claim_sight;

/** A claim that was seen as it is for so long, while the observer's own was renewed so often, is
 * abandoned: several durations of a Lease, and more than a new pod takes to start. */
#define PP_CLAIM_ABANDONED_NS INT64_C(120000000000)
#define PP_CLAIM_MISSED 10

/** From a Lease; NULL with err set where it has no name, namespace or UID. */
pp_claim *pp_claim_decode(const json_t *lease, pp_error *err);

/** Accepts NULL. */
void pp_claim_free(pp_claim *claim);

/** Whether both watch the same namespace, and `a` came first. */
bool pp_claim_goes_before(const pp_claim *a, const pp_claim *b);

/** The claim is seen; a sight that is zeroed begins with it. */
void pp_claim_see(pp_claim_sight *sight, const pp_claim *claim, int64_t now_ns);

/** The observer's own claim was renewed. */
void pp_claim_miss(pp_claim_sight *sight);

/** Whether nobody renews it any more: then it goes before nobody. */
bool pp_claim_abandoned(const pp_claim_sight *sight, int64_t now_ns);

/** The Lease's label and its annotation: new references in *ret_labels and *ret_annotations. */
int pp_claim_marks(const char *watched, json_t **ret_labels, json_t **ret_annotations,
                   pp_error *err);

#endif
